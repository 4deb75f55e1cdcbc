"""Steps of small stored problems on a CPU by the compiled loop, which makes many steps of a whole batch in one call."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from .._utils.size_class import THRESHOLDS, size_class
from ..kernels.config import KERNEL_CONFIG
from ..kernels.cpu import native
from ..problems.base import CompiledConicInputs, CompiledInputs, Problem
from ..problems.config import PROBLEM_CONFIG
from ..problems.distortion.config import DISTORTION_CONFIG
from ..problems.ugw_state import PlanState
from ..results.records import Status, StepBackend
from . import loop
from .compiled_conic import CompiledConicStates, conic_parameters, conic_plan_numbers
from .config import SOLVER_CONFIG
from .monitor import Monitor
from .run_state import ITEM_SETTINGS, Controls, CostHistory, Iterate, RunSettings, StepOptions

# Columns of the history, `HistoryRow` in common.hpp.
DIAGNOSTICS = ("objective", "relaxed", "change", "residual", "mass")


def has_compiled_steps(problem: Problem) -> bool:
    """Return whether `iterate_compiled` can be used: a small stored problem, float64, CPU, conic or with loss t²."""
    if problem.x.dtype != torch.float64 or problem.eps.is_cuda:
        return False
    if not size_class(*problem.largest).uses_compiled_steps or not native.is_available():
        return False
    return problem.compiled_inputs() is not None


def iterate_compiled(
    settings: RunSettings, iterate: Iterate, max_iter: int, monitor: Monitor | None, n_threads: int | None = None
) -> loop.Outcome:
    """Return the outcome of at most `max_iter` steps of an alternating minimization by the compiled loop.

    It is that of `loop.iterate(advance, ...)` up to rounding. n_threads: number of threads that share the items of the
    batch, None for as many as torch uses.
    """
    run = _CompiledRun(settings, iterate, max_iter, torch.get_num_threads() if n_threads is None else n_threads)
    if monitor is None:
        run.advance_to(max_iter)
    else:
        run.advance_observed(max_iter, monitor)
    return run.outcome()


@dataclass(frozen=True)
class _CompiledOutcome(loop.Outcome):
    """The outcome of compiled steps.

    history: (B, steps, columns), `DIAGNOSTICS` of all steps, NaN after an item's end.
    """

    history: Tensor = field(kw_only=True)

    def table(self) -> Tensor:
        """Return objective, change, ... (`DIAGNOSTICS`) of all steps, (B, steps, 5), NaN after the end of an item."""
        return self.history


class _CompiledRun:
    """One run: its arrays in the layout of the C++ record `Run` (common.hpp), and the calls that make its steps."""

    def __init__(self, settings: RunSettings, iterate: Iterate, max_iter: int, n_threads: int) -> None:
        """Copy the settings and the iterate before the first step into the arrays of the library."""
        self._settings, self._iterate, self._library = settings, iterate, native.load()
        problem, library = settings.problem, self._library
        inputs = problem.compiled_inputs()
        is_conic = isinstance(inputs, CompiledConicInputs)
        self._conic = CompiledConicStates(inputs, iterate.state, library) if is_conic else None
        self._batch, self._n, self._m = iterate.state.unit_plan.shape
        sizes = (problem.sizes or ((self._n, self._m),)) if self._conic is None else self._conic.sizes
        parameters = _parameters(settings, None if is_conic else inputs.mass_rule)
        # Kept here, because the library holds only their addresses.
        self._inputs = {
            "config": config_tensor(
                library.config_fields,
                settings.options,
                samples_rows=settings.samples_rows,
                is_monitored=settings.is_monitored,
                max_iter=max_iter,
            ),
            "sizes": torch.tensor(sizes),
            "parameters": torch.stack([parameters[name] for name in library.parameter_fields], dim=1),
        }
        self._matrices = (None, None, None) if is_conic else stored_matrices(inputs)
        self._weights = problem.log_a, problem.log_b
        self._status, self._n_iter = torch.full((2, self._batch), int(Status.RUNNING)).unbind()
        self._n_iter.zero_()
        self._numbers = _pack_iterate(iterate, library)
        self._f, self._g = (vectors.clone(memory_format=torch.contiguous_format) for vectors in (iterate.f, iterate.g))
        self._set_matrices(iterate)
        self._history = torch.empty(self._batch, 0, len(DIAGNOSTICS), dtype=torch.float64)
        self._arguments = self._make_arguments(n_threads)

    def _set_matrices(self, iterate: Iterate) -> None:
        """Copy plans, local costs and costs of the last steps into padded arrays, (B, 3, n, stride) each."""
        history, previous = iterate.history, iterate.previous_state
        shape = 2 if history is None else 3, self._batch, 3, self._n, native.padded_size(self._m)
        self._padded = torch.zeros(shape, dtype=torch.float64)
        views = self._padded[..., : self._m].unbind()
        plans, outputs = views[:2]
        plans.copy_(iterate.state.unit_plan[:, None])
        outputs.copy_(iterate.state.local_cost[:, None])
        if previous is not None:
            plans[:, 2] = previous.unit_plan
        if history is not None:
            outputs[:, 2] = history.outputs[0]
            views[2].copy_(torch.stack([iterate.controls.cost, *history.inputs], dim=1))
        self._views = views

    def _make_arguments(self, n_threads: int) -> native.Run:
        """Return the arguments of a library call, with `last_step` and the history not yet set."""
        return native.Run(
            batch=self._batch,
            n_threads=min(n_threads, self._batch),
            seconds=SOLVER_CONFIG.compiled_call_seconds,
            **{name: tensor.data_ptr() for name, tensor in self._inputs.items()},
            dx=native.strided_matrices(self._matrices[0]),
            dy=native.strided_matrices(self._matrices[1]),
            cost=native.strided_matrices(self._matrices[2]),
            log_a=native.strided_vectors(self._weights[0]),
            log_b=native.strided_vectors(self._weights[1]),
            iterates=self._numbers.data_ptr(),
            status=self._status.data_ptr(),
            n_iter=self._n_iter.data_ptr(),
            f=self._f.data_ptr(),
            g=self._g.data_ptr(),
            f_size=self._f.shape[1],
            g_size=self._g.shape[1],
            plans=self._views[0].data_ptr(),
            outputs=self._views[1].data_ptr(),
            inputs=None if len(self._views) == 2 else self._views[2].data_ptr(),
            rows=self._n,
            stride=self._padded.shape[-1],
            conic=None if self._conic is None else self._conic.arguments(),
        )

    def advance_to(self, last_step: int) -> None:
        """Make steps until every item has ended or made `last_step` steps in all."""
        if not self._settings.is_monitored:
            self._call(last_step)
            return
        is_running = True
        while is_running and self._history.shape[1] < last_step:
            self._grow_history(last_step)
            self._call(self._history.shape[1])
            is_running = int(Status.RUNNING) in self._status.tolist()

    def advance_observed(self, last_step: int, monitor: Monitor) -> None:
        """Make at most `last_step` steps one by one and call the monitor after each, which may stop the run."""
        for step in range(1, last_step + 1):
            was_running = self._status == Status.RUNNING
            if self._history.shape[1] < step:
                self._grow_history(last_step)
            self._call(step)
            is_valid = was_running & (self._status != Status.NON_FINITE)
            rows = self._history[is_valid, step - 1]
            numbers = dict(zip(DIAGNOSTICS, rows.unbind(1), strict=True))
            if monitor(numbers, int(was_running.sum())):
                self._status[self._status == Status.RUNNING] = int(Status.STOPPED)
            if not bool((self._status == Status.RUNNING).any()):
                return

    def _call(self, last_step: int) -> None:
        """Call the library until every item has ended or made `last_step` steps; Ctrl-C can interrupt between calls."""
        self._arguments.last_step = last_step
        while self._library.run(self._arguments):
            pass

    def _grow_history(self, last_step: int) -> None:
        """Enlarge the history, so that it has rows for more steps, at most `last_step` in all."""
        n_rows = self._history.shape[1]
        more = min(last_step, max(SOLVER_CONFIG.first_history_rows, 4 * n_rows)) - n_rows
        empty = torch.full((self._batch, more, len(DIAGNOSTICS)), torch.nan, dtype=torch.float64)
        self._history = torch.cat([self._history, empty], dim=1) if n_rows else empty
        self._arguments.history = self._history.data_ptr()
        self._arguments.history_capacity = self._history.shape[1]

    def outcome(self) -> loop.Outcome:
        """Return the `Outcome` of the run: final iterates, status codes, numbers of steps and history of all items."""
        n_steps = 0
        if self._settings.is_monitored:  # a step that is not finite counts: it has a row of NaN
            n_steps = int((self._n_iter + (self._status == Status.NON_FINITE)).max())
        history = self._history[:, :n_steps]
        return _CompiledOutcome(self._unpack(), self._status, self._n_iter, [], StepBackend.COMPILED, history=history)

    def _unpack(self) -> Iterate:
        """Return the `Iterate` after the last step of each item: views of the arrays of the library."""
        columns = self._numbers.unbind(1)
        n_plan_fields = len(self._library.plan_fields)
        numbers = dict(zip(self._library.iterate_fields, columns[2 * n_plan_fields :], strict=True))
        plans, outputs, *costs = (views.unbind(1) for views in self._views)
        state, previous_state = self._states(plans, outputs)
        history, cost = None, None
        if costs:
            cost, last_cost, first_cost = costs[0][0], costs[0][2], costs[0][1]
            history = CostHistory(
                inputs=(first_cost, last_cost),
                outputs=(outputs[2], outputs[0]),
                n_steps=numbers["n_steps"],
                is_long_step=numbers["is_long_step"] > 0,
                had_rejected_long_step=numbers["had_rejected_long_step"] > 0,
            )
        controls = Controls(
            cost=cost,
            is_extrapolated=numbers["is_extrapolated"] > 0,
            **{name: numbers[name] for name in ("eps", "entropy", "leaves_zeros", "iteration_multiplier")},
        )
        return Iterate(
            state=state,
            previous_state=previous_state,
            f=self._f,
            g=self._g,
            **{name: numbers[name] for name in _RESULTS},
            controls=controls,
            history=history,
        )

    def _states(self, plans: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> tuple[Any, Any]:
        """Return the states of the last plan and, in monitored runs, of the plan before, which has no local cost.

        plans, outputs: (B, n, m) each, the plans and their local costs of the last step, two steps before it, and one.
        """
        fields, before = self._library.plan_fields, self._iterate.previous_state
        width = len(fields)
        after_numbers, before_numbers = self._numbers[:, :width], self._numbers[:, width : 2 * width]
        if self._conic is not None:
            problem, initial = self._settings.problem, self._iterate.state
            after_masses, before_masses = (
                numbers[:, fields.index("log_mass")] for numbers in (after_numbers, before_numbers)
            )
            state = self._conic.state(problem, initial, (plans[2], outputs[2]), plans[0], after_masses)
            state = replace(state, local_cost=outputs[0])
            if before is not None:
                before = self._conic.previous_state(problem, before, plans[2], before_masses)
            return state, before
        min_log_mass = self._iterate.state.min_log_mass
        if before is not None:
            before = plan_state(plans[2], None, before_numbers, min_log_mass, fields)
        return plan_state(plans[0], outputs[0], after_numbers, min_log_mass, fields), before


def stored_matrices(inputs: CompiledInputs) -> tuple[Tensor | None, ...]:
    """Return the distances of both spaces, (n, n) or (B, n, n) each, and the linear cost, without their graphs."""
    cost = None if inputs.cost is None else inputs.cost.detach()
    return inputs.dx.dense().detach(), inputs.dy.dense().detach(), cost


@lru_cache(maxsize=SOLVER_CONFIG.max_cached_configs)
def config_tensor(
    names: tuple[str, ...], options: StepOptions, *, samples_rows: bool, is_monitored: bool, max_iter: int
) -> Tensor:
    """Return the values of `config_values` as a tensor, which must not be changed."""
    values = config_values(names, options, samples_rows=samples_rows, is_monitored=is_monitored, max_iter=max_iter)
    return torch.tensor(values, dtype=torch.float64)


def config_values(
    names: tuple[str, ...], options: Any, *, samples_rows: bool, is_monitored: bool, max_iter: int
) -> list[float]:
    """Return thresholds and options of a run in the order of `names`.

    options: an AlternateMin or its `StepOptions`, without Nones but for anneal and the tolerance of `inner`.
    """
    of_run = {
        "tol": options.tol,
        "anneal": math.nan if options.anneal is None else options.anneal,
        "inner_tol": math.nan if options.inner.tol is None else options.inner.tol,
        "inner_max_iter": options.inner.max_iter,
        "proximal_first": options.proximal.first,
        "proximal_last": options.proximal.last,
        "proximal_factor": options.proximal.factor,
        "uses_log_domain": options.inner.method == "log",
        "samples_rows": samples_rows,
        "is_monitored": is_monitored,
        "max_iter": max_iter,
    }
    of_library = thresholds()
    native.check_distinct_names(of_run, of_library)
    return [float(of_run[name] if name in of_run else of_library[name]) for name in names]


@cache
def thresholds() -> dict[str, Any]:
    """Return all thresholds that the compiled library may read, and the codes of `Status`, by name."""
    configs = THRESHOLDS, PROBLEM_CONFIG, KERNEL_CONFIG, SOLVER_CONFIG
    of_distortion = {"min_relative_mean": DISTORTION_CONFIG.min_relative_mean}
    return native.merge_values(*map(vars, configs), of_distortion, {status.name: int(status) for status in Status})


def problem_parameters(problem: Problem, mass_rule: Any) -> dict[str, Tensor]:
    """Return the parameters (B,) of a problem (rhos, eps, log masses) for the C++ library, by name."""
    penalty_a, penalty_b, eps = mass_rule.weights.each.unbind(1)
    return {
        "eps": eps,
        "rho_a": problem.div_a.rho,
        "rho_b": problem.div_b.rho,
        "penalty_a": penalty_a,
        "penalty_b": penalty_b,
        "penalty_total": mass_rule.weights.total,
        "log_mass_a": mass_rule.log_mass_a,
        "log_mass_b": mass_rule.log_mass_b,
        "is_hard_a": mass_rule.is_hard_a.double(),
        "is_hard_b": mass_rule.is_hard_b.double(),
        "alpha": torch.zeros_like(eps) if mass_rule.alpha is None else mass_rule.alpha,
        "collapsed_log_mass": mass_rule.min_log_mass,
    }


def _parameters(settings: RunSettings, mass_rule: Any) -> dict[str, Tensor]:
    """Return the fields of the C++ record `Parameters`, (B,) each, by name.

    mass_rule: of the optimal mass, None for a conic problem.
    """
    problem, may_extrapolate = settings.problem, settings.may_extrapolate
    of_problem = conic_parameters(problem) if mass_rule is None else problem_parameters(problem, mass_rule)
    return {
        **{name: getattr(settings, name) for name in ITEM_SETTINGS},
        **of_problem,
        "converged_status": settings.converged_status.double(),
        "may_extrapolate": torch.zeros_like(settings.noise) if may_extrapolate is None else may_extrapolate.double(),
    }


# The fields (B,) of `Iterate` that tell how the last step went.
_RESULTS = (
    "solution_log_mass",
    "last_entropy",
    "objective",
    "change",
    "residual",
    "n_returns",
    "converged_objective",
)


def _pack_iterate(iterate: Iterate, library: native.Library) -> Tensor:
    """Return the scalars of an iterate, of its plans and controls, as the C++ record `IterateNumbers`, (B, fields)."""
    numbers_of = _plan_numbers if hasattr(iterate.state, "kls") else conic_plan_numbers
    plan = numbers_of(iterate.state)
    previous = plan if iterate.previous_state is None else numbers_of(iterate.previous_state)
    controls, history = iterate.controls, iterate.history
    none = torch.zeros_like(iterate.change)
    others = {
        **{name: value for name, value in vars(iterate).items() if isinstance(value, Tensor)},
        **{name: value for name, value in vars(controls).items() if isinstance(value, Tensor)},
        "is_extrapolated": controls.is_extrapolated.double(),
        "n_steps": none if history is None else history.n_steps,
        "is_long_step": none if history is None else history.is_long_step.double(),
        "had_rejected_long_step": none if history is None else history.had_rejected_long_step.double(),
    }
    columns = [values[name] for values in (plan, previous) for name in library.plan_fields]
    return torch.stack([*columns, *(others[name] for name in library.iterate_fields)], dim=1)


def _plan_numbers(state: Any) -> dict[str, Tensor]:
    """Return mass, distortion and divergences of a `PlanState`, (B,) each, by field of the C++ record `PlanNumbers`."""
    kls = dict(zip(("kl_a", "kl_b", "kl_plan"), state.kls.unbind(1), strict=True))
    names = ("log_mass", "distortion", "linear", "reported_log_mass")
    return {**kls, **{name: getattr(state, name) for name in names}, "is_collapsed": state.is_collapsed.double()}


def plan_state(
    unit_plan: Tensor, local_cost: Tensor | None, numbers: Tensor, min_log_mass: Tensor, names: tuple[str, ...]
) -> PlanState:
    """Return the `PlanState` of a unit plan and its local cost, (B, n, m) each, None if it is only kept for its plan.

    numbers: (B, fields), the C++ records `PlanNumbers` with the fields `names`; min_log_mass: (B,), as in `PlanState`.
    """
    columns = dict(zip(names, numbers.unbind(1), strict=True))
    first = names.index("kl_a")  # followed by kl_b and kl_plan
    return PlanState(
        unit_plan=unit_plan,
        local_cost=local_cost,
        kls=numbers[:, first : first + 3],
        min_log_mass=min_log_mass,
        **{name: columns[name] for name in ("log_mass", "distortion", "linear", "reported_log_mass")},
    )
