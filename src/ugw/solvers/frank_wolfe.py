"""Frank–Wolfe with exact linear programs: eps = 0 with both marginals hard, and plans below the weights.

The linear step is POT's network simplex, the line search exact because F is quadratic along a segment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._utils.pytree import BatchRecord, clone, put_, take
from ..problems.config import PROBLEM_CONFIG
from ..results.records import SolverOutput, Status, StepBackend
from ..results.result import Result
from . import loop
from .base import Solver
from .compiled_frank_wolfe import CompiledSteps, Step, has_compiled_steps
from .monitor import Monitor


@dataclass(frozen=True, kw_only=True)
class FrankWolfe(Solver):
    """Solve a problem without entropy by Frank–Wolfe steps to a plan that neither a linear step nor a swap improves.

    A swap matches i with l and k with j instead of i with j and k with l; swaps are made for the loss t².

    tol: duality gap, eq. (5.2), at which to stop, relative to the objective of the product plan a⊗b,
    or to the largest possible saving of penalty, if that is less; progress, callback: as for AlternateMin.

    >>> FrankWolfe(tol=1e-6).max_iter
    500
    """

    tol: float = 1e-9
    max_iter: int = 500

    @torch.no_grad()
    def run(self, problem: Any, init: Tensor, monitor: Monitor | None) -> Result:
        """Return the result (plan, value, status, ...) of a solve from a plan (B, n, m), first made feasible."""
        state = problem.state_of_plan(problem.project(init))
        one = torch.ones_like(problem.eps)
        step, context = make_step(problem, problem.gap_scale(), problem.gap_resolution().clamp(min=self.tol))
        backend = StepBackend.COMPILED if isinstance(context, CompiledSteps) else StepBackend.TORCH
        rules = loop.Rules(max_iter=self.max_iter)
        outcome = loop.iterate(step, context, Iterate(state, one, one), rules, monitor)
        # The local cost of a moved plan is updated from step to step: the reported one has no error of earlier steps.
        state = problem.state_of_plan(outcome.state.state.unit_plan)
        terms = problem.objective(state)
        tensors = SolverOutput(
            plan=state.plan,
            previous_plan=state.plan,
            potentials=None,
            terms=terms,
            relaxed_value=terms.total,
            marginal_error=problem.marginal_error(state),
            change=outcome.state.change,
            residual=outcome.state.residual,
            status=outcome.status,
            n_iter=outcome.n_iter,
            trace=outcome.table(),
            n_iter_search=torch.zeros_like(outcome.n_iter),
            backend=torch.full_like(outcome.n_iter, int(backend | StepBackend.POT)),
        )
        return problem.result(tensors)


@dataclass(frozen=True, eq=False)
class Context(BatchRecord):
    """The constants of a run: the problem, the unit of duality gaps (B,), and the relative gap (B,) to stop at."""

    problem: Any
    gap_scale: Tensor
    tol: Tensor


@dataclass(frozen=True, eq=False)
class Iterate(BatchRecord):
    """The last plan with the quantities computed from it (state), L1 change (B,) and relative duality gap (B,)."""

    state: Any
    change: Tensor
    residual: Tensor


def make_step(problem: Any, gap_scale: Tensor, tol: Tensor) -> tuple[Callable[..., Any], Any]:
    """Return the step function of a run, compiled or in torch, and its first argument: the problem and its tolerances.

    The function maps (context, iterate) to (iterate, report). gap_scale: (B,), the unit of duality gaps; tol: (B,), the
    gap in that unit at which to stop.
    """
    if has_compiled_steps(problem):
        return take_compiled_step, CompiledSteps(problem, gap_scale, tol)
    return take_step, Context(problem, gap_scale, tol)


def take_compiled_step(steps: CompiledSteps, iterate: Iterate) -> tuple[Iterate, loop.Report]:
    """Return what `take_step` returns, by one compiled step: iterate (plan, L1 change, relative gap) and report."""
    step = steps.advance(iterate.state)
    return Iterate(step.state, step.change, step.gap), _report(step)


def take_step(context: Context, iterate: Iterate) -> tuple[Iterate, loop.Report]:
    """Return the new `Iterate` (plan, its L1 change, relative duality gap) of a Frank–Wolfe step, and its `Report`.

    The report has the status, objective, change, gap (as "residual") and mass of each item. The gap is that of the plan
    before the step; plan and change are in units of sqrt(m(a) m(b)).
    The step length minimizes the objective on the segment exactly. A plan that no linear step improves is improved by
    swaps of two pairs, and has converged if no swap lowers the objective.
    """
    problem, state = context.problem, iterate.state
    direction = problem.linear_minimizer(state) - state.unit_plan
    segment = problem.segment(state, direction)
    gap = (-segment.slope).clamp(min=0.0) / context.gap_scale
    # The minimum of slope·t + curvature·t² on [0, 1]; at t = 1 where the function is concave.
    is_convex = segment.curvature > 0
    interior = (-segment.slope / (2.0 * torch.where(is_convex, segment.curvature, 1.0))).clamp(0.0, 1.0)
    is_stationary = ~(gap > context.tol)
    t = torch.where(is_stationary, 0.0, torch.where(is_convex, interior, 1.0))
    new, swaps = segment.move(state, t), torch.zeros_like(is_stationary)
    items = is_stationary.nonzero()[:, 0]
    if len(items):
        least = (context.tol * context.gap_scale)[items]
        swapped, swaps[items] = descend_by_swaps(take(problem, items), take(new, items), least)
        new = clone(new)
        put_(new, items, swapped)
    change = (new.unit_plan - state.unit_plan).abs().sum(dim=(1, 2), dtype=torch.float64)
    converged = torch.where(new.is_collapsed, int(Status.COLLAPSED), int(Status.CONVERGED))
    status = torch.where((t == 0) & ~swaps, converged, int(Status.RUNNING))
    step = Step(new, change, gap, problem.objective(new).total, status)
    return Iterate(new, change, gap), _report(step)


def descend_by_swaps(problem: Any, state: Any, min_decrease: Tensor) -> tuple[Any, Tensor]:
    """Return the state after at most `max_swaps` swaps, the best one each time, and (B,) bool: was there any?

    min_decrease: (B,), by which a swap must lower the objective.
    """
    is_swapped = torch.zeros_like(min_decrease, dtype=torch.bool)
    for _ in range(PROBLEM_CONFIG.max_swaps):
        direction, lowers = problem.best_swap(state, min_decrease)
        if not bool(lowers.any()):
            break
        state = problem.segment(state, direction).move(state, lowers.double())
        is_swapped |= lowers
    return state, is_swapped


def _report(step: Step) -> loop.Report:
    """Return a `Report` of a step: status, objective (also as relaxed), L1 change, relative gap as residual, mass."""
    numbers = {
        "objective": step.objective,
        "relaxed": step.objective,  # there is only one plan
        "change": step.change,
        "residual": step.gap,
        "mass": step.state.log_mass.exp(),
    }
    return loop.Report(step.status, numbers)
