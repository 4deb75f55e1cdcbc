"""Linear programs in turn: ascent of the overlap of a partial transport lift with itself.

Each step finds the lift v with the largest overlap with the last one, w, by a linear program, and takes the best of
the lifts between w and v. The overlap is concave in each of its two arguments, so that one of them is better than w
as long as v saves more against w than w itself does: then neither the value nor the bilinear value gets worse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .._utils.pytree import take_fields
from ..problems.partial.cgw import Pair, PartialCGW, Small
from ..results.records import SolverOutput, Status
from ..results.result import Result
from . import loop
from .base import Solver
from .monitor import Monitor

# Shares of v that are tried: all of it, and down to a thousandth.
SHARES = tuple(np.geomspace(1.0, 1e-3, 16).tolist())
# The line through two lifts is followed for so many times their difference at most, lest rounding grow.
FURTHEST = 1e3
# A relative gain below this is rounding, and a gap below that no reason to go on without a gain.
ROUNDING, SETTLED = 1e-14, 1e-6


@dataclass(frozen=True, kw_only=True)
class AlternateLP(Solver):
    """Solve a partial transport problem by linear programs.

    tol: stop where no lift saves more against the last one than that does itself, by this relative amount;
    progress, callback: as for AlternateMin.

    >>> import numpy as np, ugw
    >>> x, y = ugw.Space.from_points([[0.0], [1.0]]), ugw.Space.from_points([[0.0], [1.0], [5.0]])
    >>> c = ugw.solve_conic(x, y, rho=1.0, cone=ugw.PartialTransport(), solver=ugw.AlternateLP(tol=1e-6))
    >>> c.converged
    True
    """

    tol: float = 1e-8
    max_iter: int = 500

    @torch.no_grad()
    def run(self, problem: PartialCGW, init: Tensor, monitor: Monitor | None) -> Result:
        """Solve from the lift of the plan `init` (B, n, m), of any mass."""
        context = _Context(problem, self.tol)
        first = _State.start(problem, init)
        outcome = loop.iterate(_step, context, first, loop.Rules(max_iter=self.max_iter), monitor)
        return problem.result(_finish(problem, outcome))


@dataclass(frozen=True, eq=False)
class _Context:
    problem: PartialCGW
    tol: float

    def take(self, index: Tensor) -> _Context:
        return take_fields(self, index)


@dataclass(frozen=True, eq=False)
class _State:
    """Two lifts, the last and the one before; overlap: of the last with itself; crossed: the largest bilinear one seen.

    lifts: (B, 4, n, m), P and Q of the last, P and Q of the one before, float64, in the units of the problem's items;
    change, gap: (B,), of the last step.
    """

    lifts: Tensor
    overlap: Tensor
    crossed: Tensor
    change: Tensor
    gap: Tensor

    @classmethod
    def start(cls, problem: PartialCGW, init: Tensor) -> _State:
        plans = (init / init.amax(dim=(1, 2), keepdim=True)).double().cpu().numpy()
        lifts, overlaps = np.zeros((len(plans), 4, *plans.shape[1:])), np.zeros(len(plans))
        for item, plan in enumerate(plans):
            small, where = problem.small(item)
            w = small.lift(plan[where])
            _put(lifts[item], where, (*w, *w))
            overlaps[item] = small.local(w).sum()
        overlap = torch.as_tensor(overlaps, device=init.device)
        one = torch.ones_like(overlap)
        return cls(torch.as_tensor(lifts, device=init.device), overlap, overlap, change=one, gap=one)

    @property
    def batch(self) -> int:
        return self.gap.shape[0]

    @property
    def device(self) -> torch.device:
        return self.gap.device

    def take(self, index: Tensor) -> _State:
        return take_fields(self, index)


def _put(lifts: np.ndarray, where: tuple[np.ndarray, ...], values: tuple[np.ndarray, ...]) -> None:
    """Write matrices of a small item into their places. lifts: (k, n, m)."""
    for side, value in zip(lifts, values, strict=True):
        side[where] = value


def _step(context: _Context, state: _State) -> tuple[_State, loop.Report]:
    problem = context.problem
    lifts = state.lifts.cpu().numpy().copy()
    told = []
    for item, last in enumerate(state.overlap.tolist()):
        small, where = problem.small(item)
        P, Q, *before = (side[where] for side in lifts[item])
        new, numbers = _ascend(small, (P, Q), (before[0], before[1]), last, context.tol)
        _put(lifts[item], where, (*new, P, Q))
        told.append(numbers)
    overlap, crossed, change, gap, settled = torch.tensor(told, dtype=torch.float64, device=state.device).unbind(1)
    crossed = torch.maximum(crossed, state.crossed)
    end = torch.where(overlap > 0, int(Status.CONVERGED), int(Status.COLLAPSED))
    status = torch.where(settled > 0, end, int(Status.RUNNING))
    report = {
        "objective": problem.objective(overlap).total,
        "relaxed": problem.objective(crossed).total,
        "change": change,
        "residual": gap,
        "mass": problem.unit * overlap.sqrt(),
    }
    new_state = _State(torch.as_tensor(lifts, device=state.device), overlap, crossed, change, gap)
    return new_state, loop.Report(status, report)


def _ascend(small: Small, w: Pair, before: Pair, last: float, tol: float) -> tuple[Pair, list[float]]:
    """One step for one item: the new lift, and its overlap, the bilinear one, the change, the gap, and 1 at the end."""
    v = small.best_against(w)
    crossed, along = small.overlaps(w, v)
    gap = max(crossed / last - 1.0, 0.0) if last > 0 else float(crossed > 0)
    # The best share if nothing were gained but what concavity promises: (1−t)² <w,w> + 2t(1−t) <w,v> + t² <v,v>.
    bend = 2.0 * crossed - last - along(1.0)
    promised = min((crossed - last) / bend, 1.0) if bend > 0 and crossed > last else 1.0
    new, value = _best(along, w, v, [*SHARES, promised], last)
    further = _beyond(before, new)
    if further is not None:
        new, value = _best(small.overlaps(new, further)[1], new, further, SHARES, value)
    settled = gap <= tol or (gap <= SETTLED and value <= last * (1.0 + ROUNDING))
    moved = sum(float(np.abs(there - here).sum()) for here, there in zip(w, new, strict=True))
    change = moved / float(small.a.sum() + small.b.sum())
    return new, [value, max(crossed, value), change, gap, float(settled)]


def _best(along: Callable[[float], float], w: Pair, v: Pair, shares: Sequence[float], bar: float) -> tuple[Pair, float]:
    """The lift between w and v that is best, and its overlap; w if none is above its own, `bar`."""
    values = [along(t) for t in shares]
    best = int(np.argmax(values))
    if not values[best] > bar:
        return w, bar
    t = shares[best]
    return ((1.0 - t) * w[0] + t * v[0], (1.0 - t) * w[1] + t * v[1]), values[best]


def _beyond(before: Pair, new: Pair) -> Pair | None:
    """The last lift with P, Q ≥ 0 on the line from an old one through a new one: what zigzags is cut short.

    None where there is no such line.
    """
    steps = [there - here for here, there in zip(before, new, strict=True)]
    falling = [(step[step < 0], side[step < 0]) for step, side in zip(steps, new, strict=True)]
    if any((side == 0).any() for _, side in falling):
        return None
    fall = max(float((-step / side).max(initial=0.0)) for step, side in falling)
    if fall == 0.0:
        return None
    far = min(1.0 / fall, FURTHEST)
    P, Q = (np.maximum(side + far * step, 0.0) for side, step in zip(new, steps, strict=True))
    return P, Q


def _finish(problem: PartialCGW, outcome: loop.Outcome) -> SolverOutput:
    """The end of a run as a result."""
    state = outcome.state
    made = state.lifts[:, :3].cpu().numpy().copy()
    for item, sides in enumerate(made):
        small, where = problem.small(item)
        sides[2][where] = small.local((sides[0][where], sides[1][where]))
    P, Q, local = torch.as_tensor(made, device=state.device).unbind(1)
    overlap = local.sum(dim=(1, 2))
    scale = problem.unit / torch.where(overlap > 0, overlap, 1.0).sqrt()
    plan = (local * scale[:, None, None]).to(problem.x.dtype)
    terms = problem.objective(overlap)
    return SolverOutput(
        plan=plan,
        previous_plan=plan,
        potentials=None,
        terms=terms,
        relaxed_value=problem.objective(torch.maximum(state.crossed, overlap)).total,
        marginal_error=torch.zeros_like(overlap),
        change=state.change,
        residual=state.gap,
        status=outcome.status,
        n_iter=outcome.n_iter,
        trace=outcome.table(),
        lift=problem.lift(P, Q),
    )
