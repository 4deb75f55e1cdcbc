"""Shortest-path distances in graphs, in nearest-neighbor graphs of points, and along the edges of meshes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import scipy  # its submodules load when they are first used, which saves `import ugw` half a second
import torch
from torch import Tensor

from .._utils.checks import as_tensor, check_finite, check_nonnegative, describe_value
from .._utils.config import UTILS_CONFIG
from ..errors import InputError
from .config import GEOMETRY_CONFIG
from .point_distances import check_no_gradient


def graph_distances(graph: Any, edge_weight: str | None) -> Tensor:
    """Return shortest-path distances (n, n) in a networkx graph or a SciPy sparse adjacency matrix.

    edge_weight: the edge attribute of a networkx graph that holds the lengths; edges have length 1 if it is None, or if
    it is "weight" and no edge has that attribute. An attribute that only some edges have, or another one that none has,
    raises InputError. The stored entries of a sparse matrix, also zeros, are lengths, and edge_weight is not used. Rows
    are in the order of the nodes; dtype float64, or float32 for a sparse matrix in float32. Raises InputError unless
    the graph is undirected, connected and not empty, with finite lengths ≥ 0.
    """
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
    return torch.from_numpy(shortest_paths(n, edges, lengths, expected="one")).to(precision)


def knn_distances(points: Tensor, k: int) -> Tensor:
    """Return shortest-path distances (n, n) in the graph that joins each of n points (n, d) to its k nearest others.

    Edges have Euclidean length. Raises InputError unless the graph is connected and points need no gradient.
    """
    check_no_gradient("points of from_knn", points)
    n = len(points)
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k < n:
        raise InputError(f"k must be an integer from 1 to n - 1 = {n - 1}, got {describe_value(k)}")
    edges, lengths = knn_edges(points.cpu().double().numpy(), int(k))
    return torch.from_numpy(shortest_paths(n, edges, lengths, expected=f"one: take k larger than {k}")).to(points)


def knn_edges(points: np.ndarray, k: int, metric: str = "euclidean") -> tuple[np.ndarray, np.ndarray]:
    """Return the edges (nk, 2) from each of n points (n, d) to its k < n nearest others, and their lengths (nk,).

    An edge is (point, neighbor), k for each point in order; an edge of mutual neighbors occurs in both directions.
    metric: "euclidean", or another distance by its name in scikit-learn, which must be installed.

    >>> knn_edges(np.array([[0.0], [1.0], [3.0]]), 1)[1]
    array([1., 1., 2.])
    """
    if metric == "euclidean":
        lengths, neighbors = scipy.spatial.cKDTree(points).query(points, k=k + 1)
        check_finite("distances between the points", torch.from_numpy(lengths))  # the tree squares them
    else:
        from sklearn.neighbors import NearestNeighbors

        lengths, neighbors = NearestNeighbors(n_neighbors=k + 1, metric=metric).fit(points).kneighbors(points)
    # A point is usually its own first neighbor, but among coincident points it may come later or not at all.
    is_dropped = neighbors == np.arange(len(points))[:, None]
    is_dropped[~is_dropped.any(axis=1), -1] = True
    return np.stack([np.repeat(np.arange(len(points)), k), neighbors[~is_dropped]], axis=1), lengths[~is_dropped]


def mesh_distances(vertices: Tensor, faces: Any) -> Tensor:
    """Return shortest-path distances (n, n) along the edges, of Euclidean length, of a mesh.

    vertices: (n, d), faces: (F, 3) indices. Raises InputError unless the edges connect all vertices.
    """
    check_no_gradient("vertices of from_mesh", vertices)
    edges, lengths = mesh_edges(vertices.cpu().double().numpy(), faces)
    return torch.from_numpy(shortest_paths(len(vertices), edges, lengths, expected="one of all vertices")).to(vertices)


def mesh_edges(vertices: np.ndarray, faces: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges (3F, 2) of a mesh and their lengths (3F,). vertices: (n, d), faces: (F, 3) indices.

    The first sides of all faces come first, then the second and third ones; an edge of two faces occurs twice.

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


def shortest_paths(
    n: int, edges: np.ndarray, lengths: np.ndarray, *, expected: str, bridge: bool = False
) -> np.ndarray:
    """Return the lengths (n, n) of shortest paths in an undirected graph. edges: (E, 2), lengths: (E,) ≥ 0.

    Of parallel edges the shortest counts. bridge: points of different components get the largest finite distance;
    otherwise a graph that is not connected raises an InputError, which ends with `expected`.

    >>> shortest_paths(3, np.array([[0, 1], [1, 2]]), np.array([1.0, 0.5]), expected="one")[0]
    array([0. , 1. , 1.5])
    >>> shortest_paths(3, np.array([[0, 1]]), np.array([2.0]), expected="one", bridge=True)[2]
    array([2., 2., 0.])
    """
    graph = undirected_graph(n, edges, lengths)
    if not bridge:
        check_connected(graph, expected)
    paths = scipy.sparse.csgraph.shortest_path(graph)
    # A path summed from its other end may round differently.
    paths = np.minimum(paths, paths.T)
    if bridge:
        is_infinite = np.isinf(paths)
        paths[is_infinite] = paths[~is_infinite].max()
    return paths


def undirected_graph(n: int, edges: np.ndarray, lengths: np.ndarray) -> scipy.sparse.csr_array:
    """Return the symmetric adjacency matrix (n, n) of edges (E, 2) with lengths (E,); of parallel ones the shortest.

    >>> undirected_graph(2, np.array([[0, 1], [1, 0]]), np.array([3.0, 2.0])).toarray()
    array([[0., 2.],
           [2., 0.]])
    """
    # SciPy would add up parallel edges, and `maximum` would drop edges of length zero, which csgraph takes for edges
    # as long as they are stored. So parallel edges are merged here.
    low, high = edges.min(axis=1), edges.max(axis=1)
    order = np.lexsort((lengths, high, low))
    low, high, lengths = low[order], high[order], lengths[order]
    is_shortest = np.r_[True, (np.diff(low) > 0) | (np.diff(high) != 0)][: len(low)]
    low, high, lengths = low[is_shortest], high[is_shortest], lengths[is_shortest]
    ends = (np.r_[low, high].astype(np.int32), np.r_[high, low].astype(np.int32))  # older csgraph reads no int64
    return scipy.sparse.csr_array((np.r_[lengths, lengths], ends), shape=(n, n))


def check_connected(graph: scipy.sparse.csr_array, expected: str) -> None:
    """Raise InputError, ending with `expected`, for a graph of several components."""
    count, labels = scipy.sparse.csgraph.connected_components(graph, directed=False)
    if count > 1:
        limit = GEOMETRY_CONFIG.max_listed_components
        sizes = np.sort(np.bincount(labels))[::-1]
        listed = ", ".join(map(str, sizes[:limit])) + (", ..." if count > limit else "")
        raise InputError(f"the graph must be connected, got {count} components of sizes {listed}, expected {expected}")


def _networkx_edges(graph: Any, edge_weight: str | None) -> tuple[int, np.ndarray, np.ndarray]:
    """Return the number of nodes, the edges (E, 2) and the lengths (E,) of a networkx graph.

    Nodes are numbered in the order of the graph; an edge occurs once. edge_weight: attribute of the lengths; they are 1
    if it is None, or if it is "weight" and no edge has it. InputError if only some edges have it.
    """
    if graph.is_directed():
        raise InputError(f"graph must be undirected, got a {type(graph).__name__}: call graph.to_undirected() first")
    if not isinstance(edge_weight, Hashable):
        raise InputError(
            f"edge_weight must be the name of an edge attribute or None, got {describe_value(edge_weight)}"
        )
    number = {node: i for i, node in enumerate(graph)}
    missing = object()
    triples = list(graph.edges(data="weight" if edge_weight is None else edge_weight, default=missing))
    edges = np.array([(number[u], number[v]) for u, v, _ in triples], dtype=np.int64).reshape(-1, 2)
    lengths = [length for *_, length in triples if length is not missing]
    # Without any lengths all edges have length 1. Lengths on some edges only are a mistake, and so is an attribute
    # that the caller named and that no edge has.
    if edge_weight is None or (edge_weight == "weight" and not lengths):
        return len(number), edges, np.ones(len(edges))
    if len(lengths) < len(edges):
        absent = len(edges) - len(lengths)
        raise InputError(
            f"edge attribute {describe_value(edge_weight)} must be on every edge, got {absent} of {len(edges)} without"
        )
    return len(number), edges, as_tensor("edge weights", lengths).numpy().reshape(len(edges))


def _sparse_edges(graph: Any) -> tuple[int, np.ndarray, np.ndarray]:
    """Return the number of nodes, the edges (E, 2) and the lengths (E,) of a sparse adjacency matrix.

    Every stored entry is an edge, also a stored zero, so that every edge occurs in both directions. Raises InputError
    unless the matrix is symmetric.
    """
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
