"""Arguments that several user-level functions share: the solver, the start, and the record of both in the result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from torch import Tensor

from .._utils.checks import check_choice
from ..errors import InputError
from ..initializers.multistart import Multistart, base_solver
from ..initializers.select import INIT_NAMES, check_common_dimension, read_plan
from ..measures.divergences import Divergence, Mass
from ..problems.ugw import UGW
from ..problems.ugw_streamed import StreamingUGW
from ..results.lazy_plan import LazyPlan
from ..results.parameters import to_plain
from ..results.result import Result
from ..solvers.alternating import AlternateMin
from ..solvers.alternating_lp import AlternateLP
from ..solvers.frank_wolfe import FrankWolfe

AnyResult = TypeVar("AnyResult", bound=Result)


def check_solver(solver: Any, default: AlternateMin | AlternateLP | FrankWolfe) -> Any:
    """Return the caller's solver with the options of the default where none are given, or the default for None.

    Raises InputError unless the solver is of the class of the default, or a Multistart of such a solver.
    """
    solver = default if solver is None else solver
    kind = type(default)
    if not isinstance(base_solver(solver), kind):
        got = type(solver).__name__
        if isinstance(solver, Multistart):
            inner = with_article(type(solver.solver).__name__)
            got += f" of {inner}: make it Multistart(solver={kind.__name__}(), n={solver.n})"
        raise InputError(f"solver must be {with_article(kind.__name__)} or a Multistart of one, got {got}")
    return solver.with_defaults(default)


def with_article(name: str) -> str:
    """Return a class name after "a" or "an".

    >>> with_article("FrankWolfe"), with_article("AlternateMin")
    ('a FrankWolfe', 'an AlternateMin')
    """
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def read_start(problem: UGW, solver: Any, init: Any) -> Any:
    """Return the name of a start, or checked plans (B, n, m), implicit ones for a streaming problem.

    init: a name, a plan, a LazyPlan, or a Result or ConicResult, whose plan is taken.
    """
    init = init.plan if isinstance(init, Result) else init
    is_streaming = isinstance(problem, StreamingUGW)
    if is_streaming and isinstance(solver, Multistart):
        raise InputError(
            "a Multistart stores its plans, got a problem too large for that: the default start tries many"
        )
    if is_streaming and bool(((problem.eps == 0) & problem.div_a.is_hard & problem.div_b.is_hard).any()):
        raise InputError(
            'eps = 0 with both marginals hard needs a stored plan: take eps > 0, or inner=Sinkhorn(method="stabilized")'
        )
    if is_streaming and isinstance(init, LazyPlan):
        return init.implicit_plan((problem.batch, problem.x.n, problem.y.n))
    if not isinstance(init, str):
        return read_plan(problem, init, "init")
    check_choice("init", init, INIT_NAMES)
    if init == "linear":
        check_common_dimension(problem)
    return init


def with_parameters(
    result: AnyResult, sides: tuple[Divergence, Divergence], eps: Tensor, solver: Any, init: Any, **others: Any
) -> AnyResult:
    """Return the result with the rho, eps and solver options that it was solved with, as a plain dict.

    sides: the divergences of both marginals, (B,) each; eps: (B,); others: further arguments of the solve, of which
    those that are None are left out. Stored are rho, one number per side, with the name of the divergence, for
    `ugw.Mass` the mass instead; in a batch these and eps are lists with one entry per item. Solver options that were
    not given are stored as the values used.
    """
    items = slice(None) if result.batched else 0
    numbers: dict[str, Any] = {"eps": eps.tolist()[items]}
    if isinstance(sides[0], Mass):
        numbers["mass"] = sides[0].m.tolist()[items]
    else:
        numbers["rho"] = [side.rho.tolist()[items] for side in sides]  # type: ignore[attr-defined]
    parameters = {"divergence": type(sides[0]).__name__, **numbers}
    parameters["solver"] = to_plain(solver)
    parameters["init"] = init if isinstance(init, str) else "plan"
    parameters |= {name: to_plain(value) for name, value in others.items() if value is not None}
    if result.batched:
        parameters["per_item"] = list(numbers)
    return replace(result, parameters=parameters)
