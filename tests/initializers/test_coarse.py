"""Plans from a coarse level."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

import ugw
from oracles.cases import INF
from oracles.spaces import space, ugw_problem, weighted_points
from oracles.thresholds import changed_thresholds
from ugw.geometry.space import Space
from ugw.initializers.coarse import _coarsest_level, coarse_plan, count_random_candidates
from ugw.initializers.config import INITIALIZER_CONFIG
from ugw.kernels.cpu import native


def test_coarse_finds_the_copy():
    points, weights = weighted_points(30, 3, 5)
    order = np.random.default_rng(0).permutation(30)
    x, y = Space.from_points(points, weights=weights), Space.from_points(points[order], weights=weights[order])
    plan = coarse_plan(ugw_problem(x, y, eps=1e-3))[0].numpy()
    # Most of the mass is near the copy of its point.
    near = cdist(points, points[order]) < 0.15
    assert plan[near].sum() > 0.9


SECOND_WINS = [
    Space.from_points(np.random.default_rng(seed).random((n, d))) for seed, n, d in ((7, 14, 3), (107, 16, 2))
]


def test_auto_solves_more_than_the_first_of_the_candidates_of_few_points():
    """The candidate of lowest objective leads to .0552 here, the second to .0537."""
    assert ugw.solve(*SECOND_WINS, rho=INF, eps=1e-3).value < 0.0538


def test_the_number_of_random_candidates_falls_with_eps():
    config = INITIALIZER_CONFIG
    counts = count_random_candidates(torch.tensor([0.0, 1e-3, 0.1, 0.7, math.inf], dtype=torch.float64))
    middle = math.ceil(config.random_candidates_times_eps_share / 0.1)
    assert counts.tolist() == [
        *[config.n_random_candidates] * 2, middle, *[config.min_random_candidates] * 2
    ]  # fmt: skip
    assert config.min_random_candidates < middle < config.n_random_candidates


def test_an_item_of_a_batch_tries_as_many_candidates_as_alone():
    x, y = SECOND_WINS
    eps = np.array([0.05, 1e-3])
    _, together = _coarsest_level(ugw_problem(Space.stack([x, x]), y, rho=0.3, eps=eps))
    for k in range(2):
        _, alone = _coarsest_level(ugw_problem(x, y, rho=0.3, eps=eps[k]))
        count = alone.shape[1]
        torch.testing.assert_close(together[k, :count], alone[0], rtol=0, atol=1e-12)
        # The others repeat the product plan, and are dropped.
        rest = together[k, count:]
        torch.testing.assert_close(rest, alone[0, :1].expand_as(rest), rtol=0, atol=1e-12)
        assert len(rest) > 0 or k == 1


def test_plans_run_together_end_as_they_do_alone(monkeypatch):
    monkeypatch.setenv(native.SWITCH, "0")  # the compiled search runs each by itself
    x, y = SECOND_WINS
    problem = ugw_problem(Space.stack([space(8), x]), y, rho=np.array([1.0, INF]), eps=1e-3)
    together = coarse_plan(problem)
    with changed_thresholds(INITIALIZER_CONFIG, max_batch_entries={"cpu": 0}):
        torch.testing.assert_close(coarse_plan(problem), together, rtol=0, atol=1e-9)


@pytest.mark.parametrize("compiled", ["0", "1"])
def test_distances_beyond_the_range_of_the_search(monkeypatch, compiled):
    """The scale of the distortion overflows in float32: the search tries few candidates and returns the product plan."""
    monkeypatch.setenv(native.SWITCH, compiled)
    rng = np.random.default_rng(0)
    x, y = (ugw.Space.from_points(1e21 * rng.random((80, d))) for d in (2, 3))
    r = ugw.solve(x, y, rho=1e42, eps=1e40)
    assert np.isfinite(r.value)
    assert count_random_candidates(torch.tensor([torch.nan])).tolist() == [INITIALIZER_CONFIG.min_random_candidates]
