"""Seeded graphs: connected, planar or in communities, with the lengths they promise."""

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


def test_edges_of_communities_cost_1_inside_4_between_and_2_to_an_outlier():
    source, target = datasets.communities_with_outliers(36, seed=1)
    for made in (source, target):
        for i, j, length in made.graph.edges(data="weight"):
            low, high = sorted((made.labels[i], made.labels[j]))
            assert length == (2 if high >= 2 else 1 if low == high else 4)
            assert high < 2 or low == high - 2  # an outlier hangs on its own community
    assert [int(k) for k in np.bincount(source.labels)] == [18, 18]
    assert [int(k) for k in np.bincount(target.labels)] == [24, 12, 3, 3]
    outliers = np.flatnonzero(target.labels >= 2)
    assert all(target.graph.degree[node] == 1 for node in outliers.tolist())


def test_planar_graphs_are_planar_in_the_square_and_as_long_as_they_look():
    for made in datasets.planar_graphs(80, seed=2):
        assert networkx.check_planarity(made.graph)[0]
        places = np.array([made.graph.nodes[k]["pos"] for k in made.graph])
        assert places.min() > -0.05
        assert places.max() < 1.05
        for i, j, length in made.graph.edges(data="weight"):
            assert length == pytest.approx(np.linalg.norm(places[i] - places[j]))


def test_the_ring_is_closed_and_the_branches_are_only_joined_to_it():
    source, _ = datasets.planar_graphs()
    ring = source.graph.subgraph(np.flatnonzero(source.labels == 0).tolist())
    assert len(networkx.minimum_cycle_basis(ring)) >= 1
    for i, j in source.graph.edges:
        assert source.labels[i] == source.labels[j] or 0 in (source.labels[i], source.labels[j])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: datasets.planar_graphs(20), "n must be a whole number ≥ 32, got 20"),
        (lambda: datasets.planar_graphs(seed=-1), "seed"),
        (lambda: datasets.communities_with_outliers(5), "n must be a whole number ≥ 6, got 5"),
        (lambda: datasets.communities_with_outliers(seed="a"), "seed must be a whole number ≥ 0, got 'a'"),
    ],
)
def test_bad_numbers_are_refused(make, said):
    with pytest.raises(InputError, match=said):
        make()
