"""Incremental updates of the local cost: equal to full products up to the precision of the changes."""

import itertools

import numpy as np
import pytest
import torch

from ugw.geometry.metric import DenseMetric
from ugw.problems.distortion import squares
from ugw.problems.distortion.config import DISTORTION_CONFIG
from ugw.problems.distortion.incremental import IncrementalDistortion
from ugw.problems.distortion.squares import SquaredDistortion

N, M, B = 20, 18, 3


def random_metric(n, batch, seed):
    points = torch.as_tensor(np.random.default_rng(seed).random((batch, n, 2)))
    return DenseMetric(torch.cdist(points, points))


def random_plan(seed):
    plan = torch.as_tensor(np.random.default_rng(seed).random((B, N, M)))
    return plan / plan.sum(dim=(1, 2), keepdim=True)


@pytest.fixture
def distortion():
    return IncrementalDistortion.of(SquaredDistortion(random_metric(N, B, 0), random_metric(M, B, 1)))


def plans_along_segment(step, count):
    """Plans on the segment between two random plans, at L1 distances below `step`."""
    first, last = random_plan(2), random_plan(3)
    distance = float((first - last).abs().sum(dim=(1, 2)).max())
    return [torch.lerp(first, last, k * step / distance) for k in range(count)]


def test_updates_agree_with_full_products(distortion):
    # A CPU has no TF32, so that only rounding differs.
    plans = plans_along_segment(0.2 * DISTORTION_CONFIG.max_drift, 12)
    cost, drift = distortion.update(plans[0], plans[0], None, None)
    assert torch.equal(cost, SquaredDistortion(distortion.dx, distortion.dy).apply(plans[0]))
    for previous, plan in itertools.pairwise(plans):
        cost, drift = distortion.update(plan, previous, cost, drift)
        torch.testing.assert_close(cost, distortion.apply(plan), rtol=1e-13, atol=1e-13)
        assert drift.shape == (B,)


def test_the_drift_is_the_length_of_the_path_since_the_last_full_product(distortion):
    limit = DISTORTION_CONFIG.max_drift
    plans = plans_along_segment(0.4 * limit, 6)
    cost, drift = distortion.update(plans[0], plans[0], None, None)
    assert drift.tolist() == [0.0] * B
    drifts = []
    for previous, plan in itertools.pairwise(plans):
        cost, drift = distortion.update(plan, previous, cost, drift)
        drifts.append(float(drift.max()) / limit)
    assert drifts == pytest.approx([0.4, 0.8, 0.0, 0.4, 0.8], abs=1e-12)


def test_one_item_above_the_limit_resets_all(distortion):
    first = random_plan(2)
    plan = first.clone()
    plan[1] = random_plan(3)[1]
    cost, drift = distortion.update(plan, first, distortion.apply(first), torch.full((B,), 1e-3).double())
    assert torch.equal(cost, distortion.apply(plan))
    assert drift.tolist() == [0.0] * B


def test_only_the_change_is_multiplied_in_low_precision(distortion, monkeypatch):
    triple_product, low_precision = squares.triple_product, []

    def record_and_multiply(*args):
        low_precision.append(torch.backends.cuda.matmul.allow_tf32)
        return triple_product(*args)

    monkeypatch.setattr(squares, "triple_product", record_and_multiply)
    first, plan = plans_along_segment(0.5 * DISTORTION_CONFIG.max_drift, 2)
    cost, drift = distortion.update(first, first, None, None)
    distortion.update(plan, first, cost, drift)
    distortion.update(random_plan(3), plan, cost, drift)
    assert low_precision == [False, True, False]
    assert not torch.backends.cuda.matmul.allow_tf32


def test_items_and_other_metrics_keep_the_incremental_sum(distortion):
    assert isinstance(distortion.take(torch.tensor([1])), IncrementalDistortion)
    assert isinstance(distortion.with_metrics(distortion.dx, distortion.dy), IncrementalDistortion)
