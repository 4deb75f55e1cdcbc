"""Unbalanced optimal transport (UW), the linear counterpart of UGW:

    F(p) = <cost, p> + rho1 KL(p1 | a) + rho2 KL(p2 | b) + eps KL(p | a⊗b)

As for UGW, the unit plan of the solution, the plan divided by its mass, depends neither on the masses of a and b nor on
a constant in the cost, and the optimal mass has a closed form. The linear problem is the same in every step; there is
more than one step only where eps is so small that proximal steps are needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..geometry.space import Space
from ..kernels.dispatch import dot
from ..measures.divergences import KL, kl
from ..results.records import Terms
from .base import Problem, take_cost
from .linear import LinearProblem, LinearSolution
from .mass import PenaltyWeights, min_log_mass, scaled_kl, shift_potentials
from .plan_operations import cost_rms
from .ugw_state import PlanState


@dataclass(frozen=True, eq=False)
class UW(Problem):
    """Weights of two spaces, a divergence for each marginal, eps (B,) ≥ 0 and a cost (n, m) or (B, n, m)."""

    x: Space
    y: Space
    div_a: KL
    div_b: KL
    eps: Tensor
    cost: Tensor
    batched: bool = True

    penalty_weights: PenaltyWeights = field(init=False)

    def __post_init__(self) -> None:
        """Set the logs of weights and masses, and `penalty_weights`: rho1, rho2 (0 where inf) and eps."""
        self.set_weights()
        object.__setattr__(self, "penalty_weights", PenaltyWeights.from_problem(self))

    def take(self, index: Tensor) -> UW:
        """Return the problem of the batch items `index`, (k,); an item may appear more than once."""
        return self.take_common_fields(index, cost=take_cost(self.cost, index))

    def mean_cost(self) -> Tensor:
        """Return the mean (B,) of the cost under the product plan a⊗b scaled to mass 1."""
        return dot(self.cost, self.product)

    def cost_scale(self) -> Tensor:
        """Return the standard deviation (B,) of the cost under the product plan a⊗b, 1 where it is 0."""
        deviation = cost_rms(self._centered_cost(), self.log_a, self.log_b)
        return torch.where(deviation > 0, deviation, 1.0)

    def _centered_cost(self) -> Tensor:
        """Return the cost minus `mean_cost`, (B, n, m): a solution then has a mass near 1, far from overflow."""
        return self.cost - self.mean_cost().to(self.cost.dtype)[:, None, None]

    def state_of_plan(self, unit_plan: Any, *, is_product: Tensor | None = None) -> PlanState:
        """Return the `PlanState` of a plan p (B, n, m) of mass 1: its divergences, linear cost and optimal mass.

        The divergences are KL(p1 | a), KL(p2 | b) and KL(p | a⊗b) for a and b of mass 1. is_product is not used.
        """
        log_ratio = unit_plan.log() - self.log_a[:, :, None] - self.log_b[:, None, :]
        zero = torch.zeros_like(self.eps)
        kls = torch.stack(
            [
                kl(unit_plan.sum(2).double(), self.log_a.double()),
                kl(unit_plan.sum(1).double(), self.log_b.double()),
                dot(unit_plan, torch.where(unit_plan > 0, log_ratio, 0.0)),
            ],
            dim=1,
        )
        linear = dot(self.cost, unit_plan)
        log_mass = self._optimal_log_mass(linear, kls)
        return PlanState(
            unit_plan,
            zero,
            log_mass,
            distortion=zero,
            kls=kls,
            linear=linear,
            reported_log_mass=log_mass,
            min_log_mass=min_log_mass(self.log_mass_a, self.log_mass_b),
        )

    def _optimal_log_mass(self, linear: Tensor, kls: Tensor) -> Tensor:
        """Return the log of the mass m that minimizes the objective F of UW at m·p, (B,), for a plan p of mass 1.

        linear: (B,), <cost, p>; kls: (B, 3), KL(p1 | a), KL(p2 | b) and KL(p | a⊗b), with a, b scaled to mass 1. A hard
        side (rho = inf) fixes the mass.
        """
        log_mass = -(linear + self.penalty_weights.weighted_sum(kls)) / self.penalty_weights.total
        log_mass = torch.where(self.div_b.is_hard, self.log_mass_b, log_mass)
        return torch.where(self.div_a.is_hard, self.log_mass_a, log_mass)

    def linearize(self, state: PlanState) -> LinearProblem:
        """Return the problem itself, for weights of mass 1 and with cost − `mean_cost`; state is not used."""
        return LinearProblem(self._centered_cost(), self.log_a, self.log_b, self.div_a, self.div_b, self.eps)

    def accept(self, state: PlanState, solution: LinearSolution) -> PlanState:
        """Return the `PlanState` (divergences, optimal mass) of the plan of `solution`; `state` is not used."""
        return self.state_of_plan(solution.unit_plan)

    def objective(self, p: PlanState, q: PlanState | None = None) -> Terms:
        """Return weighted terms, (B,) each, of F(p), or of (F(p) + F(q))/2 if q is not None.

        They are distortion (0), linear, both marginal terms and entropy.
        """
        if q is not None:
            both = zip(self.objective(p).as_dict().items(), self.objective(q).as_dict().values(), strict=True)
            return Terms(**{name: 0.5 * (of_p + of_q) for (name, of_p), of_q in both})
        divergences = scaled_kl(p.kls, p.log_mass[:, None], self.penalty_weights.log_references)
        penalties = (self.penalty_weights.each * divergences).unbind(1)
        return Terms(torch.zeros_like(self.eps), p.log_mass.exp() * p.linear, *penalties)

    def potentials_and_lift(
        self, q: PlanState, p: PlanState, linear: tuple[Tensor, Tensor], log_mass: Tensor, entropy: Tensor
    ) -> tuple[tuple[Tensor, Tensor] | None, None]:
        """Return ((f, g), None): potentials (B, n) and (B, m) of the plan p, p = a⊗b·exp((f ⊕ g − cost)/eps).

        The second None is in place of the `Lift` of conic problems. p: the state after the last step; q, the state
        before it, is not used. Where rho1 is finite, p1 = a·exp(−f/rho1). Items with eps = 0 have NaN; if all have,
        None replaces (f, g). linear: potentials of the last linear problem; log_mass: (B,), log mass of its solution;
        entropy: (B,), its eps.
        """
        if not bool((self.eps > 0).any()):
            return None, None
        constant_sum = (
            self.mean_cost() + self.eps * (p.log_mass - self.log_mass_a - self.log_mass_b) - entropy * log_mass
        )
        constant_f = -self.div_a.penalty * (p.log_mass - log_mass - self.log_mass_a)
        constant_g = -self.div_b.penalty * (p.log_mass - log_mass - self.log_mass_b)
        is_hard, factor = (self.div_a.is_hard, self.div_b.is_hard), torch.ones_like(self.eps)
        constants = constant_f, constant_g
        return shift_potentials(linear, constants, constant_sum, is_hard=is_hard, factor=factor, eps=self.eps), None
