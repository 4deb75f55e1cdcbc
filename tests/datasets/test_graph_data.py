"""Seeded graphs: connected, planar or in communities, with the documented lengths."""

import networkx
import numpy as np
import pytest

from ugw import InputError, datasets

PAIRS = {
    "communities": lambda seed: datasets.communities_with_outliers(36, seed=seed),
    "planar": lambda seed: datasets.planar_graphs(48, seed=seed),
}


@pytest.mark.parametrize("make", PAIRS.values(), ids=PAIRS)
def test_graphs_are_connected_and_follow_the_seed(make):
    for one, two, other in zip(make(3), make(3), make(4), strict=True):
        assert networkx.is_connected(one.graph)
        assert list(one.graph) == list(range(len(one.labels)))
        assert networkx.utils.graphs_equal(one.graph, two.graph)
        assert not networkx.utils.graphs_equal(one.graph, other.graph)
        assert one.space().n == len(one.labels)


def test_sizes_may_be_small_integers_of_numpy():
    for one, two in zip(*(datasets.communities_with_outliers(number(150)) for number in (int, np.uint8)), strict=True):
        assert networkx.utils.graphs_equal(one.graph, two.graph)


def test_edges_of_communities_cost_1_inside_4_between_and_2_to_an_outlier():
    source, target = datasets.communities_with_outliers(36, seed=1)
    for graph in (source, target):
        for i, j, length in graph.graph.edges(data="weight"):
            low, high = sorted((graph.labels[i], graph.labels[j]))
            assert length == (2 if high >= 2 else 1 if low == high else 4)
            assert high < 2 or low == high - 2  # an outlier hangs on its own community
    assert [int(k) for k in np.bincount(source.labels)] == [18, 18]
    assert [int(k) for k in np.bincount(target.labels)] == [24, 12, 3, 3]
    outliers = np.flatnonzero(target.labels >= 2)
    assert all(target.graph.degree[node] == 1 for node in outliers.tolist())


def test_planar_graphs_are_planar_in_the_square_and_as_long_as_they_look():
    for graph in datasets.planar_graphs(80, seed=2):
        assert networkx.check_planarity(graph.graph)[0]
        places = np.array([graph.graph.nodes[k]["pos"] for k in graph.graph])
        assert places.min() > -0.05
        assert places.max() < 1.05
        for i, j, length in graph.graph.edges(data="weight"):
            assert length == pytest.approx(np.linalg.norm(places[i] - places[j]))


def test_the_ring_is_closed_and_the_branches_are_only_joined_to_it():
    source, _ = datasets.planar_graphs()
    ring = source.graph.subgraph(np.flatnonzero(source.labels == 0).tolist())
    assert len(networkx.minimum_cycle_basis(ring)) >= 1
    for i, j in source.graph.edges:
        assert source.labels[i] == source.labels[j] or 0 in (source.labels[i], source.labels[j])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: datasets.planar_graphs(20), "n must be a whole number ≥ 32, got 20"),
        (lambda: datasets.planar_graphs(seed=-1), "seed"),
        (lambda: datasets.communities_with_outliers(5), "n must be a whole number ≥ 6, got 5"),
        (lambda: datasets.communities_with_outliers(seed="a"), "seed must be a whole number ≥ 0, got 'a'"),
    ],
)
def test_bad_numbers_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_families_have_the_structure_of_their_names():
    families = datasets.graph_families(6, outliers=3, seed=5)
    assert list(families) == ["communities", "small world", "tree"]
    for name, graphs in families.items():
        assert len(graphs) == 6
        for graph in graphs:
            inliers, outliers = np.flatnonzero(graph.labels == 0), np.flatnonzero(graph.labels == 1)
            assert networkx.is_connected(graph.graph)
            assert list(graph.graph) == list(range(len(graph.labels)))
            assert 15 <= len(inliers) <= 25
            assert len(outliers) == 3
            for i, j, length in graph.graph.edges(data="weight"):
                assert length == (3 if graph.labels[[i, j]].any() else 1)
            assert all(graph.graph.degree[node] == 1 for node in outliers.tolist())
            inner = graph.graph.subgraph(inliers.tolist())
            assert networkx.is_tree(inner) == (name == "tree")
            if name == "small world":
                assert inner.number_of_edges() == 2 * len(inliers)


def test_communities_of_a_family_are_three():
    for graph in datasets.graph_families(4, seed=1)["communities"]:
        n = len(graph.labels)
        block = np.minimum(np.arange(n) // (n // 3), 2)
        within = [block[i] == block[j] for i, j in graph.graph.edges]
        assert np.mean(within) > 0.7


def test_more_outliers_extend_the_same_graphs():
    some, more, others = (datasets.graph_families(3, outliers=k, seed=s) for k, s in ((1, 0), (4, 0), (1, 9)))
    for name in some:
        for one, two in zip(some[name], more[name], strict=True):
            assert networkx.utils.graphs_equal(one.graph, two.graph.subgraph(list(one.graph)))
        pairs = zip(some[name], others[name], strict=True)
        assert not all(networkx.utils.graphs_equal(one.graph, two.graph) for one, two in pairs)


@pytest.mark.parametrize("wrong", [{"count": 0}, {"outliers": -1}, {"seed": -1}, {"outliers": 1.5}])
def test_bad_numbers_of_families_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        datasets.graph_families(**wrong)


def test_the_old_name_of_the_number_of_outliers_still_works():
    with pytest.warns(DeprecationWarning, match="outliers"):
        families = datasets.graph_families(1, strays=2)
    assert all((graphs[0].labels == 1).sum() == 2 for graphs in families.values())
