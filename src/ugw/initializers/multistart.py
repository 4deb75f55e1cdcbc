"""Solve from several initial plans as one batch, and keep the best result of each item."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
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
from ..solvers.monitor import Monitor
from .config import INITIALIZER_CONFIG
from .plans import random_anchor_plans
from .successive_halving import best_candidates


@dataclass(frozen=True, kw_only=True)
class Multistart:
    """A solver that solves from the given initial plans and n − 1 random ones, and keeps the best result of each item.

    >>> import numpy as np, ugw
    >>> rng = np.random.default_rng(0)
    >>> x, y = ugw.Space.from_points(rng.random((12, 2))), ugw.Space.from_points(rng.random((12, 3)))
    >>> one, many = (ugw.solve(x, y, init="random", solver=ugw.Multistart(n=n)) for n in (1, 6))
    >>> many.value <= one.value + 1e-12
    True
    """

    solver: Solver = field(default_factory=AlternateMin)
    n: int = 8

    def __post_init__(self) -> None:
        """Raise InputError unless n is a whole number > 0 and `solver` a Solver that is no Multistart."""
        object.__setattr__(self, "n", check_whole_number("Multistart n", self.n))  # the record is frozen
        if not isinstance(self.solver, Solver):
            raise InputError(
                f"Multistart solver must be an AlternateMin, an AlternateLP or a FrankWolfe, "
                f"got {type(self.solver).__name__}"
            )

    def __call__(self, problem: Any, init: Any) -> Result:
        """Return the `Result` with the best solution of each item, from `init` (B, n, m) and n − 1 random plans."""
        return solve_from_candidates(self, problem, init[:, None])

    def with_defaults(self, defaults: Solver) -> Multistart:
        """Return the Multistart whose inner solver has the options of `defaults` where its own are None."""
        return replace(self, solver=self.solver.with_defaults(defaults))

    def with_random_plans(self, problem: SpacePair, plans: Tensor) -> Tensor:
        """Return the plans (B, S, n, m) followed by `self.n` − 1 random ones of mass 1, (B, S + self.n − 1, n, m)."""
        if self.n == 1:
            return plans
        more = random_anchor_plans(problem, self.n - 1, seed=INITIALIZER_CONFIG.multistart_seed)
        return torch.cat([plans, more], dim=1)


def base_solver(solver: Any) -> Any:
    """Return the solver that a Multistart runs, or `solver` itself if it is no Multistart."""
    return solver.solver if isinstance(solver, Multistart) else solver


def check_solver(solver: Any, default: Solver) -> Any:
    """Return `solver` with the options of `default` where its own are None, or `default` if solver is None.

    Raises InputError unless the solver is of the class of the default, or a Multistart of such a solver.
    """
    if solver is None:
        return default
    kind = type(default)
    if not isinstance(base_solver(solver), kind):
        got = type(solver).__name__
        if isinstance(solver, Multistart):
            inner = with_article(type(solver.solver).__name__)
            got += f" of {inner}: make it Multistart(solver={kind.__name__}(), n={solver.n})"
        raise InputError(f"solver must be {with_article(kind.__name__)} or a Multistart of one, got {got}")
    return solver.with_defaults(default)


def check_stores_plans(solver: Any, function: str) -> Any:
    """Return the solver unchanged; raise InputError, naming `function`, if its Sinkhorn method is "streaming"."""
    inner = getattr(base_solver(solver), "inner", None)
    if inner is not None and inner.method == "streaming":
        raise InputError(
            f'{function} stores its plans: Sinkhorn method must be "auto", "stabilized" or "log", got "streaming"'
        )
    return solver


def with_article(name: str) -> str:
    """Return a class name after "a" or "an".

    >>> with_article("FrankWolfe"), with_article("AlternateMin")
    ('a FrankWolfe', 'an AlternateMin')
    """
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def solve_from_candidates(solver: Any, problem: Any, plans: Tensor, monitor: Monitor | None = None) -> Result:
    """Return the `Result` with the best solution of each item over its initial plans (B, S, n, m), run as one batch.

    The best has the lowest objective; `n_iter_search` counts the steps of the others. With hard marginals, converged
    solutions are preferred. A Multistart adds its random plans.

    solver: an AlternateMin, an AlternateLP, a FrankWolfe, or a Multistart of one; monitor: progress bar and callback of
    the run, None to open those of the solver.
    """
    if isinstance(solver, Multistart):
        return solve_from_candidates(solver.solver, problem, solver.with_random_plans(problem, plans), monitor)
    batch, count = plans.shape[:2]
    items = torch.arange(batch, device=plans.device)
    repeated = problem if count == 1 else problem.take(items.repeat_interleave(count))
    with solver.monitoring(numpy=problem.numpy) if monitor is None else nullcontext(monitor) as monitor:
        output = solver.run(repeated, plans.flatten(0, 1), monitor).tensors
    if count > 1:
        n_steps = output.n_iter.view(batch, count).sum(1)
        output = take(output, _best_of_each_item(repeated, output, count) + count * items)
        output = replace(output, n_iter_search=n_steps - output.n_iter)
    return problem.result(output)


def _best_of_each_item(problem: SpacePair, output: SolverOutput, count: int) -> Tensor:
    """Return for each item the index (B,), below `count`, of the best of its `count` solutions in `output`.

    It has the lowest objective, the first of those that are equal up to 1e-9 of it. With hard marginals, solutions
    that have not converged count only if no other is there.
    """
    # A plan that misses a hard marginal may well have a lower objective: it counts only if no other is there.
    is_wrong = (problem.div_a.is_hard | problem.div_b.is_hard) & (output.status != int(Status.CONVERGED))
    is_wrong = is_wrong.view(-1, count)
    is_wrong &= ~is_wrong.all(1, keepdim=True)
    values = torch.where(is_wrong, torch.inf, output.terms.total.view(-1, count))
    return best_candidates(values, 1, INITIALIZER_CONFIG.solution_tie)[:, 0]
