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

    def near(self, plan: Tensor, step: Tensor) -> LinearProblem:
        """Where eps = 0: the proximal step, + step · KL(p | plan), as an entropic problem. plan: (B, n, m).

        Rewriting KL(p | plan) against a⊗b changes only the cost, so the same Sinkhorn serves; a zero of the
        plan stays a zero. Items with eps > 0 are left alone. step: (B,) > 0.
        """
        exact = self.eps == 0
        log_ratio = plan.log() - self.log_a[:, :, None] - self.log_b[:, None, :]
        # A pair that a zero weight forbids has -inf − -inf; its cost is never read.
        log_ratio = torch.where(plan > 0, log_ratio, -torch.inf)
        strength = torch.where(exact, step, 0.0).to(self.cost.dtype)[:, None, None]
        shifted = self.cost - torch.where(strength > 0, strength * log_ratio, 0.0)
        return replace(self, cost=shifted, eps=torch.where(exact, step, self.eps))


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
