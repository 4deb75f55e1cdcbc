"""The distortion sum of a batch whose items use different methods or have different sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ...geometry.metric import Metric
from .base import Distortion, StoredKernel

Sizes = Sequence[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class ItemwiseDistortion(Distortion):
    """One distortion sum for each item of a batch, over the points of this item without padding.

    parts: sums of batches of one item; sizes: (n, m) of each part; part_index: (B,), the part that each plan uses.
    """

    parts: tuple[Distortion, ...]
    sizes: Sizes
    part_index: Tensor

    @property
    def rank(self) -> Tensor:
        """Number of terms of the factorized loss or conic kernel of each item, (B,); 0 if not factorized."""
        return torch.cat([part.rank for part in self.parts])[self.part_index]

    @property
    def error(self) -> Tensor:
        """Bound on the absolute error of the approximate loss or conic kernel of each item, (B,)."""
        return torch.cat([part.error for part in self.parts])[self.part_index]

    @property
    def tolerance(self) -> Tensor:
        """The largest absolute `error` that was asked for in each item, (B,)."""
        return torch.cat([part.tolerance for part in self.parts])[self.part_index]

    @property
    def may_be_infinite(self) -> bool:  # type: ignore[override]
        """Whether the loss may be infinite at differences of distances of any item."""
        return bool(self.infinite_items.any())

    @property
    def infinite_items(self) -> Tensor:
        """Whether the loss may be infinite at differences of distances of each item, (B,) bool, on the CPU."""
        return torch.cat([part.infinite_items for part in self.parts])[self.part_index.cpu()]

    def apply(self, plan: Tensor) -> Tensor:
        """Return Σ_i'j' g(|Dx_ii' − Dy_jj'|) plan_i'j' for all i, j, (B, n, m), 0 at padding. plan: (B, n, m).

        g, Dx and Dy are the loss or conic kernel and the metrics of each item.
        """
        total = torch.zeros_like(plan)
        for k, positions in self._positions_by_part:
            n, m = self.sizes[k]
            total[positions, :n, :m] = self.parts[k].apply(plan[positions, :n, :m])
        return total

    @cached_property
    def _positions_by_part(self) -> list[tuple[int, Tensor]]:
        """For each part in use its index in `parts` and the indices (k,) of its plans in the batch."""
        return [(k, torch.nonzero(self.part_index == k).flatten()) for k in self.part_index.unique().tolist()]

    def stored_kernels(self) -> list[StoredKernel] | None:
        """Return values or factors of g as matrices for the C++ library, one per plan; None if not all are stored."""
        used = {k: self.parts[k].stored_kernels() for k in set(self.part_index.tolist())}
        if any(kernels is None for kernels in used.values()):
            return None
        return [kernels[0] for k in self.part_index.tolist() if (kernels := used[k])]

    def with_metrics(self, dx: Metric, dy: Metric) -> ItemwiseDistortion:
        """Return the distortion sums of the same losses for metrics (B, n, n) and (B, m, m), one part for each plan."""
        indices = enumerate(self.part_index.tolist())
        parts = tuple(self.parts[k].with_metrics(dx.item(i, dx.n), dy.item(i, dy.n)) for i, k in indices)
        return ItemwiseDistortion(
            parts, [(dx.n, dy.n)] * len(parts), torch.arange(len(parts), device=self.part_index.device)
        )

    def truncate(self, share: float) -> ItemwiseDistortion:
        """Return the sums without the last low-rank terms that have at most `share` of the squared coefficients."""
        return replace(self, parts=tuple(part.truncate(share) for part in self.parts))

    def take(self, index: Tensor) -> ItemwiseDistortion:
        """Return the distortion sums of the batch items `index`, (k,) integers or (B,) bool; parts are not copied."""
        return replace(self, part_index=self.part_index[index])
