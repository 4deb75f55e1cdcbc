"""Barycenters: the space that minimizes a weighted sum of UGW to several others.

With the plans P_s fixed the sum is a weighted square of distances: Σ W_jj' (D_jj' − T_jj')², up to a constant, with W
= Σ_s t_s p2_s ⊗ p2_s and T = Σ_s t_s P_sᵀ D_s P_s / W. So a distance matrix has the closed form D = T, eq. (9.6). For
points in R^d it is a stress, and each step of majorization (SMACOF) lowers it: a gradient step whose length needs no
choosing. Plans and distances in turn lower the objective all the way, to a local minimum.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.checks import as_tensor, check_finite, check_nonnegative, check_whole_number
from .._utils.pytree import BatchRecord
from ..api import solve as api
from ..errors import ConvergenceWarning, InputError, NotConverged
from ..geometry.landmarks import farthest_points
from ..geometry.mds import classical_mds
from ..geometry.metric import DenseMetric
from ..geometry.space import Space
from ..measures.divergences import divergence_pair
from ..problems.build import Relative, build
from ..results.records import History, Status, present
from ..results.result import Result
from ..solvers import loop
from ..solvers.alternating import AlternateMin
from ..solvers.base import Solver
from ..solvers.monitor import Monitor
from .value_and_grad import quiet

# Steps of majorization between two solves for the plans.
MAJORIZED = 5
# A sampled start is disturbed by this share of its mean distance: what coincides would stay together for ever.
JITTER = 1e-2


@dataclass(frozen=True, kw_only=True)
class BarycenterMin(Solver):
    """Plans and distances in turn.

    tol: relative change of the distances from one round to the next at which to stop; max_iter: rounds;
    inner: what solves for the plans, each round from those of the round before;
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
        super().__post_init__()
        if not isinstance(self.inner, AlternateMin):
            raise InputError(f"BarycenterMin inner must be an AlternateMin, got {type(self.inner).__name__}")

    @torch.no_grad()
    def run(self, problem: Any, init: Any, watch: Monitor | None) -> Any:
        """The outcome of the loop from the first state `init`."""
        context = replace(problem, options=self)
        return loop.iterate(_round, context, init, loop.Rules(max_iter=self.max_iter), watch)


@dataclass(frozen=True, eq=False)
class Barycenter:
    """What `barycenter` found.

    space: the barycenter, with its distances or its points and its weights; shares: (S,), the t_s, of sum 1;
    parts: the batch of results between each space and it; code: how the rounds ended; history: one entry per round.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.random.default_rng(0).random((6, 2)))
    >>> b = ugw.barycenter([x, x], n=5, rho=1.0, eps=1e-2)
    >>> b.distances.shape, len(b.parts), b.status.name
    ((5, 5), 2, 'CONVERGED')
    """

    space: Space
    shares: Tensor
    parts: Result
    code: Status
    history: History

    @property
    def value(self) -> Any:
        """Σ_s t_s UGW(X_s, barycenter), a number or a tensor ()."""
        return present(
            (self.shares * self.parts.tensors.terms.total).sum()[None], batched=False, numpy=self.space.numpy
        )

    @property
    def distances(self) -> Any:
        """(n, n), an array or a tensor."""
        return present(self.space.metric.dense()[None], batched=False, numpy=self.space.numpy)

    @property
    def points(self) -> Any:
        """(n, d), an array or a tensor; None for a barycenter of distances alone."""
        points = self.space.point_tensor
        return None if points is None else present(points[None], batched=False, numpy=self.space.numpy)

    @property
    def n_iter(self) -> int:
        """Rounds made."""
        return len(self.history)

    @property
    def status(self) -> Status:
        """How it ended: the rounds' own status, or if they converged that of the first plan that did not."""
        parts = [Status(code) for code in self.parts.tensors.status.tolist()]
        failed = [status for status in parts if status != Status.CONVERGED]
        return failed[0] if self.code == Status.CONVERGED and failed else self.code

    @property
    def converged(self) -> bool:
        """Did the distances settle, and every plan?"""
        return self.status == Status.CONVERGED

    @property
    def message(self) -> str:
        """What happened, with the cure."""
        if self.code == Status.CONVERGED:
            return self.parts.message
        moved = f"after {self.n_iter} rounds the distances changed by {self.history.change[-1]:.1e}"
        if self.code == Status.MAX_ITER:
            return f"the limit of rounds came first: raise max_iter or loosen tol of BarycenterMin ({moved})"
        return f"{self.code.message} ({moved})"

    def check(self) -> Barycenter:
        """Itself if it converged; raises NotConverged otherwise."""
        if not self.converged:
            raise NotConverged(self.message)
        return self

    def __repr__(self) -> str:
        ended = self.status.name.lower().replace("_", " ")
        value = float(self.value)
        return (
            f"Barycenter(of {len(self.parts)}, n={self.space.n}, value={value:.6g}, {ended} after {self.n_iter} rounds)"
        )


