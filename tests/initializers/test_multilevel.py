"""Initial plans that are not stored: as good as stored ones, and found on a sample of the points."""

import numpy as np
import pytest
import torch

import ugw
from oracles.spaces import streamable_pair
from oracles.thresholds import changed_thresholds
from ugw._utils.size_class import THRESHOLDS
from ugw.initializers import multilevel
from ugw.problems.build import build_ugw
from ugw.problems.plan_operations import normalize

STREAMING = ugw.AlternateMin(tol=1e-8, inner=ugw.Sinkhorn(method="streaming"))


STORED = ugw.AlternateMin(tol=1e-8, inner=ugw.Sinkhorn(method="stabilized"))


@pytest.mark.parametrize("init", ["flb", "random", "linear", "coarse", "auto", "best"])
def test_starts_lead_to_plans_of_the_same_quality(init):
    rng = np.random.default_rng(3)
    points = rng.random((50, 2)) * [1.0, 0.4]
    rotated = points[::-1] @ np.array([[0.0, 1.0], [-1.0, 0.0]])
    x, y = (ugw.Space.from_points(p, metric="sqeuclidean") for p in (points, rotated + 0.01 * rng.normal(size=(50, 2))))
    r = ugw.solve(x, y, rho=1.0, eps=0.01, init=init, solver=STREAMING)
    stored = ugw.solve(x, y, rho=1.0, eps=0.01, init=init, solver=STORED)
    assert r.value <= 1.05 * stored.value


@changed_thresholds(THRESHOLDS, max_stored_sample=40, max_level_ratio=3)
def test_multilevel_starts_are_close_to_the_best_value():
    x, y = streamable_pair(300, 280)
    problem = build_ugw(x, y, rho=0.5, eps=0.02, fused=None, method="streaming")
    with torch.no_grad():
        started = multilevel.named_plan(problem, "auto")
        product = problem.objective(problem.state_of_plan(problem.product)).total
        value = problem.objective(problem.state_of_plan(normalize(started))).total
    best = ugw.solve(x, y, rho=0.5, eps=0.02, solver=STORED)
    assert float(value) - best.value < 0.4 * (float(product) - best.value)
    r = ugw.solve(x, y, rho=0.5, eps=0.02, solver=STREAMING)
    assert r.value <= best.value * (1.0 + 1e-2)  # 40 points determine the local minimum
    assert r.n_iter < ugw.solve(x, y, rho=0.5, eps=0.02, solver=STREAMING, init="product").n_iter


def test_a_sample_keeps_the_masses_and_the_mean_distortion():
    x, y = streamable_pair(400, 380)
    problem = build_ugw(x, y, rho=0.5, eps=0.02, fused=None, method="streaming")
    sample = multilevel.sample_problem(problem, 100, 90)
    torch.testing.assert_close(sample.log_mass_a, problem.log_mass_a)
    torch.testing.assert_close(sample.log_mass_b, problem.log_mass_b)
    torch.testing.assert_close(sample.scale(), problem.scale(), rtol=0.05, atol=0.0)


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
def test_a_start_that_matches_nothing_is_finite_in_float32():
    """The mass of its plan underflows: only the plan scaled to mass 1 starts the solve."""
    rng = np.random.default_rng(0)
    x, y = (
        ugw.Space.from_points(
            rng.random((20, 2)).astype(np.float32),
            metric="sqeuclidean",
            features=(5 * side + rng.random((20, 2))).astype(np.float32),
        )
        for side in (0, 1)
    )
    solver = ugw.AlternateMin(inner=ugw.Sinkhorn(method="streaming"))
    r = ugw.solve(x, y, rho=0.05, eps=0.05, fused=ugw.Fused(50.0), solver=solver)
    assert r.value == pytest.approx(0.15, rel=1e-6)  # that of no plan at all
    assert np.isfinite(r.plan.marginals[0]).all()
