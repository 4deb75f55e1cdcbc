"""Unbalanced Gromov–Wasserstein, plain and fused, eq. (1.2):

    F(p, q) = Σ λ(|Dx_ii' − Dy_jj'|) p_ij q_i'j' + rho1 KL(p1⊗q1 | a⊗a) + rho2 KL(p2⊗q2 | b⊗b)
              + eps KL(p⊗q | (a⊗b)⊗²) + (alpha/2)(<M, p> + <M, q>)

The code works with *unit plans*, plans divided by their mass. Dividing eq. (2.1) by the mass of q leaves rho1, rho2 and
eps as they are, and the constants in its cost only scale its solution. So the next unit plan depends on the last unit
plan alone, whatever the masses of a, b and the plan, and the optimal mass of a unit plan has a closed form
(`problems.mass`). Nothing overflows with the masses; a mass may underflow to 0 without harm.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .._utils.precision import tf32_products
from ..geometry.implicit_plan import ImplicitPlan
from ..geometry.space import Space
from ..kernels.dispatch import dot, neg_entropy
from ..measures.divergences import KL, kl_terms
from ..results.records import Terms
from .base import CompiledInputs, Problem, take_cost
from .config import PROBLEM_CONFIG
from .distortion.squares import SquaredDistortion
from .linear import LinearProblem, LinearSolution
from .mass import MassRule, PenaltyWeights, mean_log, product_kl, shift_potentials
from .plan_operations import normalize
from .ugw_state import PlanState


@dataclass(frozen=True, eq=False)
class UGW(Problem):
    """Two spaces, a divergence for each marginal, eps (B,) ≥ 0, and for the fused problem alpha (B,) and M.

    Spaces without a batch dimension are shared by all B items. cost: M, (n, m) or (B, n, m), or None; distortion_sum:
    computes Σ λ(|Dx_ii' − Dy_jj'|) p_i'j' of plans p, None for λ(t) = t²; known_scale: (B,), what `scale` returns, if
    it was computed before in a higher precision.
    """

    x: Space
    y: Space
    div_a: KL
    div_b: KL
    eps: Tensor
    alpha: Tensor
    cost: Any = None
    batched: bool = True  # False: the one item of a problem without a batch
    distortion_sum: Any = None  # a Distortion after __post_init__
    known_scale: Tensor | None = None

    mass_rule: MassRule = field(init=False)
    has_linear_local_cost: bool = field(init=False)
    keeps_zeros: bool = field(init=False)
    has_stored_squares: bool = field(init=False)

    def __post_init__(self) -> None:
        """Set the weights, `distortion_sum` if None, `mass_rule`, `keeps_zeros` and `has_linear_local_cost`."""
        self.set_weights()
        if self.distortion_sum is None:
            object.__setattr__(self, "distortion_sum", SquaredDistortion(self.x.metric, self.y.metric))
        factors = PenaltyWeights.from_problem(self), None if self.cost is None else self.alpha
        sides = self.div_a.is_hard, self.div_b.is_hard, self.log_mass_a, self.log_mass_b
        object.__setattr__(self, "mass_rule", MassRule(*factors, *sides))
        # Where the loss may be infinite, an infinite local cost counts only where the plan has mass.
        object.__setattr__(self, "keeps_zeros", self.distortion_sum.may_be_infinite)
        object.__setattr__(self, "has_linear_local_cost", not self.keeps_zeros)
        object.__setattr__(self, "has_stored_squares", isinstance(self.distortion_sum, SquaredDistortion))

    # -- other problems ------------------------------------------------------------------------------------

    def take(self, index: Tensor) -> UGW:
        """Return the problem of the batch items `index`, (k,); an item may appear more than once."""
        total = self.distortion_sum
        scale = None if self.known_scale is None else self.known_scale[index]
        others = {"alpha": self.alpha[index], "cost": take_cost(self.cost, index), "known_scale": scale}
        is_squared = isinstance(total, SquaredDistortion)
        if not is_squared or total.dx is not self.x.metric or total.dy is not self.y.metric:
            return self.take_common_fields(index, distortion_sum=total.take(index), **others)
        # The sum is rebuilt from the metrics of the spaces, so that these are indexed only once.
        taken = self.take_common_fields(index, distortion_sum=None, **others)
        if type(total) is SquaredDistortion:
            return taken
        return replace(taken, distortion_sum=total.with_metrics(taken.x.metric, taken.y.metric))

    def with_spaces(self, x: Space, y: Space, cost: Tensor | None, known_scale: Tensor | None = None) -> UGW:
        """Return the problem with other spaces and linear cost M, and the same rhos, eps, alpha and loss.

        known_scale: (B,), what its `scale()` returns, None to compute it. The distances of the new spaces must be
        within the range of the present ones, for which the loss is factorized.
        """
        total = self.distortion_sum.with_metrics(x.metric, y.metric)
        return replace(self, x=x, y=y, cost=cost, distortion_sum=total, known_scale=known_scale)

    def to(self, dtype: torch.dtype) -> UGW:
        """Return the same problem in another dtype, with the `scale()` of this problem instead of a new one."""
        cost = None if self.cost is None else self.cost.to(dtype)
        return self.with_spaces(self.x.to(dtype), self.y.to(dtype), cost, self.scale())

    def compiled_inputs(self) -> CompiledInputs | None:
        """Return both metrics, the linear cost M (None if not fused) and the `MassRule`, the input of C++ steps.

        None if the loss is not λ(t) = t². C++ steps compute the whole local cost, so that there are none where it is
        updated from step to step.
        """
        if not self.has_stored_squares or self.distortion_sum.is_incremental:
            return None
        return CompiledInputs(self.x.metric, self.y.metric, self.cost, self.mass_rule)

    @cached_property
    def has_vertex_solutions(self) -> Tensor:
        """(B,) bool: are both marginals hard (rho = inf) and eps 0? Solutions are then vertices of the polytope."""
        return self.div_a.is_hard & self.div_b.is_hard & (self.eps == 0)

    # -- the size of the cost ------------------------------------------------------------------------------

    def scale(self) -> Tensor:
        """Return Σ λ(|Dx_ii' − Dy_jj'|) p_ij p_i'j', (B,) > 0, for p = a⊗b scaled to mass 1: the unit of eps.

        Where that is 0 (single points, equal constant distances) or infinite, the mean of Dx² plus that of Dy², or 1.
        """
        if self.known_scale is not None:
            return self.known_scale
        return _product_distortion(self) if torch.is_grad_enabled() else self._cached_scale

    @cached_property
    def _cached_scale(self) -> Tensor:
        """The mean distortion (B,) that `scale` returns, computed once, without TF32 and without gradients."""
        with tf32_products(allowed=False) if self.eps.is_cuda else nullcontext():
            return _product_distortion(self)

    def cost_scale(self) -> Tensor:
        """Return the mean distortion + alpha/2m times the mean |linear cost|, (B,), under a⊗b; m = sqrt(m(a) m(b))."""
        if self.cost is None:
            return self.scale()
        weight = 0.5 * self.alpha * (-0.5 * (self.log_mass_a + self.log_mass_b)).exp()
        return self.scale() + weight * self._mean_linear_cost()

    def _mean_linear_cost(self) -> Tensor:
        """Return the mean (B,) of |M|, M the linear cost without alpha, under a⊗b scaled to mass 1."""
        return dot(self.cost.abs(), self.product)

    # -- states --------------------------------------------------------------------------------------------

    def state_of_plan(self, unit_plan: Any, *, is_product: Tensor | None = None) -> PlanState:
        """Return the `PlanState` of a plan p (B, n, m) of mass 1: its local cost, divergences and optimal mass.

        The divergences are KL(p1 | a), KL(p2 | b) and KL(p | a⊗b) for a and b of mass 1. is_product: (B,) bool, is the
        plan the product of its marginals? Its local cost needs no matrix product then; None: it is none.
        """
        local_cost = self._local_cost(unit_plan, is_product)
        drift = torch.zeros_like(self.eps) if self.distortion_sum.is_incremental else None
        return self._state(unit_plan, local_cost, drift)

    def state_of_any_plan(self, plan: Any) -> PlanState:
        """Return the `PlanState` of a plan (B, n, m) with its mass; if that is 0, of a⊗b with log mass −700."""
        mass = plan.sum((1, 2), dtype=torch.float64)
        unit_plan = normalize(plan)
        if not isinstance(plan, ImplicitPlan):
            # A plan of zeros cannot be divided by its mass: the product plan stands in, with a mass of next to 0.
            unit_plan = torch.where(mass[:, None, None] > 0, unit_plan, self.product)
        log_mass = torch.where(mass > 0, mass.log(), PROBLEM_CONFIG.min_log_mass)
        return self.state_of_plan(unit_plan).with_log_mass(log_mass)

    def _local_cost(self, unit_plan: Any, is_product: Tensor | None) -> Any:
        """Return Σ λ(|Dx_ii' − Dy_jj'|) unit_plan_i'j', (B, n, m); is_product: (B,) bool, is it a product plan?"""
        total = self.distortion_sum
        if is_product is None or not isinstance(total, SquaredDistortion):
            return total.apply(unit_plan)
        # On CUDA both are computed: the host does not wait for the answer, and the call may be captured.
        if not is_product.is_cuda and not bool(is_product.any()):
            return total.apply(unit_plan)
        product_cost = total.apply_to_product_plan(unit_plan.sum(2), unit_plan.sum(1))
        if not is_product.is_cuda and bool(is_product.all()):
            return product_cost
        return torch.where(is_product[:, None, None], product_cost, total.apply(unit_plan))

    def _state(self, unit_plan: Any, local_cost: Any, drift: Tensor | None = None) -> PlanState:
        """Return the `PlanState` (divergences, optimal mass) of a plan of mass 1 and its local cost, (B, n, m) each.

        drift: (B,), sum of the L1 changes of the plan since its local cost was computed in full, None if it always is.
        """
        n, marginals = self.x.n, torch.cat([unit_plan.sum(2), unit_plan.sum(1)], dim=1).double()
        # A float32 plan has mass 1 up to rounding, which the entropy would multiply: divide it out in float64.
        mass = marginals[:, :n].sum(1)
        marginals = marginals / mass[:, None]
        terms = kl_terms(marginals, self.log_weights.exp())
        kls = terms[:, :n].sum(1), terms[:, n:].sum(1), self._plan_kl(unit_plan, mass, marginals)
        scalars = {
            "distortion": self._inner(local_cost, unit_plan) / mass.square(),
            "kls": torch.stack(kls, dim=1),
            "linear": torch.zeros_like(self.eps) if self.cost is None else self._inner(self.cost, unit_plan) / mass,
        }
        log_mass, reported = self.mass_rule.optimal_log_mass(**scalars)
        return PlanState(
            unit_plan,
            local_cost,
            log_mass,
            **scalars,
            reported_log_mass=reported,
            min_log_mass=self.mass_rule.min_log_mass,
            drift=drift,
        )

    def _plan_kl(self, unit_plan: Any, mass: Tensor, marginals: Tensor) -> Tensor:
        """Return KL(p | a⊗b) = Σ p log(p / a⊗b), (B,), for p = unit_plan / mass; mass: (B,), 1 up to rounding.

        marginals: (B, n + m), both marginals of p; a and b are of mass 1.
        """
        return neg_entropy(unit_plan) / mass - mass.log() - mean_log(marginals, self.log_weights)

    def _inner(self, cost: Any, unit_plan: Any) -> Tensor:
        """Return <cost, unit_plan>, (B,); an infinite cost counts only where the plan has mass."""
        return dot(torch.where(unit_plan > 0, cost, 0.0) if self.keeps_zeros else cost, unit_plan)

    def linearize(self, state: PlanState) -> LinearProblem:
        """Return the linear problem at the plan q of a state: its cost is ∂F(·, q)/∂p, eq. (2.2), over the mass of q.

        A constant in the cost only scales the solution. The three scalars of the paper's cost are replaced by minus the
        mean cost under q, which keeps the mass of the solution within a factor n·m of 1, far from overflow. If the loss
        may be infinite, the cost is inf where q is 0.
        """
        cost = state.local_cost
        if self.cost is not None:
            cost = cost + self.mass_rule.linear_weight(state.log_mass).to(cost.dtype)[:, None, None] * self.cost
        cost = cost - self._mean_cost(state).to(cost.dtype)[:, None, None]
        if self.keeps_zeros:
            cost = torch.where(state.unit_plan > 0, cost, torch.inf)
        return LinearProblem(cost, self.log_a, self.log_b, self.div_a, self.div_b, self.eps)

    def _mean_cost(self, state: PlanState) -> Tensor:
        """Return the mean (B,), under the plan q of a state, of ∂F(·, q)/∂p / m(q) without constants; F: objective."""
        if self.cost is None:
            return state.distortion
        return state.distortion + self.mass_rule.linear_weight(state.log_mass) * state.linear

    def accept(self, state: PlanState, solution: LinearSolution) -> PlanState:
        """Return the `PlanState` of the plan of `solution`, which solves `linearize(state)`, with its optimal mass."""
        total, plan = self.distortion_sum, solution.unit_plan
        if not total.is_incremental:
            return self._state(plan, total.apply(plan))
        return self._state(plan, *total.update(plan, state.unit_plan, state.local_cost, state.drift))

    # -- the objective -------------------------------------------------------------------------------------

    def objective(self, p: PlanState, q: PlanState | None = None) -> Terms:
        """Return distortion, linear, both marginal terms and entropy of F(p, q), (B,) each; q = p if None.

        Plans have the masses of their states; terms contain alpha, rho and eps, and that of a hard (rho = inf) side is
        0. The local cost of the state p is not used; it may be None.
        """
        distortion = p.distortion if q is None else self._inner(q.local_cost, p.unit_plan)
        q = q or p
        log_mass = p.log_mass + q.log_mass
        linear = torch.zeros_like(log_mass)
        if self.cost is not None:
            linear = 0.5 * self.alpha * (p.log_mass.exp() * p.linear + q.log_mass.exp() * q.linear)
        # All three divergences at once: on a GPU so small an operation takes as long as a larger one.
        weights = self.mass_rule.weights
        divergences = product_kl(p.kls + q.kls, log_mass[:, None], weights.log_references)
        return Terms(log_mass.exp() * distortion, linear, *(weights.each * divergences).unbind(1))

    def potentials_and_lift(
        self, q: PlanState, p: PlanState, linear: tuple[Tensor, Tensor], log_mass: Tensor, entropy: Tensor
    ) -> tuple[tuple[Tensor, Tensor] | None, None]:
        """Return ((f, g), None): the dual potentials, (B, n) and (B, m), of the last step, from state q to state p:

            p = a⊗b · exp((f ⊕ g − cost(q)) / (m(q) eps)),  and  p1 = a·exp(−f / (m(q) rho1)) where rho1 is finite.

        cost(q) is the paper's local cost at q with its three scalar KL terms. Items with eps = 0 have NaN, and if all
        have, None is returned for (f, g). The second None is in place of the `Lift` of conic problems. linear:
        potentials of the last linear problem; log_mass: (B,), log mass of its solution; entropy: (B,), its eps. If a
        proximal term has raised entropy above eps, the formulas hold only where p = q.
        """
        if not bool((self.eps > 0).any()):
            return None, None
        # A rho so large that eps/rho is lost in rounding counts as hard.
        max_rho = entropy / (PROBLEM_CONFIG.hard_side_rounding * torch.finfo(p.unit_plan.dtype).eps)
        hard_a, hard_b = self.div_a.rho > max_rho, self.div_b.rho > max_rho
        rho_a, rho_b = self.div_a.rho.masked_fill(hard_a, 0.0), self.div_b.rho.masked_fill(hard_b, 0.0)
        # The constants of f and of g where their rho is finite, and the sum of both constants, each over m(q).
        shift = log_mass - p.log_mass
        constant_f, constant_g = rho_a * (shift + self.log_mass_a), rho_b * (shift + self.log_mass_b)
        references = self.mass_rule.weights.log_references
        weights = torch.stack([rho_a, rho_b, self.eps], dim=1)
        constant_sum = (
            self._mean_cost(q)
            + (weights * (q.kls + (q.log_mass[:, None] - references))).sum(1)
            + self.eps * (p.log_mass - references[:, 2])
            - entropy * log_mass
        )
        return shift_potentials(
            linear,
            (constant_f, constant_g),
            constant_sum,
            is_hard=(hard_a, hard_b),
            factor=q.log_mass.exp(),
            eps=self.eps,
        ), None


def _product_distortion(problem: UGW) -> Tensor:
    """Return the mean distortion (B,) under a⊗b of mass 1; where it is 0 or infinite, the mean of Dx² + Dy², or 1."""
    squares = SquaredDistortion(problem.x.metric, problem.y.metric)
    mean, mean_squares = squares.product_mean_and_scale(problem.log_a, problem.log_b)
    if not isinstance(problem.distortion_sum, SquaredDistortion):
        mean = problem.distortion_sum.product_mean(problem.log_a, problem.log_b)
    scale = torch.where(torch.isfinite(mean) & (mean > 0), mean, mean_squares)
    return torch.where(scale > 0, scale, 1.0)
