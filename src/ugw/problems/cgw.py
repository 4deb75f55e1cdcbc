"""The conic distance CGW without a radial grid, eq. (7.2).

    CGW = rho1 m(a)² + rho2 m(b)² − R max <w, G w>,   G = exp(−λ(|Dx − Dy|)/R),   R = rho1 + rho2,
    over w = P^(rho1/R) Q^(rho2/R) with P, Q ≥ 0, P 1 = a, Qᵀ 1 = b.

Every plan p, of any mass, has a lift w(p) = p (a/p1)^(rho1/R) (b/p2)^(rho2/R), eq. (7.3), so the code works with
plans of mass 1 and weights of mass 1; the masses only scale the value. Given k = G w, the best w for <k, w> is
the lift of the unbalanced transport plan for the cost −2 log k and divergences 2·rho/R: the linear problem.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.pytree import BatchRecord, where
from ..geometry.space import Space
from ..kernels.dispatch import dot
from ..measures.cones import Cone
from ..measures.divergences import KL
from ..results.conic_result import ConicResult
from ..results.records import ConicTerms, Lift, SolverOutput
from .base import CompiledConicInputs, Problem
from .config import PROBLEM_CONFIG
from .distortion.base import Distortion
from .linear import LinearProblem, LinearSolution
from .plan_operations import relative_change


@dataclass(frozen=True, eq=False)
class LiftedState(BatchRecord):
    """A plan p of a CGW problem, its lift w and the overlap <w, G w>: the state that solvers iterate on.

    unit_plan: (B, n, m), the plan scaled to mass 1; w: (B, n, m), p (a/p1)^(rho1/R) (b/p2)^(rho2/R) with weights of
    mass 1; local_cost: (B, n, m), k = G w with the kernel G = exp(−λ/R), None in a state that is only kept for its
    plan; overlap: (B,), <w, k>; last_plan: (B, n, m), the unit plan before this one; last_cost: (B, n, m), its
    local cost, or that of this plan in the first state; last_overlap: (B,), <w, G w'> with the lift w' of
    last_plan; best_plan: (B, n, m), the unit plan with the largest overlap so far; best_overlaps: (B, steps), this
    largest overlap after each of the last steps, NaN before the first; max_overlap: (B,), the overlap at which the
    value would be 0; log_mass: (B,), log of the mass of the plan in the result.
    """

    unit_plan: Tensor
    w: Tensor
    local_cost: Any  # Tensor, None where only the plan is stored
    overlap: Tensor
    last_plan: Tensor
    last_cost: Any
    last_overlap: Tensor
    best_plan: Tensor
    best_overlaps: Tensor
    max_overlap: Tensor
    log_mass: Tensor

    @property
    def best_overlap(self) -> Tensor:
        """The largest overlap <w, G w> so far, (B,), of the lifts w of this plan and of those before; G = exp(−λ/R)."""
        return self.best_overlaps[:, -1]

    def change_since(self, last: LiftedState) -> Tensor:
        """Return an estimate (B,) of the relative decrease of the value still to come, or the plan's change if less.

        It assumes that the decrease over 4 steps falls geometrically, at the rate of the last 8 steps, between 0.75 and
        0.999. It is relative to the value, or to 1e-8 of the largest possible value if that is more. The plan's change
        is the L1 distance to the unit plan of `last` plus the change of log_mass, at most 1; in the first 8 steps it is
        returned.
        """
        config, half = PROBLEM_CONFIG, PROBLEM_CONFIG.decrease_window
        first, middle, end = self.best_overlaps[:, 0], self.best_overlaps[:, half], self.best_overlaps[:, 2 * half]
        decrease, previous = end - middle, middle - first
        rate = torch.where(previous > 0, decrease / previous, config.max_decrease_rate)
        rate = rate.clamp(config.min_decrease_rate, config.max_decrease_rate)
        scale = torch.maximum(self.max_overlap - end, config.min_relative_value * self.max_overlap)
        remaining = decrease * rate / (1.0 - rate) / scale
        change = relative_change(self, last)
        return torch.where(torch.isnan(first), change, torch.minimum(remaining, change))

    @property
    def plan(self) -> Tensor:
        """The plan in the result, (B, n, m): the unit plan times the mass exp(log_mass)."""
        return self.unit_plan * self.log_mass.exp().to(self.unit_plan.dtype)[:, None, None]

    @property
    def is_collapsed(self) -> Tensor:
        """(B,) bool: is the overlap <w, G w>, G = exp(−λ/R), at most 1e-50 (underflow), so that no mass is matched?"""
        return self.overlap <= PROBLEM_CONFIG.min_overlap

    def reported(self) -> LiftedState:
        """Return the state itself: its log mass is the one in the result."""
        return self


@dataclass(frozen=True, eq=False)
class CGW(Problem):
    """Two spaces, rho1 and rho2 (B,), the cone, and `distortion_sum`: G w = Σ exp(−λ(|Dx_ii' − Dy_jj'|)/R) w_i'j'.

    div_a, div_b: KL with factor 2·rho/R, of the linear problems; eps: (B,), the entropy of the linear problems.
    """

    x: Space
    y: Space
    rho_a: Tensor
    rho_b: Tensor
    cone: Cone
    distortion_sum: Distortion
    eps: Tensor
    batched: bool = True

    _cached_scale: list[Tensor] = field(default_factory=list)  # of `cost_scale`, which takes a product with the kernel
    div_a: KL = field(init=False)
    div_b: KL = field(init=False)
    # The lift of every plan is feasible, also if its linear problem was solved roughly.
    requires_solved_steps = False

    def __post_init__(self) -> None:
        """Set the logs of weights and masses, and div_a and div_b: KL with factors 2·rho1/R and 2·rho2/R."""
        self.set_weights()
        for side, rho in (("a", self.rho_a), ("b", self.rho_b)):
            object.__setattr__(self, f"div_{side}", KL(2.0 * rho / self._rho_total).expand(self.batch, rho.device))

    def take(self, index: Tensor) -> CGW:
        """Return the problem of the batch items `index`, (k,); an item may appear more than once."""
        rhos, distortion_sum = (self.rho_a[index], self.rho_b[index]), self.distortion_sum.take(index)
        spaces, scale = (self.x.select_items(index), self.y.select_items(index)), [s[index] for s in self._cached_scale]
        return CGW(*spaces, *rhos, self.cone, distortion_sum, self.eps[index], _cached_scale=scale)

    def truncate_kernel(self) -> CGW:
        """Return the problem without the last terms of its low-rank kernel, at most 1e-4 of their squared sum.

        The dtype stays: rounding in float32 would decide where plans near a saddle point go.
        """
        total = self.distortion_sum.truncate(PROBLEM_CONFIG.dropped_kernel_share)
        return replace(self, distortion_sum=total)

    def result(self, tensors: SolverOutput) -> ConicResult:
        """Return the `ConicResult` (plan, lift, terms, ...) of a solver's output; its `parameters` are empty."""
        return ConicResult(tensors, self.sizes, self.numpy)

    def cost_scale(self) -> Tensor:
        """Return sqrt(2 c), (B,), with the cost c = −2 log of the mean kernel exp(−λ/R) under the product plan a⊗b.

        This is the geometric mean of c and the divergences' total factor 2: Sinkhorn is slow where its entropy is small
        against the divergences, however small the cost.
        """
        if self._cached_scale:
            return self._cached_scale[0]
        mean = self.distortion_sum.product_mean(self.log_a, self.log_b).clamp(
            PROBLEM_CONFIG.min_mean_kernel, PROBLEM_CONFIG.max_mean_kernel
        )
        scale = (-4.0 * mean.log()).sqrt()
        if not scale.is_cuda:  # the memory of a captured CUDA graph is not kept
            self._cached_scale.append(scale)
        return scale

    def compiled_inputs(self) -> CompiledConicInputs | None:
        """Return the `CompiledConicInputs` of C++ steps: matrices of the kernel exp(−λ/R) or its factors; constants.

        The constants, (B,) each by name: rho1/R, R, the log of what masses multiply overlaps by, the value without
        matching, and the overlap at which the value would be 0. None is returned if the matrices are not stored, or not
        in float64 on a CPU.
        """
        kernels = self.distortion_sum.stored_kernels()
        if kernels is None:
            return None
        constants = {
            "rho_share": self._rho_share,
            "rho_total": self._rho_total,
            "log_mass_factor": self._log_mass_factor,
            "unmatched_value": self._unmatched_value,
            "max_overlap": self._max_overlap,
        }
        return CompiledConicInputs(kernels, constants)

    # -- states --------------------------------------------------------------------------------------------

    def state_of_plan(self, unit_plan: Tensor, *, is_product: Tensor | None = None) -> LiftedState:
        """Return the state (lift w, G w, <w, G w>, log mass) of a plan (B, n, m) of mass 1, G = exp(−λ/R).

        is_product is not used.
        """
        return self._state(unit_plan, None)

    def _state(self, unit_plan: Tensor, last: LiftedState | None) -> LiftedState:
        """Return the `LiftedState` of a plan p (B, n, m) of mass 1: lift w, G w, overlap <w, G w>, with G = exp(−λ/R).

        w = p (a/p1)^(rho1/R) (b/p2)^(rho2/R), R = rho1 + rho2. last: the state before, whose plan becomes `last_plan`;
        None if there is none, then that is p too. p becomes `best_plan` whatever the overlap before: `best_overlaps`
        begins again with the overlap of p.
        """
        w = self.lift_plan(unit_plan)
        k = self.distortion_sum.apply(w).clamp(min=0.0)
        overlap = dot(w, k)
        log_mass = 0.5 * (self._log_mass_factor + overlap.clamp(min=PROBLEM_CONFIG.min_overlap).log())
        last_plan, last_cost = (unit_plan, k) if last is None else (last.unit_plan, last.local_cost)
        last_overlap = overlap if last is None else dot(w, last_cost)
        overlaps = torch.full((len(overlap), 2 * PROBLEM_CONFIG.decrease_window + 1), torch.nan).to(overlap)
        overlaps[:, -1] = overlap
        before = last_plan, last_cost, last_overlap
        return LiftedState(unit_plan, w, k, overlap, *before, unit_plan, overlaps, self._max_overlap, log_mass)

    def lift_plan(self, plan: Tensor) -> Tensor:
        """Return the lift p (a/p1)^(rho1/R) (b/p2)^(rho2/R), (B, n, m), eq. (7.3), of a plan p (B, n, m).

        p may have any mass; a and b are of mass 1. A factor is 1 at points without weight or mass.
        """
        ratio_a = self.log_a - plan.sum(2).log()
        ratio_b = self.log_b - plan.sum(1).log()
        share = self._rho_share.to(plan.dtype)[:, None]
        factor = _replace_infinite(share * ratio_a)[:, :, None] + _replace_infinite((1.0 - share) * ratio_b)[:, None, :]
        return plan * factor.exp()

    def linearize(self, state: LiftedState) -> LinearProblem:
        """Return the transport problem, of cost −2 log k, whose solution has the lift w with the largest <k, w>.

        k is G w_s, G = exp(−λ/R), w_s the lift of `state`, plus 3 times its change in the last step, at least 0.01 of
        G w_s. The mean cost under the plan of the state is subtracted, a constant that only scales the solution.
        """
        config, k = PROBLEM_CONFIG, state.local_cost
        extrapolated = k + config.conic_extrapolation * (k - state.last_cost)
        k = torch.maximum(extrapolated, config.min_extrapolated_share * k)
        floor = torch.finfo(k.dtype).eps ** 2 * k.amax(dim=(1, 2), keepdim=True)
        cost = -2.0 * torch.maximum(k, floor.clamp(min=torch.finfo(k.dtype).tiny)).log()
        cost = cost - dot(cost, state.unit_plan).to(cost.dtype)[:, None, None]
        return LinearProblem(cost, self.log_a, self.log_b, self.div_a, self.div_b, self.eps)

    def accept(self, state: LiftedState, solution: LinearSolution) -> LiftedState:
        """Return the state (lift w, overlap <w, G w>) of the plan of `solution` after one more step of `improve_plan`.

        This step multiplies the lift of a plan by the local cost of `state`. G = exp(−λ/R). The larger of <w, G w> and
        <w, G w_last>, w_last the lift before, never falls: where it would, the state is that of `improve_plan` applied
        to the better one of the last two plans of `state`.
        """
        new = self._state(self.improve_plan(solution.unit_plan, state.local_cost), state)
        required = torch.maximum(state.last_overlap, state.overlap)
        is_worse = ~(torch.maximum(new.last_overlap, new.overlap) >= required)
        if bool(is_worse.any()):
            previous_is_better = (state.last_overlap > state.overlap)[:, None, None]
            better = torch.where(previous_is_better, state.last_plan, state.unit_plan)
            new = where(is_worse, self._state(self.improve_plan(better, state.local_cost), state), new)
        is_best, best_overlap = new.overlap >= state.best_overlap, torch.maximum(new.overlap, state.best_overlap)
        return replace(
            new,
            best_plan=torch.where(is_best[:, None, None], new.unit_plan, state.best_plan),
            best_overlaps=torch.cat([state.best_overlaps[:, 1:], best_overlap[:, None]], dim=1),
        )

    def improve_plan(self, unit_plan: Tensor, k: Tensor) -> Tensor:
        """Return k∘w(p) scaled to mass 1, (B, n, m), for a unit plan p: its <k, w> is at least that of p.

        w(p) = p (a/p1)^(rho1/R) (b/p2)^(rho2/R) is the lift of p; k: (B, n, m). This is a step without entropy, which
        updates P and Q at once. If k∘w(p) = 0, p is returned.
        """
        improved = k * self.lift_plan(unit_plan)
        mass = improved.sum(dim=(1, 2), keepdim=True)
        return torch.where(mass > 0, improved / mass, unit_plan)

    def final_state(self, state: LiftedState) -> LiftedState:
        """Return the state of the plan of largest <w, G w>, G = exp(−λ/R), of that of `state` and those before it."""
        is_worse = state.overlap < state.best_overlap
        if not bool(is_worse.any()):
            return state
        return self._state(torch.where(is_worse[:, None, None], state.best_plan, state.unit_plan), None)

    # -- the objective -------------------------------------------------------------------------------------

    def objective(self, p: LiftedState, q: LiftedState | None = None) -> ConicTerms:
        """Return the terms of CGW, (B,) each: rho1 m(a)² + rho2 m(b)², and −R <w_p, G w_q> ≤ 0, which add up to it.

        w_p = p (a/p1)^(rho1/R) (b/p2)^(rho2/R), a and b with their masses, G = exp(−λ/R), q = p if None. One of both
        states may lack its local cost.
        """
        with_cost, other = (p, q or p) if p.local_cost is not None else (q or p, p)
        overlap = p.overlap if q is None else dot(other.w, with_cost.local_cost)
        overlap = -self._rho_total * self._log_mass_factor.exp() * overlap
        return ConicTerms(unmatched=self._unmatched_value, overlap=overlap)

    def lift(self, state: LiftedState) -> Lift:
        """Return the `Lift` of a state: P with row sums a, Q with column sums b, w = P^(rho1/R) Q^(rho2/R), (B, n, m).

        The weights a, b have their masses here. The other fields, (B,) each, are error, tolerance and rank of the
        factorized kernel exp(−λ/R), what the error may add to the value, whether the conic distance is a metric, its
        exponent, CGW^(1/exponent), and the power of the radius that is a mass.
        """
        p1, p2 = state.unit_plan.sum(2, keepdim=True), state.unit_plan.sum(1, keepdim=True)
        mass_a, mass_b = (m.exp().to(p1.dtype)[:, None, None] for m in (self.log_mass_a, self.log_mass_b))
        # A row without mass has all of P where w = 0.
        rows = torch.where(p1 > 0, state.unit_plan / p1, self.log_b.exp()[:, None, :])
        cols = torch.where(p2 > 0, state.unit_plan / p2, self.log_a.exp()[:, :, None])
        kernel_error = self.distortion_sum.error.expand(self.batch)
        error = kernel_error + PROBLEM_CONFIG.conic_rounding * torch.finfo(p1.dtype).eps
        total_w = state.w.sum(dim=(1, 2), dtype=torch.float64)
        return Lift(
            P=mass_a * self.log_a.exp()[:, :, None] * rows,
            Q=mass_b * self.log_b.exp()[:, None, :] * cols,
            w=(0.5 * self._log_mass_factor).exp().to(p1.dtype)[:, None, None] * state.w,
            kernel_error=kernel_error,
            kernel_tolerance=self.distortion_sum.tolerance.expand(self.batch),
            value_slack=self._rho_total * self._log_mass_factor.exp() * error * total_w.square(),
            kernel_rank=self.distortion_sum.rank.expand(self.batch),
            is_metric=self.cone.is_metric(self.rho_a) & (self.rho_a == self.rho_b),
            distance_exponent=torch.full_like(self.rho_a, self.cone.distance_exponent),
            radius_power=torch.full_like(self.rho_a, self.cone.mass_exponent),
        )

    def potentials_and_lift(self, q: LiftedState, p: LiftedState, *_: object) -> tuple[None, Lift]:
        """Return None, as a conic problem has no potentials, and the plan between cones (P, Q, w) of state p."""
        return None, self.lift(p)

    @property
    def _unmatched_value(self) -> Tensor:
        """The value of CGW if nothing is matched, rho1 m(a)² + rho2 m(b)², (B,)."""
        return self.rho_a * (2.0 * self.log_mass_a).exp() + self.rho_b * (2.0 * self.log_mass_b).exp()

    @property
    def _max_overlap(self) -> Tensor:
        """The overlap <w, G w> of lifts w for weights of mass 1 at which the value would be 0, (B,); G = exp(−λ/R)."""
        return self._unmatched_value / (self._rho_total * self._log_mass_factor.exp())

    @property
    def _rho_total(self) -> Tensor:
        """R = rho1 + rho2, (B,)."""
        return self.rho_a + self.rho_b

    @property
    def _rho_share(self) -> Tensor:
        """rho1 / (rho1 + rho2), (B,)."""
        return self.rho_a / self._rho_total

    @property
    def _log_mass_factor(self) -> Tensor:
        """2 log(m(a)^(rho1/R) m(b)^(rho2/R)), (B,), R = rho1 + rho2: the log of what masses multiply overlaps by."""
        return 2.0 * (self._rho_share * self.log_mass_a + (1.0 - self._rho_share) * self.log_mass_b)


def _replace_infinite(log_ratio: Tensor) -> Tensor:
    """Return log ratios with 0 in place of ±inf and NaN, which occur at points without weight or mass."""
    return torch.where(torch.isfinite(log_ratio), log_ratio, 0.0)
