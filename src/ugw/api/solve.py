"""`solve`: unbalanced, balanced, fused and partial Gromov–Wasserstein between two spaces or two batches."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .._utils.size_class import PARTIAL_CHOICES, STREAMING_CHOICES, size_class
from ..errors import InputError
from ..geometry.implicit_plan import ImplicitPlan
from ..geometry.space import Space
from ..initializers import multilevel
from ..initializers.multistart import Multistart, base_solver, check_solver, solve_from_candidates
from ..initializers.partial import balanced_candidates, partial_candidates
from ..initializers.search_steps import count_search_steps
from ..initializers.select import candidate_plans, read_start
from ..measures.divergences import partial_divergences
from ..problems.build import Fused, build_partial, build_ugw, resolve_eps
from ..problems.partial.gw import PartialGW
from ..problems.ugw import UGW
from ..problems.ugw_streamed import StreamingUGW
from ..results.base import warn_if_not_converged
from ..results.parameters import with_parameters
from ..results.records import SolverOutput, Status
from ..results.result import Result
from ..solvers.alternating import DEFAULT_SOLVER, AlternateMin
from ..solvers.frank_wolfe import FrankWolfe
from ..solvers.monitor import Monitor
from .batching import checked_chunk_size, explain_allocation_errors, group_items, group_ugw_items, solve_in_chunks
from .config import API_CONFIG
from .estimate import estimate

# How a solve may end because rho is small against the distortions.
_MAY_FAIL_BY_SMALL_RHO = (Status.MAX_ITER, Status.ALTERNATING, Status.COLLAPSED)


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
    """Return the Result (plan, value, status) of unbalanced Gromov–Wasserstein between two spaces or batches of spaces.

        min_p  Σ λ(|Dx_ii' − Dy_jj'|) p_ij p_i'j' + rho1 KL(p1⊗p1 | a⊗a) + rho2 KL(p2⊗p2 | b⊗b)
               + eps KL(p⊗p | (a⊗b)⊗²)  [ + alpha <M, p> ]

    rho: a number in (0, inf] for both sides, a tuple (rho1, rho2), an array (B,) with one per batch item, or a
    tuple of arrays; inf keeps that marginal (both: balanced GW, one: semi-relaxed). `ugw.TV(rho)` and `ugw.Mass(m)`
    are partial GW: p1 ≤ a, p2 ≤ b, with a penalty for unmatched mass or a given mass (docs/partial.md).
    eps: a number ≥ 0, an array (B,), or `ugw.relative(share)`; 0 is the unregularized problem, the only one for TV and
    Mass. "auto": `relative(1e-2)`, 1 % of the mean distortion under the product plan a⊗b, or 0 for TV and Mass.
    loss: λ as a function of tensors or a cone, t² if None.
    fused: `ugw.Fused(alpha, cost)` adds a linear cost.
    init: "auto", "best", "product", "flb", "linear", "random", "coarse", a plan (n, m) or (B, n, m), or the
    Result, ConicResult or LazyPlan of another solve. Steps by which a start is chosen are `result.n_iter_search`.
    solver: `ugw.AlternateMin(tol=, max_iter=, ...)`, for TV and Mass `ugw.FrankWolfe(...)`, or `ugw.Multistart(...)`.

    Warns once (ConvergenceWarning) if an item did not converge; `result.check()` raises.
    Large batches are solved in chunks; True from a callback stops them all. Raises OutOfMemory if nothing fits.
    `result.parameters` holds the rho, eps and solver options of the solve.

    >>> import numpy as np, ugw
    >>> points = np.random.default_rng(0).random((20, 2))
    >>> x, y = ugw.Space.from_points(points), ugw.Space.from_points(points[::-1] @ [[0, 1], [-1, 0]])
    >>> r = ugw.solve(x, y, rho=1.0, eps=1e-4)
    >>> r.plan.argmax(axis=1)[:5]
    array([19, 18, 17, 16, 15])
    """
    arguments = {"loss": loss, "fused": fused}
    sides = partial_divergences(rho)
    if sides is not None:
        problem_and_surrogate = build_partial(x, y, sides=sides, eps=eps, fused=fused, loss=loss)
        result = solve_partial_problem(*problem_and_surrogate, check_solver(solver, FrankWolfe()), init, **arguments)
        return warn_if_not_converged(result)
    chosen: Any = check_solver(solver, DEFAULT_SOLVER)
    method = base_solver(chosen).inner.method
    with explain_allocation_errors(lambda: estimate(x, y, fused=fused, loss=loss, solver=chosen).error_message):
        problem = build_ugw(x, y, rho=rho, eps=resolve_eps(eps, rho), fused=fused, loss=loss, method=method)
        result = solve_problem(problem, chosen, init, **arguments)
    if result.all_converged:
        return result
    return warn_if_not_converged(result, consequence=_small_rho_advice(problem, result))


@torch.no_grad()
def _small_rho_advice(problem: UGW, result: Result) -> str:
    """Return the text "rho = ... is small against ...", "" if that is not why the first failed item failed."""
    first = int(torch.nonzero(result.tensors.status != int(Status.CONVERGED))[0])
    if Status(int(result.tensors.status[first])) not in _MAY_FAIL_BY_SMALL_RHO:
        return ""
    rho = min(float(side.rho[first]) for side in (problem.div_a, problem.div_b))
    mean = float(problem.scale()[first])
    if rho >= API_CONFIG.min_rho_share * mean:
        return ""
    advice = "raise rho or rescale with Space.scaled(), rather than raise eps"
    return f"rho = {rho:.3g} is small against the mean distortion {mean:.2g}: {advice}; "


@torch.no_grad()
def solve_problem(problem: UGW, solver: Any, init: Any, **arguments: Any) -> Result:
    """Return the Result (plan, value, status) of a UGW problem, without a warning if it did not converge.

    Its `parameters` hold rho, eps, solver and init. solver: one that `check_solver` returned; init: the name of an
    initial plan, or a plan; arguments: others of the solve, which are only stored in `result.parameters`.
    """
    start = read_start(problem, solver, init)
    if isinstance(start, ImplicitPlan):
        _check_implicit_start(problem, start)
    if isinstance(problem, StreamingUGW):
        groups = group_items(problem, start, STREAMING_CHOICES)
    else:
        groups = group_ugw_items(problem, start)
    chunk_size = checked_chunk_size(problem, [start for _, start in groups], solver)
    output = solve_in_chunks(problem, solver, groups, chunk_size, partial(_solve_items, problem, solver))
    sides = problem.div_a, problem.div_b
    return with_parameters(problem.result(output), sides, problem.eps, solver, init, **arguments)


@torch.no_grad()
def solve_partial_problem(problem: PartialGW, surrogate: UGW, solver: Any, init: Any, **arguments: Any) -> Result:
    """Return the Result (plan, value, status) of a partial problem, without a warning if it did not converge.

    surrogate: the UGW problem of the same spaces, from whose plans this solve starts; other arguments: as for
    `solve_problem`.
    """
    start = read_start(surrogate, solver, init)
    groups = group_items(problem, start, PARTIAL_CHOICES)
    chunk_size = checked_chunk_size(problem, [start], solver)
    solve_items = partial(_solve_partial_items, problem, surrogate, solver)
    output = solve_in_chunks(problem, solver, groups, chunk_size, solve_items)
    sides = problem.div_a, problem.div_b
    return with_parameters(problem.result(output), sides, problem.eps, solver, init, **arguments)


def _solve_items(problem: UGW, solver: Any, index: Tensor | None, start: Any, monitor: Monitor | None) -> SolverOutput:
    """Return the `SolverOutput` (plans, terms, status, ...) of the items `index`, (k,), of a UGW problem; None: all.

    start: a name, or the plans of these items, as `read_start` returns them; monitor: None without bar and callback.
    """
    items = problem if index is None else problem.take(index)
    if isinstance(items, StreamingUGW):
        make = multilevel.named_plan if isinstance(start, str) else multilevel.to_implicit_plan
        with count_search_steps(items, monitor) as search:
            plan = make(items, start)
        return search.add_to(solver.run(items, plan, monitor).tensors)
    dtype = items.x.dtype
    if dtype == torch.float32 and not items.eps.is_cuda and size_class(*items.largest).uses_compiled_steps:
        # Small problems on a CPU are faster in float64, in which compiled steps are made, and free of float32 rounding.
        items = items.to(torch.float64)
    output = _solve_stored_items(items, solver, start if isinstance(start, str) else start.to(items.x.dtype), monitor)
    return output if items.x.dtype == dtype else output.to(dtype)


def _solve_stored_items(problem: UGW, solver: Any, start: Any, monitor: Monitor | None) -> SolverOutput:
    """Return the `SolverOutput` (plans, terms, status, ...) of a UGW problem with stored plans.

    start: a name, or plans (B, n, m); monitor: None without bar and callback.
    """
    if bool(problem.has_vertex_solutions.all()):  # of all items or none, as `group_ugw_items` divides them
        with count_search_steps(problem, monitor) as search:
            plans = balanced_candidates(problem, start)
        output = solve_from_candidates(_frank_wolfe(solver), PartialGW.balanced(problem), plans, monitor).tensors
        return search.add_to(output)
    with count_search_steps(problem, monitor) as search:
        plans = candidate_plans(problem, start)
    if problem.keeps_zeros:
        _check_finite_value(problem, plans)
    return search.add_to(solve_from_candidates(solver, problem, plans, monitor).tensors)


def _frank_wolfe(solver: Any) -> Any:
    """Return a FrankWolfe with max_iter, progress and callback of an AlternateMin; in a Multistart if it is in one."""
    base = base_solver(solver)
    frank_wolfe = FrankWolfe(max_iter=base.max_iter, progress=base.progress, callback=base.callback)
    return replace(solver, solver=frank_wolfe) if isinstance(solver, Multistart) else frank_wolfe


def _solve_partial_items(
    problem: PartialGW, surrogate: UGW, solver: Any, index: Tensor | None, start: Any, monitor: Monitor | None
) -> SolverOutput:
    """Return the `SolverOutput` (plans, terms, status, ...) of items `index`, (k,), of a partial problem; None: all.

    surrogate: the UGW problem of the same spaces, from whose plans this solve starts; start: a name, or plans; monitor:
    None without bar and callback.
    """
    if index is not None:
        problem, surrogate = problem.take(index), surrogate.take(index)
    with count_search_steps(problem, monitor) as search:
        plans = partial_candidates(problem, surrogate, start)
    return search.add_to(solve_from_candidates(solver, problem, plans, monitor).tensors)


def _check_implicit_start(problem: UGW, plan: ImplicitPlan) -> None:
    """Raise InputError if an initial plan has mass at points of weight 0, or is on another device than the problem.

    plan: (B, n, m), implicit: given by potentials and low-rank factors instead of a stored matrix.
    """
    if plan.device != problem.log_a.device:
        raise InputError(f"init must be on {problem.log_a.device} like the spaces, got a plan on {plan.device}")
    sides = (plan.row_sums, problem.log_a), (plan.col_sums, problem.log_b)
    if any(bool(((sums > 0) & (log_weights == -torch.inf)).any()) for sums, log_weights in sides):
        raise InputError("init must be 0 at points of weight 0, got mass in their rows or columns")


def _check_finite_value(problem: UGW, plans: Tensor) -> None:
    """Raise InputError if the objective is infinite at some initial plan. plans: (B, S, n, m), S for each item."""
    for k in range(plans.shape[1]):
        value = problem.objective(problem.state_of_plan(plans[:, k])).total
        if not bool(torch.isfinite(value).all()):
            raise InputError("a loss that is infinite somewhere needs init=plan of finite value, got an infinite one")
