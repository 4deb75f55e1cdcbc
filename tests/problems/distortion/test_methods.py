"""Sums over pairs of pairs: three ways to make them, one slow twin."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import ugw
from oracles import cases
from ugw.geometry.metric import DenseMetric
from ugw.measures.cones import GaussianHellinger, HellingerKantorovich
from ugw.problems.distortion import factorized, term_by_term
from ugw.problems.distortion.base import PairLoss
from ugw.problems.distortion.config import DISTORTION_CONFIG
from ugw.problems.distortion.factorize import factorize
from ugw.problems.distortion.factorized import FactorizedDistortion
from ugw.problems.distortion.itemwise import ItemwiseDistortion
from ugw.problems.distortion.select import select_distortion
from ugw.problems.distortion.squares import SquaredDistortion
from ugw.problems.distortion.term_by_term import TermByTermDistortion

N, M, B = 5, 6, 4


def change_config(monkeypatch, **changes):
    """Replace thresholds of the modules that compute sums in blocks."""
    for module in (term_by_term, factorized):
        monkeypatch.setattr(module, "DISTORTION_CONFIG", replace(DISTORTION_CONFIG, **changes))


def metrics(batched_x, batched_y, n=N, m=M, batch=B, seed=0):
    """Distances of random points; one matrix for each item of a batch, or one for all."""
    rng = np.random.default_rng(seed)

    def one(n, d):
        points = torch.as_tensor(rng.random((n, d)))
        return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")

    def made(n, d, batched):
        return DenseMetric(torch.stack([one(n, d) for _ in range(batch)]) if batched else one(n, d))

    return made(n, 3, batched_x), made(m, 2, batched_y)


def plans(batch=B, n=N, m=M, seed=1):
    return torch.as_tensor(np.random.default_rng(seed).random((batch, n, m)))


def matrix(metric, b):
    dense = metric.dense().double()
    return dense[b] if dense.ndim == 3 else dense


def twin(dx, dy, g, plan):
    """Σ g(|Dx_ii' − Dy_jj'|) plan_i'j', item by item; g: one function, or one for each item."""
    made = []
    for b in range(len(plan)):
        t = (matrix(dx, b)[:, None, :, None] - matrix(dy, b)[None, :, None, :]).abs()
        made.append(torch.einsum("ijkl,kl->ij", (g[b] if isinstance(g, list) else g)(t), plan[b].double()))
    return torch.stack(made)


def total(*rhos):
    return torch.tensor([2.0 * rho for rho in rhos], dtype=torch.float64)


def gauss(rho):
    return lambda t: torch.exp(-(t**2) / (2 * rho))


def sums(kind, dx, dy, rho=0.3):
    """The sum made in one way, and its function."""
    if kind == "squares":
        return SquaredDistortion(dx, dy), torch.square
    pair_loss = PairLoss(GaussianHellinger(), total(rho))
    if kind == "terms":
        return TermByTermDistortion(dx, dy, pair_loss), gauss(rho)
    return FactorizedDistortion(dx, dy, (factorize(gauss(rho), 2.0),)), gauss(rho)


KINDS = ["squares", "terms", "factorized"]
BATCHED = [(False, False), (True, False), (False, True), (True, True)]


def assert_close(got, expected, mass, tol=1e-8):
    assert got.shape == expected.shape
    assert float((got.double() - expected).abs().max()) <= tol * mass


@pytest.mark.parametrize("batched", BATCHED, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_the_sum_is_its_twin(kind, batched):
    dx, dy = metrics(*batched)
    made, g = sums(kind, dx, dy)
    plan = plans()
    assert_close(made.apply(plan), twin(dx, dy, g, plan), N * M)
    # Again, now that factors are kept.
    assert_close(made.apply(2.0 * plan), 2.0 * twin(dx, dy, g, plan), N * M)
    assert made.may_be_infinite is False


@pytest.mark.parametrize("batched", BATCHED, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [[2], [3, 1], [0, 0, 2, 2, 1], [False, True, True, False]], ids=str)
def test_take_picks_items(kind, batched, index):
    dx, dy = metrics(*batched)
    made, g = sums(kind, dx, dy)
    plan, index = plans(), torch.tensor(index)
    full = twin(dx, dy, g, plan)
    assert_close(made.take(index).apply(plan[index]), full[index], N * M)


@pytest.mark.parametrize("kind", ["terms", "factorized"])
@pytest.mark.parametrize("batched", BATCHED, ids=str)
def test_every_item_may_have_its_own_function(kind, batched):
    dx, dy = metrics(*batched)
    rhos = (0.05, 0.3, 0.3, 4.0)
    if kind == "terms":
        made = TermByTermDistortion(dx, dy, PairLoss(GaussianHellinger(), total(*rhos)))
    else:
        made = FactorizedDistortion(dx, dy, tuple(factorize(gauss(rho), 2.0) for rho in rhos))
    plan = plans()
    full = twin(dx, dy, [gauss(rho) for rho in rhos], plan)
    assert_close(made.apply(plan), full, N * M)
    for index in (torch.tensor([3, 0, 3]), torch.tensor([True, False, False, True])):
        assert_close(made.take(index).apply(plan[index]), full[index], N * M)


@pytest.mark.parametrize("kind", KINDS)
def test_on_is_the_same_function_on_other_metrics(kind):
    made, g = sums(kind, *metrics(False, False))
    dx, dy = metrics(True, True, n=3, m=4, seed=5)
    plan = plans(n=3, m=4)
    assert_close(made.with_metrics(dx, dy).apply(plan), twin(dx, dy, g, plan), 12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_under_the_product_of_weights(kind):
    dx, dy = metrics(True, False)
    made, g = sums(kind, dx, dy)
    a, b = plans(seed=2)[:, :, 0], plans(seed=3)[:, 0]
    a, b = a / a.sum(1, keepdim=True), b / b.sum(1, keepdim=True)
    product = a[:, :, None] * b[:, None, :]
    expected = (twin(dx, dy, g, product) * product).sum((1, 2))
    torch.testing.assert_close(made.product_mean(a.log(), b.log()), expected, rtol=1e-7, atol=1e-9)


def test_a_mean_that_is_only_rounding_is_zero():
    flat = DenseMetric(0.7 * (1.0 - torch.eye(1, dtype=torch.float64)))
    zero = torch.zeros(1, 1, dtype=torch.float64)
    assert SquaredDistortion(flat, flat).product_mean(zero, zero).item() == 0.0


@pytest.mark.parametrize("kind", ["terms", "factorized"])
def test_small_blocks_change_nothing(kind, monkeypatch):
    dx, dy = metrics(False, False)
    plan = plans()
    expected = sums(kind, dx, dy)[0].apply(plan)
    change_config(monkeypatch, block_terms=1, max_cached_bytes=1)
    made = sums(kind, dx, dy)[0]
    torch.testing.assert_close(made.apply(plan), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(made.apply(plan), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision_is_close(kind):
    dx, dy = metrics(True, False)
    made, g = sums(kind, dx.to(torch.float32), dy.to(torch.float32))
    plan = plans()
    got = made.apply(plan.float())
    assert got.dtype == torch.float32
    assert_close(got, twin(dx, dy, g, plan), N * M, tol=2e-6)


def test_an_infinite_term_counts_where_the_plan_has_mass_and_only_there():
    dx, dy = metrics(False, False)
    cone = HellingerKantorovich(0.4)
    made = TermByTermDistortion(dx, dy, PairLoss(cone))
    assert made.may_be_infinite
    plan = plans() * (plans(seed=5) < 0.15)
    t = (dx.dense()[:, None, :, None] - dy.dense()[None, :, None, :]).abs()
    values = cone(t)
    expected = torch.zeros_like(plan)
    for b, i, j in np.ndindex(B, N, M):
        held = plan[b] > 0
        expected[b, i, j] = (values[i, j][held] * plan[b][held]).sum()
    assert 0.1 < torch.isinf(expected).double().mean() < 0.99
    torch.testing.assert_close(made.apply(plan), expected, rtol=1e-12, atol=1e-14)
    # With a total the infinite terms are zeros of the kernel.
    assert not TermByTermDistortion(dx, dy, PairLoss(cone, total(1.0))).may_be_infinite
    assert not TermByTermDistortion(dx, dy, PairLoss(HellingerKantorovich(5.0))).may_be_infinite


def test_ragged_spaces_sum_over_their_own_points():
    rng = np.random.default_rng(0)
    x = [ugw.Space.from_points(rng.random((n, 2))) for n in (3, 5, 4)]
    y = [ugw.Space.from_points(rng.random((m, 3))) for m in (6, 2, 4)]
    stacked = ugw.Space.stack(x).metric, ugw.Space.stack(y).metric
    plan = torch.zeros(3, 5, 6, dtype=torch.float64)
    for b, (s, t) in enumerate(zip(x, y, strict=True)):
        plan[b, : s.n, : t.n] = torch.as_tensor(rng.random((s.n, t.n)))
    for kind in KINDS:
        got = sums(kind, *stacked)[0].apply(plan)
        for b, (s, t) in enumerate(zip(x, y, strict=True)):
            alone, _ = sums(kind, s.metric, t.metric)
            expected = alone.apply(plan[b : b + 1, : s.n, : t.n])[0]
            torch.testing.assert_close(got[b, : s.n, : t.n], expected, rtol=1e-10, atol=1e-10)


# --- which way ---


def test_small_plans_are_summed_term_by_term_and_others_factorized():
    pair_loss = PairLoss(GaussianHellinger(), total(0.3))
    assert isinstance(select_distortion(*metrics(False, False, n=20, m=20), pair_loss), TermByTermDistortion)
    assert DISTORTION_CONFIG.max_exact_plan == 400
    made = select_distortion(*metrics(False, False, n=20, m=21), pair_loss)
    assert isinstance(made, FactorizedDistortion)
    assert made.rank.tolist() == [made.factors[0].rank]
    assert made.error.tolist() == [made.factors[0].error]
    exact = select_distortion(*metrics(False, False), pair_loss)
    assert exact.rank.tolist() == [0]
    assert exact.error.tolist() == [0.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("rho", [1e-3, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("cone", [GaussianHellinger(), HellingerKantorovich(), HellingerKantorovich(0.9)], ids=str)
def test_factors_are_as_good_as_they_say(rho, dtype, cone):
    dx, dy = (metric.to(dtype) for metric in metrics(False, False, n=20, m=21))
    made = select_distortion(dx, dy, PairLoss(cone, total(rho)))
    plan = plans(2, 20, 21)
    plan = (plan / plan.sum((1, 2), keepdim=True)).to(dtype)
    g = [lambda t: torch.exp(-cone(t) / (2 * rho))] * 2
    stated = made.error.item()
    # Beside the stated error there is only rounding, of the Chebyshev recursion and of the products.
    rounding = torch.finfo(dtype).eps * (made.rank.item() + 20)
    assert_close(made.apply(plan), twin(dx, dy, g, plan), 1.0, tol=stated + rounding)
    kinked = isinstance(cone, HellingerKantorovich) and cone.cutoff < 1.0 and rho > 0.5
    assert stated <= (2.0 if kinked else 1e-8)
    # The whole kernel, entry by entry: a plan that sits at one pair of points.
    for k, h in ((0, 0), (3, 7), (19, 20)):
        one = torch.zeros_like(plan[:1])
        one[0, k, h] = 1.0
        assert_close(made.apply(one), twin(dx, dy, g[:1], one), 1.0, tol=stated + 10 * rounding)


def test_items_with_one_length_and_one_rho_share_their_factors():
    dx, dy = metrics(False, False, n=20, m=21)
    shared = select_distortion(dx, dy, PairLoss(GaussianHellinger(), total(0.3)))
    assert len(shared.factors) == 1
    assert shared.take(torch.tensor([0, 0, 0])) is shared
    several = select_distortion(dx, dy, PairLoss(GaussianHellinger(), total(0.3, 1.0, 0.3)))
    assert len(several.factors) == 3
    assert several.factors[0] is several.factors[2]
    assert several.rank.tolist() == [f.rank for f in several.factors]
    plan = plans(3, 20, 21)
    assert_close(several.apply(plan), twin(dx, dy, [gauss(0.3), gauss(1.0), gauss(0.3)], plan), 420)
    taken = several.take(torch.tensor([1, 2]))
    assert taken.error.tolist() == several.error[1:].tolist()


def test_plans_of_moderate_size_are_exact_where_factors_are_too_coarse():
    kink = PairLoss(torch.abs, total(1.0))
    assert DISTORTION_CONFIG.max_exact_plan_if_coarse == 2500
    made = select_distortion(*metrics(False, False, n=50, m=50), kink)
    assert isinstance(made, TermByTermDistortion)
    large = select_distortion(*metrics(False, False, n=50, m=51), kink)
    assert isinstance(large, FactorizedDistortion)
    assert bool((large.error > large.tolerance).all())
    # Who asks for a rank, or for no more than there is, gets factors.
    assert select_distortion(*metrics(False, False, n=50, m=50), kink, max_rank=20).rank.item() == 20
    assert isinstance(select_distortion(*metrics(False, False, n=20, m=21), kink, tol=0.02), FactorizedDistortion)


def test_blocks_of_a_long_sum_are_no_larger_than_they_should_be(monkeypatch):
    dx, dy = metrics(False, False, n=30, m=25)
    made = TermByTermDistortion(dx, dy, PairLoss(torch.abs, total(1.0)))
    change_config(monkeypatch, block_terms=100_000)
    sizes = [values.numel() for values, _ in made._blocks()]
    assert max(sizes) <= 100_000
    assert sum(sizes) == (30 * 25) ** 2
    assert not made._cached_blocks


def ragged(kink):
    """Three pairs of spaces of different sizes, their sum as a batch, and the functions and sums of each."""
    rng, rhos = np.random.default_rng(0), (0.05, 0.3, 1.0)
    sides = [[ugw.Space.from_points(rng.random((n, 2))) for n in sizes] for sizes in ((4, 21, 30), (5, 22, 3))]
    x, y = (ugw.Space.stack(side) for side in sides)
    loss = torch.abs if kink else GaussianHellinger()
    sizes = list(zip(x.sizes, y.sizes, strict=True))
    made = select_distortion(x.metric, y.metric, PairLoss(loss, total(*rhos)), sizes=sizes)
    alone = [
        select_distortion(s.metric, t.metric, PairLoss(loss, total(r))) for s, t, r in zip(*sides, rhos, strict=True)
    ]
    return made, alone, sizes


@pytest.mark.parametrize("kink", [False, True])
@pytest.mark.parametrize("index", [[0, 1, 2], [2, 2, 0, 1, 0], [False, True, True]], ids=str)
def test_each_item_of_a_ragged_batch_is_summed_as_it_is_alone(index, kink):
    made, alone, sizes = ragged(kink)
    assert isinstance(made, ItemwiseDistortion)
    index = torch.tensor(index)
    taken, owners = made.take(index), torch.arange(3)[index].tolist()
    plan = torch.zeros(len(owners), 30, 22, dtype=torch.float64)
    for b, k in enumerate(owners):
        plan[b, : sizes[k][0], : sizes[k][1]] = plans(1, *sizes[k], seed=b)[0]
    got = taken.apply(plan)
    for b, k in enumerate(owners):
        n, m = sizes[k]
        torch.testing.assert_close(
            got[b : b + 1, :n, :m], alone[k].apply(plan[b : b + 1, :n, :m]), rtol=1e-13, atol=0.0
        )
        assert got[b].count_nonzero() == n * m
        for name in ("rank", "error", "tolerance"):
            assert getattr(taken, name)[b] == getattr(alone[k], name)[0]
    assert taken.may_be_infinite is False
    weights = torch.full((len(owners), 30), 1 / 30).double(), torch.full((len(owners), 22), 1 / 22).double()
    product = weights[0][:, :, None] * weights[1][:, None, :]
    expected = (taken.apply(product) * product).sum((1, 2))
    torch.testing.assert_close(taken.product_mean(*(w.log() for w in weights)), expected)


def test_a_ragged_batch_on_other_metrics():
    made, alone, _ = ragged(kink=False)
    dx, dy = metrics(True, True, n=3, m=4, batch=3, seed=5)
    plan = plans(3, 3, 4)
    got = made.with_metrics(dx, dy).apply(plan)
    for b in range(3):
        expected = alone[b].with_metrics(dx.item(b, 3), dy.item(b, 4)).apply(plan[b : b + 1])
        torch.testing.assert_close(got[b : b + 1], expected, rtol=1e-13, atol=0.0)


def test_long_and_short_items_are_not_summed_over_their_padding():
    rng = np.random.default_rng(0)
    x, y = ([ugw.Space.from_points(rng.random((n, 2))) for n in sizes] for sizes in ((4, 90), (90, 4)))
    metric_x, metric_y = ugw.Space.stack(x).metric, ugw.Space.stack(y).metric
    made = select_distortion(metric_x, metric_y, PairLoss(GaussianHellinger(), total(0.3)), sizes=[(4, 90), (90, 4)])
    assert [type(part) for part in made.parts] == [TermByTermDistortion] * 2
    assert made.rank.tolist() == [0, 0]


def test_tolerance_and_rank_are_passed_on():
    dx, dy = metrics(False, False, n=20, m=21)
    pair_loss = PairLoss(GaussianHellinger(), total(0.1))
    loose = select_distortion(dx, dy, pair_loss, tol=1e-2)
    assert loose.rank.item() < select_distortion(dx, dy, pair_loss).rank.item()
    assert loose.error.item() <= 1e-2
    assert select_distortion(dx, dy, pair_loss, max_rank=3).rank.item() == 3


def test_a_profile_with_a_total_is_a_kernel():
    t = torch.rand(3, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    pair_loss = PairLoss(GaussianHellinger(), torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64))
    torch.testing.assert_close(pair_loss(t)[1], torch.exp(-(t[1] ** 2)))
    torch.testing.assert_close(pair_loss(t[:1])[2], torch.exp(-(t[0] ** 2) / 2.0))
    torch.testing.assert_close(pair_loss.take(torch.tensor([2, 0]))(t[:2])[1], torch.exp(-(t[1] ** 2) / 0.5))
    assert PairLoss(GaussianHellinger()).take(torch.tensor([0]))(t).sum() == (t**2).sum()
    far = torch.tensor([[math.pi]], dtype=torch.float64)
    assert PairLoss(HellingerKantorovich(), total(1.0))(far).item() == 0.0


@pytest.mark.parametrize("n", [4, 22])
def test_similarities_of_both_signs(n):
    case = cases.similarities(n, n + 1, 0)
    dx, dy = case.x.metric, case.y.metric
    plan = plans(1, n, n + 1)
    plan = plan / plan.sum()
    made = select_distortion(dx, dy, PairLoss(GaussianHellinger(), total(1.0)))
    assert_close(made.apply(plan), twin(dx, dy, gauss(1.0), plan), 1.0, tol=1e-8)


@pytest.mark.parametrize("batched", BATCHED, ids=str)
@pytest.mark.parametrize("block", [DISTORTION_CONFIG.block_terms, 1])
def test_many_plans_of_one_item_share_its_terms(batched, block, monkeypatch):
    change_config(monkeypatch, block_terms=block)
    dx, dy = metrics(*batched)
    rhos = [0.2, 0.3, 0.5, 1.0]
    made = TermByTermDistortion(dx, dy, PairLoss(GaussianHellinger(), total(*rhos)))
    index = torch.tensor([2, 2, 0, 3, 0])
    plan = plans(batch=5)
    taken = made.take(index)
    g = [gauss(rhos[i]) for i in index]
    repeated = [DenseMetric(metric.dense()[index]) if metric.batched else metric for metric in (dx, dy)]
    expected = twin(*repeated, g, plan)
    for _ in range(2):  # the second time from what was kept
        assert_close(taken.apply(plan), expected, float(plan.sum()), tol=1e-14)
    again = torch.tensor([True, False, False, True, True])
    assert_close(taken.take(again).apply(plan[again]), expected[again], float(plan.sum()), tol=1e-14)
    fewer = taken.with_metrics(*repeated)
    assert_close(fewer.apply(plan), expected, float(plan.sum()), tol=1e-14)
