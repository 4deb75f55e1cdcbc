"""Exact linear programs against those of SciPy, and rounding of plans to their constraints."""

import threading
from dataclasses import replace

import numpy as np
import ot
import pytest
import scipy.optimize
import torch

from oracles import cases
from ugw.kernels import exact_ot


def batch(*arrays):
    return [torch.tensor(array)[None] for array in arrays]


def sums(n, m):
    return np.vstack([np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))])


def test_optimal_plans_solve_the_linear_program():
    pair = cases.clouds(5, 6, 0, (2.0, 2.0))
    cost = np.random.default_rng(0).normal(size=(5, 6))
    vertex = exact_ot.optimal_plan(*batch(cost, pair.a, pair.b))[0].numpy()
    least = scipy.optimize.linprog(cost.ravel(), A_eq=sums(5, 6), b_eq=np.concatenate([pair.a, pair.b])).fun
    assert (vertex * cost).sum() == pytest.approx(least, abs=1e-9)
    np.testing.assert_allclose(vertex.sum(1), pair.a, atol=1e-14)
    assert (vertex > 0).sum() <= 10  # a vertex: at most n + m − 1 pairs


@pytest.mark.parametrize("has_zero", [False, True])
def test_plans_and_multipliers_do_not_depend_on_the_layout_of_the_arrays(has_zero):
    rng = np.random.default_rng(1)
    cost, a, b = (torch.as_tensor(rng.random(size)) for size in ((2, 5, 6), (2, 5), (2, 6)))
    a[:, 0] *= not has_zero
    a, b = a / a.sum(1, keepdim=True), b / b.sum(1, keepdim=True)
    strided = cost.mT.contiguous().mT, a.T.contiguous().T, b.T.contiguous().T
    assert not any(tensor.is_contiguous() for tensor in strided)
    for function in (exact_ot.optimal_plan, exact_ot.row_multipliers):
        torch.testing.assert_close(function(*strided), function(cost, a, b))


@pytest.mark.parametrize("mass", [None, 0.2, 0.75, 0.8])
@pytest.mark.parametrize("seed", range(3))
def test_optimal_partial_plans_solve_the_linear_program(seed, mass):
    pair = cases.clouds(5, 6, seed, (1.3, 0.8))
    cost = np.random.default_rng(seed).normal(size=(5, 6))
    mass_tensor = None if mass is None else torch.tensor([mass], dtype=torch.float64)
    vertex = exact_ot.optimal_partial_plan(*batch(cost, pair.a, pair.b), mass_tensor)[0].numpy()
    total = {} if mass is None else {"A_eq": np.ones((1, 30)), "b_eq": [mass]}
    least = scipy.optimize.linprog(cost.ravel(), A_ub=sums(5, 6), b_ub=np.concatenate([pair.a, pair.b]), **total).fun
    assert (vertex * cost).sum() == pytest.approx(least, abs=1e-9)
    assert (vertex.sum(1) - pair.a).max() < 1e-14
    assert (vertex.sum(0) - pair.b).max() < 1e-14
    assert vertex.min() >= 0
    if mass is None:
        assert not vertex[cost > 0].any()
    else:
        assert vertex.sum() == pytest.approx(mass, abs=1e-14)


@pytest.mark.parametrize("unit", [1e-15, 1e-9, 1e9])
def test_scaling_the_cost_does_not_change_the_plan(unit):
    pair = cases.clouds(5, 6, 0, (1.3, 0.8))
    cost, mass = np.random.default_rng(0).normal(size=(5, 6)), torch.tensor([0.5], dtype=torch.float64)
    even = pair.b * 1.3 / 0.8
    for solved in (
        lambda c: exact_ot.optimal_partial_plan(*batch(c, pair.a, pair.b), None),
        lambda c: exact_ot.optimal_partial_plan(*batch(c, pair.a, pair.b), mass),
        lambda c: exact_ot.optimal_plan(*batch(c, pair.a, even)),
    ):
        np.testing.assert_allclose(solved(unit * cost), solved(cost), atol=1e-14)
    multipliers = [exact_ot.row_multipliers(*batch(c, pair.a, even)) for c in (cost, unit * cost)]
    np.testing.assert_allclose(multipliers[1] / unit, multipliers[0], atol=1e-12)


def test_a_small_mass_is_not_lost_beside_the_weights():
    pair = cases.clouds(5, 6, 0, (1.3, 0.8))
    cost = np.random.default_rng(0).normal(size=(5, 6))
    for mass in (1e-3, 1e-8, 1e-13):
        vertex = exact_ot.optimal_partial_plan(*batch(cost, pair.a, pair.b), torch.tensor([mass], dtype=torch.float64))[
            0
        ].numpy()
        assert vertex[np.unravel_index(cost.argmin(), cost.shape)] == pytest.approx(mass, rel=1e-12)
        assert vertex.sum() == pytest.approx(mass, rel=1e-12)


def test_row_multipliers_are_the_duals_of_the_linear_program():
    pair = cases.clouds(5, 6, 0, (1.0, 1.0))
    cost = np.random.default_rng(0).normal(size=(5, 6))
    multipliers = exact_ot.row_multipliers(*batch(cost, pair.a, pair.b))[0].numpy()
    dual = scipy.optimize.linprog(cost.ravel(), A_eq=sums(5, 6), b_eq=np.concatenate([pair.a, pair.b])).eqlin.marginals
    np.testing.assert_allclose(multipliers - multipliers.mean(), dual[:5] - dual[:5].mean(), atol=1e-9)


