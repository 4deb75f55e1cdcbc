"""What the steps of a run share: how sharp they may be, and what counts as settled, as no change and as noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.cuda_graphs.calls import prepared
from .._utils.pytree import take_fields
from ..problems.base import Problem
from ..results.records import Status

# Rounding that moves more than this share of the plan makes a result untrustworthy (PRECISION).
TRUSTED = 1e-3
# The proximal term of a step rises to this share of the cost's size while the inner solver does not keep up.
STRONGEST = 0.3
# Rounding errors add up to this many times those of one entry; a plan that has settled still moves by so many of them.
ROUNDING, NOISY = 8.0, 4.0
# The inner residual is at most this over the square root of rho in units of the cost.
STIFF = 1e-3
# Inner solves aim at this share of the last change of the plan.
FORCING = 0.1
# Objectives differ if they do by this share of the tolerance of what is at stake.
NOTHING = 1e-4


@dataclass(frozen=True, eq=False)
class Context:
    """What a step needs besides the state, (B,) each.

    The entropy of a step goes from `start` to `end`, and never above `most`; what it has beyond eps is proximal,
    so that its fixed points are those of the problem. limit: the change and the residual of a plan that has
    settled; rounding alone, `noise`, may be above it.
    """

    problem: Problem
    options: Any  # those of an AlternateMin
    start: Tensor
    end: Tensor
    most: Tensor
    limit: Tensor
    residual_limit: Tensor
    noise: Tensor
    proximal: bool  # do steps have a proximal term?
    free: Tensor | None  # (B,) bool, those that may be extrapolated, None if there are none
    scale: Tensor  # the size of the cost
    aim: Tensor  # inner solves need not be better than this
    ending: Tensor  # the status of an item that has settled
    least: Tensor  # a smaller difference of two objectives is none
    lean: bool  # is the last state all that anybody asks for?

    def take(self, index: Tensor) -> Context:
        """For some items of the batch."""
        return take_fields(self, index)


NUMBERS = "start", "end", "most", "limit", "residual_limit", "noise", "scale", "aim", "ending", "least"


def entered(
    problem: Problem, shape: Any, options: Any, *, entropy: Tensor | None = None, lean: bool = False
) -> tuple[Any, Context]:
    """The state of a first plan of unit mass, and the context of a run from there, with the options of an AlternateMin.

    entropy: (B,), that of the last step if there were some.
    """
    # Steps do not ask who looks on, nor how many they are: then those of another call may be the same.
    options = replace(options, progress=False, callback=None, max_iter=1)
    now, soft, numbers = prepared(_measured, problem, shape, options, entropy)
    known = dict(zip(NUMBERS, numbers, strict=True))
    proximal, some = torch.stack([(known["end"] > problem.eps).any(), soft.any()]).tolist()
    free = soft if problem.linear_local and some else None
    return now, Context(problem, options, proximal=proximal, free=free, lean=lean, **known)


def _measured(
    problem: Problem, shape: Any, options: Any, entropy: Tensor | None
) -> tuple[Any, Tensor, tuple[Tensor, ...]]:
    """The state, (B,) bool which items have soft marginals and no proximal term, and the NUMBERS of a context."""
    now = problem.begin(shape)
    eps = problem.eps
    # Costs far above the rhos are not paid but avoided: they do not count.
    bar = problem.div_a.rho + problem.div_b.rho
    full = problem.cost_size()
    scale = torch.minimum(full, bar)
    # Rounding the cost moves log(plan) by this over the entropy: no tolerance below it can be met.
    size, unit = problem.spread_of(problem.linearize(now).cost), ROUNDING * torch.finfo(now.unit_plan.dtype).eps
    first, last, _ = options.proximal
    # An eps that was given as this very share is not below it, however both are rounded.
    last *= 1.0 - 1e-6
    end = torch.maximum(eps, torch.maximum(last * scale, unit * size.minimum(bar) / TRUSTED).minimum(STRONGEST * scale))
    most = torch.maximum(end, STRONGEST * scale)
    start = torch.where(eps < end, torch.maximum(end, first * scale), eps)
    if entropy is not None:
        start = torch.maximum(end, entropy)
    noise = unit * (1.0 + size / torch.where(eps > 0, eps, end))
    limit = (NOISY * noise).clamp(options.tol, max(TRUSTED, options.tol))
    # A marginal off by r costs rho·r²: a large rho wants more than the tolerance.
    stiffness = torch.maximum(problem.div_a.penalty, problem.div_b.penalty) / scale
    enough = (STIFF / stiffness.clamp(min=torch.finfo(torch.float64).tiny).sqrt()).clamp(min=1e-13)
    stake = full + problem.div_a.penalty + problem.div_b.penalty
    # A plan that misses a hard marginal may be below what it will be: there an objective says too little.
    soft = (end <= eps) & ~(problem.div_a.is_hard | problem.div_b.is_hard)
    residual_limit = torch.maximum(torch.minimum(limit, enough), noise.clamp(max=TRUSTED))
    least = (unit + NOTHING * options.tol) * stake * (problem.log_mass_a + problem.log_mass_b).exp()
    aim = torch.minimum(residual_limit, (FORCING * limit).clamp(min=options.inner.tol))
    ending = torch.where(noise > TRUSTED, int(Status.PRECISION), int(Status.CONVERGED))
    return now, soft, (start, end, most, limit, residual_limit, noise, scale, aim, ending, least)
