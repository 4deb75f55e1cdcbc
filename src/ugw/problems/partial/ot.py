"""Partial optimal transport, exact and without entropy: plans below the weights, p1 ≤ a and p2 ≤ b: eq. (8.2).

    TV    F(p) = <cost, p> + rho1 (m(a) − m(p)) + rho2 (m(b) − m(p))
    Mass  F(p) = <cost, p>  over plans of one given mass; hard marginals are Mass(m(a)) where m(a) = m(b)

Below the weights rho1 (m(a) − m(p)) is rho1 |p1 − a|. F is linear, so that one step of Frank–Wolfe ends at an optimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...geometry.space import Space
from ...kernels.dispatch import dot
from ...measures.divergences import TV, Mass
from ...results.records import Terms
from ..base import take_cost
from .base import PartialPlanState, PartialProblem, Segment


@dataclass(frozen=True, eq=False)
class PartialW(PartialProblem):
    """Weights of two spaces, TV on both sides or one Mass for both, a cost (n, m) or (B, n, m); eps (B,) of zeros."""

    x: Space
    y: Space
    div_a: TV | Mass
    div_b: TV | Mass
    eps: Tensor
    cost: Tensor
    batched: bool = True

    def __post_init__(self) -> None:
        """Set the logs of weights and masses."""
        self.set_weights()

    def take(self, index: Tensor) -> PartialW:
        """Return the problem of the batch items `index`, (k,); an item may appear more than once."""
        return self.take_common_fields(index, cost=take_cost(self.cost, index))

    def state_of_plan(self, unit_plan: Tensor) -> PartialPlanState:
        """Return the `PartialPlanState` of a plan (B, n, m) in units of sqrt(m(a) m(b)), with <cost, plan> and mass.

        Its local cost is None, and its min_mass 0, so that it never counts as collapsed.
        """
        mass = unit_plan.sum(dim=(1, 2), dtype=torch.float64)
        zero = torch.zeros_like(mass)
        return PartialPlanState(unit_plan, None, self.mass_unit, mass, zero, dot(self.cost, unit_plan), min_mass=zero)

    def gradient(self, state: PartialPlanState) -> Tensor:
        """Return the cost minus rho1 + rho2, (B, n, m), the gradient of the objective at every plan."""
        return self.cost - self.total_penalty.to(self.cost.dtype)[:, None, None]

    def segment(self, state: PartialPlanState, direction: Tensor) -> Segment:
        """Return the `Segment` p + t·d: direction d, its mass, <cost, d> and slope of F in t; the curvature is 0.

        p: the plan of `state`; direction: d (B, n, m), in units of sqrt(m(a) m(b)).
        """
        mass, linear = direction.sum(dim=(1, 2), dtype=torch.float64), dot(self.cost, direction)
        slope = self.mass_unit * (linear - self.total_penalty * mass)
        return Segment(direction, None, mass, linear, slope, torch.zeros_like(slope))

    def mass_factor(self) -> Tensor:
        """Return the fixed mass of a plan, or the largest possible one for TV, (B,), in the units of the weights."""
        return self.mass_unit * self.target_mass

    def mean_cost(self) -> Tensor:
        """Return the mean (B,) > 0 of |cost| under the product plan a⊗b scaled to mass 1, 1 where it is 0."""
        mean = dot(self.cost.abs(), self.product)
        return torch.where(mean > 0, mean, 1.0)

    def objective(self, state: PartialPlanState) -> Terms:
        """Return weighted terms of F at a state, (B,) each: distortion 0, linear, both marginal terms, entropy 0."""
        mass = self.mass_unit * state.mass
        return Terms(
            distortion=torch.zeros_like(mass),
            linear=self.mass_unit * state.linear,
            marginal_a=self.div_a.penalty * (self.log_mass_a.exp() - mass),
            marginal_b=self.div_b.penalty * (self.log_mass_b.exp() - mass),
            entropy=torch.zeros_like(mass),
        )
