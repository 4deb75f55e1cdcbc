"""Vertices improved by swaps: definition, compiled against torch, batches, and the quality of solves that start there."""

import itertools

import numpy as np
import pytest
import torch

import ugw
from oracles import cases
from oracles.cases import INF, Parameters
from ugw.initializers import plans as init
from ugw.initializers.partial import balanced_candidates
from ugw.initializers.swapped_vertices import _Moves, swapped_vertices
from ugw.kernels.cpu import native
from ugw.problems.build import build_ugw
from ugw.problems.partial.gw import PartialGW

PLAIN, FUSED = Parameters(INF, INF, 0.0), Parameters(INF, INF, 0.0, 0.6)
SIZES = [(7, 9), (12, 5), (10, 10), (1, 4), (1, 1)]


def batch_of_problems(sizes=SIZES, make=cases.clouds, alpha=0.0):
    """Return the balanced problem of pairs of spaces of these sizes, as a batch, and the list of the single ones."""
    pairs = [make(n, m, seed) for seed, (n, m) in enumerate(sizes)]
    sides = [[getattr(pair, side) for pair in pairs] for side in "xy"]
    features = [[np.random.default_rng(k).random((s.n, 2)) for k, s in enumerate(side)] for side in sides]
    sides = [
        [
            ugw.Space.from_distances(s.metric.dense(), weights=s.weights, features=f)
            for s, f in zip(side, values, strict=True)
        ]
        for side, values in zip(sides, features, strict=True)
    ]
    fused = ugw.Fused(alpha) if alpha else None
    singles = [build_ugw(x, y, rho=INF, eps=0.0, fused=fused) for x, y in zip(*sides, strict=True)]
    batch = build_ugw(*(ugw.Space.stack(side) for side in sides), rho=INF, eps=0.0, fused=fused)
    return batch, singles


@torch.no_grad()
def test_orders_are_permutations_that_begin_with_an_anchor():
    batch, singles = batch_of_problems()
    rows, cols = init.anchor_orders(batch, 6)
    assert rows.shape == (5, 6, 12)
    assert cols.shape == (5, 6, 10)
    assert (rows.sort(2).values == torch.arange(12)).all()
    own_rows, own_cols = init.anchor_orders(singles[2], 6)
    distances = singles[2].x.metric.dense()
    for k in range(1, 6):
        order = own_rows[0, k]
        assert (distances[order[0], order].diff() >= 0).all()  # by the distance to the first point
    for k, single in enumerate(singles):  # padding comes anywhere and does not change the order of the others
        own_rows, own_cols = init.anchor_orders(single, 6)
        for own, orders in ((own_rows, rows), (own_cols, cols)):
            kept = [order[order < own.shape[2]] for order in orders[k]]
            assert torch.equal(torch.stack(kept), own[0])


@pytest.mark.parametrize("parameters", [PLAIN, FUSED], ids=["plain", "fused"])
@torch.no_grad()
def test_no_swap_improves_them_and_the_best_come_first(parameters):
    pair = cases.clouds(7, 8, 3)
    problem = PartialGW.balanced(cases.problem(pair, parameters))
    plans = swapped_vertices(problem)[0].numpy()
    values = [cases.value(pair, parameters, plan) for plan in plans]
    count = len(np.unique(np.round(values, 9)))
    assert 1 < count <= len(values)
    assert np.all(np.diff(values[:count]) > 1e-9 * values[0])
    np.testing.assert_allclose(values[count:], values[0])  # with fewer different plans, the best is repeated
    for plan, value in zip(plans, values, strict=True):
        np.testing.assert_allclose(plan.sum(1), pair.a, atol=1e-14)
        np.testing.assert_allclose(plan.sum(0), pair.b, atol=1e-14)
        assert min(cases.value(pair, parameters, other) for other in cases.swapped_plans(plan)) >= value - 1e-9


