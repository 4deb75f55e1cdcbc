"""Gradients of solved values with respect to the weights, eq. (9.2).

With m the mass of the plan and r = p1/a, a soft side has dV/da = 2 rho1 (m(a) − m r) + 2 eps (m(a) m(b)² − m r). On a
hard side the potential f is the multiplier of p1 = a: dV/da = 2 f + 2 eps (m(a) m(b)² − m). A point without weight
has no r, but the potential that it would have is known, and on a soft side r = exp(−f / (m rho1)).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..geometry.bilinear_matrix import BilinearMatrix
from ..geometry.implicit_plan import ImplicitPlan
from ..kernels import exact_ot as exact
from ..problems.linear import LinearProblem
from ..problems.partial.base import PartialPlanState
from ..problems.partial.gw import PartialGW
from ..problems.ugw import UGW, PlanState
from .config import LEARNING_CONFIG


def weight_gradients(problem: UGW, state: PlanState, potentials: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    """Return the gradients dV/da (B, n) and dV/db (B, m) of the UGW value V (with entropy), float64.

    state: the stationary plan and its local cost; potentials: (f, g) of the solve, None at eps = 0. If both sides are
    hard, the gradients are for changes of weights that keep m(a) = m(b).
    """
    first = Side(
        linear=problem.linearize(state),
        unit_plan=state.unit_plan,
        log_mass=state.log_mass,
        log_masses=(problem.log_mass_a, problem.log_mass_b),
        constant=state.distortion + 0.5 * problem.alpha * (-state.log_mass).exp() * state.linear,
        potentials=potentials or (None, None),
    )
    return first.gradient(), first.other_side().gradient()


def partial_weight_gradients(problem: PartialGW, state: PartialPlanState) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients dV/da (B, n), dV/db (B, m) and dV/dmass (B,) of the value V of a partial problem.

    state: of a plan at which Frank–Wolfe has converged; mass: that of `Mass`, dV/dmass is 0 for TV. The others are the
    multipliers (≤ 0) of p1 ≤ a and p2 ≤ b in the linear program at the plan, for TV plus 2 rho1 m(a), 2 rho2 m(b).
    """
    slope = problem.gradient(state) * problem.mass_unit.to(state.unit_plan.dtype)[:, None, None]
    u, v, w = exact.partial_multipliers(slope, *problem.unit_weights, problem.fixed_mass)
    first = 2.0 * problem.div_a.penalty * problem.log_mass_a.exp()
    second = 2.0 * problem.div_b.penalty * problem.log_mass_b.exp()
    return u + first[:, None], v + second[:, None], w


