"""Plans that are not stored, against the same plans stored: sums, products, costs, and the whole solve."""

import numpy as np
import pytest
import torch

import ugw
from oracles.spaces import streamable_pair
from oracles.thresholds import changed_thresholds
from ugw._utils.size_class import THRESHOLDS
from ugw.initializers import multilevel
from ugw.problems.build import build_ugw
from ugw.problems.plan_operations import cost_rms, l1_distance, max_log_growth
from ugw.problems.ugw_streamed import PlanMoments

STREAMING = ugw.AlternateMin(tol=1e-8, inner=ugw.Sinkhorn(method="streaming"))
STORED = ugw.AlternateMin(tol=1e-8, inner=ugw.Sinkhorn(method="stabilized"))


@pytest.mark.parametrize("fused", [None, ugw.Fused(0.7)], ids=["plain", "fused"])
def test_cost_and_terms_are_those_of_the_stored_problem(fused):
    x, y = streamable_pair(7, 6, n_features=2)
    streamed = build_ugw(x, y, rho=(0.5, 2.0), eps=0.05, fused=fused, method="streaming")
    stored = build_ugw(x, y, rho=(0.5, 2.0), eps=0.05, fused=fused)
    plan = multilevel.random_anchor_plan(streamed)
    dense = plan.log_plan.dense().exp()
    state, stored_state = streamed.state_of_plan(plan), stored.state_of_plan(dense)
    torch.testing.assert_close(state.local_cost.dense(), stored_state.local_cost)
    d = [s.metric.dense() for s in (x, y)]
    four = (d[0][:, None, :, None] - d[1][None, :, None, :]).square()
    torch.testing.assert_close(state.local_cost.dense()[0], torch.einsum("ijkl,kl->ij", four, dense[0]))
    torch.testing.assert_close(
        PlanMoments.from_plan(streamed, dense).local_cost(streamed).dense(), stored_state.local_cost
    )
    for name in ("distortion", "kls", "linear", "log_mass"):
        torch.testing.assert_close(getattr(state, name), getattr(stored_state, name), msg=name)
    torch.testing.assert_close(streamed.linearize(state).cost.dense(), stored.linearize(stored_state).cost)
    torch.testing.assert_close(streamed.objective(state).total, stored.objective(stored_state).total)
    other, other_stored_state = streamed.state_of_plan(streamed.product), stored.state_of_plan(stored.product)
    torch.testing.assert_close(
        streamed.objective(state, other).total, stored.objective(stored_state, other_stored_state).total
    )
    weights = stored.log_a, stored.log_b
    torch.testing.assert_close(l1_distance(plan, streamed.product), l1_distance(dense, stored.product))
    torch.testing.assert_close(
        max_log_growth(streamed.product, plan, *weights), max_log_growth(stored.product, dense, *weights)
    )
    torch.testing.assert_close(cost_rms(state.local_cost, *weights), cost_rms(stored_state.local_cost, *weights))


@pytest.mark.parametrize(
    ("rho", "eps"), [(1.0, 0.01), ((0.1, 0.5), 0.003), ((float("inf"), 0.3), 0.02), (1.0, 5e-4)], ids=str
)
def test_the_same_solve_from_the_same_start(rho, eps):
    x, y = streamable_pair(40, 30)
    one = ugw.solve(x, y, rho=rho, eps=eps, init="product", solver=STORED)
    other = ugw.solve(x, y, rho=rho, eps=eps, init="product", solver=STREAMING)
    assert (one.path, other.path) == ("stored", "streaming")
    assert other.value == pytest.approx(one.value, rel=1e-7)
    assert np.abs(other.plan.dense() - one.plan).sum() < 2e-4
    assert other.value == pytest.approx(float(ugw.objective(other.plan.dense(), x, y, rho=rho, eps=eps).total))
    if eps > 1e-3:  # proximal steps mix differently
        assert np.abs(other.plan.dense() - one.plan).sum() < 1e-6  # the inner solver stops elsewhere
        np.testing.assert_allclose(other.potentials[0][:3], one.potentials[0][:3], atol=1e-6)


def test_fused_solves_agree():
    x, y = streamable_pair(n_features=3)
    one, other = (
        ugw.solve(x, y, rho=0.5, eps=0.02, fused=ugw.Fused(0.4), init="product", solver=s) for s in (STORED, STREAMING)
    )
    assert other.value == pytest.approx(one.value, rel=1e-9)
    assert other.terms.linear == pytest.approx(one.terms.linear, rel=1e-6)


def test_float32_is_close_to_float64():
    double, single = streamable_pair(), streamable_pair(dtype=np.float32)
    one = ugw.solve(*double, rho=0.5, eps=0.02, solver=STREAMING)
    other = ugw.solve(*single, rho=0.5, eps=0.02, solver=STREAMING)
    assert other.value == pytest.approx(one.value, rel=1e-5)


