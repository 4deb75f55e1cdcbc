"""How a conic problem is solved: what builds it, its solver, and the plans from which it starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from .._utils.precision import rough
from .._utils.size_class import size_class
from ..measures.cones import GaussianHellinger
from ..problems.build import build_conic, build_partial
from ..problems.cgw import CGW
from ..problems.partial.cgw import PartialCGW
from ..problems.ugw import UGW
from ..solvers.alternating import AlternateMin
from ..solvers.alternating_lp import AlternateLP
from ..solvers.sinkhorn import Sinkhorn
from . import coarse
from . import plans as starts
from .multistart import Multistart, best_of
from .select import first_plans

# The starts that a conic problem improves before it takes them: by so many steps of UGW, and on CUDA by so many of
# its own with rough products.
INFORMED, CHEAP_STEPS, ROUGH_STEPS = ("auto", "best", "coarse"), 15, 10
# The best plan for UGW need not be the best for CGW: so many coarse ones race against plans of noise, and so many that
# differ are kept.
CARRIED, KEPT = 3, 3
# The steps of that race. A tiny problem has nothing but noise in it: there these cost less than a start from UGW.
RACE = AlternateMin(tol=1e-4, max_iter=8, inner=Sinkhorn(tol=1e-3, max_iter=10), proximal=(0.03, 0.001, 0.6))
# Steps with the entropy that a caller asked for, and when they have done what they can.
SOFT_STEPS, SOFT_TOL = 50, 1e-3
# Starts by linear programs, besides those of "auto": from random anchor pairs, and corners of the transport polytope.
RANDOM_STARTS, CORNER_STARTS = 24, 16


Options = TypeVar("Options")


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
    if init == "best" or (init == "auto" and size_class(*twin.largest).has_product_candidate):
        return _raced(problem, twin)
    with rough():  # of many points the best plan for UGW is the best for CGW, or nearly
        plans, _ = coarse.race(AlternateMin(max_iter=CHEAP_STEPS), twin, coarse.start(twin)[:, None])
        if plans.is_cuda and plans.dtype == torch.float32:
            cheap = replace(plain(solver), max_iter=ROUGH_STEPS, callback=None, progress=False)
            plans, _ = coarse.race(cheap, problem, plans)
    return plans


def _raced(problem: CGW, twin: UGW) -> Tensor:
    """Of many plans the best after a few steps, as far as they differ."""
    sizes = size_class(*twin.largest)
    plans = torch.cat([problem.product[:, None], starts.noisy(problem, sizes.n_noise_candidates)], dim=1)
    if not sizes.is_tiny:
        informed = coarse.several(twin, CARRIED), starts.product(twin)[:, None], starts.flb(twin)[:, None]
        better, _ = coarse.race(AlternateMin(max_iter=CHEAP_STEPS), twin, torch.cat(informed, dim=1))
        plans = torch.cat([better, plans], dim=1)
    plans, values = coarse.race(RACE, problem, plans)
    return coarse.picked(plans, torch.stack(list(coarse.different(plans, values, KEPT)), dim=1))


def _program_plans(problem: PartialCGW, twin: UGW, solver: Any, init: Any) -> Tensor:
    """The plans (B, S, n, m) from which linear programs start: many for "auto" and "best", as each ends nearby."""
    if not isinstance(init, str) or init not in ("auto", "best"):
        return first_plans(twin, init)
    way, rhos = WAYS[GaussianHellinger.solver_kind], (twin.div_a, twin.div_b)
    smooth, _ = way.build(twin.x, twin.y, rho=rhos, cone=GaussianHellinger(), eps=0.0)
    found = best_of(way.solver, smooth, way.plans(smooth, twin, way.solver, init)).tensors.plan
    more = starts.random(problem, RANDOM_STARTS), starts.corners(problem, CORNER_STARTS)
    return torch.cat([first_plans(twin, init), starts.unit(found)[:, None], *more], dim=1)


def softened(problem: Any, solver: Any, plans: Tensor) -> tuple[Any, Tensor]:
    """The problem without entropy, and the plans (B, S, n, m) where steps with it lead to.

    These do not get to the end by themselves: near a solution, which is sharp, a step with entropy leads away.
    """
    soft = problem.eps > 0
    if not bool(soft.any()):
        return problem, plans
    first = replace(plain(solver), max_iter=SOFT_STEPS, tol=SOFT_TOL, callback=None, progress=False)
    ends, _ = coarse.race(first, problem, plans)
    return replace(problem, eps=torch.zeros_like(problem.eps)), torch.where(soft[:, None, None, None], ends, plans)


def plain(solver: AlternateMin | AlternateLP | Multistart) -> Any:
    """The solver that a Multistart repeats, or the solver itself."""
    return solver.solver if isinstance(solver, Multistart) else solver


def tuned(options: Options, own: Any) -> Options:
    """A solver, also one in a Multistart, with the options of `own` where its own are still their defaults.

    >>> tuned(AlternateMin(tol=1e-3), TRANSPORT) == replace(TRANSPORT, tol=1e-3)
    True
    """
    if isinstance(options, Multistart):
        return replace(options, solver=tuned(options.solver, own))
    default, changes = type(own)(), {}
    for name in (f.name for f in fields(own)):
        given, better = getattr(options, name), getattr(own, name)
        if is_dataclass(given):
            changes[name] = tuned(given, better)
        elif given == getattr(default, name):
            changes[name] = better
    return replace(options, **changes)  # type: ignore[type-var]


# By the kind of step that a cone asks for.
WAYS = {
    "transport": Way(build_conic, TRANSPORT, _kernel_plans),
    "programs": Way(build_partial, AlternateLP(), _program_plans),
}
