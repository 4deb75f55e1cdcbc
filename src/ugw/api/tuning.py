"""`rho_for_mass`: the rho at which the plan keeps a given share of the mass."""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from .._utils.caller import warn_at_caller
from .._utils.checks import describe_value
from .._utils.size_class import THRESHOLDS, UGW_CHOICES
from ..errors import ConvergenceWarning, InputError
from ..geometry.space import Space
from ..initializers.aggregation import aggregate
from ..initializers.centers import farthest_centers
from ..initializers.multistart import solve_from_candidates
from ..initializers.select import candidate_plans
from ..measures.divergences import KL
from ..problems.build import build_ugw, resolve_eps
from ..problems.ugw import UGW
from ..results.records import to_user
from ..solvers.alternating import AlternateMin
from .batching import group_items
from .config import API_CONFIG


def rho_for_mass(x: Space, y: Space, *, kept: float = 0.8, eps: Any = "auto") -> Any:
    """Return the rho, the same for both sides, at which the plan keeps the share `kept` of the mass sqrt(m(a) m(b)).

    It solves for several rho, on a few representative points first and then on all points. If the share jumps over
    `kept` as rho grows, it returns the rho whose share is closest and warns; if no rho comes near, it raises
    InputError.

    eps: a number ≥ 0, an array (B,), `ugw.relative(share)`, or "auto", which is `relative(1e-2)`. Returns a number, or
    an array (B,) for a batch of spaces.

    >>> import numpy as np, ugw
    >>> rng = np.random.default_rng(0)
    >>> x, y = ugw.Space.from_points(rng.random((15, 2))), ugw.Space.from_points(rng.random((20, 3)))
    >>> rho = ugw.rho_for_mass(x, y, kept=0.9)
    >>> abs(ugw.solve(x, y, rho=rho, eps=ugw.relative(1e-2)).mass - 0.9) < 5e-3
    True
    """
    if not isinstance(kept, Real) or not 0.0 < kept < 1.0:
        raise InputError(f"kept must be a number strictly between 0 and 1, got {describe_value(kept)}")
    kept = float(kept)
    problem = build_ugw(x, y, rho=1.0, eps=resolve_eps(eps, 1.0), fused=None)
    with torch.no_grad():
        groups = [index for index, _ in group_items(problem, "auto", UGW_CHOICES)]
        parts = [_find_log_rho_coarse_to_fine(problem.take(index), kept) for index in groups]
        order = torch.cat(groups).argsort()
        log_rho, share, is_bracketed = (torch.cat(column)[order] for column in zip(*parts, strict=True))
    is_missed = (share - kept).abs() > API_CONFIG.mass_share_tol
    is_out_of_reach = is_missed & ~is_bracketed
    if bool(is_out_of_reach.any()):
        i = int(is_out_of_reach.nonzero()[0])
        raise InputError(
            f"kept={kept} is out of reach, got a share of {float(share[i]):.3g} at rho = {float(log_rho[i].exp()):.3g} "
            "and none closer: lower eps, or ask for that share"
        )
    if bool(is_missed.any()):
        missed = share[is_missed].tolist()
        shares = ", ".join(f"{value:.3g}" for value in missed[:3]) + (", ..." if len(missed) > 3 else "")
        warn_at_caller(
            f"the share of the mass jumps over kept={kept} as rho grows; the closest rho found keeps {shares}",
            ConvergenceWarning,
        )
    return to_user(log_rho.exp(), batched=problem.batched, numpy=problem.numpy)


def _find_log_rho_coarse_to_fine(problem: UGW, kept: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return (log rho, share, is_bracketed), (B,) each: where the plan keeps the share `kept` of sqrt(m(a) m(b)).

    The rho is found between a few clusters of points first, then on all points, and is the one tried whose share is
    nearest. log: natural; share: kept at this rho; is_bracketed: some rho tried kept less than `kept` and some more.
    problem: its items are of one size class.
    """
    coarse_problem = aggregate(problem, THRESHOLDS.n_coarse_clusters, farthest_centers).problem
    guess, *_ = _find_log_rho(coarse_problem, kept, problem.scale().log())
    return _find_log_rho(problem, kept, guess)


def _find_log_rho(problem: UGW, kept: float, log_rho: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (log rho, share, is_bracketed), (B,) each: the log rho tried whose share of the mass is nearest to `kept`.

    share: the share m(p) / sqrt(m(a) m(b)) there; is_bracketed: some rho kept less and some kept more. log_rho: (B,),
    the first guess.

    The share is about exp(−c/rho^k), hence log(−log(share)) a line of slope −k in log rho: k = 1 is the first guess,
    then the line through the last two points is followed. Where it leaves the interval of rho that brackets the share,
    the middle of the interval is taken. Every solve starts from new initial plans, not from the plan of another rho.
    """
    target = math.log(-math.log(kept))
    low, high = torch.full_like(log_rho, -torch.inf), torch.full_like(log_rho, torch.inf)
    slope, share = torch.full_like(log_rho, -1.0), torch.full_like(log_rho, torch.nan)
    last = log_rho, share  # log rho and log(−log(share)) of the last solve, NaN before the first
    is_open, nearest = torch.ones_like(log_rho, dtype=torch.bool), (log_rho, torch.full_like(log_rho, torch.inf))
    for _ in range(API_CONFIG.max_mass_solves):
        items = is_open.nonzero()[:, 0]
        side = KL(log_rho[items].exp()).expand(len(items), log_rho.device)
        share = share.index_copy(0, items, kept_share(replace(problem.take(items), div_a=side, div_b=side)))
        is_closer = (share - kept).abs() < (nearest[1] - kept).abs()
        nearest = torch.where(is_closer, log_rho, nearest[0]), torch.where(is_closer, share, nearest[1])
        low = torch.where(share < kept, log_rho, low)
        high = torch.where(share > kept, log_rho, high)
        is_open = ((share - kept).abs() > API_CONFIG.mass_share_tol) & (high - low > API_CONFIG.min_log_rho_gap)
        if not bool(is_open.any()):
            break
        height = (-share.clamp(max=API_CONFIG.max_partial_share).log()).log()
        line = (height - last[1]) / (log_rho - last[0])
        slope = torch.where(
            torch.isfinite(line), line.clamp(API_CONFIG.min_mass_slope, API_CONFIG.max_mass_slope), slope
        )
        last = log_rho, height
        guess = log_rho + ((target - height) / slope).clamp(-API_CONFIG.max_log_rho_step, API_CONFIG.max_log_rho_step)
        middle = torch.where(torch.isfinite(low + high), 0.5 * (low + high), guess)
        guess = torch.where((guess > low) & (guess < high), guess, middle)
        log_rho = torch.where(is_open, guess, log_rho)
    return *nearest, torch.isfinite(low + high)


def kept_share(problem: UGW) -> Tensor:
    """Return the share of the mass m(p) / sqrt(m(a) m(b)), (B,), of the plan p that a solve from "auto" ends at."""
    solver = AlternateMin(tol=API_CONFIG.mass_solve_tol, max_iter=API_CONFIG.mass_solve_max_iter).with_defaults()
    plan = solve_from_candidates(solver, problem, candidate_plans(problem, "auto")).tensors.plan
    return (plan.sum(dim=(1, 2), dtype=torch.float64).log() - 0.5 * (problem.log_mass_a + problem.log_mass_b)).exp()
