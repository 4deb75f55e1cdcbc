"""Gibbs kernels and Sinkhorn iterations in plain torch: the reference of every other backend.

Shapes: cost (B, n, m), entries may be +inf; log_a (B, n) and log_b (B, m), -inf at zero weights; eps (B,).
Potentials are dimensionless here: phi = f / eps, (B, n), and gamma = g / eps, (B, m).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from .config import KERNEL_CONFIG


class IterationResult(NamedTuple):
    """The potential gamma after some Sinkhorn iterations, and the changes in the last two of them.

    gamma: (B, m); updates: the changes of phi (B, n) and gamma (B, m) in the last iteration, before the translation,
    which leaves the plan unchanged; marginals: (B, n) and (B, m), of unit mass, those that the updates corrected;
    last_change, previous_change: (B, m), of gamma in the last and the second to last iteration.
    """

    gamma: Tensor
    updates: tuple[Tensor, Tensor]
    marginals: tuple[Tensor, Tensor]
    last_change: Tensor
    previous_change: Tensor


class SinkhornIterate(NamedTuple):
    """The result of `sinkhorn_iterations`.

    gamma: (B, m), the potential, from which phi follows; extrapolated_gamma: (B, m), Aitken's extrapolation of the last
    iterations; residual: (B,), the fraction of the plan's mass that the last iteration moved, not finite where the
    exponent range was left.
    """

    gamma: Tensor
    extrapolated_gamma: Tensor
    residual: Tensor


class GibbsKernel(Protocol):
    """The kernel exp(−cost/eps) of a linear problem, as Sinkhorn uses it: two log-sum-exp reductions and the plan.

    Values at points of weight 0 are arbitrary but finite.
    """

    log_a: Tensor
    log_b: Tensor
    iterations_per_check: ClassVar[int]  # iterations between two checks of the residual, at least 2

    def row_logsumexp(self, gamma: Tensor) -> Tensor:
        """Compute log Σ_j b_j exp(gamma_j − cost_ij / eps). gamma: (B, m). Returns (B, n)."""
        ...

    def col_logsumexp(self, phi: Tensor) -> Tensor:
        """Compute log Σ_i a_i exp(phi_i − cost_ij / eps). phi: (B, n). Returns (B, m)."""
        ...

    def iterate(self, gamma: Tensor, dampings: tuple[Tensor, ...], translation_share: Tensor) -> IterationResult:
        """Return gamma, its last changes and the marginals after `iterations_per_check` iterations.

        Eqs. (4.1) and (4.3).

        Each sets phi = −damping1 · row_logsumexp(gamma), gamma = −damping2 · col_logsumexp(phi), and translates both.
        gamma: (B, m); dampings: two (B, 1); translation_share: (B, 1). Sums that underflow give NaN.
        """
        ...

    def plan(self, gamma: Tensor, damping: Tensor) -> tuple[Tensor, Any, Tensor]:
        """Compute phi = −damping · row_logsumexp(gamma) and the plan a_i b_j exp(phi_i + gamma_j − cost_ij / eps).

        Eq. (4.2). damping: (B, 1). Returns phi (B, n), the plan (B, n, m) at unit mass, and its log mass (B,).
        """
        ...

    def recenter(self, gamma: Tensor) -> GibbsKernel:
        """A kernel that is accurate for potentials near `gamma`: this one if it is, otherwise a new one."""
        ...

    def log_domain(self) -> GibbsKernel:
        """A slower kernel that is accurate for all potentials."""
        ...

    def take(self, index: Tensor) -> GibbsKernel:
        """The kernel of the batch items `index`."""
        ...


class LogDomainIterations:
    """Sinkhorn iterations by the two log-sum-exp reductions of a `GibbsKernel`: a mixin that provides `iterate`."""

    def iterate(
        self: GibbsKernel, gamma: Tensor, dampings: tuple[Tensor, ...], translation_share: Tensor
    ) -> IterationResult:
        """Make Sinkhorn iterations in the log domain, where nothing underflows. See `GibbsKernel.iterate`."""
        phi = last_gamma = gamma
        for _ in range(self.iterations_per_check):
            previous_gamma, last_gamma, last_phi = last_gamma, gamma, phi
            row_lse = self.row_logsumexp(gamma)
            new_phi = _infinite_as_zero(-dampings[0] * row_lse)
            col_lse = self.col_logsumexp(new_phi)
            new_gamma = _infinite_as_zero(-dampings[1] * col_lse)
            log_p1, log_p2 = self.log_a + new_phi + row_lse, self.log_b + new_gamma + col_lse
            log_masses = torch.logsumexp(log_p1, 1, keepdim=True), torch.logsumexp(log_p2, 1, keepdim=True)
            shift = translation_share * (log_masses[0] - log_masses[1])
            phi, gamma = new_phi + shift, new_gamma - shift
        updates = new_phi - last_phi, new_gamma - last_gamma
        marginals = torch.softmax(log_p1 - updates[0], 1), torch.softmax(log_p2, 1)
        return IterationResult(gamma, updates, marginals, gamma - last_gamma, last_gamma - previous_gamma)


class LogKernel(LogDomainIterations):
    """A stored kernel that takes log-sum-exp in every call: slow, and accurate whatever the range of the cost.

    log_kernel: (B, n, m), −cost / eps.
    """

    iterations_per_check: ClassVar[int] = KERNEL_CONFIG.iterations_per_check

    def __init__(self, log_kernel: Tensor, log_a: Tensor, log_b: Tensor) -> None:
        """Store −cost / eps (B, n, m) and the log weights (B, n) and (B, m)."""
        self.log_a, self.log_b = log_a, log_b
        self.log_kernel = log_kernel

    def row_logsumexp(self, gamma: Tensor) -> Tensor:
        """Compute log Σ_j b_j exp(gamma_j − cost_ij / eps). gamma: (B, m). Returns (B, n)."""
        return torch.logsumexp(self.log_kernel + (self.log_b + gamma)[:, None, :], dim=2)

    def col_logsumexp(self, phi: Tensor) -> Tensor:
        """Compute log Σ_i a_i exp(phi_i − cost_ij / eps). phi: (B, n). Returns (B, m)."""
        return torch.logsumexp(self.log_kernel + (self.log_a + phi)[:, :, None], dim=1)

    def plan(self, gamma: Tensor, damping: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute phi, the plan at unit mass and its log mass. See `GibbsKernel.plan`."""
        plan = self.log_kernel + (self.log_b + gamma)[:, None, :]
        largest = _finite_or_zero(plan.amax(dim=2))
        plan.sub_(largest[:, :, None]).exp_()
        row_lse = largest + plan.sum(dim=2).log()
        phi = _infinite_as_zero(-damping * row_lse)
        log_mass = torch.logsumexp(self.log_a + phi + row_lse, dim=1)
        # Each row has its largest entry at 1, or no mass at all: the factor is at most 1, and NaN if no row has mass.
        is_empty = (log_mass == -math.inf)[:, None]
        factor = (self.log_a + phi + largest - log_mass[:, None]).masked_fill_(row_lse == -math.inf, -math.inf)
        return phi, plan.mul_(factor.masked_fill_(is_empty, torch.nan).exp_()[:, :, None]), log_mass

    def recenter(self, gamma: Tensor) -> LogKernel:
        """Return the kernel itself, which is accurate everywhere."""
        return self

    def log_domain(self) -> LogKernel:
        """Return the kernel itself."""
        return self

    def take(self, index: Tensor) -> LogKernel:
        """The kernel of the batch items `index`."""
        return LogKernel(self.log_kernel[index], self.log_a[index], self.log_b[index])


