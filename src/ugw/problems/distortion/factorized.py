"""The distortion sum for a general loss, as a sum of matrix products with low-rank factors of the loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..._utils.size_class import size_class
from ...geometry.metric import Metric
from ...kernels.cpu import native
from .base import Distortion, StoredKernel
from .config import DISTORTION_CONFIG
from .factorize import LossFactors
from .itemwise import ItemwiseDistortion


@dataclass(frozen=True, eq=False)
class FactorizedDistortion(Distortion):
    """The distortion sum Σ_r signs_r φ_r(Dx)·plan·φ_r(Dy) of g(|u − v|) ≈ Σ_r signs_r φ_r(u) φ_r(v).

    g(t) is the loss λ(t) or the conic kernel exp(−λ(t)/R). dx, dy: without a batch dimension; all plans of a batch
    share them. factors: signs and φ_r.
    """

    dx: Metric
    dy: Metric
    factors: LossFactors
    _cached_terms: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # filled by the first product
    _cached_kernels: list[StoredKernel] = field(default_factory=list)  # filled by the first compiled run

    @property
    def rank(self) -> Tensor:
        """Number of terms r of the factors of g(|u − v|), the loss or conic kernel, (1,)."""
        return torch.tensor([self.factors.rank], device=self.dx.device)

    @property
    def error(self) -> Tensor:
        """Bound on the absolute error of the factors of g(|u − v|), the loss or conic kernel, (1,)."""
        return torch.tensor([self.factors.error], dtype=torch.float64, device=self.dx.device)

    @property
    def tolerance(self) -> Tensor:
        """The largest absolute error of the loss or conic kernel that was asked for when it was factorized, (1,)."""
        return torch.tensor([self.factors.tolerance], dtype=torch.float64, device=self.dx.device)

    def apply(self, plan: Tensor) -> Tensor:
        """Return Σ_i'j' g(|Dx_ii' − Dy_jj'|) plan_i'j' for all i, j, (B, n, m), g: loss or kernel. plan: (B, n, m)."""
        batch, n, m = plan.shape
        if plan.dtype == torch.float64 and not plan.is_cuda and not torch.is_grad_enabled():
            kernels = self.stored_kernels() if size_class(n, m).uses_compiled_steps and native.is_available() else None
            if kernels is not None:
                return _multiply_compiled(kernels[0], plan)
        folded = plan.permute(1, 0, 2).reshape(n, batch * m)
        total = torch.zeros(batch * n, m, dtype=plan.dtype, device=plan.device)
        term_flops = 2 * batch * n * m * (n + m)
        max_terms = max(1, DISTORTION_CONFIG.max_product_flops // term_flops)
        for phi_x, phi_y in self._terms_split(max_terms):
            count = len(phi_x)
            half = (phi_x.reshape(count * n, n) @ folded).view(count, n, batch, m)
            total.addmm_(half.permute(2, 1, 0, 3).reshape(batch * n, count * m), phi_y.reshape(count * m, m))
        return total.view(batch, n, m)

    def _terms_split(self, max_terms: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield pairs φ_r(Dx), (k, n, n), and signs_r φ_r(Dy), (k, m, m), for k ≤ `max_terms` terms r at a time."""
        for phi_x, phi_y in self._terms():
            yield from zip(phi_x.split(max_terms), phi_y.split(max_terms), strict=True)

    def _terms(self) -> Iterable[tuple[Tensor, Tensor]]:
        """Return pairs of φ_r(Dx), (k, n, n), and signs_r φ_r(Dy), (k, m, m), for k terms r at a time.

        φ_r and signs_r are the low-rank factors of the loss or conic kernel: g(|u − v|) ≈ Σ_r signs_r φ_r(u) φ_r(v).
        If memory allows there is one pair with all terms, which is kept for later calls.
        """
        if self._cached_terms:
            return self._cached_terms
        factors, dx, dy = self.factors, self.dx.dense(), self.dy.dense()
        term_bytes = (dx.numel() + dy.numel()) * (torch.finfo(dx.dtype).bits // 8)
        free_bytes = torch.cuda.mem_get_info(dx.device)[0] // 2 if dx.is_cuda else 0
        max_bytes = max(DISTORTION_CONFIG.max_cached_bytes, free_bytes)
        if factors.rank * term_bytes > max_bytes:
            return self._evaluate_blocks(dx, dy, max(1, max_bytes // (4 * term_bytes)))
        self._cached_terms.extend(self._evaluate_blocks(dx, dy, factors.rank))
        return self._cached_terms

    def _evaluate_blocks(self, dx: Tensor, dy: Tensor, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield φ_r(dx), (count, n, n), and signs_r φ_r(dy), (count, m, m), for `count` terms r at a time.

        φ_r, signs_r: the factors, with g(|u − v|) ≈ Σ_r signs_r φ_r(u) φ_r(v) for the loss or conic kernel g.
        """
        factors = self.factors
        for start in range(0, factors.rank, count):
            part = slice(start, start + count)
            block = replace(factors, coefficients=factors.coefficients[:, part], signs=factors.signs[part])
            yield block.evaluate(dx), block.evaluate(dy) * block.signs.to(dy)[:, None, None]

    def stored_kernels(self) -> list[StoredKernel] | None:
        """Return the low-rank factors as matrices for C++, a list of one; None if not stored in float64 on a CPU."""
        if not self._cached_kernels:
            terms = self._terms()
            if terms is not self._cached_terms or terms[0][0].dtype != torch.float64 or terms[0][0].is_cuda:
                return None
            (phi_x, phi_y), rank = terms[0], self.factors.rank
            n, m = phi_x.shape[1], phi_y.shape[1]
            left = phi_x.new_zeros(rank, n, native.padded_size(n))
            right = phi_y.new_zeros(rank, native.padded_size(m), native.padded_size(m))
            left[:, :, :n], right[:, :m, :m] = phi_x.detach(), phi_y.detach()
            right_rows = right.permute(2, 0, 1).flatten(1).contiguous()  # a view of another layout otherwise
            self._cached_kernels.append(StoredKernel(n, m, rank, left.flatten(0, 1), right.flatten(0, 1), right_rows))
        return self._cached_kernels

    def with_metrics(self, dx: Metric, dy: Metric) -> Distortion:
        """Return the sum with the same factors for other metrics, whose distances must be in the factors' range."""
        if not dx.batched and not dy.batched:
            return FactorizedDistortion(dx, dy, self.factors)
        count = (dx if dx.batched else dy).shape[0]
        items = ((dx.item(i, dx.n), dy.item(i, dy.n)) for i in range(count))
        parts = tuple(FactorizedDistortion(*metrics, self.factors) for metrics in items)
        return ItemwiseDistortion(parts, [(dx.n, dy.n)] * count, torch.arange(count, device=dx.device))

    def truncate(self, share: float) -> FactorizedDistortion:
        """Return the sum without the last low-rank terms that have at most `share` of the squared coefficients."""
        factors = self.factors.truncate(share)
        terms = [(phi_x[: factors.rank], phi_y[: factors.rank]) for phi_x, phi_y in self._cached_terms]
        kernels = [replace(kernel, rank=factors.rank) for kernel in self._cached_kernels]
        return replace(self, factors=factors, _cached_terms=terms, _cached_kernels=kernels)

    def take(self, index: Tensor) -> FactorizedDistortion:
        """Return the distortion sum itself: all items share it."""
        return self


def _multiply_compiled(kernel: StoredKernel, plan: Tensor) -> Tensor:
    """Return the distortion sums (B, n, m) of plans (B, n, m), float64 on a CPU, by the compiled library."""
    products = torch.empty(plan.shape, dtype=plan.dtype)
    native.load().multiply(
        native.ProductRun(
            batch=len(plan),
            n_threads=torch.get_num_threads(),
            n=kernel.n,
            m=kernel.m,
            kernel=native.kernel_addresses(kernel),
            plans=native.strided_matrices(plan),
            products=products.data_ptr(),
        )
    )
    return products
