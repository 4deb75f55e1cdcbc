"""Synthetic graphs with classes of nodes, by seed: planar graphs, communities with outliers, graph families."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial import Delaunay

from .._utils.checks import check_whole_number
from .._utils.deprecation import renamed_arguments
from ..geometry.space import Space
from .config import GRAPH_CONFIG

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True, eq=False)
class LabeledGraph:
    """A networkx graph on the nodes 0, 1, … with class labels. labels: (n,), indices of the nodes' classes in `names`.

    Edges have their length in `weight`; nodes of planar graphs have their position in `pos`.

    >>> source, target = communities_with_outliers(n=20)
    >>> target.names
    ('large', 'small', 'outliers of large', 'outliers of small')
    """

    graph: networkx.Graph
    labels: np.ndarray
    names: tuple[str, ...]

    def space(self) -> Space:
        """Return the space of the nodes with weights 1/n and shortest-path distances (sums of edge lengths)."""
        return Space.from_graph(self.graph)


# -- communities -------------------------------------------------------------------------------------------


def communities_with_outliers(n: int = 60, *, seed: int = 0) -> tuple[LabeledGraph, LabeledGraph]:
    """Return two graphs with labeled nodes: two equal communities; two unequal ones with outliers (paper, appendix).

    Each has n nodes without outliers. An edge inside a community has length 1, between communities 4, to an outlier 2.
    Two nodes of a community are neighbors with probability 0.8; some random edges join the communities. Communities of
    the second graph have two thirds and one third of n nodes, and each a twelfth of n more nodes as outliers, with one
    edge each. Labels are those of the communities and, from 2, of their outliers.

    >>> source, target = communities_with_outliers(n=60)
    >>> [int(size) for size in np.bincount(target.labels)]
    [40, 20, 5, 5]
    """
    n, seed = check_whole_number("n", n, minimum=6), check_whole_number("seed", seed, minimum=0)
    rng = np.random.default_rng(seed)
    large, few = 2 * n // 3, max(1, n // 12)
    source = _community_graph(rng, {"first": n // 2, "second": n - n // 2})
    return source, _community_graph(rng, {"large": large, "small": n - large}, few)


def _community_graph(rng: np.random.Generator, sizes: Mapping[str, int], outliers: int = 0) -> LabeledGraph:
    """Return a connected random graph of two communities, with outliers if any, and with labels of its nodes.

    Labels 0 and 1: the communities, in the order of `sizes`; 2 and 3: the outliers of the first and of the second.
    sizes: numbers of nodes of the two communities, by name; outliers: number of further nodes of each community, each
    with one edge, to a random node of it. Lengths and probabilities of edges: see `communities_with_outliers`.
    """
    import networkx

    counts = [*sizes.values(), *([outliers] * (len(sizes) if outliers else 0))]
    names = (*sizes, *(f"outliers of {name}" for name in sizes if outliers))
    labels = np.repeat(np.arange(len(counts)), counts)
    first, second = (np.flatnonzero(labels == k) for k in (0, 1))
    graph = networkx.empty_graph(len(labels))
    for members in (first, second):
        # The first node has an edge to all others, so that all distances inside are at most 2.
        adjacent = np.triu(rng.random((len(members), len(members))) < 0.8, k=1)
        adjacent[0, 1:] = True
        graph.add_edges_from(members[np.argwhere(adjacent)].tolist(), weight=GRAPH_CONFIG.inner_length)
    bridges = rng.random((len(first), len(second))) < 0.1
    bridges[0, 0] = True
    graph.add_edges_from(((first[i], second[j]) for i, j in np.argwhere(bridges)), weight=GRAPH_CONFIG.bridge_length)
    for k, members in enumerate((first, second)):
        for node in np.flatnonzero(labels == 2 + k):
            graph.add_edge(int(node), int(rng.choice(members)), weight=GRAPH_CONFIG.outlier_length)
    return LabeledGraph(networkx.convert_node_labels_to_integers(graph), labels, names)


# -- families ------------------------------------------------------------------------------------------------


@renamed_arguments(strays="outliers")
def graph_families(count: int = 10, *, outliers: int = 0, seed: int = 0) -> dict[str, list[LabeledGraph]]:
    """Return lists of `count` random graphs by family: "communities", "small world" and "tree", of 15 to 25 nodes.

    Communities: three, with edges between two nodes of one with probability 0.7, of two with 0.03. Small world: a ring
    of nodes with four neighbors each, with one edge in twenty rewired. Tree: each node is attached to an earlier
    one, with a probability proportional to its degree. Edges have length 1. These nodes have label 0. Each graph gets
    `outliers` more nodes, with label 1, each attached to a random node of label 0 by an edge of length 3. With the same
    seed, more outliers are added to the same graphs, and the first ones stay the same.

    >>> families = graph_families(2, outliers=3)
    >>> {name: len(graphs) for name, graphs in families.items()}
    {'communities': 2, 'small world': 2, 'tree': 2}
    >>> int((families["tree"][0].labels == 1).sum())
    3
    """
    count, outliers, seed = (
        check_whole_number(name, value, minimum=minimum)
        for name, value, minimum in (("count", count, 1), ("outliers", outliers, 0), ("seed", seed, 0))
    )
    return {
        name: [_family_graph(name, outliers, np.random.default_rng([seed, family, k])) for k in range(count)]
        for family, name in enumerate(("communities", "small world", "tree"))
    }


def _family_graph(family: str, outliers: int, rng: np.random.Generator) -> LabeledGraph:
    """Return a random graph of 15 to 25 nodes, label 0, and `outliers` more, label 1; family: see `graph_families`."""
    import networkx

    n = int(rng.integers(GRAPH_CONFIG.min_family_nodes, GRAPH_CONFIG.max_family_nodes + 1))
    seed = int(rng.integers(2**31))
    if family == "communities":
        graph = _three_communities(n, seed)
    elif family == "small world":
        graph = networkx.connected_watts_strogatz_graph(n, 4, 0.05, seed=seed)
    else:
        graph = networkx.barabasi_albert_graph(n, 1, seed=seed)
    networkx.set_edge_attributes(graph, 1.0, "weight")
    for node in range(n, n + outliers):
        graph.add_edge(int(rng.integers(n)), node, weight=GRAPH_CONFIG.family_outlier_length)
    return LabeledGraph(graph, np.repeat([0, 1], [n, outliers]), ("own", "outlier"))


def _three_communities(n: int, seed: int) -> networkx.Graph:
    """Return a connected random graph of n nodes, three communities of about n/3, without edge lengths."""
    import networkx

    sizes, rng = [n // 3, n // 3, n - 2 * (n // 3)], np.random.default_rng(seed)
    while True:
        graph = networkx.random_partition_graph(sizes, 0.7, 0.03, seed=int(rng.integers(2**31)))
        if networkx.is_connected(graph):
            return networkx.Graph(graph)


# -- planar graphs -----------------------------------------------------------------------------------------


def planar_graphs(n: int = 160, *, seed: int = 0) -> tuple[LabeledGraph, LabeledGraph]:
    """Return two planar graphs, source and target, of about n nodes in the unit square (paper, appendix).

    Nodes are labeled by part: both have a ring, a long branch, a short branch and a cluster. The target's cluster has
    about half as many nodes, its long branch ends in a small circle that the source does not have, and its positions
    have other noise. Edges are those of the Delaunay triangulation of length ≤ 8/n and those that keep the graph
    connected, with Euclidean lengths in the attribute `weight`.

    >>> source, target = planar_graphs()
    >>> sorted(set(target.names) - set(source.names))
    ['small circle']
    """
    n = check_whole_number("n", n, minimum=32)  # four nodes on the short branch
    seed = check_whole_number("seed", seed, minimum=0)
    rng = np.random.default_rng(seed)
    ring, long, short, many, few = (round(fraction * n) for fraction in (0.375, 0.22, 0.125, 0.28, 0.125))
    spacing = 8 / n  # longest edge: neighbors along a curve are closer, different curves are farther apart
    body = {"ring": _circle(ring), "long branch": _long_branch(long), "short branch": _short_branch(short)}
    changed = {"cluster": _disk(rng, few), "small circle": _circle(n // 6, center=(0.88, 0.865), radius=0.11)}
    unchanged = {"cluster": _disk(rng, many)}
    return _planar_graph(rng, body | unchanged, spacing), _planar_graph(rng, body | changed, spacing)


def _circle(count: int, *, center: Sequence[float] = (0.4, 0.44), radius: float = 0.23) -> np.ndarray:
    """Return `count` equally spaced points (count, 2) on the circle with this center and radius."""
    angle = 2 * np.pi * np.arange(count) / count
    return np.asarray(center) + radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _long_branch(count: int) -> np.ndarray:
    """Return `count` points (count, 2) of a winding curve, to the right of the circle made by `_circle(count)`."""
    along = np.linspace(0.04, 1, count)
    right = 0.25 * along + 0.1 * np.sin(np.pi * along)
    up = 0.31 * along - 0.15 * (1 - along) * np.sin(2 * np.pi * along)
    return np.array([0.63, 0.44]) + np.stack([right, up], axis=1)


def _short_branch(count: int) -> np.ndarray:
    """Return `count` points (count, 2) of a curve to the left of the circle made by `_circle(count)`."""
    along = np.linspace(0.08, 1, count)
    return np.array([0.24, 0.6]) + np.stack([-0.2 * along, 0.33 * np.sin(1.5 * along)], axis=1)


def _disk(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return `count` points (count, 2) that fill a disk of radius 0.1 evenly (sunflower pattern), rotated at random."""
    angle = np.pi * (3 - np.sqrt(5)) * np.arange(count) + rng.uniform(0, 2 * np.pi)
    radius = 0.1 * np.sqrt((np.arange(count) + 0.5) / count)
    return np.array([0.4, 0.1]) + radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _planar_graph(rng: np.random.Generator, parts: Mapping[str, np.ndarray], longest: float) -> LabeledGraph:
    """Return the graph between the slightly perturbed points of all parts; a node's label is the index of its part.

    Edges are those of the Delaunay triangulation of length ≤ `longest`, and those of its minimum spanning tree, which
    make the graph connected. parts: points (n_k, 2) by name.
    """
    import networkx

    points = np.concatenate(list(parts.values()))
    points = points + 0.1 * longest * rng.normal(size=points.shape)
    labels = np.repeat(np.arange(len(parts)), [len(part) for part in parts.values()])
    triangles = Delaunay(points).simplices
    ends = np.unique(np.sort(triangles[:, [[0, 1], [1, 2], [0, 2]]].reshape(-1, 2)), axis=0)
    length = np.linalg.norm(points[ends[:, 0]] - points[ends[:, 1]], axis=1)
    tree = minimum_spanning_tree(coo_matrix((length, ends.T), shape=(len(points),) * 2)).toarray()
    is_edge = (length <= longest) | (np.maximum(tree, tree.T)[ends[:, 0], ends[:, 1]] > 0)
    graph = networkx.empty_graph(len(points))
    graph.add_weighted_edges_from(zip(*ends[is_edge].T.tolist(), length[is_edge].tolist(), strict=True))
    networkx.set_node_attributes(graph, {k: tuple(position) for k, position in enumerate(points.tolist())}, "pos")
    return LabeledGraph(graph, labels, tuple(parts))
