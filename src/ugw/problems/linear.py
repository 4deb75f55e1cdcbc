"""The linear problem solved in every step: entropic transport with relaxed or hard marginals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.pytree import BatchRecord
from ..geometry.bilinear_matrix import BilinearMatrix
from ..geometry.implicit_plan import StreamingKernel
from ..kernels.dispatch import GibbsKernel, LogKernel, StabilizedKernel
from ..measures.divergences import KL


@dataclass(frozen=True, eq=False)
class LinearProblem(BatchRecord):
    """min_p <cost, p> + rho1 KL(p1 | a) + rho2 KL(p2 | b) + eps KL(p | a⊗b).

    cost: (B, n, m), a tensor, in which +inf forbids a pair, or a BilinearMatrix; log_a: (B, n), log_b: (B, m): of
    weights of mass 1; div_a, div_b: hold rho1 and rho2, (B,), float64; eps: (B,), float64.
    """

    cost: Any  # Tensor or BilinearMatrix
    log_a: Tensor
    log_b: Tensor
    div_a: KL
    div_b: KL
    eps: Tensor

    @property
    def batch(self) -> int:
        """Number of batch items."""
        return self.cost.shape[0]

    def kernel(self, gamma: Tensor | None) -> GibbsKernel:
        """Return the Gibbs kernel exp(−cost/eps) for Sinkhorn: streaming for a BilinearMatrix cost, else stored.

        gamma: (B, m), potentials g / eps around which a stored kernel is stabilized; None: a kernel in the log domain.
        """
        eps = self.eps.to(self.cost.dtype)
        if isinstance(self.cost, BilinearMatrix):
            return StreamingKernel.from_cost(self.cost, self.log_a, self.log_b, eps)
        kernel = LogKernel(self.cost / -eps[:, None, None], self.log_a, self.log_b)
        return kernel if gamma is None else StabilizedKernel.from_kernel(kernel, gamma)

    def add_proximal_term(self, plan: Any, strength: Tensor) -> LinearProblem:
        """Return the linear problem whose objective is this one plus strength·KL(p | plan), eq. (5.1).

        plan: (B, n, m) of mass 1; strength: (B,) ≥ 0. The cost changes to cost − strength·log(plan / a⊗b) and eps to
        eps + strength. Where the strength is positive, pairs at which the plan is 0 are forbidden.
        """
        if isinstance(self.cost, BilinearMatrix):
            cost = self.cost - strength[:, None, None] * plan.log_ratio(self.log_a, self.log_b)
            return replace(self, cost=cost, eps=self.eps + strength)
        log_ratio = plan.log() - self.log_a[:, :, None] - self.log_b[:, None, :]
        weight = strength.to(self.cost.dtype)[:, None, None]
        # Where the plan is 0 the log ratio is -inf, or NaN if a weight is 0 too: the pair is forbidden either way.
        shift = torch.where(plan > 0, weight * log_ratio, -torch.inf)
        cost = torch.where(weight > 0, self.cost - shift, self.cost)
        return replace(self, cost=cost, eps=self.eps + strength)


@dataclass(frozen=True, eq=False)
class LinearSolution(BatchRecord):
    """The solution of a linear problem.

    unit_plan: (B, n, m), the plan divided by its mass; log_mass: (B,), log of that mass; f: (B, n), g: (B, m): dual
    potentials in the units of the cost; residual: (B,), the share of the mass that the next iteration would move.
    """

    unit_plan: Any  # Tensor or ImplicitPlan
    log_mass: Tensor
    f: Tensor
    g: Tensor
    residual: Tensor
