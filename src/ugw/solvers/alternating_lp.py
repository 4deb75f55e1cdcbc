"""Alternating linear programs for partial transport: ascent of the overlap of a lift with itself.

A lift is a pair of matrices (P, Q), (n, m) each; the overlap <v, w> of two lifts is bilinear: `PartialConicItem`.

Each step finds the lift v with the largest overlap with the last one, w, by a linear program, and goes to the best
lift on the segment from w to v. The overlap is concave in each of its two arguments, so that some lift on the segment
is better than w as long as v has a larger overlap with w than w itself: then neither the value nor the bilinear value
gets worse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .._utils.pytree import BatchRecord
from ..problems.partial.cgw import LiftArrays, PartialCGW, PartialConicItem
from ..results.records import SolverOutput, Status, StepBackend
from ..results.result import Result
from . import loop
from .base import Solver
from .config import SOLVER_CONFIG
from .monitor import Monitor


@dataclass(frozen=True, kw_only=True)
class AlternateLP(Solver):
    """Solve a partial transport problem by linear programs.

    A lift is a pair (P, Q) with P 1 = a and Qᵀ 1 = b, whose overlap with itself lowers the value.
    tol: stop when no lift has an overlap with the current lift that exceeds the current lift's overlap with itself by
    more than this relative amount; max_iter, progress, callback: as for AlternateMin.

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
        """Return the result (plan, value, status, ...) of a solve from P = p a/p1, Q = p b/p2; p: a plan (B, n, m)."""
        context = _Context(problem, self.tol)
        first = _LiftIterate.initial(problem, init)
        outcome = loop.iterate(_step, context, first, loop.Rules(max_iter=self.max_iter), monitor)
        return problem.result(_solver_output(problem, outcome))


@dataclass(frozen=True, eq=False)
class _Context(BatchRecord):
    """The constants of a run: the problem, and the relative gap at which an item has converged."""

    problem: PartialCGW
    tol: float


@dataclass(frozen=True, eq=False)
class _LiftIterate(BatchRecord):
    """The last two lifts (P, Q) of a run, and overlap, change and relative gap of the last step, (B,) each.

    lifts: (B, 4, n, m), float64, in the units of `PartialConicItem`: P and Q of the last lift, P and Q of the one
    before; overlap: Σ g min(P_ij P_i'j', Q_ij Q_i'j') of the last lift, g the gains of `PartialConicItem`;
    max_bilinear_overlap: the largest overlap of two lifts so far; change: L1 change of P and Q relative to the masses;
    residual: relative gap, by which the best overlap with the last lift exceeds its own.
    """

    lifts: Tensor
    overlap: Tensor
    max_bilinear_overlap: Tensor
    change: Tensor
    residual: Tensor

    @classmethod
    def initial(cls, problem: PartialCGW, init: Tensor) -> _LiftIterate:
        """Return the iterate before the first step: both lifts are P = p a/p1, Q = p b/p2, p = `init`, (B, n, m).

        Weights a, b are in units of the larger mass. Both overlaps are that of this lift; change and residual are 1.
        """
        plans = (init / init.amax(dim=(1, 2), keepdim=True)).double().cpu().numpy()
        lifts, overlaps = np.zeros((len(plans), 4, *plans.shape[1:])), np.zeros(len(plans))
        for index, plan in enumerate(plans):
            item, entries = problem.numpy_item(index)
            lift = item.lift_plan(plan[entries])
            _write_entries(lifts[index], entries, (*lift, *lift))
            overlaps[index] = item.local_overlap(lift).sum()
        overlap = torch.as_tensor(overlaps, device=init.device)
        one = torch.ones_like(overlap)
        return cls(torch.as_tensor(lifts, device=init.device), overlap, overlap, change=one, residual=one)


@dataclass(frozen=True)
class _ItemStep:
    """One step of one item: the new lift (P, Q), its overlap with itself, relative L1 change and relative gap."""

    lift: LiftArrays
    overlap: float
    bilinear_overlap: float
    change: float
    gap: float
    is_converged: bool