@dataclass(frozen=True, eq=False)
class Side:
    """The first marginal of a stationary plan, scaled to mass 1, and the linear problem that this unit plan solves.

    unit_plan: (B, n, m); log_mass: log of the mass of the plan, (B,); log_masses: log m(a) and log m(b), (B,) each;
    constant: (B,), the number that was subtracted from all entries of the linear problem's cost; potentials: (f, g) of
    the solve, each NaN where eps = 0, or None.
    """

    linear: LinearProblem
    unit_plan: Any
    log_mass: Tensor
    log_masses: tuple[Tensor, Tensor]
    constant: Tensor
    potentials: tuple[Tensor | None, Tensor | None]

    def other_side(self) -> Side:
        """Return a Side with both sides exchanged: plan and cost transposed, weights and potentials swapped."""
        old = self.linear
        return replace(
            self,
            linear=LinearProblem(old.cost.mT, old.log_b, old.log_a, old.div_b, old.div_a, old.eps),
            unit_plan=self.unit_plan.mT,
            log_masses=self.log_masses[::-1],
            potentials=self.potentials[::-1],
        )

    def gradient(self) -> Tensor:
        """Return the gradient dV/da, (B, n), float64, of the UGW value V with respect to the weights a of this side."""
        rho, eps, hard = self.linear.div_a.penalty, self.linear.eps, self.linear.div_a.is_hard
        mass, (mass_a, mass_b) = self.log_mass.exp(), (log.exp() for log in self.log_masses)
        logs = torch.where(self.has_weight, self.log_ratio, self._log_ratio_of_weightless())
        # r = p1/a with the masses back in; 1 on a hard side.
        ratio = (logs + (self.log_mass - self.log_masses[0])[:, None]).exp()
        ratio = torch.where(hard[:, None], 1.0, ratio)
        constant = 2.0 * (rho * mass_a + eps * mass_a * mass_b.square())[:, None]
        gradient = constant - 2.0 * ((rho + eps) * mass)[:, None] * ratio
        if not bool(hard.any()):
            return gradient
        return gradient + torch.where(hard[:, None], 2.0 * mass[:, None] * self._multiplier_of_all_points(), 0.0)

    @property
    def has_weight(self) -> Tensor:
        """Whether each point of this side has positive weight, (B, n) bool."""
        return self.linear.log_a > -torch.inf

    @cached_property
    def log_ratio(self) -> Tensor:
        """log(p1/a), (B, n) in float64, with p1 and a scaled to mass 1; 0 for points without weight."""
        return log_ratio(self.unit_plan.sum(2), self.linear.log_a)

    @cached_property
    def multiplier(self) -> Tensor:
        """The multiplier f/m(p) of the constraint p1 = a of a hard side, (B, n): f the potential, m(p) the plan's mass.

        It is computed from the potentials of the solve where eps > 0; at eps = 0 from mean costs of the plan's rows, or
        between two hard sides from a linear program.
        """
        f, eps = self.potentials[0], self.linear.eps
        from_solve = None if f is None else f.double() / self.log_mass.exp()[:, None]
        if from_solve is not None and bool((eps > 0).all()):
            return from_solve
        other = self.linear.div_b
        kl_b = (self.unit_plan.sum(1).double() * self._log_ratio_b).sum(1)
        scalars = self.constant + other.penalty * (kl_b + 2.0 * (self.log_mass - self.log_masses[1]))
        soft_g = -other.penalty[:, None] * self._log_ratio_b
        multiplier = _mean_row_costs(self.unit_plan, self.linear.cost, soft_g) + scalars[:, None]
        both = self.linear.div_a.is_hard & other.is_hard & (eps == 0)
        if bool(both.any()):
            multiplier = torch.where(both[:, None], self._row_duals(both) + 0.5 * self.constant[:, None], multiplier)
        return multiplier if from_solve is None else torch.where(eps[:, None] > 0, from_solve, multiplier)

    @property
    def _log_ratio_b(self) -> Tensor:
        """log(p2/b), (B, m) in float64, with p2 and b scaled to mass 1; 0 for points without weight."""
        return log_ratio(self.unit_plan.sum(1), self.linear.log_b)

    def _row_duals(self, items: Tensor) -> Tensor:
        """Return the multipliers (B, n) of p1 = a, up to a constant, in the program min <cost, p>, p1 = a, p2 = b.

        a and b are scaled to mass 1. items: bool (B,), the items with two hard sides and eps = 0, whose plan solves
        this program; the multipliers of the others are 0.
        """
        multipliers, linear = torch.zeros_like(self.log_ratio), self.linear
        weights = linear.log_a[items].exp(), linear.log_b[items].exp()
        multipliers[items] = exact.row_multipliers(linear.cost[items], *weights)
        return multipliers

    def _multiplier_of_all_points(self) -> Tensor:
        """Return the multiplier f/m(p) of the constraint p1 = a of a hard side (rho = inf) at all points, (B, n).

        f: the potential, at points of weight 0 after one Sinkhorn update; m(p): mass of the plan.
        """
        if bool(self.has_weight.all()):
            return self.multiplier
        known = torch.where(self.has_weight, self.multiplier, 0.0)
        return torch.where(self.has_weight, known, self._shift_to_mean(self._softmin, known))

    def _log_ratio_of_weightless(self) -> Tensor:
        """Return log(p1/a), (B, n), p1 and a scaled to mass 1, of a soft side; for weight 0 the limit of small ones."""
        if bool(self.has_weight.all()):
            return self.log_ratio
        rho = torch.where(self.linear.div_a.is_hard, 1.0, self.linear.div_a.penalty)[:, None]
        return self._shift_to_mean(-self._softmin / rho, self.log_ratio)

    def _shift_to_mean(self, values: Tensor, reference: Tensor) -> Tensor:
        """Return values (B, n) plus a constant per item, so that their mean, weighted by p1, is that of `reference`."""
        return values + (self.unit_plan.sum(2).double() * (reference - values)).sum(1, keepdim=True)

    @cached_property
    def _softmin(self) -> Tensor:
        """The potential f, (B, n), also at points of weight 0, up to a constant per item: one Sinkhorn update from g.

        g is the potential of the other side at the plan. f is in units of the cost of `linear`.
        """
        soft = -self.linear.div_b.penalty[:, None] * self._log_ratio_b
        hard = self.linear.div_b.is_hard
        g = torch.where(hard[:, None], self.other_side().multiplier, soft) if bool(hard.any()) else soft
        g = torch.where(self.linear.log_b > -torch.inf, g, 0.0)
        size = self.constant.abs().clamp(min=torch.finfo(torch.float64).tiny)
        eps = torch.maximum(self.linear.eps, LEARNING_CONFIG.softmin_eps_share * size)
        dtype = self.linear.cost.dtype
        gamma = (g / eps[:, None]).to(dtype)
        rows = replace(self.linear, eps=eps).kernel(None).row_logsumexp(gamma).double()
        return -(self.linear.div_a.damping(eps) * eps)[:, None] * rows


def log_ratio(marginal: Tensor, log_weights: Tensor) -> Tensor:
    """Return log(marginal / weights), (B, n) in float64, 0 where the weight is 0. log_weights: (B, n), −inf for 0."""
    tiny = torch.finfo(torch.float64).tiny
    return torch.where(log_weights > -torch.inf, marginal.double().clamp(min=tiny).log() - log_weights.double(), 0.0)


def _mean_row_costs(plan: Any, cost: Any, g: Tensor) -> Tensor:
    """Return Σ_j plan_ij (cost_ij − g_j) / p1_i, (B, n) in float64, 0 for rows whose sum p1_i is 0.

    plan, cost: (B, n, m), both tensors or an `ImplicitPlan` and a `BilinearMatrix`; g: (B, m), a potential.
    """
    p1 = plan.sum(2).double()
    share = torch.where(p1 > 0, 1.0 / torch.where(p1 > 0, p1, 1.0), 0.0)
    if isinstance(cost, BilinearMatrix) and isinstance(plan, ImplicitPlan):
        col = (plan @ (cost.col - g)[:, :, None].to(plan.dtype))[:, :, 0].double()
        across = (cost.left.double() @ cost.core * plan.right_product.double()).sum(2)
        return share * (cost.row * p1 + col + across)
    costs = torch.where(plan > 0, (cost.double() - g[:, None, :]) * plan, 0.0)
    return share * costs.sum(2)
