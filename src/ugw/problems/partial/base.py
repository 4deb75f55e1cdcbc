"""Plans below the weights, p1 ≤ a and p2 ≤ b, of any mass (TV) or of a given one (Mass): what such problems share.

They work in units of sqrt(m(a) m(b)), so that nothing overflows with the masses, and are solved by Frank–Wolfe, whose
questions (`feasible`, `state_of_plan`, `vertex`, `along`, `stake`, `resolution`, `is_collapsed`) they answer.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from ..._utils.pytree import take_fields
from ...kernels import exact_ot as exact
from ...measures.divergences import TV, Mass
from ...results.records import SolverOutput, Terms
from ...results.result import Result
from ..base import SpacePair

# Below this share of what could be matched, a plan matches nothing worth the name.
NOTHING = 1e-12
# Rounding errors of the gradient add up to this many times those of one entry.
ROUNDING = 64.0


@dataclass(frozen=True, eq=False)
class Match:
    """A plan and what a problem needs to know of it, in units of the problem: the state that solvers hand around.

    unit_plan: (B, n, m), the plan over `unit`; local_cost: (B, n, m), Σ λ(|Dx_ii' − Dy_jj'|) unit_plan_i'j', or None
    where the problem is linear; scalars (B,) in float64: unit; mass of the shape; distortion = <local, shape>;
    linear = <M, shape>.
    """

    unit_plan: Tensor
    local_cost: Tensor | None
    unit: Tensor
    mass: Tensor
    distortion: Tensor
    linear: Tensor

    @property
    def plan(self) -> Tensor:
        """(B, n, m), with its mass."""
        return self.unit_plan * self.unit.to(self.unit_plan.dtype)[:, None, None]

    @property
    def log_mass(self) -> Tensor:
        """(B,), of the plan."""
        return (self.mass * self.unit).log()

    def take(self, index: Tensor) -> Match:
        """Some items of the batch."""
        return take_fields(self, index)


class PartialProblem(SpacePair):
    """Two spaces, and TV on both sides or one Mass for both; a dataclass that derives from it calls `weigh`."""

    div_a: TV | Mass
    div_b: TV | Mass

    def result(self, tensors: SolverOutput) -> Result:
        """What a solver found, as users see it."""
        return Result(tensors, self.sizes, self.numpy)

    @property
    def unit(self) -> Tensor:
        """sqrt(m(a) m(b)), (B,)."""
        return (0.5 * (self.log_mass_a + self.log_mass_b)).exp()

    @property
    def caps(self) -> tuple[Tensor, Tensor]:
        """The weights a (B, n) and b (B, m) in units."""
        ratio = (0.5 * (self.log_mass_a - self.log_mass_b)).exp().to(self.log_a.dtype)[:, None]
        return self.log_a.exp() * ratio, self.log_b.exp() / ratio

    @property
    def given_mass(self) -> Tensor | None:
        """The mass that a plan must have, in units, or None if it is free. (B,)."""
        return self.div_a.m / self.unit if isinstance(self.div_a, Mass) else None

    @property
    def most(self) -> Tensor:
        """The largest mass of a plan, in units. (B,)."""
        return (-0.5 * (self.log_mass_a - self.log_mass_b).abs()).exp()

    @property
    def amount(self) -> Tensor:
        """The mass that a plan has, if it is given, or else may have at most, in units. (B,)."""
        return self.most if self.given_mass is None else self.given_mass

    @property
    def reward(self) -> Tensor:
        """rho1 + rho2: what a plan's mass, or its square, saves. (B,), 0 where the mass is given."""
        return self.div_a.penalty + self.div_b.penalty

    def feasible(self, plan: Tensor) -> Tensor:
        """The plan (B, n, m) in units, scaled down where it has more than the weights, and brought to a given mass."""
        shape = plan / self.unit.to(plan.dtype)[:, None, None]
        if self.given_mass is None:
            return exact.clip_to_marginals(shape, *self.caps)
        wanted = self.given_mass.to(plan.dtype)
        shape = exact.clip_to_marginals(shape * (wanted / shape.sum(dim=(1, 2)))[:, None, None], *self.caps)
        return exact.add_missing_mass(shape, *self.caps, wanted - shape.sum(dim=(1, 2)))

    def vertex(self, state: Match) -> Tensor:
        """The plan in units that the gradient at a state likes best. Returns (B, n, m)."""
        return exact.optimal_partial_plan(self.gradient(state), *self.caps, self.given_mass)

    @abstractmethod
    def gradient(self, state: Match) -> Tensor:
        """∂F/∂p at a state, (B, n, m), up to a positive factor for each item."""

    @abstractmethod
    def state_of_plan(self, shape: Tensor) -> Match:
        """The state of a plan in units. shape: (B, n, m)."""

    @abstractmethod
    def along(self, state: Match, direction: Tensor) -> tuple[Tensor, Tensor]:
        """(s, c) with F(p + t·d) = F(p) + s·t + c·t², for p and d (B, n, m) in units."""

    @abstractmethod
    def objective(self, state: Match) -> Terms:
        """F, term by term, of a plan below the weights. Terms of shape (B,)."""

    @abstractmethod
    def mean(self) -> Tensor:
        """The mean cost of the product plan, (B,) > 0, per unit of `worth`."""

    @abstractmethod
    def worth(self) -> Tensor:
        """What the `amount` counts for: (B,) > 0."""

    def stake(self) -> Tensor:
        """What a matching is about, (B,): the mean cost, or what the mass is worth if that is less."""
        price = torch.where(self.reward > 0, self.reward, torch.inf)
        return self.worth() * torch.minimum(self.mean(), price)

    def resolution(self) -> Tensor:
        """A gap as small as this, (B,) in units of the stake, may be rounding alone."""
        largest = self.worth() * torch.maximum(self.mean(), self.reward)
        return ROUNDING * torch.finfo(self.x.dtype).eps * largest / self.stake()

    def marginal_error(self, state: Match) -> Tensor:
        """By how much a plan is above the weights or off its mass, relative to what can be matched. Returns (B,)."""
        off = torch.zeros_like(state.mass) if self.given_mass is None else (state.mass - self.given_mass).abs()
        for p, cap in zip((state.unit_plan.sum(2), state.unit_plan.sum(1)), self.caps, strict=True):
            off = off + (p - cap).clamp(min=0.0).sum(1).double()
        return off / self.amount

    def is_collapsed(self, state: Match) -> Tensor:
        """(B,) bool: has the plan next to no mass? Never where the mass is given."""
        return state.mass < NOTHING * self.most if self.given_mass is None else torch.zeros_like(state.mass).bool()
