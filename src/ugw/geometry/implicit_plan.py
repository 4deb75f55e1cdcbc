"""Plans that are never stored: exponentials of bilinear matrices, and the Sinkhorn kernel that makes them."""

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
    """The plan exp(log), (B, n, m); it answers to what solvers ask of a tensor: sums, products, scalar multiples.

    rows_sum: (B, n); cols_sum: (B, m); moved: (B, n, s), the plan times the right basis; f, g: the potentials it was
    made of, in units of the cost, where a solver may start again. Of a first plan carried over from a sample, sums and
    products are those over the sample.
    """

    log: BilinearMatrix
    rows_sum: Tensor
    cols_sum: Tensor
    moved: Tensor
    f: Tensor
    g: Tensor

    @property
    def shape(self) -> torch.Size:
        """(B, n, m)."""
        return self.log.shape

    @property
    def dtype(self) -> torch.dtype:
        """float32 or float64."""
        return self.log.dtype

    @property
    def device(self) -> torch.device:
        """Where its parts are."""
        return self.log.device

    def sum(self, dim: int | tuple[int, int], dtype: torch.dtype | None = None) -> Tensor:
        """Sums over columns (2), rows (1) or both (1, 2)."""
        if dim == 2:
            return self.rows_sum.to(dtype or self.dtype)
        if dim == 1:
            return self.cols_sum.to(dtype or self.dtype)
        return self.rows_sum.sum(1, dtype=torch.float64).to(dtype or self.dtype)

    @cached_property
    def cross(self) -> Tensor:
        """leftᵀ · plan · right, (B, r, s) in float64."""
        return self.log.left.double().mT @ self.moved.double()

    def __mul__(self, factor: Tensor) -> ImplicitPlan:
        """The plan times positive numbers (B, 1, 1)."""
        flat = factor[:, :, 0].to(self.dtype)
        return replace(
            self,
            log=self.log + factor.double().log(),
            rows_sum=flat * self.rows_sum,
            cols_sum=flat * self.cols_sum,
            moved=flat[:, :, None] * self.moved,
        )

    def __truediv__(self, divisor: Tensor) -> ImplicitPlan:
        return self * (1.0 / divisor)

    @property
    def mT(self) -> ImplicitPlan:
        """The transposed plan."""
        turned = ImplicitPlan(self.log.mT, self.cols_sum, self.rows_sum, self.moved, self.g, self.f)
        return replace(turned, moved=turned @ self.log.left)  # made here, in one pass

    def __matmul__(self, matrix: Tensor) -> Tensor:
        """The plan times a matrix (B, m, k). Returns (B, n, k)."""
        left, right = self.log.thin()
        lowest = torch.finfo(self.dtype).min / 4
        # Rows and columns without mass are forbidden, not infinitely cheap.
        shift = -self.log.row.clamp(min=lowest)
        sums = kernels.streaming_weighted_sum(left, right, self.log.col.to(self.dtype), shift.to(self.dtype), matrix)
        return torch.where(self.log.row[:, :, None] > lowest, sums, 0.0)

    def rows(self, index: Tensor) -> Tensor:
        """Some rows as they are. index: (k,). Returns (B, k, m)."""
        return self.log.rows(index).exp()

    def log_ratio(self, log_a: Tensor, log_b: Tensor) -> BilinearMatrix:
        """log(plan / a⊗b), 0 in the rows and columns of points without weight."""
        row = torch.where(log_a > -torch.inf, self.log.row - log_a, 0.0)
        col = torch.where(log_b > -torch.inf, self.log.col - log_b, 0.0)
        return replace(self.log, row=row, col=col)

    def dot(self, matrix: BilinearMatrix) -> Tensor:
        """<matrix, plan> in float64, for a matrix over the same bases. Returns (B,)."""
        p1, p2 = self.rows_sum.double(), self.cols_sum.double()
        both = (matrix.core * self.cross).sum(dim=(1, 2))
        return (matrix.row * p1).sum(1) + (matrix.col * p2).sum(1) + both

    def cut(self, n: int, m: int) -> ImplicitPlan:
        """The plan between the first n and m points."""
        log = BilinearMatrix(
            self.log.row[:, :n], self.log.col[:, :m], self.log.core, self.log.left[:, :n], self.log.right[:, :m]
        )
        return ImplicitPlan(
            log, self.rows_sum[:, :n], self.cols_sum[:, :m], self.moved[:, :n], self.f[:, :n], self.g[:, :m]
        )


