"""Extrapolated steps: exact for linear maps, longer steps near saddle points, the same plans in fewer steps."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

import ugw
from oracles.spaces import pair
from oracles.thresholds import changed_thresholds
from ugw.kernels.anderson import anderson_differences, anderson_moments, largest_growth
from ugw.kernels.config import KERNEL_CONFIG
from ugw.problems.build import build_ugw
from ugw.problems.plan_operations import anderson_covariances, normalize
from ugw.solvers import alternating, extrapolation
from ugw.solvers.config import SOLVER_CONFIG
from ugw.solvers.run_state import CostHistory

SURE = KERNEL_CONFIG.min_overrelaxed_change


def inner_products(inputs, outputs, *_, **__):
    """Return the inner products of the differences of costs, in place of their covariances."""
    differences = anderson_differences(inputs, outputs)
    return torch.stack([torch.stack([(u * v).sum((1, 2)) for v in differences], 1) for u in differences], 2)


def next_cost(history, step_input, step_output, relative_change, *, sample_rows=False):
    """Return the next cost of a history, computed with inner products without weights."""
    with mock.patch.object(extrapolation, "anderson_covariances", inner_products):
        flat = SimpleNamespace(log_a=None, log_b=None)
        return extrapolation.next_cost(history, flat, step_input, step_output, relative_change, sample_rows=sample_rows)


def run_affine_steps(matrix, shift, start, steps=3):
    """Return the history of steps of an affine map of the entries, and the input and output of the last step."""

    def step(cost):
        """Apply the affine map to the entries of a cost (B, 2, 2)."""
        return (cost.flatten(1) @ matrix.mT + shift).view_as(cost)

    one, cost = torch.ones(len(start), dtype=torch.float64), start
    history = CostHistory.empty(start, one)
    for _ in range(steps - 1):
        output = step(cost)
        history, cost = history.append(cost, output, one < 0, one < 0), output
    return history, cost, step(cost)


def random_costs(batch, seed=0):
    """Return random costs (batch, 2, 2)."""
    return torch.rand(batch, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def symmetric_matrix(eigenvalues, seed=0):
    """Return a random symmetric matrix (4, 4) with these eigenvalues."""
    rng = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=rng))[0]
    return basis @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ basis.mT


def test_two_slow_modes_are_summed_exactly():
    matrix, shift = symmetric_matrix([0.9, 0.5, 0.0, 0.0]), torch.arange(4.0, dtype=torch.float64)
    end = torch.linalg.solve(torch.eye(4, dtype=torch.float64) - matrix, shift)
    history, step_input, step_output = run_affine_steps(matrix, shift, random_costs(2), 4)  # the first ends the rest
    cost, is_extrapolated, _ = next_cost(history, step_input, step_output, torch.tensor([1.0, 0.0]), sample_rows=False)
    assert is_extrapolated.tolist() == [True, False]
    torch.testing.assert_close(cost[0].flatten(), end, rtol=0.01, atol=0.0)  # coefficients are rounded
    assert (step_output[0].flatten() - end).abs().max() > 0.1  # where the steps themselves are by then
    torch.testing.assert_close(cost[1], step_output[1], rtol=0.0, atol=0.0)


def test_growing_changes_are_extrapolated_forward():
    matrix, shift = symmetric_matrix([1.05, 0.5, 0.0, 0.0]), torch.zeros(4, dtype=torch.float64)
    history, step_input, step_output = run_affine_steps(matrix, shift, random_costs(2), 5)
    cost, is_extrapolated, is_long_step = next_cost(
        history, step_input, step_output, torch.tensor([SURE, 0.9 * SURE]), sample_rows=False
    )
    assert is_extrapolated.tolist() == is_long_step.tolist() == [True, False]  # small changes may be rounding
    torch.testing.assert_close(
        cost[0], step_output[0] + KERNEL_CONFIG.overrelaxation * (step_output[0] - step_input[0])
    )


@pytest.mark.parametrize("steps", [1, 2])
def test_too_few_steps_give_no_extrapolation(steps):
    history, step_input, step_output = run_affine_steps(
        symmetric_matrix([0.9, 0.5, 0.0, 0.0]), torch.ones(4).double(), random_costs(1), steps
    )
    for look in (True, False):
        cost, is_extrapolated, _ = next_cost(history, step_input, step_output, torch.tensor([1.0]), sample_rows=look)
        assert not is_extrapolated.any()
        torch.testing.assert_close(cost, step_output, rtol=0.0, atol=0.0)


def test_a_rejected_step_clears_the_history():
    matrix, shift = symmetric_matrix([0.9, 0.5, 0.0, 0.0]), torch.ones(4, dtype=torch.float64)
    history, step_input, step_output = run_affine_steps(matrix, shift, random_costs(2), 5)
    history = history.append(step_input, step_output, torch.tensor([True, False]), torch.zeros(2) > 0)
    assert history.n_steps.tolist() == [0.0, 5.0]
    after = (step_output.flatten(1) @ matrix.mT + shift).view_as(step_output)
    _, is_extrapolated, _ = next_cost(history, step_output, after, torch.ones(2), sample_rows=False)
    assert is_extrapolated.tolist() == [False, True]


def test_after_a_rejected_step_only_growing_changes_are_extrapolated():
    """The symmetric part of a Jacobian may say that it grows where it does not."""
    sheared = torch.diag(torch.tensor([0.8, 0.8, 0.0, 0.0], dtype=torch.float64))
    sheared[0, 1] = 1.5
    start, is_rejected = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]], dtype=torch.float64), torch.ones(1) > 0
    for matrix, steps, believed in ((sheared, 12, False), (symmetric_matrix([1.05, 0.5, 0.0, 0.0]), 12, True)):
        history, step_input, step_output = run_affine_steps(matrix, torch.zeros(4, dtype=torch.float64), start, steps)
        *_, is_long_step = next_cost(history, step_input, step_output, torch.tensor([SURE]), sample_rows=False)
        assert is_long_step.all()
        failed = replace(history, is_long_step=is_rejected).append(step_input, step_output, is_rejected, ~is_rejected)
        assert failed.had_rejected_long_step.all()
        *_, is_long_step = next_cost(
            replace(history, had_rejected_long_step=failed.had_rejected_long_step),
            step_input,
            step_output,
            torch.tensor([SURE]),
            sample_rows=False,
        )
        assert bool(is_long_step) is believed


def test_nearly_parallel_steps_are_extrapolated_along_the_last():
    """One slow mode is left, and the last two differences are nearly parallel."""
    matrix, shift = symmetric_matrix([0.99, 1e-3, 0.0, 0.0]), torch.arange(4.0, dtype=torch.float64)
    end = torch.linalg.solve(torch.eye(4, dtype=torch.float64) - matrix, shift)
    history, step_input, step_output = run_affine_steps(matrix, shift, random_costs(1), 6)
    noise = 1e-6 * (random_costs(1, seed=7) - 0.5)  # of an inner solver: two coefficients would be large and cancel
    cost, is_extrapolated, is_long_step = next_cost(
        history, step_input, step_output + noise, torch.ones(1), sample_rows=False
    )
    assert is_extrapolated.all()
    assert not is_long_step.any()
    left = [(cost.flatten() - end).abs().max() for cost in (cost, step_output)]
    assert left[0] < 0.05 * left[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rate", [0.99, 0.9995])
def test_a_slowly_contracting_mode_is_extrapolated_forward(rate, dtype):
    """One mode that contracts slowly: in float32 too the step is extrapolated forward, not backward."""
    x, y = pair(33, 32, dims=(3, 2))
    problem = build_ugw(x.to(dtype), y.to(dtype), rho=1.0, eps=0.1, fused=None)
    for seed in range(6):
        rng = torch.Generator().manual_seed(seed)
        first, mode = (torch.rand(1, x.n, y.n, dtype=dtype, generator=rng) for _ in range(2))
        costs = [first]
        for k in range(4):
            costs.append(costs[-1] + 1e-2 * rate**k * mode)
        history = CostHistory.empty(first, torch.ones(1, dtype=torch.float64))
        for one, two in pairwise(costs[:3]):
            history = history.append(one, two, torch.zeros(1) > 0, torch.zeros(1) > 0)
        cost, is_extrapolated, is_long_step = extrapolation.next_cost(
            history, problem, costs[2], costs[3], torch.ones(1), sample_rows=False
        )
        if is_extrapolated.any() and not is_long_step.any():
            factor = ((cost - costs[3]) * mode).sum() / ((costs[3] - costs[2]) * mode).sum()
            assert factor > 5.0
        assert is_extrapolated.all() or dtype == torch.float32


def test_growth_is_the_largest_eigenvalue():
    rng = torch.Generator().manual_seed(0)
    u, v = (torch.randn(50, 2, 2, dtype=torch.float64, generator=rng) for _ in range(2))
    between, across = u @ u.mT, v + v.mT
    expected = torch.linalg.eigvals(torch.linalg.solve(between, across)).real.amax(1)
    torch.testing.assert_close(largest_growth(between, across), expected)
    same = torch.ones(1, 2, 2, dtype=torch.float64)  # two parallel differences are one
    torch.testing.assert_close(largest_growth(4.0 * same, 2.0 * same), torch.tensor([0.5], dtype=torch.float64))


def test_covariances_of_stored_and_bilinear_costs():
    """Covariances under a⊗b of stored costs equal their definition, and those of bilinear costs equal these."""
    x, y = pair(23, 22, dims=(3, 2), metric="sqeuclidean", dtype=torch.float64)
    x = replace(x, weight_tensor=torch.linspace(0.0, 2.0, x.n, dtype=torch.float64))
    stored, streamed = (build_ugw(x, y, rho=1.0, eps=0.1, fused=None, method=m) for m in ("stabilized", "streaming"))
    plans = [torch.rand(1, x.n, y.n, dtype=torch.float64, generator=torch.Generator().manual_seed(k)) for k in range(6)]
    plans = [normalize(plan * stored.product) for plan in plans]
    weight = stored.product[0]
    costs = [stored.state_of_plan(plan).local_cost for plan in plans]
    g0, g1, g2, f0, f1, f2 = (c[0] for c in costs)
    differences = [g1 - g0, g2 - g1, f1 - f0 - (g1 - g0), f2 - f1 - (g2 - g1), f2 - g2]
    centered = [d - (weight * d).sum() for d in differences]
    expected = torch.stack([torch.stack([(weight * u * v).sum() for v in centered]) for u in centered])
    weights = stored.log_a, stored.log_b
    torch.testing.assert_close(
        anderson_covariances(costs[:3], costs[3:], *weights, sample_rows=True)[0], expected, rtol=1e-9, atol=1e-12
    )
    thin = [ugw.problems.ugw_streamed.PlanMoments.from_plan(streamed, plan).local_cost(streamed) for plan in plans]
    torch.testing.assert_close(
        anderson_covariances(thin[:3], thin[3:], *weights, sample_rows=True)[0], expected, rtol=1e-9, atol=1e-12
    )


def test_covariances_of_sampled_rows_are_close_to_those_of_all_rows():
    x, y = (ugw.Space.from_points(torch.rand(400, d, generator=torch.Generator().manual_seed(d))) for d in (3, 2))
    problem = build_ugw(x, y, rho=1.0, eps=0.1, fused=None)
    draw = torch.Generator().manual_seed(0)
    costs = [
        problem.state_of_plan(normalize(torch.rand(1, 400, 400, generator=draw) ** 4)).local_cost for _ in range(6)
    ]
    some = anderson_covariances(costs[:3], costs[3:], problem.log_a, problem.log_b, sample_rows=True)[0]
    mean, products = anderson_moments(problem.log_a.exp(), problem.log_b.exp(), costs[:3], costs[3:])
    every = (products - mean @ mean.mT)[0]
    assert not torch.equal(some, every)
    lengths = every.diagonal().sqrt()
    assert float(((some - every) / (lengths[:, None] * lengths)).abs().max()) < 0.3


@pytest.mark.parametrize("rho", [0.05, 1.0, (3.0, 0.5)])
@pytest.mark.parametrize("method", ["auto", "streaming"])
def test_extrapolation_needs_fewer_steps_for_the_same_value(monkeypatch, rho, method):
    """The first steps, which choose a local minimum, are not extrapolated."""
    monkeypatch.setenv("UGW_COMPILED", "0")  # compiled steps are compared with these
    metric = "sqeuclidean" if method == "streaming" else "euclidean"
    pairs = [pair(33, 32, seed=seed, dims=(3, 2), metric=metric) for seed in range(3)]
    options = {"rho": rho, "init": "product", "solver": ugw.AlternateMin(inner=ugw.Sinkhorn(method=method), tol=1e-7)}
    fast = [ugw.solve(x, y, eps=ugw.relative(0.03), **options).check() for x, y in pairs]
    with changed_thresholds(SOLVER_CONFIG, max_change_to_extrapolate=0.0):
        plain = [ugw.solve(x, y, eps=ugw.relative(0.03), **options).check() for x, y in pairs]
    for one, other in zip(fast, plain, strict=True):
        assert float(one.value) <= float(other.value) * (1 + 1e-7)
    assert sum(r.n_iter for r in fast) < 0.8 * sum(r.n_iter for r in plain)


def test_the_last_step_of_a_run_is_not_extrapolated(monkeypatch):
    """A small change after an extrapolated step does not prove convergence."""
    monkeypatch.setenv("UGW_COMPILED", "0")
    x, y = pair(33, 32, seed=1, dims=(3, 2))
    is_extrapolated = []

    def recording_next_cost(*args, **kwargs):
        """Record whether the next cost is extrapolated."""
        result = extrapolation.next_cost(*args, **kwargs)
        is_extrapolated.append(bool(result[1].any()))
        return result

    monkeypatch.setattr(alternating, "next_cost", recording_next_cost)
    ugw.solve(x, y, rho=0.1, eps=0.003, init="product").check()
    assert any(is_extrapolated)
    assert not is_extrapolated[-2]
