"""How a conic problem is solved: what builds it, its solver, and the plans from which it starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from . import init as starts
from ._precision import rough
from .cones import GaussianHellinger
from .first_plans import SMALL_PLAN, TINY_PLAN, first_plans
from .multistart import Multistart, best_of
from .parameters import build_conic, build_partial
from .problems.conic import CGW
from .problems.partial import PartialCGW
from .problems.unbalanced import UGW
from .solvers.alternate import AlternateMin
from .solvers.programs import AlternateLP
from .solvers.sinkhorn import Sinkhorn

# The starts that a conic problem improves before it takes them: by so many steps of UGW, and on CUDA by so many of
# its own with rough products.
INFORMED, CHEAP_STEPS, ROUGH_STEPS = ("auto", "best", "coarse"), 15, 10
# The best plan for UGW need not be the best for CGW: so many coarse ones race against plans of noise, as many as have
# so many entries in all but no more than this, and so many that differ are kept.
CARRIED, NOISY_ENTRIES, NOISY, KEPT = 3, 200_000, 256, 3
# The steps of that race. A tiny problem has nothing but noise in it: there these cost less than a start from UGW.
RACE = AlternateMin(tol=1e-4, max_iter=8, inner=Sinkhorn(tol=1e-3, max_iter=10), proximal=(0.03, 0.001, 0.6))
# Starts by linear programs, besides those of "auto": from random anchor pairs, and corners of the transport polytope.
RANDOM_STARTS, CORNER_STARTS = 24, 16


@dataclass(frozen=True)
class Way:
    """How to solve a conic problem: what builds it and its UGW twin, the solver, and what makes the first plans."""

    build: Callable[..., tuple[Any, UGW]]
    solver: AlternateMin | AlternateLP
    plans: Callable[[Any, UGW, Any, Any], Tensor]


# A product with the kernel costs far more than a linear step: these may be sharp.
TRANSPORT = AlternateMin(inner=Sinkhorn(max_iter=200), proximal=(0.003, 0.001, 0.8))


def _kernel_plans(problem: CGW, twin: UGW, solver: Any, init: Any) -> Tensor:
    """The plans (B, S, n, m) from which a conic problem over KL starts."""
    if not isinstance(init, str) or init not in INFORMED:
        return first_plans(twin, init)
    few = problem.x.n * problem.y.n <= SMALL_PLAN
    if init == "best" or (init == "auto" and few):
        return _raced(problem, twin)
    with rough():  # of many points the best plan for UGW is the best for CGW, or nearly
        plans, _ = starts.race(AlternateMin(max_iter=CHEAP_STEPS), twin, starts.coarse(twin)[:, None])
        if plans.is_cuda and plans.dtype == torch.float32:
            cheap = replace(plain(solver), max_iter=ROUGH_STEPS, callback=None, progress=False)
            plans, _ = starts.race(cheap, problem, plans)
    return plans


def _raced(problem: CGW, twin: UGW) -> Tensor:
    """Of many plans the best after a few steps, as far as they differ."""
    entries = problem.x.n * problem.y.n
    plans = torch.cat([problem.product[:, None], starts.noisy(problem, min(NOISY, NOISY_ENTRIES // entries))], dim=1)
    if entries > TINY_PLAN:
        informed = starts.several(twin, CARRIED), starts.product(twin)[:, None], starts.flb(twin)[:, None]
        better, _ = starts.race(AlternateMin(max_iter=CHEAP_STEPS), twin, torch.cat(informed, dim=1))
        plans = torch.cat([better, plans], dim=1)
    plans, values = starts.race(RACE, problem, plans)
    return starts.picked(plans, torch.stack(list(starts.different(plans, values, KEPT)), dim=1))


def _program_plans(problem: PartialCGW, twin: UGW, solver: Any, init: Any) -> Tensor:
    """The plans (B, S, n, m) from which linear programs start: many for "auto" and "best", as each ends nearby."""
    plans = first_plans(twin, init)
    if not isinstance(init, str) or init not in ("auto", "best"):
        return plans
    way, rhos = WAYS[GaussianHellinger.steps], (twin.div_a, twin.div_b)
    smooth, _ = way.build(twin.x, twin.y, rho=rhos, cone=GaussianHellinger(), eps=0.0)
    found = best_of(way.solver, smooth, way.plans(smooth, twin, way.solver, init)).tensors.plan
    more = starts.random(problem, RANDOM_STARTS), starts.corners(problem, CORNER_STARTS)
    return torch.cat([plans, starts.unit(found)[:, None], *more], dim=1)


def plain(solver: AlternateMin | AlternateLP | Multistart) -> Any:
    """The solver that a Multistart repeats, or the solver itself."""
    return solver.solver if isinstance(solver, Multistart) else solver


# By the kind of step that a cone asks for.
WAYS = {
    "transport": Way(build_conic, TRANSPORT, _kernel_plans),
    "programs": Way(build_partial, AlternateLP(), _program_plans),
}
