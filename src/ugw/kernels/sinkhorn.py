"""Gibbs kernels and Sinkhorn iterations in plain torch: the reference of every other backend.

Shapes: cost (B, n, m), entries may be +inf; log_a (B, n) and log_b (B, m), -inf at zero weights; eps (B,).
Potentials are dimensionless here: phi = f / eps, (B, n), and gamma = g / eps, (B, m).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from .._utils.pytree import BatchRecord
from .config import KERNEL_CONFIG

# Arguments of `nan_to_num` for a potential: a point with only forbidden pairs has no mass to move, so that its infinite
# potential becomes 0; NaN stays NaN.
_INFINITE_AS_ZERO = (torch.nan, 0.0, 0.0)


class IterationResult(NamedTuple):
    """The potential gamma = g/eps after some Sinkhorn iterations, and changes of gamma and phi = f/eps in the last two.

    gamma: (B, m); updates: changes of phi (B, n) and gamma (B, m) in the last iteration, without the translation
    (phi + t, gamma − t), which leaves the plan unchanged; marginals: of mass 1, row sums (B, n) of the plan before
    the update of phi, and column sums (B, m) after that of gamma; last_change, previous_change: (B, m), of gamma in the
    last and the second to last iteration.
    """

    gamma: Tensor
    updates: tuple[Tensor, Tensor]
    marginals: tuple[Tensor, Tensor]
    last_change: Tensor
    previous_change: Tensor


class SinkhornIterate(NamedTuple):
    """The potential, an extrapolated potential and the residual after some Sinkhorn iterations.

    gamma: (B, m), g/eps after the last iteration, from which `GibbsKernel.plan` computes phi = f/eps and the plan;
    extrapolated_gamma: (B, m), Aitken's extrapolation of the last iterations; residual: (B,), the fraction of the
    plan's mass that the last iteration moved, not finite where the exponent range was left.
    """

    gamma: Tensor
    extrapolated_gamma: Tensor
    residual: Tensor


class GibbsKernel(Protocol):
    """The Gibbs kernel exp(−cost/eps), (B, n, m), with weights a, b: log-sum-exp of rows and columns, iterations, plan.

    Potentials at points of weight 0 are arbitrary but finite.
    """

    iterations_per_check: ClassVar[int]  # iterations between two checks of the residual, at least 2

    @property
    def log_a(self) -> Tensor:
        """Natural logarithms of the weights of the rows, (B, n), −inf at weight 0."""
        ...

    @property
    def log_b(self) -> Tensor:
        """Natural logarithms of the weights of the columns, (B, m), −inf at weight 0."""
        ...

    def row_logsumexp(self, gamma: Tensor) -> Tensor:
        """Compute log Σ_j b_j exp(gamma_j − cost_ij / eps). gamma: (B, m), g/eps. Returns (B, n)."""
        ...

    def col_logsumexp(self, phi: Tensor) -> Tensor:
        """Compute log Σ_i a_i exp(phi_i − cost_ij / eps). phi: (B, n), f/eps. Returns (B, m)."""
        ...

    def iterate(self, gamma: Tensor, dampings: tuple[Tensor, ...], translation_share: Tensor) -> IterationResult:
        """Make `iterations_per_check` Sinkhorn iterations from gamma = g/eps, (B, m), eqs. (4.1) and (4.3).

        Returns the `IterationResult`: gamma, the last changes (of phi, of gamma), the marginals of the plan at mass 1,
        and gamma's last and second to last change. Each iteration sets phi = −dampings[0] · row_logsumexp(gamma), gamma
        = −dampings[1] · col_logsumexp(phi), and adds t to phi and −t to gamma, t = translation_share · log(mass after
        phi / mass after gamma). dampings: (B, 1) each, 1/(1 + eps/rho); translation_share: (B, 1), 1/(eps/rho1 +
        eps/rho2). Sums that underflow give NaN.
        """
        ...

    def plan(self, gamma: Tensor, damping: Tensor) -> tuple[Tensor, Any, Tensor]:
        """Compute phi = −damping · row_logsumexp(gamma) and the plan a_i b_j exp(phi_i + gamma_j − cost_ij / eps).

        Eq. (4.2). gamma: (B, m); damping: (B, 1), of the rows. Returns phi (B, n), the plan divided by its mass,
        (B, n, m), and the logarithm of that mass, (B,).
        """
        ...

    def recenter(self, gamma: Tensor) -> GibbsKernel:
        """Return a kernel that is accurate near the potential gamma = g/eps (B, m): this one or a new one."""
        ...

    def log_domain(self) -> GibbsKernel:
        """Return the same kernel in a slower form that is accurate for all potentials; itself if it has this form."""
        ...

    def take(self, index: Tensor) -> GibbsKernel:
        """Return the kernel of the batch items `index`, (k,) integers or (B,) bools."""
        ...


class LogDomainIterations:
    """Sinkhorn iterations by the two log-sum-exp reductions of a `GibbsKernel`: a mixin that provides `iterate`."""

    def iterate(
        self: GibbsKernel, gamma: Tensor, dampings: tuple[Tensor, ...], translation_share: Tensor
    ) -> IterationResult:
        """Make `iterations_per_check` Sinkhorn iterations from gamma = g/eps, (B, m), in the log domain: no underflow.

        Returns the `IterationResult`: gamma, the last changes (of phi = f/eps, of gamma), the marginals of the plan at
        mass 1, and gamma's last and second to last change. dampings: (B, 1), 1/(1 + eps/rho) of both sides;
        translation_share: (B, 1), 1/(eps/rho1 + eps/rho2).
        """
        phi = last_gamma = gamma
        for _ in range(self.iterations_per_check):
            previous_gamma, last_gamma, last_phi = last_gamma, gamma, phi
            row_lse = self.row_logsumexp(gamma)
            new_phi = (-dampings[0] * row_lse).nan_to_num_(*_INFINITE_AS_ZERO)
            col_lse = self.col_logsumexp(new_phi)
            new_gamma = (-dampings[1] * col_lse).nan_to_num_(*_INFINITE_AS_ZERO)
            log_p1, log_p2 = self.log_a + new_phi + row_lse, self.log_b + new_gamma + col_lse
            log_masses = torch.logsumexp(log_p1, 1, keepdim=True), torch.logsumexp(log_p2, 1, keepdim=True)
            shift = translation_share * (log_masses[0] - log_masses[1])
            phi, gamma = new_phi + shift, new_gamma - shift
        updates = new_phi - last_phi, new_gamma - last_gamma
        marginals = torch.softmax(log_p1 - updates[0], 1), torch.softmax(log_p2, 1)
        return IterationResult(gamma, updates, marginals, gamma - last_gamma, last_gamma - previous_gamma)


@dataclass(frozen=True, eq=False)
class LogKernel(BatchRecord, LogDomainIterations):
    """A stored kernel that takes log-sum-exp in every call: slow, and accurate whatever the range of the cost.

    log_kernel: (B, n, m), −cost / eps; log_a: (B, n); log_b: (B, m).
    """

    iterations_per_check: ClassVar[int] = KERNEL_CONFIG.iterations_per_check

    log_kernel: Tensor
    log_a: Tensor
    log_b: Tensor

    def row_logsumexp(self, gamma: Tensor) -> Tensor:
        """Compute log Σ_j b_j exp(gamma_j − cost_ij / eps). gamma: (B, m), g/eps. Returns (B, n)."""
        return torch.logsumexp(self.log_kernel + (self.log_b + gamma)[:, None, :], dim=2)

    def col_logsumexp(self, phi: Tensor) -> Tensor:
        """Compute log Σ_i a_i exp(phi_i − cost_ij / eps). phi: (B, n), f/eps. Returns (B, m)."""
        return torch.logsumexp(self.log_kernel + (self.log_a + phi)[:, :, None], dim=1)

    def plan(self, gamma: Tensor, damping: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute phi (B, n), the plan (B, n, m) divided by its mass, and the log of that mass (B,), in the log domain.

        phi = −damping · row_logsumexp(gamma), and the plan is a_i b_j exp(phi_i + gamma_j − cost_ij / eps).
        gamma: (B, m), g/eps; damping: (B, 1), 1/(1 + eps/rho) of the rows.
        """
        plan = self.log_kernel + (self.log_b + gamma)[:, None, :]
        largest = plan.amax(dim=2).nan_to_num_(0.0, 0.0, 0.0)
        plan.sub_(largest[:, :, None]).exp_()
        row_lse = largest + plan.sum(dim=2).log()
        phi = (-damping * row_lse).nan_to_num_(*_INFINITE_AS_ZERO)
        log_mass = torch.logsumexp(self.log_a + phi + row_lse, dim=1)
        # Each row has its largest entry at 1, or no mass at all: the factor is at most 1, and NaN if no row has mass.
        is_empty = (log_mass == -math.inf)[:, None]
        factor = (self.log_a + phi + largest - log_mass[:, None]).masked_fill_(row_lse == -math.inf, -math.inf)
        return phi, plan.mul_(factor.masked_fill_(is_empty, torch.nan).exp_()[:, :, None]), log_mass

    def recenter(self, gamma: Tensor) -> LogKernel:
        """Return the kernel itself, which is accurate for all potentials. gamma: (B, m), not used."""
        return self

    def log_domain(self) -> LogKernel:
        """Return the kernel itself, which is accurate for all potentials."""
        return self


