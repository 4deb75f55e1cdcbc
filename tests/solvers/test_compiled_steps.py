"""Compiled steps against the torch step: one step from the same state, and whole solves by the comparison rule."""

import math
import os
import subprocess
import sys
from dataclasses import fields, is_dataclass, replace
from unittest import mock

import numpy as np
import pytest
import torch

import ugw
from ugw import Space
from ugw._utils.size_class import THRESHOLDS
from ugw.kernels.config import KERNEL_CONFIG
from ugw.kernels.cpu import native
from ugw.problems.base import CompiledConicInputs, CompiledInputs
from ugw.problems.build import build_conic, build_ugw
from ugw.problems.config import PROBLEM_CONFIG
from ugw.problems.distortion.incremental import IncrementalDistortion
from ugw.results.records import Status
from ugw.solvers import alternating, compiled_steps, loop
from ugw.solvers.alternating import AlternateMin, advance
from ugw.solvers.compiled_steps import config_values, has_compiled_steps, iterate_compiled
from ugw.solvers.config import SOLVER_CONFIG
from ugw.solvers.proximal import ProximalSchedule
from ugw.solvers.run_state import ITEM_SETTINGS, Iterate, prepare_run, read_step_options
from ugw.solvers.sinkhorn import Sinkhorn

INF = math.inf
pytestmark = [
    pytest.mark.skipif(not native.is_available(), reason="the compiled library is not built"),
    pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning"),
]


def cloud(n, dim, seed, mass=1.0, n_zero=0, **options):
    """Return a space of random points with random weights of the given total; the first `n_zero` weights are 0."""
    rng = np.random.default_rng(seed)
    weights = rng.random(n) + 0.2
    weights[:n_zero] = 0.0
    points = rng.random((n, dim))
    return Space.from_points(points, weights=mass * weights / weights.sum(), features=points[:, :1], **options)


def pair(n, m, masses=(1.0, 1.0), n_zero=0, **options):
    """Return two clouds of different dimensions."""
    return (
        cloud(n, 2, seed=n, mass=masses[0], n_zero=n_zero, **options),
        cloud(m, 3, seed=100 + m, mass=masses[1], n_zero=min(n_zero, m - 1), **options),
    )


# Spaces and parameters: every size with the defaults, then one feature at a time.
CASES = {
    **{f"{n}x{m}": (pair(n, m), {"rho": 0.3, "eps": 0.02}) for n, m in [(1, 1), (1, 5), (7, 4), (20, 20), (33, 41)]},
    **{f"eps {eps}": (pair(20, 17), {"rho": 0.2, "eps": eps}) for eps in (0.1, 1e-2, 1e-3, 1e-4, 0.0)},
    **{f"rho {rho}": (pair(15, 18), {"rho": rho, "eps": 0.02}) for rho in [(0.1, 2.0), (INF, 0.3), (0.3, INF), INF]},
    "rho 100": (pair(15, 18), {"rho": 100.0, "eps": 0.02}),
    "balanced without entropy": (pair(12, 12), {"rho": INF, "eps": 0.0}),
    "fused": (pair(14, 11), {"rho": 0.3, "eps": 0.02, "fused": ugw.Fused(0.5)}),
    "fused, no mass pays": (pair(14, 11), {"rho": 0.01, "eps": 0.02, "fused": ugw.Fused(5.0)}),
    "fused, hard side": (pair(14, 11), {"rho": (INF, 0.3), "eps": 0.02, "fused": ugw.Fused(0.5)}),
    "zero weights": (pair(16, 13, n_zero=3), {"rho": 0.3, "eps": 0.01}),
    "zero weights, eps 0": (pair(16, 13, n_zero=3), {"rho": 0.3, "eps": 0.0}),
    "zero weights, hard": (pair(16, 13, n_zero=3), {"rho": INF, "eps": 0.01}),
    "masses 1e-3": (pair(16, 13, masses=(1e-3, 2e-3)), {"rho": 0.3, "eps": 0.01}),
    "masses 1e3": (pair(16, 13, masses=(1e3, 5e2)), {"rho": 0.3, "eps": 1e-6}),
    "squared distances": (pair(16, 13, metric="sqeuclidean"), {"rho": 0.3, "eps": 0.01}),
    "sampled rows": (pair(90, 30), {"rho": 0.2, "eps": 2e-3}),
}
LOG_DOMAIN = AlternateMin(inner=Sinkhorn(method="log"))
SOLVERS = {
    "default": AlternateMin(),
    "anneal": AlternateMin(anneal=0.7),
    "log domain": LOG_DOMAIN,
    "coarse": AlternateMin(tol=1e-3, inner=Sinkhorn(tol=1e-3, max_iter=7)),
    "proximal": AlternateMin(proximal=ProximalSchedule(first=0.3, last=0.05, factor=0.8)),
}


