"""Unbalanced Wasserstein (UW), the linear twin of UGW:

    F(p) = <cost, p> + rho1 KL(p1 | a) + rho2 KL(p2 | b) + eps KL(p | a⊗b)

As for UGW, the shape of the solution, the plan divided by its mass, depends neither on the masses of a and b nor on a
constant in the cost, and the best mass of a shape has a closed form. The linear problem is the same in every step; a
step is not the last one only where eps is too small to be solved for at once, and grows a proximal term.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..geometry.space import Space
from ..kernels.dispatch import dot
from ..measures.divergences import KL, kl
from ..results.records import SolverOutput, Terms
from ..results.result import Result
from .base import Problem, take_cost
from .linear import LinearProblem, LinearSolution
from .ugw import LOG_NOTHING
from .ugw_state import PenaltyWeights, PlanState


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

    prices: PenaltyWeights = field(init=False)

    def __post_init__(self) -> None:
        self.weigh()
        object.__setattr__(self, "prices", PenaltyWeights.of(self))

    def take(self, index: Tensor) -> UW:
        """Some items of the batch; an item may be taken more than once."""
        return self.taken(index, cost=take_cost(self.cost, index))

    def result(self, tensors: SolverOutput) -> Result:
        """What a solver found, as users see it."""
        return Result(tensors, self.sizes, self.numpy)

    def mean(self) -> Tensor:
        """The mean cost under the product plan at unit mass. Returns (B,)."""
        return dot(self.cost, self.product)

    def cost_size(self) -> Tensor:
        """The root mean square of the cost around its mean, which matters to no shape; 1 where it is 0. (B,)."""
        size = self.spread_of(self._centered())
        return torch.where(size > 0, size, 1.0)

    def _centered(self) -> Tensor:
        """The cost less its mean, (B, n, m): it keeps the mass of a solution mid-range for the inner solver."""
        return self.cost - self.mean().to(self.cost.dtype)[:, None, None]

    def state_of_plan(self, shape: Any) -> PlanState:
        """The state of a plan of unit mass, given the best total mass that it can have. shape: (B, n, m)."""
        log_ratio = shape.log() - self.log_a[:, :, None] - self.log_b[:, None, :]
        zero = torch.zeros_like(self.eps)
        kls = (
            kl(shape.sum(2).double(), self.log_a.double()),
            kl(shape.sum(1).double(), self.log_b.double()),
            dot(shape, torch.where(shape > 0, log_ratio, 0.0)),
        )
        state = PlanState(shape, zero, zero, distortion=zero, kls=torch.stack(kls, dim=1), linear=dot(self.cost, shape))
        return state.weighing(self._log_mass(state))

    def _log_mass(self, state: PlanState) -> Tensor:
        """Log of the mass m that minimizes F(m·shape): −(L + Σ r_k (KL_k − log m_k)) / Σ r_k; a hard side fixes it."""
        log_mass = -(state.linear + self.prices.pull(state.kls)) / self.prices.total
        log_mass = torch.where(self.div_b.is_hard, self.log_mass_b, log_mass)
        return torch.where(self.div_a.is_hard, self.log_mass_a, log_mass)

    def linearize(self, state: PlanState) -> LinearProblem:
        """The problem itself, at unit masses: the next shape is the shape of its solution."""
        return LinearProblem(self._centered(), self.log_a, self.log_b, self.div_a, self.div_b, self.eps)

    def accept(self, state: PlanState, solution: LinearSolution) -> PlanState:
        """The state after a linear step: its shape, rescaled to the best mass."""
        return self.state_of_plan(solution.unit_plan)

    def objective(self, p: PlanState, q: PlanState | None = None) -> Terms:
        """F(p), term by term, or the mean of F(p) and F(q). A hard side contributes 0. Terms of shape (B,)."""
        if q is not None:
            pairs = zip(self.objective(p).as_dict().items(), self.objective(q).as_dict().values(), strict=True)
            return Terms(**{name: 0.5 * (one + other) for (name, one), other in pairs})
        paid = self.prices.each * _weighed_kl(p.kls, p.log_mass[:, None], self.prices.masses)
        return Terms(torch.zeros_like(self.eps), p.log_mass.exp() * p.linear, *paid.unbind(1))

    def reported_state(self, state: PlanState) -> PlanState:
        """The state as it is."""
        return state

    def lift(self, state: PlanState) -> None:
        """No lift to a cone."""
        return None

    def potentials(
        self, q: PlanState, p: PlanState, linear: tuple[Tensor, Tensor], log_mass: Tensor, entropy: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """(f, g) with p = a⊗b·exp((f ⊕ g − cost)/eps), and p1 = a·exp(−f/rho1) where rho1 is finite; None at eps = 0.

        `linear`, `log_mass`, `entropy`: potentials and log mass of the solution at unit masses, and its eps.
        """
        if not bool((self.eps > 0).any()):
            return None
        of_both = self.mean() + self.eps * (p.log_mass - self.log_mass_a - self.log_mass_b) - entropy * log_mass
        of_f = -self.div_a.penalty * (p.log_mass - log_mass - self.log_mass_a)
        of_g = -self.div_b.penalty * (p.log_mass - log_mass - self.log_mass_b)
        both = torch.where(self.div_b.is_hard, 0.5 * of_both, of_both - of_g)
        of_f = torch.where(self.div_a.is_hard, both, of_f)
        sides = zip(linear, (of_f, of_both - of_f), strict=True)
        f, g = (torch.where(self.eps[:, None] > 0, v.double() + c[:, None], torch.nan).to(v.dtype) for v, c in sides)
        return f, g

    def is_collapsed(self, state: PlanState) -> Tensor:
        """(B,) bool: is the best mass of this shape too small to call it a plan?"""
        return state.log_mass < 0.5 * (self.log_mass_a + self.log_mass_b) + LOG_NOTHING


def _weighed_kl(unit_kl: Tensor, log_mass: Tensor, log_reference: Tensor) -> Tensor:
    """KL(p | r) from that at unit masses: m(r) [e^t (KL + t) − (e^t − 1)], t = log m(p)/m(r). Any shapes that fit."""
    t = log_mass - log_reference
    return log_reference.exp() * (t.exp() * (unit_kl + t) - torch.expm1(t))
