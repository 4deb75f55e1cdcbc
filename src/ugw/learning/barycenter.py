"""Barycenters: the space that minimizes a weighted sum of UGW to several others.

With the plans P_s fixed the sum is a weighted square of distances: Σ W_jj' (D_jj' − T_jj')², up to a constant, with W
= Σ_s t_s p2_s ⊗ p2_s and T = Σ_s t_s P_sᵀ D_s P_s / W. So a distance matrix has the closed form D = T, eq. (9.6). For
points in R^d it is a stress, and each step of majorization (SMACOF) lowers it: a gradient step whose length needs no
choosing. Plans and distances in turn lower the objective all the way, to a local minimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.caller import convergence_warnings_ignored
from .._utils.checks import as_list, as_tensor, check_finite, check_nonnegative, check_whole_number
from .._utils.pytree import BatchRecord
from ..api import solve as api
from ..errors import InputError
from ..geometry.landmarks import farthest_points
from ..geometry.mds import classical_mds
from ..geometry.metric import DenseMetric
from ..geometry.point_distances import euclidean_distances
from ..geometry.space import Space
from ..initializers.multistart import check_solver, check_stores_plans
from ..measures.divergences import divergence_pair
from ..problems.build import Relative, build_ugw, resolve_eps
from ..results.base import warn_if_not_converged
from ..results.parameters import penalty_parameters, to_plain
from ..results.records import History, Status
from ..results.result import Result
from ..solvers import loop
from ..solvers.alternating import DEFAULT_SOLVER, AlternateMin
from ..solvers.base import Solver
from ..solvers.monitor import Monitor
from .barycenter_result import Barycenter
from .config import LEARNING_CONFIG


@dataclass(frozen=True, kw_only=True)
class BarycenterMin(Solver):
    """The solver of `barycenter`: each round solves for the plans, then updates the distances.

    tol: relative change of the distances between two rounds at which to stop; max_iter: most rounds;
    inner: the solver for the plans, which starts each round from the plans of the previous one;
    progress: show a bar; callback: called after each round, True stops the run.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.random.default_rng(0).random((6, 2)))
    >>> ugw.barycenter([x, x], n=6, solver=ugw.BarycenterMin(tol=1e-3)).converged
    True
    """

    tol: float = 1e-4
    max_iter: int = 200
    inner: AlternateMin = field(default_factory=AlternateMin)

    def __post_init__(self) -> None:
        """Raise InputError for an invalid field."""
        super().__post_init__()
        if not isinstance(self.inner, AlternateMin):
            raise InputError(f"BarycenterMin inner must be an AlternateMin, got {type(self.inner).__name__}")

    @torch.no_grad()
    def run(self, problem: Any, init: Any, monitor: Monitor | None) -> Any:
        """Return the `Outcome` of rounds that solve for plans, then update distances: final state, status, history.

        problem: a `_Context` (spaces, weights, rho, eps); init: the `_State` (distances, plans) before the first round;
        monitor: shows a bar and calls a callback, or None.
        """
        context = replace(problem, options=self)
        return loop.iterate(_run_round, context, init, loop.Rules(max_iter=self.max_iter), monitor)


def barycenter(
    spaces: Sequence[Space] | Space,
    *,
    n: int | None = None,
    weights: Any = None,
    dim: int | None = None,
    start: Space | None = None,
    rho: Any = 1.0,
    eps: Any = "auto",
    solver: BarycenterMin | None = None,
) -> Barycenter:
    """Return the `Barycenter` with n points that minimizes Σ_s t_s UGW(X_s, ·) over its distances, its weights fixed.

    spaces: several spaces of any sizes and masses, or a batch; weights: the t_s, equal ones if None, divided by their
    sum; dim: None for a free distance matrix (symmetric, ≥ 0, zero diagonal if all X_s have one; the triangle
    inequality may fail), d for Euclidean distances of points in R^d. Either n or start must be given, not both. start:
    the first barycenter, one Space, whose weights are kept. With n it is made of n points of the space of largest t_s,
    far from each other, repeated if there are fewer, with weights of Σ_s t_s m(X_s) / n each. There is no `init`: the
    first plans are those of init="auto" between each space and the first barycenter. rho, eps: as for `ugw.solve`, the
    barycenter being the second side of every pair: with rho=(rho, inf) the weights of the barycenter are the second
    marginal of every plan; "auto" and `ugw.relative(share)` are resolved for the first barycenter. The result is a
    local minimum.

    >>> import numpy as np, ugw
    >>> corners = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> squares = [ugw.Space.from_points(side * corners) for side in (1.0, 3.0)]
    >>> b = ugw.barycenter(squares, n=4, weights=[0.5, 0.5], rho=100.0, eps=1e-3)
    >>> round(float(np.sort(b.distances[0])[1]), 2)  # the side of the square between them
    2.0
    """
    batch = _as_batch(spaces)
    solver = BarycenterMin() if solver is None else solver
    if not isinstance(solver, BarycenterMin):
        raise InputError(f"solver must be a BarycenterMin, got {type(solver).__name__}")
    solver = replace(solver, inner=check_stores_plans(check_solver(solver.inner, DEFAULT_SOLVER), "barycenter"))
    shares = _normalized_shares(weights, batch)
    with torch.no_grad():
        first = _first_space(batch, shares, n, dim, start)
        batch = replace(batch, numpy=batch.numpy and first.numpy)
        points = first.point_tensor[None] if dim is not None and first.point_tensor is not None else None
        eps = resolve_eps(eps, rho)
        if isinstance(eps, Relative):
            eps = build_ugw(batch, first, rho=rho, eps=eps, fused=None).eps
        context = _Context(batch, first.weight_tensor, shares, divergence_pair(rho), eps, solver)
        with solver.monitoring(numpy=batch.numpy) as monitor:  # the bar is there from the first plans on
            output = _solve_plans(context, first, "auto").tensors
            state = _State(first.metric.dense()[None], points, output.plan[None], output.change.max()[None])
            outcome = solver.run(context, state, monitor)
        end = outcome.state
        space = context.space(end)
        parts = _solve_plans(context, space, end.plans[0])
    history = History(*outcome.table()[0].T.cpu().numpy())
    options = {"solver": solver, "n": space.n, "dim": dim, "start": None if start is None else "space"}
    given = {name: to_plain(value) for name, value in options.items() if value is not None}
    parameters = penalty_parameters(context.rho, eps) | given | {"shares": shares.tolist()}
    result = Barycenter(space, shares, parts, Status(int(outcome.status[0])), history, parameters)
    return warn_if_not_converged(result)


@dataclass(frozen=True, eq=False)
class _Context:
    """The data of all rounds, each of which solves for the plans, then updates the distances.

    spaces: S spaces; weights: of the barycenter's points, (n,); shares: the t_s, (S,).
    """

    spaces: Space
    weights: Tensor
    shares: Tensor
    rho: Any
    eps: Any
    options: BarycenterMin

    def space(self, state: _State) -> Space:
        """Return the barycenter of `state` as a Space: its distances, its points if it has some, and its weights."""
        points = None if state.points is None else state.points[0]
        metric, numpy = DenseMetric(state.distances[0]), self.spaces.numpy
        return Space(metric=metric, weight_tensor=self.weights, point_tensor=points, numpy=numpy)

    def take(self, index: Tensor) -> _Context:
        """Return this object unchanged: the loop has one batch item, so that no items are removed."""
        return self


@dataclass(frozen=True, eq=False)
class _State(BatchRecord):
    """The current barycenter and plans after a round, as one batch item of the loop.

    distances: (1, n, n); points: (1, n, d), None for a free distance matrix; plans: (1, S, N, n), from the S spaces of
    N points (padded); residual: (1,), largest relative change of a plan in the last step of its solve.
    """

    distances: Tensor
    points: Tensor | None
    plans: Tensor
    residual: Tensor


def _solve_plans(context: _Context, space: Space, init: Any) -> Result:
    """Return the batched Result between each of the S spaces and the barycenter `space`, solved without warnings.

    init: name of an initial plan, or plans (S, N, n), N points in the largest space.
    """
    options = {"rho": context.rho, "eps": context.eps, "solver": context.options.inner}
    with convergence_warnings_ignored():
        return api.solve(context.spaces, space, init=init, **options)


def _run_round(context: _Context, state: _State) -> tuple[_State, loop.Report]:
    """Return the state after one round, with new plans, distances and points, and its `Report`.

    The report has the status, CONVERGED if change ≤ tol, else RUNNING, and numbers (1,) by name: objective Σ_s t_s UGW,
    relaxed and mass (weighted sums too) with the new plans at the old distances; change, the relative L1 change of the
    distances, weighted by Σ_s t_s p2⊗p2; residual, the largest relative change of a plan in the last step of its solve.
    """
    result = _solve_plans(context, context.space(state), state.plans[0])
    output = result.tensors
    plans, shares = output.plan, context.shares.to(output.plan.dtype)[:, None, None]
    second = plans.sum(1)
    stress_weights = (shares * second[:, :, None] * second[:, None, :]).sum(0)
    target = (shares * (plans.mT @ context.spaces.metric.apply(plans))).sum(0)
    used = stress_weights > 0
    target = torch.where(used, target / torch.where(used, stress_weights, 1.0), state.distances[0])
    target = _with_zero_diagonal(0.5 * (target + target.mT), context.spaces)
    points = state.points
    if points is not None:
        points = _majorize(points[0], target, stress_weights)[None]
        target = euclidean_distances(points[0], points[0])
    size = (stress_weights * target.abs()).sum()
    difference = (stress_weights * (target - state.distances[0]).abs()).sum()
    change = (difference / torch.where(size > 0, size, 1.0)).double()[None]
    residual = output.change.max()[None]
    status = torch.where(change <= context.options.tol, int(Status.CONVERGED), int(Status.RUNNING))
    numbers = {
        "objective": (context.shares * output.terms.total).sum()[None],
        "relaxed": (context.shares * output.relaxed_value).sum()[None],
        "change": change,
        "residual": residual,
        "mass": (context.shares * plans.sum(dim=(1, 2), dtype=torch.float64)).sum()[None],
    }
    return _State(target[None], points, plans[None], residual), loop.Report(status, numbers)


def _with_zero_diagonal(target: Tensor, spaces: Space) -> Tensor:
    """Return the distances `target`, (n, n), with diagonal 0 if all spaces of a batch have diagonal 0, else unchanged.

    Averages with entropic plans do not have a zero diagonal.
    """
    diagonals = torch.diagonal(spaces.metric.dense(), dim1=-2, dim2=-1)
    return target if bool(diagonals.any()) else target - torch.diag(target.diagonal())


def _majorize(points: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Return points (n, d) of mean 0 after 5 SMACOF steps from `points`, (n, d), towards the distances `target`.

    The steps never raise the stress Σ weights_jj' (|z_j − z_j'| − target_jj')²; the first moves the mean to 0. target,
    weights: (n, n), symmetric; their diagonals do not count.
    """
    off = weights - torch.diag(weights.diagonal())
    inverse = torch.linalg.pinv(torch.diag(off.sum(1)) - off, hermitian=True)
    for _ in range(LEARNING_CONFIG.n_majorization_steps):
        distances = euclidean_distances(points, points)
        ratio = torch.where(distances > 0, off * target / torch.where(distances > 0, distances, 1.0), 0.0)
        points = inverse @ ((torch.diag(ratio.sum(1)) - ratio) @ points)
    return points