def build_case(case):
    (x, y), options = CASES[case]
    return build_ugw(x, y, **{"fused": None} | options)


def start_run(problem, solver=None, plan=None, *, is_monitored=True):
    """Return settings and first iterate of a run from the product plan, or from another one."""
    solver = (solver or AlternateMin()).with_defaults()
    state, settings = prepare_run(problem, problem.product if plan is None else plan, solver, is_monitored=is_monitored)
    return settings, Iterate.initial(state, settings)


def differences(value, expected, path=""):
    """Yield (name, error) for every tensor of two records, relative to the largest entry of the expected one."""
    if isinstance(expected, torch.Tensor):
        assert value.shape == expected.shape, path
        assert value.dtype == expected.dtype, path
        if expected.dtype == torch.bool:
            yield path, float((value != expected).any())
        else:
            finite = torch.isfinite(expected)
            assert torch.equal(value[~finite], expected[~finite]), path
            error = (value - expected)[finite].abs().sum() if finite.any() else torch.zeros(())
            scale = expected[finite].abs().sum() if finite.any() else torch.ones(())
            yield path, float(error / scale.clamp(min=1.0))
    elif isinstance(expected, tuple):
        for k, parts in enumerate(zip(value, expected, strict=True)):
            yield from differences(*parts, f"{path}[{k}]")
    elif is_dataclass(expected):
        for f in fields(expected):
            yield from differences(getattr(value, f.name), getattr(expected, f.name), f"{path}.{f.name}")
    else:
        assert value is None
        assert expected is None


def prepare_compiled(problem, solver=None, plan=None, *, is_monitored=True):
    """Return settings and first iterate of a run from a plan as the library prepares them."""
    options = read_step_options((solver or AlternateMin()).with_defaults())
    run = compiled_steps._CompiledRun(problem, options, 10, is_monitored=is_monitored)
    settings = run.start_from_plan(problem.product if plan is None else plan, options)
    return settings, run.outcome().state


def torch_iterate(settings, iterate, max_iter, monitor=None):
    rules = loop.Rules(max_iter=max_iter, keeps_history=settings.is_monitored)
    return loop.iterate(advance, settings, iterate, rules, monitor)


@torch.no_grad()
def compare_preparations(problem, **options):
    """Compare the settings and the first iterate of a run as the library and as torch prepare them."""
    (settings, iterate), (expected_settings, expected) = (
        prepare(problem, **options) for prepare in (prepare_compiled, start_run)
    )
    for name in ITEM_SETTINGS:
        value, other = getattr(settings, name), getattr(expected_settings, name)
        torch.testing.assert_close(value, other, rtol=1e-9, atol=0, msg=name)
    for name in ("uses_proximal_steps", "samples_rows", "is_monitored", "options"):
        assert getattr(settings, name) == getattr(expected_settings, name)
    assert [*differences(settings.may_extrapolate, expected_settings.may_extrapolate)] in ([], [("", 0.0)])
    for name, error in differences(iterate, expected):
        assert error < 1e-12, name


@pytest.mark.parametrize("case", CASES)
def test_a_run_is_prepared_as_in_torch(case):
    problem = build_case(case)
    compare_preparations(problem)
    rng = np.random.default_rng(7)
    plan = problem.product * torch.as_tensor(0.5 + rng.random(problem.product.shape))
    compare_preparations(problem, plan=plan / plan.sum((1, 2), keepdim=True), is_monitored=False)


@pytest.mark.parametrize("solver", [name for name in SOLVERS if name != "anneal"])
def test_a_run_with_options_is_prepared_as_in_torch(solver):
    compare_preparations(build_case("eps 0.001"), solver=SOLVERS[solver])


def test_an_annealed_run_is_prepared_as_in_torch():
    problem, solver = build_case("eps 0.001"), SOLVERS["anneal"]
    iterates = [prepare(problem, solver=solver)[1] for prepare in (prepare_compiled, start_run)]
    assert all(error < 1e-12 for _, error in differences(*iterates))


