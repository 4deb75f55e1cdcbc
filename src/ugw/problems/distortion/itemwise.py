"""The distortion sum of a batch whose items use different methods or have different sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ...geometry.metric import Metric
from .base import Distortion

Sizes = Sequence[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class ItemwiseDistortion(Distortion):
    """The sums of the single items of a batch, each on its own unpadded points.

    parts: the sum of each different item; sizes: (n, m) of each part; part_index: (B,), the part of each plan.
    """

    parts: tuple[Distortion, ...]
    sizes: Sizes
    part_index: Tensor

    @property
    def rank(self) -> Tensor:
        """Rank of each item's sum, (B,)."""
        return torch.cat([part.rank for part in self.parts])[self.part_index]

    @property
    def error(self) -> Tensor:
        """Error bound of each item's sum, (B,)."""
        return torch.cat([part.error for part in self.parts])[self.part_index]

    @property
    def tolerance(self) -> Tensor:
        """Largest acceptable error of each item's sum, (B,)."""
        return torch.cat([part.tolerance for part in self.parts])[self.part_index]

    @property
    def may_be_infinite(self) -> bool:  # type: ignore[override]
        """Can g be infinite for any item?"""
        return bool(self.infinite_items.any())

    @property
    def infinite_items(self) -> Tensor:
        """(B,) bool, on the CPU: can g be infinite at distances of each item?"""
        return torch.cat([part.infinite_items for part in self.parts])[self.part_index.cpu()]

    def apply(self, plan: Tensor) -> Tensor:
        """Compute the sum for a plan (B, n, m); 0 at padded points. Returns (B, n, m)."""
        total = torch.zeros_like(plan)
        for k, positions in self._positions_by_part:
            n, m = self.sizes[k]
            total[positions, :n, :m] = self.parts[k].apply(plan[positions, :n, :m])
        return total

    @cached_property
    def _positions_by_part(self) -> list[tuple[int, Tensor]]:
        """Pairs of a part in use and the batch positions of its plans."""
        return [(k, torch.nonzero(self.part_index == k).flatten()) for k in self.part_index.unique().tolist()]

    def with_metrics(self, dx: Metric, dy: Metric) -> ItemwiseDistortion:
        """The sums on other metrics, one part for each plan."""
        indices = enumerate(self.part_index.tolist())
        parts = tuple(self.parts[k].with_metrics(dx.item(i, dx.n), dy.item(i, dy.n)) for i, k in indices)
        return ItemwiseDistortion(
            parts, [(dx.n, dy.n)] * len(parts), torch.arange(len(parts), device=self.part_index.device)
        )

    def take(self, index: Tensor) -> ItemwiseDistortion:
        """The sums for the batch items `index`; the parts are shared."""
        return replace(self, part_index=self.part_index[index])
