"""Initial plans by name, the choice between them, and plans given by the caller."""

import numpy as np
import pytest
import torch

import ugw
from oracles.cases import INF
from oracles.errors import assert_refused
from oracles.plans import STREAMING
from oracles.spaces import space
from ugw.geometry.space import Space


def test_auto_is_the_better_of_flat_and_coarse():
    x = Space.stack([space(6, 2, seed) for seed in range(4)])
    y = Space.stack([space(7, 3, seed + 50) for seed in range(4)])
    values = {name: ugw.solve(x, y, eps=0.05, init=name).value for name in ("product", "coarse", "auto", "best")}
    np.testing.assert_allclose(values["auto"], values["best"], rtol=1e-8)
    np.testing.assert_allclose(values["auto"], np.minimum(values["product"], values["coarse"]), rtol=1e-8)


CHALLENGES = [
    (1.0, 0.02), (0.1, 0.01), ((0.05, 1.0), 0.01), (INF, 0.05), ((INF, 0.3), 0.02), (1.0, 0.0), (0.1, 0.0), (INF, 0.0),
    ((0.3, INF), 0.0), (3.0, 0.1), (0.02, 0.002), (0.5, 0.05), (0.5, 0.003), ((2.0, 0.1), 0.02), ((1.0, INF), 0.05),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
def test_auto_is_never_worse_than_the_flat_start():
    sizes = np.random.default_rng(0).integers(4, 9, size=(15, 2))
    x = Space.stack([space(int(n), 2, seed) for seed, (n, _) in enumerate(sizes)])
    y = Space.stack([space(int(m), 1 + seed % 3, 100 + seed) for seed, (_, m) in enumerate(sizes)])
    rhos = [rho if isinstance(rho, tuple) else (rho, rho) for rho, _ in CHALLENGES]
    options = {"rho": tuple(np.array(rhos).T), "eps": np.array([eps for _, eps in CHALLENGES])}
    solver = ugw.AlternateMin(max_iter=300)
    flat, auto, best = (ugw.solve(x, y, init=name, solver=solver, **options) for name in ("product", "auto", "best"))
    for r in (auto, best):
        compared = flat.converged | ~r.converged  # a plan that misses its marginals may well be cheaper
        assert (r.value <= flat.value + 1e-6)[compared].all()
        assert (r.converged | ~flat.converged).all()
    assert (auto.value < flat.value - 1e-3).sum() >= 3  # and often better


@pytest.mark.parametrize("sizes", [[(24, 21), (30, 40), (22, 19)], [(75, 70), (80, 90)]], ids=["float64", "float32"])
@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
def test_auto_on_more_points(sizes):
    """Of two plans one is selected, in float32 if large: not worse than the product plan's result, and as for one item."""
    xs = [space(n, 2, seed) for seed, (n, _) in enumerate(sizes)]
    ys = [space(m, 3, 70 + seed) for seed, (_, m) in enumerate(sizes)]
    rho, eps = np.array([0.3, INF, 0.05])[: len(sizes)], np.array([0.003, 0.02, 0.0])[: len(sizes)]
    together = ugw.solve(Space.stack(xs), Space.stack(ys), rho=rho, eps=eps)
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        alone, flat = (ugw.solve(x, y, rho=rho[i], eps=eps[i], init=name) for name in ("auto", "product"))
        assert alone.value <= flat.value * (1 + 1e-5)
        assert together[i].value == pytest.approx(alone.value, rel=1e-8)


def test_starts_out_of_the_range_of_float32_are_left():
    """Costs of 10^40 are finite in float64, and overflow in the comparison of plans in float32."""
    points = [np.random.default_rng(seed).random((n, 2)) for seed, n in enumerate((75, 70))]
    large = ugw.solve(*(Space.from_points(1e20 * p) for p in points), rho=1e40, eps=1e38)
    plain = ugw.solve(*(Space.from_points(p) for p in points), rho=1.0, eps=1e-2, init="product")
    assert large.converged
    assert large.value / 1e40 <= plain.value * (1 + 1e-6)


def test_a_given_plan_of_any_mass_is_used_unchanged():
    x, y = space(), space(7, 2, 1)
    plan = np.random.default_rng(0).random((6, 7))
    results = [ugw.solve(x, y, eps=0.1, init=scale * plan) for scale in (1.0, 1e-200, 1e300)]
    for r in results[1:]:
        assert r.value == pytest.approx(results[0].value, rel=1e-9)
        assert r.n_iter == results[0].n_iter


def test_a_plan_in_integers_or_lists_is_a_plan():
    x, y = space(3).to(torch.float32), space(2, 2, 1).to(torch.float32)
    for plan in ([[1, 0], [0, 1], [1, 1]], np.array([[1, 0], [0, 1], [1, 1]])):
        assert ugw.solve(x, y, eps=0.1, init=plan).converged


def test_one_plan_for_the_whole_batch_or_one_for_each_item():
    x, ys = space(), [space(7, 2, seed) for seed in (1, 2, 3)]
    plans = np.random.default_rng(0).random((3, 6, 7)) + 0.1
    per_item = ugw.solve(x, Space.stack(ys), eps=0.15, init=plans)
    shared = ugw.solve(x, Space.stack(ys), eps=0.15, init=plans[0])
    for i, y in enumerate(ys):
        np.testing.assert_allclose(per_item[i].plan, ugw.solve(x, y, eps=0.15, init=plans[i]).plan, atol=1e-9)
        np.testing.assert_allclose(shared[i].plan, ugw.solve(x, y, eps=0.15, init=plans[0]).plan, atol=1e-9)


@pytest.mark.parametrize("solve", [ugw.solve, ugw.solve_conic, ugw.ugw_loss, ugw.debiased])
def test_plans_of_zeros_are_refused(solve):
    x, y = (Space.from_points(p, metric="sqeuclidean") for p in (np.eye(4), np.eye(3)))
    assert_refused(solve, x, y, init=np.zeros((4, 3)), match="init must have positive mass")
    batch = np.ones((2, 4, 3))
    batch[1] = 0.0
    assert_refused(solve, Space.stack([x, x]), y, init=batch, match="init must have positive mass")


def test_plans_of_zeros_are_refused_by_streaming_and_partial_solves():
    x, y = (Space.from_points(p, metric="sqeuclidean") for p in (np.eye(4), np.eye(3)))
    assert_refused(
        ugw.solve, x, y, eps=1.0, solver=STREAMING, init=np.zeros((4, 3)), match="init must have positive mass"
    )
    assert_refused(ugw.solve, x, y, rho=ugw.TV(0.1), init=np.zeros((4, 3)), match="init must have positive mass")