def test_a_known_scale_and_huge_costs_are_prepared_as_in_torch():
    problem = build_case("fused")
    compare_preparations(replace(problem, known_scale=2.0 * problem.scale()))
    x, y = (Space.from_distances(1e80 * space.metric.dense()) for space in pair(9, 8))
    compare_preparations(build_ugw(x, y, rho=INF, eps=1e-12, fused=None))


@torch.no_grad()
def compare_steps(settings, iterate, n_steps, tolerance=1e-10):
    """Compare each of some steps of torch with the compiled step from the same iterate."""
    for k in range(n_steps):
        expected = torch_iterate(settings, iterate, 1)
        outcome = iterate_compiled(settings, iterate, 1, None)
        assert outcome.status.tolist() == expected.status.tolist(), k
        assert outcome.n_iter.tolist() == expected.n_iter.tolist(), k
        for name, error in differences(outcome.state, expected.state):
            assert error <= tolerance, (k, name, error)
        if settings.is_monitored:
            torch.testing.assert_close(outcome.table(), expected.table(), rtol=1e-9, atol=1e-9, equal_nan=True)
        iterate = expected.state
        if expected.status[0] not in (Status.MAX_ITER, Status.CONVERGED):
            return


@pytest.mark.parametrize("is_monitored", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_a_step_is_that_of_torch(case, is_monitored):
    compare_steps(*start_run(build_case(case), is_monitored=is_monitored), n_steps=12)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("case", ["20x20", "eps 0.001", "rho inf", "fused"])
def test_a_step_with_other_options_is_that_of_torch(case, solver):
    compare_steps(*start_run(build_case(case), SOLVERS[solver]), n_steps=8)


def test_annealing_ends_at_eps_zero_as_in_torch():
    settings, iterate = start_run(build_case("eps 0.0"), AlternateMin(anneal=0.4))
    compare_steps(settings, iterate, n_steps=16)
    assert iterate_compiled(settings, iterate, 1, None).state.controls.eps.item() > 0.0
    assert iterate_compiled(settings, iterate, 16, None).state.controls.eps.item() == 0.0


def test_a_step_out_of_the_exponent_range_is_that_of_torch():
    # Potentials far from those that the kernel is centered at: the log domain, and a new center.
    settings, iterate = start_run(build_case("20x20"))
    for scale in (3.0, 30.0):
        g = scale * torch.linspace(-1.0, 1.0, 20, dtype=torch.float64)[None]
        compare_steps(settings, replace(iterate, g=g), n_steps=2)


@pytest.mark.parametrize("case", ["eps 0.0", "zero weights, eps 0"])
def test_proximal_steps_from_a_plan_with_zeros_are_those_of_torch(case):
    problem = build_case(case)
    near_diagonal = torch.ones_like(problem.product).triu(-4).tril(4)
    plan = problem.product * near_diagonal
    settings, iterate = start_run(problem, plan=plan / plan.sum())
    compare_steps(settings, iterate, n_steps=3)
    # A converged plan continues once with some product plan in its reference.
    controls = replace(iterate.controls, adds_product=torch.zeros_like(iterate.change))
    compare_steps(settings, replace(iterate, controls=controls), n_steps=3)


@pytest.mark.parametrize("case", ["eps 0.0", "eps 0.0001", "rho inf"])
def test_the_checks_of_a_converged_plan_are_those_of_torch(case):
    # Every step is small enough: what remains are growing entries, and an objective below that of the last plan.
    settings, iterate = start_run(build_case(case))
    large = torch.full_like(iterate.change, 10.0)
    settings = replace(settings, change_tol=large, residual_tol=large)
    compare_steps(settings, iterate, n_steps=10)
    compare_steps(replace(settings, noise=1e-4 * large, cost_scale=1e-6 * large), iterate, n_steps=10)


def test_inner_iterations_that_do_not_suffice_are_doubled_as_in_torch():
    settings, iterate = start_run(build_case("eps 0.01"), AlternateMin(inner=Sinkhorn(max_iter=400)))
    large = torch.full_like(iterate.change, 10.0)
    settings = replace(settings, change_tol=large, residual_tol=1e-30 * large)
    compare_steps(settings, iterate, n_steps=5)
    multiplier = iterate_compiled(settings, iterate, 5, None).state.controls.iteration_multiplier
    assert multiplier.tolist() == [8.0]  # 3200 iterations at most


@pytest.mark.parametrize("case", ["eps 0.1", "eps 0.01", "sampled rows"])
def test_after_a_rejected_longer_step_steps_are_those_of_torch(case):
    settings, iterate = start_run(build_case(case))
    n_compared = 0
    for _ in range(15):
        iterate = torch_iterate(settings, iterate, 1).state
        history = replace(iterate.history, had_rejected_long_step=~iterate.history.had_rejected_long_step)
        n_compared += bool(history.n_steps[0] >= 2)
        compare_steps(settings, replace(iterate, history=history), n_steps=1)
    assert n_compared > 5


def test_a_plan_that_alternates_is_found_as_in_torch():
    settings, iterate = start_run(build_case("eps 0.01"))
    iterate = torch_iterate(settings, iterate, 3).state
    # The plan of two steps before is the plan that the next step will make: a cycle of two plans.
    with torch.no_grad():
        following = advance(settings, iterate)[0].state
    previous = replace(following, local_cost=None)
    for n_returns in (0.0, 1.0, 2.0, 3.0):
        count = torch.full_like(iterate.change, n_returns)
        compare_steps(settings, replace(iterate, previous_state=previous, n_returns=count), n_steps=1)
    assert iterate_compiled(
        settings, replace(iterate, previous_state=previous, n_returns=count), 5, None
    ).status.tolist() == [Status.ALTERNATING]


def value_scale(x, y, result):
    """Return the unit of values: the value, or the mean distortion of the product plan at the mass of the result."""
    mean = ugw.objective(np.outer(x.weights, y.weights) / x.mass / y.mass, x, y, rho=1.0).distortion
    return max(abs(float(result.value)), float(result.mass) ** 2 * float(mean))


def assert_same(x, y, result, expected, value_tol=1e-7, plan_tol=1e-4):
    assert result.status is expected.status
    assert abs(result.value - expected.value) <= value_tol * value_scale(x, y, expected)
    assert np.abs(result.plan - expected.plan).sum() <= plan_tol * expected.plan.sum()


def solve_both(monkeypatch, x, y, **options):
    """Return the result by compiled steps and that by torch."""
    compiled = ugw.solve(x, y, **options)
    monkeypatch.setenv(native.SWITCH, "0")
    return compiled, ugw.solve(x, y, **options)


@pytest.mark.parametrize("tol", [1e-6, 1e-10])
@pytest.mark.parametrize("case", CASES)
def test_a_solve_ends_where_that_of_torch_ends(monkeypatch, case, tol):
    (x, y), options = CASES[case]
    solver = AlternateMin(tol=tol, max_iter=3000)
    compiled, expected = solve_both(monkeypatch, x, y, init="product", solver=solver, **options)
    assert_same(x, y, compiled, expected, *((1e-7, 1e-4) if tol == 1e-6 else (1e-9, 1e-6)))
    for field in ("objective", "relaxed", "change", "residual", "mass"):
        numbers, others = (getattr(r.history, field) for r in (compiled, expected))
        assert len(numbers) == compiled.n_iter
        assert np.isfinite(numbers).all()
        assert numbers[0] == pytest.approx(others[0], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_solve_with_other_options_ends_where_that_of_torch_ends(monkeypatch, solver):
    (x, y), options = CASES["eps 0.001"]
    compiled, expected = solve_both(monkeypatch, x, y, init="product", solver=SOLVERS[solver], **options)
    if solver == "coarse":
        assert compiled.status is expected.status
    else:
        assert_same(x, y, compiled, expected)


def test_a_solve_with_nearly_hard_sides_ends_where_that_of_torch_ends(monkeypatch):
    # The split of f + g into both potentials is then lost in rounding, but not the plan.
    x, y = pair(15, 18)
    assert_same(x, y, *solve_both(monkeypatch, x, y, init="product", rho=1e9, eps=0.02), value_tol=3e-7)


def test_a_default_solve_ends_where_that_of_torch_ends(monkeypatch):
    x, y = pair(25, 22)
    compiled, expected = solve_both(monkeypatch, x, y, rho=0.3, eps=0.01)
    assert_same(x, y, compiled, expected)


@pytest.mark.parametrize("max_iter", [1, 2, 3, 65, 70])
def test_max_iter_is_reached_after_this_many_steps(monkeypatch, max_iter):
    (x, y), options = CASES["eps 0.001"]
    solver = AlternateMin(tol=1e-12, max_iter=max_iter)
    compiled, expected = solve_both(monkeypatch, x, y, init="product", solver=solver, **options)
    assert compiled.status is expected.status is Status.MAX_ITER
    assert compiled.n_iter == len(compiled.history) == max_iter
    assert compiled.value == pytest.approx(expected.value, rel=1e-7)


def test_a_callback_sees_every_step_and_stops_the_run():
    (x, y), options = CASES["eps 0.001"]
    steps = []

    def stop(step):
        steps.append(step)
        return step.iteration == 4

    result = ugw.solve(x, y, init="product", solver=AlternateMin(callback=stop), **options)
    assert result.status is Status.STOPPED
    assert result.n_iter == len(steps) == len(result.history) == 4
    for field in ("objective", "relaxed", "change", "residual", "mass"):
        assert [float(getattr(step, field)[0]) for step in steps] == getattr(result.history, field).tolist()
    unobserved = ugw.solve(x, y, init="product", solver=AlternateMin(max_iter=4), **options)
    np.testing.assert_array_equal(unobserved.plan, result.plan)


def test_an_observed_run_grows_its_history():
    (x, y), options = CASES["eps 0.001"]
    steps = []
    solver = AlternateMin(tol=1e-11, max_iter=90, callback=lambda step: steps.append(step.iteration))
    result = ugw.solve(x, y, init="product", solver=solver, **options)
    assert steps == list(range(1, len(result.history) + 1))
    assert np.isfinite(result.history.change).all()


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_the_objective_at_the_end_is_that_of_torch(case):
    problem = build_case(case)
    for n_steps in (1, 7):
        outcome = iterate_compiled(*start_run(problem), n_steps, None)
        final, previous = problem.final_state(outcome.state.state), outcome.state.previous_state
        terms, relaxed = outcome.values
        expected = problem.objective(final)
        for name, value in expected.as_dict().items():
            torch.testing.assert_close(getattr(terms, name), value, rtol=1e-9, atol=1e-12 * float(expected.total.abs()))
        torch.testing.assert_close(relaxed, problem.objective(previous, final).total, rtol=1e-9, atol=1e-12)


def test_a_run_that_is_not_monitored_has_no_objective_at_the_end():
    settings, iterate = start_run(build_case("20x20"), is_monitored=False)
    assert iterate_compiled(settings, iterate, 3, None).values is None


def test_a_step_that_is_not_finite_is_undone():
    settings, iterate = start_run(build_case("20x20"))
    first = iterate_compiled(settings, iterate, 2, None).state
    non_finite = replace(first, state=replace(first.state, log_mass=first.state.log_mass * torch.nan))
    for function in (torch_iterate, iterate_compiled):
        outcome = function(settings, non_finite, 5, None)
        assert outcome.status.tolist() == [Status.NON_FINITE]
        assert outcome.n_iter.tolist() == [0]
        assert torch.equal(outcome.state.state.unit_plan, first.state.unit_plan)
        assert outcome.table().shape == (1, 1, 5)
        assert outcome.table().isnan().all()


def ragged_batch(count):
    """Return spaces of different sizes, their stacks, and a rho and an eps of each pair."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 19, size=(count, 2))
    pairs = [(cloud(n, 2, 10 + i), cloud(m, 3, 500 + i, mass=2.0)) for i, (n, m) in enumerate(sizes)]
    stacks = [Space.stack(list(side)) for side in zip(*pairs, strict=True)]
    return pairs, stacks, rng.choice([0.1, 1.0, INF], count), rng.choice([0.1, 0.02, 2e-3, 0.0], count)


def test_items_of_a_ragged_batch_are_those_solved_alone():
    pairs, stacks, rho, eps = ragged_batch(200)
    free = np.where(np.isinf(rho), 0.3, rho)  # masses differ, so only one side may be hard
    solver = AlternateMin(max_iter=300)
    batch = ugw.solve(*stacks, rho=(rho, free), eps=eps, init="product", solver=solver)
    for i, (x, y) in enumerate(pairs):
        alone = ugw.solve(x, y, rho=(rho[i], free[i]), eps=eps[i], init="product", solver=solver)
        item = batch[i]
        assert item.status is alone.status, i
        assert item.n_iter == alone.n_iter, i
        np.testing.assert_allclose(item.plan, alone.plan, rtol=0, atol=1e-12)
        np.testing.assert_allclose(item.value, alone.value, rtol=1e-12)


def test_threads_do_not_change_the_result():
    _, stacks, _, eps = ragged_batch(40)
    problem = build_ugw(*stacks, rho=0.3, eps=eps, fused=None)
    settings, iterate = start_run(problem)
    outcomes = [iterate_compiled(settings, iterate, 50, None, n_threads=count) for count in (1, 2)]
    assert torch.equal(outcomes[0].status, outcomes[1].status)
    assert torch.equal(outcomes[0].n_iter, outcomes[1].n_iter)
    assert all(error == 0.0 for _, error in differences(outcomes[1].state, outcomes[0].state))
    torch.testing.assert_close(outcomes[1].table(), outcomes[0].table(), rtol=0, atol=0, equal_nan=True)


def test_a_run_interrupted_after_every_step_gives_the_same(monkeypatch):
    settings, iterate = start_run(build_case("eps 0.001"))
    whole = iterate_compiled(settings, iterate, 40, None)
    monkeypatch.setattr(compiled_steps, "SOLVER_CONFIG", replace(compiled_steps.SOLVER_CONFIG, compiled_call_seconds=0))
    parts = iterate_compiled(settings, iterate, 40, None)
    assert parts.n_iter.tolist() == whole.n_iter.tolist()
    assert all(error == 0.0 for _, error in differences(parts.state, whole.state))


def test_many_plans_on_shared_metrics():
    problem = build_case("20x20")
    rng = np.random.default_rng(0)
    plans = torch.as_tensor(rng.random((6, 20, 20)))
    plans = plans / plans.sum((1, 2), keepdim=True)
    together = problem.take(torch.zeros(6, dtype=torch.long))
    assert not together.x.metric.batched
    settings, iterate = start_run(together, plan=plans, is_monitored=False)
    outcome = iterate_compiled(settings, iterate, 25, None)
    assert outcome.trace == []
    for i in range(6):
        alone = iterate_compiled(*start_run(problem, plan=plans[i : i + 1], is_monitored=False), 25, None)
        torch.testing.assert_close(outcome.state.state.unit_plan[i], alone.state.state.unit_plan[0], rtol=0, atol=1e-12)
    expected = torch_iterate(settings, iterate, 25)
    torch.testing.assert_close(outcome.state.objective, expected.state.objective, rtol=1e-8, atol=0)


def test_arrays_that_are_not_contiguous_or_read_only():
    x, y = pair(18, 15)
    dx, dy = x.metric.dense().numpy(), y.metric.dense().numpy()
    expected = ugw.solve(Space.from_distances(dx), Space.from_distances(dy), rho=0.3, eps=0.01, init="product")
    wide = np.full((36, 36), np.nan)
    wide[::2, ::2] = dx
    frozen = dy.copy(order="F")
    frozen.flags.writeable = False
    weights = np.full((15, 2), 1 / 15)[:, 0]
    result = ugw.solve(
        Space.from_distances(wide[::2, ::2]),
        Space.from_distances(frozen, weights=weights),
        rho=0.3,
        eps=0.01,
        init="product",
    )
    np.testing.assert_allclose(result.plan, expected.plan, rtol=0, atol=1e-15)
    matrices = [torch.from_numpy(wide)[::2, ::2], torch.from_numpy(dy.copy()).T]
    other = ugw.solve(*map(Space.from_distances, matrices), rho=0.3, eps=0.01, init="product")
    np.testing.assert_allclose(other.plan, expected.plan, rtol=0, atol=1e-15)


def test_potentials_of_points_without_weight_are_those_of_torch(monkeypatch):
    (x, y), options = CASES["zero weights"]
    solver = AlternateMin(tol=1e-10)
    compiled, expected = solve_both(monkeypatch, x, y, init="product", solver=solver, **options)
    for ours, theirs in zip(compiled.potentials, expected.potentials, strict=True):
        assert np.isfinite(ours).all()
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-7)


def test_which_problems_have_compiled_steps(monkeypatch):
    x, y = pair(20, 20)
    options = {"rho": 1.0, "eps": 0.1, "fused": None}
    problem = build_ugw(x, y, **options)
    assert has_compiled_steps(problem)
    assert not has_compiled_steps(problem.to(torch.float32))
    assert not has_compiled_steps(build_ugw(x, y, **options, loss=ugw.Loss(lambda t: t**4)))
    side = math.isqrt(THRESHOLDS.max_compiled_entries)
    assert has_compiled_steps(build_ugw(*pair(side, side), **options))
    assert not has_compiled_steps(build_ugw(*pair(side + 1, side + 1), **options))
    monkeypatch.setenv(native.SWITCH, "0")
    assert not has_compiled_steps(problem)


def test_stored_squares_are_captured_also_without_compiled_steps():
    x, y = pair(12, 10, metric="sqeuclidean")
    options = {"rho": 1.0, "eps": 0.1, "fused": None}
    problem = build_ugw(x, y, **options)
    incremental = replace(problem, distortion_sum=IncrementalDistortion.of(problem.distortion_sum))
    conic, _ = build_conic(x, y, rho=1.0, cone="gaussian-hellinger", eps=0.0)
    others = build_ugw(x, y, **options, method="streaming"), build_ugw(x, y, **options, loss=ugw.Loss(lambda t: t**4))
    assert isinstance(problem.compiled_inputs(), CompiledInputs)
    assert isinstance(conic.compiled_inputs(), CompiledConicInputs)
    assert all(other.compiled_inputs() is None for other in (incremental, *others))
    assert problem.has_stored_squares
    assert incremental.has_stored_squares
    assert not any(other.has_stored_squares for other in (conic, *others))


def test_an_incremental_cost_takes_the_torch_step(monkeypatch):
    problem = build_case("20x20")
    problem = replace(problem, distortion_sum=IncrementalDistortion.of(problem.distortion_sum))
    settings, iterate = start_run(problem)
    monkeypatch.setattr(alternating, "iterate_compiled", None)
    assert alternating._iterate(settings, iterate, 2, None).n_iter.tolist() == [2]


@pytest.mark.parametrize("instruction_set", ["avx512", "avx2", "baseline"])
def test_every_instruction_set_gives_the_same_value(instruction_set):
    code = (
        "import ugw, numpy as np; from ugw.kernels.cpu import native; rng = np.random.default_rng(0)\n"
        "x, y = (ugw.Space.from_points(rng.random((n, 2))) for n in (21, 18))\n"
        "values = [ugw.solve(x, y, rho=.3, eps=eps, init='product').value for eps in (.01, 0.)]\n"
        "print(native.load().instruction_set, *values)"
    )
    environment = os.environ | {"UGW_INSTRUCTION_SET": instruction_set}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    used, *values = done.stdout.split()
    if used != instruction_set:
        pytest.skip(f"this processor has no {instruction_set}")
    rng = np.random.default_rng(0)
    x, y = (Space.from_points(rng.random((n, 2))) for n in (21, 18))
    expected = [ugw.solve(x, y, rho=0.3, eps=eps, init="product").value for eps in (0.01, 0.0)]
    np.testing.assert_allclose([float(value) for value in values], expected, rtol=1e-9)


def test_values_for_the_compiled_library_have_distinct_names():
    """The C++ records are filled by name: of two values of one name, one would be ignored silently."""
    configs = THRESHOLDS, PROBLEM_CONFIG, KERNEL_CONFIG, SOLVER_CONFIG
    names = [name for config in configs for name in vars(config)] + [status.name for status in Status]
    names.append("min_relative_mean")  # of the distortion
    assert len(names) == len(set(names)) == len(compiled_steps.thresholds())
    of_run = [name for name in native.load().config_fields if name not in names]
    options = AlternateMin().with_defaults()
    with mock.patch.object(compiled_steps, "thresholds", dict):  # without thresholds only values of the run are left
        assert (
            len(config_values(tuple(of_run), options, samples_rows=True, is_monitored=True, max_iter=1))
            == len(of_run)
            > 8
        )


def test_the_configuration_names_the_compiled_backend(monkeypatch):
    assert ugw.show_config()["compiled"] == native.load().instruction_set
    monkeypatch.setenv(native.SWITCH, "0")
    assert ugw.show_config()["compiled"] == "switched off (UGW_COMPILED=0)"
    assert {"ugw", "torch", "triton", "cuda"} <= ugw.show_config().keys()
