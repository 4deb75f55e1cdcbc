"""Alternating minimization: linearize, solve the linear problem, accept its plan, repeat."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.checks import check_tolerance
from .._utils.pytree import take, where
from ..errors import InputError
from ..problems.base import Problem, hard_marginal_error
from ..problems.linear import LinearSolution
from ..problems.plan_operations import normalize
from ..results.records import SolverOutput, Status, StepBackend
from ..results.result import Result
from . import loop
from .base import Solver
from .compiled_sinkhorn import fits_compiled_solver
from .compiled_steps import has_compiled_steps, iterate_compiled, run_compiled
from .config import SOLVER_CONFIG
from .extrapolation import next_cost
from .mixed_precision import LowPrecisionPhase, low_precision_phase
from .monitor import Monitor
from .proximal import ProximalSchedule, reference_plan
from .run_state import Controls, Iterate, RunSettings, prepare_run
from .sinkhorn import Sinkhorn
from .stopping import check_proximal_convergence, count_returns, status_after_step


@dataclass(frozen=True, kw_only=True)
class AlternateMin(Solver):
    """Solve a problem by a sequence of linear problems.

    tol: relative L1 change of the plan from one step to the next, and the inner residual, at which to stop; for CGW the
    estimated relative decrease of the value that is still to come; None: the default of the problem (1e-6, linear
    problems 1e-7); max_iter: maximum number of steps; where eps = 0 and both marginals are hard, `ugw.solve` makes
    Frank–Wolfe steps to a relative duality gap of 1e-9 instead; inner: solver of the linear problems;
    proximal: a `ProximalSchedule`. If eps is below its share `last` of the cost scale, steps have more entropy, as a
    proximal term relative to the last plan, which leaves the solution as it is. None: the schedule of the problem;
    anneal: factor in (0, 1) by which eps itself decreases each step, from 0.3 of the cost scale to its value;
    progress: show a bar; callback: called after each step, True stops the run.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.random.default_rng(0).random((20, 2)))
    >>> ugw.solve(x, x, eps=1e-3, solver=ugw.AlternateMin(tol=1e-8, max_iter=500)).converged
    True
    """

    tol: float | None = None
    max_iter: int = 1000
    inner: Sinkhorn = field(default_factory=Sinkhorn)
    proximal: ProximalSchedule | None = None
    anneal: float | None = None

    may_omit_tol = True

    def __post_init__(self) -> None:
        """Check the fields, which raises InputError for invalid ones; convert an old form of `proximal`."""
        super().__post_init__()
        if self.proximal is not None and not isinstance(self.proximal, ProximalSchedule):
            object.__setattr__(self, "proximal", ProximalSchedule.from_old_option(self.proximal))
        if self.anneal is not None:
            object.__setattr__(self, "anneal", check_tolerance("AlternateMin anneal", self.anneal))
        if not isinstance(self.inner, Sinkhorn):
            raise InputError(f"AlternateMin inner must be a Sinkhorn, got {type(self.inner).__name__}")

    def with_defaults(self, defaults: AlternateMin | None = None) -> AlternateMin:
        """Return the solver with tol, proximal and the options of `inner` taken from `defaults` where they are None.

        Where they are None in `defaults` too, they are those of `SOLVER_CONFIG` and `ProximalSchedule()`.

        >>> given = AlternateMin(tol=1e-3).with_defaults(AlternateMin(tol=1e-4, inner=Sinkhorn(max_iter=200)))
        >>> given.tol, given.inner.max_iter
        (0.001, 200)
        """
        if defaults is None and self.tol and self.proximal and self.inner.max_iter:
            return self
        given = defaults or AlternateMin()
        return replace(
            self,
            tol=self.tol or given.tol or SOLVER_CONFIG.default_tol,
            inner=self.inner.with_defaults(given.inner),
            proximal=self.proximal or given.proximal or ProximalSchedule(),
        )

    @torch.no_grad()
    def run(self, problem: Problem, init: Any, monitor: Monitor | None) -> Result:
        """Return the result (plan, value, status, history, ...) of a solve from a plan (B, n, m) of any mass."""
        settings, outcome = self.with_defaults()._run_phases(problem, init, monitor, is_monitored=True)
        return settings.problem.result(_solver_output(settings, outcome))

    @torch.no_grad()
    def final_state(self, problem: Problem, init: Any) -> tuple[Any, Tensor]:
        """Return the state of the final plan (plan of mass 1, log mass, objective terms), and the number of steps (B,).

        The run starts from the plan `init` (B, n, m) of any mass, keeps no history and shows no progress.
        """
        settings, outcome = self.with_defaults()._run_phases(problem, init, None, is_monitored=False)
        return settings.problem.final_state(outcome.state.state), outcome.n_iter

    def _run_phases(
        self, problem: Problem, init: Any, monitor: Monitor | None, *, is_monitored: bool
    ) -> tuple[RunSettings, loop.Outcome]:
        """Return the settings of a run from the plan `init`, and its outcome: final iterate, status, n_iter, history.

        The run begins in low precision if that saves time; the steps of both phases count, the settings are those of
        the exact one. is_monitored: are history, mass and relaxed objective of each step computed?
        """
        unit_plan, first = normalize(init), None
        is_compiled = has_compiled_steps(problem)
        if is_compiled and problem.has_stored_squares and type(self.inner) is Sinkhorn:
            return run_compiled(problem, unit_plan, self, monitor, is_monitored=is_monitored)
        is_short = self.max_iter < SOLVER_CONFIG.min_iter_for_low_precision
        phase = None if is_short or is_compiled else low_precision_phase(problem)
        if phase is not None:
            first = self._run_low_precision(phase, unit_plan, monitor, is_monitored=is_monitored)
        if phase is None or first is None:
            state, settings = prepare_run(problem, unit_plan, self, is_monitored=is_monitored)
            return settings, _iterate(settings, Iterate.initial(state, settings), self.max_iter, monitor)
        has_begun, previous = first.n_iter > 0, first.state
        unit_plan = where(has_begun, normalize(previous.state.unit_plan.to(unit_plan.dtype)), unit_plan)
        entropy = torch.where(has_begun, previous.controls.entropy, torch.nan)
        state, settings = prepare_run(phase.next_problem, unit_plan, self, entropy=entropy, is_monitored=is_monitored)
        iterate = Iterate.initial(state, settings, previous)
        if not bool(has_begun.all()):
            iterate = where(has_begun, iterate, Iterate.initial(state, settings))
        if bool((first.status == Status.STOPPED).any()):  # the exact phase makes one step, without asking again
            outcome = first.continued_by(_iterate(settings, iterate, 1, None))
            is_stopped = outcome.status == Status.MAX_ITER
            return settings, replace(outcome, status=torch.where(is_stopped, int(Status.STOPPED), outcome.status))
        max_iter = (self.max_iter - first.n_iter).clamp(min=1)
        return settings, first.continued_by(_iterate(settings, iterate, max_iter, monitor))

    def _run_low_precision(
        self, phase: LowPrecisionPhase, unit_plan: Any, monitor: Monitor | None, *, is_monitored: bool
    ) -> loop.Outcome | None:
        """Return the outcome of a low-precision phase: final iterate, status, n_iter; None if no item makes a step.

        unit_plan: the start, (B, n, m), of mass 1. An item makes no step if rounding to low precision would change its
        plan too much: it keeps the start, the status RUNNING and n_iter 0. monitor: is called after each step, None for
        no calls; is_monitored: are mass and relaxed objective of each step computed, for the outcome's `trace`?
        """
        options = replace(
            self,
            tol=max(self.tol or 0.0, phase.tol),
            inner=replace(self.inner, tol=None),
            max_iter=min(self.max_iter, phase.max_iter),
        )
        with phase.context():
            low = unit_plan.to(phase.problem.x.dtype)
            state, settings = prepare_run(phase.problem, low, options, is_monitored=is_monitored)
            iterate = Iterate.initial(state, settings)
            is_precise = settings.noise <= SOLVER_CONFIG.max_low_precision_noise
            index = is_precise.nonzero()[:, 0]
            if len(index) == len(is_precise):
                return _iterate(settings, iterate, options.max_iter, monitor)
            if not len(index):
                return None
            outcome = _iterate(take(settings, index), take(iterate, index), options.max_iter, monitor)
            return outcome.expand_to_batch(index, iterate)


# The options of a solve without a given solver, made once: checks of options take as long as a step of few points.
DEFAULT_SOLVER = AlternateMin().with_defaults()


def step(settings: RunSettings, iterate: Iterate, n_rounds: int | None) -> tuple[Any, LinearSolution]:
    """Return the new plan with its cost, mass and divergences (state), and the solution of the step's linear problem.

    The solution has the plan of mass 1, its log mass before it is set to the optimal one, f, g and the residual.
    n_rounds: number of rounds of `iterations_per_check` Sinkhorn iterations, made without synchronizing; None to
    iterate to a tolerance.
    """
    problem, controls = settings.problem, iterate.controls
    point = iterate.state if controls.cost is None else replace(iterate.state, local_cost=controls.cost)
    linear = replace(problem.linearize(point), eps=controls.eps)
    if settings.uses_proximal_steps:
        reference = iterate.state.unit_plan
        if not problem.keeps_zeros:
            reference = reference_plan(reference, controls.adds_product, problem.log_a, problem.log_b)
        linear = linear.add_proximal_term(reference, controls.entropy - controls.eps)
    tolerance, multiplier = (None, None) if n_rounds is not None else _inner_effort(settings, iterate)
    solution = settings.options.inner(linear, (iterate.f, iterate.g), tolerance, multiplier, n_rounds)
    return problem.accept(iterate.state, solution), solution


def advance(
    settings: RunSettings, iterate: Iterate, n_rounds: int | None = None, *, is_checked: bool = True
) -> tuple[Iterate, loop.Report | None]:
    """Return the iterate after one step (plan, potentials, controls of the next step), and the report of the step.

    An extrapolated step that raised the objective is undone: plan, objective and change are those before it. The report
    has status codes and objective, change, residual (monitored: objective, relaxed objective, change, residual, mass),
    (B,) each; it is None if `is_checked` is False, except in runs with proximal steps. n_rounds: rounds of
    `iterations_per_check` Sinkhorn iterations, None to iterate to a tolerance.
    """
    problem, controls = settings.problem, iterate.controls
    state, solution = step(settings, iterate, n_rounds)
    change = state.change_since(iterate.state)
    objective = problem.objective(state.reported()).total
    is_worse = objective - iterate.objective > settings.objective_resolution
    is_rejected = is_worse & controls.is_extrapolated
    if iterate.history is not None and (n_rounds is not None or bool(is_rejected.any())):
        previous = iterate.state, iterate.objective, iterate.change
        state, objective, change = where(is_rejected, previous, (state, objective, change))
    residual = solution.residual.double()
    new = Iterate(
        state=state,
        previous_state=replace(iterate.state, local_cost=None) if settings.is_monitored else None,
        f=solution.f,
        g=solution.g,
        solution_log_mass=solution.log_mass.double(),
        last_entropy=controls.entropy,
        objective=objective,
        change=change,
        residual=residual,
        n_returns=count_returns(settings, iterate, state),
        converged_objective=iterate.converged_objective,
        controls=_next_controls(settings, iterate, change, residual),
        history=iterate.history,
    )
    new = _extrapolate_next(settings, iterate, new, is_worse)
    if not is_checked and not settings.uses_proximal_steps:
        return new, None
    status = status_after_step(settings, iterate, new)
    if settings.uses_proximal_steps:
        new, status = check_proximal_convergence(settings, iterate, new, status, synchronizes=n_rounds is None)
    numbers = {"objective": objective, "change": change, "residual": residual}
    if settings.is_monitored:
        relaxed = problem.objective(state, iterate.state).total
        mass = state.reported().log_mass.exp()
        numbers = {"objective": objective, "relaxed": relaxed, "change": change, "residual": residual, "mass": mass}
    return new, loop.Report(status, numbers)


def requested_rounds(settings: RunSettings, iterate: Iterate) -> Tensor:
    """Return how many rounds of `iterations_per_check` iterations the next step needs, (B,), 0 for the usual number."""
    if settings.options.tol > SOLVER_CONFIG.coarse_tol:
        return torch.zeros_like(iterate.change)
    multiplier = iterate.controls.iteration_multiplier
    is_converged = (iterate.change <= settings.change_tol) & (iterate.residual <= settings.residual_tol)
    more = torch.where((multiplier > 1.0) & ~is_converged, multiplier, 0.0)
    first = SOLVER_CONFIG.first_iteration_multiplier * multiplier
    return (settings.options.inner.rounds_per_solve * torch.where(iterate.change == 0, first, more)).ceil()


def _inner_effort(settings: RunSettings, iterate: Iterate) -> tuple[Tensor, Tensor]:
    """Return the tolerance (B,) of the next inner solve, and the factor (B,) for its maximum number of iterations.

    The tolerance bounds the residual, the share of the plan's mass that the last inner iteration moved.
    A change of 0 marks a plan that may be a solution, whose linear problem is to be solved well.
    """
    config, multiplier = SOLVER_CONFIG, iterate.controls.iteration_multiplier
    tolerance = torch.maximum(settings.inner_tol, (config.forcing * iterate.change).clamp(max=config.max_inner_tol))
    if settings.options.tol > config.coarse_tol:
        return tolerance, multiplier
    return tolerance, torch.where(iterate.change == 0, config.first_iteration_multiplier * multiplier, multiplier)


def _next_controls(settings: RunSettings, iterate: Iterate, change: Tensor, residual: Tensor) -> Controls:
    """Return the `Controls` of the next step without extrapolation: eps, entropy, factor for inner iterations.

    Its cost is None, adds_product 0, and is_extrapolated that of the last step, to be replaced.
    change: (B,), relative L1 change of the plan in the last step; residual: (B,), of its inner solve.
    """
    problem, options, controls = settings.problem, settings.options, iterate.controls
    eps = problem.eps
    if options.anneal is not None:
        annealed = options.anneal * controls.eps
        is_negligible = annealed < SOLVER_CONFIG.negligible_eps_share * settings.last_entropy
        eps = torch.where(is_negligible, eps, torch.maximum(eps, annealed))
    entropy = settings.last_entropy
    if settings.uses_proximal_steps:
        is_solved = residual <= SOLVER_CONFIG.max_residual_of_solved
        bounds = settings.last_entropy, settings.max_entropy
        entropy = options.proximal.next_entropy(controls.entropy, bounds, is_solved)
        needs_none = settings.last_entropy <= problem.eps  # no proximal steps for these items of the batch
        entropy = torch.where(needs_none, settings.last_entropy, entropy)
    return Controls(
        cost=None,
        is_extrapolated=controls.is_extrapolated,
        eps=eps,
        entropy=torch.maximum(eps, entropy),
        adds_product=torch.zeros_like(change),
        iteration_multiplier=_next_iteration_multiplier(settings, controls.iteration_multiplier, change, residual),
    )


def _next_iteration_multiplier(settings: RunSettings, multiplier: Tensor, change: Tensor, residual: Tensor) -> Tensor:
    """Return the factor (B,) of the inner `max_iter`: `multiplier`, doubled (up to a limit) for large residuals."""
    config, options = SOLVER_CONFIG, settings.options
    if options.tol > config.coarse_tol:
        return multiplier
    has_nearly_converged = change <= config.near_convergence * settings.change_tol
    needs_more_iterations = has_nearly_converged & (residual > settings.residual_tol)
    largest = max(1.0, config.max_inner_iter / options.inner.max_iter)
    return torch.where(needs_more_iterations, (2.0 * multiplier).clamp(max=largest), multiplier)


def _extrapolate_next(settings: RunSettings, iterate: Iterate, new: Iterate, is_worse: Tensor) -> Iterate:
    """Return `new` with this step appended to its history and the local cost at which the next step is linearized.

    That is Anderson's extrapolation or the cost of the new plan. Without extrapolation `new` is returned unchanged.
    is_worse: (B,) bool, whether the last step raised the objective.
    """
    history, config = iterate.history, SOLVER_CONFIG
    if history is None or settings.may_extrapolate is None:
        return new
    # A plan that has converged must confirm it by a plain step.
    is_ready = (new.change < config.max_change_to_extrapolate) & (new.change > settings.change_tol) & ~is_worse
    is_ready = settings.may_extrapolate & is_ready & (iterate.controls.eps <= settings.problem.eps)
    relative = torch.where(is_ready, new.change / settings.change_tol, 0.0)
    step_input, step_output = iterate.controls.cost, new.state.local_cost
    cost, is_extrapolated, is_long_step = next_cost(
        history, settings.problem, step_input, step_output, relative, sample_rows=settings.samples_rows
    )
    return replace(
        new,
        controls=replace(new.controls, cost=cost, is_extrapolated=is_extrapolated),
        history=history.append(step_input, step_output, is_worse, is_long_step),
    )


def _iterate(settings: RunSettings, iterate: Iterate, max_iter: int | Tensor, monitor: Monitor | None) -> loop.Outcome:
    """Return the outcome of at most `max_iter` steps: final iterate, status (B,), n_iter (B,) and history.

    The history is empty unless the run is monitored. Steps are compiled or made in torch on a CPU, and captured as CUDA
    graphs on a GPU. max_iter: one number for all items, or (B,).
    """
    is_plain = type(settings.options.inner) is Sinkhorn
    may_compile = is_plain and has_compiled_steps(settings.problem)
    if not isinstance(max_iter, Tensor) and may_compile:
        return iterate_compiled(settings, iterate, max_iter, monitor)
    rules = loop.Rules(
        max_iter=int(max_iter.max()) if isinstance(max_iter, Tensor) else max_iter,
        max_iter_per_item=max_iter if isinstance(max_iter, Tensor) else None,
        compact_at=SOLVER_CONFIG.compaction_share,
        keeps_history=settings.is_monitored,
    )
    if not iterate.change.is_cuda:
        outcome = loop.iterate(advance, settings, iterate, rules, monitor)
        if settings.options.inner.method != "streaming" and fits_compiled_solver(iterate.state.unit_plan):
            return replace(outcome, backend=outcome.backend | StepBackend.COMPILED_SINKHORN)
        return outcome
    from .captured_steps import iterate_on_cuda

    return iterate_on_cuda((advance, requested_rounds), settings, iterate, rules, monitor)


def _solver_output(settings: RunSettings, outcome: loop.Outcome) -> SolverOutput:
    """Return the output of a run: final plan with its mass, potentials, terms of the objective, status and history.

    An item that reached `max_iter` gets the status PRECISION if rounding alone may change its plan by more than
    `max_trusted_noise`. An item that alternates between two plans gets the better one.
    """
    problem, iterate, status = settings.problem, outcome.state, outcome.status
    codes = set(status.tolist())
    if int(Status.MAX_ITER) in codes:
        is_noisy = (status == Status.MAX_ITER) & (settings.noise > SOLVER_CONFIG.max_trusted_noise)
        status = torch.where(is_noisy, int(Status.PRECISION), status)
    values = outcome.values
    if int(Status.ALTERNATING) in codes:
        values = None  # those of the plan before
        iterate = _better_of_two(settings, iterate, status == Status.ALTERNATING)
    final, previous = problem.final_state(iterate.state), iterate.previous_state
    if values is None:
        values = problem.objective(final), problem.objective(previous, final).total
    linear = iterate.f, iterate.g
    potentials, lift = problem.potentials_and_lift(
        previous, final, linear, iterate.solution_log_mass, iterate.last_entropy
    )
    return SolverOutput(
        plan=final.plan,
        previous_plan=previous.plan,
        potentials=potentials,
        terms=values[0],
        relaxed_value=values[1],
        marginal_error=hard_marginal_error(problem, final.unit_plan),
        change=iterate.change,
        residual=iterate.residual,
        status=status,
        n_iter=outcome.n_iter,
        trace=outcome.table(),
        n_iter_search=torch.zeros_like(outcome.n_iter),
        backend=torch.full_like(outcome.n_iter, int(outcome.backend)),
        lift=lift,
    )


def _better_of_two(settings: RunSettings, iterate: Iterate, alternates: Tensor) -> Iterate:
    """Return `iterate`, but one step further where `alternates`, (B,) bool, is true and that lowers the objective."""
    other = advance(settings, iterate)[0]
    totals = (settings.problem.objective(i.state).total for i in (other, iterate))
    return where(alternates & torch.lt(*totals), other, iterate)
