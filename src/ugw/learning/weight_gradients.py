"""What a little more weight is worth: the gradient of a solved value with respect to the weights, eq. (9.2).

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

# Without entropy a minimum is taken: a log-sum-exp with this share of the cost's size is one, up to rounding.
SHARP = 1e-12


def weight_gradients(problem: UGW, state: PlanState, potentials: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    """dV/da (B, n) and dV/db (B, m), float64, at a stationary plan. potentials: of the solve, None at eps = 0.

    With both sides hard only their sum over changes of weight that keep m(a) = m(b) means something.
    """
    linear, shape = problem.linearize(state), state.unit_plan
    constant = state.distortion + 0.5 * problem.alpha * (-state.log_mass).exp() * state.linear
    f, g = potentials or (None, None)
    first = Side(
        linear, shape, state.kls[:, 1], state.log_mass, (problem.log_mass_a, problem.log_mass_b), constant, (f, g)
    )
    return first.gradient(), first.mirrored().gradient()


def cap_gradients(problem: PartialGW, state: PartialPlanState) -> tuple[Tensor, Tensor, Tensor]:
    """dV/da (B, n), dV/db (B, m) and dV/dm (B,) of a partial problem, at a plan that no vertex improves.

    The multipliers of p1 ≤ a and p2 ≤ b are those of the linear program at the plan; TV adds 2 rho1 m(a). dV/dm is that
    of a given mass, else 0.
    """
    slope = problem.gradient(state) * problem.mass_unit.to(state.unit_plan.dtype)[:, None, None]
    u, v, w = exact.partial_multipliers(slope, *problem.unit_weights, problem.fixed_mass)
    first = 2.0 * problem.div_a.penalty * problem.log_mass_a.exp()
    second = 2.0 * problem.div_b.penalty * problem.log_mass_b.exp()
    return u + first[:, None], v + second[:, None], w


@dataclass(frozen=True, eq=False)
class Side:
    """The first marginal of a stationary plan, divided by its mass, as is the linear problem that it solves.

    shape: (B, n, m); kl_b: (B,), of the second marginal; masses: logarithms of m(a), m(b); constant: what was
    subtracted from the cost; potentials: (f, g) with their mass, NaN or None where there are none.
    """

    linear: LinearProblem
    shape: Any
    kl_b: Tensor
    log_mass: Tensor
    log_masses: tuple[Tensor, Tensor]
    constant: Tensor
    potentials: tuple[Tensor | None, Tensor | None]

    def mirrored(self) -> Side:
        """The second marginal, seen from the other space."""
        old = self.linear
        turned = LinearProblem(old.cost.mT, old.log_b, old.log_a, old.div_b, old.div_a, old.eps)
        return replace(
            self,
            linear=turned,
            shape=self.shape.mT,
            kl_b=(self.shape.sum(2).double() * self.log_ratio).sum(1),
            log_masses=self.log_masses[::-1],
            potentials=self.potentials[::-1],
        )

    def gradient(self) -> Tensor:
        """dV/da, (B, n)."""
        rho, eps, hard = self.linear.div_a.penalty, self.linear.eps, self.linear.div_a.is_hard
        mass, (mass_a, mass_b) = self.log_mass.exp(), (log.exp() for log in self.log_masses)
        logs = torch.where(self.weighs, self.log_ratio, self._of_weightless())
        # r = p1/a with the masses back in; 1 on a hard side.
        ratio = (logs + (self.log_mass - self.log_masses[0])[:, None]).exp()
        ratio = torch.where(hard[:, None], 1.0, ratio)
        from_a = (
            2.0 * (rho * mass_a + eps * mass_a * mass_b.square())[:, None] - 2.0 * ((rho + eps) * mass)[:, None] * ratio
        )
        if not bool(hard.any()):
            return from_a
        return from_a + torch.where(hard[:, None], 2.0 * mass[:, None] * self._extended(self.price), 0.0)

    @property
    def weighs(self) -> Tensor:
        """(B, n) bool: has a point weight?"""
        return self.linear.log_a > -torch.inf

    @cached_property
    def log_ratio(self) -> Tensor:
        """log(p1/a) at unit masses; 0 for points without weight."""
        return log_ratio(self.shape.sum(2), self.linear.log_a)

    @cached_property
    def price(self) -> Tensor:
        """f/m of a hard side, (B, n), constant included: from the solve, or at eps = 0 the mean of what a row pays."""
        f = self.potentials[0]
        if f is not None and bool((self.linear.eps > 0).all()):
            return self._per_mass(f)
        other = self.linear.div_b
        excess = self.log_mass - self.log_masses[1]
        scalars = self.constant + other.penalty * (self.kl_b + 2.0 * excess)
        price = _row_means(self.shape, self.linear.cost, -other.penalty[:, None] * self._log_ratio_b) + scalars[:, None]
        both = self.linear.div_a.is_hard & other.is_hard & (self.linear.eps == 0)
        if bool(both.any()):
            price = torch.where(both[:, None], self._duals(both) + 0.5 * self.constant[:, None], price)
        return price if f is None else torch.where(self.linear.eps[:, None] > 0, self._per_mass(f), price)

    def _per_mass(self, potential: Tensor) -> Tensor:
        return potential.double() / self.log_mass.exp()[:, None]

    @property
    def _log_ratio_b(self) -> Tensor:
        return log_ratio(self.shape.sum(1), self.linear.log_b)

    def _duals(self, items: Tensor) -> Tensor:
        """The multipliers of the linear program that a plan between hard sides solves at eps = 0."""
        made = torch.zeros_like(self.log_ratio)
        linear = self.linear
        made[items] = exact.row_multipliers(linear.cost[items], linear.log_a[items].exp(), linear.log_b[items].exp())
        return made

    def _extended(self, price: Tensor) -> Tensor:
        """The price also of points without weight."""
        if bool(self.weighs.all()):
            return price
        known = torch.where(self.weighs, price, 0.0)
        softmin = self._softmin
        shift = (self.shape.sum(2).double() * (known - softmin)).sum(1, keepdim=True)
        return torch.where(self.weighs, known, softmin + shift)

    def _of_weightless(self) -> Tensor:
        """log(p1/a) of points without weight on a soft side: what it would be if they had a little."""
        if bool(self.weighs.all()):
            return self.log_ratio
        rho = torch.where(self.linear.div_a.is_hard, 1.0, self.linear.div_a.penalty)[:, None]
        fall = -self._softmin / rho
        shift = (self.shape.sum(2).double() * (self.log_ratio - fall)).sum(1, keepdim=True)
        return fall + shift

    @cached_property
    def _softmin(self) -> Tensor:
        """f up to a constant, (B, n), for all points: one update of Sinkhorn from the g of the plan."""
        soft = -self.linear.div_b.penalty[:, None] * self._log_ratio_b
        hard = self.linear.div_b.is_hard
        g = torch.where(hard[:, None], self.mirrored().price, soft) if bool(hard.any()) else soft
        g = torch.where(self.linear.log_b > -torch.inf, g, 0.0)
        eps = torch.maximum(self.linear.eps, SHARP * self.constant.abs().clamp(min=torch.finfo(torch.float64).tiny))
        dtype = self.linear.cost.dtype
        gamma = (g / eps[:, None]).to(dtype)
        rows = replace(self.linear, eps=eps).kernel(None).row_logsumexp(gamma).double()
        return -(self.linear.div_a.damping(eps) * eps)[:, None] * rows


def log_ratio(marginal: Tensor, log_weights: Tensor) -> Tensor:
    """log(marginal / weights), 0 where there is no weight."""
    tiny = torch.finfo(torch.float64).tiny
    return torch.where(log_weights > -torch.inf, marginal.double().clamp(min=tiny).log() - log_weights.double(), 0.0)


def _row_means(plan: Any, cost: Any, g: Tensor) -> Tensor:
    """Σ_j plan_ij (cost_ij − g_j) / p1_i, 0 in rows without mass. Returns (B, n), float64."""
    p1 = plan.sum(2).double()
    share = torch.where(p1 > 0, 1.0 / torch.where(p1 > 0, p1, 1.0), 0.0)
    if isinstance(cost, BilinearMatrix) and isinstance(plan, ImplicitPlan):
        col = (plan @ (cost.col - g)[:, :, None].to(plan.dtype))[:, :, 0].double()
        across = (cost.left.double() @ cost.core * plan.right_product.double()).sum(2)
        return share * (cost.row * p1 + col + across)
    paid = torch.where(plan > 0, (cost.double() - g[:, None, :]) * plan, 0.0)
    return share * paid.sum(2)
