"""Planar graphs: a small rho leaves the small circle unmatched; partial GW matches a node fully or not at all."""

import numpy as np
import pytest

import ugw
from ugw import datasets
from ugw.experiments import graphs, graphs_partial


@pytest.fixture(scope="module")
def pairs():
    return graphs_partial.run(n=60, rhos=(0.1, 1.0))


def test_the_smaller_rho_the_less_of_the_small_circle_is_matched(pairs):
    shares = [record.received_fractions["small circle"] for record in pairs[0]]
    assert shares[0] < 0.7 < shares[1] < shares[2]
    assert shares[2] == pytest.approx(1, abs=1e-6)
    assert all(record.result.converged for record in pairs[0])


def test_partial_gw_has_the_masses_that_ugw_found(pairs):
    for unbalanced, partial in zip(*pairs, strict=True):
        assert partial.mass == pytest.approx(unbalanced.mass, abs=1e-9)


def test_partial_gw_leaves_nodes_unmatched_and_ugw_reduces_their_mass(pairs):
    unbalanced, partial = pairs[0][0], pairs[1][0]
    assert unbalanced.n_unmatched == 0 < partial.n_unmatched
    share = np.concatenate(partial.kept_fractions)
    halves = (share > 1e-9) & (share < 1 - 1e-9)
    assert halves.mean() < 0.2  # most nodes are in or out, of UGW's none is
    assert (np.abs(np.concatenate(unbalanced.kept_fractions) - 0.5) < 0.5).mean() > 0.5
    assert share.max() <= 1 + 1e-9


def test_the_numbers_are_those_of_a_plan_made_by_hand():
    source, target = datasets.planar_graphs(40)
    plan = np.zeros((len(source.labels), len(target.labels)))
    ring, circle = source.names.index("ring"), target.names.index("small circle")
    plan[np.ix_(source.labels == ring, target.labels == ring)] = 3.0
    plan[np.ix_(source.labels == ring, target.labels == circle)] = 1.0
    matching = graphs.GraphMatching("", source, target, type("Plan", (), {"plan": plan / plan.sum()}))
    rings, circles = (target.labels == ring).sum(), (target.labels == circle).sum()
    assert matching.part_to_part == pytest.approx(3 * rings / (3 * rings + circles))
    assert matching.received_fractions["cluster"] == 0
    assert matching.n_unmatched == (source.labels != ring).sum() + (~np.isin(target.labels, (ring, circle))).sum()


def test_the_source_keeps_its_colors_when_matched_to_itself():
    source, _ = datasets.planar_graphs(40)
    n = len(source.labels)
    colors = graphs.node_colors(source)
    same = graphs.GraphMatching("self", source, source, ugw.solve(source.space(), source.space(), rho=1.0, eps=1e-4))
    assert np.abs(same.result.plan.T @ colors / same.result.plan.sum(axis=0)[:, None] - colors).max() < 0.1
    assert colors.shape == (n, 3)


def test_the_figure_has_source_and_target_of_each_plan(pairs):
    figure = graphs.figure(pairs[0])
    assert len(figure.axes) == 6
    assert [ax.get_title() for ax in figure.axes[:3]] == ["UGW, ρ = 0.1", "UGW, ρ = 1", "GW, ρ = ∞"]
