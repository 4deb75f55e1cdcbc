"""The linear problem inside every step: entropic transport with relaxed or hard marginals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.pytree import take_fields
from ..geometry.bilinear_matrix import BilinearMatrix
from ..geometry.implicit_plan import StreamingKernel
from ..kernels import dispatch as kernels
from ..measures.divergences import KL


@dataclass(frozen=True, eq=False)
class LinearProblem:
    """min_p <cost, p> + rho1 KL(p1 | a) + rho2 KL(p2 | b) + eps KL(p | a⊗b).

    cost: (B, n, m), stored, where +inf forbids a pair, or bilinear; log_a: (B, n); log_b: (B, m); eps: (B,), in
    float64 as are the rhos.
    """

    cost: Any  # Tensor or BilinearMatrix
    log_a: Tensor
    log_b: Tensor
    div_a: KL
    div_b: KL
    eps: Tensor

    @property
    def batch(self) -> int:
        """Number of items."""
        return self.cost.shape[0]

    def take(self, index: Tensor) -> LinearProblem:
        """Some items of the batch."""
        return take_fields(self, index)

    def kernel(self, gamma: Tensor | None) -> kernels.GibbsKernel:
        """What Sinkhorn iterates with, stabilized around the potential gamma = g / eps (B, m) unless that is None."""
        eps = self.eps.to(self.cost.dtype)
        if isinstance(self.cost, BilinearMatrix):
            return StreamingKernel.from_cost(self.cost, self.log_a, self.log_b, eps)
        return kernels.make_gibbs_kernel(self.cost, self.log_a, self.log_b, eps, gamma)

    def near(self, plan: Any, strength: Tensor) -> LinearProblem:
        """Add strength · KL(p | plan), a proximal term. plan: (B, n, m) of unit mass; strength: (B,) ≥ 0.

        Rewritten against a⊗b, eq. (5.1), that is more entropy and another cost, so the same Sinkhorn serves. Where the
        strength is positive, a zero of the plan stays a zero.
        """
        if isinstance(self.cost, BilinearMatrix):
            cost = self.cost - strength[:, None, None] * plan.log_ratio(self.log_a, self.log_b)
            return replace(self, cost=cost, eps=self.eps + strength)
        log_ratio = plan.log() - self.log_a[:, :, None] - self.log_b[:, None, :]
        weight = strength.to(self.cost.dtype)[:, None, None]
        # Where the plan is 0 this reads -inf, and NaN if a weight is 0 too: forbidden either way.
        pull = torch.where(plan > 0, weight * log_ratio, -torch.inf)
        cost = torch.where(weight > 0, self.cost - pull, self.cost)
        return replace(self, cost=cost, eps=self.eps + strength)


@dataclass(frozen=True, eq=False)
class LinearSolution:
    """What a linear solver found: `shape` is the plan divided by its mass.

    unit_plan: (B, n, m); log_mass: (B,); f: (B, n); g: (B, m), potentials in the units of the cost;
    residual: (B,), the share of the plan's mass that the next iteration would still move.
    """

    unit_plan: Any  # Tensor or ImplicitPlan
    log_mass: Tensor
    f: Tensor
    g: Tensor
    residual: Tensor

    def take(self, index: Tensor) -> LinearSolution:
        """Some items of the batch."""
        return take_fields(self, index)
