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
from ..base import take_cost
from ..distortion.base import Distortion
from ..distortion.squares import SquaredDistortion
from ..ugw import UGW
from .base import PartialCompiledInputs, PartialPlanState, PartialProblem, Segment
from .swaps import best_swap


@dataclass(frozen=True, eq=False)
class PartialGW(PartialProblem):
    """Two spaces, TV on both sides or one Mass for both, and for the fused problem alpha (B,) and M.

    eps: (B,), zeros; cost: M, (n, m) or (B, n, m), or None; distortion_sum: computes Σ λ(|Dx_ii' − Dy_jj'|) p_i'j'.
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
        """Set the logs of weights and masses."""
        self.set_weights()

    @classmethod
    def balanced(cls, problem: UGW) -> PartialGW:
        """Return balanced GW, a UGW problem with rho = inf and eps = 0, as partial GW whose fixed mass is all mass."""
        mass = Mass(torch.minimum(problem.log_mass_a, problem.log_mass_b).exp())
        others = problem.eps, problem.alpha, problem.cost, problem.distortion_sum
        return cls(problem.x, problem.y, mass, mass, *others, batched=problem.batched)

    def take(self, index: Tensor) -> PartialGW:
        """Return the problem of the batch items `index`, (k,); an item may appear more than once."""
        others = {"alpha": self.alpha[index], "distortion_sum": self.distortion_sum.take(index)}
        return self.take_common_fields(index, cost=take_cost(self.cost, index), **others)

    def state_of_plan(self, unit_plan: Tensor) -> PartialPlanState:
        """Return the `PartialPlanState` (local cost, mass) of a plan (B, n, m) in units of sqrt(m(a) m(b))."""
        local_cost = self.distortion_sum.apply(unit_plan)
        linear = torch.zeros_like(self.eps) if self.cost is None else dot(self.cost, unit_plan)
        mass = unit_plan.sum(dim=(1, 2), dtype=torch.float64)
        return PartialPlanState(
            unit_plan, local_cost, self.mass_unit, mass, dot(local_cost, unit_plan), linear, self.min_mass
        )

    def gradient(self, state: PartialPlanState) -> Tensor:
        """Return the gradient of the objective at the plan of a state, divided by sqrt(m(a) m(b)), (B, n, m)."""
        local = state.local_cost
        gradient = 2.0 * local - (2.0 * self.total_penalty * state.mass).to(local.dtype)[:, None, None]
        if self.cost is None:
            return gradient
        return gradient + (self.alpha / self.mass_unit).to(gradient.dtype)[:, None, None] * self.cost

    def segment(self, state: PartialPlanState, direction: Tensor) -> Segment:
        """Return the `Segment` p + t·d: direction d, its local cost, mass, <M, d>, and slope and curvature of F in t.

        M: the linear cost; the objective is F(p + t·d) = F(p) + slope·t + curvature·t². p: the plan of `state`;
        direction: d (B, n, m), in units of sqrt(m(a) m(b)).
        """
        local_cost, zero = self.distortion_sum.apply(direction), torch.zeros_like(self.eps)
        mass = direction.sum(dim=(1, 2), dtype=torch.float64)
        linear = zero if self.cost is None else dot(self.cost, direction)
        slope = 2.0 * (dot(state.local_cost, direction) - self.total_penalty * state.mass * mass)
        curvature = dot(local_cost, direction) - self.total_penalty * mass.square()
        slope = self.mass_unit**2 * slope + self.alpha * self.mass_unit * linear
        return Segment(direction, local_cost, mass, linear, slope, self.mass_unit**2 * curvature)

    @property
    def has_swaps(self) -> bool:
        """Whether `best_swap` is implemented: for the loss t²."""
        return isinstance(self.distortion_sum, SquaredDistortion)

    def best_swap(self, state: PartialPlanState, min_decrease: Tensor) -> tuple[Tensor, Tensor]:
        """Return the direction (B, n, m) of the swap of two pairs that lowers F most, and (B,) bool: is there one?

        The direction is in units of sqrt(m(a) m(b)), and 0 where no swap lowers the objective F by more than
        `min_decrease`, (B,), or the loss is not t².
        """
        total = self.distortion_sum
        if not isinstance(total, SquaredDistortion):
            return super().best_swap(state, min_decrease)
        least = min_decrease / self.mass_unit**2
        n_points = torch.tensor(self.sizes or [(self.x.n, self.y.n)], device=least.device).sum(1)
        return best_swap(state.unit_plan, self.gradient(state), total.dx, total.dy, least, n_points)

    def compiled_inputs(self) -> PartialCompiledInputs | None:
        """Return both metrics, the linear cost M (None if not fused) and alpha of alpha <M, p>, the input of C++ steps.

        Returns None if the loss is not λ(t) = t².
        """
        total = self.distortion_sum
        if not isinstance(total, SquaredDistortion):
            return None
        return PartialCompiledInputs(total.dx, total.dy, self.cost, self.alpha)

    def mass_factor(self) -> Tensor:
        """Return m², (B,), for the fixed mass m of a plan, or for TV the largest possible one, in weight units."""
        return (self.mass_unit * self.target_mass).square()

    def mean_cost(self) -> Tensor:
        """Return the mean distortion plus alpha/m times the mean |M|, (B,) > 0, 1 where that is 0.

        Means are under the product plan a⊗b scaled to mass 1; m is the fixed mass, or the largest possible one for TV.
        """
        mean = self.distortion_sum.product_mean(self.log_a, self.log_b)
        if self.cost is not None:
            mean = mean + self.alpha * dot(self.cost.abs(), self.product) / (self.mass_unit * self.target_mass)
        return torch.where(mean > 0, mean, 1.0)

    def objective(self, state: PartialPlanState) -> Terms:
        """Return weighted terms of F at a state, (B,) each: distortion, linear, both marginal terms, entropy (0)."""
        square = (self.mass_unit * state.mass).square()
        return self._terms(state, *((2.0 * log).exp() - square for log in (self.log_mass_a, self.log_mass_b)))

    def unrestricted_objective(self, plan: Tensor) -> Terms:
        """Return the terms of the TV⊗ functional, eq. (8.3), (B,) each, of a plan (B, n, m) of any mass.

        They are distortion, linear, rho1 TV(p1⊗p1 | a⊗a), rho2 TV(p2⊗p2 | b⊗b) and entropy (0); where p1 ≤ a and
        p2 ≤ b, those of the objective F of solves.
        """
        state = self.state_of_plan(plan / self.mass_unit.to(plan.dtype)[:, None, None])
        sides = zip((state.unit_plan.sum(2), state.unit_plan.sum(1)), self.unit_weights, strict=True)
        return self._terms(
            state,
            *(self.mass_unit.square() * product_tv(marginal.double(), weights.double()) for marginal, weights in sides),
        )

    def _terms(self, state: PartialPlanState, tv_a: Tensor, tv_b: Tensor) -> Terms:
        """Return distortion, linear, both marginal terms and entropy (0), (B,) each, with alpha and rho, at a state.

        p: the plan of the state. tv_a, tv_b: (B,), TV(p1⊗p1 | a⊗a) and TV(p2⊗p2 | b⊗b).
        """
        return Terms(
            distortion=self.mass_unit.square() * state.distortion,
            linear=self.alpha * self.mass_unit * state.linear,
            marginal_a=self.div_a.penalty * tv_a,
            marginal_b=self.div_b.penalty * tv_b,
            entropy=torch.zeros_like(self.eps),
        )


def product_tv(p: Tensor, a: Tensor) -> Tensor:
    """Return TV(p⊗p | a⊗a) = Σ_ii' |p_i p_i' − a_i a_i'|, (B,). p, a: (B, n).

    >>> product_tv(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5]]))
    tensor([1.5000])
    """
    rows = max(1, UTILS_CONFIG.max_block_entries // p.numel())
    total = torch.zeros_like(p[:, 0])
    for block_p, block_a in zip(p.split(rows, dim=1), a.split(rows, dim=1), strict=True):
        total = total + (block_p[:, :, None] * p[:, None, :] - block_a[:, :, None] * a[:, None, :]).abs().sum(
            dim=(1, 2)
        )
    return total
