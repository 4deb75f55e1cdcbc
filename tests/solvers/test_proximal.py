"""Proximal steps: entropy bounds, the schedule from step to step, the reference plan, and the test for growth."""

import pytest
import torch

from oracles.plans import log_marginals, random_plans
from ugw.errors import InputError
from ugw.solvers.config import SOLVER_CONFIG
from ugw.solvers.proximal import ProximalSchedule, has_growing_entries, reference_plan

SCHEDULE = ProximalSchedule(first=0.2, last=0.05, factor=0.5)


def bounds(eps, scale=2.0, min_entropy=0.0):
    """Return (first, last, largest) of SCHEDULE for one item as floats."""
    values = SCHEDULE.bounds(*(torch.tensor([v], dtype=torch.float64) for v in (eps, scale, min_entropy)))
    return tuple(float(v) for v in values)


def test_without_eps_the_bounds_are_shares_of_the_scale():
    assert bounds(0.0) == pytest.approx((0.2 * 2.0, 0.05 * 2.0, SOLVER_CONFIG.max_proximal_share * 2.0), rel=1e-5)


@pytest.mark.parametrize("eps", [0.1, 0.3, 5.0])
def test_an_eps_of_at_least_the_last_share_needs_no_proximal_steps(eps):
    first, last, largest = bounds(eps)
    assert first == last == eps
    assert largest == pytest.approx(max(eps, SOLVER_CONFIG.max_proximal_share * 2.0))


def test_the_last_entropy_is_at_least_the_smallest_reliable_one_and_at_most_the_largest():
    assert bounds(0.0, min_entropy=0.3)[1] == pytest.approx(0.3)
    assert bounds(0.0, min_entropy=1e3)[1] == pytest.approx(SOLVER_CONFIG.max_proximal_share * 2.0)


def test_the_first_entropy_is_at_least_the_last_one():
    first, last, _ = bounds(0.0, min_entropy=0.5)
    assert first == last == pytest.approx(0.5)


def test_the_entropy_decreases_by_the_factor_down_to_the_last_and_increases_where_a_solve_failed():
    entropy = torch.tensor([0.4, 0.15, 0.4, 0.2], dtype=torch.float64)
    limits = torch.full_like(entropy, 0.1), torch.full_like(entropy, 0.6)
    is_solved = torch.tensor([True, True, False, False])
    new = SCHEDULE.next_entropy(entropy, limits, is_solved)
    assert new.tolist() == pytest.approx([0.2, 0.1, 0.6, 0.4])


def test_the_reference_is_the_plan_itself_unless_an_item_must_leave_zeros():
    plan = random_plans(1, 3, 4)
    plan, (log_a, log_b) = plan / plan.sum(), log_marginals(plan)
    assert reference_plan(plan, torch.zeros(1), log_a, log_b) is plan


def test_the_reference_contains_a_share_of_the_product_plan_in_items_that_must_leave_zeros():
    plan = random_plans(1, 3, 4)
    plan, (log_a, log_b) = plan / plan.sum(), log_marginals(plan)
    plans, logs_a, logs_b = plan.repeat(2, 1, 1), log_a.repeat(2, 1), log_b.repeat(2, 1)
    plans[:, 0, 0] = 0.0
    reference = reference_plan(plans, torch.tensor([0.0, 1.0]), logs_a, logs_b)
    share = SOLVER_CONFIG.product_share
    torch.testing.assert_close(reference[0], plans[0])
    product = logs_a[1].exp()[:, None] * logs_b[1].exp()[None, :]
    torch.testing.assert_close(reference[1], (1.0 - share) * plans[1] + share * product)
    assert reference[1, 0, 0] > 0


def test_one_growing_entry_is_detected_at_any_size():
    plan = random_plans(1, 3, 4)
    plan, (log_a, log_b) = plan / plan.sum(), log_marginals(plan)
    before, after = plan.clone(), plan.clone()
    before[0, 1, 2], after[0, 1, 2] = 1e-200, 1.2e-200
    assert has_growing_entries(before, after, torch.tensor([0.1]), log_a, log_b).tolist() == [True]
    assert has_growing_entries(before, after, torch.tensor([0.2]), log_a, log_b).tolist() == [False]
    assert has_growing_entries(after, before, torch.tensor([0.1]), log_a, log_b).tolist() == [False]


def test_the_first_share_is_at_least_the_last():
    with pytest.raises(InputError, match=r"first must be at least last, got 0\.01 < 0\.3"):
        ProximalSchedule(first=0.01, last=0.3)