@pytest.mark.parametrize("mass", [None, 0.5])
def test_partial_multipliers_are_the_duals_of_the_linear_program(mass):
    pair = cases.clouds(5, 6, 0, (1.3, 0.8))
    cost = np.random.default_rng(0).normal(size=(5, 6))
    mass_tensor = None if mass is None else torch.tensor([mass], dtype=torch.float64)
    u, v, w = (
        multipliers[0].numpy()
        for multipliers in exact_ot.partial_multipliers(*batch(cost, pair.a, pair.b), mass_tensor)
    )
    total = {} if mass is None else {"A_eq": np.ones((1, 30)), "b_eq": [mass]}
    program = scipy.optimize.linprog(cost.ravel(), A_ub=sums(5, 6), b_ub=np.concatenate([pair.a, pair.b]), **total)
    np.testing.assert_allclose(np.concatenate([u, v]), program.ineqlin.marginals, atol=1e-9)
    assert w == pytest.approx(0.0 if mass is None else program.eqlin.marginals[0], abs=1e-9)
    assert max(u.max(), v.max()) < 1e-12


def test_a_given_mass_is_not_exceeded_at_zero_cost():
    pair = cases.clouds(5, 6, 0, (1.3, 0.8))
    mass = torch.tensor([0.3], dtype=torch.float64)
    for cost in (np.zeros((5, 6)), -np.ones((5, 6)), np.eye(5, 6)):
        assert float(exact_ot.optimal_partial_plan(*batch(cost, pair.a, pair.b), mass).sum()) == pytest.approx(
            0.3, abs=1e-14
        )


def test_items_of_a_batch_are_solved_by_themselves():
    rng = np.random.default_rng(0)
    cost, a, b = (torch.tensor(rng.random(shape)) for shape in ((4, 3, 5), (4, 3), (4, 5)))
    mass = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    whole = exact_ot.optimal_partial_plan(cost, a, b, mass)
    for i in range(4):
        alone = exact_ot.optimal_partial_plan(cost[i : i + 1], a[i : i + 1], b[i : i + 1], mass[i : i + 1])
        np.testing.assert_array_equal(whole[i], alone[0])


@pytest.mark.parametrize("mass", [None, 0.3])
def test_points_of_weight_zero_do_not_choose_among_optimal_vertices(mass):
    """On a line with the distance as cost, crossing two pairs costs nothing. Costs of padding may be of any size."""
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 12, 1))
    weights = [rng.random(12) + 0.2 for _ in range(2)]
    a, b = (w / w.sum() for w in weights)
    cost, given = abs(x - y.T), None if mass is None else torch.tensor([mass], dtype=torch.float64)
    for far in (-7.0, 0.0, 1e9):
        padded = np.pad(cost, ((0, 3), (0, 5)), constant_values=far)
        parts = batch(cost, a, b), batch(padded, np.pad(a, (0, 3)), np.pad(b, (0, 5)))
        plans = [exact_ot.optimal_partial_plan(*part, given)[0] for part in parts]
        assert torch.equal(plans[1][:12, :12], plans[0])
        plans = [exact_ot.optimal_plan(*part)[0] for part in parts]
        assert torch.equal(plans[1][:12, :12], plans[0])


def round_to_marginals(plan, a, b):
    clipped = exact_ot.clip_to_marginals(plan, a, b)
    return exact_ot.add_missing_mass(clipped, a, b, a.sum(1) - clipped.sum(dim=(1, 2)))


def test_rounding_to_the_marginals():
    pair = cases.clouds(5, 6, 0)
    off = cases.random_plan(pair, 1)
    rounded = round_to_marginals(*batch(off, pair.a, pair.b))[0].numpy()
    np.testing.assert_allclose(rounded.sum(1), pair.a, atol=1e-15)
    np.testing.assert_allclose(rounded.sum(0), pair.b, atol=1e-15)
    wrong = abs(off.sum(1) - pair.a).sum() + abs(off.sum(0) - pair.b).sum()
    assert wrong > 0.1
    assert abs(rounded - off).sum() <= 2 * wrong
    plan = cases.hard_plan(pair, 1)
    np.testing.assert_allclose(round_to_marginals(*batch(plan, pair.a, pair.b))[0], plan, atol=1e-14)


def test_clipping_and_adding_mass_stay_below_the_weights():
    pair = cases.clouds(5, 6, 2, (1.0, 1.4))
    heavy = cases.random_plan(pair, 1, mass=1.0)
    clipped = exact_ot.clip_to_marginals(*batch(heavy, pair.a, pair.b))
    missing = torch.tensor([1.0 - 1e-3], dtype=torch.float64) - clipped.sum()
    assert float(missing) > 0.05
    filled = exact_ot.add_missing_mass(clipped, *batch(pair.a, pair.b), missing)[0].numpy()
    assert filled.sum() == pytest.approx(1.0 - 1e-3, abs=1e-14)
    for plan in (clipped[0].numpy(), filled):
        assert (plan.sum(1) - pair.a).max() < 1e-15
        assert (plan.sum(0) - pair.b).max() < 1e-15
    light = 1e-3 * heavy
    np.testing.assert_array_equal(exact_ot.clip_to_marginals(*batch(light, pair.a, pair.b))[0], light)


def test_a_large_program_runs_in_another_thread_with_the_same_plan(monkeypatch):
    rng = np.random.default_rng(0)
    cost, even = rng.random((30, 30)), np.full(30, 1 / 30)
    direct = exact_ot.optimal_plan(*batch(cost, even, even))
    threads, solve = [], ot.emd

    def emd(*args, **kwargs):
        threads.append(threading.current_thread())
        return solve(*args, **kwargs)

    monkeypatch.setattr(ot, "emd", emd)
    monkeypatch.setattr(exact_ot, "KERNEL_CONFIG", replace(exact_ot.KERNEL_CONFIG, min_interruptible_entries=900))
    assert torch.equal(exact_ot.optimal_plan(*batch(cost, even, even)), direct)
    assert threads[0] is not threading.main_thread()