@pytest.mark.skipif(not native.is_available(), reason="the compiled library is not built")
@pytest.mark.parametrize("make", [cases.clouds, cases.integer_distances])
@pytest.mark.parametrize("alpha", [0.0, 0.6])
@torch.no_grad()
def test_compiled_and_in_torch(monkeypatch, make, alpha):
    """The same plans, or for integer distances, whose swaps tie, plans of the same values."""
    batch, _ = batch_of_problems(SIZES[:3], make, alpha)
    problem = PartialGW.balanced(batch)
    compiled = swapped_vertices(problem)
    monkeypatch.setenv(native.SWITCH, "0")
    expected = swapped_vertices(problem)
    if make is cases.clouds:
        torch.testing.assert_close(compiled, expected, rtol=0, atol=1e-12)
    for k in range(compiled.shape[1]):
        ours, theirs = (problem.objective(problem.state_of_plan(p[:, k])).total for p in (compiled, expected))
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.skipif(not native.is_available(), reason="the compiled library is not built")
@pytest.mark.parametrize("kind", ["vertices", "few entries", "dense"])
@torch.no_grad()
def test_compiled_swaps_of_given_plans(monkeypatch, kind):
    """The same plans as in torch, also where more entries are positive than can be swapped."""
    batch, singles = batch_of_problems([(7, 9), (6, 5), (10, 10)], alpha=0.6)
    problem = PartialGW.balanced(batch)
    plans = torch.zeros_like(problem.product)[:, None].repeat(1, 2, 1, 1)
    for k, single in enumerate(singles):
        balanced = PartialGW.balanced(single)
        n, m = balanced.product.shape[1:]
        own = init.vertex_plans(balanced, 2)[0]
        if kind == "few entries":  # about as many as can be swapped: the list of entries is made anew after swaps
            own = 0.5 * own + 0.25 * own.flip(0) + 0.25 * init.vertex_plans(balanced, 3)[0, 2]
        if kind == "dense":
            own = 0.5 * own + 0.5 * balanced.product
        plans[k, :, :n, :m] = own
    compiled, values = _Moves(problem, 1).swap(plans)
    monkeypatch.setenv(native.SWITCH, "0")
    expected, expected_values = _Moves(problem, 1).swap(plans)
    assert (compiled - plans).abs().sum((2, 3)).min() > 0
    torch.testing.assert_close(compiled, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(values, expected_values, rtol=1e-9, atol=1e-12)


@torch.no_grad()
def test_those_of_a_batch_are_those_of_its_items():
    batch, singles = batch_of_problems(alpha=0.6)
    together = swapped_vertices(PartialGW.balanced(batch))
    for k, (single, (n, m)) in enumerate(zip(singles, SIZES, strict=True)):
        alone = swapped_vertices(PartialGW.balanced(single))[0]
        torch.testing.assert_close(together[k, : len(alone), :n, :m], alone, rtol=0, atol=1e-12)
        assert not together[k, :, n:].any()
        assert not together[k, :, :, m:].any()
        for rest in together[k, len(alone) :]:  # an item with fewer plans repeats its best
            torch.testing.assert_close(rest[:n, :m], alone[0])


@torch.no_grad()
def test_points_of_weight_zero_have_no_mass():
    pair = cases.clouds(8, 9, 1)
    a, b = pair.a.copy(), pair.b.copy()
    a[2] = b[4] = 0.0
    pair = cases.Pair(pair.dx, a / a.sum(), pair.dy, b / b.sum())
    plans = swapped_vertices(PartialGW.balanced(cases.problem(pair, PLAIN)))[0]
    assert not plans[:, 2].any()
    assert not plans[:, :, 4].any()
    np.testing.assert_allclose(plans.sum(2), np.broadcast_to(pair.a, (len(plans), 8)), atol=1e-14)


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_the_default_start_finds_the_best_permutation(n):
    for seed in range(3):
        rng = np.random.default_rng((n, seed))
        x, y = (ugw.Space.from_points(rng.normal(size=(n, 2)), weights=np.full(n, 1 / n)) for _ in range(2))
        dx, dy = (space.metric.dense().numpy() for space in (x, y))
        orders = map(list, itertools.permutations(range(n)))
        best = min(((dx - dy[np.ix_(order, order)]) ** 2).mean() for order in orders)
        assert ugw.solve(x, y, rho=INF, eps=0.0).value <= best + 1e-12


@torch.no_grad()
def test_candidates_by_size_and_loss():
    """Swapped vertices for few points and the loss t² only; the product plan is always among the candidates."""
    few, many = (cases.problem(cases.clouds(n, n, 0), PLAIN) for n in (10, 26))
    pair = cases.clouds(10, 10, 0)
    other = build_ugw(pair.x, pair.y, rho=INF, eps=0.0, fused=None, loss=torch.abs)
    for problem, start, count in ((few, "auto", 9), (few, "best", 13), (many, "auto", 5), (other, "auto", 5)):
        plans = balanced_candidates(problem, start)
        assert 2 <= plans.shape[1] <= count
        torch.testing.assert_close(plans[:, -1], problem.product)
    swapped = swapped_vertices(PartialGW.balanced(few))
    torch.testing.assert_close(balanced_candidates(few, "auto")[:, :-1], swapped)
