"""Functions shared by the estimators: spaces of points, nearest neighbors, and the choice of rho and eps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.spatial import cKDTree
from torch import Tensor

from .._utils.caller import convergence_warnings_ignored
from .._utils.checks import check_bool, check_whole_number, describe_value
from ..api.solve import solve
from ..errors import InputError
from ..geometry.construct import as_points
from ..geometry.graph_distances import knn_edges, shortest_paths
from ..geometry.space import Space
from ..measures.divergences import partial_divergences
from ..problems.build import Relative, relative
from ..problems.build import resolve_eps as resolve_solver_eps
from ..results.projection import divide_by_weights, to_numpy
from ..results.result import Result
from .config import ESTIMATOR_CONFIG


@dataclass(frozen=True, kw_only=True)
class KNN:
    """A metric for points on a curved set, for example cells: shortest paths in the graph of the k nearest neighbors.

    k: neighbors, at most n − 1; metric: the distance that selects them, a name of scikit-learn; hops: count edges
    instead of adding their lengths; bridge: if the graph is not connected, points of different components get the
    largest finite distance; without it, such a graph is an error.

    >>> import numpy as np
    >>> KNN(k=1)(np.array([[0.0, 0.0], [0.0, 3.0], [4.0, 3.0]])).distances[0]
    array([0., 3., 7.])
    """

    k: int = 15
    metric: str = "euclidean"
    hops: bool = False
    bridge: bool = False

    def __post_init__(self) -> None:
        """Raise InputError unless k is a whole number ≥ 1, and `hops` and `bridge` are bools."""
        object.__setattr__(self, "k", check_whole_number("KNN k", self.k))  # the record is frozen
        check_bool("KNN hops", self.hops)
        check_bool("KNN bridge", self.bridge)

    def __call__(self, points: np.ndarray) -> Space:
        """Return the space of the points (n, d) with shortest paths in their k-nearest-neighbor graph, weights 1/n.

        k is at most n − 1. Edges have the lengths of the metric, or 1 if `hops`. A graph that is not connected raises
        InputError, or with `bridge` points of different components get the largest finite distance.
        """
        points = as_points("points", to_numpy(points), batch=False).numpy()
        k = min(self.k, len(points) - 1)
        try:
            edges, lengths = knn_edges(points, k, self.metric) if k else (np.zeros((0, 2), dtype=int), np.zeros(0))
        except (ValueError, TypeError) as error:
            expected = "a distance that scikit-learn knows and that fits the points"
            raise InputError(f"KNN metric must be {expected}, got {describe_value(self.metric)}") from error
        return self.paths(coo_array((lengths, tuple(edges.T)), shape=(len(points),) * 2), points)

    def paths(self, graph: Any, points: np.ndarray | None = None) -> Space:
        """Return the space of the n nodes of an undirected graph with shortest-path distances and weights 1/n.

        graph: sparse matrix (n, n) whose stored entries are edges with these lengths (1 if `hops`); points: (n, d),
        stored in the space if given. A graph that is not connected raises InputError, or with `bridge` nodes of
        different components get the largest finite distance.
        """
        entries = coo_array(graph)
        edges = np.stack([entries.row, entries.col], axis=1)
        lengths = np.ones(len(edges)) if self.hops else entries.data.astype(float)
        expected = f"one: take k larger than {self.k}, or KNN(bridge=True), which joins the components"
        distances = shortest_paths(entries.shape[0], edges, lengths, expected=expected, bridge=self.bridge)
        space = Space.from_distances(distances)
        if points is None:
            return space
        return replace(space, point_tensor=Space.from_points(points, metric="sqeuclidean").point_tensor)


def as_space(points: Any, metric: Any, *, batches: bool = False) -> Space:
    """Return the space of points (n, d), with weights 1/n; return a Space unchanged.

    metric: a distance by name, "knn" for `KNN()`, shortest paths between 15 nearest neighbors, or a function that makes
    a Space of points, whose result is returned. InputError for a batch of Spaces unless `batches`.
    """
    if isinstance(points, Space):
        if points.batched and not batches:
            raise InputError("an estimator takes one space, got a batch: take one of them, space[i]")
        return points
    if callable(metric):
        space = metric(points)
        if not isinstance(space, Space):
            raise InputError(f"metric must make a ugw.Space of points, got {type(space).__name__}")
        return space
    if isinstance(metric, str) and metric == "knn":
        return KNN()(points)
    return Space.from_points(points, metric=metric)


def rescale(spaces: Sequence[Space], scale: str | None, *, by_one_number: bool) -> list[Space]:
    """Return the spaces with distances divided by their maximum (scale "max") or mean ("mean"); unchanged for None.

    The mean is aᵀ D a / m(a)², for weights a. by_one_number: divide the distances of all spaces by one number, the
    largest of their maxima or means.
    """
    if scale is None:
        return list(spaces)
    if not isinstance(scale, str) or scale not in ("max", "mean"):
        raise InputError(f"scale must be 'max', 'mean' or None, got {describe_value(scale)}")
    if not by_one_number:
        return [space.scaled(scale) for space in spaces]
    divisors = []
    for space in spaces:
        largest = float(space.metric.extremes()[1])
        after = float(space.scaled(scale).metric.extremes()[1])
        divisors.append(largest / after if after > 0 else 0.0)
    divisor = max(divisors)
    if divisor == 0:
        return list(spaces)
    factors = [space.weight_tensor.new_tensor(1.0 / divisor) for space in spaces]
    return [replace(space, metric=space.metric.scale(factor)) for space, factor in zip(spaces, factors, strict=True)]


def point_array(space: Space) -> np.ndarray | None:
    """Return the points of a space as a float64 array, (n, d) or (B, n, d), or None if it has no points."""
    return None if space.point_tensor is None else space.point_tensor.detach().cpu().double().numpy()


def clear_feature_names(estimator: Any) -> None:
    """Delete the attributes `n_features_in_` and `feature_names_in_` of an earlier fit: a Space has no features."""
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(estimator, name):
            delattr(estimator, name)


def kept_fractions(marginal: np.ndarray, weights: Tensor) -> np.ndarray:
    """Return marginal / weights, (n,) or (B, n), the fraction of each point's weight that is matched, 0 for weight 0.

    marginal: row or column sums of the plan.
    """
    return divide_by_weights(marginal, weights.detach().cpu().double().numpy())


def nearest_indices(fitted_points: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return for each of k points (k, d) the index, (k,), of the nearest (Euclidean) of the fitted points (n, d)."""
    return cKDTree(fitted_points).query(points)[1]


