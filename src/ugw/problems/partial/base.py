"""Partial problems: plans below the weights, p1 ≤ a and p2 ≤ b, of any mass (TV) or of a given mass (Mass).

They use sqrt(m(a) m(b)) as the unit of mass, so that nothing overflows with the masses, and are solved by Frank–Wolfe,
which calls `project`, `state_of_plan`, `linear_minimizer`, `segment`, `gap_scale` and `gap_resolution`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..._utils.pytree import BatchRecord
from ...geometry.metric import Metric
from ...kernels import exact_ot
from ...kernels.dispatch import dot
from ...measures.divergences import TV, Mass
from ...results.records import Terms
from ..base import SpacePair
from ..config import PROBLEM_CONFIG
from ..plan_operations import normalize


@dataclass(frozen=True, eq=False)
class PartialPlanState(BatchRecord):
    """A plan of a partial problem with the quantities computed from it: the state that Frank–Wolfe iterates on.

    unit_plan: (B, n, m), the plan divided by mass_unit = sqrt(m(a) m(b)); local_cost: (B, n, m), Σ λ(|Dx_ii' − Dy_jj'|)
    unit_plan_i'j', λ the loss, or None where the problem is linear; mass_unit: (B,); mass, distortion, linear: (B,)
    float64, sum of unit_plan, <local_cost, unit_plan> and <M, unit_plan>; min_mass: (B,), value of mass below which a
    plan has collapsed.
    """

    unit_plan: Tensor
    local_cost: Any  # Tensor, None where the problem is linear
    mass_unit: Tensor
    mass: Tensor
    distortion: Tensor
    linear: Tensor
    min_mass: Tensor

    @property
    def plan(self) -> Tensor:
        """The plan with its mass, (B, n, m): the unit plan times sqrt(m(a) m(b))."""
        return self.unit_plan * self.mass_unit.to(self.unit_plan.dtype)[:, None, None]

    @property
    def log_mass(self) -> Tensor:
        """The log of the mass of the plan, (B,)."""
        return (self.mass * self.mass_unit).log()

    @property
    def is_collapsed(self) -> Tensor:
        """(B,) bool: is the mass below `min_mass`, so that the plan matches next to nothing?"""
        return self.mass < self.min_mass


@dataclass(frozen=True, eq=False)
class Segment(BatchRecord):
    """The plans p + t·d from the plan p of a state in a direction d, and their objective F(p) + slope·t + curvature·t².

    direction: d (B, n, m), in units of sqrt(m(a) m(b)); local_cost: its Σ λ(|Dx_ii' − Dy_jj'|) d_i'j', (B, n, m), or
    None where the problem is linear; mass, linear: (B,), sum of d and <M, d>; slope, curvature: (B,).
    """

    direction: Tensor
    local_cost: Any  # Tensor, None where the problem is linear
    mass: Tensor
    linear: Tensor
    slope: Tensor
    curvature: Tensor

    def move(self, state: PartialPlanState, t: Tensor) -> PartialPlanState:
        """Return the state of the plan p + t·d, where p is the plan of `state`; t: (B,).

        Its local cost is that of p plus t times that of d, which saves the product with both metrics.
        """
        step = t.to(self.direction.dtype)[:, None, None]
        unit_plan = state.unit_plan + step * self.direction
        mass, linear = state.mass + t * self.mass, state.linear + t * self.linear
        if self.local_cost is None:
            return replace(state, unit_plan=unit_plan, mass=mass, linear=linear)
        local_cost = state.local_cost + step * self.local_cost
        distortion = dot(local_cost, unit_plan)
        return replace(
            state, unit_plan=unit_plan, local_cost=local_cost, mass=mass, linear=linear, distortion=distortion
        )


@dataclass(frozen=True)
class PartialCompiledInputs:
    """Input of the compiled (C++) steps for a partial GW problem with the loss t².

    dx, dy: metrics of both spaces; cost: (n, m) or (B, n, m), the linear cost of a fused problem, or None; alpha: (B,).
    """

    dx: Metric
    dy: Metric
    cost: Tensor | None
    alpha: Tensor


class PartialProblem(SpacePair):
    """Two spaces with TV on both sides or one Mass for both; a dataclass that derives from it calls `set_weights`."""

    div_a: TV | Mass
    div_b: TV | Mass

    @property
    def mass_unit(self) -> Tensor:
        """sqrt(m(a) m(b)), (B,): the unit of plans, weights and masses during a solve."""
        return (0.5 * (self.log_mass_a + self.log_mass_b)).exp()

    @property
    def unit_weights(self) -> tuple[Tensor, Tensor]:
        """The weights a (B, n) and b (B, m), upper bounds of the marginals, in units of sqrt(m(a) m(b))."""
        ratio = (0.5 * (self.log_mass_a - self.log_mass_b)).exp().to(self.log_a.dtype)[:, None]
        return self.log_a.exp() * ratio, self.log_b.exp() / ratio

    @property
    def fixed_mass(self) -> Tensor | None:
        """The mass (B,) that a plan must have, in units of sqrt(m(a) m(b)), or None if it is free."""
        return self.div_a.m / self.mass_unit if isinstance(self.div_a, Mass) else None

    @property
    def max_mass(self) -> Tensor:
        """The largest possible mass (B,) of a plan, in units of sqrt(m(a) m(b)): the smaller mass of both sides."""
        return (-0.5 * (self.log_mass_a - self.log_mass_b).abs()).exp()

    @property
    def target_mass(self) -> Tensor:
        """The fixed mass (B,) of plans, or the largest possible one if it is free, in units of sqrt(m(a) m(b))."""
        return self.max_mass if self.fixed_mass is None else self.fixed_mass

    @property
    def min_mass(self) -> Tensor:
        """The mass (B,), in units of sqrt(m(a) m(b)), below which a plan has collapsed; 0 where the mass is fixed."""
        if self.fixed_mass is not None:
            return torch.zeros_like(self.mass_unit)
        return PROBLEM_CONFIG.min_partial_mass * self.max_mass

    @property
    def total_penalty(self) -> Tensor:
        """rho1 + rho2, (B,), zeros if the mass of a plan is fixed (Mass).

        It is minus the derivative of the marginal penalties of TV: in linear problems with respect to the mass m of a
        plan, in GW problems with respect to m².
        """
        return self.div_a.penalty + self.div_b.penalty

    def project(self, plan: Tensor) -> Tensor:
        """Return a plan with p1 ≤ a and p2 ≤ b, (B, n, m), in units of sqrt(m(a) m(b)), made from a plan of any mass.

        plan: (B, n, m), in the units of the weights as they were given. Rows and columns that exceed the weights are
        scaled down, no others. If the mass is fixed (Mass), the plan is scaled to that mass first, and what scaling
        down removes is added where weights are unused.
        """
        if self.fixed_mass is None:
            return exact_ot.clip_to_marginals(plan / self.mass_unit.to(plan.dtype)[:, None, None], *self.unit_weights)
        mass = self.fixed_mass.to(plan.dtype)
        scaled = normalize(plan) * mass[:, None, None]
        clipped = exact_ot.clip_to_marginals(scaled, *self.unit_weights)
        return exact_ot.add_missing_mass(clipped, *self.unit_weights, mass - clipped.sum(dim=(1, 2)))

    def linear_minimizer(self, state: PartialPlanState) -> Tensor:
        """Return the plan (B, n, m), in units of sqrt(m(a) m(b)), that minimizes the objective linearized at a state.

        It is exact (network simplex), among the plans with p1 ≤ a and p2 ≤ b, of the fixed mass if there is one.
        """
        return exact_ot.optimal_partial_plan(self.gradient(state), *self.unit_weights, self.fixed_mass)

    @abstractmethod
    def gradient(self, state: PartialPlanState) -> Tensor:
        """Return the gradient of the objective in the plan, at a state, (B, n, m), up to a factor > 0 for each item."""

    @abstractmethod
    def state_of_plan(self, unit_plan: Tensor) -> PartialPlanState:
        """Return the `PartialPlanState` (local cost, mass) of a plan (B, n, m) in units of sqrt(m(a) m(b))."""

    @abstractmethod
    def segment(self, state: PartialPlanState, direction: Tensor) -> Segment:
        """Return the `Segment` p + t·d: direction d, its local cost, mass, <M, d>, and slope and curvature of F in t.

        M: the linear cost; the objective is F(p + t·d) = F(p) + slope·t + curvature·t²; the local cost is None in
        linear problems. p: the plan of `state`; direction: d (B, n, m), in units of sqrt(m(a) m(b)).
        """

    def best_swap(self, state: PartialPlanState, min_decrease: Tensor) -> tuple[Tensor, Tensor]:
        """Return no direction, zeros (B, n, m), and False (B,): swaps of pairs do not lower a linear objective."""
        return torch.zeros_like(state.unit_plan), torch.zeros_like(min_decrease, dtype=torch.bool)

    @abstractmethod
    def objective(self, state: PartialPlanState) -> Terms:
        """Return weighted terms of F at a state, (B,) each: distortion, linear, both marginal terms, entropy (0)."""

    @abstractmethod
    def mean_cost(self) -> Tensor:
        """Return the mean (B,) > 0 of the absolute cost under p = a⊗b of mass 1; 1 where that is 0.

        In GW problems it is the mean distortion under p⊗p, plus alpha/m times the mean absolute linear cost.
        """

    @abstractmethod
    def mass_factor(self) -> Tensor:
        """Return the factor (B,) > 0 that turns `mean_cost` into the cost term of the objective at a plan ∝ a⊗b.

        The plan has mass m, the fixed mass or the largest possible one: the factor is m in linear problems, m² in GW.
        """

    def compiled_inputs(self) -> PartialCompiledInputs | None:
        """Return both metrics, the linear cost M (None if not fused) and alpha of alpha <M, p>, the input of C++ steps.

        Returns None for all partial problems except GW with the loss λ(t) = t².
        """
        return None

    def gap_scale(self) -> Tensor:
        """Return the unit (B,) of duality gaps: `mass_factor` times the smaller of `mean_cost` and rho1 + rho2.

        A gap divided by it is relative. For Mass rho1 + rho2 is left out. `mass_factor` is m in linear problems and m²
        in GW, m the fixed or largest possible mass. `mean_cost` is the mean absolute cost under p = a⊗b of mass 1, in
        GW the mean distortion under p⊗p plus alpha/m times the mean absolute linear cost under p.
        """
        penalty = torch.where(self.total_penalty > 0, self.total_penalty, torch.inf)
        return self.mass_factor() * torch.minimum(self.mean_cost(), penalty)

    def gap_resolution(self) -> Tensor:
        """Return the duality gap, in units of `gap_scale`, (B,), below which a gap may be rounding error alone."""
        largest = self.mass_factor() * torch.maximum(self.mean_cost(), self.total_penalty)
        rounding = PROBLEM_CONFIG.partial_gradient_rounding * torch.finfo(self.x.dtype).eps
        return rounding * largest / self.gap_scale()

    def marginal_error(self, state: PartialPlanState) -> Tensor:
        """Return (Σ (p1 − a)_+ + Σ (p2 − b)_+ + |m(p) − fixed mass|) / mass, (B,), at a state, no third if free.

        mass: the fixed mass, or the largest possible one if the mass of plans is free.
        """
        error = torch.zeros_like(state.mass) if self.fixed_mass is None else (state.mass - self.fixed_mass).abs()
        for marginal, weights in zip((state.unit_plan.sum(2), state.unit_plan.sum(1)), self.unit_weights, strict=True):
            error = error + (marginal - weights).clamp(min=0.0).sum(1).double()
        return error / self.target_mass
