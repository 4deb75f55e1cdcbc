"""Distance matrices made of points, graphs, nearest neighbors and meshes."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy  # its parts load when they are first used: half a second that `import ugw` need not take
import torch
from torch import Tensor

from .._utils.checks import as_tensor, check_finite, check_nonnegative
from .._utils.config import UTILS_CONFIG
from ..errors import InputError

DIFFERENTIABLE = ("euclidean", "sqeuclidean")
# Measured in units that SciPy takes from all points: not known from two of them.
RELATIVE = ("seuclidean", "mahalanobis")


def point_distances(points: Tensor, metric: str) -> Tensor:
    """Distances between points by name. points: (n, d) or (B, n, d). Returns (n, n) or (B, n, n).

    "euclidean" and "sqeuclidean" are differentiable (once); other names go through SciPy.

    >>> point_distances(torch.tensor([[0.0], [3.0]]), "cityblock")
    tensor([[0., 3.],
            [3., 0.]])
    """
    if metric in DIFFERENTIABLE:
        # Differences of coordinates, not |x|² + |y|² - 2 x·y, which loses the digits of small distances and
        # leaves rounding on the diagonal. The gradient at coincident points is 0, not NaN.
        distances = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
        distances = distances.square() if metric == "sqeuclidean" else distances
    else:
        refuse_gradient(f"points with metric={metric!r}", points)
        items = points.cpu().double().numpy().reshape(-1, *points.shape[-2:])
        stacked = np.stack([_scipy_distances(item, metric) for item in items])
        distances = torch.from_numpy(stacked).to(points).reshape(*points.shape[:-1], points.shape[-2])
    check_finite(f"{metric} distances between the points", distances)
    return distances


def cross_distances(points: Tensor, others: Tensor, metric: str) -> Tensor:
    """Distances by name from points (n, d) to others (m, d), without gradients. Returns (n, m).

    >>> cross_distances(torch.tensor([[0.0], [3.0]]), torch.tensor([[1.0]]), "cityblock").flatten()
    tensor([1., 2.])
    """
    if metric in DIFFERENTIABLE:
        distances = torch.cdist(points, others, compute_mode="donot_use_mm_for_euclid_dist")
        distances = distances.square() if metric == "sqeuclidean" else distances
    else:
        pair = (p.cpu().double().numpy() for p in (points, others))
        try:
            distances = torch.from_numpy(scipy.spatial.distance.cdist(*pair, metric)).to(points)
        except (ValueError, TypeError) as error:
            raise _unknown(metric, error) from error
    check_finite(f"{metric} distances between the points", distances)
    return distances


def check_fits(points: Tensor) -> None:
    """Refuse points whose stored distances would fill more than half of the memory. points: (..., n, d)."""
    needed = points[..., 0].numel() * points.shape[-2] * points.element_size()
    if points.device.type == "cuda":
        memory = float(torch.cuda.get_device_properties(points.device).total_memory)
    else:
        memory = machine_memory()
    if needed > 0.5 * memory:
        raise InputError(
            f"the stored distances of {points.shape[-2]} points would take {needed / 2**30:.3g} GiB of the "
            f"{memory / 2**30:.3g} GiB there are: give tol=, an error that is allowed for distances of low rank, or "
            'take metric="sqeuclidean", which stores none'
        )


def machine_memory() -> float:
    """Bytes of memory of this machine; inf where it does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def _scipy_distances(points: np.ndarray, metric: str) -> np.ndarray:
    """(n, d) to (n, n). pdist is half the work of cdist(x, x) and exactly symmetric with a zero diagonal."""
    try:
        return scipy.spatial.distance.squareform(scipy.spatial.distance.pdist(points, metric))
    except (ValueError, TypeError) as error:
        raise _unknown(metric, error) from error


def _unknown(metric: str, error: Exception) -> InputError:
    return InputError(
        f"metric must be {', '.join(DIFFERENTIABLE)} or a name that scipy.spatial.distance.cdist knows"
        f" and that fits the points, got {metric!r} ({error})"
    )


def refuse_gradient(name: str, tensor: Tensor) -> None:
    """Refuse a tensor whose autograd graph would be lost on the way through SciPy."""
    if tensor.requires_grad:
        raise InputError(
            f"{name} cannot carry gradients, got requires_grad=True, expected detached points or"
            f" Space.from_points with metric {' or '.join(DIFFERENTIABLE)}"
        )


