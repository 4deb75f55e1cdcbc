"""Frank–Wolfe with exact linear programs: eps = 0 with both marginals hard, and plans below the weights.

The linear step is POT's network simplex, the line search exact because F is quadratic along a segment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.pytree import BatchRecord
from ..problems.balanced_gw import BalancedGW
from ..problems.ugw import UGW
from ..results.records import SolverOutput, Status, StepBackend, Terms
from ..results.result import Result
from . import loop
from .base import Solver
from .monitor import Monitor


@dataclass(frozen=True, kw_only=True)
class FrankWolfe(Solver):
    """Solve a problem without entropy by Frank–Wolfe steps to a plan that no linear step improves.

    tol: duality gap, eq. (5.2), at which to stop, relative to the objective of the product plan a⊗b,
    or to the largest possible saving of penalty, if that is less; progress, callback: as for AlternateMin.

    >>> FrankWolfe(tol=1e-6).max_iter
    500
    """

    tol: float = 1e-9
    max_iter: int = 500

    @torch.no_grad()
    def run(self, problem: Any, init: Tensor, monitor: Monitor | None, limits: Tensor | None = None) -> Result:
        """Return the result of a solve from the plan `init` (B, n, m), first projected to the constraints.

        limits: (B,), the most steps of each item, at most `max_iter`; None: `max_iter` for all of them.
        """
        state = problem.state_of_plan(problem.project(init))
        one = torch.ones_like(problem.eps)
        context = _Context(problem, problem.gap_scale(), problem.gap_resolution().clamp(min=self.tol))
        rules = loop.Rules(max_iter=self.max_iter, limits=limits)
        outcome = loop.iterate(_step, context, _Iterate(state, one, one), rules, monitor)
        state = outcome.state.state
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
            backend=torch.full_like(outcome.n_iter, int(StepBackend.TORCH | StepBackend.POT)),
        )
        return problem.result(tensors)


@dataclass(frozen=True, eq=False)
class _Context(BatchRecord):
    """The constants of a run: the problem, the unit of duality gaps (B,), and the relative gap (B,) to stop at."""

    problem: Any
    gap_scale: Tensor
    tol: Tensor


@dataclass(frozen=True, eq=False)
class _Iterate(BatchRecord):
    """The last plan with the quantities computed from it (state), L1 change (B,) and relative duality gap (B,)."""

    state: Any
    change: Tensor
    residual: Tensor


def _step(context: _Context, iterate: _Iterate) -> tuple[_Iterate, loop.Report]:
    """Return the iterate after one step toward the plan that minimizes the linearized objective, and the `Report`.

    The step length minimizes the objective on the segment exactly.
    """
    problem, state = context.problem, iterate.state
    direction = problem.linear_minimizer(state) - state.unit_plan
    slope, curvature = problem.quadratic_along(state, direction)
    gap = (-slope).clamp(min=0.0) / context.gap_scale
    # The minimum of slope·t + curvature·t² on [0, 1]; at t = 1 where the function is concave.
    interior = (-slope / (2.0 * torch.where(curvature > 0, curvature, 1.0))).clamp(0.0, 1.0)
    t = torch.where(curvature > 0, interior, 1.0)
    t = torch.where(gap > context.tol, t, 0.0)
    new = problem.state_of_plan(state.unit_plan + t.to(direction.dtype)[:, None, None] * direction)
    change = t * direction.abs().sum(dim=(1, 2), dtype=torch.float64)
    converged = torch.where(new.is_collapsed, int(Status.COLLAPSED), int(Status.CONVERGED))
    status = torch.where(t == 0, converged, int(Status.RUNNING))
    objective = problem.objective(new).total
    numbers = {
        "objective": objective,
        "relaxed": objective,  # there is only one plan
        "change": change,
        "residual": gap,
        "mass": new.log_mass.exp(),
    }
    return _Iterate(new, change, gap), loop.Report(status, numbers)


def polish(problem: UGW, result: Result, is_balanced: Tensor, max_iter: int, monitor: Monitor | None) -> Result:
    """Return the result in which the items `is_balanced`, (B,) bool, are improved by Frank–Wolfe to a vertex.

    These items have eps = 0 and two hard marginals. result: of an alternating minimization; max_iter: of its steps and
    those of Frank–Wolfe together; monitor: of the run, which goes on; if it has stopped the run, these items get the
    status STOPPED.
    """
    items, old = torch.nonzero(is_balanced).flatten(), result.tensors
    if monitor is not None and monitor.stopped:
        return problem.result(replace(old, status=torch.where(is_balanced, int(Status.STOPPED), old.status)))
    solver, limits = FrankWolfe(max_iter=max_iter), (max_iter - old.n_iter[items]).clamp(min=1)
    new = solver.run(BalancedGW(problem.take(items)), old.plan[items], monitor, limits).tensors
    steps = torch.full((len(old.trace), *new.trace.shape[1:]), torch.nan).to(new.trace)
    steps[items] = new.trace
    names = ("plan", "previous_plan", "relaxed_value", "marginal_error", "change", "residual", "status")
    merged = {name: getattr(old, name).index_copy(0, items, getattr(new, name)) for name in names}
    terms = {k: v.index_copy(0, items, getattr(new.terms, k)) for k, v in old.terms.as_dict().items()}
    tensors = replace(
        old,
        terms=Terms(**terms),
        n_iter=old.n_iter.index_add(0, items, new.n_iter),
        backend=old.backend.index_copy(0, items, old.backend[items] | new.backend),
        trace=torch.cat([old.trace, steps], dim=1),
        **merged,
    )
    return problem.result(tensors)
