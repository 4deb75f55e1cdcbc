"""Several starts, one batch, the best result."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .._utils.checks import check_whole_number
from .._utils.pytree import take
from ..errors import InputError
from ..problems.base import SpacePair
from ..results.records import SolverOutput, Status
from ..results.result import Result
from ..solvers.alternating import AlternateMin
from ..solvers.base import Solver
from ..solvers.frank_wolfe import polish
from ..solvers.monitor import Monitor
from . import plans as starts
from .coarse import first_lowest

# Objectives within this relative distance count as equal; the lowest index among them wins.
TIE = 1e-9
# Other random starts than those of init="random".
OTHER_SEED = 1


@dataclass(frozen=True, kw_only=True)
class Multistart:
    """A solver that tries what it is given and n − 1 random starts, as one batch, and keeps the best of each item.

    >>> import numpy as np, ugw
    >>> rng = np.random.default_rng(0)
    >>> x, y = ugw.Space.from_points(rng.random((12, 2))), ugw.Space.from_points(rng.random((12, 3)))
    >>> one, many = (ugw.solve(x, y, init="random", solver=ugw.Multistart(n=n)) for n in (1, 6))
    >>> many.value <= one.value
    True
    """

    solver: Solver = field(default_factory=AlternateMin)
    n: int = 8

    def __post_init__(self) -> None:
        check_whole_number("Multistart n", self.n)
        if not isinstance(self.solver, Solver):
            raise InputError(
                f"Multistart solver must be an AlternateMin, an AlternateLP or a FrankWolfe, "
                f"got {type(self.solver).__name__}"
            )

    def __call__(self, problem: Any, init: Any) -> Result:
        """Solve from `init` (B, n, m) and n − 1 random starts."""
        return best_of(self, problem, init[:, None])

    def with_random(self, problem: SpacePair, plans: Tensor) -> Tensor:
        """The given plans (B, S, n, m) and n − 1 random ones, whatever their number: (B, S + n − 1, n, m)."""
        if self.n == 1:
            return plans
        return torch.cat([plans, starts.random(problem, self.n - 1, seed=OTHER_SEED)], dim=1)


def best_of(solver: Any, problem: Any, plans: Tensor, watch: Monitor | None = None) -> Result:
    """Solve every start of every item as one batch; the best result of each item. plans: (B, S, n, m).

    solver: an AlternateMin, an AlternateLP, a FrankWolfe, or a Multistart of one; watch: who looks on
    already, if anybody does.
    """
    if isinstance(solver, Multistart):
        return best_of(solver.solver, problem, solver.with_random(problem, plans), watch)
    batch, count = plans.shape[:2]
    first = torch.arange(batch, device=plans.device)
    repeated = problem if count == 1 else problem.take(first.repeat_interleave(count))
    with solver.monitoring() if watch is None else nullcontext(watch) as watch:
        result = solver.run(repeated, plans.flatten(0, 1), watch)
        tensors = polish(repeated, result, solver.max_iter, watch).tensors
    if count > 1:
        tensors = take(tensors, _winner(repeated, tensors, count) + count * first)
    return problem.result(tensors)


def _winner(problem: SpacePair, tensors: SolverOutput, count: int) -> Tensor:
    """Index (B,) of the best of each item's `count` results."""
    # A plan that misses a hard marginal may well have a lower objective: it counts only if no other is there.
    wrong = (problem.div_a.is_hard | problem.div_b.is_hard) & (tensors.status != int(Status.CONVERGED))
    wrong = wrong.view(-1, count)
    wrong &= ~wrong.all(1, keepdim=True)
    values = torch.where(wrong, torch.inf, tensors.terms.total.view(-1, count))
    return first_lowest(values, TIE)
