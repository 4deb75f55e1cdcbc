"""Operations of balanced GW for Frank–Wolfe: objective along a segment, linear minimizers, projection and gap."""

import itertools

import numpy as np
import pytest
import torch

from oracles import cases
from oracles.cases import INF, Parameters
from ugw.problems.balanced_gw import BalancedGW

PARAMETERS = [Parameters(INF, INF, 0.0), Parameters(INF, INF, 0.0, 0.7)]
MASS = 1.3


def case(parameters, n=5, m=6):
    """Return a pair of clouds of equal mass and their balanced problem."""
    pair = cases.clouds(n, m, 0, (MASS, MASS))
    return pair, BalancedGW(cases.problem(pair, parameters))


def state_of_plan(balanced, plan):
    """Return the state of a plan (n, m) with its mass."""
    return balanced.state_of_plan(torch.tensor(plan / plan.sum())[None])


@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
def test_the_quadratic_along_a_segment_is_the_objective(parameters):
    pair, balanced = case(parameters)
    p, r = cases.hard_plan(pair, 1), cases.hard_plan(pair, 2)
    state = state_of_plan(balanced, p)
    slope, curvature = balanced.quadratic_along(state, torch.tensor((r - p) / MASS)[None])
    for t in (-0.3, 0.2, 0.5, 1.0):
        difference = cases.value(pair, parameters, p + t * (r - p)) - cases.value(pair, parameters, p)
        assert slope.item() * t + curvature.item() * t**2 == pytest.approx(difference, rel=1e-10, abs=1e-14)
    for t in (0.2, 0.5, 1.0):  # the same with the objective of the problem itself
        end = state_of_plan(balanced, p + t * (r - p))
        difference = balanced.objective(end).total - balanced.objective(state).total
        assert slope.item() * t + curvature.item() * t**2 == pytest.approx(difference.item(), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
def test_no_permutation_has_a_smaller_slope_than_the_linear_minimizer(parameters):
    pair = cases.clouds(4, 4, 0, (MASS, MASS))
    pair = cases.Pair(pair.dx, np.full(4, MASS / 4), pair.dy, np.full(4, MASS / 4), pair.cost)
    balanced = BalancedGW(cases.problem(pair, parameters))
    state = state_of_plan(balanced, cases.hard_plan(pair, 1))
    minimizer = balanced.linear_minimizer(state)
    smallest = balanced.quadratic_along(state, minimizer - state.unit_plan)[0].item()
    slopes = []
    for order in itertools.permutations(range(4)):
        vertex = torch.eye(4, dtype=torch.float64)[list(order)][None] / 4.0
        slopes.append(balanced.quadratic_along(state, vertex - state.unit_plan)[0].item())
    assert smallest == pytest.approx(min(slopes), abs=1e-12)


def test_a_projected_plan_has_both_marginals_at_unit_mass_and_feasible_plans_stay():
    pair, balanced = case(PARAMETERS[0])
    projected = balanced.project(torch.tensor(cases.random_plan(pair, 1, 0.2))[None])[0].numpy()
    np.testing.assert_allclose(projected.sum(1), pair.a / MASS, atol=1e-14)
    np.testing.assert_allclose(projected.sum(0), pair.b / MASS, atol=1e-14)
    feasible = cases.hard_plan(pair, 1)
    np.testing.assert_allclose(balanced.project(torch.tensor(feasible)[None])[0], feasible / MASS, atol=1e-12)


def test_the_unit_of_gaps_is_the_objective_of_the_product_plan():
    pair, balanced = case(PARAMETERS[0])
    product = np.outer(pair.a, pair.b) / MASS
    assert balanced.gap_scale().item() == pytest.approx(cases.value(pair, PARAMETERS[0], product), rel=1e-12)
