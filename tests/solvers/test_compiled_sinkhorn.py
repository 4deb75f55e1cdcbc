"""The compiled Sinkhorn against the torch one: potentials, plans, masses and residuals of the same linear problems."""

from dataclasses import replace

import pytest
import torch

import ugw
from ugw.kernels.cpu import native
from ugw.problems.linear import LinearProblem
from ugw.solvers.sinkhorn import Sinkhorn

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the compiled library is not built")
INF = float("inf")


def linear_problem(shape=(3, 7, 5), rho=(0.5, 2.0), eps=0.05, seed=0):
    """Return a linear problem with random costs and weights of unit mass."""
    generator = torch.Generator().manual_seed(seed)
    batch, n, m = shape
    cost = torch.rand(shape, generator=generator, dtype=torch.float64)
    a, b = (torch.rand(batch, size, generator=generator, dtype=torch.float64) + 0.1 for size in (n, m))
    logs = [(w / w.sum(1, keepdim=True)).log() for w in (a, b)]
    sides = [ugw.KL(r).expand(batch, cost.device) for r in rho]
    return LinearProblem(cost, *logs, *sides, torch.full((batch,), eps, dtype=torch.float64))


def solve_both(monkeypatch, problem, solver=None, *arguments):
    """Return the solutions of a linear problem by the compiled library and by torch."""
    solver = solver or Sinkhorn(tol=1e-11, max_iter=4000)
    with torch.no_grad():
        compiled = solver(problem, *arguments)
        monkeypatch.setenv(native.SWITCH, "0")
        plain = solver(problem, *arguments)
        monkeypatch.delenv(native.SWITCH)
    return compiled, plain


def check_equal(compiled, plain, tolerance=1e-10):
    """Assert that two solutions agree to the tolerance."""
    for name in ("unit_plan", "log_mass", "f", "g"):
        values, expected = getattr(compiled, name), getattr(plain, name)
        torch.testing.assert_close(
            values, expected, rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 1, 5), (2, 8, 1), (3, 7, 5), (4, 33, 41)], ids=str)
@pytest.mark.parametrize("rho", [(0.5, 2.0), (INF, 0.7), (0.7, INF), (INF, INF)], ids=str)
def test_sizes_and_sides(monkeypatch, shape, rho):
    check_equal(*solve_both(monkeypatch, linear_problem(shape, rho)))


@pytest.mark.parametrize("eps", [1.0, 0.1, 0.01, 1e-3])
@pytest.mark.parametrize("method", ["stabilized", "log"])
def test_the_same_rounds_give_the_same_iterates(monkeypatch, eps, method):
    """Far from convergence: after the same few rounds, with extrapolations and their rejection."""
    # Slow modes are extrapolated by up to 1/(1 − rate), which multiplies rounding: few rounds where the rate is near 1.
    for max_iter in (10, 20, 50) if eps > 1e-3 else (10, 20):
        solver = Sinkhorn(tol=1e-14, max_iter=max_iter, method=method)
        compiled, plain = solve_both(monkeypatch, linear_problem((3, 20, 17), (1.0, 0.3), eps), solver)
        check_equal(compiled, plain, 1e-9)
        torch.testing.assert_close(compiled.residual, plain.residual, rtol=1e-6, atol=1e-13)


def test_potentials_tolerances_and_multiples_of_each_item(monkeypatch):
    problem = linear_problem((3, 9, 8))
    potentials = torch.rand(3, 9, dtype=torch.float64), torch.rand(3, 8, dtype=torch.float64)
    tol, multiple = torch.tensor([1e-2, 1e-5, 1e-9]).double(), torch.tensor([1.0, 2.0, 4.0]).double()
    compiled, plain = solve_both(monkeypatch, problem, Sinkhorn(max_iter=20), potentials, tol, multiple)
    check_equal(compiled, plain, 1e-9)
    torch.testing.assert_close(compiled.residual, plain.residual, rtol=1e-6, atol=1e-13)
    assert (compiled.residual <= tol).all()


@pytest.mark.parametrize(("max_iter", "multiple", "rounded"), [(3, 1.0, 5), (6, 1.0, 10), (7, 2.0, 15), (39, 1.0, 40)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_iterations_are_rounded_up_to_a_multiple_of_those_between_two_checks(
    monkeypatch, max_iter, multiple, rounded, dtype
):
    problem = linear_problem((1, 20, 17), (1.0, 0.3), 0.01)
    arrays = {name: getattr(problem, name).to(dtype) for name in ("cost", "log_a", "log_b")}
    problem, multiplier = replace(problem, **arrays), torch.tensor([multiple], dtype=torch.float64)
    expected = Sinkhorn(tol=1e-14, max_iter=rounded)(problem).residual
    for solution in solve_both(monkeypatch, problem, Sinkhorn(tol=1e-14, max_iter=max_iter), None, None, multiplier):
        torch.testing.assert_close(solution.residual, expected, rtol=1e-3, atol=0.0)


def test_points_of_weight_zero_and_forbidden_pairs(monkeypatch):
    problem = linear_problem((2, 6, 7))
    log_a, log_b, cost = problem.log_a.clone(), problem.log_b.clone(), problem.cost.clone()
    log_a[0, 2] = log_b[1, -1] = -INF
    cost[:, 1, 3] = cost[0, 4, :] = INF
    compiled, plain = solve_both(monkeypatch, replace(problem, cost=cost, log_a=log_a, log_b=log_b))
    check_equal(compiled, plain)
    assert not compiled.unit_plan[0, 2].any()
    assert not compiled.unit_plan[:, 1, 3].any()


def test_costs_of_any_strides_are_not_changed(monkeypatch):
    problem = linear_problem((2, 6, 7))
    shared = problem.cost[:1].expand(2, -1, -1)
    transposed = problem.cost.mT.contiguous().mT
    for cost in (shared, transposed):
        before = cost.clone()
        check_equal(*solve_both(monkeypatch, replace(problem, cost=cost)))
        assert torch.equal(cost, before)


def test_two_threads_give_the_result_of_one():
    problem, solver = linear_problem((9, 12, 10)), Sinkhorn(tol=1e-10, max_iter=1000)
    with torch.no_grad():
        one = solver(problem)
        torch.set_num_threads(2)
        try:
            two = solver(problem)
        finally:
            torch.set_num_threads(1)
    assert torch.equal(one.unit_plan, two.unit_plan)
    assert torch.equal(one.f, two.f)
