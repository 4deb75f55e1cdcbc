"""The compiled steps of conic problems against the torch ones, and what a default solve of them returns."""

import numpy as np
import pytest
import torch

import ugw
from ugw.initializers.conic import SEARCH_SOLVER, TRANSPORT_SOLVER
from ugw.kernels.cpu import native
from ugw.problems.build import build_conic

needs_library = pytest.mark.skipif(not native.is_available(), reason="the compiled library is not built")
CONES = ["gaussian-hellinger", "hellinger-kantorovich"]


def make_space(n, dimension, seed, zero=None, mass=1.0):
    """Return a space of n uniform points with random weights, that of the point `zero` is 0."""
    rng = np.random.default_rng(seed)
    weights = rng.random(n) + 0.2
    if zero is not None:
        weights[zero] = 0.0
    return ugw.Space.from_points(rng.random((n, dimension)), weights=mass * weights / weights.sum())


def run_both(monkeypatch, x, y, cone, solver, rho=0.1):
    """Return the results of the same steps from the product plan by the compiled library and by torch."""
    results = []
    for switch in ("1", "0"):
        monkeypatch.setenv(native.SWITCH, switch)
        with torch.no_grad():
            problem, _ = build_conic(x, y, rho=rho, cone=cone, eps=0.0)
            results.append(solver.run(problem, problem.product, None))
    return results


def check_equal(compiled, plain, tolerance):
    """Assert that values, plans and lifts agree: arrays in L1 relative to their sum."""
    assert compiled.value == pytest.approx(plain.value, rel=tolerance)
    assert compiled.relaxed_value == pytest.approx(plain.relaxed_value, rel=tolerance)
    for arrays in ((compiled.plan, plain.plan), *zip(compiled.lift, plain.lift, strict=True)):
        values, expected = (np.asarray(array) for array in arrays)
        assert np.abs(values - expected).sum() <= tolerance * expected.sum()
    assert compiled.n_iter == plain.n_iter
    assert compiled.status == plain.status


@needs_library
@pytest.mark.parametrize("cone", CONES)
@pytest.mark.parametrize(("n", "m"), [(7, 9), (24, 31), (33, 20)], ids=str)
@pytest.mark.parametrize("rho", [0.1, (0.2, 0.5)], ids=str)
def test_the_same_steps_by_both_backends(monkeypatch, cone, n, m, rho):
    x, y = make_space(n, 3, 0), make_space(m, 2, 1, mass=1.7)
    # Slow modes of sharp linear problems multiply rounding: one step of these.
    for solver, n_steps in ((SEARCH_SOLVER, 6), (TRANSPORT_SOLVER, 1)):
        few = ugw.AlternateMin(tol=1e-12, max_iter=n_steps, inner=ugw.Sinkhorn(max_iter=10), proximal=solver.proximal)
        check_equal(*run_both(monkeypatch, x, y, cone, few, rho), 1e-10)


@needs_library
@pytest.mark.parametrize("cone", CONES)
def test_points_of_weight_zero(monkeypatch, cone):
    x, y = make_space(25, 3, 2, zero=4), make_space(22, 2, 3, zero=0)
    few = ugw.AlternateMin(tol=1e-12, max_iter=6, inner=ugw.Sinkhorn(max_iter=10), proximal=SEARCH_SOLVER.proximal)
    compiled, plain = run_both(monkeypatch, x, y, cone, few)
    check_equal(compiled, plain, 1e-10)
    assert not np.asarray(compiled.plan)[4].any()
    assert not np.asarray(compiled.plan)[:, 0].any()


@needs_library
@pytest.mark.parametrize("seed", range(3))
def test_default_solves_by_both_backends(monkeypatch, seed):
    x, y = make_space(30, 3, seed), make_space(26, 2, seed + 10)
    compiled = ugw.solve_conic(x, y, rho=0.1)
    monkeypatch.setenv(native.SWITCH, "0")
    plain = ugw.solve_conic(x, y, rho=0.1)
    assert compiled.value == pytest.approx(plain.value, rel=1e-7)
    assert np.abs(compiled.plan - plain.plan).sum() <= 1e-4 * plain.plan.sum()
    assert compiled.status == plain.status


@needs_library
@pytest.mark.parametrize("cone", CONES)
def test_a_step_by_step_run_with_a_callback_gives_the_same_result(cone):
    x, y, values = make_space(24, 3, 5), make_space(27, 2, 6), []
    solver = ugw.AlternateMin(callback=lambda step: values.append(float(step.objective[0])))
    watched, plain = (ugw.solve_conic(x, y, rho=0.1, cone=cone, solver=s) for s in (solver, None))
    assert len(values) == watched.n_iter
    assert watched.value == plain.value
    assert min(values) == pytest.approx(plain.value, rel=1e-12)


@pytest.mark.parametrize("cone", CONES)
def test_items_of_a_ragged_batch_get_their_own_results(cone):
    sizes = [(21, 23), (26, 22), (14, 12), (24, 30)]
    pairs = [(make_space(n, 3, k), make_space(m, 2, k + 20)) for k, (n, m) in enumerate(sizes)]
    batch = ugw.solve_conic(*(ugw.Space.stack(side) for side in zip(*pairs, strict=True)), rho=0.1, cone=cone)
    for k, pair in enumerate(pairs):
        alone = ugw.solve_conic(*pair, rho=0.1, cone=cone)
        assert batch[k].value == pytest.approx(alone.value, rel=1e-7)
        assert batch[k].status == alone.status
        assert np.abs(batch[k].plan - alone.plan).sum() <= 1e-4 * alone.plan.sum()


