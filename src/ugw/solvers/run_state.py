"""The records of a run of alternating minimization: settings, controls of the next step, last costs, iterate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.device_calls import call_on_device
from .._utils.pytree import BatchRecord
from .._utils.size_class import size_class
from ..geometry.implicit_plan import ImplicitPlan
from ..problems.base import Problem
from ..problems.plan_operations import cost_rms, find_product_plans
from ..results.records import Status
from .config import SOLVER_CONFIG


@dataclass(frozen=True)
class StepOptions:
    """The options of an AlternateMin that change the arithmetic of its steps; captured graphs are kept for these."""

    tol: float
    inner: Any  # a Sinkhorn
    proximal: Any  # a ProximalSchedule
    anneal: float | None


@dataclass(frozen=True, eq=False)
class RunSettings(BatchRecord):
    """The constants of a run, (B,) each unless stated otherwise.

    first_entropy, last_entropy, max_entropy: entropy of the first step, of the last steps, and its upper bound; the
    part above eps is proximal; change_tol, residual_tol: change of the plan and inner residual at which an item has
    converged; noise: change of the plan by rounding alone, may exceed change_tol; cost_scale: typical entry of the
    cost; inner_tol: lower bound of the tolerance of inner solves; converged_status: status code of a converged item;
    objective_resolution: a smaller difference of two objectives counts as none.
    """

    problem: Problem
    options: StepOptions
    first_entropy: Tensor
    last_entropy: Tensor
    max_entropy: Tensor
    change_tol: Tensor
    residual_tol: Tensor
    noise: Tensor
    cost_scale: Tensor
    inner_tol: Tensor
    converged_status: Tensor
    objective_resolution: Tensor
    uses_proximal_steps: bool
    may_extrapolate: Tensor | None  # (B,) bool, None if no item may be extrapolated
    samples_rows: bool  # are extrapolations computed from sampled rows? (CPU)
    is_monitored: bool  # False if only the final state is needed


# The fields of `RunSettings` that `_compute_settings` returns, in order.
ITEM_SETTINGS = (
    "first_entropy",
    "last_entropy",
    "max_entropy",
    "change_tol",
    "residual_tol",
    "noise",
    "cost_scale",
    "inner_tol",
    "converged_status",
    "objective_resolution",
)


def prepare_run(
    problem: Problem, unit_plan: Any, options: Any, *, entropy: Tensor | None = None, is_monitored: bool = True
) -> tuple[Any, RunSettings]:
    """Return the initial plan with its cost and objective terms (state), and the `RunSettings`: tolerances, entropies.

    unit_plan: (B, n, m), of mass 1; options: an AlternateMin; entropy: (B,), of the last step of a previous phase, if
    there was one, NaN for items that made no step in it.
    """
    step_options = read_step_options(options)
    state, is_soft, values = call_on_device(_compute_settings, problem, unit_plan, step_options, entropy)
    constants = dict(zip(ITEM_SETTINGS, values, strict=True))
    return state, run_settings(problem, step_options, constants, is_soft, is_monitored=is_monitored)


def read_step_options(options: Any) -> StepOptions:
    """Return the tol, inner solver, proximal schedule and anneal of an AlternateMin as `StepOptions`."""
    return StepOptions(options.tol, options.inner, options.proximal, options.anneal)


def run_settings(
    problem: Problem, options: StepOptions, constants: dict[str, Tensor], is_soft: Tensor, *, is_monitored: bool
) -> RunSettings:
    """Return the settings of a run with the `constants`, (B,) each: tolerances, entropies and scales by name.

    is_soft: (B,) bool, which items may be extrapolated; that is None in the settings if there are none.
    """
    needs_proximal = (constants["last_entropy"] > problem.eps).any()
    uses_proximal_steps, any_soft = torch.stack([needs_proximal, is_soft.any()]).tolist()
    return RunSettings(
        problem,
        options,
        **constants,
        uses_proximal_steps=uses_proximal_steps,
        may_extrapolate=is_soft if problem.has_linear_local_cost and any_soft else None,
        samples_rows=size_class(*problem.largest).samples_rows,
        is_monitored=is_monitored,
    )


def _compute_settings(
    problem: Problem, unit_plan: Any, options: StepOptions, entropy: Tensor | None
) -> tuple[Any, Tensor, tuple[Tensor, ...]]:
    """Return the initial plan with its cost and objective terms (state), (B,) bool, and `ITEM_SETTINGS`, (B,) each.

    The bools say which items may be extrapolated: those with soft marginals that need no proximal term. The settings
    are first, last and largest entropy, tolerances of change and residual, noise, cost scale, inner tolerance, status
    of converged items and resolution of objectives. entropy: (B,), of the last step of a previous
    phase, NaN for items without one; None without such a phase.
    """
    state = problem.state_of_plan(unit_plan, is_product=find_product_plans(unit_plan))
    eps, config = problem.eps, SOLVER_CONFIG
    rho_total = problem.div_a.rho + problem.div_b.rho
    cost_scale = problem.cost_scale()
    # Costs far above the rhos are avoided rather than paid, so they do not count.
    scale = torch.minimum(cost_scale, rho_total)
    # Rounding the cost moves log(plan) by this over the entropy: no tolerance below it can be met.
    rms = cost_rms(problem.linearize(state).cost, problem.log_a, problem.log_b)
    rounding = config.sum_rounding * torch.finfo(state.unit_plan.dtype).eps
    min_entropy = rounding * rms.minimum(rho_total) / config.max_trusted_noise
    first, last, largest = options.proximal.bounds(eps, scale, min_entropy)
    if entropy is not None:
        first = torch.where(entropy.isnan(), first, torch.maximum(last, entropy))
    # The linear problems of proximal steps have the entropy `last`, far above a tiny eps: they can be solved better.
    inner_noise = rounding * (1.0 + rms / last)
    noise = torch.where(eps > 0, rounding * (1.0 + rms / eps), inner_noise)
    bounds = options.tol, max(config.max_trusted_noise, options.tol)
    change_tol, required = ((config.noise_factor * rounded).clamp(*bounds) for rounded in (noise, inner_noise))
    # A marginal that is off by r costs rho·r²: a large rho needs a smaller residual than the tolerance.
    stiffness = torch.maximum(problem.div_a.penalty, problem.div_b.penalty) / scale
    root = stiffness.clamp(min=torch.finfo(torch.float64).tiny).sqrt()
    stiff_residual = (config.stiff_residual / root).clamp(min=config.min_residual)
    inner_tol = options.inner.tol
    required = required if inner_tol is None else required.clamp(max=inner_tol)
    least_residual = inner_noise.clamp(max=config.max_trusted_noise)
    residual_tol = torch.maximum(torch.minimum(required, stiff_residual), least_residual)
    if not problem.requires_solved_steps:
        enough = config.max_residual_of_solved
        residual_tol = residual_tol.clamp(min=enough if inner_tol is None else min(enough, inner_tol))
    # A plan that misses a hard marginal may have too low an objective, so it is no guide for extrapolation there.
    is_soft = (last <= eps) & ~(problem.div_a.is_hard | problem.div_b.is_hard)
    objective_scale = cost_scale + problem.div_a.penalty + problem.div_b.penalty
    mass = (problem.log_mass_a + problem.log_mass_b).exp()
    status = torch.where(noise > config.max_trusted_noise, int(Status.PRECISION), int(Status.CONVERGED))
    least_tol = config.forcing * change_tol if inner_tol is None else torch.full_like(change_tol, inner_tol)
    inner_tol = torch.minimum(residual_tol, least_tol)
    objective_resolution = (rounding + config.objective_resolution * options.tol) * objective_scale * mass
    entropies = first, last, largest
    return state, is_soft, (*entropies, change_tol, residual_tol, noise, scale, inner_tol, status, objective_resolution)


@dataclass(frozen=True, eq=False)
class Controls(BatchRecord):
    """The parameters of the next step, (B,) each unless stated otherwise.

    cost: the local cost at which the step is linearized, that of the last plan or an extrapolated one, None in a run
    without extrapolation; is_extrapolated: bool; eps: that of the problem, or more while annealing; entropy: of the
    linear problem, the part above eps is proximal; adds_product: 1 where the proximal reference contains some product
    plan; iteration_multiplier: factor for the maximum number of inner iterations.
    """

    cost: Any
    is_extrapolated: Tensor
    eps: Tensor
    entropy: Tensor
    adds_product: Tensor
    iteration_multiplier: Tensor


@dataclass(frozen=True, eq=False)
class CostHistory(BatchRecord):
    """The local costs at which the last two steps were linearized (inputs), and of their plans (outputs), older first.

    n_steps: (B,), consecutive steps without a rejected extrapolation; is_long_step: (B,) bool, is the next step a
    longer step along the last one? had_rejected_long_step: (B,) bool, was such a step ever rejected? Then growth is
    believed only where the change itself grows.
    """

    inputs: tuple[Any, Any]
    outputs: tuple[Any, Any]
    n_steps: Tensor
    is_long_step: Tensor
    had_rejected_long_step: Tensor

    @classmethod
    def empty(cls, local_cost: Any, like: Tensor) -> CostHistory:
        """Return the cost history before the first step: `local_cost` for both inputs and both outputs, and 0 steps.

        local_cost: that of the initial plan, (B, n, m); like: any tensor (B,), gives batch size, dtype and device.
        """
        none = torch.zeros_like(like, dtype=torch.bool)
        return cls((local_cost, local_cost), (local_cost, local_cost), torch.zeros_like(like), none, none)

    def append(self, step_input: Any, step_output: Any, is_rejected: Tensor, is_long_step: Tensor) -> CostHistory:
        """Return the history of local costs with one more step, without its oldest step.

        step_input, step_output: the local costs at which it was linearized, and of its plan; is_rejected: (B,) bool,
        was it rejected? Then n_steps is 0 instead of one more, and had_rejected_long_step is true if it was a long one;
        is_long_step: (B,) bool, stored for the next step: is that a longer one along the last?
        """
        return CostHistory(
            inputs=(self.inputs[1], step_input),
            outputs=(self.outputs[1], step_output),
            n_steps=(self.n_steps + 1.0).masked_fill_(is_rejected, 0.0),
            is_long_step=is_long_step,
            had_rejected_long_step=self.had_rejected_long_step | (is_rejected & self.is_long_step),
        )


@dataclass(frozen=True, eq=False)
class Iterate(BatchRecord):
    """The last plan of a run, results of the last step, and the controls of the next step. (B,) each unless stated.

    state: the last plan with its quantities; previous_state: the one before, without its local cost, None in runs
    without monitoring; f: (B, n), g: (B, m), potentials of the last linear problem; solution_log_mass: log mass of its
    solution before rescaling; last_entropy: its entropy; objective, change, residual: objective of the plan, relative
    L1 change of the last step, inner residual; n_returns: consecutive steps after which the plan was that of two steps
    before; converged_objective: objective of the last plan that converged by proximal steps; history: local costs of
    the last steps, None if nothing is extrapolated.
    """

    state: Any
    previous_state: Any
    f: Tensor
    g: Tensor
    solution_log_mass: Tensor
    last_entropy: Tensor
    objective: Tensor
    change: Tensor
    residual: Tensor
    n_returns: Tensor
    converged_objective: Tensor
    controls: Controls
    history: CostHistory | None

    @classmethod
    def initial(cls, state: Any, settings: RunSettings, previous: Iterate | None = None) -> Iterate:
        """Return the iterate before the first step: initial plan, potentials (zero, if it has none) and first controls.

        state: of the initial plan; previous: the last iterate of a low-precision phase, None if there was none.
        """
        problem, entropy = settings.problem, settings.first_entropy
        one, zero, dtype = torch.ones_like(entropy), torch.zeros_like(entropy), state.unit_plan.dtype
        extrapolates = settings.may_extrapolate is not None
        if previous is None:
            eps = problem.eps
            if settings.options.anneal is not None:
                eps = torch.maximum(eps, settings.max_entropy)
            if isinstance(state.unit_plan, ImplicitPlan):
                potentials, change = (state.unit_plan.f, state.unit_plan.g), SOLVER_CONFIG.assumed_first_change * one
            else:
                # Without potentials the first linear problem is solved well: the initial plan may be a solution.
                potentials, change = (torch.zeros_like(problem.log_a), torch.zeros_like(problem.log_b)), zero
        else:
            eps, change, potentials = previous.controls.eps, previous.change, (previous.f, previous.g)
        first_entropy = torch.maximum(entropy, eps)
        return cls(
            state=state,
            previous_state=replace(state, local_cost=None) if settings.is_monitored else None,
            f=potentials[0].to(dtype),
            g=potentials[1].to(dtype),
            solution_log_mass=one,
            last_entropy=first_entropy,
            objective=torch.inf * one,
            change=change,
            residual=one,
            n_returns=zero,
            converged_objective=torch.inf * one,
            controls=Controls(
                cost=state.local_cost if extrapolates else None,
                is_extrapolated=zero > 0,
                eps=eps,
                entropy=first_entropy,
                adds_product=one,  # an initial plan may have zeros
                iteration_multiplier=one,
            ),
            history=CostHistory.empty(state.local_cost, entropy) if extrapolates else None,
        )
