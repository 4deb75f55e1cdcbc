"""`solve_linear`: unbalanced optimal transport with KL, TV, a given mass or hard marginals."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .._utils.checks import as_parameter, as_tensor, check_finite
from ..errors import InputError
from ..geometry.point_distances import cross_distances
from ..geometry.space import Space
from ..initializers.multistart import check_stores_plans, with_article
from ..measures.divergences import Divergence, Mass, divergence_pair, partial_divergences
from ..problems.build import (
    Relative,
    check_hard_masses,
    check_mass,
    check_spaces,
    check_zero_eps,
    common_batch_size,
    resolve_eps,
)
from ..problems.partial.ot import PartialW
from ..problems.uot import UW
from ..results.base import warn_if_not_converged
from ..results.parameters import with_parameters
from ..results.records import SolverOutput
from ..results.result import Result
from ..solvers.alternating import AlternateMin
from ..solvers.base import Solver
from ..solvers.frank_wolfe import FrankWolfe
from ..solvers.monitor import Monitor
from ..solvers.proximal import ProximalSchedule
from ..solvers.sinkhorn import Sinkhorn
from .batching import divide_groups, group_items, solve_in_chunks

# The default solver with entropy. Only the proximal term depends on the plan, so that steps may be sharp and many inner
# iterations pay.
ENTROPIC = AlternateMin(
    tol=1e-7, inner=Sinkhorn(max_iter=500), proximal=ProximalSchedule(first=0.1, last=0.003, factor=0.8)
)


# The default solver of items that are solved by linear programs.
EXACT = FrankWolfe()


def solve_linear(
    x: Any,
    y: Any,
    *,
    cost: Any = "sqeuclidean",
    rho: Any = 1.0,
    eps: Any = "auto",
    solver: AlternateMin | FrankWolfe | None = None,
) -> Result:
    """Return the Result of unbalanced optimal transport between weighted points, or for a given cost, or of batches.

        min_p  <cost, p> + rho1 KL(p1 | a) + rho2 KL(p2 | b) + eps KL(p | a⊗b)

    cost: the name of a distance between points ("sqeuclidean", "euclidean", or one that SciPy knows), or a matrix
    (n, m) or (B, n, m).
    x, y: Spaces, whose weights count and, for a cost by name, their points; their distances are not used. Or arrays:
    points (n, d) or (B, n, d) of weight 1/n each for a cost by name; weights (n,) or (B, n), or None for 1/n each, for
    a matrix.
    rho: as for `solve`, a number or a tuple (rho1, rho2); inf is a hard marginal. `ugw.TV(rho)` has |p1 − a| in place
    of KL, `ugw.Mass(m)` a plan of mass m, both over plans with p1 ≤ a and p2 ≤ b.
    eps: a number ≥ 0, an array (B,), or `ugw.relative(share)` of the mean cost of the product plan a⊗b. 0 is exact by
    linear programs for TV, Mass and two hard marginals, and solved by proximal steps for KL. "auto":
    `relative(1e-2)`, or 0 for TV and Mass, which have no entropy.
    solver: a `ugw.AlternateMin(...)`, or where linear programs solve all items only a `ugw.FrankWolfe(...)`; None for a
    batch in which they solve some items only. Its tolerances, proximal schedule and inner iterations, if not given, are
    those that suit linear problems.
    The cost is `terms.linear` of the result; potentials are those of p = a⊗b·exp((f ⊕ g − cost)/eps).

    >>> import numpy as np, ugw
    >>> r = ugw.solve_linear([[0.0], [1.0], [9.0]], [[0.1], [1.1]], rho=ugw.TV(1.0))
    >>> r.plan.round(3)
    array([[0.333, 0.   ],
           [0.   , 0.333],
           [0.   , 0.   ]])
    >>> round(ugw.solve_linear([0.5, 0.5], [0.5, 0.5], cost=[[0, 1], [1, 0]], rho=np.inf, eps=0.0).value, 12)
    0.0
    """
    a, b, matrix = _read_sides(x, y, cost)
    with torch.no_grad():
        problem = _build(a, b, matrix, rho, eps)
        has_programs = _has_programs(problem)
        chosen: Any = _choose_solver(solver, has_programs)
        # A linear problem has one minimum: its size matters for no choice.
        groups = divide_groups(group_items(problem, "product", choices=()), has_programs)
        output = solve_in_chunks(problem, chosen, groups, problem.batch, partial(_solve_items, problem, chosen))
        result = problem.result(output)
    # As the caller gave them: two hard marginals at eps = 0 are solved as a Mass.
    given = partial_divergences(rho) or divergence_pair(rho)
    sides = given[0].expand(problem.batch, a.device), given[1].expand(problem.batch, a.device)
    named_cost = cost if isinstance(cost, str) else matrix
    if bool(has_programs.any()) and not bool(has_programs.all()):
        chosen = [EXACT if is_program else ENTROPIC for is_program in has_programs.tolist()]
    return warn_if_not_converged(with_parameters(result, sides, problem.eps, chosen, "product", cost=named_cost))


def _choose_solver(solver: Any, has_programs: Tensor) -> Solver:
    """Return `solver`, or the default for None, with all options set: a FrankWolfe or an AlternateMin.

    It is a FrankWolfe if linear programs solve all items; an AlternateMin is for the other items. has_programs: (B,)
    bool, the items that linear programs solve. Raises InputError if `solver` cannot solve all items.
    """
    if bool(has_programs.all()):
        return _check_class(solver, EXACT, "TV, Mass, or eps = 0 with hard marginals")
    exact = torch.nonzero(has_programs).flatten().tolist()
    if exact and solver is not None:
        raise InputError(
            f"solver must be None for a batch of which linear programs solve only {_list_items(exact)}, with eps = 0 "
            f"and hard marginals, got {type(solver).__name__}: solve these and the others in two calls"
        )
    return _check_class(solver, ENTROPIC, "KL with entropy or a soft side")


def _list_items(items: list[int]) -> str:
    """Return the text "item 4" or "items 0, 1, ..." of a list of items, of which at most three are named.

    >>> _list_items([4]), _list_items([0, 1, 2, 3, 4])
    ('item 4', 'items 0, 1, 2 and 2 more')
    """
    named = ", ".join(map(str, items[:3]))
    more = f" and {len(items) - 3} more" if len(items) > 3 else ""
    return f"item{'s' * (len(items) > 1)} {named}{more}"


def _check_class(solver: Any, default: Solver, problem: str) -> Solver:
    """Return `solver` with options that are None taken from `default`, or `default` itself if `solver` is None.

    Raises InputError if `solver` is not of the class of `default`, or if it streams plans. A Multistart is refused too:
    a linear problem has one minimum. problem: words for the message, the problems that need this class.
    """
    kind = type(default)
    if solver is not None and not isinstance(solver, kind):
        raise InputError(f"solver must be {with_article(kind.__name__)} for {problem}, got {type(solver).__name__}")
    return default if solver is None else check_stores_plans(solver.with_defaults(default), "solve_linear")


def _build(a: Space, b: Space, cost: Tensor, rho: Any, eps: Any) -> UW | PartialW:
    """Return the linear problem: a PartialW (plans with p1 ≤ a, p2 ≤ b) for TV and Mass, a UW (KL penalties) otherwise.

    cost: (n, m) or (B, n, m); rho: penalty of the marginals, inf hard; eps: entropy.
    """
    sides, resolved = partial_divergences(rho), resolve_eps(eps, rho)
    number = resolved.share if isinstance(resolved, Relative) else as_parameter("eps", resolved, allow_zero=True)
    if sides is not None:
        check_zero_eps(resolved, "TV and Mass are exact linear programs")
        exact = _with_batch(PartialW, a, b, sides, number, cost)
        if isinstance(exact.div_a, Mass):
            check_mass(exact, exact.div_a.m)
        return exact
    problem = _with_batch(UW, a, b, divergence_pair(rho), number, cost)
    if isinstance(resolved, Relative):
        problem = replace(problem, eps=problem.eps * _mean_cost(problem, is_auto=resolved is not eps))
    check_hard_masses(problem)
    return problem


def _has_programs(problem: UW | PartialW) -> Tensor:
    """Return (B,) bool: is an item solved by linear programs? It is for TV, Mass and two hard marginals at eps = 0."""
    if isinstance(problem, PartialW):
        return torch.ones_like(problem.eps, dtype=torch.bool)
    return problem.div_a.is_hard & problem.div_b.is_hard & (problem.eps == 0)


def _solve_items(
    problem: UW | PartialW, solver: Any, index: Tensor | None, start: str, monitor: Monitor | None
) -> SolverOutput:
    """Return the `SolverOutput` (plans, terms, status, ...) of the items `index`, (k,), of a linear problem; None: all.

    All start from the product plan: `start` is not used. Linear programs must solve all of these items or none. If all,
    the solver is `solver` if that is a FrankWolfe, otherwise the default one, `EXACT`; if none, it is `solver`.
    """
    items = problem if index is None else problem.take(index)
    plan = items.product
    if bool(_has_programs(items).all()):
        items = items if isinstance(items, PartialW) else _with_full_mass(items)
        solver = solver if isinstance(solver, FrankWolfe) else EXACT
        plan = plan * items.mass_unit.to(plan.dtype)[:, None, None]
    return solver.run(items, plan, monitor).tensors


def _with_full_mass(problem: UW) -> PartialW:
    """Return a UW with two hard marginals at eps = 0 as a PartialW, whose plans have mass min(m(a), m(b))."""
    full = Mass(torch.minimum(problem.log_mass_a, problem.log_mass_b).exp())
    return PartialW(problem.x, problem.y, full, full, problem.eps, problem.cost, batched=problem.batched)


def _mean_cost(problem: UW, *, is_auto: bool) -> Tensor:
    """Return the mean cost (B,) under the product plan a⊗b scaled to mass 1: the unit of a relative eps.

    is_auto: whether eps is "auto" and not a relative eps that the caller gave. The latter raises InputError if the mean
    of any item is not positive; with "auto" such an item gets its mean absolute cost, or 1 if that is 0.
    """
    mean = problem.mean_cost()
    if not is_auto and bool((mean <= 0).any()):
        raise InputError(f"a relative eps needs a positive mean cost, got {float(mean.min()):.3g}")
    size = torch.where(mean > 0, mean, replace(problem, cost=problem.cost.abs()).mean_cost())
    return torch.where(size > 0, size, 1.0)


def _read_sides(x: Any, y: Any, cost: Any) -> tuple[Space, Space, Tensor]:
    """Return both sides as spaces, and the cost matrix (n, m) or (B, n, m).

    The spaces are made of NumPy arrays, and so are results, unless x, y or cost is a tensor or a space of tensors.
    """
    a, b, matrix = _read_spaces_and_cost(x, y, cost)
    numpy = all(given.numpy if isinstance(given, Space) else not isinstance(given, Tensor) for given in (x, y, cost))
    return replace(a, numpy=numpy), replace(b, numpy=numpy), matrix


def _read_spaces_and_cost(x: Any, y: Any, cost: Any) -> tuple[Space, Space, Tensor]:
    """Return both sides as spaces, and the cost (n, m) or (B, n, m); `numpy` of a space is that of its own data."""
    if isinstance(cost, str):
        a, b = (s if isinstance(s, Space) else Space.from_points(s, metric="sqeuclidean") for s in (x, y))
        check_spaces(replace(a, feature_tensor=None), replace(b, feature_tensor=None))
        return a, b, _cost_between(a, b, cost)
    like = next((side.weight_tensor for side in (x, y) if isinstance(side, Space)), None)
    matrix = as_tensor("cost", cost, like=like).detach()
    if matrix.ndim not in (2, 3) or matrix.numel() == 0:
        raise InputError(f"cost must be a matrix (n, m) or (B, n, m), got shape {tuple(matrix.shape)}")
    check_finite("cost", matrix)
    a, b = (_space_of_weights(name, s, matrix, axis) for name, s, axis in (("x", x, -2), ("y", y, -1)))
    if (a.n, b.n) != tuple(matrix.shape[-2:]):
        raise InputError(f"cost must have shape (..., {a.n}, {b.n}) for these sides, got {tuple(matrix.shape)}")
    check_spaces(replace(a, feature_tensor=None), replace(b, feature_tensor=None))
    return a, b, matrix


def _space_of_weights(name: str, given: Any, cost: Tensor, axis: int) -> Space:
    """Return `given` if it is a Space, else a Space with these weights, whose points all coincide.

    given: weights (n,) or (B, n), or None for 1/n each; name: of the argument, for errors; cost: (n, m) or (B, n, m);
    axis: that of the cost along which the points of this side are, −2 or −1.
    """
    if isinstance(given, Space):
        return given
    n = cost.shape[axis]
    weights = (
        torch.full((n,), 1.0 / n, dtype=cost.dtype, device=cost.device)
        if given is None
        else as_tensor(name, given, like=cost)
    )
    if weights.ndim not in (1, 2):
        raise InputError(
            f"{name} must be weights (n,) or (B, n) beside a cost matrix, got shape {tuple(weights.shape)}"
        )
    points = torch.zeros(*weights.shape, 1, dtype=cost.dtype, device=cost.device)
    return Space.from_points(points, weights=weights, metric="sqeuclidean")


def _cost_between(a: Space, b: Space, metric: str) -> Tensor:
    """Return the distances between the points of a and of b, (n, m) or (B, n, m); metric: name of a distance."""
    if a.point_tensor is None or b.point_tensor is None:
        raise InputError("a cost by name needs spaces with points (Space.from_points), got one without: give a matrix")
    if a.point_tensor.shape[-1] != b.point_tensor.shape[-1]:
        got = f"R^{a.point_tensor.shape[-1]} and R^{b.point_tensor.shape[-1]}"
        raise InputError(f"a cost by name needs points of one dimension, got {got}: give a matrix")
    count = common_batch_size({"the first side": a.weight_tensor[..., 0], "the second side": b.weight_tensor[..., 0]})
    if count is None:
        return cross_distances(a.point_tensor.detach(), b.point_tensor.detach(), metric)
    pair = (s.point_tensor.detach().expand(count, -1, -1) for s in (a, b))  # type: ignore[union-attr]
    return torch.stack([cross_distances(p, q, metric) for p, q in zip(*pair, strict=True)])


def _with_batch(kind: Any, a: Space, b: Space, sides: tuple[Divergence, Divergence], eps: Tensor, cost: Tensor) -> Any:
    """Return the linear problem of class `kind`, UW (KL) or PartialW (TV, Mass), with parameters expanded to B items.

    sides: divergences of both sides; eps: () or (B,); cost: (n, m) or (B, n, m).
    """
    div_a, div_b = sides
    batch = common_batch_size(
        {
            "the first side": a.weight_tensor[..., 0],
            "the second side": b.weight_tensor[..., 0],
            "rho of the first side": div_a.penalty,
            "rho of the second side": div_b.penalty,
            "eps": eps,
            "the cost": cost[..., 0, 0],
        }
    )
    size, device = batch or 1, a.device
    pair = (side.expand(size, device) for side in (div_a, div_b))
    return kind(a, b, *pair, eps.to(device).expand(size), cost, batched=batch is not None)
