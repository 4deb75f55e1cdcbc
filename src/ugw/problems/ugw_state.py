"""What a problem knows of a plan, and the formulas that turn sums over it into terms of the objective."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.pytree import take_fields


@dataclass(frozen=True, eq=False)
class PlanState:
    """A plan of a UGW problem with the quantities computed from it: the state that solvers iterate on.

    unit_plan: (B, n, m), the plan divided by its mass; local_cost: (B, n, m), Σ (Dx_ii' − Dy_jj')² unit_plan_i'j';
    log_mass: (B,), log of the mass of the plan; distortion: (B,), <local_cost, unit_plan>; kls: (B, 3), divergences of
    both marginals and of the plan from the weights, all at unit mass; linear: (B,), <M, unit_plan>; drift: (B,), L1
    length of the path since the local cost was last computed from a whole plan, None where it always is.
    """

    unit_plan: Any  # a tensor, or a plan that answers to the same questions
    local_cost: Any  # None where only the plan is remembered
    log_mass: Tensor
    distortion: Tensor
    kls: Tensor
    linear: Tensor
    drift: Tensor | None = None

    @property
    def plan(self) -> Tensor:
        """(B, n, m), with its mass."""
        return self.unit_plan * self.log_mass.exp().to(self.unit_plan.dtype)[:, None, None]

    def weighing(self, log_mass: Tensor) -> PlanState:
        """The same shape with a given mass. log_mass: (B,)."""
        return replace(self, log_mass=log_mass)

    def take(self, index: Tensor) -> PlanState:
        """Some items of the batch."""
        return take_fields(self, index)


@dataclass(frozen=True, eq=False)
class PenaltyWeights:
    """What multiplies the three divergences of a plan, of both marginals and of itself, (B, 3), and their sum (B,).

    masses: (B, 3), logarithms of the masses of what they are taken against. The sum is 1 where it would be 0: hard
    sides fix the mass there.
    """

    each: Tensor
    total: Tensor
    masses: Tensor

    @classmethod
    def of(cls, problem: Any) -> PenaltyWeights:
        """Those of the divergences, the entropy and the masses of a problem."""
        each = torch.stack([problem.div_a.penalty, problem.div_b.penalty, problem.eps], dim=1)
        total, (log_ma, log_mb) = each.sum(1), (problem.log_mass_a, problem.log_mass_b)
        masses = torch.stack([log_ma, log_mb, log_ma + log_mb], dim=1)
        return cls(each, total.masked_fill(total <= 0, 1.0), masses)

    def take(self, index: Tensor) -> PenaltyWeights:
        """Some items of the batch."""
        return take_fields(self, index)

    def pull(self, kls: Tensor) -> Tensor:
        """Σ_k r_k (KL_k − log m_k), (B,): how strongly divergences (B, 3) at unit mass pull the mass down."""
        return (self.each * (kls - self.masses)).sum(1)


def mean_log(marginal: Tensor, log_weights: Tensor) -> Tensor:
    """Σ p log a, 0 where p is. marginal, log_weights: (B, n). Returns (B,)."""
    return (marginal * log_weights.masked_fill(marginal <= 0, 0.0)).sum(1)


def product_kl(kl_sum: Tensor, log_mass: Tensor, log_reference: Tensor) -> Tensor:
    """KL(p⊗q | r⊗r) from unit-mass divergences: m(r)² [e^t (kl_sum + t) − (e^t − 1)], t = log m(p)m(q)/m(r)².

    kl_sum = KL(p/m(p) | r/m(r)) + the same for q. It is eq. (1.3), written so that it keeps its digits near 0.
    """
    twice = 2.0 * log_reference
    t = log_mass - twice
    return twice.exp() * (t.exp() * (kl_sum + t) - torch.expm1(t))


def lambert(z: Tensor) -> Tensor:
    """Upper real branch of w e^w = z; −1 where z < −1/e. Halley's iteration from a start good at −1/e."""
    z = z.clamp(min=-1.0 / math.e)
    near_branch = -1.0 + (2.0 * (math.e * z + 1.0)).clamp(min=0.0).sqrt()
    w = torch.where(z < 0, near_branch, torch.log1p(z.clamp(min=0.0)))
    for _ in range(20):
        excess = w * w.exp() - z
        slope = w.exp() * (w + 1.0)
        newton = excess / torch.where(slope.abs() > 1e-12, slope, 1.0)
        w = w - torch.where(slope.abs() > 1e-12, newton / (1.0 - 0.5 * newton * (w + 2.0) / (w + 1.0)), 0.0)
    return w