def graph_distances(graph: Any, edge_weight: str | None) -> Tensor:
    """Shortest paths, (n, n), in a networkx graph or a SciPy sparse adjacency, both checked."""
    precision = torch.float64
    if scipy.sparse.issparse(graph):
        n, edges, lengths = _sparse_edges(graph)
        precision = torch.float32 if graph.dtype == np.float32 else precision
    elif callable(getattr(graph, "is_directed", None)) and callable(getattr(graph, "adjacency", None)):
        n, edges, lengths = _networkx_edges(graph, edge_weight)
    else:
        kind = type(graph).__name__
        raise InputError(f"graph must be a networkx graph or a scipy.sparse adjacency matrix, got {kind}")
    if n == 0:
        raise InputError("graph must not be empty, got 0 nodes, expected at least 1")
    if len(lengths):
        check_finite("edge weights", torch.from_numpy(lengths))
        check_nonnegative("edge weights", torch.from_numpy(lengths))
    return torch.from_numpy(geodesics(n, edges, lengths, expected="one")).to(precision)


def knn_distances(points: Tensor, k: int) -> Tensor:
    """Shortest paths, (n, n), in the graph of each point's k nearest others. points: (n, d)."""
    refuse_gradient("points of from_knn", points)
    n = len(points)
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k < n:
        raise InputError(f"k must be an integer from 1 to n - 1 = {n - 1}, got {k!r}")
    coordinates = points.cpu().double().numpy()
    lengths, neighbors = scipy.spatial.cKDTree(coordinates).query(coordinates, k=int(k) + 1)
    check_finite("distances between the points", torch.from_numpy(lengths))  # the tree squares them
    # A point is usually its own first neighbor, but among coincident points it may come later or not at all.
    drop = neighbors == np.arange(n)[:, None]
    drop[~drop.any(axis=1), -1] = True
    edges = np.stack([np.repeat(np.arange(n), k), neighbors[~drop]], axis=1)
    paths = geodesics(n, edges, lengths[~drop], expected=f"one: take k larger than {k}")
    return torch.from_numpy(paths).to(points)


def mesh_distances(vertices: Tensor, faces: Any) -> Tensor:
    """Shortest paths, (n, n), along the sides of triangles. vertices: (n, d), faces: (F, 3) indices."""
    refuse_gradient("vertices of from_mesh", vertices)
    edges, lengths = mesh_edges(vertices.cpu().double().numpy(), faces)
    return torch.from_numpy(geodesics(len(vertices), edges, lengths, expected="one of all vertices")).to(vertices)


def mesh_edges(vertices: np.ndarray, faces: Any) -> tuple[np.ndarray, np.ndarray]:
    """The sides of triangles (3F, 2) and their lengths (3F,). vertices: (n, d), faces: (F, 3) indices, checked.

    >>> mesh_edges(np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]]), [[0, 1, 2]])[1]
    array([3., 5., 4.])
    """
    n = len(vertices)
    try:
        corners = faces.cpu().numpy() if isinstance(faces, Tensor) else np.asarray(faces)
    except ValueError as error:  # rows of different lengths
        raise InputError(f"faces must be integers of shape (F, 3), got a ragged list ({error})") from error
    if corners.dtype.kind not in "iu" or corners.ndim != 2 or corners.shape[1] != 3 or len(corners) == 0:
        got = f"{corners.dtype} of shape {corners.shape}"
        raise InputError(f"faces must be integers of shape (F, 3), got {got}")
    if corners.min() < 0 or corners.max() >= n:
        raise InputError(f"faces must be indices from 0 to {n - 1}, got {corners.min()} to {corners.max()}")
    corners = corners.astype(np.int64)  # unsigned ones would not mix with signed indices
    edges = np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]])
    return edges, np.linalg.norm(vertices[edges[:, 0]] - vertices[edges[:, 1]], axis=1)


def geodesics(n: int, edges: np.ndarray, lengths: np.ndarray, *, expected: str) -> np.ndarray:
    """Lengths of shortest paths in an undirected graph. edges: (E, 2), lengths: (E,) ≥ 0. Returns (n, n).

    Of parallel edges the shortest counts. `expected` ends the message for a graph that is not connected.

    >>> geodesics(3, np.array([[0, 1], [1, 2]]), np.array([1.0, 0.5]), expected="one")[0]
    array([0. , 1. , 1.5])
    """
    paths = scipy.sparse.csgraph.shortest_path(connected(n, edges, lengths, expected=expected))
    # A path summed from its other end may round differently.
    return np.minimum(paths, paths.T)