def barycenter(
    spaces: Sequence[Space] | Space,
    *,
    n: int | None = None,
    weights: Any = None,
    dim: int | None = None,
    start: Space | None = None,
    rho: Any = 1.0,
    eps: Any = 1e-2,
    solver: BarycenterMin | None = None,
) -> Barycenter:
    """The space with n points that minimizes Σ_s t_s UGW(X_s, ·) over its distances, its weights fixed.

    spaces: several spaces of any sizes and masses, or a batch; weights: the t_s, equal ones if None, divided by their
    sum; dim: None for a free distance matrix (symmetric, ≥ 0, zero diagonal if all X_s have one; the triangle
    inequality may fail), d for Euclidean distances of points in R^d. start: a space to begin with, its weights are
    kept; or else n of the points of a space, with weights of Σ_s t_s m(X_s) / n each.
    rho, eps: as for `ugw.solve`, the barycenter being the second side of every pair: rho=(rho, inf) makes each of its
    points count in full; `ugw.relative(share)` is that of the space to begin with. The result is a local minimum.

    >>> import numpy as np, ugw
    >>> corners = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> squares = [ugw.Space.from_points(side * corners) for side in (1.0, 3.0)]
    >>> b = ugw.barycenter(squares, n=4, weights=[0.5, 0.5], rho=100.0, eps=1e-3)
    >>> round(float(np.sort(b.distances[0])[1]), 2)  # the side of the square between them
    2.0
    """
    batch = _checked(spaces)
    solver = BarycenterMin() if solver is None else solver
    if not isinstance(solver, BarycenterMin):
        raise InputError(f"solver must be a BarycenterMin, got {type(solver).__name__}")
    shares = _shares(weights, batch)
    with torch.no_grad():
        first = _first_space(batch, shares, n, dim, start)
        points = first.point_tensor[None] if dim is not None and first.point_tensor is not None else None
        if isinstance(eps, Relative):
            eps = build(batch, first, rho=rho, eps=eps, fused=None).eps
        context = _Context(batch, first.weight_tensor, shares, (divergence_pair(rho), eps), solver)
        state = _State(first.metric.dense()[None], points, _solved(context, first, "auto").tensors.plan[None])
        with solver.monitoring() as watch:
            outcome = solver.run(context, state, watch)
        end = outcome.state
        parts = _solved(context, context.space(end), end.plans[0])
    space = replace(context.space(end), point_tensor=None if end.points is None else end.points[0], numpy=batch.numpy)
    history = History(*outcome.table()[0].T.cpu().numpy())
    found = Barycenter(space, shares, parts, Status(int(outcome.status[0])), history)
    if not found.converged:
        warnings.warn(found.message, ConvergenceWarning, stacklevel=2)
    return found


@dataclass(frozen=True, eq=False)
class _Context:
    """The spaces, (S, ...), the weights of the barycenter (n,), the t_s (S,), (rho, eps), and the options."""

    spaces: Space
    weights: Tensor
    shares: Tensor
    penalties: tuple[Any, Any]
    options: BarycenterMin

    def space(self, state: _State) -> Space:
        return Space(metric=DenseMetric(state.distances[0]), weight_tensor=self.weights)

    def take(self, index: Tensor) -> _Context:
        return self


@dataclass(frozen=True, eq=False)
class _State(BatchRecord):
    """One item. distances: (1, n, n); points: (1, n, d) or None; plans: (1, S, N, n)."""

    distances: Tensor
    points: Tensor | None
    plans: Tensor

    @property
    def batch(self) -> int:
        return 1

    @property
    def device(self) -> torch.device:
        return self.distances.device


def _solved(context: _Context, space: Space, init: Any) -> Result:
    """The plans between each space and the barycenter, from those before."""
    rho, eps = context.penalties
    with quiet():
        return api.solve(context.spaces, space, rho=rho, eps=eps, init=init, solver=context.options.inner)


