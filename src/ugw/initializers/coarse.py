"""The search for initial plans: many candidates on a few clusters, the best of them prolongated to all points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from .._utils.device_calls import call_on_device
from .._utils.precision import tf32_products
from .._utils.size_class import THRESHOLDS, size_class
from ..problems.ugw import UGW
from ..solvers.alternating import AlternateMin
from ..solvers.mixed_precision import low_precision_problem
from ..solvers.proximal import ProximalSchedule
from ..solvers.sinkhorn import Sinkhorn
from .aggregation import AggregatedProblem, aggregate
from .centers import farthest_centers, quantile_centers
from .compiled_search import has_compiled_search, search_compiled
from .config import INITIALIZER_CONFIG
from .plans import break_symmetries, first_lower_bound_plan, matching_anchor_plans
from .successive_halving import Round, split_candidates, successive_halving


@cache
def search_solver(count: int) -> AlternateMin:
    """Return the AlternateMin of loose tolerance whose steps compare the candidates in a search for `count` plans.

    A few inner iterations suffice to compare candidates, and entropy falls fast.
    """
    config = INITIALIZER_CONFIG
    max_iter = config.search_inner_max_iter if count == 1 else config.search_inner_max_iter_of_several
    return AlternateMin(
        tol=config.search_tol,
        inner=Sinkhorn(tol=config.search_tol, max_iter=max_iter),
        proximal=ProximalSchedule(
            first=config.search_first_proximal_share,
            last=config.search_last_proximal_share,
            factor=config.search_proximal_factor,
        ),
    )


def coarse_plan(problem: UGW) -> Tensor:
    """Return the best initial plan (B, n, m), of mass 1, found from many candidates on clusters by `coarse_plans`."""
    return coarse_plans(problem, 1)[0][:, 0]


def coarse_plans(problem: UGW, count: int) -> tuple[Tensor, Tensor]:
    """Return the best different initial plans found, (B, S, n, m), best first, and objectives (B, S), S ≤ `count`.

    Plans have mass 1, objectives are those at the optimal mass, plus a penalty for missed hard marginals. An item with
    fewer different plans than S repeats its first one with the objective inf.

    Many candidates run on a few clusters, by successive halving; those that differ are prolongated to all points, run
    for a few steps together with the product plan a⊗b, and are compared again: plans and objectives are those after
    these steps. The order of two coarse objectives says little about the fine ones, the objective of a prolongated plan
    much, and a few steps nearly all. Problems of many points are aggregated to some hundred clusters first, where the
    search takes place, and only its best plan is prolongated to all points: S is 1, and the objective is that of the
    plan between clusters. Where clusters are single points, prolongation changes nothing.
    """
    if not size_class(*problem.largest).n_middle_clusters:
        plans, values = search(problem, count)
    else:
        problem_of_search = low_precision_problem(problem)
        with tf32_products():
            level = call_on_device(_middle_level, problem_of_search)
            plans, values = search(level.problem, 1)
            plans = call_on_device(_prolongate_first, problem_of_search, level, plans)
    return plans.to(problem.x.dtype), values


def search(problem: UGW, count: int) -> tuple[Tensor, Tensor]:
    """Return the best different plans found, (B, S, n, m), and their objectives, (B, S), best first, S ≤ `count`.

    Plans have mass 1, objectives are those at the optimal mass, plus a penalty for missed hard marginals. An item with
    fewer different plans than S repeats its first one with the objective inf. All candidates run on a few clusters and
    the best of them on all points of the problem, without a middle level.
    """
    config = INITIALIZER_CONFIG
    coarse, fine = _schedule(config.coarse_rounds, count), _schedule(fine_rounds(*problem.largest), count)
    if has_compiled_search(problem):
        plans, values = search_compiled(problem, count, search_solver(count), coarse, fine)
        plans = plans.to(problem.x.dtype)
    else:
        plans, values = _search_in_torch(problem, coarse, fine)
    if plans.is_cuda:  # the host does not wait for the number of different plans
        return plans[:, :count], values[:, :count]
    n_different = max(1, int(torch.isfinite(values[:, :count]).sum(1).max()))
    return plans[:, :n_different], values[:, :n_different]


def fine_rounds(n: int, m: int) -> tuple[tuple[int, int, float], ...]:
    """Return (steps, survivors, largest gap) of each round of the search on all n × m points.

    The gap is that to the best objective, in units of m(a)·m(b) times the typical size of an entry of the linearized
    cost; 0 steps evaluate plans only.
    """
    config = INITIALIZER_CONFIG
    return config.long_fine_rounds if size_class(n, m).has_long_search else config.short_fine_rounds


def _search_in_torch(problem: UGW, coarse: Sequence[Round], fine: Sequence[Round]) -> tuple[Tensor, Tensor]:
    """Return the plans (B, S, n, m) that survive successive halving on clusters, then on all points, and objectives.

    A round makes some solver steps from each candidate and keeps the best ones. The rounds `coarse` start from formulas
    (product, first lower bound, random) on a problem between clusters, the rounds `fine` from the survivors on all
    points and the product plan a⊗b. Plans have mass 1, objectives, (B, S), are at the optimal mass, plus a penalty for
    missed hard marginals. Both are computed in float32 or TF32 if that saves time at this size.
    """
    problem = low_precision_problem(problem)
    with tf32_products():
        level, plans = call_on_device(_coarsest_level, problem)
        plans, _ = successive_halving(level.problem, plans, coarse)
        plans, values = successive_halving(problem, call_on_device(_fine_candidates, problem, level, plans), fine)
    # Costs beyond the range of float32 leave no finite candidate: such items start from the product plan.
    is_finite = torch.isfinite(plans).flatten(2).all(2)[:, :, None, None]
    return torch.where(is_finite, plans, problem.product[:, None]), values


@cache
def _schedule(rounds: tuple[tuple[int, int, float], ...], count: int) -> tuple[Round, ...]:
    """Return the rounds of successive halving, up to and including the first that leaves at most `count` candidates.

    rounds: (n_steps, n_survivors, max_gap) of each; n_steps = 0 evaluates plans only; at least `count` plans survive;
    max_gap: largest gap to the best objective in units of `objective_scale`, without effect if count > 1.
    """
    n_needed = 1 + sum(n_survivors > count for _, n_survivors, _ in rounds)
    return tuple(
        Round(
            replace(search_solver(count), max_iter=n_steps) if n_steps else None,
            max(n_survivors, count),
            must_differ=True,
            max_gap=max_gap if count == 1 else math.inf,
        )
        for n_steps, n_survivors, max_gap in rounds[:n_needed]
    )


def _middle_level(problem: UGW) -> AggregatedProblem:
    """Return the problem aggregated to 100 to 400 clusters per side, with these clusters.

    Called only for problems of many points, for which `size_class` gives a number of middle clusters.
    """
    return aggregate(problem, size_class(*problem.largest).n_middle_clusters, quantile_centers, average=True)


def _prolongate_first(problem: UGW, level: AggregatedProblem, plans: Tensor) -> Tensor:
    """Return the prolongation to all points, (B, 1, n, m), of the first of each item's plans (B, S, k, l)."""
    return level.prolongate(plans[:, 0], problem)[:, None]