@needs_library
def test_two_threads_give_the_result_of_one():
    pairs = [(make_space(22, 3, k), make_space(25, 2, k + 5)) for k in range(3)]
    sides = [ugw.Space.stack(side) for side in zip(*pairs, strict=True)]
    one = ugw.solve_conic(*sides, rho=0.1)
    torch.set_num_threads(2)
    try:
        two = ugw.solve_conic(*sides, rho=0.1)
    finally:
        torch.set_num_threads(1)
    assert np.array_equal(one.plan, two.plan)


@pytest.mark.parametrize("seed", [21, 51])
def test_a_solve_does_not_stop_on_the_way_down(seed):
    """With an estimate of the remaining decrease from 3 steps, these two stop 1e-4 and 2e-4 above their final values."""
    rng = np.random.default_rng(seed)
    x, y = (ugw.Space.from_points(rng.random((60, dimension))) for dimension in (3, 2))
    c = ugw.solve_conic(x, y, rho=0.1)
    final = ugw.solve_conic(x, y, rho=0.1, solver=ugw.AlternateMin(tol=1e-11, max_iter=3000))
    assert c.converged
    assert final.n_iter > c.n_iter
    assert c.value <= final.value * (1.0 + 1e-6)


def test_the_default_tolerance_leaves_little_to_gain():
    """More steps with a far smaller tolerance, from the returned plan, do not lower the value by more than 1e-4."""
    for seed in range(4):
        x, y = make_space(40, 3, seed), make_space(36, 2, seed + 30)
        c = ugw.solve_conic(x, y, rho=0.1)
        precise = ugw.solve_conic(x, y, rho=0.1, init=c, solver=ugw.AlternateMin(tol=1e-10, max_iter=3000))
        assert c.converged
        assert precise.value <= c.value * (1.0 + 1e-9)
        assert c.value <= precise.value * (1.0 + 1e-4)


def test_all_pairs_of_small_shapes_converge():
    """Some ended at 1000 steps, with a plan that still moved and a value that was right to six digits."""
    rng, shapes = np.random.default_rng(0), []
    for k in range(6):
        t = 2.0 * np.pi * np.sort(rng.random(40))
        outline = np.stack(
            [np.cos(t) * (1.0 + 0.4 * np.cos((2 + k % 4) * t)), (0.5 + 0.1 * (k % 3)) * np.sin(t)], axis=1
        )
        shapes.append(ugw.Space.from_points(outline + 0.01 * rng.standard_normal(outline.shape)))
    result = ugw.pairwise(shapes, method="cgw", rho=0.1)
    assert all(str(status).endswith("CONVERGED") for status in np.ravel(result.status))


@needs_library
@pytest.mark.parametrize("n_entries", [1, 60, 400])
@pytest.mark.parametrize(("n", "m"), [(33, 20), (40, 48)], ids=str)
def test_products_with_plans_of_few_entries(monkeypatch, n, m, n_entries):
    problem, _ = build_conic(make_space(n, 3, 0), make_space(m, 2, 1), rho=0.1, cone="gaussian-hellinger", eps=0.0)
    rng = np.random.default_rng(2)
    plans = torch.zeros(2, n, m, dtype=torch.float64)
    for plan in plans:
        plan.view(-1)[rng.choice(n * m, n_entries, replace=False)] = torch.as_tensor(rng.random(n_entries))
    for total in (problem.distortion_sum, problem.truncate_kernel().distortion_sum):
        with torch.no_grad():
            product = total.apply(plans)
            monkeypatch.setenv(native.SWITCH, "0")
            expected = total.apply(plans)
            monkeypatch.delenv(native.SWITCH)
        assert (product - expected).abs().max() <= 1e-12 * expected.abs().max()


@needs_library
@pytest.mark.parametrize("n_entries", [60, 400])
def test_products_with_sparse_differences_of_plans(monkeypatch, n_entries):
    """Directions of Frank–Wolfe have entries of both signs."""
    problem, _ = build_conic(make_space(33, 3, 0), make_space(20, 2, 1), rho=0.1, cone="gaussian-hellinger", eps=0.0)
    rng = np.random.default_rng(3)
    direction = torch.zeros(1, 33, 20, dtype=torch.float64)
    direction.view(-1)[rng.choice(33 * 20, n_entries, replace=False)] = torch.as_tensor(rng.standard_normal(n_entries))
    with torch.no_grad():
        product = problem.distortion_sum.apply(direction)
        monkeypatch.setenv(native.SWITCH, "0")
        expected = problem.distortion_sum.apply(direction)
    assert (product - expected).abs().max() <= 1e-12 * expected.abs().max()


@needs_library
@pytest.mark.parametrize("rho", [ugw.TV(0.1), ugw.Mass(0.6), float("inf")], ids=str)
def test_frank_wolfe_with_a_factorized_loss_is_that_of_torch(monkeypatch, rho):
    rng = np.random.default_rng(0)
    x, y = (ugw.Space.from_points(rng.random((n, d))) for n, d in ((30, 3), (28, 2)))
    options = {"rho": rho, "eps": 0.0, "init": "product", "loss": lambda t: t**2 / (1 + t**2)}
    compiled = ugw.solve(x, y, **options)
    monkeypatch.setenv(native.SWITCH, "0")
    expected = ugw.solve(x, y, **options)
    assert compiled.status == expected.status == ugw.Status.CONVERGED
    assert compiled.value == pytest.approx(expected.value, rel=1e-7)
