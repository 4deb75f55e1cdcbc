"""Term-by-term sums: infinite losses, blocks, and plans that share an item."""

import numpy as np
import pytest
import torch

from oracles.distortion import (
    BATCHED,
    B,
    M,
    N,
    assert_close,
    explicit_sum,
    gaussian_kernel,
    random_metrics,
    random_plans,
    rho_total,
)
from oracles.thresholds import changed_thresholds
from ugw.geometry.metric import DenseMetric
from ugw.measures.cones import GaussianHellinger, HellingerKantorovich
from ugw.problems.distortion.base import PairLoss
from ugw.problems.distortion.config import DISTORTION_CONFIG
from ugw.problems.distortion.term_by_term import TermByTermDistortion


def test_an_infinite_term_counts_where_the_plan_has_mass_and_only_there():
    dx, dy = random_metrics(False, False)
    cone = HellingerKantorovich(0.4)
    distortion = TermByTermDistortion(dx, dy, PairLoss(cone))
    assert distortion.may_be_infinite
    plan = random_plans() * (random_plans(seed=5) < 0.15)
    t = (dx.dense()[:, None, :, None] - dy.dense()[None, :, None, :]).abs()
    values = cone(t)
    expected = torch.zeros_like(plan)
    for b, i, j in np.ndindex(B, N, M):
        held = plan[b] > 0
        expected[b, i, j] = (values[i, j][held] * plan[b][held]).sum()
    assert 0.1 < torch.isinf(expected).double().mean() < 0.99
    torch.testing.assert_close(distortion.apply(plan), expected, rtol=1e-12, atol=1e-14)
    # Infinite values of the loss are zeros of the conic kernel.
    assert not TermByTermDistortion(dx, dy, PairLoss(cone, rho_total(1.0))).may_be_infinite
    assert not TermByTermDistortion(dx, dy, PairLoss(HellingerKantorovich(5.0))).may_be_infinite


@changed_thresholds(DISTORTION_CONFIG, block_terms=100_000)
def test_blocks_of_a_long_sum_respect_their_limit():
    dx, dy = random_metrics(False, False, n=30, m=25)
    evaluated = []

    def loss(t):
        evaluated.append(t.numel())
        return t.abs()

    distortion = TermByTermDistortion(dx, dy, PairLoss(loss, rho_total(1.0)))
    for n_sums in (1, 2):  # several blocks are not kept for the next sum
        distortion.apply(random_plans(1, 30, 25))
        assert max(evaluated) <= 100_000
        assert sum(evaluated) == n_sums * (30 * 25) ** 2


@pytest.mark.parametrize("batched", BATCHED, ids=str)
@pytest.mark.parametrize("n_block_terms", [DISTORTION_CONFIG.block_terms, 1])
def test_many_plans_of_one_item_share_its_terms(batched, n_block_terms):
    dx, dy = random_metrics(*batched)
    rhos = [0.2, 0.3, 0.5, 1.0]
    distortion = TermByTermDistortion(dx, dy, PairLoss(GaussianHellinger(), rho_total(*rhos)))
    index = torch.tensor([2, 2, 0, 3, 0])
    plan = random_plans(batch=5)
    items = distortion.take(index)
    g = [gaussian_kernel(rhos[i]) for i in index]
    repeated = [DenseMetric(metric.dense()[index]) if metric.batched else metric for metric in (dx, dy)]
    expected = explicit_sum(*repeated, g, plan)
    with changed_thresholds(DISTORTION_CONFIG, block_terms=n_block_terms):
        for _ in range(2):  # the second time from cached terms
            assert_close(items.apply(plan), expected, float(plan.sum()), tol=1e-14)
        again = torch.tensor([True, False, False, True, True])
        assert_close(items.take(again).apply(plan[again]), expected[again], float(plan.sum()), tol=1e-14)
        fewer = items.with_metrics(*repeated)
        assert_close(fewer.apply(plan), expected, float(plan.sum()), tol=1e-14)
