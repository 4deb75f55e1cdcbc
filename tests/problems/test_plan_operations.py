"""Operations on plans and costs: definitions on stored tensors, and implicit plans against the same plans stored."""

import pytest
import torch

from oracles.plans import log_marginals, product_plan, random_plans
from oracles.spaces import streamable_pair, ugw_problem
from ugw.initializers.multilevel import random_anchor_plan
from ugw.problems.plan_operations import (
    cost_rms,
    find_product_plans,
    l1_distance,
    max_log_growth,
    mix_with_product_plan,
    normalize,
)


@pytest.fixture
def streaming_problem():
    """A streaming problem of 30 × 25 points."""
    return ugw_problem(*streamable_pair(30, 25), method="streaming")


def stored(plan):
    """Return an implicit plan as a tensor (B, n, m)."""
    return plan.log_plan.dense().exp()


# --- stored plans ---


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float64, 1e300), (torch.float32, 1e37), (torch.float64, 1e-290)])
def test_normalized_plans_have_unit_mass(dtype, factor):
    plans = random_plans(dtype=dtype)
    scaled = normalize(plans * factor)
    torch.testing.assert_close(scaled.sum(dim=(1, 2)), torch.ones(2, dtype=dtype))
    torch.testing.assert_close(scaled, normalize(plans))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_product_plans_are_recognized_up_to_rounding(dtype):
    products = product_plan(*log_marginals(random_plans(dtype=dtype)))
    assert find_product_plans(products).tolist() == [True, True]
    changed = products.clone()
    changed[1, 0, 0] *= 1.0 + 1e3 * torch.finfo(dtype).eps
    assert find_product_plans(changed).tolist() == [True, False]
    assert find_product_plans(normalize(random_plans(dtype=dtype))).tolist() == [False, False]


def test_the_mixture_with_the_product_plan_is_a_convex_combination_per_item():
    plans = normalize(random_plans())
    log_a, log_b = log_marginals(random_plans(seed=1))
    mixed = mix_with_product_plan(plans, torch.tensor([0.0, 0.25]), log_a, log_b)
    torch.testing.assert_close(mixed[0], plans[0])
    torch.testing.assert_close(mixed[1], 0.75 * plans[1] + 0.25 * product_plan(log_a, log_b)[1])


def test_the_l1_distance_is_the_sum_of_absolute_differences():
    plans, others = normalize(random_plans()), normalize(random_plans(seed=1))
    torch.testing.assert_close(l1_distance(plans, others), (plans - others).abs().sum(dim=(1, 2)))


def test_the_largest_growth_ignores_entries_that_are_zero_before_or_after():
    before, after = normalize(random_plans()), normalize(random_plans(seed=1))
    before[0, 0, 0] = after[0, 1, 1] = 0.0
    before[0, 2, 2] = after[0, 2, 2] = 0.0
    log_a, log_b = log_marginals(after)
    expected = [torch.where((before > 0) & (after > 0), after.log() - before.log(), 0.0)[i].max() for i in (0, 1)]
    assert max_log_growth(before, after, log_a, log_b).tolist() == pytest.approx([float(e) for e in expected])


@pytest.mark.parametrize("unit", [1.0, 1e-200, 1e200])
def test_the_rms_of_a_cost_counts_finite_entries_only_and_scales_with_its_units(unit):
    cost = random_plans()
    log_a, log_b = log_marginals(random_plans(seed=1))
    expected = (product_plan(log_a, log_b) * cost.square()).sum(dim=(1, 2)).sqrt()
    torch.testing.assert_close(cost_rms(unit * cost, log_a, log_b) / unit, expected)
    cost[0, 1, 1] = torch.inf
    finite = torch.where(torch.isinf(cost), 0.0, cost)
    torch.testing.assert_close(
        cost_rms(unit * cost, log_a, log_b) / unit,
        (product_plan(log_a, log_b) * finite.square()).sum(dim=(1, 2)).sqrt(),
    )


def test_the_rms_of_a_zero_cost_is_zero():
    assert cost_rms(torch.zeros(2, 4, 5, dtype=torch.float64), *log_marginals(random_plans())).tolist() == [0.0, 0.0]


# --- implicit plans against stored ones ---


def test_operations_on_implicit_plans_agree_with_those_on_stored_plans(streaming_problem):
    plan, product = random_anchor_plan(streaming_problem), streaming_problem.product
    weights = streaming_problem.log_a, streaming_problem.log_b
    torch.testing.assert_close(stored(normalize(plan * torch.full((1, 1, 1), 3.0))), normalize(stored(plan)))
    torch.testing.assert_close(l1_distance(plan, product), l1_distance(stored(plan), stored(product)))
    torch.testing.assert_close(
        max_log_growth(product, plan, *weights), max_log_growth(stored(product), stored(plan), *weights)
    )
    cost = streaming_problem.state_of_plan(plan).local_cost
    torch.testing.assert_close(cost_rms(cost, *weights), cost_rms(cost.dense(), *weights))
    assert find_product_plans(product) is None  # not tested for implicit plans


def test_implicit_plans_are_mixed_in_the_logarithm(streaming_problem):
    plan, share = normalize(random_anchor_plan(streaming_problem)), torch.tensor([0.25], dtype=torch.float64)
    mixed = mix_with_product_plan(plan, share, streaming_problem.log_a, streaming_problem.log_b)
    has_weight = streaming_problem.product.log_plan.dense() > -torch.inf
    expected = 0.75 * plan.log_plan.dense() + 0.25 * streaming_problem.product.log_plan.dense()
    torch.testing.assert_close(mixed.log_plan.dense()[has_weight], expected[has_weight])