def _round(context: _Context, state: _State) -> tuple[_State, loop.Report]:
    result = _solved(context, context.space(state), state.plans[0])
    found = result.tensors
    plans, shares = found.plan, context.shares.to(found.plan.dtype)[:, None, None]
    second = plans.sum(1)
    pull = (shares * second[:, :, None] * second[:, None, :]).sum(0)
    target = (shares * (plans.mT @ context.spaces.metric.apply(plans))).sum(0)
    used = pull > 0
    target = torch.where(used, target / torch.where(used, pull, 1.0), state.distances[0])
    target = _diagonal(0.5 * (target + target.mT), context.spaces)
    points = state.points
    if points is not None:
        points = _majorized(points[0], target, pull)[None]
        target = torch.cdist(points[0], points[0], compute_mode="donot_use_mm_for_euclid_dist")
    size = (pull * target.abs()).sum()
    moved = (pull * (target - state.distances[0]).abs()).sum() / torch.where(size > 0, size, 1.0)
    objective = (context.shares * found.terms.total).sum()[None]
    mass = (context.shares * plans.sum(dim=(1, 2), dtype=torch.float64)).sum()[None]
    change = moved.double()[None]
    status = torch.where(change <= context.options.tol, int(Status.CONVERGED), int(Status.RUNNING))
    numbers = {
        "objective": objective,
        "relaxed": (context.shares * found.relaxed_value).sum()[None],
        "change": change,
        "residual": found.change.max()[None],
        "mass": mass,
    }
    return _State(target[None], points, plans[None]), loop.Report(status, numbers)


def _diagonal(target: Tensor, spaces: Space) -> Tensor:
    """With a zero diagonal, if all spaces have one: a point is at distance 0 of itself, however blurred the plans."""
    own = torch.diagonal(spaces.metric.dense(), dim1=-2, dim2=-1)
    return target if bool(own.any()) else target - torch.diag(target.diagonal())


def _majorized(points: Tensor, target: Tensor, pull: Tensor) -> Tensor:
    """Some steps of SMACOF for Σ pull_jj' (|z_j − z_j'| − target_jj')². points: (n, d)."""
    off = pull - torch.diag(pull.diagonal())
    inverse = torch.linalg.pinv(torch.diag(off.sum(1)) - off, hermitian=True)
    for _ in range(MAJORIZED):
        distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
        ratio = torch.where(distances > 0, off * target / torch.where(distances > 0, distances, 1.0), 0.0)
        points = inverse @ ((torch.diag(ratio.sum(1)) - ratio) @ points)
    return points


# -- what to begin with ------------------------------------------------------------------------------------------------


def _checked(spaces: Any) -> Space:
    """The spaces as one batch."""
    batch = spaces if isinstance(spaces, Space) and spaces.batched else Space.stack(spaces)
    if batch.feature_tensor is not None:
        raise InputError("a barycenter is of distances and weights, got spaces with features: make them without")
    return batch.detach()


def _shares(weights: Any, batch: Space) -> Tensor:
    """The t_s, (S,), float64, of sum 1."""
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
    """The space to begin with, on n points, with points in R^dim if that is asked for."""
    if dim is not None:
        check_whole_number("dim", dim)
    if (n is None) == (start is None):
        raise InputError("a barycenter needs n, its number of points, or a start, got " + ("both" if n else "neither"))
    if start is None:
        check_whole_number("n", n)
        start = _sampled(batch, shares, n)
    elif not isinstance(start, Space) or start.batched:
        raise InputError(f"start must be one Space, got {type(start).__name__}")
    elif start.dtype != batch.dtype or start.device != batch.device:
        raise InputError(
            f"start must be {batch.dtype} on {batch.device} like the spaces, got {start.dtype}, {start.device}"
        )
    start = start.detach()
    if dim is None:
        return start
    points = start.point_tensor
    if points is None or points.shape[-1] != dim:
        points = _scaled_points(start.metric.dense(), dim)
    distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    return replace(start, metric=DenseMetric(distances), point_tensor=points)


def _sampled(batch: Space, shares: Tensor, n: int) -> Space:
    """n points of the space with the largest share, far from each other, and a little moved."""
    chosen = batch[int(shares.argmax())]
    matrix = chosen.metric.dense()
    index = farthest_points(lambda index: matrix[index], matrix.sum(0).argmax()[None], n)[0]
    matrix = matrix[index][:, index]
    draw = torch.rand(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(matrix)
    noise = JITTER * chosen.metric.dense().abs().mean() * (draw + draw.mT)
    mass = (shares * batch.weight_tensor.sum(-1).double()).sum().to(matrix)
    return Space(metric=DenseMetric(_diagonal(matrix + noise, batch)), weight_tensor=(mass / n).expand(n).clone())


def _scaled_points(distances: Tensor, dim: int) -> Tensor:
    """Return points in R^dim with distances near those given (n, n), with noise in every coordinate."""
    n, points = len(distances), classical_mds(distances, dim)
    draw = torch.randn(n, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(points)
    return (points + JITTER * distances.double().abs().mean() * draw).to(distances)