class StabilizedKernel:
    """The stored matrix K = exp(log a ⊕ log b − cost/eps + alpha ⊕ beta): two matrix-vector products an iteration.

    `alpha` and `beta` make the largest entry of every row and column 1, so a sum under- or overflows only if the
    potentials leave those that the kernel was centered at by more than the exponent range. The result is then not
    finite, and the caller uses `log_domain()` instead.
    """

    iterations_per_check: ClassVar[int] = KERNEL_CONFIG.iterations_per_check

    def __init__(self, log_kernel: LogKernel, gamma: Tensor) -> None:
        """Center the kernel at the potential gamma (B, m)."""
        self._log_kernel, self._center = log_kernel, gamma
        self.log_a, self.log_b = log_kernel.log_a, log_kernel.log_b
        log_k = log_kernel.log_kernel + (self.log_b + gamma)[:, None, :]
        # A row without weight is 0, any other has 1 as its largest entry; then the same for columns.
        has_weight = self.log_a > -math.inf
        row_shift = torch.where(has_weight, _finite_or_zero(-log_k.amax(dim=2)), -math.inf)
        self._alpha = torch.where(has_weight, row_shift - self.log_a, 0.0)
        log_k += row_shift[:, :, None]
        col_shift = _finite_or_zero(-log_k.amax(dim=1))
        self._beta = gamma + col_shift
        log_k += col_shift[:, None, :]
        self.matrix = log_k.exp_()
        self._set_derived()

    def _set_derived(self) -> None:
        """Set the vectors that follow from alpha, beta and the weights."""
        self._pad_a, self._pad_b = _padding(self.log_a), _padding(self.log_b)
        self._offset_a = _finite_or_zero(self._alpha + self.log_a)
        self._offset_b = _finite_or_zero(self._beta + self.log_b)
        self._side_vectors: tuple[Tensor, Tensor] | None = None

    def row_logsumexp(self, gamma: Tensor) -> Tensor:
        """Compute log Σ_j b_j exp(gamma_j − cost_ij / eps). gamma: (B, m). Returns (B, n)."""
        scaling = (gamma - self._beta).exp_()
        sums = _add_padding(_matvec(self.matrix, scaling), self._pad_a)
        return _nan_where_underflowed(sums, scaling).log().sub_(self._offset_a)

    def col_logsumexp(self, phi: Tensor) -> Tensor:
        """Compute log Σ_i a_i exp(phi_i − cost_ij / eps). phi: (B, n). Returns (B, m)."""
        scaling = (phi - self._alpha).exp_()
        sums = _add_padding(_matvec(self.matrix.mT, scaling), self._pad_b)
        return _nan_where_underflowed(sums, scaling).log().sub_(self._offset_b)

    def iterate(self, gamma: Tensor, dampings: tuple[Tensor, ...], translation_share: Tensor) -> IterationResult:
        """Make Sinkhorn iterations with the stored matrix, in few operations. See `GibbsKernel.iterate`.

        The iterates are x = phi − alpha and y = gamma − beta: their exponentials u, v scale K to the plan, whose
        marginals are then u·(K v) and v·(Kᵀ u).
        """
        minus = -dampings[0], -dampings[1]
        base_a = torch.addcmul(self._alpha, minus[0], self._offset_a).neg_()
        base_b = torch.addcmul(self._beta, minus[1], self._offset_b).neg_()
        x = y = last_y = gamma - self._beta
        v = y.exp()
        for remaining in reversed(range(self.iterations_per_check)):
            previous_y, last_y, last_x = last_y, y, x
            sums_a = _matvec(self.matrix, v)
            padded = _add_padding(sums_a, self._pad_a)
            checked = _nan_where_underflowed(padded, v) if remaining == 0 else padded
            new_x = torch.addcmul(base_a, minus[0], checked.log())
            u = new_x.exp()
            sums_b = _matvec(self.matrix.mT, u)
            padded = _add_padding(sums_b, self._pad_b)
            checked = _nan_where_underflowed(padded, u) if remaining == 0 else padded
            new_y = torch.addcmul(base_b, minus[1], checked.log())
            v = new_y.exp()
            p1, p2 = u.mul_(sums_a), sums_b.mul_(v)
            masses = p1.sum(1, keepdim=True), p2.sum(1, keepdim=True)
            shift = translation_share * (masses[0] / masses[1]).log_()
            if remaining < 3:  # earlier iterates are not needed for the result
                x, y = new_x + shift, new_y - shift
            v.mul_((-shift).exp_())
        updates = new_x - last_x, new_y - last_y
        marginals = torch.softmax(p1.log_() - updates[0], 1), p2 / masses[1]
        return IterationResult(y + self._beta, updates, marginals, y - last_y, last_y - previous_y)

    def side_vectors(self) -> tuple[Tensor, Tensor]:
        """The vectors of each side as fused backends read them, (B, 4, n) and (B, 4, m), float32 or float64.

        Along dimension 1: centering (alpha or beta), offset of the log sums, log weight, and 1 at points of weight 0.
        """
        if self._side_vectors is None:
            self._side_vectors = (
                torch.stack([self._alpha, self._offset_a, self.log_a, _zero_weight(self.log_a, self._pad_a)], dim=1),
                torch.stack([self._beta, self._offset_b, self.log_b, _zero_weight(self.log_b, self._pad_b)], dim=1),
            )
        return self._side_vectors

    def plan(self, gamma: Tensor, damping: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute phi, the plan at unit mass and its log mass in the log domain. See `GibbsKernel.plan`."""
        return self._log_kernel.plan(gamma, damping)

    def recenter(self, gamma: Tensor) -> StabilizedKernel:
        """Return the kernel itself if gamma (B, m) is near its center, otherwise a kernel centered at gamma."""
        limit = KERNEL_CONFIG.max_recentering_fraction * math.log(torch.finfo(gamma.dtype).max)
        is_near = (gamma - self._center).abs().amax() <= limit
        return self if is_near else StabilizedKernel(self._log_kernel, gamma)

    def log_domain(self) -> LogKernel:
        """The kernel in the log domain, which this one was made from."""
        return self._log_kernel

    def take(self, index: Tensor) -> StabilizedKernel:
        """The kernel of the batch items `index`, with the same center."""
        part = object.__new__(StabilizedKernel)
        part._log_kernel, part._center = self._log_kernel.take(index), self._center[index]
        part.log_a, part.log_b = part._log_kernel.log_a, part._log_kernel.log_b
        part._alpha, part._beta, part.matrix = self._alpha[index], self._beta[index], self.matrix[index]
        part._set_derived()
        return part


def make_gibbs_kernel(cost: Tensor, log_a: Tensor, log_b: Tensor, eps: Tensor, gamma: Tensor | None) -> GibbsKernel:
    """The kernel of a stored cost: stabilized and centered at the potential gamma (B, m), or a `LogKernel` if None."""
    log_kernel = LogKernel(cost / -eps[:, None, None], log_a, log_b)
    return log_kernel if gamma is None else StabilizedKernel(log_kernel, gamma)


def sinkhorn_iterations(
    gamma: Tensor, kernel: GibbsKernel, dampings: tuple[Tensor, ...], translation_share: Tensor, max_rate: float
) -> SinkhornIterate:
    """Return the iterate after `kernel.iterations_per_check` Sinkhorn iterations, with gamma extrapolated by Aitken.

    gamma: (B, m), the potential to start from; dampings: 1/(1 + eps/rho) of both sides, (B, 1) each; translation_share:
    1/(eps/rho1 + eps/rho2), (B, 1); max_rate: the largest convergence rate that the extrapolation assumes.
    """
    result = kernel.iterate(gamma, dampings, translation_share)
    # The fraction of the plan's mass that the updates moved: each weighted by the marginal it corrected.
    moved = [(p * u.abs().clamp_(max=1.0)).sum(1) for p, u in zip(result.marginals, result.updates, strict=True)]
    # The slow modes share one rate, close to damping1·damping2: pairs of points that see only each other, each
    # with its own translation. One Aitken step for all of them, at the rate measured.
    weighted = result.marginals[1] * result.previous_change
    rate = (weighted * result.last_change).sum(1) / (weighted * result.previous_change).sum(1)
    rate = rate.nan_to_num_(nan=0.0).clamp_(0.0, max_rate)
    extrapolated = torch.addcmul(result.gamma, result.last_change, (rate / (1.0 - rate))[:, None])
    return SinkhornIterate(result.gamma, extrapolated, moved[0] + moved[1])


def _matvec(matrix: Tensor, vector: Tensor) -> Tensor:
    """Matrix-vector product of each item. matrix: (B, n, m); vector: (B, m). Returns (B, n)."""
    if matrix.is_cuda:
        return torch.bmm(matrix, vector[:, :, None])[:, :, 0]
    # On a CPU, a batch of products with columns takes four times as long as the same with rows.
    return torch.bmm(vector[:, None, :], matrix.mT)[:, 0]


def _zero_weight(log_weights: Tensor, padding: Tensor | None = None) -> Tensor:
    """1.0 at points of weight 0, otherwise 0.0, (B, n); `padding` if that is already computed."""
    return (log_weights == -math.inf).to(log_weights.dtype) if padding is None else padding


def _padding(log_weights: Tensor) -> Tensor | None:
    """The `_zero_weight` indicator, added to sums so that they have a logarithm; None on a CPU if it is all 0."""
    indicator = _zero_weight(log_weights)
    return indicator if indicator.is_cuda or bool(indicator.any()) else None


def _add_padding(sums: Tensor, padding: Tensor | None) -> Tensor:
    """Sums (B, n) plus 1 at points of weight 0, where they are 0."""
    return sums if padding is None else sums + padding


def _infinite_as_zero(potential: Tensor) -> Tensor:
    """The potential (B, n), 0 where it is infinite: a point with only forbidden pairs has no mass to move."""
    return torch.nan_to_num(potential, torch.nan, 0.0, 0.0)


def _nan_where_underflowed(sums: Tensor, scaling: Tensor) -> Tensor:
    """Sums (B, n), NaN where they are so small that entries of K lost to underflow could matter. scaling: (B, m)."""
    info = torch.finfo(sums.dtype)
    floor = scaling.amax(dim=1, keepdim=True) * (scaling.shape[1] * info.tiny / info.eps)
    return torch.where(sums > floor, sums, torch.nan)


def _finite_or_zero(value: Tensor) -> Tensor:
    """The tensor with infinities and NaN replaced by 0."""
    return torch.nan_to_num(value, 0.0, 0.0, 0.0)  # where(isfinite(...)) would take six operations
