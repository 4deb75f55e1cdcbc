"""The settings of a run and the state of its initial plan by the compiled library, for the problems of its steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..kernels.cpu import native
from ..problems.ugw import UGW
from ..problems.ugw_state import PlanState
from .compiled_steps import config_tensor, has_compiled_steps, plan_state, problem_parameters, stored_matrices
from .run_state import ITEM_SETTINGS, RunSettings, prepare_run, read_step_options, run_settings


def prepare_on_device(problem: Any, unit_plan: Any, options: Any, *, is_monitored: bool) -> tuple[Any, RunSettings]:
    """Return the result of `prepare_run`, by one compiled call where the library has the steps of a UGW problem."""
    is_compiled = isinstance(problem, UGW) and has_compiled_steps(problem)
    prepare = prepare_compiled if is_compiled else prepare_run
    return prepare(problem, unit_plan, options, is_monitored=is_monitored)


def prepare_compiled(
    problem: UGW, unit_plan: Tensor, options: Any, *, is_monitored: bool = True
) -> tuple[PlanState, RunSettings]:
    """Return the state of the plan `unit_plan` (B, n, m), of mass 1, and the settings of a run from it.

    It is what `prepare_run` returns up to rounding. options: an AlternateMin.
    """
    inputs, library = problem.compiled_inputs(), native.load()
    if inputs is None:
        raise RuntimeError("the problem has no compiled steps")
    batch, n, m = unit_plan.shape
    step_options = read_step_options(options)
    config = config_tensor(library.config_fields, step_options, samples_rows=False, is_monitored=False, max_iter=0)
    unset = torch.full_like(problem.eps, torch.nan)
    known_scale = unset if problem.known_scale is None else problem.known_scale
    given = {**problem_parameters(problem, inputs.mass_rule), "cost_scale": known_scale}
    parameters = torch.stack([given.get(name, unset) for name in library.parameter_fields], dim=1)
    local_cost = torch.zeros(batch, n, m, dtype=torch.float64)
    numbers = torch.empty(batch, len(library.plan_fields), dtype=torch.float64)
    first_entropy = torch.empty(batch, dtype=torch.float64)
    sizes = torch.tensor(problem.sizes or ((n, m),))
    matrices = stored_matrices(inputs)  # kept here, because the library gets only their addresses
    dx, dy, cost = map(native.strided_matrices, matrices)
    library.prepare(
        native.PrepareRun(
            batch=batch,
            n_threads=torch.get_num_threads(),
            config=config.data_ptr(),
            sizes=sizes.data_ptr(),
            parameters=parameters.data_ptr(),
            dx=dx,
            dy=dy,
            cost=cost,
            log_a=native.strided_vectors(problem.log_a),
            log_b=native.strided_vectors(problem.log_b),
            plans=native.strided_matrices(unit_plan),
            states=numbers.data_ptr(),
            local_costs=local_cost.data_ptr(),
            rows=n,
            cols=m,
            first_entropies=first_entropy.data_ptr(),
        )
    )
    state = plan_state(unit_plan, local_cost, numbers, inputs.mass_rule.min_log_mass, library.plan_fields)
    columns = dict(zip(library.parameter_fields, parameters.unbind(1), strict=True))
    constants = {name: columns[name] for name in ITEM_SETTINGS if name != "first_entropy"}
    constants |= {"first_entropy": first_entropy, "converged_status": columns["converged_status"].long()}
    is_soft = columns["may_extrapolate"] > 0
    return state, run_settings(problem, step_options, constants, is_soft, is_monitored=is_monitored)