# -- the first barycenter ----------------------------------------------------------------------------------------------


def _as_batch(spaces: Any) -> Space:
    """Return several spaces, or a batch, as one batched Space without autograd graphs; InputError for features."""
    expected = "a batch or a list of spaces"
    if isinstance(spaces, Space):
        if not spaces.batched:
            raise InputError(f"spaces of a barycenter must be {expected}, got one Space: write [space]")
        batch = spaces
    else:
        listed = as_list("spaces of a barycenter", spaces, expected)
        if not listed:
            raise InputError(f"spaces of a barycenter must be {expected}, got none")
        batch = Space.stack(listed)
    if batch.feature_tensor is not None:
        raise InputError("a barycenter is of distances and weights, got spaces with features: make them without")
    return batch.detach()


def _normalized_shares(weights: Any, batch: Space) -> Tensor:
    """Return the weights t_s of the S spaces of a batch, (S,), float64, divided by their sum; equal ones for None.

    Raises InputError unless weights are S finite numbers ≥ 0 with a positive sum.
    """
    count = len(batch)
    if weights is None:
        return torch.full((count,), 1.0 / count, dtype=torch.float64, device=batch.device)
    shares = as_tensor("weights", weights).detach().double().to(batch.device)
    if shares.shape != (count,):
        raise InputError(f"weights must have shape ({count},), one for each space, got {tuple(shares.shape)}")
    check_finite("weights", shares)
    check_nonnegative("weights", shares)
    if not float(shares.sum()) > 0:
        raise InputError("weights must have a positive sum, got zeros")
    return shares / shares.sum()