@dataclass(frozen=True)
class Candidate:
    """A candidate pair (rho, eps), its score (higher is better), and whether its solve converged.

    >>> import numpy as np
    >>> from ugw.estimators import Aligner
    >>> X = np.random.default_rng(0).random((20, 2))
    >>> fit = Aligner(rho=[0.1, 1.0]).fit(X, X[:, ::-1], pairs="rows")
    >>> [candidate.rho for candidate in fit.validation_], fit.rho_ in (0.1, 1.0)
    ([0.1, 1.0], True)
    """

    rho: Any
    eps: Any
    score: float
    converged: bool


def is_grid(rho: Any, eps: Any) -> bool:
    """Return whether rho or eps is a list or an array of candidates. A tuple is none: it is one rho for each side."""
    return any(isinstance(v, list) or (isinstance(v, np.ndarray) and v.ndim > 0) for v in (rho, eps))


def resolve_eps(rho: Any, eps: Any, scale: str | None) -> Any:
    """Return eps, and for "auto" the default of the estimators, which depends on rho and on the option `scale`.

    The default is 0 if rho is TV or Mass; otherwise 0.005 if distances are scaled, and for scale = None
    `ugw.relative(1e-2)`, 1 % of the mean distortion, as in `ugw.solve`.

    >>> resolve_eps(1.0, "auto", "max"), resolve_eps(1.0, "auto", None), resolve_eps(0.1, 0.5, None)
    (0.005, relative(0.01), 0.5)
    """
    has_entropy = partial_divergences(rho) is None
    if isinstance(eps, str) and eps == "auto" and has_entropy and scale is not None:
        return ESTIMATOR_CONFIG.default_eps
    return resolve_solver_eps(eps, rho)


def score_candidates(
    estimator: Any, x: Space, y: Space, init: Any, score: Callable[[Result], float]
) -> list[Candidate]:
    """Return (rho, eps, score, converged) for every rho with every eps of the estimator's lists, as `Candidate`.

    All values of eps with the first rho come first. All are solved as one batch between x and y. init: initial plan of
    all solves, or its name; score: function that returns the score of a result, higher is better. A tuple in the list
    of rho is one candidate, (of x, of y); a rho or eps that is no list is the only one.
    """
    parameters = (estimator.rho, resolve_eps(estimator.rho, estimator.eps, estimator.scale))
    lists = (value.tolist() if isinstance(value, np.ndarray) else value for value in parameters)
    pairs = list(itertools.product(*(value if isinstance(value, list) else [value] for value in lists)))
    if not pairs:
        raise InputError("a list of candidates must not be empty, got [] for rho or eps")
    sided_rhos = [r if isinstance(r, tuple) else (r, r) for r, _ in pairs]
    try:
        rhos = tuple(np.array([float(r[side]) for r in sided_rhos]) for side in (0, 1))
        epss = _stack_eps([e for _, e in pairs])
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        expected = "numbers, or pairs of numbers for rho, or for eps all ugw.relative(share)"
        raise InputError(f"candidates must be {expected}, got {describe_value(pairs)}") from error
    with convergence_warnings_ignored():  # reported by `Candidate.converged`
        results = solve(x, y, rho=rhos, eps=epss, init=init, solver=estimator.solver)
    solved = zip(pairs, results, strict=True)
    return [Candidate(r, e, score(result), bool(result.converged)) for (r, e), result in solved]


def _stack_eps(values: Sequence[Any]) -> Any:
    """Return the array (B,) of B numbers eps; if all are made by `ugw.relative`, `ugw.relative` of their array (B,)."""
    if all(isinstance(eps, Relative) for eps in values):
        return relative(np.array([float(eps.share) for eps in values]))
    return np.array([float(eps) for eps in values])


def select_parameters(estimator: Any, candidates: list[Candidate] | None) -> None:
    """Set `validation_` of an estimator to `candidates`, and `rho_`, `eps_` to those of the one with the highest score.

    candidates: None if neither rho nor eps is a list. Then `validation_` is None, `rho_` is the option `rho`, and
    `eps_` is the option `eps`, with "auto" resolved.
    """
    estimator.validation_ = candidates
    if candidates is None:
        estimator.rho_ = estimator.rho
        estimator.eps_ = resolve_eps(estimator.rho, estimator.eps, estimator.scale)
    else:
        best = best_candidate(candidates)
        estimator.rho_, estimator.eps_ = best.rho, best.eps


def best_candidate(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate with the highest score, the first one of candidates with equal scores."""
    return max(candidates, key=lambda candidate: candidate.score)
