"""Settings and iterates of runs as rows of numbers, in the layout of the C++ records of the compiled library."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..kernels.cpu import native
from ..problems.base import Problem
from ..problems.ugw_state import PlanState
from .compiled_conic import conic_parameters, conic_plan_numbers
from .run_state import ITEM_SETTINGS, Controls, CostHistory, Iterate, RunSettings, StepOptions, run_settings

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


def problem_parameters(problem: Problem, mass_rule: Any) -> dict[str, Tensor]:
    """Return the parameters (B,) of a UGW problem for the C++ library, by name.

    They are eps, rhos, penalties, log m(a), log m(b), is_hard_a and is_hard_b (1 or 0), alpha (0 without a linear cost)
    and the log mass below which a plan has collapsed. mass_rule: of the optimal mass.
    """
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


def pack_problem(given: dict[str, Tensor], known_scale: Tensor | None, names: tuple[str, ...]) -> Tensor:
    """Return the C++ records `Parameters`, (B, fields), of a run before it is prepared; other fields are NaN.

    given: `problem_parameters`; known_scale: (B,), the mean distortion, if it is known; names: of the fields.
    """
    unset = torch.full_like(given["eps"], torch.nan)
    given = {**given, "cost_scale": unset if known_scale is None else known_scale}
    return torch.stack([given.get(name, unset) for name in names], dim=1)


def pack_settings(settings: RunSettings, mass_rule: Any, names: tuple[str, ...]) -> Tensor:
    """Return settings as the C++ records `Parameters`, (B, fields).

    mass_rule: of the optimal mass, None for a conic problem; names: of the fields.
    """
    problem, may_extrapolate = settings.problem, settings.may_extrapolate
    of_problem = conic_parameters(problem) if mass_rule is None else problem_parameters(problem, mass_rule)
    values = {
        **{name: getattr(settings, name) for name in ITEM_SETTINGS},
        **of_problem,
        "converged_status": settings.converged_status.double(),
        "may_extrapolate": torch.zeros_like(settings.noise) if may_extrapolate is None else may_extrapolate.double(),
    }
    return torch.stack([values[name] for name in names], dim=1)


def unpack_settings(
    problem: Problem, options: StepOptions, parameters: dict[str, Tensor], first_entropy: Tensor, *, is_monitored: bool
) -> RunSettings:
    """Return the settings of a run with the given fields of the C++ records `Parameters`, (B,) each, by name.

    first_entropy: (B,), that of the first step.
    """
    constants = {name: parameters[name] for name in ITEM_SETTINGS if name in parameters}
    constants |= {"first_entropy": first_entropy, "converged_status": parameters["converged_status"].long()}
    is_soft = parameters["may_extrapolate"] > 0
    return run_settings(problem, options, constants, is_soft, is_monitored=is_monitored)


def pack_iterate(iterate: Iterate, library: native.Library) -> Tensor:
    """Return the scalars of an iterate as the C++ records `IterateNumbers`, (B, fields): of its last plan, the plan
    before (without one, again those of the last), then of the last step and the controls of the next.
    """
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
    """Return log masses, distortion, divergences, linear cost, is_collapsed (0 or 1) of a `PlanState`, (B,) each."""
    kls = dict(zip(("kl_a", "kl_b", "kl_plan"), state.kls.unbind(1), strict=True))
    names = ("log_mass", "distortion", "linear", "reported_log_mass")
    return {**kls, **{name: getattr(state, name) for name in names}, "is_collapsed": state.is_collapsed.double()}


def plan_state(
    unit_plan: Tensor, local_cost: Tensor | None, numbers: Tensor, min_log_mass: Tensor, names: tuple[str, ...]
) -> PlanState:
    """Return the `PlanState` of a plan of mass 1 and its local cost, (B, n, m) each.

    local_cost: None if the state is only kept for its plan; numbers: (B, fields), the C++ records `PlanNumbers` with
    the fields `names`; min_log_mass: (B,), as in `PlanState`.
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


def unpack_iterate(
    states: tuple[Any, Any],
    potentials: tuple[Tensor, Tensor],
    numbers: dict[str, Tensor],
    outputs: tuple[Tensor, ...],
    inputs: tuple[Tensor, ...] | None,
) -> Iterate:
    """Return the iterate with the given states of the last two plans.

    states: of the last plan and the one before; potentials: (B, n) and (B, m); numbers: (B,) each, by field of the C++
    record `IterateNumbers`; outputs: local costs (B, n, m) of the last plan, the one two steps before it, and the one
    one step before; inputs: the cost at which the next step is linearized, that of the step before last, and that of
    the last step, None if nothing is extrapolated.
    """
    history = None
    if inputs is not None:
        history = CostHistory(
            inputs=inputs[1:],  # type: ignore[arg-type]
            outputs=(outputs[2], outputs[0]),
            n_steps=numbers["n_steps"],
            is_long_step=numbers["is_long_step"] > 0,
            had_rejected_long_step=numbers["had_rejected_long_step"] > 0,
        )
    controls = Controls(
        cost=None if inputs is None else inputs[0],
        is_extrapolated=numbers["is_extrapolated"] > 0,
        **{name: numbers[name] for name in ("eps", "entropy", "adds_product", "iteration_multiplier")},
    )
    return Iterate(
        state=states[0],
        previous_state=states[1],
        f=potentials[0],
        g=potentials[1],
        **{name: numbers[name] for name in _RESULTS},
        controls=controls,
        history=history,
    )
