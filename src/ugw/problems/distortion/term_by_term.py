"""The distortion sum for a general loss, term by term: exact, for small plans."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from ...geometry.metric import Metric
from ...kernels.cpu.native import padded_size
from ..config import PROBLEM_CONFIG
from .base import Distortion, PairLoss, StoredKernel, distance_range
from .config import DISTORTION_CONFIG


@dataclass(frozen=True, eq=False)
class TermByTermDistortion(Distortion):
    """The distortion sum with all (n·m)² values g(|Dx_ii' − Dy_jj'|) evaluated: exact up to rounding.

    g(t) is the loss λ(t), which may be infinite, or the conic kernel exp(−λ(t)/R). item_index: (B,), the item of dx, dy
    and g that plan b of the batch belongs to, since several initial plans may share one item; None: plan b belongs to
    item b.
    """

    dx: Metric
    dy: Metric
    g: PairLoss
    item_index: Tensor | None = None
    _cached_blocks: list[tuple[Tensor, Tensor | None]] = field(default_factory=list)  # filled by the first product
    _cached_kernels: list[StoredKernel] = field(default_factory=list)  # filled by the first compiled run

    @property
    def rank(self) -> Tensor:
        """Number of terms of a factorized loss: 0, (1,), because it is not factorized."""
        return torch.zeros(1, dtype=torch.long, device=self.dx.device)

    @cached_property
    def infinite_items(self) -> Tensor:
        """Whether the loss is infinite on a grid of the differences of distances, (B,) or (1,) bool, on the CPU."""
        (low_x, high_x), (low_y, high_y) = distance_range(self.dx), distance_range(self.dy)
        longest = torch.maximum(high_x - low_y, high_y - low_x)
        if self.g.rho_total is not None:
            return torch.zeros_like(longest, dtype=torch.bool)
        shares = torch.linspace(0.0, 1.0, PROBLEM_CONFIG.n_loss_samples, dtype=torch.float64)
        is_infinite = ~torch.isfinite(self.g.loss(longest[:, None] * shares)).all(1)
        shared = self.item_index is None or len(is_infinite) == 1
        return is_infinite if shared else is_infinite[self.item_index.cpu()]  # type: ignore[union-attr]

    @property
    def may_be_infinite(self) -> bool:  # type: ignore[override]
        """Whether the loss may be infinite at differences of distances of any item."""
        return bool(self.infinite_items.any())

    def apply(self, plan: Tensor) -> Tensor:
        """Return Σ_i'j' g(|Dx_ii' − Dy_jj'|) plan_i'j' for all i, j, (B, n, m), g: loss or kernel. plan: (B, n, m).

        It is inf at ij if g is infinite at a pair i'j' with mass.
        """
        flat_plan, sums = plan.flatten(1), []
        for values, is_infinite in self._blocks():
            block_sum = self._multiply(values, flat_plan)
            if is_infinite is not None:
                block_sum = torch.where(self._multiply(is_infinite, flat_plan) > 0, torch.inf, block_sum)
            sums.append(block_sum)
        return torch.cat(sums, dim=1).view_as(plan)

    def _blocks(self) -> Iterable[tuple[Tensor, Tensor | None]]:
        """Return pairs (g values, 1.0 at infinite ones or None), (items, rows·m, n·m), for successive rows of Dx.

        g: loss or conic kernel of |Dx_ii' − Dy_jj'|, by ij and i'j'. One pair of all rows is kept for later calls.
        """
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
        """Return g(|dx_ii' − dy_jj'|), (items, rows·m, n·m), for some rows of Dx, by ij and i'j'.

        Infinite values are replaced by 0; a second tensor of the same shape is 1.0 there and 0.0 elsewhere, or None if
        there are none. dx: (items, rows, n); dy: (items, m, m).
        """
        values = self.g((dx[:, :, None, :, None] - dy[:, None, :, None, :]).abs()).flatten(3).flatten(1, 2)
        is_infinite = torch.isinf(values)
        if not bool(is_infinite.any()):
            return values, None
        return torch.where(is_infinite, 0.0, values), is_infinite.to(values.dtype)

    def _multiply(self, values: Tensor, flat_plan: Tensor) -> Tensor:
        """Return the product (B, k) of each plan with the matrix of its item.

        values: (items or 1, k, n·m), the matrices; flat_plan: (B, n·m), the plans.
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
        """Number of items of dx, dy and g: their batch size, 1 if none has a batch dimension."""
        counts = [len(metric.dense()) for metric in (self.dx, self.dy) if metric.batched]
        return max([1, *counts, 0 if self.g.rho_total is None else len(self.g.rho_total)])

    def stored_kernels(self) -> list[StoredKernel] | None:
        """Return the values of the loss or conic kernel as matrices for the C++ library, one per plan or one for all.

        None if they are not stored, infinite somewhere, or not in float64 on a CPU.
        """
        if not self._cached_kernels:
            blocks = self._blocks()
            if blocks is not self._cached_blocks:
                return None
            values, is_infinite = self._cached_blocks[0]
            if is_infinite is not None or values.dtype != torch.float64 or values.is_cuda:
                return None
            n, m = self.dx.n, self.dy.n
            padded = values.new_zeros(len(values), n * m, n, padded_size(m))
            padded[..., :m] = values.detach().view(len(values), n * m, n, m)
            self._cached_kernels.extend(StoredKernel(n, m, 0, matrix.flatten(1), None) for matrix in padded)
        if self.item_index is None or len(self._cached_kernels) == 1:
            return self._cached_kernels
        return [self._cached_kernels[item] for item in self.item_index.tolist()]

    def with_metrics(self, dx: Metric, dy: Metric) -> TermByTermDistortion:
        """Return the distortion sum of the same loss for other metrics, which have one item for each plan."""
        return TermByTermDistortion(dx, dy, self.g if self.item_index is None else self.g.take(self.item_index))

    def take(self, index: Tensor) -> TermByTermDistortion:
        """Return the distortion sum of the plans `index`, (k,) integers or (B,) bool; evaluated terms are shared."""
        if self._n_items == 1:
            return self
        items = torch.arange(self._n_items, device=self.dx.device) if self.item_index is None else self.item_index
        return replace(self, item_index=items[index])


def _batched_matrix(metric: Metric) -> Tensor:
    """Return the distance matrix with a batch dimension, (B, n, n) or (1, n, n)."""
    matrix = metric.dense()
    return matrix if matrix.ndim == 3 else matrix[None]
