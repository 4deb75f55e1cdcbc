"""The coarse multistart: many candidates on a few clusters, the best of them prolongated to all points."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from .._utils.device_calls import call_on_device
from .._utils.precision import tf32_products
from .._utils.size_class import THRESHOLDS, size_class
from ..problems.ugw import UGW
from ..solvers.alternating import AlternateMin
from ..solvers.mixed_precision import low_precision_problem
from ..solvers.sinkhorn import Sinkhorn
from .aggregation import AggregatedProblem, aggregate
from .centers import farthest_centers, quantile_centers
from .config import INITIALIZER_CONFIG
from .plans import break_symmetries, first_lower_bound_plan, random_anchor_plans
from .successive_halving import (
    Round,
    best_candidates,
    different_candidates,
    penalized_objective,
    pick_plans,
    split_candidates,
    successive_halving,
)

# Solves the problem on the coarsest level: a few inner iterations suffice to compare candidates.
COARSE_SOLVER = AlternateMin(tol=1e-3, inner=Sinkhorn(tol=1e-3, max_iter=10))
COARSE_SCHEDULE = tuple(
    Round(replace(COARSE_SOLVER, max_iter=n_steps), n_survivors)
    for n_steps, n_survivors in INITIALIZER_CONFIG.coarse_rounds
)
# Where the coarsest level is small: no candidate is dropped.
SMALL_COARSE_SCHEDULE = (Round(replace(COARSE_SOLVER, max_iter=INITIALIZER_CONFIG.n_small_coarse_steps)),)
# On the middle level: which of two local minima is lower shows when plans have nearly converged.
MIDDLE_SCHEDULE = (Round(AlternateMin(tol=1e-3, max_iter=INITIALIZER_CONFIG.n_middle_steps), 1),)
# On all points.
FINE_SCHEDULE = (Round(AlternateMin(max_iter=INITIALIZER_CONFIG.n_fine_steps)),)


def coarse_plan(problem: UGW) -> Tensor:
    """Return the best plan (B, n, m) of the coarse multistart."""
    return coarse_plans(problem, 1)[:, 0]


def coarse_plans(problem: UGW, count: int) -> Tensor:
    """Return the best plans of the coarse multistart that differ, (B, up to `count`, n, m), best first.

    Many candidates run on a few clusters, by successive halving; the best that differ are prolongated to all points,
    run for a few steps, and are compared again. The order of two coarse objectives says little about the fine ones, the
    objective of a prolongated plan much, and a few steps nearly all. Problems of many points are aggregated to some
    hundred clusters in between, and only the best plan there is prolongated. Where clusters are single points,
    prolongation changes nothing.
    """
    low_precision = low_precision_problem(problem)
    with tf32_products():
        if size_class(*problem.largest).n_middle_clusters:
            plans = _best_on_middle_level(low_precision)
        else:
            n_prolongated = max(INITIALIZER_CONFIG.n_prolongated, count)
            is_repeated, plans = _prolongated_candidates(low_precision, n_prolongated)
            plans, values = successive_halving(low_precision, plans, FINE_SCHEDULE)
            values = values.masked_fill(is_repeated, torch.inf)
            plans = pick_plans(plans, best_candidates(values, count, INITIALIZER_CONFIG.rounding_tie))
    return plans.to(problem.x.dtype)


def _best_on_middle_level(problem: UGW) -> Tensor:
    """Return the plan (B, 1, n, m), on all points, of the best candidate of the middle level."""
    level = call_on_device(_middle_level, problem)
    plans = call_on_device(_with_product_plan, level.problem, _prolongated_candidates(level.problem, 1)[1])
    plans, _ = successive_halving(level.problem, plans, MIDDLE_SCHEDULE)
    return call_on_device(_prolongate_first, problem, level, plans)


def _prolongated_candidates(problem: UGW, count: int) -> tuple[Tensor, Tensor]:
    """Return the best plans of the coarsest level that differ, on all points, (B, up to `count`, n, m), best first.

    Before them, (B, ...) bool, which of them repeat the first of their item, as other items of the batch have more.
    """
    level, plans = call_on_device(_coarsest_level, problem)
    is_small = size_class(*problem.largest).has_small_coarse_level
    plans, values = successive_halving(level.problem, plans, SMALL_COARSE_SCHEDULE if is_small else COARSE_SCHEDULE)
    return call_on_device(_prolongate_different, problem, level, plans, values, count)


def _middle_level(problem: UGW) -> AggregatedProblem:
    """Return the problem on 100 to 400 clusters per side, the level between the coarsest level and all points.

    Called only for problems of many points, for which `size_class` gives a number of middle clusters.
    """
    return aggregate(problem, size_class(*problem.largest).n_middle_clusters, quantile_centers, average=True)


def _with_product_plan(problem: UGW, plans: Tensor) -> Tensor:
    """Return the product plan and the plans (B, S, n, m), without exact symmetries: (B, 1 + S, n, m)."""
    return break_symmetries(problem, torch.cat([problem.product[:, None], plans], dim=1))


def _prolongate_first(problem: UGW, level: AggregatedProblem, plans: Tensor) -> Tensor:
    """Return the first of each item's coarse plans (B, S, k, l) on all points, (B, 1, n, m)."""
    return level.prolongate(plans[:, 0], problem)[:, None]


