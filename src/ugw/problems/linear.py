"""The linear problem inside every step: entropic transport with relaxed or hard marginals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .._batch import take_fields
from ..divergences import KL


@dataclass(frozen=True, eq=False)
class LinearProblem:
    """min_p <cost, p> + rho1 KL(p1 | a) + rho2 KL(p2 | b) + eps KL(p | a⊗b).

    cost: (B, n, m), +inf forbids a pair; log_a: (B, n); log_b: (B, m); eps: (B,), float64 as are the rhos.
    """

    cost: Tensor
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

    def near(self, plan: Tensor, where: Tensor) -> LinearProblem:
        """For the items `where` (B,): the entropy against `plan` (B, n, m) instead of a⊗b, a proximal step.

        eps KL(p | plan) differs from eps KL(p | a⊗b) by a linear term, so only the cost changes and the same
        Sinkhorn serves. A zero of the plan stays a zero.
        """
        log_ratio = plan.log() - self.log_a[:, :, None] - self.log_b[:, None, :]
        # Zeros of the plan, and zero weights among them, where this would read -inf − -inf.
        log_ratio = torch.where(plan > 0, log_ratio, -torch.inf)
        moved = self.cost - self.eps.to(self.cost.dtype)[:, None, None] * log_ratio
        return replace(self, cost=torch.where(where[:, None, None], moved, self.cost))


@dataclass(frozen=True, eq=False)
class LinearSolution:
    """What a linear solver found: `shape` is the plan divided by its mass.

    shape: (B, n, m); log_mass: (B,); f: (B, n); g: (B, m), potentials in the units of the cost;
    residual: (B,), the share of the plan's mass that the next iteration would still move.
    """

    shape: Tensor
    log_mass: Tensor
    f: Tensor
    g: Tensor
    residual: Tensor

    def take(self, index: Tensor) -> LinearSolution:
        """Some items of the batch."""
        return take_fields(self, index)
