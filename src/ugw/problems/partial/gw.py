"""Partial Gromov–Wasserstein: plans below the weights, p1 ≤ a and p2 ≤ b, without entropy: eq. (8.1).

    TV    F(p) = Σ λ(|Dx_ii' − Dy_jj'|) p_ij p_i'j' + rho1 (m(a)² − m(p)²) + rho2 (m(b)² − m(p)²) + alpha <M, p>
    Mass  F(p) = Σ λ(|Dx_ii' − Dy_jj'|) p_ij p_i'j' + alpha <M, p>  over plans of one given mass

Below the weights rho1 (m(a)² − m(p)²) is rho1 TV(p1⊗p1 | a⊗a): there the first line is the paper's TV⊗ functional,
eq. (8.3), whose minimum over all plans may be lower (docs/partial.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..._utils.config import UTILS_CONFIG
from ...geometry.space import Space
from ...kernels.dispatch import dot
from ...measures.divergences import TV, Mass
from ...results.records import Terms
from ..base import known, take_cost
from ..distortion.base import Distortion
from .base import Match, PartialProblem


@dataclass(frozen=True, eq=False)
class PartialGW(PartialProblem):
    """Two spaces, TV on both sides or one Mass for both, and for the fused problem alpha (B,) and M.

    eps: (B,), zeros; cost: (n, m) or (B, n, m), or None; distortion_sum: the sum over pairs of pairs for the loss.
    """

    x: Space
    y: Space
    div_a: TV | Mass
    div_b: TV | Mass
    eps: Tensor
    alpha: Tensor
    cost: Tensor | None
    distortion_sum: Distortion
    batched: bool = True

    def __post_init__(self) -> None:
        self.weigh()

    def take(self, index: Tensor) -> PartialGW:
        """Some items of the batch; an item may be taken more than once."""
        others = {"alpha": self.alpha[index], "distortion_sum": self.distortion_sum.take(index)}
        return self.taken(index, cost=take_cost(self.cost, index), **others)

    def state_of_plan(self, shape: Tensor) -> Match:
        """The state of a plan in units. shape: (B, n, m)."""
        local = self.distortion_sum.apply(shape)
        linear = torch.zeros_like(self.eps) if self.cost is None else dot(self.cost, shape)
        mass = shape.sum(dim=(1, 2), dtype=torch.float64)
        return Match(shape, local, self.unit, mass, dot(local, shape), linear)

    def gradient(self, state: Match) -> Tensor:
        """∂F/∂p at a state over the unit, (B, n, m)."""
        local = known(state.local_cost)
        gradient = 2.0 * local - (2.0 * self.reward * state.mass).to(local.dtype)[:, None, None]
        if self.cost is None:
            return gradient
        return gradient + (self.alpha / self.unit).to(gradient.dtype)[:, None, None] * self.cost

    def along(self, state: Match, direction: Tensor) -> tuple[Tensor, Tensor]:
        """(s, c) with F(p + t·d) = F(p) + s·t + c·t², for p and d (B, n, m) in units."""
        gained = direction.sum(dim=(1, 2), dtype=torch.float64)
        slope = 2.0 * dot(known(state.local_cost), direction) - 2.0 * self.reward * state.mass * gained
        curvature = dot(self.distortion_sum.apply(direction), direction) - self.reward * gained.square()
        slope, curvature = self.unit**2 * slope, self.unit**2 * curvature
        return slope if self.cost is None else slope + self.alpha * self.unit * dot(self.cost, direction), curvature

    def worth(self) -> Tensor:
        """The square of the largest mass, or of the given one."""
        return (self.unit * self.amount).square()

    def mean(self) -> Tensor:
        """The mean cost of the product plan, (B,) > 0."""
        mean = self.distortion_sum.product_mean(self.log_a, self.log_b)
        if self.cost is not None:
            mean = mean + self.alpha * dot(self.cost.abs(), self.product) / (self.unit * self.amount)
        return torch.where(mean > 0, mean, 1.0)

    def objective(self, state: Match) -> Terms:
        """F, term by term, of a plan below the weights. Terms of shape (B,)."""
        square = (self.unit * state.mass).square()
        return self._terms(state, *((2.0 * log).exp() - square for log in (self.log_mass_a, self.log_mass_b)))

    def unrestricted(self, plan: Tensor) -> Terms:
        """The paper's TV⊗ functional of any plan (B, n, m), term by term: the same as F below the weights."""
        state = self.state_of_plan(plan / self.unit.to(plan.dtype)[:, None, None])
        sides = zip((state.unit_plan.sum(2), state.unit_plan.sum(1)), self.caps, strict=True)
        return self._terms(state, *(self.unit.square() * product_tv(p.double(), cap.double()) for p, cap in sides))

    def _terms(self, state: Match, tv_a: Tensor, tv_b: Tensor) -> Terms:
        return Terms(
            distortion=self.unit.square() * state.distortion,
            linear=self.alpha * self.unit * state.linear,
            marginal_a=self.div_a.penalty * tv_a,
            marginal_b=self.div_b.penalty * tv_b,
            entropy=torch.zeros_like(self.eps),
        )


def product_tv(p: Tensor, a: Tensor) -> Tensor:
    """TV(p⊗p | a⊗a) = Σ |p_i p_i' − a_i a_i'|, over blocks of rows. p, a: (B, n). Returns (B,).

    >>> product_tv(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5]]))
    tensor([1.5000])
    """
    rows = max(1, UTILS_CONFIG.max_block_entries // p.numel())
    total = torch.zeros_like(p[:, 0])
    for some_p, some_a in zip(p.split(rows, dim=1), a.split(rows, dim=1), strict=True):
        total = total + (some_p[:, :, None] * p[:, None, :] - some_a[:, :, None] * a[:, None, :]).abs().sum(dim=(1, 2))
    return total
