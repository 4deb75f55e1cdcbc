"""The settings of one run of alternating minimization: entropy bounds, tolerances and rounding noise of each item."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.device_calls import call_on_device
from .._utils.pytree import BatchRecord
from .._utils.size_class import size_class
from ..problems.base import Problem
from ..problems.plan_operations import cost_rms, find_product_plans
from ..results.records import Status
from .config import SOLVER_CONFIG


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
    options: Any  # an AlternateMin
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
CONSTANTS = (
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
    """Return the state of an initial plan (B, n, m) of unit mass, and the settings of a run from there.

    options: an AlternateMin; entropy: (B,), of the last step of a previous phase, if there was one.
    """
    # Options that do not change the arithmetic are dropped, so that captured graphs of other calls can be reused.
    options = replace(options, progress=False, callback=None, max_iter=1)
    state, is_soft, values = call_on_device(_compute_settings, problem, unit_plan, options, entropy)
    constants = dict(zip(CONSTANTS, values, strict=True))
    needs_proximal = (constants["last_entropy"] > problem.eps).any()
    uses_proximal_steps, any_soft = torch.stack([needs_proximal, is_soft.any()]).tolist()
    settings = RunSettings(
        problem,
        options,
        **constants,
        uses_proximal_steps=uses_proximal_steps,
        may_extrapolate=is_soft if problem.has_linear_local_cost and any_soft else None,
        samples_rows=size_class(*problem.largest).samples_rows,
        is_monitored=is_monitored,
    )
    return state, settings


def _compute_settings(
    problem: Problem, unit_plan: Any, options: Any, entropy: Tensor | None
) -> tuple[Any, Tensor, tuple[Tensor, ...]]:
    """Return the initial state, which items may be extrapolated, and the `CONSTANTS`, (B,) each.

    Items that may be extrapolated, (B,) bool, have soft marginals and need no proximal term.
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
        first = torch.maximum(last, entropy)
    noise = rounding * (1.0 + rms / torch.where(eps > 0, eps, last))
    change_tol = (config.noise_factor * noise).clamp(options.tol, max(config.max_trusted_noise, options.tol))
    # A marginal that is off by r costs rho·r²: a large rho needs a smaller residual than the tolerance.
    stiffness = torch.maximum(problem.div_a.penalty, problem.div_b.penalty) / scale
    root = stiffness.clamp(min=torch.finfo(torch.float64).tiny).sqrt()
    stiff_residual = (config.stiff_residual / root).clamp(min=config.min_residual)
    residual_tol = torch.maximum(torch.minimum(change_tol, stiff_residual), noise.clamp(max=config.max_trusted_noise))
    # A plan that misses a hard marginal may have too low an objective, so it is no guide for extrapolation there.
    is_soft = (last <= eps) & ~(problem.div_a.is_hard | problem.div_b.is_hard)
    objective_scale = cost_scale + problem.div_a.penalty + problem.div_b.penalty
    mass = (problem.log_mass_a + problem.log_mass_b).exp()
    status = torch.where(noise > config.max_trusted_noise, int(Status.PRECISION), int(Status.CONVERGED))
    inner_tol = torch.minimum(residual_tol, (config.forcing * change_tol).clamp(min=options.inner.tol))
    objective_resolution = (rounding + config.objective_resolution * options.tol) * objective_scale * mass
    entropies = first, last, largest
    return state, is_soft, (*entropies, change_tol, residual_tol, noise, scale, inner_tol, status, objective_resolution)
