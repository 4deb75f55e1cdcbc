"""Steps of small stored problems on a CPU by the compiled loop, which makes many steps of a whole batch in one call."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
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
from ..results.records import Status, StepBackend, Terms
from . import loop
from .compiled_conic import CompiledConicStates
from .compiled_records import (
    pack_iterate,
    pack_problem,
    pack_settings,
    plan_state,
    problem_parameters,
    unpack_iterate,
    unpack_settings,
)
from .config import SOLVER_CONFIG
from .monitor import Monitor
from .run_state import Iterate, RunSettings, StepOptions, read_step_options

# Columns of the history, `HistoryRow` in common.hpp.
DIAGNOSTICS = ("objective", "relaxed", "change", "residual", "mass")


def has_compiled_steps(problem: Problem) -> bool:
    """Return whether `iterate_compiled` is built and fits: a small stored problem, float64, CPU, conic or loss t²."""
    if problem.x.dtype != torch.float64 or problem.eps.is_cuda:
        return False
    if not size_class(*problem.largest).uses_compiled_steps or not native.is_available():
        return False
    return problem.compiled_inputs() is not None


def run_compiled(
    problem: Problem, unit_plan: Tensor, options: Any, monitor: Monitor | None, *, is_monitored: bool
) -> tuple[RunSettings, loop.Outcome]:
    """Return settings and outcome of an alternating minimization from a plan (B, n, m) of mass 1 by the compiled loop.

    They are those of `prepare_run`, `Iterate.initial` and `loop.iterate(advance, ...)` up to rounding; only the first
    entropy of the settings is at least the annealed eps. problem: a UGW problem; options: an AlternateMin.
    """
    step_options = read_step_options(options)
    run = _CompiledRun(problem, step_options, options.max_iter, is_monitored=is_monitored)
    settings = run.start_from_plan(unit_plan, step_options)
    run.advance_to(options.max_iter, monitor)
    return settings, run.outcome()


def iterate_compiled(
    settings: RunSettings, iterate: Iterate, max_iter: int, monitor: Monitor | None, n_threads: int | None = None
) -> loop.Outcome:
    """Return the outcome of at most `max_iter` compiled steps: final iterate, status (B,), n_iter (B,) and history.

    It is that of `loop.iterate(advance, ...)` up to rounding. n_threads: number of threads that share the items of the
    batch, None for as many as torch uses.
    """
    is_monitored = settings.is_monitored
    run = _CompiledRun(settings.problem, settings.options, max_iter, is_monitored=is_monitored, n_threads=n_threads)
    run.start_from_iterate(settings, iterate)
    run.advance_to(max_iter, monitor)
    return run.outcome()


@dataclass(frozen=True)
class _CompiledOutcome(loop.Outcome):
    """The outcome of compiled steps.

    history: (B, steps, columns), `DIAGNOSTICS` of all steps, NaN after an item's end.
    """

    history: Tensor = field(kw_only=True)

    def table(self) -> Tensor:
        """Return objective, relaxed objective, change, residual, mass of steps, (B, steps, 5), NaN after the last."""
        return self.history


class _CompiledRun:
    """One run: its arrays in the layout of the C++ record `Run` (common.hpp), and the calls that make its steps."""

    def __init__(
        self, problem: Any, options: StepOptions, max_iter: int, *, is_monitored: bool, n_threads: int | None = None
    ) -> None:
        """Set the arguments that do not depend on the start of the run; n_threads: None for as many as torch uses."""
        self._problem, self._is_monitored, self._library = problem, is_monitored, native.load()
        self._batch, self._n, self._m = problem.batch, problem.x.n, problem.y.n
        self._inputs: Any = problem.compiled_inputs()
        self._conic: CompiledConicStates | None = None
        self._matrices: tuple[Tensor, ...] = ()
        self._status, self._n_iter = torch.full((2, self._batch), int(Status.RUNNING)).unbind()
        self._n_iter.zero_()
        self._history = torch.empty(self._batch, 0, len(DIAGNOSTICS), dtype=torch.float64)
        self._values = torch.full((self._batch, len(fields(Terms)) + 1), torch.nan, dtype=torch.float64)
        # Kept here, because the library holds only their addresses.
        self._config = config_tensor(
            self._library.config_fields,
            options,
            samples_rows=size_class(*problem.largest).samples_rows,
            is_monitored=is_monitored,
            max_iter=max_iter,
        )
        self._arguments = native.Run(
            batch=self._batch,
            n_threads=min(torch.get_num_threads() if n_threads is None else n_threads, self._batch),
            seconds=SOLVER_CONFIG.compiled_call_seconds,
            config=self._config.data_ptr(),
            log_a=native.strided_vectors(problem.log_a),
            log_b=native.strided_vectors(problem.log_b),
            status=self._status.data_ptr(),
            n_iter=self._n_iter.data_ptr(),
            values=self._values.data_ptr() if is_monitored and problem.has_stored_squares else None,
        )

    def start_from_plan(self, unit_plan: Tensor, options: StepOptions) -> RunSettings:
        """Set the arrays of a run of a UGW problem from a plan (B, n, m) of mass 1; return the settings of the run."""
        library, problem = self._library, self._problem
        given = problem_parameters(problem, self._inputs.mass_rule)
        parameters = pack_problem(given, problem.known_scale, library.parameter_fields)
        width = 2 * len(library.plan_fields) + len(library.iterate_fields)
        numbers = torch.empty(self._batch, width, dtype=torch.float64)
        f, g = (torch.zeros(self._batch, size, dtype=torch.float64) for size in (self._n, self._m))
        self._set_arrays(parameters, numbers, (f, g), n_matrices=3)
        self._matrices[0].copy_(unit_plan[:, None])
        library.prepare(self._arguments)
        constants = dict(zip(library.parameter_fields, parameters.unbind(1), strict=True))
        first_entropy = numbers[:, library.iterate_fields.index("entropy") - len(library.iterate_fields)].clone()
        settings = unpack_settings(problem, options, constants, first_entropy, is_monitored=self._is_monitored)
        if settings.may_extrapolate is None:
            self._matrices, self._arguments.inputs = self._matrices[:2], None
        return settings

    def start_from_iterate(self, settings: RunSettings, iterate: Iterate) -> None:
        """Set the arrays of the run to copies of settings and an iterate (plans, costs, potentials, numbers)."""
        library, history, previous = self._library, iterate.history, iterate.previous_state
        if isinstance(self._inputs, CompiledConicInputs):
            self._conic = CompiledConicStates(self._inputs, iterate.state, library)
            self._arguments.conic = self._conic.arguments()
        parameters = pack_settings(settings, getattr(self._inputs, "mass_rule", None), library.parameter_fields)
        f, g = (vectors.clone(memory_format=torch.contiguous_format) for vectors in (iterate.f, iterate.g))
        n_matrices = 2 if history is None else 3
        self._set_arrays(parameters, pack_iterate(iterate, library), (f, g), n_matrices=n_matrices)
        plans, outputs, *inputs = self._matrices
        plans.copy_(iterate.state.unit_plan[:, None])
        outputs.copy_(iterate.state.local_cost[:, None])
        if previous is not None:
            plans[:, 2] = previous.unit_plan
        if history is not None:
            outputs[:, 2] = history.outputs[0]
            inputs[0].copy_(torch.stack([iterate.controls.cost, *history.inputs], dim=1))

    def _set_arrays(
        self, parameters: Tensor, numbers: Tensor, potentials: tuple[Tensor, Tensor], *, n_matrices: int
    ) -> None:
        """Set the arrays of the run; `_matrices` gets `n_matrices` arrays of zeros (B, 3, n, m), float64, to be filled.

        They are, in this order, plans, their local costs, and the costs at which steps are linearized. parameters,
        numbers: the C++ records `Parameters` and `IterateNumbers`, (B, fields); potentials: (B, n), (B, m).
        """
        sizes = (self._problem.sizes or ((self._n, self._m),)) if self._conic is None else self._conic.sizes
        distances = () if self._conic is not None else stored_matrices(self._inputs)
        padded = torch.zeros(n_matrices, self._batch, 3, self._n, native.padded_size(self._m), dtype=torch.float64)
        # Plans, their local costs, and the costs at which steps are linearized; see `Run` for the order of the steps.
        self._matrices = padded[..., : self._m].unbind()
        self._parameters, self._numbers, self._potentials = parameters, numbers, potentials
        self._sizes, self._distances = torch.tensor(sizes), distances
        arguments = self._arguments
        arguments.sizes, arguments.parameters = self._sizes.data_ptr(), parameters.data_ptr()
        arguments.iterates = numbers.data_ptr()
        arguments.f, arguments.g = (vectors.data_ptr() for vectors in potentials)
        arguments.f_size, arguments.g_size = self._n, self._m
        for name, matrices in zip(("plans", "outputs", "inputs"), self._matrices, strict=False):
            setattr(arguments, name, matrices.data_ptr())
        for name, matrix in zip(("dx", "dy", "cost"), distances, strict=False):
            setattr(arguments, name, native.strided_matrices(matrix))
        arguments.rows, arguments.stride = self._n, padded.shape[-1]

    def advance_to(self, last_step: int, monitor: Monitor | None) -> None:
        """Make steps until every item has ended or made `last_step` steps in all; the monitor is called after each."""
        if monitor is not None:
            self._advance_observed(last_step, monitor)
        elif not self._is_monitored:
            self._call(last_step)
        else:
            is_running = True
            while is_running and self._history.shape[1] < last_step:
                self._grow_history(last_step)
                self._call(self._history.shape[1])
                is_running = int(Status.RUNNING) in self._status.tolist()

    def _advance_observed(self, last_step: int, monitor: Monitor) -> None:
        """Make at most `last_step` steps one by one and call the monitor after each; if it stops them, set STOPPED."""
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
        """Append empty rows to the history of the run for more steps, up to at most `last_step` rows."""
        n_rows = self._history.shape[1]
        more = min(last_step, max(SOLVER_CONFIG.first_history_rows, 4 * n_rows)) - n_rows
        empty = torch.full((self._batch, more, len(DIAGNOSTICS)), torch.nan, dtype=torch.float64)
        self._history = torch.cat([self._history, empty], dim=1) if n_rows else empty
        self._arguments.history = self._history.data_ptr()
        self._arguments.history_capacity = self._history.shape[1]

    def outcome(self) -> loop.Outcome:
        """Return the `Outcome` of the run: final iterates, status codes, numbers of steps and history of all items."""
        n_steps, library = 0, self._library
        if self._is_monitored:  # a step that is not finite counts: it has a row of NaN
            n_steps = int((self._n_iter + (self._status == Status.NON_FINITE)).max())
        columns = self._numbers.unbind(1)
        numbers = dict(zip(library.iterate_fields, columns[2 * len(library.plan_fields) :], strict=True))
        plans, outputs, *inputs = (matrices.unbind(1) for matrices in self._matrices)
        states = self._states(plans, outputs)
        iterate = unpack_iterate(states, self._potentials, numbers, outputs, inputs[0] if inputs else None)
        history = self._history[:, :n_steps]
        *terms, relaxed = self._values.unbind(1)
        values = (Terms(*terms), relaxed) if self._arguments.values else None
        return _CompiledOutcome(
            iterate, self._status, self._n_iter, [], StepBackend.COMPILED, values=values, history=history
        )

    def _states(self, plans: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> tuple[Any, Any]:
        """Return the states of the last plan and, in monitored runs, of the plan before, which has no local cost.

        plans, outputs: (B, n, m) each, the plans and their local costs of the last step, two steps before it, and one
        before.
        """
        names, width = self._library.plan_fields, len(self._library.plan_fields)
        after, before = self._numbers[:, :width], self._numbers[:, width : 2 * width]
        if self._conic is not None:
            last = plans[2], outputs[2]
            log_masses = (numbers[:, names.index("log_mass")] for numbers in (after, before))
            return self._conic.states(
                self._problem, last, plans[0], outputs[0], log_masses, with_previous=self._is_monitored
            )
        least = self._inputs.mass_rule.min_log_mass
        previous = plan_state(plans[2], None, before, least, names) if self._is_monitored else None
        return plan_state(plans[0], outputs[0], after, least, names), previous


def stored_matrices(inputs: CompiledInputs) -> tuple[Tensor | None, ...]:
    """Return the distances of x and of y, (n, n) or (B, n, n) each, and the linear cost or None, without graphs."""
    cost = None if inputs.cost is None else inputs.cost.detach()
    return inputs.dx.dense().detach(), inputs.dy.dense().detach(), cost


@lru_cache(maxsize=SOLVER_CONFIG.max_cached_configs)
def config_tensor(
    names: tuple[str, ...], options: StepOptions, *, samples_rows: bool, is_monitored: bool, max_iter: int
) -> Tensor:
    """Return thresholds and options of a run in the order of `names`, as a float64 tensor that must not be changed."""
    values = config_values(names, options, samples_rows=samples_rows, is_monitored=is_monitored, max_iter=max_iter)
    return torch.tensor(values, dtype=torch.float64)


def config_values(
    names: tuple[str, ...], options: Any, *, samples_rows: bool, is_monitored: bool, max_iter: int
) -> list[float]:
    """Return thresholds and options of a run in the order of `names`.

    options: an AlternateMin or its `StepOptions`, without Nones but for anneal and the tolerance of `inner`, which
    become NaN. Truth values become 1 or 0.
    """
    values = thresholds() | {
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
    return [float(values[name]) for name in names]


@cache
def thresholds() -> dict[str, Any]:
    """Return all fields of the config records that the compiled library may read, and the `Status` codes, by name."""
    configs = THRESHOLDS, PROBLEM_CONFIG, KERNEL_CONFIG, SOLVER_CONFIG
    values = {name: value for config in configs for name, value in vars(config).items()}
    values["min_relative_mean"] = DISTORTION_CONFIG.min_relative_mean
    return values | {status.name: int(status) for status in Status}