def test_items_of_a_batch_equal_single_solves():
    items = [streamable_pair(seed=s, n=20 + s, m=18) for s in range(3)]
    x, y = (ugw.Space.stack([pair[k] for pair in items]) for k in (0, 1))
    rho, eps = np.array([0.1, 0.5, 2.0]), np.array([0.01, 0.02, 0.05])
    r = ugw.solve(x, y, rho=rho, eps=eps, solver=STREAMING)
    assert r.plan.shape == (3, 22, 18)
    for i, (one, other) in enumerate(items):
        alone = ugw.solve(one, other, rho=rho[i], eps=eps[i], solver=STREAMING)
        assert r[i].value == pytest.approx(alone.value, rel=1e-6)
        assert r[i].plan.dense().shape == (20 + i, 18)


def test_large_problems_stream_by_themselves():
    x, y = streamable_pair()
    assert ugw.solve(x, y, eps=0.05).path == "stored"
    with changed_thresholds(THRESHOLDS, max_stored_entries={"cpu": 2000}):
        assert ugw.solve(x, y, eps=0.05).path == "streaming"
        assert ugw.solve(x, y, eps=0.05, solver=STORED).path == "stored"
        space = ugw.Space.from_points(np.random.default_rng(0).random((60, 2)))
        assert ugw.solve(space, y, eps=0.05).path == "stored"


def test_a_batch_does_not_stream_an_item_that_is_stored_alone():
    """The path of an item depends on its own size: a batch of both kinds is refused, with what to do instead."""
    pairs = [streamable_pair(n, 18, seed) for seed, n in enumerate((20, 30))]
    x, y = (ugw.Space.stack([pair[k] for pair in pairs]) for k in (0, 1))
    for limit, path in ((100, "streaming"), (10_000, "stored")):
        with changed_thresholds(THRESHOLDS, max_stored_entries={"cpu": limit}):
            r = ugw.solve(x, y, eps=0.05)
            assert r.path == path
            for i, pair in enumerate(pairs):
                alone = ugw.solve(*pair, eps=0.05)
                assert alone.path == path
                assert r[i].value == pytest.approx(alone.value, rel=1e-7)
    with changed_thresholds(THRESHOLDS, max_stored_entries={"cpu": 400}):
        check_that_a_mixed_batch_is_refused(pairs, x, y)


def check_that_a_mixed_batch_is_refused(pairs, x, y):
    for function in (ugw.solve, ugw.estimate):
        with pytest.raises(ugw.InputError, match=r"of one kind.* got items of 20 × 18 and 30 × 18: .* two calls"):
            function(x, y)
    assert ugw.solve(x, y, eps=0.05, solver=STREAMING).path == "streaming"
    result = ugw.pairwise([pair[0] for pair in pairs], [pairs[0][1]], eps=0.05)  # solves such pairs one by one
    expected = [ugw.solve(pair[0], pairs[0][1], eps=0.05).value for pair in pairs]
    np.testing.assert_allclose(result.values[:, 0], expected, rtol=1e-9)


def test_a_streamed_result_is_an_initial_plan():
    x, y = streamable_pair()
    short = ugw.AlternateMin(max_iter=5, inner=STREAMING.inner)
    with pytest.warns(ugw.ConvergenceWarning):
        half = ugw.solve(x, y, rho=0.5, eps=0.02, solver=short, init="product")
    whole = ugw.solve(x, y, rho=0.5, eps=0.02, solver=STREAMING, init="product")
    on = ugw.solve(x, y, rho=0.5, eps=0.02, solver=STREAMING, init=half.plan)
    assert on.value == pytest.approx(whole.value, rel=1e-8)
    assert ugw.solve(x, y, rho=0.5, eps=0.02, solver=STREAMING, init=whole.plan).n_iter <= 3
    again = ugw.solve(x, y, rho=0.5, eps=0.02, solver=STREAMING, init=on.plan)
    assert again.n_iter <= 4
    short_numbers = [space.to("float32") for space in (x, y)]
    shorter = ugw.solve(*short_numbers, rho=0.5, eps=0.02, solver=STREAMING, init=on.plan)
    assert shorter.value == pytest.approx(whole.value, rel=1e-5)
    stored = ugw.solve(x, y, rho=0.5, eps=0.02, solver=STREAMING, init=on.plan.dense())
    assert stored.value == pytest.approx(whole.value, rel=1e-8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": lambda t: t.abs()}, "the loss"),
        ({"fused": ugw.Fused(1.0, np.ones((60, 50)))}, "GiB"),
        ({"rho": float("inf"), "eps": 0.0}, "eps > 0"),
        ({"init": np.ones((3, 3))}, r"\(60, 50\)"),
        ({"init": "nearest"}, "nearest"),
    ],
)
def test_problems_that_cannot_stream_are_refused(options, message):
    x, y = streamable_pair(mass=1.0)
    with pytest.raises(ugw.InputError, match=message):
        ugw.solve(x, y, solver=STREAMING, **options)


def test_stored_spaces_cannot_stream():
    x, _ = streamable_pair()
    y = ugw.Space.from_points(np.random.default_rng(0).random((5, 2)))
    with pytest.raises(ugw.InputError, match="low-rank"):
        ugw.solve(x, y, solver=STREAMING)
    with pytest.raises(ugw.InputError, match="Multistart"):
        ugw.solve(x, x, solver=ugw.Multistart(solver=STREAMING))
