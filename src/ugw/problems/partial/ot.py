"""Exact linear transport with what is left behind: plans below the weights, without entropy: eq. (8.2).

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
from .base import Match, PartialProblem


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
        self.weigh()

    def take(self, index: Tensor) -> PartialW:
        """Some items of the batch; an item may be taken more than once."""
        return self.taken(index, cost=take_cost(self.cost, index))

    def state_of_plan(self, shape: Tensor) -> Match:
        """The state of a plan in units. shape: (B, n, m)."""
        mass = shape.sum(dim=(1, 2), dtype=torch.float64)
        return Match(shape, None, self.unit, mass, torch.zeros_like(mass), dot(self.cost, shape))

    def gradient(self, state: Match) -> Tensor:
        """The cost less what mass saves, wherever the state is. (B, n, m)."""
        return self.cost - self.reward.to(self.cost.dtype)[:, None, None]

    def along(self, state: Match, direction: Tensor) -> tuple[Tensor, Tensor]:
        """(s, 0) with F(p + t·d) = F(p) + s·t, for p and d (B, n, m) in units."""
        gained = direction.sum(dim=(1, 2), dtype=torch.float64)
        slope = self.unit * (dot(self.cost, direction) - self.reward * gained)
        return slope, torch.zeros_like(slope)

    def worth(self) -> Tensor:
        """The largest mass, or the given one."""
        return self.unit * self.amount

    def mean(self) -> Tensor:
        """The mean cost of the product plan, (B,) > 0."""
        mean = dot(self.cost.abs(), self.product)
        return torch.where(mean > 0, mean, 1.0)

    def objective(self, state: Match) -> Terms:
        """F, term by term. Terms of shape (B,)."""
        mass = self.unit * state.mass
        return Terms(
            distortion=torch.zeros_like(mass),
            linear=self.unit * state.linear,
            marginal_a=self.div_a.penalty * (self.log_mass_a.exp() - mass),
            marginal_b=self.div_b.penalty * (self.log_mass_b.exp() - mass),
            entropy=torch.zeros_like(mass),
        )

    def is_collapsed(self, state: Match) -> Tensor:
        """(B,) bool: False. Where every pair costs more than it saves, no plan at all is the answer."""
        return torch.zeros_like(state.mass, dtype=torch.bool)
