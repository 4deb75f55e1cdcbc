"""Shortest-path distances against networkx and brute force."""

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from oracles.errors import assert_refused
from oracles.geometry import floyd_warshall, knn_paths, paths_of
from ugw.errors import InputError
from ugw.geometry.graph_distances import graph_distances, knn_distances, mesh_distances, shortest_paths


@st.composite
def edge_lists(draw):
    """Graphs that are connected or not, with loops, parallel edges and edges of length zero."""
    n = draw(st.integers(1, 6))
    node = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=15))
    lengths = draw(st.lists(st.sampled_from([0.0, 0.1, 0.2, 1.0, 5.0]), min_size=len(edges), max_size=len(edges)))
    return n, np.array(edges, dtype=np.int64).reshape(-1, 2), np.array(lengths)


@given(edge_lists())
def test_shortest_paths_equal_brute_force(case):
    n, edges, lengths = case
    expected = floyd_warshall(n, edges, lengths)
    if np.isinf(expected).any():
        with pytest.raises(InputError, match=r"must be connected, got \d components of sizes .*, expected one"):
            shortest_paths(n, edges, lengths, expected="one")
        bridged = shortest_paths(n, edges, lengths, expected="one", bridge=True)
        is_infinite = np.isinf(expected)
        np.testing.assert_allclose(bridged[~is_infinite], expected[~is_infinite], rtol=1e-15)
        assert (bridged[is_infinite] == bridged[~is_infinite].max()).all()
    else:
        ours = shortest_paths(n, edges, lengths, expected="one")
        assert np.array_equal(ours, ours.T)
        np.testing.assert_allclose(ours, expected, rtol=1e-15)


def weighted_graph():
    """A connected random graph with edge lengths and with nodes that are not numbered in order."""
    graph = networkx.random_geometric_graph(30, 0.4, seed=3)
    rng = np.random.default_rng(0)
    networkx.set_edge_attributes(graph, {edge: rng.uniform(0.1, 1) for edge in graph.edges}, "weight")
    graph = networkx.relabel_nodes(graph, {i: f"node {(7 * i) % 30}" for i in graph})
    assert networkx.is_connected(graph)
    return graph


@pytest.mark.parametrize("weight", ["weight", None])
def test_graph_distances_equal_networkx(weight):
    graph = weighted_graph()
    ours = graph_distances(graph, weight)
    np.testing.assert_allclose(ours, paths_of(graph, weight), rtol=1e-14)
    adjacency = networkx.to_scipy_sparse_array(graph, weight=weight)
    for form in ("csr", "csc", "coo", "lil", "dok", "bsr"):
        assert torch.equal(graph_distances(adjacency.asformat(form), "weight"), ours)
    single = graph_distances(adjacency.astype(np.float32), "weight")
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), ours, rtol=1e-6, atol=0)


def test_shortest_paths_are_exactly_symmetric():
    lengths = np.random.default_rng(0).uniform(size=40)
    ours = shortest_paths(41, np.stack([np.arange(40), np.arange(1, 41)], axis=1), lengths, expected="one")
    assert np.array_equal(ours, ours.T)
    assert ours[0, 40] == pytest.approx(lengths.sum(), rel=1e-14)


def test_the_given_adjacency_matrix_is_not_changed():
    rows, columns, data = [0, 1, 1, 0, 0, 1], [1, 0, 0, 1, 0, 1], [1.0, 1.0, 2.0, 2.0, 0.0, 0.0]
    adjacency = scipy.sparse.coo_array((data, (rows, columns)), shape=(2, 2)).tocsr(copy=True)
    before = adjacency.copy()
    assert graph_distances(adjacency, None)[0, 1] == 3.0  # entries at one place of a sparse matrix add up
    assert np.array_equal(adjacency.data, before.data)


