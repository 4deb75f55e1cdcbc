"""Shortest paths, nearest-neighbor graphs and farthest points by their definitions."""

import itertools

import networkx
import numpy as np
from scipy.spatial.distance import cdist


def floyd_warshall(n, edges, lengths):
    """Shortest paths (n, n) by three loops over the definition, inf between components."""
    distances = np.full((n, n), np.inf)
    np.fill_diagonal(distances, 0)
    for (i, j), length in zip(edges, lengths, strict=True):
        distances[i, j] = distances[j, i] = min(distances[i, j], length)
    for k, i, j in itertools.product(range(n), repeat=3):
        distances[i, j] = min(distances[i, j], distances[i, k] + distances[k, j])
    return distances


def paths_of(graph, weight):
    """Shortest paths (n, n) by networkx."""
    lengths = dict(networkx.all_pairs_dijkstra_path_length(graph, weight=weight))
    return np.array([[lengths[u][v] for v in graph] for u in graph])


def knn_paths(points, k):
    """Shortest paths (n, n) in the nearest-neighbor graph, from all distances."""
    full = cdist(points, points)
    graph = networkx.empty_graph(len(points))
    for i, row in enumerate(full):
        others = [j for j in np.argsort(row, kind="stable") if j != i][:k]
        graph.add_weighted_edges_from((i, j, row[j]) for j in others)
    return paths_of(graph, "weight")


def farthest_by_definition(matrix, first, count, candidates=None):
    """Indices chosen one by one: the candidate (by default any point) whose nearest chosen point is farthest."""
    chosen, candidates = [first], range(len(matrix)) if candidates is None else candidates
    while len(chosen) < count:
        gaps = [min(float(matrix[i, k]) for k in chosen) if i in candidates else -1.0 for i in range(len(matrix))]
        chosen.append(gaps.index(max(gaps)))
    return chosen
