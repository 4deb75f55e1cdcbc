"""Frank–Wolfe with exact linear programs: eps = 0 with both marginals hard, and plans below the weights.

The linear step is POT's network simplex, the line search exact because F is quadratic along a segment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.pytree import take_fields
from ..problems.base import SpacePair
from ..problems.ugw import UGW
from ..results.records import SolverOutput, Status, Terms
from ..results.result import Result
from . import loop
from .base import Solver
from .monitor import Monitor


@dataclass(frozen=True, kw_only=True)
class FrankWolfe(Solver):
    """Descend to a plan that no linear step improves.

    tol: duality gap, eq. (5.2), at which to stop, relative to the objective of the product plan, or to
    what the mass is worth, if that is less; progress, callback: as for AlternateMin.

    >>> FrankWolfe(tol=1e-6).max_iter
    500
    """

    tol: float = 1e-9
    max_iter: int = 500

    @torch.no_grad()
    def run(self, problem: Any, init: Tensor, watch: Monitor | None) -> Result:
        """Solve from the plan `init` (B, n, m), first moved to where the problem's constraints hold."""
        now = problem.state_of_plan(problem.feasible(init))
        one = torch.ones_like(problem.eps)
        context = _Context(problem, problem.stake(), problem.resolution().clamp(min=self.tol))
        rules = loop.Rules(max_iter=self.max_iter)
        outcome = loop.iterate(_step, context, _State(now, one, one), rules, watch)
        now = outcome.state.now
        terms = problem.objective(now)
        tensors = SolverOutput(
            plan=now.plan,
            previous_plan=now.plan,
            potentials=None,
            terms=terms,
            relaxed_value=terms.total,
            marginal_error=problem.marginal_error(now),
            change=outcome.state.change,
            residual=outcome.state.gap,
            status=outcome.status,
            n_iter=outcome.n_iter,
            trace=outcome.table(),
        )
        return problem.result(tensors)


@dataclass(frozen=True, eq=False)
class _Context:
    problem: Any
    scale: Tensor  # (B,), what gaps are measured by
    tol: Tensor  # (B,)

    def take(self, index: Tensor) -> _Context:
        return take_fields(self, index)


@dataclass(frozen=True, eq=False)
class _State:
    now: Any
    change: Tensor
    gap: Tensor  # relative

    @property
    def batch(self) -> int:
        return self.gap.shape[0]

    @property
    def device(self) -> torch.device:
        return self.gap.device

    def take(self, index: Tensor) -> _State:
        return take_fields(self, index)


def _step(context: _Context, state: _State) -> tuple[_State, loop.Report]:
    problem, now = context.problem, state.now
    direction = problem.vertex(now) - now.unit_plan
    slope, curvature = problem.along(now, direction)
    gap = (-slope).clamp(min=0.0) / context.scale
    # The minimum of slope·t + curvature·t² on [0, 1]; it falls all the way where it is concave.
    inside = (-slope / (2.0 * torch.where(curvature > 0, curvature, 1.0))).clamp(0.0, 1.0)
    t = torch.where(curvature > 0, inside, 1.0)
    t = torch.where(gap > context.tol, t, 0.0)
    new = problem.state_of_plan(now.unit_plan + t.to(direction.dtype)[:, None, None] * direction)
    change = t * direction.abs().sum(dim=(1, 2), dtype=torch.float64)
    end = torch.where(problem.is_collapsed(new), int(Status.COLLAPSED), int(Status.CONVERGED))
    status = torch.where(t == 0, end, int(Status.RUNNING))
    objective = problem.objective(new).total
    numbers = {
        "objective": objective,
        "relaxed": objective,  # both plans are one here
        "change": change,
        "residual": gap,
        "mass": new.log_mass.exp(),
    }
    return _State(new, change, gap), loop.Report(status, numbers)


def polish(problem: SpacePair, result: Result, max_iter: int, watch: Monitor | None) -> Result:
    """Where eps = 0 and both marginals are hard, carry on to a vertex; leave the other items alone.

    The same open_monitor looks on. If it stopped the run, these items have not got to where they should.
    """
    ours = problem.div_a.is_hard & problem.div_b.is_hard & (problem.eps == 0)
    items = torch.nonzero(ours).flatten()
    if not len(items) or not isinstance(problem, UGW):
        return result
    old = result.tensors
    if watch is not None and watch.stopped:
        return problem.result(replace(old, status=torch.where(ours, int(Status.STOPPED), old.status)))
    end = FrankWolfe(max_iter=max_iter).run(problem.take(items), old.plan[items], watch).tensors
    steps = torch.full((len(old.trace), *end.trace.shape[1:]), torch.nan).to(end.trace)
    steps[items] = end.trace
    same = ("plan", "previous_plan", "relaxed_value", "marginal_error", "change", "residual", "status")
    merged = {name: getattr(old, name).index_copy(0, items, getattr(end, name)) for name in same}
    terms = {k: v.index_copy(0, items, getattr(end.terms, k)) for k, v in old.terms.as_dict().items()}
    tensors = replace(
        old,
        terms=Terms(**terms),
        n_iter=old.n_iter.index_add(0, items, end.n_iter),
        trace=torch.cat([old.trace, steps], dim=1),
        **merged,
    )
    return problem.result(tensors)