def test_edges_of_length_zero_are_edges():
    graph = networkx.Graph()
    graph.add_weighted_edges_from([(0, 1, 0.0), (1, 2, 1.0)])
    expected = [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
    assert graph_distances(graph, "weight").tolist() == expected
    stored = scipy.sparse.csr_array(([0.0, 0.0, 1.0, 1.0], ([0, 1, 1, 2], [1, 0, 2, 1])), shape=(3, 3))
    assert stored.nnz == 4
    assert graph_distances(stored, None).tolist() == expected


def test_shortest_of_parallel_edges_counts():
    graph = networkx.MultiGraph()
    graph.add_weighted_edges_from([("a", "b", 3.0), ("b", "a", 0.5), ("a", "b", 2.0), ("a", "a", 1.0)])
    assert graph_distances(graph, "weight").tolist() == [[0, 0.5], [0.5, 0]]


def graph_with_weight(value):
    """A path of three nodes with this length on its first edge."""
    graph = networkx.path_graph(3)
    networkx.set_edge_attributes(graph, 1.0, "weight")
    graph.edges[0, 1]["weight"] = value
    return graph


def adjacency(*rows):
    """A sparse matrix of these rows."""
    return scipy.sparse.csr_array(np.array(rows))


BAD_GRAPHS = [
    (networkx.DiGraph([(0, 1)]), "must be undirected, got a DiGraph"),
    (networkx.MultiDiGraph([(0, 1)]), "must be undirected"),
    (networkx.Graph(), "graph must not be empty, got 0 nodes"),
    (graph_with_weight(-1.0), "edge weights must be nonnegative, got -1"),
    (graph_with_weight(float("nan")), "edge weights must be finite, got nan"),
    (graph_with_weight(float("inf")), "edge weights must be finite, got inf"),
    (graph_with_weight("1.0"), "edge weights must hold real numbers"),
    (graph_with_weight(1j), "edge weights must hold real numbers"),
    (networkx.empty_graph(3), "connected, got 3 components of sizes 1, 1, 1, expected one"),
    (networkx.disjoint_union(networkx.path_graph(2), networkx.path_graph(5)), "2 components of sizes 5, 2,"),
    (networkx.empty_graph(12), r"12 components of sizes 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, \.\.\.,"),
    (adjacency([0.0, 1.0], [0.0, 0.0]), "adjacency must be symmetric, got a directed graph"),
    (adjacency([0.0, 1.0], [2.0, 0.0]), "adjacency must be symmetric"),
    (adjacency([0.0, 1.0, 0.0], [1.0, 0.0, 0.0]), r"adjacency must be square, \(n, n\), got \(2, 3\)"),
    (adjacency([0.0, -1.0], [-1.0, 0.0]), "edge weights must be nonnegative"),
    (adjacency([0.0, np.nan], [np.nan, 0.0]), "edge weights must be finite"),
    (adjacency([False, True], [True, False]), "edge weights must hold real numbers"),
    (adjacency([0, 1j], [1j, 0]), "edge weights must hold real numbers"),
    (scipy.sparse.csr_array((0, 0)), "graph must not be empty"),
    (np.eye(3), "must be a networkx graph or a scipy.sparse adjacency matrix, got ndarray"),
    ("graph.gml", "got str"),
]


@pytest.mark.parametrize(("graph", "message"), BAD_GRAPHS, ids=[message for _, message in BAD_GRAPHS])
def test_bad_graphs_are_refused(graph, message):
    with pytest.raises(InputError, match=message):
        graph_distances(graph, "weight")


def test_edge_attribute_must_be_on_all_edges_or_be_the_default_on_none():
    graph = networkx.path_graph(4)
    assert graph_distances(graph, "weight")[0, 3] == 3
    with pytest.raises(InputError, match="'length' must be on every edge, got 3 of 3 without"):
        graph_distances(graph, "length")
    graph.edges[0, 1]["weight"] = 5.0
    with pytest.raises(InputError, match="'weight' must be on every edge, got 2 of 3 without"):
        graph_distances(graph, "weight")
    assert graph_distances(graph, None)[0, 3] == 3


def test_knn_distances_equal_brute_force():
    points = np.random.default_rng(5).normal(size=(40, 2))
    np.testing.assert_allclose(knn_distances(torch.from_numpy(points), 6), knn_paths(points, 6), rtol=1e-14)
    everything = knn_distances(torch.from_numpy(points), 39)
    np.testing.assert_allclose(everything, cdist(points, points), rtol=1e-14, atol=1e-15)


def test_coincident_points_are_at_distance_zero_in_a_knn_graph():
    points = torch.zeros(9, 2, dtype=torch.float64)  # more coincident points than neighbors
    assert torch.equal(knn_distances(points, 4), torch.zeros(9, 9, dtype=torch.float64))
    mixed = torch.tensor([[0.0], [0.0], [1.0], [1.0], [2.5]], dtype=torch.float64)
    assert knn_distances(mixed, 2)[0].tolist() == [0.0, 0.0, 1.0, 1.0, 2.5]


def test_bad_numbers_of_neighbors_and_gradients_are_refused():
    far = torch.tensor([[0.0], [1.0], [100.0], [101.0], [102.0]])
    with pytest.raises(InputError, match="2 components of sizes 3, 2, expected one: take k larger than 1"):
        knn_distances(far, 1)
    for k in (0, 5, 2.0, True, "3", -1):
        with pytest.raises(InputError, match="k must be an integer from 1 to n - 1 = 4, got"):
            knn_distances(far, k)
    with pytest.raises(InputError, match="points of from_knn cannot carry gradients"):
        knn_distances(far.clone().requires_grad_(), 2)


def test_mesh_distances_equal_networkx():
    rng = np.random.default_rng(7)
    # A 5 × 4 grid of vertices at random heights, each cell split into two triangles.
    i, j = (axis.ravel() for axis in np.meshgrid(range(5), range(4), indexing="ij"))
    vertices = np.stack([i, j, rng.normal(size=20)], axis=1)
    corner = (4 * i + j)[(i < 4) & (j < 3)]
    faces = np.concatenate(
        [np.stack([corner, corner + 4, corner + 5], 1), np.stack([corner, corner + 5, corner + 1], 1)]
    )
    graph = networkx.empty_graph(20)
    for a, b, c in faces:
        for u, v in ((a, b), (b, c), (c, a)):
            graph.add_edge(u, v, weight=np.linalg.norm(vertices[u] - vertices[v]))
    for given_faces in (faces, faces.tolist(), torch.from_numpy(faces), faces.astype(np.uint8)):
        ours = mesh_distances(torch.from_numpy(vertices), given_faces)
        np.testing.assert_allclose(ours, paths_of(graph, "weight"), rtol=1e-14)


@pytest.mark.parametrize(
    ("faces", "message"),
    [
        ([[0, 1, 4]], "indices from 0 to 3, got 0 to 4"),
        ([[0, 1, -1]], "indices from 0 to 3, got -1 to 1"),
        ([[0.0, 1.0, 2.0]], r"integers of shape \(F, 3\), got float64"),
        ([[True, False, True]], "got bool"),
        ([[0, 1, 2, 3]], r"of shape \(1, 4\)"),
        ([0, 1, 2], r"of shape \(3,\)"),
        (np.zeros((0, 3), dtype=int), r"of shape \(0, 3\)"),
        ([[0, 1, 2], [1, 2]], "ragged"),
        ([["a", "b", "c"]], "got <U1"),
        ([[0, 1, 2]], "2 components of sizes 3, 1, expected one of all vertices"),
    ],
)
def test_bad_faces_are_refused(faces, message):
    with pytest.raises(InputError, match=message):
        mesh_distances(torch.rand(4, 3), faces)


@pytest.mark.parametrize("name", [["weight"], {"a": 1}, np.ones((3, 3)), torch.ones(3, 3)], ids=str)
def test_names_of_edge_attributes_are_refused_unless_they_can_be_names(name):
    assert_refused(graph_distances, networkx.path_graph(4), name, match="edge")
