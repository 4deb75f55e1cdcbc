"""Partial problems at the front door: TV and Mass read and checked, and the plans to start from."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .._utils.checks import as_nonnegative
from .._utils.size_class import size_class
from ..errors import InputError
from ..measures.divergences import KL, TV, Mass
from ..problems.base import SpacePair
from ..problems.build import Fused, Relative, build, eps_or, relative
from ..problems.partial.gw import PartialGW
from ..problems.ugw import UGW
from ..solvers.alternating import AlternateMin
from ..solvers.frank_wolfe import FrankWolfe
from . import plans as starts
from .multistart import best_of
from .select import first_plans

# A partial problem starts from plans of a UGW problem. Its rho is that of TV, or where a mass is given this share of
# the mean distortion; its eps a share of the mean distortion, and at most a share of rho: where entropy outweighs the
# price of leaving mass behind, nothing is told apart. It makes so many steps, and without entropy so many.
GIVEN_RHO, TWIN_EPS, OF_RHO, TWIN_STEPS, SHARP_STEPS = 0.03, 1e-2, 0.2, 30, 100
# Small plans also start from so many random plans, and from so many corners of the polytope.
RANDOM_STARTS, CORNER_STARTS = 24, 16
# A price far below the cost is reached from above, by factors of ten, so many at most.
MOST_PRICES = 12
# A given mass may be above the smaller of both by so many units of rounding.
ROUNDING = 64.0


def build_capped(
    x: Any, y: Any, *, sides: tuple[TV | Mass, TV | Mass], eps: Any, fused: Fused | None, loss: Any
) -> tuple[PartialGW, UGW]:
    """The partial problem for two spaces, and a UGW problem between them, which has its starts."""
    _check_no_entropy(eps)
    rhos = [KL(side.rho.detach()) if isinstance(side, TV) else torch.ones_like(side.m) for side in sides]
    twin = build(x, y, rho=tuple(rhos), eps=relative(TWIN_EPS), fused=fused, loss=loss)
    if twin.infinite:
        raise InputError("TV and Mass need a loss that is finite everywhere, got one that is infinite somewhere")
    if twin.distortion_sum is None:
        raise RuntimeError("a problem has its distortion sum")
    div_a, div_b = (side.expand(twin.batch, x.device) for side in sides)
    if isinstance(div_a, Mass):
        check_mass(twin, div_a.m)
    zero = torch.zeros_like(twin.eps)
    problem = PartialGW(x, y, div_a, div_b, zero, twin.alpha, twin.cost, twin.distortion_sum, batched=twin.batched)
    return problem, _priced(twin, given=isinstance(div_a, Mass))


def _priced(twin: UGW, *, given: bool) -> UGW:
    """The problem whose plans are starts, with its rho and eps."""
    rho = KL(twin.eps * (GIVEN_RHO / TWIN_EPS)) if given else None
    twin = twin if rho is None else replace(twin, div_a=rho, div_b=rho)
    return replace(twin, eps=torch.minimum(twin.eps, OF_RHO * torch.minimum(twin.div_a.rho, twin.div_b.rho)))


def _check_no_entropy(eps: Any) -> None:
    eps = eps_or(eps, 0.0)
    if isinstance(eps, Relative) or bool((as_nonnegative("eps", eps) > 0).any()):
        raise InputError("TV and Mass are solved by exact linear programs, without entropy: eps must be 0, got more")


def check_mass(problem: SpacePair, mass: Tensor) -> None:
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
    heavy = (problem.unit * problem.most).to(plans.dtype)[:, None, None, None]
    if init in ("auto", "best"):
        above = _from_above(problem, twin, heavy)
        plans = _with_twins(twin, plans)
        if size_class(*problem.largest).tries_many_vertices:
            more = starts.random(problem, RANDOM_STARTS), starts.corners(problem, CORNER_STARTS)
            plans = torch.cat([plans, *more], dim=1)
        return torch.cat([starts.unit(plans) * heavy, above], dim=1)
    return starts.unit(plans) * heavy


def _with_twins(twin: UGW, plans: Tensor) -> Tensor:
    """The plans (B, S, n, m) and where the twin goes from them, (B, 2S, n, m)."""
    first = torch.arange(twin.batch, device=plans.device).repeat_interleave(plans.shape[1])
    found = AlternateMin(max_iter=TWIN_STEPS)(twin.take(first), plans.flatten(0, 1)).tensors.plan
    return torch.cat([plans, found.view_as(plans)], dim=1)


def _from_above(problem: PartialGW, twin: UGW, heavy: Tensor) -> Tensor:
    """Sharp plans, for a price that is low beside the cost: of the twin at that price, and from higher prices.

    At a low price a plan pays only once it is nearly right, and from afar all leads to the empty plan. The twin, which
    may pay in part, gets closer without entropy. At a high price mass stays, and what is right about a plan remains so
    as the price falls; but outliers that had to be matched then hold on to what they were matched to, so that the twin
    is asked at every price. heavy: the mass of starts. Returns (B, S, n, m), S = 0 for a given mass.
    """
    best = heavy.new_empty(problem.batch, 0, problem.x.n, problem.y.n)
    if isinstance(problem.div_a, Mass) or isinstance(problem.div_b, Mass):
        return best
    dear = (problem.mean() / problem.reward).clamp(min=1.0)
    for k in range(min(math.ceil(math.log10(float(dear.max()))), MOST_PRICES), -1, -1):
        # The price of an item depends on itself alone: at its highest one it waits for those that are higher.
        raised = dear.clamp(max=10.0**k)
        rhos = [side.rho * raised for side in (problem.div_a, problem.div_b)]
        sharp = replace(twin, div_a=KL(rhos[0]), div_b=KL(rhos[1]), eps=torch.zeros_like(twin.eps))
        found = best_of(AlternateMin(max_iter=SHARP_STEPS), sharp, first_plans(sharp, "auto")).tensors.plan[:, None]
        best = torch.cat([starts.unit(found) * heavy, best], dim=1)
        if k > 0:
            above = replace(problem, div_a=TV(rhos[0]), div_b=TV(rhos[1]))
            best = best_of(FrankWolfe(), above, best).tensors.plan[:, None]
    return best
