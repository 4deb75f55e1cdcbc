"""`solve_conic`: the conic distance CGW between two spaces or two batches."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from .._utils.size_class import CONIC_CHOICES
from ..geometry.space import Space
from ..initializers.conic import STRATEGIES, Strategy, run_entropic_phase
from ..initializers.multistart import Multistart, check_solver, check_stores_plans, solve_from_candidates
from ..initializers.search_steps import count_search_steps
from ..initializers.select import read_start
from ..measures.cones import Cone, PartialTransport
from ..problems.build import parse_cone
from ..problems.ugw import UGW
from ..results.base import warn_if_not_converged
from ..results.conic_result import ConicResult
from ..results.parameters import with_parameters
from ..results.records import SolverOutput
from ..solvers.alternating import AlternateMin
from ..solvers.alternating_lp import AlternateLP
from ..solvers.monitor import Monitor
from .batching import check_memory, explain_allocation_errors, group_items, solve_in_chunks
from .estimate import estimate_of
from .memory import conic_model


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
    """Return the conic divergence CGW between two spaces or two batches, as a ConicResult; it is ≤ UGW at eps = 0.

        CGW = rho1 m(a)² + rho2 m(b)² − R max <w, G w>,  G = exp(−λ(|Dx_ii' − Dy_jj'|)/R),  R = rho1 + rho2

    over w = P^(rho1/R) Q^(rho2/R) with P 1 = a and Qᵀ 1 = b. The result has CGW as `value`, and as `distance` its root
    of the order of the cone (the square root for KL), which is a metric where `is_metric` is true.

    rho: as for `solve`, finite. cone: "gaussian-hellinger" (λ = t²), "hellinger-kantorovich" or
    `ugw.HellingerKantorovich(cutoff)`, or λ as a function of tensors or `ugw.Loss(function)`; "partial-transport" or
    `ugw.PartialTransport(q)`, TV in place of KL, for small spaces and one rho: see there. Cones other than partial
    transport have the options `tol` and `max_rank` of the low-rank factors of the kernel G. Factors are used if
    n·m > 400; up to n·m = 2500 the sum is computed exactly if they miss `tol` and `max_rank` is None.
    eps: entropy of a preliminary phase of steps, whose plans the solve starts from, as a multiple of rho; 0, the
    default and "auto", is no such phase, and partial transport requires 0. CGW itself has no entropy.
    init: as for `solve`; the lift of a Result of `solve` is never worse than its plan's UGW objective at eps = 0.
    solver: as for `solve`, but its `tol` bounds an estimate of the relative decrease of the value still to come;
    `ugw.AlternateLP(tol=, max_iter=, ...)` for partial transport. The proximal schedule and the inner iterations are
    those that suit conic problems unless given.

    >>> import numpy as np, ugw
    >>> points = np.random.default_rng(0).random((8, 2))
    >>> x, y = ugw.Space.from_points(points), ugw.Space.from_points(points[::-1] + 1.0, weights=np.full(8, 0.25))
    >>> c = ugw.solve_conic(x, y, rho=1.0)
    >>> round(c.distance, 6), c.is_metric  # the same shape, once of mass 1 and once of mass 2
    (1.0, True)
    """
    parsed_cone = parse_cone(x, y, cone)
    problem, surrogate = STRATEGIES[parsed_cone.solver_kind].build(x, y, rho=rho, cone=parsed_cone, eps=eps)
    return warn_if_not_converged(solve_conic_problem(problem, surrogate, parsed_cone, solver, init))


@torch.no_grad()
def solve_conic_problem(problem: Any, surrogate: UGW, cone: Cone, solver: Any, init: Any) -> ConicResult:
    """Return the ConicResult (plan between cones, CGW value, status) of a conic problem; no warning if not converged.

    surrogate: the UGW problem of the same spaces, for which initial plans are made; solver: None for the default of the
    cone; init: the name of the initial plans, or a plan to start from.
    """
    strategy = STRATEGIES[cone.solver_kind]
    solver = check_stores_plans(check_solver(solver, strategy.solver), "solve_conic")
    model = conic_model(problem, surrogate, init)
    with explain_allocation_errors(lambda: estimate_of(model, n_inner=1).error_message):
        start = read_start(surrogate, solver, init)
        groups = group_items(problem, start, CONIC_CHOICES)
        solve_items = partial(_solve_items, (problem, surrogate), solver, strategy)
        output = solve_in_chunks(problem, solver, groups, check_memory(model), solve_items)
    sides = surrogate.div_a, surrogate.div_b
    arguments = {"cone": cone, "divergence": "TV" if isinstance(cone, PartialTransport) else None}
    return with_parameters(problem.result(output), sides, problem.eps, solver, init, **arguments)


def _solve_items(
    pair: tuple[Any, UGW], solver: Any, strategy: Strategy, index: Tensor | None, start: Any, monitor: Monitor | None
) -> SolverOutput:
    """Return the `SolverOutput` (plans, terms, status, ...) of the items `index`, (k,), of a conic problem; None: all.

    pair: the problem, and the UGW problem of the same spaces, for which initial plans are made; strategy: has the
    function that makes them for this kind of cone; start: the name of the initial plans, or the plans of these items.
    """
    problem, surrogate = pair if index is None else (pair[0].take(index), pair[1].take(index))
    with count_search_steps(problem, monitor) as search:
        problem, plans = run_entropic_phase(problem, solver, strategy.candidates(problem, surrogate, solver, start))
    return search.add_to(solve_from_candidates(solver, problem, plans, monitor).tensors)
