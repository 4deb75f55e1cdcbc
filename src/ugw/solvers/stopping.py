"""Whether a step has converged: the status of every item after a step of alternating minimization."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..problems.plan_operations import relative_change
from ..results.records import Status
from .config import SOLVER_CONFIG
from .proximal import has_growing_entries
from .run_state import Iterate, RunSettings


def count_returns(settings: RunSettings, iterate: Iterate, state: Any) -> Tensor:
    """Return how many of the last steps in a row, (B,), gave the plan of two steps before, up to 1e-3 of the tolerance.

    In a run that is not monitored it is `iterate.n_returns`, unchanged. iterate: before the last step; state: after it.
    """
    if iterate.previous_state is None:
        return iterate.n_returns
    tolerance = SOLVER_CONFIG.alternation_tol * settings.options.tol
    has_returned = relative_change(state, iterate.previous_state) <= tolerance
    return torch.where(has_returned, iterate.n_returns + 1, 0.0)


def status_after_step(settings: RunSettings, old: Iterate, new: Iterate) -> Tensor:
    """Return status codes (B,) after a step `old` → `new`: RUNNING, CONVERGED, PRECISION, COLLAPSED or ALTERNATING."""
    # The stronger the proximal term, the shorter the steps.
    change = new.change * old.controls.entropy / settings.last_entropy
    is_converged = (change <= settings.change_tol) & (new.residual <= settings.residual_tol)
    is_converged &= (old.controls.eps <= settings.problem.eps) & ~old.controls.is_extrapolated
    converged = settings.converged_status.masked_fill(new.state.is_collapsed, int(Status.COLLAPSED))
    status = torch.full_like(converged, int(Status.RUNNING))
    if new.previous_state is not None:
        alternates = (new.n_returns >= SOLVER_CONFIG.alternation_steps) & (new.change > settings.change_tol)
        status = status.masked_fill(alternates, int(Status.ALTERNATING))
    return torch.where(is_converged, converged, status)


def check_proximal_convergence(
    settings: RunSettings, old: Iterate, new: Iterate, status: Tensor, *, synchronizes: bool
) -> tuple[Iterate, Tensor]:
    """Return `new` with `adds_product` and `converged_objective` set, and `status` (B,), RUNNING where not converged.

    A plan of proximal steps has not converged while some entry grows, nor if its objective is below that of the last
    converged plan: it then continues once with a reference that contains some product plan a⊗b, its adds_product is 1.
    status: (B,), before these checks; synchronizes: may values be read on the host?
    """
    problem, config = settings.problem, SOLVER_CONFIG
    is_proximal = old.controls.entropy > old.controls.eps
    if not synchronizes or bool((status != Status.RUNNING).any()):
        allowed = config.max_negative_gradient * settings.cost_scale / old.controls.entropy
        allowed = torch.maximum(allowed, settings.noise)
        plans = old.state.unit_plan, new.state.unit_plan
        grows = is_proximal & has_growing_entries(*plans, allowed, problem.log_a, problem.log_b)
        status = torch.where(grows, int(Status.RUNNING), status)
    ends = (status != Status.RUNNING) & is_proximal
    required = old.converged_objective - config.min_improvement * new.objective.abs() - settings.objective_resolution
    continues = ends & (new.objective < required)
    new = replace(
        new,
        converged_objective=torch.where(ends, new.objective, old.converged_objective),
        controls=replace(new.controls, adds_product=continues.to(new.change.dtype)),
    )
    return new, torch.where(continues, int(Status.RUNNING), status)