@dataclass(eq=False)
class StreamingKernel(BatchRecord, kernels.LogDomainIterations):
    """The `GibbsKernel` of a bilinear cost: every sum is made anew from O((n + m)·r) numbers, for any potentials."""

    iterations_per_check: ClassVar[int] = 2  # a look is free beside a sum over all pairs

    scaled: BilinearMatrix  # −cost / eps
    log_a: Tensor
    log_b: Tensor
    eps: Tensor
    # What the last sums were: the next ones are close.
    _rows: Tensor | None = field(default=None)
    _cols: Tensor | None = field(default=None)

    @classmethod
    def of(cls, cost: BilinearMatrix, log_a: Tensor, log_b: Tensor, eps: Tensor) -> StreamingKernel:
        """The kernel of a cost. eps: (B,)."""
        return cls(cost * (-1.0 / eps.double())[:, None, None], log_a, log_b, eps)

    @cached_property
    def _thin(self) -> tuple[Tensor, Tensor]:
        return self.scaled.thin()

    def row_logsumexp(self, gamma: Tensor) -> Tensor:
        """See `GibbsKernel.row_logsumexp`."""
        left, right = self._thin
        self._rows = kernels.streaming_logsumexp(left, right, self._bias_of_cols(gamma), self._rows)
        return (self._rows + self.scaled.row).to(gamma.dtype)

    def col_logsumexp(self, phi: Tensor) -> Tensor:
        """See `GibbsKernel.col_logsumexp`."""
        left, right = self._thin
        bias = (self.log_a + phi + self.scaled.row).to(phi.dtype)
        self._cols = kernels.streaming_logsumexp(right, left, bias, self._cols)
        return (self._cols + self.scaled.col).to(phi.dtype)

    def _bias_of_cols(self, gamma: Tensor) -> Tensor:
        return (self.log_b + gamma + self.scaled.col).to(gamma.dtype)

    def plan(self, gamma: Tensor, damping: Tensor) -> tuple[Tensor, ImplicitPlan, Tensor]:
        """See `GibbsKernel.plan`. The sums of the rows and the product with the right basis are made in one pass."""
        left, right = self._thin
        basis = self.scaled.right
        values = torch.cat([torch.ones_like(basis[:, :, :1]), basis], dim=2)
        bias = self._bias_of_cols(gamma)
        guess = self._rows if self._rows is not None else kernels.streaming_logsumexp(left, right, bias)
        sums = kernels.streaming_weighted_sum(left, right, bias, guess, values)
        if not bool((torch.isfinite(sums[:, :, 0]) & (sums[:, :, 0] > 0)).all()):
            guess = kernels.streaming_logsumexp(left, right, bias)
            sums = kernels.streaming_weighted_sum(left, right, bias, guess, values)
        row_lse = guess + sums[:, :, 0].log() + self.scaled.row
        phi = (-damping * row_lse).to(gamma.dtype)
        log_p1 = self.log_a + phi + row_lse
        log_mass = torch.logsumexp(log_p1, dim=1)
        p1 = (log_p1 - log_mass[:, None]).exp().to(gamma.dtype)
        # The columns see the plan before it is divided by its mass: their last sums are still a good guess.
        log_p2 = self.log_b + gamma + self.col_logsumexp(phi) - log_mass[:, None]
        log = replace(
            self.scaled,
            row=self.log_a + phi + self.scaled.row - log_mass[:, None],
            col=self.log_b + gamma + self.scaled.col,
        )
        made = ImplicitPlan(
            log=log,
            rows_sum=p1,
            cols_sum=log_p2.exp().to(gamma.dtype),
            moved=p1[:, :, None] * (sums[:, :, 1:] / sums[:, :, :1]),
            f=phi * self.eps[:, None],
            g=gamma * self.eps[:, None],
        )
        return phi, made, log_mass

    def recenter(self, gamma: Tensor) -> StreamingKernel:
        """See `GibbsKernel.recenter`."""
        return self

    def log_domain(self) -> StreamingKernel:
        """See `GibbsKernel.log_domain`."""
        return self
