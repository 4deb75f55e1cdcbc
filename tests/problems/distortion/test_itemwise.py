"""Sums of ragged batches, in which each item uses its own points."""

import numpy as np
import pytest
import torch

import ugw
from oracles.distortion import random_metrics, random_plans, rho_total
from ugw.measures.cones import GaussianHellinger
from ugw.problems.distortion.base import PairLoss
from ugw.problems.distortion.itemwise import ItemwiseDistortion
from ugw.problems.distortion.select import select_distortion
from ugw.problems.distortion.term_by_term import TermByTermDistortion


def ragged_batch(kink):
    """Three pairs of spaces of different sizes, their sum as a batch, and the functions and sums of each."""
    rng, rhos = np.random.default_rng(0), (0.05, 0.3, 1.0)
    sides = [[ugw.Space.from_points(rng.random((n, 2))) for n in sizes] for sizes in ((4, 21, 30), (5, 22, 3))]
    x, y = (ugw.Space.stack(side) for side in sides)
    loss = torch.abs if kink else GaussianHellinger()
    sizes = list(zip(x.sizes, y.sizes, strict=True))
    distortion = select_distortion(x.metric, y.metric, PairLoss(loss, rho_total(*rhos)), sizes=sizes)
    alone = [
        select_distortion(s.metric, t.metric, PairLoss(loss, rho_total(r)))
        for s, t, r in zip(*sides, rhos, strict=True)
    ]
    return distortion, alone, sizes


@pytest.mark.parametrize("kink", [False, True])
@pytest.mark.parametrize("index", [[0, 1, 2], [2, 2, 0, 1, 0], [False, True, True]], ids=str)
def test_each_item_of_a_ragged_batch_is_summed_as_it_is_alone(index, kink):
    distortion, alone, sizes = ragged_batch(kink)
    assert isinstance(distortion, ItemwiseDistortion)
    index = torch.tensor(index)
    items, owners = distortion.take(index), torch.arange(3)[index].tolist()
    plan = torch.zeros(len(owners), 30, 22, dtype=torch.float64)
    for b, k in enumerate(owners):
        plan[b, : sizes[k][0], : sizes[k][1]] = random_plans(1, *sizes[k], seed=b)[0]
    result = items.apply(plan)
    for b, k in enumerate(owners):
        n, m = sizes[k]
        torch.testing.assert_close(
            result[b : b + 1, :n, :m], alone[k].apply(plan[b : b + 1, :n, :m]), rtol=1e-13, atol=0.0
        )
        assert result[b].count_nonzero() == n * m
        for name in ("rank", "error", "tolerance"):
            assert getattr(items, name)[b] == getattr(alone[k], name)[0]
    assert items.may_be_infinite is False
    weights = torch.full((len(owners), 30), 1 / 30).double(), torch.full((len(owners), 22), 1 / 22).double()
    product = weights[0][:, :, None] * weights[1][:, None, :]
    expected = (items.apply(product) * product).sum((1, 2))
    torch.testing.assert_close(items.product_mean(*(w.log() for w in weights)), expected)


def test_a_ragged_batch_on_other_metrics():
    distortion, alone, _ = ragged_batch(kink=False)
    dx, dy = random_metrics(True, True, n=3, m=4, batch=3, seed=5)
    plan = random_plans(3, 3, 4)
    result = distortion.with_metrics(dx, dy).apply(plan)
    for b in range(3):
        expected = alone[b].with_metrics(dx.item(b, 3), dy.item(b, 4)).apply(plan[b : b + 1])
        torch.testing.assert_close(result[b : b + 1], expected, rtol=1e-13, atol=0.0)


def test_long_and_short_items_are_not_summed_over_their_padding():
    rng = np.random.default_rng(0)
    x, y = ([ugw.Space.from_points(rng.random((n, 2))) for n in sizes] for sizes in ((4, 90), (90, 4)))
    metric_x, metric_y = ugw.Space.stack(x).metric, ugw.Space.stack(y).metric
    distortion = select_distortion(
        metric_x, metric_y, PairLoss(GaussianHellinger(), rho_total(0.3)), sizes=[(4, 90), (90, 4)]
    )
    assert [type(part) for part in distortion.parts] == [TermByTermDistortion] * 2
    assert distortion.rank.tolist() == [0, 0]
