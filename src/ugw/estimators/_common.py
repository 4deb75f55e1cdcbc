"""What the estimators share: points as spaces, nearest neighbors, and the choice of rho and eps."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csgraph, csr_array
from scipy.spatial import cKDTree
from torch import Tensor

from .._utils.checks import check_choice, check_whole_number
from ..api.solve import solve
from ..errors import ConvergenceWarning, InputError
from ..geometry.space import Space
from ..measures.divergences import partial_divergences
from ..problems.build import eps_or
from ..results.result import Result


@dataclass(frozen=True, kw_only=True)
class KNN:
    """Shortest paths in the graph of each point's k nearest: the metric of points on a curved set, cells for example.

    k: neighbors, at most n − 1; metric: the distance that chooses them, a name that scikit-learn knows; hops: count
    edges instead of adding their lengths; bridge: give points of different parts of a graph that is not connected the
    largest distance there is, instead of refusing it.

    >>> import numpy as np
    >>> KNN(k=1)(np.array([[0.0, 0.0], [0.0, 3.0], [4.0, 3.0]])).metric.dense()[0]
    tensor([0., 3., 7.], dtype=torch.float64)
    """

    k: int = 15
    metric: str = "euclidean"
    hops: bool = False
    bridge: bool = False

    def __post_init__(self) -> None:
        check_whole_number("KNN k", self.k)

    def __call__(self, points: np.ndarray) -> Space:
        """The space of the points (n, d), of weight 1/n each."""
        from sklearn.neighbors import NearestNeighbors

        points = np.asarray(points)
        k = min(self.k, len(points) - 1)
        if k == 0:
            return self.paths(csr_array((1, 1)), points)
        mode = "connectivity" if self.hops else "distance"
        graph = NearestNeighbors(n_neighbors=k, metric=self.metric).fit(points).kneighbors_graph(mode=mode)
        return self.paths(graph, points)

    def paths(self, graph: Any, points: np.ndarray | None = None) -> Space:
        """The space of shortest paths in a sparse graph, whose stored entries are edges, in either direction."""
        distances = csgraph.shortest_path(graph, directed=False, unweighted=self.hops)
        distances = np.minimum(distances, distances.T)
        apart = np.isinf(distances)
        if apart.any() and not self.bridge:
            count = csgraph.connected_components(graph, directed=False)[0]
            raise InputError(
                f"the graph of nearest neighbors must be connected, got {count} parts: take k larger than {self.k}, "
                "or KNN(bridge=True), which puts its parts as far from each other as anything is"
            )
        distances[apart] = distances[~apart].max()
        space = Space.from_distances(distances)
        return (
            space
            if points is None
            else replace(space, point_tensor=Space.from_points(points, metric="sqeuclidean").point_tensor)
        )


def as_space(points: Any, metric: Any, *, batches: bool = False) -> Space:
    """Points as a space by the name of a distance, "knn", or a function of points; a space stays itself."""
    if isinstance(points, Space):
        if points.batched and not batches:
            raise InputError("an estimator takes one space, got a batch: take one of them, space[i]")
        return points
    if callable(metric):
        made = metric(points)
        if not isinstance(made, Space):
            raise InputError(f"metric must make a ugw.Space of points, got {type(made).__name__}")
        return made
    if metric == "knn":
        return KNN()(points)
    return Space.from_points(points, metric=metric)


def scaled(spaces: Sequence[Space], scale: str | None, *, together: bool) -> list[Space]:
    """Spaces divided by their largest or mean distance: each by its own, or together by the largest of these."""
    if scale is None:
        return list(spaces)
    check_choice("scale", scale, ("max", "mean"))
    if not together:
        return [space.scaled(scale) for space in spaces]
    sizes = []
    for space in spaces:
        largest = float(space.metric.extremes()[1])
        after = float(space.scaled(scale).metric.extremes()[1])
        sizes.append(largest / after if after > 0 else 0.0)
    factor = max(sizes)
    if factor == 0:
        return list(spaces)
    like = [space.weight_tensor.new_tensor(1.0 / factor) for space in spaces]
    return [replace(space, metric=space.metric.scale(one)) for space, one in zip(spaces, like, strict=True)]


def as_array(given: Any) -> Any:
    """A tensor as an array, without its graph; anything else as it is."""
    return given.detach().cpu().numpy() if isinstance(given, Tensor) else given


def forget_features(estimator: Any) -> None:
    """Drop what an estimator knows of the columns it was fitted to before: a Space says nothing of them."""
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(estimator, name):
            delattr(estimator, name)


def kept(marginal: np.ndarray, weights: Tensor) -> np.ndarray:
    """The share of its weight that each point has in a plan, 0 for points without weight. marginal: like weights."""
    own = weights.detach().cpu().double().numpy()
    return np.divide(marginal, own, out=np.zeros_like(marginal), where=own > 0)


def nearest(fitted: np.ndarray, new: np.ndarray) -> np.ndarray:
    """For each new point (k, d) the index of the nearest fitted one (n, d). Returns (k,)."""
    return cKDTree(fitted).query(new)[1]


@dataclass(frozen=True)
class Candidate:
    """A pair of parameters and how well it did: rho, eps, its score, and whether its solve converged.

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
    """Are there several values to choose from? Lists and arrays are; a tuple is a rho for each side."""
    return any(isinstance(v, list) or (isinstance(v, np.ndarray) and v.ndim > 0) for v in (rho, eps))


def entropy(rho: Any, eps: Any) -> Any:
    """What eps="auto" means to an estimator: 0.005, or 0 for TV and Mass.

    >>> entropy(1.0, "auto"), entropy(0.1, 0.5)
    (0.005, 0.5)
    """
    return eps_or(eps, 0.0 if partial_divergences(rho) is not None else 5e-3)


def choose(
    x: Space, y: Space, *, rho: Any, eps: Any, init: Any, solver: Any, score: Callable[[Result], float]
) -> list[Candidate]:
    """Every pair of the lists `rho` and `eps`, solved for as one batch and scored, in the order of the lists."""
    lists = (value.tolist() if isinstance(value, np.ndarray) else value for value in (rho, eps))
    pairs = list(itertools.product(*(value if isinstance(value, list) else [value] for value in lists)))
    if not pairs:
        raise InputError("a list of candidates must not be empty, got [] for rho or eps")
    both = [r if isinstance(r, tuple) else (r, r) for r, _ in pairs]
    try:
        rhos = tuple(np.array([float(r[side]) for r in both]) for side in (0, 1))
        epss = np.array([float(e) for _, e in pairs])
    except (TypeError, ValueError, IndexError) as error:
        raise InputError(f"candidates must be numbers, or pairs of numbers for rho, got {pairs!r}") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # each candidate says whether it converged
        results = solve(x, y, rho=rhos, eps=epss, init=init, solver=solver)
    done = zip(pairs, results, strict=True)
    return [Candidate(r, e, score(result), bool(result.converged)) for (r, e), result in done]


def best(candidates: Sequence[Candidate]) -> Candidate:
    """The first of the candidates with the highest score."""
    return max(candidates, key=lambda candidate: candidate.score)