def _write_entries(
    matrices: np.ndarray, entries: tuple[np.ndarray, ...], item_matrices: tuple[np.ndarray, ...]
) -> None:
    """Write k matrices of one item, whose points of weight 0 are left out, into `matrices` (k, n, m), in place.

    entries: the index (np.ix_) of the remaining rows and columns in a matrix (n, m), from `PartialCGW.numpy_item`;
    other entries of `matrices` keep their values.
    """
    for matrix, item_matrix in zip(matrices, item_matrices, strict=True):
        matrix[entries] = item_matrix


def _step(context: _Context, iterate: _LiftIterate) -> tuple[_LiftIterate, loop.Report]:
    """Return the iterate (last two lifts, overlap) after one step of every item, and its report: status and numbers.

    The numbers, (B,) each, are the objective at the overlap of the new lift, the relaxed one at the largest overlap of
    two lifts so far, L1 change relative to m(a) + m(b), relative gap as residual, and mass of the plan.
    """
    problem = context.problem
    lifts = iterate.lifts.cpu().numpy().copy()
    steps = []
    for index, overlap in enumerate(iterate.overlap.tolist()):
        item, entries = problem.numpy_item(index)
        P, Q, previous_p, previous_q = (side[entries] for side in lifts[index])
        step = _step_item(item, (P, Q), (previous_p, previous_q), overlap, context.tol)
        _write_entries(lifts[index], entries, (*step.lift, P, Q))
        steps.append((step.overlap, step.bilinear_overlap, step.change, step.gap, float(step.is_converged)))
    numbers = torch.tensor(steps, dtype=torch.float64, device=iterate.overlap.device)
    overlap, bilinear_overlap, change, gap, is_converged = numbers.unbind(1)
    max_bilinear_overlap = torch.maximum(bilinear_overlap, iterate.max_bilinear_overlap)
    final_status = torch.where(overlap > 0, int(Status.CONVERGED), int(Status.COLLAPSED))
    status = torch.where(is_converged > 0, final_status, int(Status.RUNNING))
    report = {
        "objective": problem.objective(overlap).total,
        "relaxed": problem.objective(max_bilinear_overlap).total,
        "change": change,
        "residual": gap,
        "mass": problem.mass_unit * overlap.sqrt(),
    }
    lift_tensor = torch.as_tensor(lifts, device=iterate.overlap.device)
    return _LiftIterate(lift_tensor, overlap, max_bilinear_overlap, change, gap), loop.Report(status, report)


def _step_item(item: PartialConicItem, lift: LiftArrays, previous: LiftArrays, overlap: float, tol: float) -> _ItemStep:
    """Return one step of one item: the next lift (P, Q), its overlap with itself, and how the step went.

    That is the largest overlap of two lifts found, the L1 change relative to m(a) + m(b), the relative gap by which the
    largest overlap with `lift` exceeds `overlap`, and whether the item has converged.
    A linear program finds the lift (P, Q) of largest overlap with `lift`. The best lift tried on the segment from
    `lift` to it is the new one, unless one is better on the line that continues from `previous`, the lift before
    `lift`, through the new one; that line shortens zigzags.

    The overlap of lifts is Σ g min(P_ij P'_i'j', Q_ij Q'_i'j'), g the gains of `PartialConicItem.pair_gains`.
    overlap: of `lift` with itself; tol: the item has converged if the largest overlap with `lift` exceeds `overlap`
    by at most this relative gap, or by a small one without any gain.
    """
    config = SOLVER_CONFIG
    target = item.maximize_overlap_with(lift)
    bilinear_overlap, overlap_at = item.overlap_along_segment(lift, target)
    gap = max(bilinear_overlap / overlap - 1.0, 0.0) if overlap > 0 else float(bilinear_overlap > 0)
    # By concavity the overlap at t is at least (1−t)² <w,w> + 2t(1−t) <w,v> + t² <v,v>: also try the best t for that.
    curvature = 2.0 * bilinear_overlap - overlap - overlap_at(1.0)
    is_interior = curvature > 0 and bilinear_overlap > overlap
    bound_maximizer = min((bilinear_overlap - overlap) / curvature, 1.0) if is_interior else 1.0
    new, value = _best_on_segment(overlap_at, lift, target, [*config.segment_shares, bound_maximizer], overlap)
    boundary = boundary_point(previous, new)
    if boundary is not None:
        overlap_at = item.overlap_along_segment(new, boundary)[1]
        new, value = _best_on_segment(overlap_at, new, boundary, config.segment_shares, value)
    has_no_gain = value <= overlap * (1.0 + config.overlap_rounding)
    l1_change = sum(float(np.abs(after - before).sum()) for before, after in zip(lift, new, strict=True))
    return _ItemStep(
        lift=new,
        overlap=value,
        bilinear_overlap=max(bilinear_overlap, value),
        change=l1_change / float(item.a.sum() + item.b.sum()),
        gap=gap,
        is_converged=gap <= tol or (gap <= config.max_gap_without_gain and has_no_gain),
    )