def _first_space(batch: Space, shares: Tensor, n: Any, dim: Any, start: Any) -> Space:
    """Return the first barycenter, one Space: `start`, or n points of the space of largest weight t_s.

    If dim is not None it has points in R^dim, and their Euclidean distances: its own points if they have this
    dimension, else an embedding of its distances. Raises InputError unless one of n and start is given. batch: the
    spaces; shares: their t_s, (S,).
    """
    if dim is not None:
        dim = check_whole_number("dim", dim)
    if (n is None) == (start is None):
        raise InputError("a barycenter needs n, its number of points, or a start, got " + ("both" if n else "neither"))
    if start is None:
        start = _sample_space(batch, shares, check_whole_number("n", n))
    elif not isinstance(start, Space):
        raise InputError(f"start must be one Space, got {type(start).__name__}")
    elif start.batched:
        raise InputError(f"start must be one Space, got a batch of {len(start)}: take one of them, start[i]")
    elif start.dtype != batch.dtype or start.device != batch.device:
        expected = f"{batch.dtype} on {batch.device} like the spaces"
        raise InputError(f"start must be {expected}, got {start.dtype}, {start.device}")
    start = start.detach()
    if dim is None:
        return start
    points = start.point_tensor
    if points is None or points.shape[-1] != dim:
        points = _embed_points(start.metric.dense(), dim)
    return replace(start, metric=DenseMetric(euclidean_distances(points, points)), point_tensor=points)


