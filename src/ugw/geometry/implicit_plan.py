"""Plans that are never stored: exponentials of a `BilinearMatrix`, and the Gibbs kernel that produces them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from .._utils.pytree import BatchRecord
from ..kernels import dispatch as kernels
from .bilinear_matrix import BilinearMatrix


@dataclass(frozen=True, eq=False)
class ImplicitPlan(BatchRecord):
    """An implicit plan exp(log_plan), (B, n, m): given by potentials and low-rank factors instead of a stored matrix.

    It supports sums, products and scalar multiples.

    log_plan: row_i + col_j + left_i · core · right_j, with left (B, n, r) and right (B, m, s); row_sums: (B, n);
    col_sums: (B, m); right_product: (B, n, s), the plan times `right`; f: (B, n), g: (B, m), the potentials that
    produced the plan, in units of the cost, for a warm start. An initial plan prolongated from a sample of the points
    has sums and products computed from that sample.
    """

    log_plan: BilinearMatrix
    row_sums: Tensor
    col_sums: Tensor
    right_product: Tensor
    f: Tensor
    g: Tensor

    @property
    def shape(self) -> torch.Size:
        """The shape (B, n, m)."""
        return self.log_plan.shape

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the plan's entries and sums, float32 or float64."""
        return self.log_plan.dtype

    @property
    def device(self) -> torch.device:
        """The device of the plan."""
        return self.log_plan.device

    def sum(self, dim: int | tuple[int, int], dtype: torch.dtype | None = None) -> Tensor:
        """Return row sums (B, n) for dim=2, column sums (B, m) for dim=1, and masses (B,) for dim=(1, 2).

        dtype: of the result, None for that of the plan.
        """
        if dim == 2:
            return self.row_sums.to(dtype or self.dtype)
        if dim == 1:
            return self.col_sums.to(dtype or self.dtype)
        return self.row_sums.sum(1, dtype=torch.float64).to(dtype or self.dtype)

    @cached_property
    def basis_product(self) -> Tensor:
        """The product leftᵀ · plan · right, (B, r, s), float64; left: (B, n, r), right: (B, m, s), of `log_plan`."""
        return self.log_plan.left.double().mT @ self.right_product.double()

    def __mul__(self, factor: Tensor) -> ImplicitPlan:
        """Return the plan times one positive number per item, (B, 1, 1); its potentials f and g stay the same."""
        vector_factor = factor[:, :, 0].to(self.dtype)
        return replace(
            self,
            log_plan=self.log_plan + factor.double().log(),
            row_sums=vector_factor * self.row_sums,
            col_sums=vector_factor * self.col_sums,
            right_product=vector_factor[:, :, None] * self.right_product,
        )

    def __truediv__(self, divisor: Tensor) -> ImplicitPlan:
        """Return the plan divided by one positive number per item, (B, 1, 1); its potentials stay the same."""
        return self * (1.0 / divisor)

    @property
    def mT(self) -> ImplicitPlan:
        """The transposed plan (B, m, n); each access computes its product with `left`, in a pass over all pairs."""
        # Its product with `left` is not known before the transposed plan exists.
        transposed = ImplicitPlan(self.log_plan.mT, self.col_sums, self.row_sums, self.right_product, self.g, self.f)
        return replace(transposed, right_product=transposed @ self.log_plan.left)

    def __matmul__(self, matrix: Tensor) -> Tensor:
        """Return the product (B, n, k) of the plan and a matrix (B, m, k)."""
        left, right = self.log_plan.core_factors()
        lowest = torch.finfo(self.dtype).min / 4
        # Rows without mass have log −inf, whose negative would be an infinite shift: they are set to 0 afterwards.
        shift = -self.log_plan.row.clamp(min=lowest)
        sums = kernels.streaming_weighted_sum(
            left, right, self.log_plan.col.to(self.dtype), shift.to(self.dtype), matrix
        )
        return torch.where(self.log_plan.row[:, :, None] > lowest, sums, 0.0)

    def rows(self, index: Tensor) -> Tensor:
        """Return the plan's entries (B, k, m) in the rows `index`, (k,)."""
        return self.log_plan.rows(index).exp()

    def log_ratio(self, log_a: Tensor, log_b: Tensor) -> BilinearMatrix:
        """Return the matrices log(plan_ij / (a_i b_j)), (B, n, m), as factors. log_a: (B, n), log_b: (B, m).

        Where a_i (or b_j) is 0, the term that depends on i (or j) alone is 0 instead of infinite.
        """
        row = torch.where(log_a > -torch.inf, self.log_plan.row - log_a, 0.0)
        col = torch.where(log_b > -torch.inf, self.log_plan.col - log_b, 0.0)
        return replace(self.log_plan, row=row, col=col)

    def dot(self, matrix: BilinearMatrix) -> Tensor:
        """Return <matrix, plan>, (B,), float64, for a matrix with the same `left` and `right` as `log_plan`."""
        p1, p2 = self.row_sums.double(), self.col_sums.double()
        core_term = (matrix.core * self.basis_product).sum(dim=(1, 2))
        return (matrix.row * p1).sum(1) + (matrix.col * p2).sum(1) + core_term

    def crop(self, n: int, m: int) -> ImplicitPlan:
        """Return the first n rows and m columns, (B, n, m), of a plan that has no mass elsewhere (only padding)."""
        log = self.log_plan
        cropped = BilinearMatrix(log.row[:, :n], log.col[:, :m], log.core, log.left[:, :n], log.right[:, :m])
        row_sums, col_sums, right_product = self.row_sums[:, :n], self.col_sums[:, :m], self.right_product[:, :n]
        return ImplicitPlan(cropped, row_sums, col_sums, right_product, self.f[:, :n], self.g[:, :m])


