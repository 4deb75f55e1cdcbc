"""Plans from a coarse level."""

import numpy as np
import torch
from scipy.spatial.distance import cdist

import ugw
from oracles.cases import INF
from oracles.spaces import space, ugw_problem, weighted_points
from oracles.thresholds import changed_thresholds
from ugw.geometry.space import Space
from ugw.initializers.coarse import coarse_plan
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


def test_plans_run_together_end_as_they_do_alone(monkeypatch):
    monkeypatch.setenv(native.SWITCH, "0")  # the compiled search runs each by itself
    x, y = SECOND_WINS
    problem = ugw_problem(Space.stack([space(8), x]), y, rho=np.array([1.0, INF]), eps=1e-3)
    together = coarse_plan(problem)
    with changed_thresholds(INITIALIZER_CONFIG, max_batch_entries={"cpu": 0}):
        torch.testing.assert_close(coarse_plan(problem), together, rtol=0, atol=1e-9)