def connected(n: int, edges: np.ndarray, lengths: np.ndarray, *, expected: str) -> scipy.sparse.csr_array:
    """The undirected graph of these edges as an adjacency for SciPy; refused if it is in pieces. As for `geodesics`.

    >>> connected(2, np.array([[0, 1], [1, 0]]), np.array([3.0, 2.0]), expected="one").toarray()
    array([[0., 2.],
           [2., 0.]])
    """
    # Merged by hand: SciPy would add parallel edges up, and `maximum` would drop edges of length zero. Those
    # are edges to csgraph as long as they are stored.
    low, high = edges.min(axis=1), edges.max(axis=1)
    order = np.lexsort((lengths, high, low))
    low, high, lengths = low[order], high[order], lengths[order]
    keep = np.r_[True, (np.diff(low) > 0) | (np.diff(high) != 0)][: len(low)]
    low, high, lengths = low[keep], high[keep], lengths[keep]
    ends = (np.r_[low, high], np.r_[high, low])
    graph = scipy.sparse.csr_array((np.r_[lengths, lengths], ends), shape=(n, n))
    count, labels = scipy.sparse.csgraph.connected_components(graph, directed=False)
    if count > 1:
        sizes = np.sort(np.bincount(labels))[::-1]
        listed = ", ".join(map(str, sizes[:10])) + (", ..." if count > 10 else "")
        raise InputError(f"the graph must be connected, got {count} components of sizes {listed}, expected {expected}")
    return graph


def _networkx_edges(graph: Any, edge_weight: str | None) -> tuple[int, np.ndarray, np.ndarray]:
    """Nodes are numbered in the order of the graph. Needs no import: the graph brings its own methods."""
    if graph.is_directed():
        raise InputError(f"graph must be undirected, got a {type(graph).__name__}, expected .to_undirected()")
    number = {node: i for i, node in enumerate(graph)}
    missing = object()
    triples = list(graph.edges(data="weight" if edge_weight is None else edge_weight, default=missing))
    edges = np.array([(number[u], number[v]) for u, v, _ in triples], dtype=np.int64).reshape(-1, 2)
    lengths = [length for *_, length in triples if length is not missing]
    # All edges have length 1 when none says otherwise; half of them saying so is a mistake, as is a name
    # that was asked for and that no edge has.
    if edge_weight is None or (edge_weight == "weight" and not lengths):
        return len(number), edges, np.ones(len(edges))
    if len(lengths) < len(edges):
        absent = len(edges) - len(lengths)
        raise InputError(f"edge attribute {edge_weight!r} must be on every edge, got {absent} of {len(edges)} without")
    return len(number), edges, as_tensor("edge weights", lengths).numpy().reshape(len(edges))


def _sparse_edges(graph: Any) -> tuple[int, np.ndarray, np.ndarray]:
    """Stored entries are edges, also stored zeros, as in scipy.sparse.csgraph."""
    if graph.ndim != 2 or graph.shape[0] != graph.shape[1]:
        raise InputError(f"adjacency must be square, (n, n), got {tuple(graph.shape)}")
    precision = as_tensor("edge weights", graph.tocsr().data).dtype
    forward = scipy.sparse.csr_array(graph, dtype=np.float64, copy=True)
    forward.sum_duplicates()
    backward = forward.T.tocsr()
    backward.sort_indices()
    # Compared as stored: A - A.T would forget stored zeros. NaN passes here and is named by the next check.
    symmetric = np.array_equal(forward.indptr, backward.indptr)
    symmetric = symmetric and np.array_equal(forward.indices, backward.indices)
    if symmetric and np.isfinite(forward.data).all():
        allowed = UTILS_CONFIG.rounding_units * torch.finfo(precision).eps * np.abs(forward.data).max(initial=0.0)
        symmetric = bool((np.abs(forward.data - backward.data) <= allowed).all())
    if not symmetric:
        raise InputError("adjacency must be symmetric, got a directed graph, expected A[i, j] = A[j, i]")
    entries = forward.tocoo()
    return graph.shape[0], np.stack([entries.row, entries.col], axis=1), entries.data
