"""Mixed precision: which problems get a low-precision phase, and that it does not change the result."""

import numpy as np
import pytest
import torch

import ugw
from oracles.spaces import pair, ugw_problem
from oracles.thresholds import changed_thresholds
from ugw._utils.size_class import THRESHOLDS
from ugw.solvers import alternating
from ugw.solvers.config import SOLVER_CONFIG
from ugw.solvers.mixed_precision import low_precision_phase, low_precision_problem


@pytest.fixture(autouse=True)
def _torch_steps(monkeypatch):
    """Compiled steps, which small problems would get, have no low-precision phase."""
    monkeypatch.setenv("UGW_COMPILED", "0")


def problem_of(x, y, **options):
    """Return the UGW problem between two spaces with relative eps 1e-2."""
    return ugw_problem(x, y, eps=ugw.relative(1e-2), **options)


def test_a_float64_problem_has_a_float32_phase_from_a_number_of_entries_on():
    m = 50
    n = THRESHOLDS.min_low_precision_entries // m
    problem = problem_of(*pair(n, m))
    phase = low_precision_phase(problem)
    assert phase.problem.x.dtype == torch.float32
    assert phase.next_problem is problem
    assert (phase.tol, phase.max_iter) == (SOLVER_CONFIG.float32_tol, SOLVER_CONFIG.float32_max_iter)
    assert low_precision_phase(problem_of(*pair(n - 1, m))) is None


def test_a_float32_problem_on_a_cpu_has_no_phase():
    problem = problem_of(*pair(120, 100, dtype=np.float32))
    assert low_precision_phase(problem) is None
    assert low_precision_problem(problem) is problem


def test_only_problems_of_stored_plans_with_the_loss_t2_have_a_phase():
    assert low_precision_phase(problem_of(*pair(120, 100, metric="sqeuclidean"), method="streaming")) is None
    assert low_precision_phase(problem_of(*pair(120, 100), loss=ugw.Loss(lambda t: t**4))) is None


def test_the_low_precision_problem_keeps_the_scale_measured_in_float64():
    problem = problem_of(*pair(120, 100))
    assert low_precision_problem(problem).scale().tolist() == problem.scale().tolist()


@pytest.mark.parametrize(("tol", "value_tol", "plan_tol"), [(1e-10, 1e-9, 1e-6), (1e-6, 1e-7, 1e-4)])
def test_the_result_is_that_of_a_solve_without_the_phase(tol, value_tol, plan_tol):
    x, y = pair(90, 80)
    solver = ugw.AlternateMin(tol=tol, max_iter=3000)
    assert low_precision_phase(problem_of(x, y)) is not None
    mixed = ugw.solve(x, y, eps=ugw.relative(1e-2), init="product", solver=solver)
    with changed_thresholds(SOLVER_CONFIG, min_iter_for_low_precision=solver.max_iter + 1):
        exact = ugw.solve(x, y, eps=ugw.relative(1e-2), init="product", solver=solver)
    assert mixed.status == exact.status
    assert mixed.value == pytest.approx(exact.value, rel=value_tol)
    assert np.abs(mixed.plan - exact.plan).sum() <= plan_tol * exact.mass


def test_a_run_of_few_steps_has_no_phase(monkeypatch):
    x, y = pair(90, 80)
    phases = []
    monkeypatch.setattr(alternating, "low_precision_phase", lambda problem: phases.append(problem))
    for max_iter in (SOLVER_CONFIG.min_iter_for_low_precision - 1, SOLVER_CONFIG.min_iter_for_low_precision):
        ugw.solve(x, y, eps=0.5, init="product", solver=ugw.AlternateMin(max_iter=max_iter))
        assert len(phases) == max_iter + 1 - SOLVER_CONFIG.min_iter_for_low_precision


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
@pytest.mark.parametrize(("shares", "max_iter"), [((0.3, 0.01), 40), ((0.3, 0.01, 1e-3), 200)])
def test_phase_and_number_of_steps_of_an_item_do_not_depend_on_its_neighbors(shares, max_iter):
    """A slow neighbor leaves an item its own steps, and one too sharp for float32 leaves it its phase."""
    rng = np.random.default_rng(0)
    xs, ys = ([ugw.Space.from_points(rng.random((80, d))) for _ in shares] for d in (2, 3))
    options = {"init": "product", "solver": ugw.AlternateMin(max_iter=max_iter)}
    both = ugw.solve(ugw.Space.stack(xs), ugw.Space.stack(ys), eps=ugw.relative(np.array(shares)), **options)
    for i, share in enumerate(shares):
        alone = ugw.solve(xs[i], ys[i], eps=ugw.relative(share), **options)
        assert both[i].status is alone.status
        # Sums over a batch round in another order, which may move the stop by a step.
        assert abs(both[i].n_iter - alone.n_iter) <= 2
        assert both[i].n_iter == len(both[i].history)
        assert both[i].value == pytest.approx(alone.value, rel=1e-7)
        assert np.abs(both[i].plan - alone.plan).sum() <= 1e-4 * alone.plan.sum()
    assert both[0].status is ugw.Status.CONVERGED


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
def test_a_callback_stops_items_with_and_without_the_phase():
    x, y = pair(90, 80)
    solver = ugw.AlternateMin(callback=lambda step: step.iteration == 3)
    both = ugw.solve(x, y, eps=ugw.relative(np.array([1e-2, 1e-3])), init="product", solver=solver)
    assert both.status == [ugw.Status.STOPPED] * 2
    assert both.n_iter.tolist() == [4, 1]
