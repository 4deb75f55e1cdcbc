"""Linear programs in turn: ascent of the overlap of a partial transport lift with itself.

Each step finds the lift v with the largest overlap with the last one, w, by a linear program, and takes the best of
the lifts between w and v. The overlap is concave in each of its two arguments, so that one of them is better than w
as long as v saves more against w than w itself does: then neither the value nor the bilinear value gets worse.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .._batch import take_fields
from .._options import onlookers, tolerance, whole_number
from ..problems.partial import Pair, PartialCGW, Small
from ..result import Result, Status, Tensors
from . import loop
from .watch import Callback, watcher

# Shares of v that are tried: all of it, and down to a thousandth.
SHARES = np.geomspace(1.0, 1e-3, 16)
# A relative gain below this is rounding, and a gap below that no reason to go on without a gain.
ROUNDING, SETTLED = 1e-14, 1e-6


@dataclass(frozen=True, kw_only=True)
class AlternateLP:
    """Solve a partial transport problem by linear programs.

    tol: stop where no lift saves more against the last one than that does itself, by this relative amount;
    progress, callback: as for AlternateMin.
    """

    tol: float = 1e-8
    max_iter: int = 500
    progress: bool = False
    callback: Callback | None = None

    def __post_init__(self) -> None:
        tolerance("AlternateLP tol", self.tol)
        whole_number("AlternateLP max_iter", self.max_iter)
        onlookers("AlternateLP", progress=self.progress, callback=self.callback)

    @torch.no_grad()
    def __call__(self, problem: PartialCGW, init: Tensor) -> Result:
        """Solve from the lift of the plan `init` (B, n, m), of any mass."""
        context = _Context(problem, self.tol)
        with watcher(progress=self.progress, callback=self.callback, max_iter=self.max_iter) as watch:
            first = _State.start(problem, init)
            outcome = loop.iterate(_step, context, first, loop.Rules(max_iter=self.max_iter), watch)
        return problem.result(_finish(problem, outcome))


@dataclass(frozen=True, eq=False)
class _Context:
    problem: PartialCGW
    tol: float

    def take(self, index: Tensor) -> _Context:
        return take_fields(self, index)


@dataclass(frozen=True, eq=False)
class _State:
    """The lift P, Q (B, n, m) and its overlap; crossed: the largest bilinear overlap seen; change, gap of a step.

    float64, in the units of the problem's items.
    """

    P: Tensor
    Q: Tensor
    overlap: Tensor
    crossed: Tensor
    change: Tensor
    gap: Tensor

    @classmethod
    def start(cls, problem: PartialCGW, init: Tensor) -> _State:
        plans = (init / init.amax(dim=(1, 2), keepdim=True)).double().cpu().numpy()
        P, Q, overlap = np.zeros_like(plans), np.zeros_like(plans), np.zeros(len(plans))
        for item, plan in enumerate(plans):
            small, where = problem.small(item)
            w = small.lift(plan[where])
            P[item][where], Q[item][where] = w
            overlap[item] = small.local(w).sum()
        made = [torch.as_tensor(array, device=init.device) for array in (P, Q, overlap)]
        one = torch.ones_like(made[2])
        return cls(*made, crossed=made[2], change=one, gap=one)

    @property
    def batch(self) -> int:
        return self.gap.shape[0]

    @property
    def device(self) -> torch.device:
        return self.gap.device

    def take(self, index: Tensor) -> _State:
        return take_fields(self, index)


def _step(context: _Context, state: _State) -> tuple[_State, loop.Report]:
    problem = context.problem
    P, Q = (side.cpu().numpy().copy() for side in (state.P, state.Q))
    told = []
    for item, last in enumerate(state.overlap.tolist()):
        small, where = problem.small(item)
        w, numbers = _ascend(small, (P[item][where], Q[item][where]), last, context.tol)
        P[item][where], Q[item][where] = w
        told.append(numbers)
    numbers = torch.tensor(told, dtype=torch.float64, device=state.device)
    overlap, crossed, change, gap = numbers[:, :4].T.contiguous()
    crossed = torch.maximum(crossed, state.crossed)
    sides = (torch.as_tensor(side, device=state.device) for side in (P, Q))
    status = torch.where(numbers[:, 4] > 0, int(Status.CONVERGED), int(Status.RUNNING))
    report = {
        "objective": problem.objective(overlap).total,
        "relaxed": problem.objective(crossed).total,
        "change": change,
        "residual": gap,
        "mass": problem.unit * overlap.sqrt(),
    }
    return _State(*sides, overlap, crossed, change, gap), loop.Report(status, report)


def _ascend(small: Small, w: Pair, last: float, tol: float) -> tuple[Pair, list[float]]:
    """One step for one item: the new lift, and its overlap, the bilinear one, the change, the gap, and 1 at the end."""
    v = small.best_against(w)
    crossed, along = small.overlaps(w, v)
    gap = max(crossed / last - 1.0, 0.0)
    # The best share if nothing were gained but what concavity promises: (1−t)² <w,w> + 2t(1−t) <w,v> + t² <v,v>.
    bend = 2.0 * crossed - last - along(1.0)
    promised = min((crossed - last) / bend, 1.0) if bend > 0 and crossed > last else 1.0
    shares = [*SHARES, promised]
    values = [along(t) for t in shares]
    best = int(np.argmax(values))
    settled = gap <= tol or (gap <= SETTLED and values[best] <= last * (1.0 + ROUNDING))
    if values[best] <= last:
        return w, [last, crossed, 0.0, gap, float(settled)]
    t = shares[best]
    P, Q = ((1.0 - t) * old + t * new for old, new in zip(w, v, strict=True))
    moved = sum(float(np.abs(new - old).sum()) for old, new in zip(w, (P, Q), strict=True))
    change = moved / float(small.a.sum() + small.b.sum())
    return (P, Q), [values[best], max(crossed, values[best]), change, gap, float(settled)]


def _finish(problem: PartialCGW, outcome: loop.Outcome) -> Tensors:
    """The end of a run as a result: weights that found no partner are laid out, and the value is that of the lift."""
    state = outcome.state
    P, Q = (side.cpu().numpy().copy() for side in (state.P, state.Q))
    plans = np.zeros_like(P)
    for item in range(len(P)):
        small, where = problem.small(item)
        w = small.completed((P[item][where], Q[item][where]))
        P[item][where], Q[item][where] = w
        plans[item][where] = small.local(w)
    sides = [torch.as_tensor(side, device=state.device) for side in (P, Q, plans)]
    overlap = sides[2].sum(dim=(1, 2))
    plan = (sides[2] * (problem.unit / overlap.sqrt())[:, None, None]).to(problem.x.dtype)
    terms = problem.objective(overlap)
    return Tensors(
        plan=plan,
        other=plan,
        potentials=None,
        terms=terms,
        relaxed_value=problem.objective(torch.maximum(state.crossed, overlap)).total,
        marginal_error=torch.zeros_like(overlap),
        change=state.change,
        residual=state.gap,
        status=outcome.status,
        n_iter=outcome.n_iter,
        trace=outcome.table(),
        lift=problem.lift(*sides[:2]),
    )