def _best_on_segment(
    overlap_at: Callable[[float], float],
    start: LiftArrays,
    end: LiftArrays,
    shares: Sequence[float],
    start_overlap: float,
) -> tuple[LiftArrays, float]:
    """Return the lift (P, Q) = (1 − t) start + t end, t in `shares`, of largest overlap with itself, and that overlap.

    overlap_at: function of t, Σ g min(P_ij P_i'j', Q_ij Q_i'j') of that lift, g the matching gains. The start and its
    overlap are returned if no t has a larger one.
    """
    values = [overlap_at(t) for t in shares]
    best = int(np.argmax(values))
    if not values[best] > start_overlap:
        return start, start_overlap
    t = shares[best]
    return ((1.0 - t) * start[0] + t * end[0], (1.0 - t) * start[1] + t * end[1]), values[best]


def boundary_point(previous: LiftArrays, new: LiftArrays) -> LiftArrays | None:
    """Return the last lift (P, Q) with P, Q ≥ 0, (n, m) each, on the line from a previous lift through a new one.

    None if the new lift lies on the boundary, or if no entry decreases along the line. The step from the previous lift
    to the new one is continued by at most `max_line_extension` times its length.
    """
    steps = [after - before for before, after in zip(previous, new, strict=True)]
    decreasing = [(step[step < 0], side[step < 0]) for step, side in zip(steps, new, strict=True)]
    if any((side == 0).any() for _, side in decreasing):
        return None
    largest_decrease = max(float((-step / side).max(initial=0.0)) for step, side in decreasing)
    if largest_decrease == 0.0:
        return None
    factor = min(1.0 / largest_decrease, SOLVER_CONFIG.max_line_extension)
    P, Q = (np.maximum(side + factor * step, 0.0) for side, step in zip(new, steps, strict=True))
    return P, Q


def _solver_output(problem: PartialCGW, outcome: loop.Outcome) -> SolverOutput:
    """Return the output for the last iterate of a run: plan, lift (P, Q), terms of CGW, status and history.

    The plan has as entry ij the part of the overlap that pair ij has, scaled to mass max(m(a), m(b)) · sqrt(overlap).
    The previous plan is the same one, potentials are None and marginal errors 0.
    """
    iterate = outcome.state
    matrices = iterate.lifts[:, :3].cpu().numpy().copy()  # the third one is overwritten with the local overlap
    for index, (P, Q, local_overlap) in enumerate(matrices):
        item, entries = problem.numpy_item(index)
        local_overlap[entries] = item.local_overlap((P[entries], Q[entries]))
    P, Q, local_overlap = torch.as_tensor(matrices, device=iterate.overlap.device).unbind(1)
    overlap = local_overlap.sum(dim=(1, 2))
    scale = problem.mass_unit / torch.where(overlap > 0, overlap, 1.0).sqrt()
    plan = (local_overlap * scale[:, None, None]).to(problem.x.dtype)
    return SolverOutput(
        plan=plan,
        previous_plan=plan,
        potentials=None,
        terms=problem.objective(overlap),
        relaxed_value=problem.objective(torch.maximum(iterate.max_bilinear_overlap, overlap)).total,
        marginal_error=torch.zeros_like(overlap),
        change=iterate.change,
        residual=iterate.residual,
        status=outcome.status,
        n_iter=outcome.n_iter,
        trace=outcome.table(),
        n_iter_search=torch.zeros_like(outcome.n_iter),
        backend=torch.full_like(outcome.n_iter, int(StepBackend.SCIPY)),
        lift=problem.lift(P, Q),
    )