def _coarsest_level(problem: UGW) -> tuple[AggregatedProblem, Tensor]:
    """Return the problem on k and l clusters of the points (the coarsest level), and initial plans of it (B, S, k, l).

    eps is raised to at least `min_coarse_eps_share` of the mean distortion. The plans are not solved yet: the product
    plan, the one of the first lower bound, and random ones.
    """
    level = aggregate(problem, THRESHOLDS.n_coarse_clusters, farthest_centers, average=True)
    min_eps = INITIALIZER_CONFIG.min_coarse_eps_share * level.problem.scale()
    small = replace(level.problem, eps=torch.maximum(problem.eps, min_eps))
    plans = torch.cat(
        [
            small.product[:, None],
            first_lower_bound_plan(small)[:, None],
            random_anchor_plans(small, INITIALIZER_CONFIG.n_random_candidates),
        ],
        dim=1,
    )
    return replace(level, problem=small), break_symmetries(small, plans)


def _prolongate_different(
    problem: UGW, level: AggregatedProblem, plans: Tensor, values: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """Return what `_prolongated_candidates` returns, from coarse plans (B, S, k, l) with objectives (B, S)."""
    chosen = different_candidates(plans, values, max(INITIALIZER_CONFIG.n_prolongated, count))
    fine_plans, fine_values = _prolongate_and_evaluate(level, pick_plans(plans, chosen), problem)
    is_repeated = (chosen == chosen[:, :1]).index_fill(1, chosen.new_zeros(1), value=False)
    fine_values = fine_values.masked_fill(is_repeated, torch.inf)
    order = best_candidates(fine_values, count, INITIALIZER_CONFIG.rounding_tie)
    return is_repeated.gather(1, order), pick_plans(fine_plans, order)


def _prolongate_and_evaluate(level: AggregatedProblem, plans: Tensor, problem: UGW) -> tuple[Tensor, Tensor]:
    """Return coarse plans (B, S, k, l) on all points, (B, S, n, m), and their objectives there, (B, S)."""
    fine_plans, values = [], []
    for group, items in split_candidates(plans, (problem.x.n, problem.y.n)):
        repeated, own_level = (problem, level) if items is None else (problem.take(items), level.take(items))
        plan = own_level.prolongate(group.flatten(0, 1), repeated)
        fine_plans.append(plan.view(*group.shape[:2], *plan.shape[1:]))
        values.append(penalized_objective(repeated, repeated.state_of_plan(plan)).view(group.shape[:2]))
    return torch.cat(fine_plans, dim=1), torch.cat(values, dim=1)
