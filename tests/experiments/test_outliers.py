"""Two moons with outliers: UGW leaves outliers unmatched; UW depends on the rotation."""

import numpy as np
import pytest

from ugw.experiments import outliers


@pytest.fixture(scope="module")
def records():
    return outliers.run(n=60, outliers=8)


def test_a_smaller_rho_matches_less_of_the_outliers(records):
    gw, weak, strong, _ = records
    assert gw.on_outliers == pytest.approx(1.0, abs=1e-6)  # hard marginals leave no choice
    assert gw.on_outliers > weak.on_outliers > 2 * strong.on_outliers
    assert all(record.result.converged for record in records)


def test_ugw_sees_through_the_turn_and_uw_does_not(records):
    assert all(record.moon_to_moon > 0.65 for record in records[:3])
    assert 0.5 <= records[3].moon_to_moon < 0.65


def test_moons_are_renamed_together_or_not_at_all(records):
    for record in records:
        true_labels, matched_labels = record.target.labels, record.matched_labels
        assert np.array_equal(matched_labels[true_labels == 2], true_labels[true_labels == 2])
        assert len(np.unique(matched_labels[true_labels < 2] != true_labels[true_labels < 2])) == 1


def test_the_shares_are_those_of_a_plan_made_by_hand(records):
    source, target = records[0].source, records[0].target
    plan = np.zeros((len(source.labels), len(target.labels)))
    plan[np.ix_(source.labels == 0, target.labels == 1)] = 3.0
    plan[np.ix_(source.labels == 1, target.labels == 1)] = 1.0
    record = outliers.Record(source, target, 1.0, type("Plan", (), {"plan": plan}), "UGW")
    assert record.on_outliers == 0
    assert record.moon_to_moon == pytest.approx(0.75)


def test_the_figure_says_each_method_and_its_share(records):
    panels = outliers.figure(records).axes
    assert [ax.get_title() for ax in panels] == ["GW, ρ = ∞", "UGW, ρ = 1", "UGW, ρ = 0.1", "UW, ρ = 0.01"]
    assert panels[0].texts[0].get_text().startswith("100% of the outliers")
