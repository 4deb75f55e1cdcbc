"""Synthetic graphs with classes of nodes, seeded: planar ones, communities with outliers, families with strays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial import Delaunay

from .._utils.checks import check_whole_number
from ..geometry.space import Space

if TYPE_CHECKING:
    import networkx

# PenaltyWeights of an edge of the communities, as in the paper.
INSIDE, BETWEEN, OUTWARD = 1.0, 4.0, 2.0
# Nodes of a graph of a family, least and most, and the length of an edge to a stray node, in edges of the graph.
FEWEST, MOST, AWAY = 15, 25, 3.0


@dataclass(frozen=True, eq=False)
class LabeledGraph:
    """A networkx graph on the nodes 0, 1, … with a class each. labels: (n,) integers into `names`.

    Edges have their length in `weight`; nodes of planar graphs have their place in `pos`.

    >>> source, target = communities_with_outliers(n=20)
    >>> target.names
    ('large', 'small', 'outliers of large', 'outliers of small')
    """

    graph: networkx.Graph
    labels: np.ndarray
    names: tuple[str, ...]

    def space(self) -> Space:
        """The nodes with weights 1/n and lengths of shortest paths."""
        return Space.from_graph(self.graph)


# -- communities -------------------------------------------------------------------------------------------


def communities_with_outliers(n: int = 60, *, seed: int = 0) -> tuple[LabeledGraph, LabeledGraph]:
    """Two equal communities of n nodes in all, and an imbalanced pair with outliers of either (the paper's appendix).

    An edge inside a community has the length 1, between communities 4, to an outlier 2. Two nodes of a community
    are neighbors with probability 0.8; some random edges join the communities. The target's communities have
    two thirds and one third of n nodes, and each has outliers, a twelfth of n more, hanging on one of its nodes each.

    >>> source, target = communities_with_outliers(n=60)
    >>> [int(size) for size in np.bincount(target.labels)]
    [40, 20, 5, 5]
    """
    check_whole_number("n", n, minimum=6)
    check_whole_number("seed", seed, minimum=0)
    rng = np.random.default_rng(seed)
    large, few = 2 * n // 3, max(1, n // 12)
    source = _communities(rng, {"first": n // 2, "second": n - n // 2})
    return source, _communities(rng, {"large": large, "small": n - large}, few)


def _communities(rng: np.random.Generator, sizes: Mapping[str, int], outliers: int = 0) -> LabeledGraph:
    import networkx

    counts = [*sizes.values(), *([outliers] * (len(sizes) if outliers else 0))]
    names = (*sizes, *(f"outliers of {name}" for name in sizes if outliers))
    labels = np.repeat(np.arange(len(counts)), counts)
    first, second = (np.flatnonzero(labels == k) for k in (0, 1))
    graph = networkx.empty_graph(len(labels))
    for members in (first, second):
        # A hub that knows everyone keeps every distance inside at 2 or less.
        friends = np.triu(rng.random((len(members), len(members))) < 0.8, k=1)
        friends[0, 1:] = True
        graph.add_edges_from(members[np.argwhere(friends)].tolist(), weight=INSIDE)
    bridges = rng.random((len(first), len(second))) < 0.1
    bridges[0, 0] = True
    graph.add_edges_from(((first[i], second[j]) for i, j in np.argwhere(bridges)), weight=BETWEEN)
    for k, members in enumerate((first, second)):
        for node in np.flatnonzero(labels == 2 + k):
            graph.add_edge(int(node), int(rng.choice(members)), weight=OUTWARD)
    return LabeledGraph(networkx.convert_node_labels_to_integers(graph), labels, names)


# -- families ------------------------------------------------------------------------------------------------


def graph_families(count: int = 10, *, strays: int = 0, seed: int = 0) -> dict[str, list[LabeledGraph]]:
    """Random graphs of three families, `count` of each: communities, small worlds and trees, of 15 to 25 nodes.

    Communities: three, with edges between two nodes of one with probability 0.7, of two with 0.03. Small world: a ring
    of nodes with four neighbors each, with one edge in twenty led elsewhere. Tree: each node hangs on an earlier one,
    with probability by how many hang there already. Edges have the length 1. A stray, class 1 of the nodes, hangs on
    a random node by an edge of length 3. The same seed has the same graphs and, with more strays, the same and more.

    >>> families = graph_families(2, strays=3)
    >>> {name: len(graphs) for name, graphs in families.items()}
    {'communities': 2, 'small world': 2, 'tree': 2}
    >>> int((families["tree"][0].labels == 1).sum())
    3
    """
    for name, value, least in (("count", count, 1), ("strays", strays, 0), ("seed", seed, 0)):
        check_whole_number(name, value, minimum=least)
    return {
        name: [_with_strays(make, strays, np.random.default_rng([seed, family, k])) for k in range(count)]
        for family, (name, make) in enumerate(_FAMILIES.items())
    }


def _with_strays(make: Callable[[int, int], networkx.Graph], strays: int, rng: np.random.Generator) -> LabeledGraph:
    import networkx

    n = int(rng.integers(FEWEST, MOST + 1))
    graph = networkx.Graph(make(n, int(rng.integers(2**31))))
    networkx.set_edge_attributes(graph, 1.0, "weight")
    for stray in range(n, n + strays):
        graph.add_edge(int(rng.integers(n)), stray, weight=AWAY)
    return LabeledGraph(graph, np.repeat([0, 1], [n, strays]), ("own", "stray"))


def _three_communities(n: int, seed: int) -> networkx.Graph:
    import networkx

    sizes, rng = [n // 3, n // 3, n - 2 * (n // 3)], np.random.default_rng(seed)
    while True:
        graph = networkx.random_partition_graph(sizes, 0.7, 0.03, seed=int(rng.integers(2**31)))
        if networkx.is_connected(graph):
            return graph


def _small_world(n: int, seed: int) -> networkx.Graph:
    import networkx

    return networkx.connected_watts_strogatz_graph(n, 4, 0.05, seed=seed)


def _tree(n: int, seed: int) -> networkx.Graph:
    import networkx

    return networkx.barabasi_albert_graph(n, 1, seed=seed)


_FAMILIES = {"communities": _three_communities, "small world": _small_world, "tree": _tree}


# -- planar graphs -----------------------------------------------------------------------------------------


def planar_graphs(n: int = 160, *, seed: int = 0) -> tuple[LabeledGraph, LabeledGraph]:
    """Two planar graphs of about n nodes in the unit square, alike but for sub-structures (the paper's appendix).

    Both have a ring, a long branch, a short branch and a cluster. In the target the cluster has lost half of its nodes,
    the long branch ends in a small circle that the source does not have, and all places are drawn anew. Edges are
    short edges of the Delaunay triangulation, as long as they look.

    >>> source, target = planar_graphs()
    >>> sorted(set(target.names) - set(source.names))
    ['small circle']
    """
    check_whole_number("n", n, minimum=32)  # four nodes on the short branch
    check_whole_number("seed", seed, minimum=0)
    rng = np.random.default_rng(seed)
    ring, long, short, many, few = (round(share * n) for share in (0.375, 0.22, 0.125, 0.28, 0.125))
    spacing = 8 / n  # an edge is at most this long: neighbors along a curve are closer, curves are further apart
    body = {"ring": _ring(ring), "long branch": _long(long), "short branch": _short(short)}
    more = {"cluster": _disc(rng, few), "small circle": _ring(n // 6, center=(0.88, 0.865), radius=0.11)}
    return _planar(rng, body | {"cluster": _disc(rng, many)}, spacing), _planar(rng, body | more, spacing)


def _ring(count: int, *, center: Sequence[float] = (0.4, 0.44), radius: float = 0.23) -> np.ndarray:
    turn = 2 * np.pi * np.arange(count) / count
    return np.asarray(center) + radius * np.stack([np.cos(turn), np.sin(turn)], axis=1)


def _long(count: int) -> np.ndarray:
    along = np.linspace(0.04, 1, count)
    right = 0.25 * along + 0.1 * np.sin(np.pi * along)
    up = 0.31 * along - 0.15 * (1 - along) * np.sin(2 * np.pi * along)
    return np.array([0.63, 0.44]) + np.stack([right, up], axis=1)


def _short(count: int) -> np.ndarray:
    along = np.linspace(0.08, 1, count)
    return np.array([0.24, 0.6]) + np.stack([-0.2 * along, 0.33 * np.sin(1.5 * along)], axis=1)


def _disc(rng: np.random.Generator, count: int) -> np.ndarray:
    # A sunflower fills the disc evenly with any number of points.
    turn = np.pi * (3 - np.sqrt(5)) * np.arange(count) + rng.uniform(0, 2 * np.pi)
    radius = 0.1 * np.sqrt((np.arange(count) + 0.5) / count)
    return np.array([0.4, 0.1]) + radius[:, None] * np.stack([np.cos(turn), np.sin(turn)], axis=1)


def _planar(rng: np.random.Generator, parts: Mapping[str, np.ndarray], longest: float) -> LabeledGraph:
    """The graph of jittered points: short Delaunay edges, and the shortest tree, which keeps it in one piece."""
    import networkx

    points = np.concatenate(list(parts.values()))
    points = points + 0.1 * longest * rng.normal(size=points.shape)
    labels = np.repeat(np.arange(len(parts)), [len(part) for part in parts.values()])
    corners = Delaunay(points).simplices
    ends = np.unique(np.sort(np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [0, 2]]])), axis=0)
    length = np.linalg.norm(points[ends[:, 0]] - points[ends[:, 1]], axis=1)
    tree = minimum_spanning_tree(coo_matrix((length, ends.T), shape=(len(points),) * 2)).toarray()
    kept = (length <= longest) | (np.maximum(tree, tree.T)[ends[:, 0], ends[:, 1]] > 0)
    graph = networkx.empty_graph(len(points))
    for (i, j), size in zip(ends[kept].tolist(), length[kept].tolist(), strict=True):
        graph.add_edge(i, j, weight=size)
    networkx.set_node_attributes(graph, {k: tuple(place) for k, place in enumerate(points.tolist())}, "pos")
    return LabeledGraph(graph, labels, tuple(parts))
