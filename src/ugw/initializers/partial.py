"""Initial plans of problems that Frank–Wolfe solves, from those of a UGW problem of the same spaces, the surrogate.

Such problems are partial ones, TV or Mass, and balanced GW without entropy.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .._utils.size_class import size_class
from ..measures.divergences import KL, TV, Mass
from ..problems.partial.gw import PartialGW
from ..problems.ugw import UGW
from ..solvers.alternating import AlternateMin
from ..solvers.frank_wolfe import FrankWolfe
from .config import INITIALIZER_CONFIG
from .plans import starts_of_linear_programs, to_unit_mass
from .select import candidate_plans, n_candidate_plans
from .successive_halving import Round, successive_halving
from .swapped_vertices import swapped_vertices

# Balanced GW without entropy alternates from all its candidates but the product plan.
ALTERNATING_SCHEDULE = (Round(AlternateMin(max_iter=INITIALIZER_CONFIG.n_alternating_steps_before_vertex)),)
# Steps of the UGW problem (surrogate) from each of its candidates.
SURROGATE_SCHEDULE = (Round(AlternateMin(max_iter=INITIALIZER_CONFIG.n_partial_surrogate_steps)),)
# Steps of the UGW problem without entropy, at one penalty: the best of its candidates survives.
UNREGULARIZED_SCHEDULE = (
    Round(
        AlternateMin(max_iter=INITIALIZER_CONFIG.n_unregularized_steps),
        1,
        tie_tolerance=INITIALIZER_CONFIG.solution_tie,
    ),
)
# Steps of the partial problem at one penalty: the better of two candidates survives.
PENALTY_SCHEDULE = (
    Round(FrankWolfe(max_iter=INITIALIZER_CONFIG.n_penalty_steps), 1, tie_tolerance=INITIALIZER_CONFIG.solution_tie),
)


def balanced_candidates(problem: UGW, init: Any) -> Tensor:
    """Return the initial plans (B, S, n, m) from which Frank–Wolfe solves balanced GW without entropy.

    problem: a UGW problem with rho = inf and eps = 0, whose items are of one size class; init: the name of an initial
    plan, whose plans have mass 1, or a plan, which is returned with S = 1. Between few points "auto" compares vertices
    after swaps, otherwise plans after entropic steps; "best" does both. The product plan is always a candidate of
    "auto" and "best", so that the solution is no worse than that of a conditional gradient from it.
    """
    if not isinstance(init, str) or init not in ("auto", "best"):
        return candidate_plans(problem, init)
    candidates = [problem.product[:, None]]
    balanced = PartialGW.balanced(problem)
    swaps = balanced.has_swaps and size_class(*problem.largest).compares_swapped_vertices
    if swaps:
        candidates.insert(0, swapped_vertices(balanced))
    if init == "best" or not swaps:
        plans, _ = successive_halving(problem, candidate_plans(problem, init), ALTERNATING_SCHEDULE)
        candidates.insert(0, plans)
    return torch.cat(candidates, dim=1)


def n_vertices_that_step(init: str, n: int, m: int) -> int:
    """Return how many vertices of an item `balanced_candidates` improves by linear steps at a time, at most.

    0 for starts other than "auto" and "best" and for many points. init: the name of a start; n, m: numbers of points.
    """
    is_searched = init in ("auto", "best") and size_class(n, m).compares_swapped_vertices
    return INITIALIZER_CONFIG.swapped_survivors[0] if is_searched else 0


def n_balanced_candidates(init: str, n: int, m: int) -> int:
    """Return how many initial plans `balanced_candidates` returns at most for n × m points; init: the name of a start.

    >>> n_balanced_candidates("auto", 20, 20), n_balanced_candidates("auto", 50, 50)
    (3, 2)
    """
    if init not in ("auto", "best"):
        return 1
    n_swapped = INITIALIZER_CONFIG.swapped_survivors[-1] if size_class(n, m).compares_swapped_vertices else 0
    return 1 + n_swapped + (n_candidate_plans(init, n, m) if init == "best" or not n_swapped else 0)


def partial_candidates(problem: PartialGW, surrogate: UGW, init: Any) -> Tensor:
    """Return the initial plans (B, S, n, m), with their mass, of a partial problem of items of one size class.

    surrogate: the UGW problem of the same spaces, whose plans are the candidates; init: the name of an initial plan, or
    a plan, which keeps its mass. All other plans get the largest possible mass: along a ray the objective is a parabola
    through the empty plan, so that a plan of little mass would lead to the empty one.
    """
    plans = candidate_plans(surrogate, "best" if isinstance(init, str) and init == "auto" else init)
    if not isinstance(init, str):
        return plans
    max_mass = (problem.mass_unit * problem.max_mass).to(plans.dtype)[:, None, None, None]
    if init not in ("auto", "best"):
        return to_unit_mass(plans) * max_mass
    continued = _penalty_continuation(problem, surrogate, max_mass)
    improved, _ = successive_halving(surrogate, plans, SURROGATE_SCHEDULE)
    plans = torch.cat([plans, improved], dim=1)
    if size_class(*problem.largest).tries_many_vertices:
        plans = torch.cat([plans, starts_of_linear_programs(problem)], dim=1)
    return torch.cat([to_unit_mass(plans) * max_mass, continued], dim=1)


def n_partial_candidates(problem: PartialGW, init: str) -> int:
    """Return how many initial plans `partial_candidates` returns at most; init: the name of a start."""
    if init not in ("auto", "best"):
        return 1
    n, m, config = problem.x.n, problem.y.n, INITIALIZER_CONFIG
    n_of_linear_programs = config.n_random_starts + config.n_vertex_starts
    n_others = n_of_linear_programs if size_class(n, m).tries_many_vertices else 0
    return 2 * n_candidate_plans("best", n, m) + n_others + (0 if isinstance(problem.div_a, Mass) else 2)


def _penalty_continuation(problem: PartialGW, surrogate: UGW, max_mass: Tensor) -> Tensor:
    """Return plans (B, S, n, m) of mass max_mass found by lowering the rhos of a TV problem to their values by tens.

    At each level there are two plans: the better one of the level above, and the best plan of `surrogate`, the UGW
    problem of the same spaces, at eps = 0 with the rhos of the level, scaled to `max_mass`, (B, 1, 1, 1). Frank–Wolfe
    steps from both select the better one; at the last level both are returned: S = 2, or 1 if there is one level, or 0
    for Mass, which has no rho.

    Where unmatched mass costs little compared with distortion, only plans that are nearly right are better than the
    empty plan. At high rhos all mass stays matched, and what is right about a plan remains as they fall, but outliers
    keep their partners; plans of the UGW problem may match a point in part.
    """
    plans = max_mass.new_empty(problem.batch, 0, problem.x.n, problem.y.n)
    if isinstance(problem.div_a, Mass) or isinstance(problem.div_b, Mass):
        return plans
    ratio = (problem.mean_cost() / problem.total_penalty).clamp(min=1.0)
    n_levels = min(math.ceil(math.log10(float(ratio.max()))), INITIALIZER_CONFIG.max_penalty_levels)
    for level in range(n_levels, -1, -1):
        # An item whose penalty needs less raising repeats its highest one until the others have come down to it.
        factor = ratio.clamp(max=10.0**level)
        rho_a, rho_b = (side.rho * factor for side in (problem.div_a, problem.div_b))
        sharp = replace(surrogate, div_a=KL(rho_a), div_b=KL(rho_b), eps=torch.zeros_like(surrogate.eps))
        best, _ = successive_halving(sharp, candidate_plans(sharp, "auto"), UNREGULARIZED_SCHEDULE)
        plans = torch.cat([to_unit_mass(best) * max_mass, plans], dim=1)
        if level > 0:
            raised = replace(problem, div_a=TV(rho_a), div_b=TV(rho_b))
            plans, _ = successive_halving(raised, plans, PENALTY_SCHEDULE)
    return plans
