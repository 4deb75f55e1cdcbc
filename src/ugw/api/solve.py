"""The front door: each function builds parts and calls them."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from .._utils.checks import check_choice
from .._utils.size_class import CONIC_CHOICES, PARTIAL_CHOICES, STREAMING_CHOICES, UGW_CHOICES
from ..errors import ConvergenceWarning, InputError
from ..geometry.space import Space
from ..initializers import multilevel
from ..initializers.conic import STRATEGIES, Strategy, run_entropic_phase, with_strategy_options
from ..initializers.multistart import Multistart, base_solver, solve_from_candidates
from ..initializers.partial import partial_candidates
from ..initializers.plans import product_plan
from ..initializers.select import (
    INIT_NAMES,
    candidate_plans,
    check_common_dimension,
    n_solved_candidates,
    read_plan,
    select_candidates,
)
from ..measures.divergences import partial_divergences
from ..problems.build import Fused, build, build_partial, check_spaces, eps_or_default, parse_cone, uses_streaming
from ..problems.cgw import CGW
from ..problems.partial.gw import PartialGW
from ..problems.ugw import UGW
from ..problems.ugw_streamed import StreamingUGW
from ..results.conic_result import ConicResult
from ..results.lazy_plan import LazyPlan
from ..results.records import SolverOutput, Terms
from ..results.result import Result
from ..solvers.alternating import AlternateMin
from ..solvers.alternating_lp import AlternateLP
from ..solvers.frank_wolfe import FrankWolfe
from ..solvers.monitor import Monitor
from . import estimate as memory
from .batching import Group, SolveItems, group_items, solve_in_chunks, with_product_start_for_easy_items
from .estimate import Estimate

AnyResult = TypeVar("AnyResult", bound=Result)
# Stands for the logarithm of a mass of 0.
LOG_ZERO = -1e30


def solve(
    x: Space,
    y: Space,
    *,
    rho: Any = 1.0,
    eps: Any = "auto",
    loss: Any = None,
    fused: Fused | None = None,
    init: Any = "auto",
    solver: AlternateMin | FrankWolfe | Multistart | None = None,
) -> Result:
    """Unbalanced Gromov–Wasserstein between two spaces, or two batches of spaces.

        min_p  Σ λ(|Dx_ii' − Dy_jj'|) p_ij p_i'j' + rho1 KL(p1⊗p1 | a⊗a) + rho2 KL(p2⊗p2 | b⊗b)
               + eps KL(p⊗p | (a⊗b)⊗²)  [ + alpha <M, p> ]

    rho: a number in (0, inf] for both sides, a tuple (rho1, rho2), an array (B,) with one per batch item, or a
    tuple of arrays; inf keeps that marginal (both: balanced GW, one: semi-relaxed). `ugw.TV(rho)` and `ugw.Mass(m)`
    are partial GW: p1 ≤ a, p2 ≤ b, and a price for what is left behind or a given mass (docs/partial.md).
    eps: a number ≥ 0, an array (B,), or `ugw.relative(share)`; 0 is the unregularized problem, and all there is
    for TV and Mass. "auto": 1e-2, or 0 for these.
    loss: λ as a function of tensors or a cone, t² if None.
    fused: `ugw.Fused(alpha, cost)` adds a linear cost.
    init: "auto", "best", "product", "flb", "linear", "random", "coarse", or a plan (n, m) or (B, n, m). Steps by which
    a start is chosen are not counted.
    solver: `ugw.AlternateMin(tol=, max_iter=, ...)`, for TV and Mass `ugw.FrankWolfe(...)`, or `ugw.Multistart(...)`.

    Warns once (ConvergenceWarning) if an item did not converge; `result.check()` raises.
    Large batches are solved in chunks; True from a callback stops them all. Raises OutOfMemory where nothing fits.

    >>> import numpy as np, ugw
    >>> points = np.random.default_rng(0).random((20, 2))
    >>> x, y = ugw.Space.from_points(points), ugw.Space.from_points(points[::-1] @ [[0, 1], [-1, 0]])
    >>> r = ugw.solve(x, y, rho=1.0, eps=1e-4)
    >>> r.plan.argmax(axis=1)[:5]
    array([19, 18, 17, 16, 15])
    """
    sides = partial_divergences(rho)
    if sides is not None:
        partial, surrogate = build_partial(x, y, sides=sides, eps=eps, fused=fused, loss=loss)
        solver = checked_solver(solver, FrankWolfe())
        with torch.no_grad():
            groups = group_items(partial, _read_start(surrogate, solver, init), PARTIAL_CHOICES)
            solve_items = partial_solve(partial, surrogate, solver)
            return _warned(partial.result(solve_in_chunks(partial, solver, groups, partial.batch, solve_items)))
    chosen: Any = checked_solver(solver, AlternateMin())
    eps = eps_or_default(eps, 1e-2)
    method = base_solver(chosen).inner.method
    with memory.guard(lambda: estimate(x, y, fused=fused, loss=loss, solver=chosen)):
        problem = build(x, y, rho=rho, eps=eps, fused=fused, loss=loss, method=method)
        with torch.no_grad():
            start = _read_start(problem, chosen, init)
            is_streaming = isinstance(problem, StreamingUGW)
            groups = group_items(problem, start, STREAMING_CHOICES if is_streaming else UGW_CHOICES)
            if not is_streaming:
                groups = with_product_start_for_easy_items(problem, groups)
            name = _most_expensive_start(groups)
            task = memory.Task.of(problem, n_candidates(x.n, y.n, name, chosen), name)
            memory.check(task, base_solver(chosen).inner.max_iter)
            solve_items = ugw_solve(problem, chosen)
            return _warned(problem.result(solve_in_chunks(problem, chosen, groups, task.together, solve_items)))


def estimate(
    x: Space, y: Space, *, fused: Fused | None = None, loss: Any = None, solver: AlternateMin | Multistart | None = None
) -> Estimate:
    """What `solve` with the same arguments and its default start will need: path, memory and work, before it runs.

    It is made for a float rho and eps: arrays of them make a batch, which spaces that are not one do not show.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.random.default_rng(0).random((2000, 3)))
    >>> e = ugw.estimate(x, x)
    >>> e.path, 0.5 < e.bytes / 2**30 < 2
    ('stored', True)
    """
    solver = checked_solver(solver, AlternateMin())
    check_spaces(x, y)
    inner = base_solver(solver).inner
    stream = uses_streaming(x, y, fused=fused, loss=loss, method=inner.method)
    count = n_candidates(x.n, y.n, "auto", solver)
    task = memory.Task.between(x, y, fused=fused, loss=loss, streaming=stream, count=count)
    return task.estimate(inner.max_iter)


def _most_expensive_start(groups: list[Group]) -> str:
    """Return the name of the start that takes the most memory, "given" for a plan."""
    names = {start if isinstance(start, str) else "given" for _, start in groups}
    return next(iter(names - {"product"} or names))


def ugw_solve(problem: UGW, solver: Any) -> SolveItems:
    """Return the function that solves some items of a UGW problem, stored or streaming, from a start."""

    def solve_items(index: Tensor | None, start: Any, monitor: Monitor | None) -> SolverOutput:
        """Solve the items `index` from a name or from plans that `_read_start` returned."""
        items = problem if index is None else problem.take(index)
        if isinstance(items, StreamingUGW):
            make = multilevel.named_plan if isinstance(start, str) else multilevel.to_implicit_plan
            with solver.monitoring() if monitor is None else nullcontext(monitor) as monitor:
                return solver.run(items, make(items, start), monitor).tensors
        plans = candidate_plans(items, start)
        _check_finite_value(items, plans)
        return solve_from_candidates(solver, items, select_candidates(items, plans, start), monitor).tensors

    return solve_items


def partial_solve(problem: PartialGW, surrogate: UGW, solver: Any) -> SolveItems:
    """Return the function that solves some items of a partial problem from the plans of its surrogate."""

    def solve_items(index: Tensor | None, start: Any, monitor: Monitor | None) -> SolverOutput:
        """Solve the items `index` from a name or from plans that `_read_start` returned."""
        items, ugw = (problem, surrogate) if index is None else (problem.take(index), surrogate.take(index))
        return solve_from_candidates(solver, items, partial_candidates(items, ugw, start), monitor).tensors

    return solve_items


def conic_solve(problem: Any, surrogate: UGW, solver: Any, strategy: Strategy) -> SolveItems:
    """Return the function that solves some items of a conic problem."""

    def solve_items(index: Tensor | None, start: Any, monitor: Monitor | None) -> SolverOutput:
        """Solve the items `index` from a name or from plans that `_read_start` returned."""
        items, ugw = (problem, surrogate) if index is None else (problem.take(index), surrogate.take(index))
        items, plans = run_entropic_phase(items, solver, strategy.candidates(items, ugw, solver, start))
        return solve_from_candidates(solver, items, plans, monitor).tensors

    return solve_items


def _read_start(problem: UGW, solver: Any, init: Any) -> Any:
    """The name of a start, or plans (B, n, m), checked."""
    streamed = isinstance(problem, StreamingUGW)
    if streamed and isinstance(solver, Multistart):
        raise InputError(
            "a Multistart stores its plans, got a problem too large for that: the default start tries many"
        )
    if streamed and bool(((problem.eps == 0) & problem.div_a.is_hard & problem.div_b.is_hard).any()):
        raise InputError(
            'eps = 0 with both marginals hard needs a stored plan: take eps > 0, or inner=Sinkhorn(method="stabilized")'
        )
    if streamed and isinstance(init, LazyPlan):
        return init.implicit_plan((problem.batch, problem.x.n, problem.y.n))
    if not isinstance(init, str):
        return read_plan(problem, init, "init")
    check_choice("init", init, INIT_NAMES)
    if init == "linear":
        check_common_dimension(problem)
    return init


def n_candidates(n: int, m: int, start: str, solver: Any) -> int:
    """Return how many plans of n × m entries are solved for at a time, for each item, from a start of that name."""
    return n_solved_candidates(n, m, start) + (solver.n - 1 if isinstance(solver, Multistart) else 0)


def solve_conic(
    x: Space,
    y: Space,
    *,
    rho: Any = 1.0,
    cone: Any = "gaussian-hellinger",
    eps: Any = 0.0,
    init: Any = "auto",
    solver: AlternateMin | AlternateLP | Multistart | None = None,
) -> ConicResult:
    """The conic distance CGW between two spaces, or two batches of spaces: a metric, and at most UGW at eps = 0.

        CGW = rho1 m(a)² + rho2 m(b)² − R max <w, G w>,  G = exp(−λ(|Dx_ii' − Dy_jj'|)/R),  R = rho1 + rho2

    rho: as for `solve`, finite. cone: "gaussian-hellinger" (λ = t²), "hellinger-kantorovich" or
    `ugw.HellingerKantorovich(cutoff)`, or λ as a function of tensors or `ugw.Loss(function)`, each with `tol` and
    `max_rank` for the factors of its kernel, used beyond n·m = 400, or 2500 if too coarse; "partial-transport" or
    `ugw.PartialTransport(q)`, TV in place of KL, for small spaces and one rho: see there.
    eps: entropy of some steps before the first, in units of rho; 0 for partial transport.
    init: as for `solve`, or a Result of `solve`, whose lift is never worse than its plan's UGW objective at eps = 0.
    solver: as for `solve`; `ugw.AlternateLP(tol=, max_iter=, ...)` for partial transport. Options left at their
    defaults are those that suit conic problems.

    >>> import numpy as np, ugw
    >>> points = np.random.default_rng(0).random((8, 2))
    >>> x, y = ugw.Space.from_points(points), ugw.Space.from_points(points[::-1] + 1.0, weights=np.full(8, 0.25))
    >>> c = ugw.solve_conic(x, y, rho=1.0)
    >>> round(c.distance, 6), c.is_metric  # the same shape, once of mass 1 and once of mass 2
    (1.0, True)
    """
    read = parse_cone(x, y, cone)
    strategy = STRATEGIES[read.solver_kind]
    problem, surrogate = strategy.build(x, y, rho=rho, cone=read, eps=eps)
    solver = with_strategy_options(checked_solver(solver, strategy.solver), strategy.solver)
    terms = int(problem.distortion_sum.rank.max()) if isinstance(problem, CGW) else 1
    task = replace(memory.Task.of(surrogate, 1, "auto"), terms=max(1, terms))
    with torch.no_grad(), memory.guard(lambda: task.estimate(inner=1)):
        start = _read_start(surrogate, solver, init.plan if isinstance(init, Result) else init)
        groups = group_items(problem, start, CONIC_CHOICES)
        solve_items = conic_solve(problem, surrogate, solver, strategy)
        return _warned(problem.result(solve_in_chunks(problem, solver, groups, problem.batch, solve_items)))


def checked_solver(solver: Any, default: AlternateMin | AlternateLP | FrankWolfe) -> Any:
    """The solver that a caller gave, if it is of the kind of the default, or the default for None."""
    solver = default if solver is None else solver
    kind = type(default)
    if not isinstance(base_solver(solver), kind):
        got = type(solver).__name__
        if isinstance(solver, Multistart):
            got += f" of an {type(solver.solver).__name__}: make it Multistart(solver={kind.__name__}(), n={solver.n})"
        raise InputError(f"solver must be an {kind.__name__} or a Multistart of one, got {got}")
    return solver


def _warned(result: AnyResult) -> AnyResult:
    if not bool(torch.as_tensor(result.converged).all()):
        warnings.warn(result.message, ConvergenceWarning, stacklevel=3)
    return result


def _check_finite_value(problem: UGW, plans: Tensor) -> None:
    """A loss that is infinite somewhere needs a start that pays it nowhere."""
    if not problem.infinite:
        return
    for k in range(plans.shape[1]):
        value = problem.objective(problem.state_of_plan(plans[:, k])).total
        if not bool(torch.isfinite(value).all()):
            raise InputError("a loss that is infinite somewhere needs init=plan of finite value, got an infinite one")


def objective(
    plan: Any,
    x: Space,
    y: Space,
    *,
    rho: Any = 1.0,
    eps: Any = 0.0,
    loss: Any = None,
    fused: Fused | None = None,
) -> Terms:
    """The terms of the objective F(plan, plan) of any plan (n, m) or (B, n, m); `.total` is their sum.

    A hard side contributes 0, whether or not the plan keeps it. With `ugw.TV` these are the terms of the paper's
    TV⊗ functional, for plans below the weights or not.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.eye(3))
    >>> round(ugw.objective(np.eye(3) / 3, x, x, rho=1.0).total, 12)
    0.0
    """
    sides = partial_divergences(rho)
    if sides is not None:
        partial, surrogate = build_partial(x, y, sides=sides, eps=eps, fused=fused, loss=loss)
        terms = partial.unrestricted(read_plan(surrogate, plan, "plan"))
        return terms.present(batched=surrogate.batched, numpy=surrogate.numpy)
    problem = build(x, y, rho=rho, eps=eps, fused=fused, loss=loss)
    plan = read_plan(problem, plan, "plan")
    mass = plan.sum(dim=(1, 2), dtype=torch.float64)
    with torch.no_grad():
        # A plan of zeros has no shape; any will do for a mass of 0.
        shape = torch.where(mass[:, None, None] > 0, plan / mass.to(plan.dtype)[:, None, None], product_plan(problem))
        log_mass = torch.where(mass > 0, mass.log(), LOG_ZERO)
        terms = problem.objective(problem.state_of_plan(shape).weighing(log_mass))
    return terms.present(batched=problem.batched, numpy=problem.numpy)