@dataclass(eq=False)
class StreamingKernel(BatchRecord, kernels.LogDomainIterations):
    """The `GibbsKernel` exp(−cost/eps) of a cost that is a `BilinearMatrix`, for plans that are not stored.

    Sums over rows and columns are computed from the factors of the cost, in O((n + m)·r) memory, in the log domain.
    """

    iterations_per_check: ClassVar[int] = 2  # the check costs nothing compared with a sum over all pairs

    log_kernel: BilinearMatrix  # −cost / eps, (B, n, m)
    log_a: Tensor  # (B, n)
    log_b: Tensor  # (B, m)
    eps: Tensor  # (B,)
    # Results of the last sums over columns (B, n) and rows (B, m): guesses for the next ones, which are close.
    _row_guess: Tensor | None = field(default=None)
    _col_guess: Tensor | None = field(default=None)

    @classmethod
    def from_cost(cls, cost: BilinearMatrix, log_a: Tensor, log_b: Tensor, eps: Tensor) -> StreamingKernel:
        """Return the kernel exp(−cost / eps) of a cost (B, n, m). eps: (B,); log_a: (B, n), log_b: (B, m)."""
        return cls(cost * (-1.0 / eps.double())[:, None, None], log_a, log_b, eps)

    @cached_property
    def _core_factors(self) -> tuple[Tensor, Tensor]:
        """L (B, n, k) and R (B, m, k) with L Rᵀ = left core rightᵀ, the term of `log_kernel` that is not row or col.

        k is the smaller width of left and right, which is kept as it is; the other one is multiplied by the core.
        """
        return self.log_kernel.core_factors()

    def row_logsumexp(self, gamma: Tensor) -> Tensor:
        """Return log Σ_j b_j exp(gamma_j − cost_ij / eps), (B, n), and keep it as next guess. gamma: (B, m), g/eps."""
        left, right = self._core_factors
        self._row_guess = kernels.streaming_logsumexp(left, right, self._column_bias(gamma), self._row_guess)
        return (self._row_guess + self.log_kernel.row).to(gamma.dtype)

    def col_logsumexp(self, phi: Tensor) -> Tensor:
        """Return log Σ_i a_i exp(phi_i − cost_ij / eps), (B, m), and keep it as next guess. phi: (B, n), f/eps."""
        left, right = self._core_factors
        bias = (self.log_a + phi + self.log_kernel.row).to(phi.dtype)
        self._col_guess = kernels.streaming_logsumexp(right, left, bias, self._col_guess)
        return (self._col_guess + self.log_kernel.col).to(phi.dtype)

    def _column_bias(self, gamma: Tensor) -> Tensor:
        """Return log b_j + gamma_j + the part of −cost_ij / eps that depends on j alone, (B, m). gamma: (B, m)."""
        return (self.log_b + gamma + self.log_kernel.col).to(gamma.dtype)

    def plan(self, gamma: Tensor, damping: Tensor) -> tuple[Tensor, ImplicitPlan, Tensor]:
        """Return phi = −damping · row_logsumexp(gamma), (B, n), the plan divided by its mass, and log(mass), (B,).

        The plan before that division is a_i b_j exp(phi_i + gamma_j − cost_ij / eps). phi: f/eps; gamma: (B, m), g/eps;
        damping: (B, 1), the factor 1/(1 + eps/rho) of the rows.
        """
        left, right = self._core_factors
        basis = self.log_kernel.right
        values = torch.cat([torch.ones_like(basis[:, :, :1]), basis], dim=2)
        bias = self._column_bias(gamma)
        # Row sums and the product with `right` are computed in one pass.
        guess = self._row_guess if self._row_guess is not None else kernels.streaming_logsumexp(left, right, bias)
        sums = kernels.streaming_weighted_sum(left, right, bias, guess, values)
        if not bool((torch.isfinite(sums[:, :, 0]) & (sums[:, :, 0] > 0)).all()):
            guess = kernels.streaming_logsumexp(left, right, bias)
            sums = kernels.streaming_weighted_sum(left, right, bias, guess, values)
        row_lse = guess + sums[:, :, 0].log() + self.log_kernel.row
        phi = (-damping * row_lse).to(gamma.dtype)
        log_p1 = self.log_a + phi + row_lse
        log_mass = torch.logsumexp(log_p1, dim=1)
        p1 = (log_p1 - log_mass[:, None]).exp().to(gamma.dtype)
        # Column sums are taken before the division by the mass, because their last values are then a good guess.
        log_p2 = self.log_b + gamma + self.col_logsumexp(phi) - log_mass[:, None]
        log = replace(
            self.log_kernel,
            row=self.log_a + phi + self.log_kernel.row - log_mass[:, None],
            col=self.log_b + gamma + self.log_kernel.col,
        )
        plan = ImplicitPlan(
            log_plan=log,
            row_sums=p1,
            col_sums=log_p2.exp().to(gamma.dtype),
            right_product=p1[:, :, None] * (sums[:, :, 1:] / sums[:, :, :1]),
            f=phi * self.eps[:, None],
            g=gamma * self.eps[:, None],
        )
        return phi, plan, log_mass

    def recenter(self, gamma: Tensor) -> StreamingKernel:
        """Return the kernel itself, which is accurate for all potentials. gamma: (B, m)."""
        return self

    def log_domain(self) -> StreamingKernel:
        """Return the kernel itself, which is accurate for all potentials."""
        return self
