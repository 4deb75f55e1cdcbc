"""The contract of all distortion sums against the explicit sum, and pair losses."""

import math

import numpy as np
import pytest
import torch

import ugw
from oracles.distortion import (
    BATCHED,
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
from ugw.measures.cones import GaussianHellinger, HellingerKantorovich
from ugw.problems.distortion.base import PairLoss
from ugw.problems.distortion.config import DISTORTION_CONFIG
from ugw.problems.distortion.factorize import factorize
from ugw.problems.distortion.factorized import FactorizedDistortion
from ugw.problems.distortion.itemwise import ItemwiseDistortion
from ugw.problems.distortion.squares import SquaredDistortion
from ugw.problems.distortion.term_by_term import TermByTermDistortion

KINDS = ["squares", "terms", "factorized"]


def distortion_of_kind(kind, dx, dy, rho=0.3):
    """The sum by one method, and its function."""
    if kind == "squares":
        return SquaredDistortion(dx, dy), torch.square
    if kind == "terms":
        return TermByTermDistortion(dx, dy, PairLoss(GaussianHellinger(), rho_total(rho))), gaussian_kernel(rho)
    one = FactorizedDistortion(*random_metrics(False, False), factorize(gaussian_kernel(rho), 2.0))
    return one.with_metrics(dx, dy), gaussian_kernel(rho)


@pytest.mark.parametrize("batched", BATCHED, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_sums_agree_with_the_explicit_sum(kind, batched):
    dx, dy = random_metrics(*batched)
    distortion, g = distortion_of_kind(kind, dx, dy)
    plan = random_plans()
    assert_close(distortion.apply(plan), explicit_sum(dx, dy, g, plan), N * M)
    # Again, now with cached factors.
    assert_close(distortion.apply(2.0 * plan), 2.0 * explicit_sum(dx, dy, g, plan), N * M)
    assert distortion.may_be_infinite is False


@pytest.mark.parametrize("batched", BATCHED, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [[2], [3, 1], [0, 0, 2, 2, 1], [False, True, True, False]], ids=str)
def test_take_picks_items(kind, batched, index):
    dx, dy = random_metrics(*batched)
    distortion, g = distortion_of_kind(kind, dx, dy)
    plan, index = random_plans(), torch.tensor(index)
    full = explicit_sum(dx, dy, g, plan)
    assert_close(distortion.take(index).apply(plan[index]), full[index], N * M)


@pytest.mark.parametrize("kind", ["terms", "factorized"])
@pytest.mark.parametrize("batched", BATCHED, ids=str)
def test_every_item_may_have_its_own_function(kind, batched):
    dx, dy = random_metrics(*batched)
    rhos = (0.05, 0.3, 0.3, 4.0)
    if kind == "terms":
        distortion = TermByTermDistortion(dx, dy, PairLoss(GaussianHellinger(), rho_total(*rhos)))
    else:
        items = [(dx.item(i, N), dy.item(i, M)) for i in range(len(rhos))]
        factors = [factorize(gaussian_kernel(rho), 2.0) for rho in rhos]
        parts = tuple(FactorizedDistortion(*metrics, f) for metrics, f in zip(items, factors, strict=True))
        distortion = ItemwiseDistortion(parts, [(N, M)] * len(parts), torch.arange(len(parts)))
    plan = random_plans()
    full = explicit_sum(dx, dy, [gaussian_kernel(rho) for rho in rhos], plan)
    assert_close(distortion.apply(plan), full, N * M)
    for index in (torch.tensor([3, 0, 3]), torch.tensor([True, False, False, True])):
        assert_close(distortion.take(index).apply(plan[index]), full[index], N * M)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_function_on_other_metrics(kind):
    distortion, g = distortion_of_kind(kind, *random_metrics(False, False))
    dx, dy = random_metrics(True, True, n=3, m=4, seed=5)
    plan = random_plans(n=3, m=4)
    assert_close(distortion.with_metrics(dx, dy).apply(plan), explicit_sum(dx, dy, g, plan), 12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_under_the_product_plan(kind):
    dx, dy = random_metrics(True, False)
    distortion, g = distortion_of_kind(kind, dx, dy)
    a, b = random_plans(seed=2)[:, :, 0], random_plans(seed=3)[:, 0]
    a, b = a / a.sum(1, keepdim=True), b / b.sum(1, keepdim=True)
    product = a[:, :, None] * b[:, None, :]
    expected = (explicit_sum(dx, dy, g, product) * product).sum((1, 2))
    torch.testing.assert_close(distortion.product_mean(a.log(), b.log()), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", ["terms", "factorized"])
def test_small_blocks_change_nothing(kind):
    dx, dy = random_metrics(False, False)
    plan = random_plans()
    expected = distortion_of_kind(kind, dx, dy)[0].apply(plan)
    with changed_thresholds(DISTORTION_CONFIG, block_terms=1, max_cached_bytes=1):
        distortion = distortion_of_kind(kind, dx, dy)[0]
        for _ in range(2):
            torch.testing.assert_close(distortion.apply(plan), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision_is_close(kind):
    dx, dy = random_metrics(True, False)
    distortion, g = distortion_of_kind(kind, dx.to(torch.float32), dy.to(torch.float32))
    plan = random_plans()
    result = distortion.apply(plan.float())
    assert result.dtype == torch.float32
    assert_close(result, explicit_sum(dx, dy, g, plan), N * M, tol=2e-6)


def test_ragged_spaces_sum_over_their_own_points():
    rng = np.random.default_rng(0)
    x = [ugw.Space.from_points(rng.random((n, 2))) for n in (3, 5, 4)]
    y = [ugw.Space.from_points(rng.random((m, 3))) for m in (6, 2, 4)]
    stacked = ugw.Space.stack(x).metric, ugw.Space.stack(y).metric
    plan = torch.zeros(3, 5, 6, dtype=torch.float64)
    for b, (s, t) in enumerate(zip(x, y, strict=True)):
        plan[b, : s.n, : t.n] = torch.as_tensor(rng.random((s.n, t.n)))
    for kind in KINDS:
        result = distortion_of_kind(kind, *stacked)[0].apply(plan)
        for b, (s, t) in enumerate(zip(x, y, strict=True)):
            alone, _ = distortion_of_kind(kind, s.metric, t.metric)
            expected = alone.apply(plan[b : b + 1, : s.n, : t.n])[0]
            torch.testing.assert_close(result[b, : s.n, : t.n], expected, rtol=1e-10, atol=1e-10)


def test_a_pair_loss_with_rho_is_the_conic_kernel():
    t = torch.rand(3, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    pair_loss = PairLoss(GaussianHellinger(), torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64))
    torch.testing.assert_close(pair_loss(t)[1], torch.exp(-(t[1] ** 2)))
    torch.testing.assert_close(pair_loss(t[:1])[2], torch.exp(-(t[0] ** 2) / 2.0))
    torch.testing.assert_close(pair_loss.take(torch.tensor([2, 0]))(t[:2])[1], torch.exp(-(t[1] ** 2) / 0.5))
    assert PairLoss(GaussianHellinger()).take(torch.tensor([0]))(t).sum() == (t**2).sum()
    far = torch.tensor([[math.pi]], dtype=torch.float64)
    assert PairLoss(HellingerKantorovich(), rho_total(1.0))(far).item() == 0.0
