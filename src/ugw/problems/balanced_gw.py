"""Balanced Gromov–Wasserstein without entropy, as Frank–Wolfe solves it: a UGW problem with hard marginals, eps = 0."""

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
        """The entropy, (B,): 0 for every item."""
        return self.problem.eps

    def result(self, tensors: SolverOutput) -> Result:
        """Return the Result that users get, from the output of a solver."""
        return self.problem.result(tensors)

    def state_of_plan(self, unit_plan: Tensor) -> PlanState:
        """Return the state of a plan (B, n, m) of unit mass."""
        return self.problem.state_of_plan(unit_plan)

    def objective(self, state: PlanState) -> Terms:
        """Return the terms of the objective of a state, (B,) each."""
        return self.problem.objective(state)

    def marginal_error(self, state: PlanState) -> Tensor:
        """Return the larger of Σ |p1 − a| and Σ |p2 − b|, all of unit mass, (B,)."""
        return hard_marginal_error(self.problem, state.unit_plan)

    def quadratic_along(self, state: PlanState, direction: Tensor) -> tuple[Tensor, Tensor]:
        """Return (s, c), (B,) each, with F(p + t·m·d) = F(p) + s·t + c·t²; d: (B, n, m), difference of unit plans."""
        mass = state.log_mass.exp()
        slope = 2.0 * mass**2 * dot(state.local_cost, direction)
        if self.problem.cost is not None:
            slope = slope + self.problem.alpha * mass * dot(self.problem.cost, direction)
        return slope, mass**2 * dot(self.problem.distortion_sum.apply(direction), direction)

    def linear_minimizer(self, state: PlanState) -> Tensor:
        """Return the plan (B, n, m) of unit mass with both marginals that minimizes the linearized objective."""
        a, b = self.problem.log_a.exp(), self.problem.log_b.exp()
        return exact_ot.optimal_plan(self.problem.linearize(state).cost, a, b)

    def project(self, plan: Tensor) -> Tensor:
        """Return the plan (B, n, m) at unit mass, changed so that it has both marginals."""
        return exact_ot.round_to_marginals(normalize(plan), self.problem.log_a.exp(), self.problem.log_b.exp())

    def gap_scale(self) -> Tensor:
        """Return the objective of the product plan, (B,): the unit of duality gaps."""
        return self.problem.scale() * (2.0 * self.problem.log_mass_a).exp()

    def gap_resolution(self) -> Tensor:
        """Return the relative duality gap (B,) below which it may be rounding alone."""
        rounding = PROBLEM_CONFIG.partial_gradient_rounding * torch.finfo(self.problem.x.dtype).eps
        return torch.full_like(self.eps, rounding)
