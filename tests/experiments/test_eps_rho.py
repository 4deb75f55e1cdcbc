"""Communities with outliers: the effects of rho on outliers and of eps on the plan."""

import math

import numpy as np
import pytest

from ugw import datasets
from ugw.experiments import eps_rho


@pytest.fixture(scope="module")
def rows():
    return eps_rho.run(n=36, rhos=(1.0, math.inf), eps=(8.0, 0.5))


def test_a_small_rho_leaves_the_outliers_and_hard_marginals_cannot(rows):
    (_, sharp), (_, balanced) = rows
    assert sharp.on_outliers < 0.2
    assert balanced.on_outliers == pytest.approx(1, abs=1e-6)


def test_imbalanced_communities_force_gw_across(rows):
    (_, sharp), (_, balanced) = rows
    assert sharp.across < 0.01
    # Of 42 nodes 24 are in the large community and half of the source's mass matches it: the rest has to cross.
    assert balanced.across > 0.05


def test_a_large_eps_gives_an_uninformative_plan(rows):
    for blurred, sharp in rows:
        assert blurred.information < 0.01 < 0.1 < sharp.information
        assert blurred.across == pytest.approx(0.5, abs=0.02)


def test_information_of_plans_made_by_hand(rows):
    side = datasets.LabeledGraph(None, np.array([0, 1]), ("a", "b"))

    def make_matching(plan):
        return eps_rho.GridMatching(side, side, 1.0, type("Plan", (), {"plan": np.array(plan)}), 1.0)

    assert make_matching([[0.5, 0.0], [0.0, 0.5]]).information == pytest.approx(math.log(2))
    assert make_matching([[3.0, 1.0], [3.0, 1.0]]).information == pytest.approx(0)
    assert make_matching([[1.0, 3.0], [3.0, 1.0]]).across == pytest.approx(0.25)


def test_all_plans_share_one_color_scale(rows):
    figure = eps_rho.figure(rows)
    scales = {(image.norm.vmin, image.norm.vmax) for ax in figure.axes for image in ax.get_images()}
    assert len(scales) == 1
    assert sum(bool(ax.get_images()) for ax in figure.axes) == 4
