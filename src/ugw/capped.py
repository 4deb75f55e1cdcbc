"""Partial problems at the front door: TV and Mass read and checked, and the plans to start from."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from . import init as starts
from ._check import nonnegative
from .divergences import KL, TV, Mass
from .errors import InputError
from .multistart import best_of
from .parameters import Fused, Relative, build, eps_or, relative
from .problems.partial_gw import PartialGW
from .problems.problem import Matching
from .problems.unbalanced import UGW
from .solvers.alternate import AlternateMin
from .solvers.frank_wolfe import FrankWolfe

# eps, relative, of the UGW problem whose plans a partial problem starts from, and its steps.
TWIN_EPS, TWIN_STEPS = 1e-2, 30
# Plans of at most so many entries also start from so many random plans, and from so many corners of the polytope.
SMALL_PLAN, RANDOM_STARTS, CORNER_STARTS = 2500, 24, 16
# A price far below the cost is reached from above, by factors of ten, so many at most.
MOST_PRICES = 12
# A given mass may be above the smaller of both by so many units of rounding.
ROUNDING = 64.0


def build_capped(
    x: Any, y: Any, *, sides: tuple[TV | Mass, TV | Mass], eps: Any, fused: Fused | None, loss: Any
) -> tuple[PartialGW, UGW]:
    """The partial problem for two spaces, and a UGW problem between them, which has its starts."""
    _check_no_entropy(eps)
    rhos = [KL(side.rho) if isinstance(side, TV) else torch.ones_like(side.m) for side in sides]
    twin = build(x, y, rho=tuple(rhos), eps=relative(TWIN_EPS), fused=fused, loss=loss)
    if twin.infinite:
        raise InputError("TV and Mass need a loss that is finite everywhere, got one that is infinite somewhere")
    if twin.pairs is None:
        raise RuntimeError("a problem has its sum over pairs")
    div_a, div_b = (side.expand(twin.batch, x.device) for side in sides)
    if isinstance(div_a, Mass):
        check_mass(twin, div_a.m)
    zero = torch.zeros_like(twin.eps)
    problem = PartialGW(x, y, div_a, div_b, zero, twin.alpha, twin.cost, twin.pairs, batched=twin.batched)
    return problem, twin


def _check_no_entropy(eps: Any) -> None:
    eps = eps_or(eps, 0.0)
    if isinstance(eps, Relative) or bool((nonnegative("eps", eps) > 0).any()):
        raise InputError("TV and Mass are solved by exact linear programs, without entropy: eps must be 0, got more")


def check_mass(problem: Matching, mass: Tensor) -> None:
    """Refuse a mass (B,) above the mass of either side."""
    most = torch.minimum(problem.log_mass_a, problem.log_mass_b).exp()
    bad = mass > most * (1.0 + ROUNDING * torch.finfo(problem.x.dtype).eps)
    if bool(bad.any()):
        i = int(torch.nonzero(bad)[0])
        item = f" in item {i}" if problem.batched else ""
        raise InputError(
            f"Mass(m) must be at most the smaller of both masses, got m = {float(mass[i]):.9g}{item}, "
            f"expected at most {float(most[i]):.9g}"
        )


def capped_plans(problem: PartialGW, twin: UGW, plans: Tensor, init: Any) -> Tensor:
    """The plans (B, S, n, m) from which a partial problem starts. plans: those of its twin for `init`.

    A given plan keeps its mass. The others are as heavy as they can be: along a ray the objective is a parabola
    through the empty plan, so that a light start would be a step towards that.
    """
    if not isinstance(init, str):
        return plans
    if init in ("auto", "best"):
        first = torch.arange(problem.batch, device=plans.device).repeat_interleave(plans.shape[1])
        found = AlternateMin(max_iter=TWIN_STEPS)(twin.take(first), plans.flatten(0, 1)).tensors.plan
        plans = torch.cat([plans, found.view_as(plans)], dim=1)
        if problem.x.n * problem.y.n <= SMALL_PLAN:
            more = starts.random(problem, RANDOM_STARTS), starts.corners(problem, CORNER_STARTS)
            plans = torch.cat([plans, *more], dim=1)
    heavy = (problem.unit * problem.most).to(plans.dtype)[:, None, None, None]
    plans = starts.unit(plans) * heavy
    if init in ("auto", "best") and isinstance(problem.div_a, TV):
        plans = torch.cat([plans, _from_above(problem, plans)[:, None]], dim=1)
    return plans


def _from_above(problem: PartialGW, plans: Tensor) -> Tensor:
    """The plan (B, n, m) at a price of the size of the cost, followed down to near the problem's price.

    At a low price a plan pays only once it is nearly right, and from afar all leads to the empty plan. At a high one
    mass stays, and what is right about the plan remains so. plans: (B, S, n, m), from which the first price starts.
    """
    dear = (problem.mean() / problem.reward).clamp(min=1.0)
    plan = plans[:, 0]
    for k in range(min(math.ceil(math.log10(float(dear.max()))), MOST_PRICES), 0, -1):
        # The price of an item depends on itself alone: at its highest one it waits for those that are higher.
        raised = dear.clamp(max=10.0**k)
        above = replace(problem, div_a=TV(problem.div_a.rho * raised), div_b=TV(problem.div_b.rho * raised))
        plan = best_of(FrankWolfe(), above, plans).tensors.plan
        plans = plan[:, None]
    return plan
