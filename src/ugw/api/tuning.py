"""Choosing rho by what it does: the share of the mass that the plan keeps."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from .._utils.size_class import THRESHOLDS, UGW_CHOICES
from ..errors import ConvergenceWarning, InputError
from ..geometry.space import Space
from ..initializers.aggregation import aggregate
from ..initializers.centers import farthest_centers
from ..initializers.coarse import coarse_plan
from ..measures.divergences import KL
from ..problems.build import build, relative
from ..problems.ugw import UGW
from ..results.records import present
from ..solvers.alternating import AlternateMin
from .batching import group_items

# The share found is as close as this to the one asked for, after at most so many solves.
CLOSE = 1e-3
MAX_SOLVES = 30
# Two values of log rho as close as this with the share between them: it jumps there.
TIGHT = 1e-3
# log rho is moved by at most so much at a time, along a line whose slope is believed between these.
LARGEST_STEP = math.log(10.0)
SLOPES = -4.0, -0.2


def rho_for_mass(x: Space, y: Space, *, kept: float = 0.8, eps: Any = None) -> Any:
    """The rho, the same for both sides, at which the plan keeps the share `kept` of the mass sqrt(m(a) m(b)).

    Found by solving, not by a bound: on a few representatives of the spaces first, then on all points. Where the share
    jumps over `kept`, the closest rho found, and a warning.
    eps: as for `solve`, `relative(1e-2)` if None. Returns a number, or an array (B,) for a batch of spaces.

    >>> import numpy as np, ugw
    >>> rng = np.random.default_rng(0)
    >>> x, y = ugw.Space.from_points(rng.random((15, 2))), ugw.Space.from_points(rng.random((20, 3)))
    >>> rho = ugw.rho_for_mass(x, y, kept=0.9)
    >>> abs(ugw.solve(x, y, rho=rho, eps=ugw.relative(1e-2)).mass - 0.9) < 5e-3
    True
    """
    if not isinstance(kept, Real) or not 0.0 < kept < 1.0:
        raise InputError(f"kept must be a number between 0 and 1, got {kept!r}")
    problem = build(x, y, rho=1.0, eps=relative(1e-2) if eps is None else eps, fused=None)
    with torch.no_grad():
        groups = [index for index, _ in group_items(problem, "coarse", UGW_CHOICES)]
        parts = [_on_few_points_first(problem.take(index), kept) for index in groups]
        order = torch.cat(groups).argsort()
        log_rho, share, jumps = (torch.cat(column)[order] for column in zip(*parts, strict=True))
    missed = (share - kept).abs() > CLOSE
    _refuse(kept, *(value[missed & ~jumps] for value in (log_rho, share)))
    _warn(kept, share[missed])
    return present(log_rho.exp(), batched=problem.batched, numpy=problem.numpy)


def _on_few_points_first(problem: UGW, kept: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `_meet` returns, from the rho that it finds on a few points. The items are of one size class."""
    few = aggregate(problem, THRESHOLDS.n_coarse_clusters, farthest_centers).problem
    guess, *_ = _meet(few, kept, problem.scale().log())
    return _meet(problem, kept, guess)


def _meet(problem: UGW, kept: float, log_rho: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """log rho (B,) at which the plan keeps the share, from a guess; what it keeps; and were there rhos on both sides?

    The share is about exp(−c/rho^k), hence log(−log(share)) a line of slope −k in log rho: k = 1 is the first guess,
    then the line through the last two points is followed. Where it leaves what is already known to be too small or too
    large, the middle of the two. The starts are made anew for each rho: another rho may want a plan of another kind.
    """
    wanted = math.log(-math.log(kept))
    low, high = torch.full_like(log_rho, -torch.inf), torch.full_like(log_rho, torch.inf)
    slope, share = torch.full_like(log_rho, -1.0), torch.full_like(log_rho, torch.nan)
    before = log_rho, share  # of these no line is known
    off, nearest = torch.ones_like(log_rho, dtype=torch.bool), (log_rho, torch.full_like(log_rho, torch.inf))
    for _ in range(MAX_SOLVES):
        rest = off.nonzero()[:, 0]
        given = _with_rho(problem.take(rest), log_rho[rest])
        share = share.index_copy(0, rest, _share(given, coarse_plan(given)))
        closer = (share - kept).abs() < (nearest[1] - kept).abs()
        nearest = torch.where(closer, log_rho, nearest[0]), torch.where(closer, share, nearest[1])
        low = torch.where(share < kept, log_rho, low)
        high = torch.where(share > kept, log_rho, high)
        off = ((share - kept).abs() > CLOSE) & (high - low > TIGHT)
        if not bool(off.any()):
            break
        height = (-share.clamp(max=1.0 - 1e-12).log()).log()
        line = (height - before[1]) / (log_rho - before[0])
        slope = torch.where(torch.isfinite(line), line.clamp(*SLOPES), slope)
        before = log_rho, height
        guess = log_rho + ((wanted - height) / slope).clamp(-LARGEST_STEP, LARGEST_STEP)
        middle = torch.where(torch.isfinite(low + high), 0.5 * (low + high), guess)
        guess = torch.where((guess > low) & (guess < high), guess, middle)
        log_rho = torch.where(off, guess, log_rho)
    return *nearest, torch.isfinite(low + high)


def _refuse(kept: float, log_rho: Tensor, share: Tensor) -> None:
    """Where the share is on one side of what was asked for, whatever rho is."""
    if len(share):
        raise InputError(
            f"kept={kept} is out of reach, got a share of {float(share[0]):.3g} at rho = {float(log_rho[0].exp()):.3g} "
            "and none closer: lower eps, or ask for that share"
        )


def _warn(kept: float, share: Tensor) -> None:
    """Where the share jumps over what was asked for: plans of two kinds, and none between."""
    if not len(share):
        return
    shares = ", ".join(f"{value:.3g}" for value in share.tolist()[:3]) + (", ..." if len(share) > 3 else "")
    warnings.warn(
        f"the share of the mass jumps over kept={kept} as rho grows; the closest rho found keeps {shares}",
        ConvergenceWarning,
        stacklevel=3,
    )


def _share(problem: UGW, start: Tensor) -> Tensor:
    """The share of the mass (B,) that the plan found from a start keeps."""
    plan = AlternateMin(tol=1e-5, max_iter=300)(problem, start).tensors.plan
    return (plan.sum(dim=(1, 2), dtype=torch.float64).log() - 0.5 * (problem.log_mass_a + problem.log_mass_b)).exp()


def _with_rho(problem: UGW, log_rho: Tensor) -> UGW:
    side = KL(log_rho.exp()).expand(problem.batch, log_rho.device)
    return replace(problem, div_a=side, div_b=side)
