"""Strategies for conic problems: the function that builds a problem, its solver, and its initial plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.precision import tf32_products
from .._utils.size_class import size_class
from ..measures.cones import GaussianHellinger
from ..problems.build import build_conic, build_partial_conic
from ..problems.cgw import CGW
from ..problems.partial.cgw import PartialCGW
from ..problems.ugw import UGW
from ..solvers.alternating import AlternateMin
from ..solvers.alternating_lp import AlternateLP
from ..solvers.proximal import ProximalSchedule
from ..solvers.sinkhorn import Sinkhorn
from .coarse import coarse_plan, coarse_plans
from .config import INITIALIZER_CONFIG
from .multistart import base_solver
from .plans import first_lower_bound_plan, noise_plans, starts_of_linear_programs
from .select import candidate_plans
from .successive_halving import Round, different_candidates, pick_plans, successive_halving

# Initial plans that a conic solve first improves by steps of UGW (its surrogate), and then by its own steps.
IMPROVED_STARTS = ("auto", "best", "coarse")
# A product with the kernel costs far more than a linear step: a linear step may be sharp.
TRANSPORT_SOLVER = AlternateMin(
    inner=Sinkhorn(max_iter=200), proximal=ProximalSchedule(first=0.003, last=0.0003, factor=0.8)
).with_defaults()
# A few steps of the UGW problem from each of its candidates.
SURROGATE_SCHEDULE = (Round(AlternateMin(max_iter=INITIALIZER_CONFIG.n_surrogate_steps)),)
# CGW compares candidates by a few steps with few inner iterations, whose entropy falls fast.
SEARCH_SOLVER = AlternateMin(
    tol=1e-4, inner=Sinkhorn(tol=1e-3, max_iter=10), proximal=ProximalSchedule(first=0.03, last=0.001, factor=0.6)
)


def conic_rounds(solver: AlternateMin, rounds: tuple[tuple[int, int], ...], *, must_differ: bool) -> tuple[Round, ...]:
    """Return rounds of successive halving whose proximal entropy falls over all of them as in one run of the solver.

    rounds: number of steps and of survivors of each; must_differ: are plans close to a better one dropped?
    """
    schedule, n_before, proximal = [], 0, solver.proximal or ProximalSchedule()
    for n_steps, n_survivors in rounds:
        first = max(proximal.last, proximal.first * proximal.factor**n_before)
        stage = replace(solver, max_iter=n_steps, proximal=replace(proximal, first=first))
        schedule.append(Round(stage, n_survivors, must_differ=must_differ))
        n_before += n_steps
    return tuple(schedule)


SEARCH_SCHEDULE = conic_rounds(SEARCH_SOLVER, INITIALIZER_CONFIG.conic_search_rounds, must_differ=False)
# The best of them that differ are compared by steps like those of the solve: which one is best shows only then.
COMPARISON_SCHEDULE = conic_rounds(TRANSPORT_SOLVER, INITIALIZER_CONFIG.conic_comparison_rounds, must_differ=True)


@dataclass(frozen=True)
class Strategy:
    """How one kind of conic problem is solved.

    build: makes the problem, and the UGW problem of the same spaces, for which initial plans are made; solver: the
    default options; candidates: maps (problem, UGW problem, solver, init) to the initial plans (B, S, n, m).
    """

    build: Callable[..., tuple[Any, UGW]]
    solver: AlternateMin | AlternateLP
    candidates: Callable[[Any, UGW, Any, Any], Tensor]


def transport_candidates(problem: CGW, surrogate: UGW, solver: Any, init: Any) -> Tensor:
    """Return the initial plans (B, S, n, m) of a conic problem over KL whose items are of one size class.

    S ≤ 8 for "best", otherwise 1; plans have mass 1, only a given one keeps its mass. "coarse", and "auto" with many
    points, improve the best plan of UGW by steps of UGW; "auto" with few points returns the best plan of "best" after
    steps of CGW. surrogate: the UGW problem of the same spaces, for which candidates are made; solver: of the conic
    problem; init: the name of an initial plan, or a plan.
    """
    if not isinstance(init, str) or init not in IMPROVED_STARTS:
        return candidate_plans(surrogate, init)
    if init == "best":
        return _different_conic_candidates(problem, surrogate)
    if init == "auto" and not size_class(*surrogate.largest).n_middle_clusters:
        plans = _different_conic_candidates(problem, surrogate)
        return successive_halving(problem.truncate_kernel(), plans, COMPARISON_SCHEDULE)[0]
    with tf32_products():  # with many points the best plan for UGW is the best for CGW, or nearly
        plans, _ = successive_halving(surrogate, coarse_plan(surrogate)[:, None], SURROGATE_SCHEDULE)
        if plans.is_cuda and plans.dtype == torch.float32:
            n_steps = INITIALIZER_CONFIG.n_tf32_steps
            tf32 = replace(base_solver(solver), max_iter=n_steps, callback=None, progress=False)
            plans, _ = successive_halving(problem, plans, (Round(tf32),))
    return plans


def n_conic_candidates(init: Any, n: int, m: int) -> int:
    """Return how many plans `transport_candidates` compares by steps of a problem of n × m points; init: its start."""
    size = size_class(n, m)
    if not isinstance(init, str) or init not in ("auto", "best") or (init == "auto" and size.n_middle_clusters):
        return 1
    return INITIALIZER_CONFIG.n_conic_coarse + 3 + size.n_noise_candidates  # 3: two product plans, first lower bound


def _different_conic_candidates(problem: CGW, surrogate: UGW) -> Tensor:
    """Return the best different plans (B, S, n, m), of mass 1, S ≤ 8, after a few steps of CGW from many candidates.

    An item with fewer different plans repeats its best. Candidates are plans improved by a few steps of the surrogate
    (the UGW problem of the same spaces), the product plan and noise plans.
    """
    problem.cost_scale()  # computed once, for all candidates
    coarse, _ = coarse_plans(surrogate, INITIALIZER_CONFIG.n_conic_coarse)
    simple = surrogate.product[:, None], first_lower_bound_plan(surrogate)[:, None]
    improved, _ = successive_halving(surrogate, torch.cat([coarse, *simple], dim=1), SURROGATE_SCHEDULE)
    noise = noise_plans(problem, size_class(*surrogate.largest).n_noise_candidates)
    plans = torch.cat([improved, problem.product[:, None], noise], dim=1)
    plans, values = successive_halving(problem.truncate_kernel(), plans, SEARCH_SCHEDULE)
    return pick_plans(plans, different_candidates(plans, values, INITIALIZER_CONFIG.n_conic_survivors))


def linear_program_candidates(problem: PartialCGW, surrogate: UGW, solver: Any, init: Any) -> Tensor:
    """Return the initial plans (B, S, n, m) of partial transport: many, because linear programs end near their start.

    Among them is the solution for the Gaussian–Hellinger cone, which is smooth. surrogate: the UGW problem of the same
    spaces; solver: of the conic problem, not used; init: the name of an initial plan, or a plan.
    """
    if not isinstance(init, str) or init not in ("auto", "best"):
        return candidate_plans(surrogate, init)
    smooth, rhos = STRATEGIES[GaussianHellinger.solver_kind], (surrogate.div_a, surrogate.div_b)
    conic, _ = smooth.build(surrogate.x, surrogate.y, rho=rhos, cone=GaussianHellinger(), eps=0.0)
    schedule = (Round(TRANSPORT_SOLVER, 1, tie_tolerance=INITIALIZER_CONFIG.solution_tie),)
    solution, _ = successive_halving(conic, smooth.candidates(conic, surrogate, smooth.solver, init), schedule)
    return torch.cat([candidate_plans(surrogate, init), solution, starts_of_linear_programs(problem)], dim=1)


def run_entropic_phase(problem: Any, solver: Any, plans: Tensor) -> tuple[Any, Tensor]:
    """Return the problem with eps = 0, and the plans (B, S, n, m), scaled to mass 1, after up to 50 steps with eps > 0.

    plans: (B, S, n, m), S initial plans for each item; those of items with eps = 0 are returned unchanged. The rest of
    a solve has no entropy, because steps with entropy lead away from a solution, whose plan is sparse.
    """
    has_entropy = problem.eps > 0
    if not bool(has_entropy.any()):
        return problem, plans
    n_steps = INITIALIZER_CONFIG.n_entropic_steps
    given = base_solver(solver)
    inner = replace(given.inner, tol=None)
    entropic = replace(given, max_iter=n_steps, tol=1e-3, inner=inner, callback=None, progress=False)
    ends, _ = successive_halving(problem, plans, (Round(entropic),))
    plans = torch.where(has_entropy[:, None, None, None], ends, plans)
    return replace(problem, eps=torch.zeros_like(problem.eps)), plans


# By the kind of step that a cone asks for.
STRATEGIES = {
    "transport": Strategy(build_conic, TRANSPORT_SOLVER, transport_candidates),
    "programs": Strategy(build_partial_conic, AlternateLP(), linear_program_candidates),
}
