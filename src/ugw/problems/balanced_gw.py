"""Balanced Gromov–Wasserstein without entropy, solved by Frank–Wolfe: a UGW problem with hard marginals, eps = 0."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .._utils.pytree import BatchRecord
from ..kernels import exact_ot
from ..kernels.dispatch import dot
from ..results.records import SolverOutput, Terms
from ..results.result import Result
from .base import hard_marginal_error
from .config import PROBLEM_CONFIG
from .plan_operations import normalize
from .ugw import UGW
from .ugw_state import PlanState


@dataclass(frozen=True, eq=False)
class BalancedGW(BatchRecord):
    """A UGW problem with two hard marginals and eps = 0, with the methods that `FrankWolfe` calls."""

    problem: UGW

    @property
    def eps(self) -> Tensor:
        """The eps of the UGW problem, (B,): 0 for every item."""
        return self.problem.eps

    def result(self, tensors: SolverOutput) -> Result:
        """Return the output of a solver as the Result that users get, without its `parameters`."""
        return self.problem.result(tensors)

    def state_of_plan(self, unit_plan: Tensor) -> PlanState:
        """Return the `PlanState` (local cost, divergences) of a plan (B, n, m) of mass 1, with mass m(a)."""
        return self.problem.state_of_plan(unit_plan)

    def objective(self, state: PlanState) -> Terms:
        """Return the terms of the objective F(p, p), (B,) each, for the plan p of a state."""
        return self.problem.objective(state)

    def marginal_error(self, state: PlanState) -> Tensor:
        """Return max(Σ |p1 − a|, Σ |p2 − b|), (B,), for the plan p of a state, with p, a and b of mass 1."""
        return hard_marginal_error(self.problem, state.unit_plan)

    def quadratic_along(self, state: PlanState, direction: Tensor) -> tuple[Tensor, Tensor]:
        """Return s and c, (B,) each, with F(p + t·m·d) = F(p) + s·t + c·t², F: objective, p: plan of a state, mass m.

        direction: d (B, n, m), the difference of two plans of mass 1.
        """
        mass = state.log_mass.exp()
        slope = 2.0 * mass**2 * dot(state.local_cost, direction)
        if self.problem.cost is not None:
            slope = slope + self.problem.alpha * mass * dot(self.problem.cost, direction)
        return slope, mass**2 * dot(self.problem.distortion_sum.apply(direction), direction)

    def linear_minimizer(self, state: PlanState) -> Tensor:
        """Return the plan (B, n, m) with marginals a, b of mass 1 that minimizes the linearized objective."""
        a, b = self.problem.log_a.exp(), self.problem.log_b.exp()
        return exact_ot.optimal_plan(self.problem.linearize(state).cost, a, b)

    def project(self, plan: Tensor) -> Tensor:
        """Return a plan (B, n, m) near a given one that has the marginals a and b of mass 1."""
        return exact_ot.round_to_marginals(normalize(plan), self.problem.log_a.exp(), self.problem.log_b.exp())

    def gap_scale(self) -> Tensor:
        """Return the distortion of the product plan a⊗b of mass m(a), (B,): Frank–Wolfe divides duality gaps by it."""
        return self.problem.scale() * (2.0 * self.problem.log_mass_a).exp()

    def gap_resolution(self) -> Tensor:
        """Return the duality gap over `gap_scale`, (B,), below which a gap may be rounding error alone."""
        rounding = PROBLEM_CONFIG.partial_gradient_rounding * torch.finfo(self.problem.x.dtype).eps
        return torch.full_like(self.eps, rounding)