def _coarsest_level(problem: UGW) -> tuple[AggregatedProblem, Tensor]:
    """Return (level, plans): the problem aggregated to k and l clusters, and S initial plans of it, (B, S, k, l).

    The level contains the clusters and a problem whose eps is at least 0.005 of the mean distortion.
    The plans have mass 1 and are not solved yet: the product plan, the one of the first lower bound, and random ones,
    some of them replaced by the product plan in an item that tries fewer than others.
    """
    level = aggregate(problem, THRESHOLDS.n_coarse_clusters, farthest_centers, average=True)
    scale = level.problem.scale()
    eps = torch.maximum(problem.eps, INITIALIZER_CONFIG.min_coarse_eps_share * scale)
    small = replace(level.problem, eps=eps)
    counts = count_random_candidates(eps / scale)
    most = INITIALIZER_CONFIG.n_random_candidates if counts.is_cuda else int(counts.max())
    product = small.product[:, None]
    random = matching_anchor_plans(small, most)
    is_tried = torch.arange(most, device=counts.device) < counts[:, None]
    random = torch.where(is_tried[:, :, None, None], random, product)  # a repeated plan is dropped
    plans = torch.cat([product, first_lower_bound_plan(small)[:, None], random], dim=1)
    return replace(level, problem=small), break_symmetries(small, plans)


def count_random_candidates(eps_share: Tensor) -> Tensor:
    """Return how many random candidates each item tries, (B,), for its eps in units of the mean distortion, (B,).

    It is 2.5/eps_share rounded up, between 4 and 60: the smaller eps, the more local minima. It is 4 for NaN, which is
    the share where the mean distortion is beyond the range.
    """
    config = INITIALIZER_CONFIG
    counts = (config.random_candidates_times_eps_share / eps_share).ceil().nan_to_num(nan=config.min_random_candidates)
    return counts.clamp(config.min_random_candidates, config.n_random_candidates).long()


def _fine_candidates(problem: UGW, level: AggregatedProblem, plans: Tensor) -> Tensor:
    """Return plans (B, S, k, l) between clusters prolongated to all points, then a⊗b: (B, S + 1, n, m) of mass 1."""
    fine_plans = []
    for group, items in split_candidates(plans, (problem.x.n, problem.y.n)):
        repeated, own_level = (problem, level) if items is None else (problem.take(items), level.take(items))
        plan = own_level.prolongate(group.flatten(0, 1), repeated)
        fine_plans.append(plan.view(*group.shape[:2], *plan.shape[1:]))
    product = break_symmetries(problem, problem.product[:, None])
    return torch.cat([*fine_plans, product], dim=1)
