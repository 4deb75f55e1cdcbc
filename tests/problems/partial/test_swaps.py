"""Balanced GW as the partial problem of all mass: segments, linear minimizers, swaps, projection and gap."""

import itertools

import numpy as np
import pytest
import torch

import ugw
from oracles import cases
from oracles.cases import INF, Parameters
from ugw.problems.build import build_ugw
from ugw.problems.partial.gw import PartialGW

PARAMETERS = [Parameters(INF, INF, 0.0), Parameters(INF, INF, 0.0, 0.7)]
MASS = 1.3


def case(parameters, n=5, m=6):
    """Return a pair of clouds of equal mass and their balanced problem."""
    pair = cases.clouds(n, m, 0, (MASS, MASS))
    return pair, PartialGW.balanced(cases.problem(pair, parameters))


def state_of_plan(balanced, plan):
    """Return the state of a plan (n, m) with its mass."""
    return balanced.state_of_plan(torch.tensor(plan / plan.sum())[None])


@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
def test_the_quadratic_along_a_segment_is_the_objective(parameters):
    pair, balanced = case(parameters)
    p, r = cases.hard_plan(pair, 1), cases.hard_plan(pair, 2)
    state = state_of_plan(balanced, p)
    segment = balanced.segment(state, torch.tensor((r - p) / MASS)[None])
    slope, curvature = segment.slope, segment.curvature
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
    balanced = PartialGW.balanced(cases.problem(pair, parameters))
    state = state_of_plan(balanced, cases.hard_plan(pair, 1))
    minimizer = balanced.linear_minimizer(state)
    smallest = balanced.segment(state, minimizer - state.unit_plan).slope.item()
    slopes = []
    for order in itertools.permutations(range(4)):
        vertex = torch.eye(4, dtype=torch.float64)[list(order)][None] / 4.0
        slopes.append(balanced.segment(state, vertex - state.unit_plan).slope.item())
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


@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
@pytest.mark.parametrize("make", [cases.clouds, cases.similarities, cases.integer_distances])
def test_the_best_swap_is_that_of_all_pairs_of_entries(make, parameters):
    n_improved = 0
    for seed in range(4):
        pair = make(5, 6, seed, (MASS, MASS))
        balanced = PartialGW.balanced(cases.problem(pair, parameters))
        plan = cases.vertex(pair, seed)
        state = balanced.state_of_plan(torch.tensor(plan / MASS)[None])
        direction, lowers = balanced.best_swap(state, torch.tensor([1e-9]))
        value = cases.value(pair, parameters, plan)
        best = min(cases.value(pair, parameters, other) for other in cases.swapped_plans(plan))
        end = cases.value(pair, parameters, plan + MASS * direction[0].numpy())
        assert end == pytest.approx(min(best, value), rel=1e-10)
        assert bool(lowers) == (best < value - 1e-9)
        n_improved += bool(lowers)
    assert n_improved


def test_swaps_of_a_batch_are_those_of_its_items():
    pairs = [cases.integer_distances(n, m, seed) for seed, (n, m) in enumerate([(5, 6), (7, 4), (4, 4)])]
    plans, directions = torch.zeros(3, 7, 6, dtype=torch.float64), torch.zeros(3, 7, 6, dtype=torch.float64)
    for k, pair in enumerate(pairs):
        balanced, plan = PartialGW.balanced(cases.problem(pair, PARAMETERS[0])), torch.tensor(cases.vertex(pair, 0))
        n, m = plan.shape
        plans[k, :n, :m] = plan
        directions[k, :n, :m] = balanced.best_swap(balanced.state_of_plan(plan[None]), torch.tensor([1e-9]))[0][0]
    x, y = (ugw.Space.stack([getattr(pair, side) for pair in pairs]) for side in "xy")
    batch = PartialGW.balanced(build_ugw(x, y, rho=INF, eps=0.0, fused=None))
    together, _ = batch.best_swap(batch.state_of_plan(plans), torch.full((3,), 1e-9))
    torch.testing.assert_close(together, directions)
    assert directions.abs().sum((1, 2)).min() > 0


def test_no_swap_is_found_for_other_losses():
    """A loss other than t² has no closed form along a swap."""
    pair = cases.clouds(5, 6, 0)
    problem = build_ugw(pair.x, pair.y, rho=INF, eps=0.0, fused=None, loss=torch.abs)
    balanced = PartialGW.balanced(problem)
    direction, lowers = balanced.best_swap(
        balanced.state_of_plan(torch.tensor(cases.vertex(pair, 0))[None]), torch.ones(1)
    )
    assert not direction.any()
    assert not lowers.any()