@dataclass(frozen=True, eq=False)
class StabilizedKernel(LogKernel):
    """A `LogKernel` with the stored matrix K = exp(log a ⊕ log b − cost/eps + alpha ⊕ beta), for faster iterations.

    An iteration takes two matrix-vector products. `alpha` and `beta` make the largest entry of every row and column 1,
    so a sum under- or overflows only if the potentials leave those that the kernel was centered at by more than the
    exponent range. The result is then not finite, and the caller uses `log_domain()` instead.

    center: (B, m), the potential gamma at which the kernel is centered; matrix: (B, n, m), K; alpha, offset_a,
    padding_a: (B, n); beta, offset_b, padding_b: (B, m). The offsets are alpha + log a and beta + log b, 0 where these
    are infinite. The paddings are 1 at points of weight 0, whose sums are 0 and would have no logarithm, and 0
    elsewhere. On a CPU a padding that is 0 everywhere is None; on CUDA the host does not wait for the answer.
    """

    center: Tensor
    matrix: Tensor
    alpha: Tensor
    beta: Tensor
    offset_a: Tensor
    offset_b: Tensor
    padding_a: Tensor | None
    padding_b: Tensor | None

    @classmethod
    def from_kernel(cls, kernel: LogKernel, gamma: Tensor) -> StabilizedKernel:
        """Return the kernel with its scaled exponential stored, accurate for potentials near gamma = g/eps, (B, m)."""
        log_a, log_b = kernel.log_a, kernel.log_b
        log_k = kernel.log_kernel + (log_b + gamma)[:, None, :]
        # A row without weight is 0, any other has 1 as its largest entry; then the same for columns. Where all entries
        # are forbidden, the shift is 0 instead of infinite.
        has_weight = log_a > -math.inf
        row_shift = (-log_k.amax(dim=2)).nan_to_num_(0.0, 0.0, 0.0).masked_fill_(~has_weight, -math.inf)
        log_k += row_shift[:, :, None]
        col_shift = (-log_k.amax(dim=1)).nan_to_num_(0.0, 0.0, 0.0)
        log_k += col_shift[:, None, :]
        alpha, beta = torch.where(has_weight, row_shift - log_a, 0.0), gamma + col_shift
        paddings = [(log_weights == -math.inf).to(log_k.dtype) for log_weights in (log_a, log_b)]
        return cls(
            log_kernel=kernel.log_kernel,
            log_a=log_a,
            log_b=log_b,
            center=gamma,
            matrix=log_k.exp_(),
            alpha=alpha,
            beta=beta,
            offset_a=(alpha + log_a).nan_to_num_(0.0, 0.0, 0.0),
            offset_b=(beta + log_b).nan_to_num_(0.0, 0.0, 0.0),
            padding_a=paddings[0] if log_a.is_cuda or bool(paddings[0].any()) else None,
            padding_b=paddings[1] if log_b.is_cuda or bool(paddings[1].any()) else None,
        )

    def row_logsumexp(self, gamma: Tensor) -> Tensor:
        """Compute log Σ_j b_j exp(gamma_j − cost_ij / eps), (B, n), NaN if it underflows. gamma: (B, m), g/eps."""
        scaling = (gamma - self.beta).exp_()
        return _log_sums(_matvec(self.matrix, scaling), self.padding_a, scaling).sub_(self.offset_a)

    def col_logsumexp(self, phi: Tensor) -> Tensor:
        """Compute log Σ_i a_i exp(phi_i − cost_ij / eps), (B, m), NaN if it underflows. phi: (B, n), f/eps."""
        scaling = (phi - self.alpha).exp_()
        return _log_sums(_matvec(self.matrix.mT, scaling), self.padding_b, scaling).sub_(self.offset_b)

    def iterate(self, gamma: Tensor, dampings: tuple[Tensor, ...], translation_share: Tensor) -> IterationResult:
        """Make `iterations_per_check` Sinkhorn iterations from gamma = g/eps, (B, m), with the stored matrix K.

        Returns the `IterationResult`: gamma, the last changes (of phi = f/eps, of gamma), the marginals of the plan at
        mass 1, and gamma's last and second to last change. Sums that underflow give NaN. dampings: (B, 1), 1/(1 +
        eps/rho) of both sides; translation_share: (B, 1), 1/(eps/rho1 + eps/rho2). The iterates are x = phi − alpha and
        y = gamma − beta: their exponentials u, v scale K to the plan, with marginals u·(K v) and v·(Kᵀ u).
        """
        minus = -dampings[0], -dampings[1]
        base_a = torch.addcmul(self.alpha, minus[0], self.offset_a).neg_()
        base_b = torch.addcmul(self.beta, minus[1], self.offset_b).neg_()
        x = y = last_y = gamma - self.beta
        v = y.exp()
        for remaining in reversed(range(self.iterations_per_check)):
            previous_y, last_y, last_x = last_y, y, x
            is_last = remaining == 0
            sums_a = _matvec(self.matrix, v)
            new_x = torch.addcmul(base_a, minus[0], _log_sums(sums_a, self.padding_a, v if is_last else None))
            u = new_x.exp()
            sums_b = _matvec(self.matrix.mT, u)
            new_y = torch.addcmul(base_b, minus[1], _log_sums(sums_b, self.padding_b, u if is_last else None))
            v = new_y.exp()
            p1, p2 = u.mul_(sums_a), sums_b.mul_(v)
            masses = p1.sum(1, keepdim=True), p2.sum(1, keepdim=True)
            shift = translation_share * (masses[0] / masses[1]).log_()
            if remaining < 3:  # earlier iterates are not needed for the result
                x, y = new_x + shift, new_y - shift
            v.mul_((-shift).exp_())
        updates = new_x - last_x, new_y - last_y
        marginals = torch.softmax(p1.log_() - updates[0], 1), p2 / masses[1]
        return IterationResult(y + self.beta, updates, marginals, y - last_y, last_y - previous_y)

    @cached_property
    def side_vectors(self) -> tuple[Tensor, Tensor]:
        """The vectors of rows and of columns, (B, 4, n) and (B, 4, m), as Triton backends read them.

        Along dimension 1: alpha, alpha + log_a (0 where infinite), log_a, and 1 at points of weight 0, else 0; for
        columns beta, beta + log_b, log_b. The stored matrix is exp(log a ⊕ log b − cost/eps + alpha ⊕ beta).
        """
        sides = (self.alpha, self.offset_a, self.log_a), (self.beta, self.offset_b, self.log_b)
        first, second = (torch.stack([*side, (side[2] == -math.inf).to(side[2].dtype)], dim=1) for side in sides)
        return first, second

    def recenter(self, gamma: Tensor) -> StabilizedKernel:
        """Return the kernel itself if gamma = g/eps (B, m) is near its center, otherwise a kernel centered at gamma.

        Near: for all items, no entry differs by more than a tenth of the log of the largest number of the dtype.
        """
        limit = KERNEL_CONFIG.max_recentering_fraction * math.log(torch.finfo(gamma.dtype).max)
        is_near = (gamma - self.center).abs().amax() <= limit
        return self if is_near else StabilizedKernel.from_kernel(self, gamma)

    def log_domain(self) -> LogKernel:
        """Return the `LogKernel` of the same cost and weights, whose sums do not underflow."""
        return LogKernel(self.log_kernel, self.log_a, self.log_b)