def _sample_space(batch: Space, shares: Tensor, n: int) -> Space:
    """Return a Space of n points of the space with the largest weight t_s, far from each other, at perturbed distances.

    Distances grow by up to 2 % of the mean, with a fixed seed; a point is repeated if fewer than n differ; coordinates
    are not kept. Its mass is Σ_s t_s m(X_s), in equal weights. shares: the t_s, (S,).
    """
    chosen = batch[int(shares.argmax())]
    matrix = chosen.metric.dense()
    index = farthest_points(lambda index: matrix[index], matrix.sum(0).argmax()[None], n)[0]
    matrix = matrix[index][:, index]
    draw = torch.rand(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(matrix)
    noise = LEARNING_CONFIG.start_jitter * chosen.metric.dense().abs().mean() * (draw + draw.mT)
    mass = (shares * batch.weight_tensor.sum(-1).double()).sum().to(matrix)
    distances = _with_zero_diagonal(matrix + noise, batch)
    return Space(metric=DenseMetric(distances), weight_tensor=(mass / n).expand(n).clone(), numpy=batch.numpy)


def _embed_points(distances: Tensor, dim: int) -> Tensor:
    """Return points (n, dim) by classical MDS of `distances` (n, n), plus seeded noise of 1 % of the mean distance."""
    n, points = len(distances), classical_mds(distances, dim)
    draw = torch.randn(n, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(points)
    return (points + LEARNING_CONFIG.start_jitter * distances.double().abs().mean() * draw).to(distances)
