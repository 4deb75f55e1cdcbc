"""Alternating minimization at eps = 0, by proximal steps: stationary sparse plans, monotone objectives, zeros."""

from dataclasses import replace

import numpy as np
import ot
import pytest

import ugw
from oracles import cases
from oracles.cases import INF, Parameters

EXACT = [
    Parameters(0.3, 2.0, 0.0),
    Parameters(0.5, 0.2, 0.0, 0.3),
    Parameters(INF, 0.5, 0.0),
    Parameters(0.5, INF, 0.0),
]


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("parameters", EXACT, ids=str)
def test_the_plan_is_stationary(parameters, seed):
    pair = cases.clouds(6, 6, seed, (1.3, 0.6))
    result = cases.solve(pair, parameters, cases.random_plan(pair, 2))
    plan = result.plan
    left = cases.gradient(pair, parameters, plan)
    if parameters.rho1 == INF:
        np.testing.assert_allclose(plan.sum(1), pair.a, rtol=1e-7)
        left = left - ((plan * left).sum(1) / plan.sum(1))[:, None]
    if parameters.rho2 == INF:
        np.testing.assert_allclose(plan.sum(0), pair.b, rtol=1e-7)
        left = left - ((plan * left).sum(0) / plan.sum(0))[None, :]
    # No multiplicative perturbation descends: where the plan is positive the gradient vanishes.
    assert abs(plan * left).sum() < 1e-7
    assert (plan > 1e-6).sum() <= 18 < plan.size  # a sparse plan, as it is without entropy
    # From a mixture with the product plan, which is positive everywhere, the same value is reached again.
    blurred = 0.99 * plan / plan.sum() + 0.01 * pair.product / pair.product.sum()
    again = cases.solve(pair, parameters, blurred)
    assert cases.value(pair, parameters, blurred * result.mass) > result.value + 1e-4
    assert again.value == pytest.approx(result.value, abs=1e-6)


@pytest.mark.parametrize("parameters", EXACT[:3], ids=str)
def test_the_objective_falls(parameters):
    pair = cases.clouds(6, 7, 4, (1.3, 0.6))
    objective = cases.solve(pair, parameters, inner_iter=1000).history.objective
    assert objective[0] > objective[-1] + 1e-3
    # An early plan violates a hard marginal a little, so that its objective may be too low.
    slack = 1e-8 if parameters.rho1 < INF else 1e-3
    rises = np.diff(objective) > slack * (objective[0] - objective[-1])
    # A converged plan is mixed once with the product plan, to check that it converges again: one small rise.
    assert rises.sum() <= 1
    assert np.diff(objective).max() <= 1e-4 * (objective[0] - objective[-1])
    assert objective[-1] == pytest.approx(objective.min(), rel=1e-6)


@pytest.mark.parametrize("parameters", EXACT[:2], ids=str)
def test_not_worse_than_pot(parameters):
    # Different minima can be reached from one start, so the library's own choice of starts is what is compared.
    pair = cases.clouds(7, 8, 1, (1.3, 0.6))
    plan, _ = ot.gromov.fused_unbalanced_gromov_wasserstein(
        pair.dx, pair.dy, pair.a, pair.b, reg_marginals=parameters.rho, epsilon=0, divergence="kl", unbalanced_solver="mm",
        alpha=parameters.alpha, M=pair.cost if parameters.alpha else None, init_pi=pair.product, max_iter=200, tol=1e-9,
        max_iter_ot=500, tol_ot=1e-9,
    )  # fmt: skip
    fused = ugw.Fused(parameters.alpha, pair.cost) if parameters.alpha else None
    result = ugw.solve(pair.x, pair.y, rho=parameters.rho, eps=0.0, fused=fused)
    assert result.value <= cases.value(pair, parameters, plan) + 1e-6


def test_a_point_too_far_to_be_matched_is_left_out():
    # Its row of the plan underflows to zeros; the rest is the problem without it, its weight a constant.
    pair = cases.clouds(7, 8, 0)
    points = np.random.default_rng(0).random((7, 2))
    points[0] += 60.0
    pair = replace(pair, dx=np.linalg.norm(points[:, None] - points[None], axis=2))
    parameters = Parameters(1.0, 1.0, 0.0)
    solver = ugw.AlternateMin(max_iter=300)
    result = ugw.solve(pair.x, pair.y, rho=parameters.rho, eps=0.0, init="product", solver=solver)
    assert result.converged
    assert result.plan[0].sum() == 0.0
    near = cases.Pair(pair.dx[1:, 1:], pair.a[1:], pair.dy, pair.b)
    rest = ugw.solve(near.x, near.y, rho=parameters.rho, eps=0.0, init=result.plan[1:])
    lost = pair.a.sum() ** 2 - near.a.sum() ** 2  # KL(p1⊗p1 | a⊗a) counts the mass of a⊗a
    assert result.value == pytest.approx(rest.value + lost, rel=1e-5)


def test_zeros_of_the_initial_plan_can_become_positive():
    # A proximal step keeps zeros, so the first reference plan must be positive everywhere.
    pair, parameters = cases.clouds(7, 8, 0), Parameters(0.5, 1.0, 0.0)
    start = cases.random_plan(pair, 1)
    start[2], start[:, 3], start[0, 0] = 0.0, 0.0, 0.0
    result = ugw.solve(pair.x, pair.y, rho=parameters.rho, eps=0.0, init=start)
    assert result.converged
    assert result.plan[2].sum() > 0.01
    assert result.plan[:, 3].sum() > 0.01
    blurred = 0.99 * result.plan / result.mass + 0.01 * pair.product
    assert cases.solve(pair, parameters, blurred).value >= result.value - 1e-6
