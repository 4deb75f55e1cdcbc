"""Steps of small stored problems on a CPU by the compiled loop, which makes many steps of a whole batch in one call."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .._utils.size_class import THRESHOLDS, size_class
from ..kernels.config import KERNEL_CONFIG
from ..kernels.cpu import native
from ..problems.base import Problem
from ..problems.config import PROBLEM_CONFIG
from ..results.records import Status, StepBackend
from . import loop
from .compiled_conic import CompiledConicStates, conic_parameters, conic_plan_numbers
from .config import SOLVER_CONFIG
from .monitor import Monitor
from .run_state import ITEM_SETTINGS, Controls, CostHistory, Iterate, RunSettings

# Columns of the history, `HistoryRow` in common.hpp.
DIAGNOSTICS = ("objective", "relaxed", "change", "residual", "mass")


def has_compiled_steps(problem: Problem) -> bool:
    """Return whether `iterate_compiled` can be used: a small stored problem, float64, CPU, conic or with loss t²."""
    if problem.x.dtype != torch.float64 or problem.eps.is_cuda:
        return False
    if not size_class(*problem.largest).uses_compiled_steps or not native.is_available():
        return False
    return problem.compiled_inputs() is not None or problem.compiled_conic_inputs() is not None


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
        problem = settings.problem
        plan = iterate.state.unit_plan
        self._batch, self._n, self._m = plan.shape
        self._status = torch.full((self._batch,), int(Status.RUNNING))
        self._n_iter = torch.zeros_like(self._status)
        inputs, conic = problem.compiled_inputs(), problem.compiled_conic_inputs()
        self._conic = None if conic is None else CompiledConicStates(conic, iterate.state, self._library)
        sizes = (problem.sizes or ((self._n, self._m),)) if self._conic is None else self._conic.sizes
        parameters = _parameters(settings, None if inputs is None else inputs.mass_rule)
        config = config_values(
            self._library.config_fields,
            settings.options,
            samples_rows=settings.samples_rows,
            is_monitored=settings.is_monitored,
            max_iter=max_iter,
        )
        # Kept here, because the library holds only their addresses.
        self._inputs = {
            "config": torch.tensor(config, dtype=torch.float64),
            "sizes": torch.tensor(sizes),
            "parameters": torch.stack([parameters[name] for name in self._library.parameter_fields], dim=1),
        }
        matrices = (None, None, None) if inputs is None else (inputs.dx.dense(), inputs.dy.dense(), inputs.cost)
        self._matrices = [None if matrix is None else matrix.detach() for matrix in matrices]
        self._weights = problem.log_a, problem.log_b
        self._numbers = _pack_iterate(iterate, self._library)
        self._f, self._g = _padded(iterate.f), _padded(iterate.g)
        self._plans = _padded_three_times(plan)
        self._outputs = _padded_three_times(iterate.state.local_cost)
        self._costs = None
        if iterate.history is not None:
            self._outputs[:, 2, :, : self._m] = iterate.history.outputs[0]
            self._costs = _padded_three_times(iterate.controls.cost)
            self._costs[:, 1, :, : self._m] = iterate.history.inputs[0]
            self._costs[:, 2, :, : self._m] = iterate.history.inputs[1]
        if iterate.previous_state is not None:
            self._plans[:, 2, :, : self._m] = iterate.previous_state.unit_plan
        self._history = torch.empty(self._batch, 0, len(DIAGNOSTICS), dtype=torch.float64)
        self._arguments = self._make_arguments(n_threads)

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
            plans=self._plans.data_ptr(),
            outputs=self._outputs.data_ptr(),
            inputs=None if self._costs is None else self._costs.data_ptr(),
            rows=self._plans.shape[2],
            stride=self._plans.shape[3],
            conic=None if self._conic is None else self._conic.arguments(),
        )

    def advance_to(self, last_step: int) -> None:
        """Make steps until every item has ended or made `last_step` steps in all."""
        if not self._settings.is_monitored:
            self._call(last_step)
            return
        while bool((self._status == Status.RUNNING).any()) and int(self._n_iter.max()) < last_step:
            self._grow_history(last_step)
            self._call(min(last_step, self._history.shape[1]))

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
        trace, table = [], self._history
        if self._settings.is_monitored:
            n_steps = int((self._n_iter + (self._status == Status.NON_FINITE)).max())
            table = self._history[:, :n_steps]
            items = torch.arange(self._batch)
            trace = [(items, rows) for rows in table.unbind(1)]
        end = self._unpack()
        return _CompiledOutcome(end, self._status, self._n_iter, trace, StepBackend.COMPILED, history=table)

    def _unpack(self) -> Iterate:
        """Return the `Iterate` after the last step of each item, copied from the arrays of the library."""
        iterate, plan_fields = self._iterate, self._library.plan_fields
        columns = self._numbers.unbind(1)
        n_plan = len(plan_fields)
        numbers = dict(zip(self._library.iterate_fields, columns[2 * n_plan :], strict=True))
        local_cost = self._select(self._outputs, 0)
        previous_state, history, cost = None, None, None
        may_extrapolate = self._settings.may_extrapolate
        after, before = (dict(zip(plan_fields, columns[start:], strict=False)) for start in (0, n_plan))
        plan, last_plan = self._select(self._plans, 0), self._select(self._plans, -1)
        if self._conic is None:
            state = _replace_plan(iterate.state, plan, after)
            if iterate.previous_state is not None:
                previous_state = _replace_plan(iterate.previous_state, last_plan, before)
        else:
            problem = self._settings.problem
            last = last_plan, self._select(self._outputs, -1)
            state = self._conic.state(problem, iterate.state, last, plan, after)
            if iterate.previous_state is not None:
                previous_state = self._conic.previous_state(problem, iterate.previous_state, last_plan, before)
        state = replace(state, local_cost=local_cost)
        if self._costs is not None and may_extrapolate is not None:
            # The library sets the cost of the next step only where one may be extrapolated.
            cost = torch.where(may_extrapolate[:, None, None], self._select(self._costs, 0), local_cost)
            history = CostHistory(
                inputs=(self._select(self._costs, -2), self._select(self._costs, -1)),
                outputs=(self._select(self._outputs, -1), local_cost),
                n_steps=numbers.pop("n_steps"),
                is_long_step=numbers.pop("is_long_step") > 0,
                had_rejected_long_step=numbers.pop("had_rejected_long_step") > 0,
            )
        controls = Controls(
            cost=cost,
            is_extrapolated=numbers["is_extrapolated"] > 0,
            **{name: numbers[name] for name in ("eps", "entropy", "adds_product", "iteration_multiplier")},
        )
        return Iterate(
            state=state,
            previous_state=previous_state,
            f=self._f[:, : self._n],
            g=self._g[:, : self._m],
            **{name: numbers[name] for name in _RESULTS},
            controls=controls,
            history=history,
        )

    def _select(self, matrices: Tensor, offset: int) -> Tensor:
        """Return the matrices (B, n, m) of step number n_iter + offset of each item.

        matrices: (B, 3, rows, stride), those of the last three steps; offset: 0, −1 or −2.
        """
        position = (self._n_iter + (3 + offset)) % 3
        taken = matrices[:, int(position[0])] if self._batch == 1 else matrices[torch.arange(self._batch), position]
        return taken[:, : self._n, : self._m].clone(memory_format=torch.contiguous_format)


def _padded(vectors: Tensor) -> Tensor:
    """Return a copy of vectors (B, n) with zeros appended to the padded length of the library."""
    padded = vectors.new_zeros(len(vectors), native.padded_size(vectors.shape[1]))
    padded[:, : vectors.shape[1]] = vectors
    return padded


def _padded_three_times(matrices: Tensor) -> Tensor:
    """Return three copies of matrices (B, n, m), (B, 3, n, stride), with zeros appended to the rows."""
    batch, n, m = matrices.shape
    padded = matrices.new_zeros(batch, 3, n, native.padded_size(m))
    padded[:, :, :, :m] = matrices[:, None]
    return padded


def config_values(
    names: tuple[str, ...], options: Any, *, samples_rows: bool, is_monitored: bool, max_iter: int
) -> list[float]:
    """Return thresholds and options of a run in the order of `names`. options: an AlternateMin without Nones."""
    values = thresholds() | {
        "tol": options.tol,
        "anneal": float("nan") if options.anneal is None else options.anneal,
        "inner_max_iter": options.inner.max_iter,
        "proximal_factor": options.proximal.factor,
        "uses_log_domain": options.inner.method == "log",
        "samples_rows": samples_rows,
        "is_monitored": is_monitored,
        "max_iter": max_iter,
    }
    return [float(values[name]) for name in names]


@cache
def thresholds() -> dict[str, Any]:
    """Return all thresholds that the compiled library may read, and the codes of `Status`, by name."""
    configs = THRESHOLDS, PROBLEM_CONFIG, KERNEL_CONFIG, SOLVER_CONFIG
    values = {name: value for config in configs for name, value in vars(config).items()}
    return values | {status.name: int(status) for status in Status}


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


def _replace_plan(state: Any, unit_plan: Tensor, numbers: dict[str, Tensor]) -> Any:
    """Return a copy of a `PlanState` with the plan `unit_plan` (B, n, m) and the values that belong to that plan.

    numbers: (B,) each, by name: "log_mass", "distortion", "kl_a", "kl_b", "kl_plan", "linear", "reported_log_mass".
    """
    return replace(
        state,
        unit_plan=unit_plan,
        log_mass=numbers["log_mass"],
        distortion=numbers["distortion"],
        kls=torch.stack([numbers["kl_a"], numbers["kl_b"], numbers["kl_plan"]], dim=1),
        linear=numbers["linear"],
        reported_log_mass=numbers["reported_log_mass"],
    )
