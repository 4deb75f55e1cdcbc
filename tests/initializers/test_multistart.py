"""Starts as one batch: the best result is kept, of equal ones the first, and the rest is unchanged."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import ugw
from oracles.spaces import space, ugw_problem
from ugw.geometry.space import Space
from ugw.initializers import plans as init
from ugw.initializers.config import INITIALIZER_CONFIG
from ugw.initializers.multistart import solve_from_candidates
from ugw.problems.partial.gw import PartialGW
from ugw.results.records import Status

INF = math.inf


def test_the_best_of_its_starts():
    problem = ugw_problem(eps=0.02)
    starts = torch.cat(
        [problem.product[:, None], init.random_anchor_plans(problem, 5, seed=INITIALIZER_CONFIG.multistart_seed)], dim=1
    )
    values = [ugw.AlternateMin()(problem, starts[:, k]).value for k in range(6)]
    assert max(values) > min(values) + 1e-4  # the starts do end in different places
    for n in (1, 6):
        r = ugw.solve(space(), space(7, 3, 1), eps=0.02, init="product", solver=ugw.Multistart(n=n))
        assert r.value == pytest.approx(min(values[:n]), rel=1e-9)


@pytest.mark.parametrize("start", ["flb", "auto"])
def test_never_worse_than_the_start_it_is_given(start):
    alone = ugw.solve(space(), space(7, 3, 1), eps=0.02, init=start)
    r = ugw.solve(space(), space(7, 3, 1), eps=0.02, init=start, solver=ugw.Multistart(n=4))
    assert r.value <= alone.value + 1e-9
    assert not r.batched


def test_one_start_is_the_solver_alone():
    alone = ugw.solve(space(), space(7, 3, 1), eps=0.02, init="flb")
    r = ugw.solve(space(), space(7, 3, 1), eps=0.02, init="flb", solver=ugw.Multistart(n=1))
    assert np.array_equal(r.plan, alone.plan)
    assert r.n_iter == alone.n_iter


def test_it_uses_the_solver_it_holds():
    steps = []
    solver = ugw.Multistart(n=3, solver=ugw.AlternateMin(max_iter=4, callback=steps.append))
    with pytest.warns(ugw.ConvergenceWarning):
        r = ugw.solve(space(), space(7, 3, 1), eps=0.001, init="product", solver=solver)
    assert r.status is Status.MAX_ITER
    assert [s.live for s in steps] == [3, 3, 3, 3]  # one batch


def test_random_starts_are_added_once_for_several_given_plans():
    steps = []
    solver = ugw.Multistart(n=4, solver=ugw.AlternateMin(callback=steps.append))
    problem = ugw_problem(eps=0.02)
    both = torch.cat([problem.product[:, None], init.first_lower_bound_plan(problem)[:, None]], dim=1)
    r = solve_from_candidates(solver, problem, both)
    assert steps[0].live == 2 + 3
    each = [solver(problem, both[:, k]).value for k in range(2)]
    assert r.value == pytest.approx(min(each), rel=1e-9)
    steps.clear()
    ugw.solve(space(), space(7, 3, 1), eps=0.02, solver=solver)
    assert steps[0].live == 1 + 3


def test_ties_go_to_the_first():
    """The same start many times: rounding must not choose among equals."""
    problem = ugw_problem(eps=0.02)
    plan = problem.product
    r = solve_from_candidates(ugw.AlternateMin(), problem, plan[:, None].repeat(1, 4, 1, 1))
    assert r.value == pytest.approx(ugw.AlternateMin()(problem, plan).value, rel=1e-12)
    values = [[1.0 + 5e-10, 1.0, 1.0 - 3e-10], [-2.0, -2.0 - 1e-9, -3.0], [0.5, 0.4, 0.4 - 1e-11]]

    class GivenValues(ugw.AlternateMin):
        """Returns results with these values."""

        def run(self, problem, init, monitor):
            output = super().run(problem, init, monitor).tensors
            zero, totals = torch.zeros(9), torch.tensor(values, dtype=torch.float64).flatten()
            return problem.result(replace(output, terms=type(output.terms)(totals, zero, zero, zero, zero)))

    r = solve_from_candidates(GivenValues(), ugw_problem(rho=np.ones(3), eps=0.02), plan[:, None].repeat(3, 3, 1, 1))
    assert r.value.tolist() == [values[0][0], values[1][2], values[2][1]]


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
def test_a_plan_that_misses_a_hard_marginal_does_not_win_by_its_lower_value():
    x, y = space(), space(7, 3, 1)
    problem = ugw_problem(x, y, rho=INF, eps=0.05)
    # Starts of which one converges in the steps allowed and the others do not.
    alone = ugw.solve(x, y, rho=INF, eps=0.05, init="product")
    near = ugw.solve(x, y, rho=INF, eps=0.05, init="coarse")
    plans = torch.stack([torch.as_tensor(p)[None] for p in (np.eye(6, 7) + 1e-6, near.plan)], dim=1)
    r = solve_from_candidates(ugw.AlternateMin(max_iter=8, tol=1e-5), problem, plans)
    assert r.converged
    assert r.marginal_error < 1e-4
    assert alone.converged


def test_batches_are_item_by_item():
    xs, ys = [space(4, 2, 0), space(6, 2, 1), space(5, 2, 2)], [space(7, 3, 3), space(3, 3, 4), space(4, 3, 5)]
    solver = ugw.Multistart(n=4)
    r = ugw.solve(
        Space.stack(xs), Space.stack(ys), rho=np.array([0.3, 1.0, INF]), eps=0.05, init="product", solver=solver
    )
    assert len(r) == 3
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        alone = ugw.solve(x, y, rho=(0.3, 1.0, INF)[i], eps=0.05, init="product", solver=solver)
        assert r[i].value == pytest.approx(alone.value, rel=1e-9)
        np.testing.assert_allclose(r[i].plan, alone.plan, atol=1e-9)
        assert r[i].n_iter == alone.n_iter


def test_eps_0_with_hard_marginals_compares_the_returned_plans():
    """Frank–Wolfe leads every start to a vertex, and the best is chosen."""
    x = Space.stack([space(4, 2, seed) for seed in range(5)])
    y = Space.stack([space(5, 3, 20 + seed) for seed in range(5)])
    problem = ugw_problem(x, y, rho=INF, eps=0.0)
    starts = torch.cat(
        [problem.product[:, None], init.random_anchor_plans(problem, 2, seed=INITIALIZER_CONFIG.multistart_seed)], dim=1
    )
    quick = ugw.AlternateMin(max_iter=40)
    balanced = PartialGW.balanced(problem)
    values = [
        solve_from_candidates(ugw.FrankWolfe(max_iter=40), balanced, starts[:, k : k + 1]).value for k in range(3)
    ]
    assert np.ptp(values, axis=0).max() > 1e-3
    r = ugw.solve(x, y, rho=INF, eps=0.0, init="product", solver=ugw.Multistart(n=3, solver=quick))
    np.testing.assert_allclose(r.value, np.min(values, axis=0), rtol=1e-9)
    assert r.marginal_error.max() < 1e-12
