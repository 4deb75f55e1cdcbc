"""The distortion sum for a general loss, as a sum of matrix products with low-rank factors of the loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ...geometry.metric import Metric
from .base import Distortion
from .config import DISTORTION_CONFIG
from .factorize import LossFactors


@dataclass(frozen=True, eq=False)
class FactorizedDistortion(Distortion):
    """The distortion sum Σ_r signs_r φ_r(Dx)·plan·φ_r(Dy) of g(|u − v|) ≈ Σ_r signs_r φ_r(u) φ_r(v).

    g(t) is the loss λ(t) or the conic kernel exp(−λ(t)/R). factors: signs and φ_r for each item, or a single one for
    all items.
    """

    dx: Metric
    dy: Metric
    factors: tuple[LossFactors, ...]
    _cached_terms: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # filled by the first product
    _item_sums: dict[int, FactorizedDistortion] = field(default_factory=dict)  # sums of single items, by position

    @property
    def rank(self) -> Tensor:
        """Number of terms r of the factors of g(|u − v|), the loss or conic kernel, (B,) or (1,)."""
        return torch.tensor([f.rank for f in self.factors], device=self.dx.device)

    @property
    def error(self) -> Tensor:
        """Bound on the absolute error of the factors of g(|u − v|), the loss or conic kernel, (B,) or (1,)."""
        return torch.tensor([f.error for f in self.factors], dtype=torch.float64, device=self.dx.device)

    @property
    def tolerance(self) -> Tensor:
        """The error that was asked for when the loss or conic kernel was factorized, (B,) or (1,)."""
        return torch.tensor([f.tolerance for f in self.factors], dtype=torch.float64, device=self.dx.device)

    @property
    def _is_shared(self) -> bool:
        """Whether all items have the same metrics and factors."""
        return len(self.factors) == 1 and not self.dx.batched and not self.dy.batched

    def apply(self, plan: Tensor) -> Tensor:
        """Return the distortion sum Σ_i'j' g(|Dx_ii' − Dy_jj'|) plan_i'j' for all i, j, (B, n, m). plan: (B, n, m)."""
        if self._is_shared:
            return self._apply_shared(plan)
        return torch.cat([self._item_sum(b)._apply_shared(plan[b : b + 1]) for b in range(len(plan))])

    def _apply_shared(self, plan: Tensor) -> Tensor:
        """Return the distortion sum (B, n, m) of a plan (B, n, m) whose items share both metrics and `factors[0]`."""
        batch, n, m = plan.shape
        folded = plan.permute(1, 0, 2).reshape(n, batch * m)
        total = torch.zeros(batch * n, m, dtype=plan.dtype, device=plan.device)
        for phi_x, phi_y in self._terms():
            count = len(phi_x)
            half = (phi_x.reshape(count * n, n) @ folded).view(count, n, batch, m)
            total.addmm_(half.permute(2, 1, 0, 3).reshape(batch * n, count * m), phi_y.reshape(count * m, m))
        return total.view(batch, n, m)

    def _terms(self) -> Iterable[tuple[Tensor, Tensor]]:
        """Return pairs of φ_r(Dx), (k, n, n), and signs_r φ_r(Dy), (k, m, m), for k terms r at a time.

        If memory allows there is one pair with all terms, which is kept for later calls.
        """
        if self._cached_terms:
            return self._cached_terms
        factors, dx, dy = self.factors[0], self.dx.dense(), self.dy.dense()
        term_bytes = (dx.numel() + dy.numel()) * (torch.finfo(dx.dtype).bits // 8)
        free_bytes = torch.cuda.mem_get_info(dx.device)[0] // 2 if dx.is_cuda else 0
        max_bytes = max(DISTORTION_CONFIG.max_cached_bytes, free_bytes)
        if factors.rank * term_bytes > max_bytes:
            return _evaluate_blocks(factors, dx, dy, max(1, max_bytes // (4 * term_bytes)))
        self._cached_terms.extend(_evaluate_blocks(factors, dx, dy, factors.rank))
        return self._cached_terms

    def _item_sum(self, b: int) -> FactorizedDistortion:
        """Return the distortion sum of batch item b alone, which is kept for later calls."""
        if b not in self._item_sums:
            factors = self.factors[b if len(self.factors) > 1 else 0]
            metrics = self.dx.item(b, self.dx.n), self.dy.item(b, self.dy.n)
            self._item_sums[b] = FactorizedDistortion(*metrics, (factors,))
        return self._item_sums[b]

    def with_metrics(self, dx: Metric, dy: Metric) -> FactorizedDistortion:
        """Return the distortion sum with the same factors for other metrics, whose distances must be in their range."""
        return FactorizedDistortion(dx, dy, self.factors)

    def truncate(self, share: float) -> FactorizedDistortion:
        """Return the distortion sum with the leading terms of each factorization; see `Distortion.truncate`."""
        return FactorizedDistortion(self.dx, self.dy, tuple(factors.truncate(share) for factors in self.factors))

    def take(self, index: Tensor) -> FactorizedDistortion:
        """Return the distortion sum of the batch items `index`, (k,) integers or (B,) bool."""
        if self._is_shared:
            return self
        if index.dtype == torch.bool:
            index = torch.nonzero(index).flatten()
        factors = self.factors if len(self.factors) == 1 else tuple(self.factors[i] for i in index.tolist())
        return FactorizedDistortion(self.dx.take(index), self.dy.take(index), factors)


def _evaluate_blocks(factors: LossFactors, dx: Tensor, dy: Tensor, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield φ_r(dx), (count, n, n), and signs_r φ_r(dy), (count, m, m), for `count` terms r at a time."""
    for start in range(0, factors.rank, count):
        part = slice(start, start + count)
        block = replace(factors, coefficients=factors.coefficients[:, part], signs=factors.signs[part])
        yield block.evaluate(dx), block.evaluate(dy) * block.signs.to(dy)[:, None, None]
