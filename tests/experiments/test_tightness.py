"""Tightness: for kernels of negative type no pair of plans has a value below those of both plans."""

import itertools

import numpy as np
import pytest

from ugw.experiments import tightness


@pytest.mark.parametrize("kind", ["Euclidean", "tree", "sphere", "hyperbolic"])
def test_these_distances_are_is_of_negative_type(kind):
    for seed in range(5):
        distances = tightness.KINDS[kind](np.random.default_rng(seed), 9)
        assert tightness.is_of_negative_type(distances)
        np.testing.assert_allclose(distances, distances.T, atol=1e-12)
        assert (np.diag(distances) == 0).all()


def test_bipartite_graphs_are_not():
    # K(2, 3): the vector (3, 3, −2, −2, −2) has a positive form.
    distances = np.full((5, 5), 2.0) - 2 * np.eye(5)
    distances[:2, 2:] = distances[2:, :2] = 1.0
    assert not tightness.is_of_negative_type(distances)


@pytest.mark.parametrize("kind", ["sphere", "bipartite graph"])
def test_the_alternation_ends_where_neither_plan_improves_the_pair(kind):
    rng = np.random.default_rng(2)
    dx, dy = (tightness.KINDS[kind](rng, 6) for _ in range(2))
    first, second = tightness.alternate_assignments(dx, dy, rng.permutation(6))
    value = tightness.distortion(dx, dy, first, second)
    for other in itertools.permutations(range(6)):
        assert tightness.distortion(dx, dy, np.array(other), second) >= value - 1e-9
        assert tightness.distortion(dx, dy, first, np.array(other)) >= value - 1e-9


def test_for_negative_type_the_better_plan_costs_no_more_than_any_pair():
    rng = np.random.default_rng(3)
    dx, dy = tightness.tree_distances(rng, 7), tightness.hyperbolic_distances(rng, 7)
    for _ in range(50):
        first, second = rng.permutation(7), rng.permutation(7)
        pair = tightness.distortion(dx, dy, first, second)
        assert min(tightness.distortion(dx, dy, plan, plan) for plan in (first, second)) <= pair + 1e-12


def test_some_bipartite_graphs_end_with_a_pair_below_both_plans():
    (row,) = tightness.run(kinds=("bipartite graph",), pairs=10)
    assert row.lower > 0
    assert row.exact + row.lower <= 1
    assert row.negative < 0.5


def test_ugw_ends_with_one_plan_and_the_figure_has_a_bar_for_each_kind():
    rows = tightness.run(kinds=("tree", "random graph"), n=6, pairs=4, starts=2)
    assert [row.entropic for row in rows] == [1.0, 1.0]
    (ax,) = tightness.figure(rows).axes
    assert [text.get_text().split("\n")[0] for text in ax.get_yticklabels()] == ["tree", "random graph"]
