"""Solves by captured steps end where plain solves end. Graphs are emulated; tests/test_cuda.py uses real ones."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import ugw
from oracles.captured_graphs import kept_names
from oracles.fake_cuda_graphs import fake_cuda_graphs
from oracles.thresholds import changed_thresholds
from ugw._utils.cuda_graphs.config import CAPTURE_CONFIG
from ugw.initializers.coarse import coarse_plan
from ugw.problems.build import build_ugw
from ugw.problems.distortion.incremental import IncrementalDistortion
from ugw.solvers import alternating
from ugw.solvers.captured_steps import capture_properties
from ugw.solvers.config import SOLVER_CONFIG
from ugw.solvers.run_state import prepare_run


@pytest.fixture
def cuda():
    """A device that is busy with any batch of two or more, so that batches are compacted to powers of two."""
    with changed_thresholds(CAPTURE_CONFIG, busy_entries=1), fake_cuda_graphs() as device:
        yield device


def pair(seed, batch=None, metric="euclidean", n=14):
    rng = np.random.default_rng(seed)
    pairs = [[ugw.Space.from_points(rng.random((k, 2)), metric=metric) for k in (n, n - 3)] for _ in range(batch or 1)]
    return pairs[0] if batch is None else [ugw.Space.stack(side) for side in zip(*pairs, strict=True)]


def solve(seed, batch=None, metric="euclidean", **options):
    return ugw.solve(*pair(seed, batch, metric), **{"rho": 1.0 + seed, "eps": 2e-2, "init": "product"} | options)


def assert_same(result, expected):
    """Assert that two results agree: values to 1e-7, plans to 1e-4, equal status."""
    np.testing.assert_allclose(result.value, expected.value, rtol=1e-7)
    distance = np.abs(result.plan - expected.plan).sum((-2, -1)) / expected.plan.sum((-2, -1))
    assert np.max(distance) <= 1e-4
    np.testing.assert_array_equal(result.status, expected.status)


def assert_same_as_on_a_cpu(cuda, result, *problem):
    """Compare the result of `solve(*problem)` with that of plain steps."""
    with cuda.pause_capture():
        assert_same(result, solve(*problem))


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])  # a stored metric, and one with cached properties
@pytest.mark.parametrize("batch", [None, 5])
def test_problems_of_one_signature_share_graphs_and_have_their_own_results(cuda, batch, metric):
    first = solve(0, batch, metric)
    copy = first.plan.copy()
    n_captures, n_replays = cuda.n_captures, cuda.n_replays
    results = [solve(seed, batch, metric) for seed in (1, 2)]  # another rho, too
    assert cuda.n_replays > 2 * n_replays
    assert cuda.n_captures <= 4 * n_captures
    np.testing.assert_array_equal(first.plan, copy)
    for seed, result in enumerate((first, *results)):
        assert_same_as_on_a_cpu(cuda, result, seed, batch, metric)


def test_the_same_problem_needs_no_more_graphs(cuda):
    counts = []
    for _ in range(4):
        result = solve(0)
        assert_same_as_on_a_cpu(cuda, result, 0)
        counts.append(cuda.n_captures)
    assert counts[-1] == counts[-2]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_captured_steps_do_not_leave_a_solution(cuda, seed):
    x, y = pair(seed)
    result = ugw.solve(x, y, eps=1e-2, init="product", solver=ugw.AlternateMin(tol=1e-8))
    again = ugw.solve(x, y, eps=1e-2, init=result.plan)
    assert again.converged
    assert again.n_iter == 1
    assert again.value == pytest.approx(result.value, rel=1e-9)


def test_captured_steps_of_a_known_signature_do_not_leave_a_solution(cuda):
    """The first step from a solution then has a graph of its own, of many rounds."""
    x, y = pair(0)
    result = ugw.solve(x, y, rho=1.0, eps=1e-2, init="product", solver=ugw.AlternateMin(tol=1e-8))
    for _ in range(2):
        ugw.solve(x, y, rho=1.5, eps=1e-2, init="product")
        again = ugw.solve(x, y, rho=1.0, eps=1e-2, init=result.plan)
    assert again.converged
    assert again.value == pytest.approx(result.value, rel=1e-9)


@pytest.mark.parametrize("number", [1, 2, 5])
def test_a_non_finite_step_is_repeated(cuda, number):
    cuda.fail_replay(number)
    result = solve(0)
    assert cuda.has_failed
    assert_same_as_on_a_cpu(cuda, result, 0)
    assert np.all(np.isfinite(result.history.objective))
    assert len(set(result.history.objective[:6])) == 6, "a step was not repeated, or counted twice"


def test_a_non_finite_step_of_a_batch_is_repeated(cuda):
    cuda.fail_replay(3)
    result = solve(0, 5)
    assert cuda.has_failed
    assert_same_as_on_a_cpu(cuda, result, 0, 5)


@changed_thresholds(CAPTURE_CONFIG, max_step_entries=0)
def test_large_problems_are_solved_without_graphs(cuda):
    result = solve(0)
    assert "advance" not in kept_names()
    assert cuda.n_captures == 0
    assert_same_as_on_a_cpu(cuda, result, 0)


def test_problems_without_captured_steps_are_solved_as_they_are(cuda):
    """Other losses than t² read values on the host."""
    x, y = pair(0, n=8)
    for _ in range(4):
        result = ugw.solve(x, y, eps=5e-2, init="product", loss=lambda t: t.abs())
    assert cuda.n_captures == 0
    assert result.converged


# -- unmonitored runs --------------------------------------------------------------------------------------


def final_plan(problem, solver):
    return solver.final_state(problem, problem.product)[0].plan


def test_unmonitored_runs_synchronize_after_several_steps():
    solver = ugw.AlternateMin(max_iter=60, tol=1e-12)
    problem = build_ugw(*pair(0), rho=1.0, eps=5e-2, fused=None)
    expected = final_plan(problem, solver)
    n_replays = {}
    with fake_cuda_graphs() as cuda:
        torch.testing.assert_close(final_plan(problem, solver), expected, rtol=1e-6, atol=1e-9)
        n_replays["final state"] = cuda.n_replays
    with fake_cuda_graphs() as cuda:
        solver.run(problem, problem.product, None)
        n_replays["monitored"] = cuda.n_replays
    assert n_replays["monitored"] > 0.8 * SOLVER_CONFIG.max_unchecked_steps * n_replays["final state"]


@pytest.mark.parametrize("max_iter", [1, 7, 8, 12])
def test_unmonitored_runs_make_exactly_the_steps_allowed(max_iter):
    """With inner solves to a small tolerance, steps of a graph and plain steps agree closely."""
    solver = ugw.AlternateMin(max_iter=max_iter, tol=1e-4, inner=ugw.Sinkhorn(tol=1e-12, max_iter=2000))
    problem = build_ugw(*pair(0), rho=0.2, eps=0.5, fused=None)
    expected = final_plan(problem, solver)
    with fake_cuda_graphs():
        torch.testing.assert_close(final_plan(problem, solver), expected, rtol=1e-4, atol=1e-9)


# -- captured problems --------------------------------------------------------------------------------------


def make_run(problem):
    state, settings = prepare_run(problem, problem.product, ugw.AlternateMin().with_defaults())
    return settings, alternating.Iterate.initial(state, settings)


def test_properties_of_steps_on_a_cpu():
    properties = capture_properties(*make_run(build_ugw(*pair(0, 3), rho=1.0, eps=0.1, fused=None)))
    assert not properties.is_capturable
    assert not properties.is_sync_free
    assert (properties.n_entries, properties.n_item_entries) == (3 * 14 * 11, 14 * 11)


def test_properties_of_steps_on_cuda(cuda):
    problem = build_ugw(*pair(0, 3), rho=1.0, eps=0.1, fused=None)
    properties = capture_properties(*make_run(problem))
    assert properties.is_capturable
    assert properties.is_sync_free
    # An incremental update of the cost reads how far the plan has moved.
    incremental = replace(problem, distortion_sum=IncrementalDistortion.of(problem.distortion_sum))
    properties = capture_properties(*make_run(incremental))
    assert not properties.is_capturable
    assert properties.is_sync_free
    # Another loss than t² reads values everywhere.
    properties = capture_properties(*make_run(build_ugw(*pair(0), rho=1.0, eps=0.1, fused=None, loss=torch.abs)))
    assert not properties.is_capturable
    assert not properties.is_sync_free


def test_settings_of_a_run_belong_to_its_own_problem(cuda):
    """The scale of the cost is a cached property of the problem with which a graph was captured."""
    for scale in (1.0, 2.0, 3.0, 4.0, 5.0):
        x, y = (replace(space, metric=space.metric.scale(scale)) for space in pair(0))
        problem = build_ugw(x, y, rho=1.0, eps=0.1, fused=None)
        state, settings = prepare_run(problem, problem.product, ugw.AlternateMin().with_defaults())
        torch.testing.assert_close(settings.cost_scale, torch.minimum(problem.scale(), torch.tensor([2.0]).double()))
        torch.testing.assert_close(state.distortion, problem.state_of_plan(problem.product).distortion)
    assert kept_names() == ["compute_settings"]


def test_converged_items_request_no_rounds():
    one = torch.ones(4)
    settings = SimpleNamespace(
        options=ugw.AlternateMin().with_defaults(), change_tol=1e-6 * one, residual_tol=1e-6 * one
    )
    iterate = SimpleNamespace(
        change=torch.tensor([0.0, 1e-7, 1e-7, 1e-3]),
        residual=torch.tensor([1.0, 1e-7, 1e-3, 1e-7]),
        controls=SimpleNamespace(iteration_multiplier=torch.tensor([1.0, 4.0, 4.0, 1.0])),
    )
    assert alternating.requested_rounds(settings, iterate).tolist() == [40.0, 0.0, 40.0, 0.0]


# -- initial plans -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "batch"), [(14, None), (30, 2), (340, None)], ids=str)
def test_initial_plans_by_graphs_are_those_of_plain_calls(n, batch):
    """Two problems are prepared by plain calls, the third by graphs, which then serve the first problem again."""
    problems = [build_ugw(*pair(seed, batch, n=n), rho=1.0, eps=2e-2, fused=None) for seed in range(3)]
    with fake_cuda_graphs() as cuda:
        plans = [coarse_plan(problems[k]) for k in (0, 1, 2, 0)]
        names = set(kept_names())
        with cuda.pause_capture():
            expected = [coarse_plan(problem) for problem in problems]
    for plan, other in zip(plans, (*expected, expected[0]), strict=True):
        assert float((plan - other).abs().sum((1, 2)).max()) <= 1e-2
    assert {"coarsest_level", "fine_candidates", "compute_settings", "unit_plan_and_value"} <= names
    assert ({"middle_level", "prolongate_first"} <= names) is (n == 340)
