"""The distortion sum for a general loss, term by term: exact, for small plans."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from ...geometry.metric import Metric
from ..config import PROBLEM_CONFIG
from .base import Distortion, PairLoss, distance_range
from .config import DISTORTION_CONFIG


@dataclass(frozen=True, eq=False)
class TermByTermDistortion(Distortion):
    """The sum with all (n·m)² values of g evaluated: exact up to rounding, also where g is infinite.

    item_index: (B,), the item of the metrics and of g that each plan belongs to, since several initial plans may share
    one item; None: plan b belongs to item b.
    """

    dx: Metric
    dy: Metric
    g: PairLoss
    item_index: Tensor | None = None
    _cached_blocks: list[tuple[Tensor, Tensor | None]] = field(default_factory=list)  # filled by the first product

    @property
    def rank(self) -> Tensor:
        """0: no matrix products."""
        return torch.zeros(1, dtype=torch.long, device=self.dx.device)

    @cached_property
    def infinite_items(self) -> Tensor:
        """(B,) or (1,) bool, on the CPU: is g infinite at some distance within the range of the item's metrics?"""
        (low_x, high_x), (low_y, high_y) = distance_range(self.dx), distance_range(self.dy)
        longest = torch.maximum(high_x - low_y, high_y - low_x)
        if self.g.rho_total is not None:
            return torch.zeros_like(longest, dtype=torch.bool)
        is_infinite = ~torch.isfinite(self.g.loss(longest[:, None] * _unit_grid())).all(1)
        shared = self.item_index is None or len(is_infinite) == 1
        return is_infinite if shared else is_infinite[self.item_index.cpu()]  # type: ignore[union-attr]

    @property
    def may_be_infinite(self) -> bool:  # type: ignore[override]
        """Is g infinite at some distance within the range of the metrics of any item?"""
        return bool(self.infinite_items.any())

    def apply(self, plan: Tensor) -> Tensor:
        """Compute the sum for a plan (B, n, m); an infinite g counts only where the plan has mass.

        Returns (B, n, m).
        """
        flat_plan, sums = plan.flatten(1), []
        for values, is_infinite in self._blocks():
            block_sum = self._multiply(values, flat_plan)
            if is_infinite is not None:
                block_sum = torch.where(self._multiply(is_infinite, flat_plan) > 0, torch.inf, block_sum)
            sums.append(block_sum)
        return torch.cat(sums, dim=1).view_as(plan)

    def _blocks(self) -> Iterable[tuple[Tensor, Tensor | None]]:
        """Values of g for blocks of rows of the plan, see `_evaluate_block`; kept if there is only one block."""
        if self._cached_blocks:
            return self._cached_blocks
        dx, dy = _batched_matrix(self.dx), _batched_matrix(self.dy)
        n_rows = max(1, DISTORTION_CONFIG.block_terms // (self._n_items * self.dx.n * self.dy.n**2))
        blocks = (self._evaluate_block(rows, dy) for rows in dx.split(n_rows, dim=1))
        if n_rows < self.dx.n:
            return blocks
        self._cached_blocks.extend(blocks)
        return self._cached_blocks

    def _evaluate_block(self, dx: Tensor, dy: Tensor) -> tuple[Tensor, Tensor | None]:
        """Evaluate g for some rows of Dx. dx: (items, rows, n); dy: (items, m, m).

        Returns the values (items, rows·m, n·m), 0 where g is infinite, and an indicator (1.0 or 0.0) of these places,
        None if there are none.
        """
        values = self.g((dx[:, :, None, :, None] - dy[:, None, :, None, :]).abs()).flatten(3).flatten(1, 2)
        is_infinite = torch.isinf(values)
        if not bool(is_infinite.any()):
            return values, None
        return torch.where(is_infinite, 0.0, values), is_infinite.to(values.dtype)

    def _multiply(self, values: Tensor, flat_plan: Tensor) -> Tensor:
        """Multiply each plan by the matrix of its item. values: (items or 1, k, n·m); flat_plan: (B, n·m).

        Returns (B, k).
        """
        if len(values) == 1:
            return flat_plan @ values[0].mT
        if self.item_index is None:
            return torch.bmm(values, flat_plan[:, :, None])[:, :, 0]
        # All plans of an item at once: a copy of its matrix for each plan would take longer than the products.
        products = flat_plan.new_empty(len(flat_plan), values.shape[1])
        for item in self.item_index.unique().tolist():
            plans = torch.nonzero(self.item_index == item)[:, 0]
            products[plans] = flat_plan[plans] @ values[item].mT
        return products

    @property
    def _n_items(self) -> int:
        """Number of different items: 1, or the batch size of the metrics or of g."""
        counts = [len(metric.dense()) for metric in (self.dx, self.dy) if metric.batched]
        return max([1, *counts, 0 if self.g.rho_total is None else len(self.g.rho_total)])

    def with_metrics(self, dx: Metric, dy: Metric) -> TermByTermDistortion:
        """Return the distortion sum of the same g on other metrics, which have one item for each plan."""
        return TermByTermDistortion(dx, dy, self.g if self.item_index is None else self.g.take(self.item_index))

    def take(self, index: Tensor) -> TermByTermDistortion:
        """Return the distortion sum of the batch items `index`; the evaluated terms are shared."""
        if self._n_items == 1:
            return self
        items = torch.arange(self._n_items, device=self.dx.device) if self.item_index is None else self.item_index
        return replace(self, item_index=items[index])


def _unit_grid() -> Tensor:
    """Evenly spaced shares of the longest distance at which g is tested for infinite values, float64."""
    return torch.linspace(0.0, 1.0, PROBLEM_CONFIG.n_loss_samples, dtype=torch.float64)


def _batched_matrix(metric: Metric) -> Tensor:
    """The distance matrix with a batch dimension, (B, n, n) or (1, n, n)."""
    matrix = metric.dense()
    return matrix if matrix.ndim == 3 else matrix[None]