def sinkhorn_iterations(
    gamma: Tensor, kernel: GibbsKernel, dampings: tuple[Tensor, ...], translation_share: Tensor, max_rate: float
) -> SinkhornIterate:
    """Return gamma = g/eps after `kernel.iterations_per_check` Sinkhorn iterations, an extrapolation, and the residual.

    Shapes: (B, m), (B, m), (B,). The extrapolation is Aitken's; the residual is the fraction of the plan's mass that
    the last iteration moved, not finite where the exponent range was left. gamma: (B, m), the potential to start from;
    kernel: of B problems; dampings: 1/(1 + eps/rho) of both sides, (B, 1) each; translation_share: 1/(eps/rho1 +
    eps/rho2), (B, 1); max_rate: the largest convergence rate that the extrapolation assumes.
    """
    result = kernel.iterate(gamma, dampings, translation_share)
    # The fraction of the plan's mass that the updates moved, each weighted by its marginal.
    moved = [(p * u.abs().clamp_(max=1.0)).sum(1) for p, u in zip(result.marginals, result.updates, strict=True)]
    # The slow modes share one rate, close to damping1·damping2: pairs of points that see only each other, each
    # with its own translation. One Aitken step for all of them, at the rate measured.
    weighted = result.marginals[1] * result.previous_change
    rate = (weighted * result.last_change).sum(1) / (weighted * result.previous_change).sum(1)
    rate = rate.nan_to_num_(nan=0.0).clamp_(0.0, max_rate)
    extrapolated = torch.addcmul(result.gamma, result.last_change, (rate / (1.0 - rate))[:, None])
    return SinkhornIterate(result.gamma, extrapolated, moved[0] + moved[1])


def _matvec(matrix: Tensor, vector: Tensor) -> Tensor:
    """Return the matrix-vector product of each item, (B, n). matrix: (B, n, m); vector: (B, m)."""
    if matrix.is_cuda:
        return torch.bmm(matrix, vector[:, :, None])[:, :, 0]
    # On a CPU, a batch of products with columns takes four times as long as the same with rows.
    return torch.bmm(vector[:, None, :], matrix.mT)[:, 0]


def _log_sums(sums: Tensor, padding: Tensor | None, scaling: Tensor | None) -> Tensor:
    """Return the natural logarithms (B, n) of the given `sums` K·scaling, (B, n), and 0 at points of weight 0.

    padding: (B, n), 1 at points of weight 0, or None if there are none; scaling: (B, m), or None for no check. Checked
    sums give NaN where they are so small that entries of K lost to underflow could matter.
    """
    if padding is not None:
        sums = sums + padding
    if scaling is not None:
        info = torch.finfo(sums.dtype)
        floor = scaling.amax(dim=1, keepdim=True) * (scaling.shape[1] * info.tiny / info.eps)
        sums = torch.where(sums > floor, sums, torch.nan)
    return sums.log()
