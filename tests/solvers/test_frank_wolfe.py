"""Frank–Wolfe for eps = 0 with both marginals hard: against POT, a fine grid, and linear programs."""

import numpy as np
import ot
import pytest
import torch

import ugw
from oracles import cases
from oracles.cases import INF, Parameters
from ugw.problems.build import build_ugw
from ugw.problems.partial.gw import PartialGW
from ugw.solvers.frank_wolfe import FrankWolfe

PLAIN, FUSED = Parameters(INF, INF, 0.0), Parameters(INF, INF, 0.0, 0.6)


def solve_balanced(pair, parameters, start, **options):
    """Return the result of Frank–Wolfe for balanced GW from a plan (n, m)."""
    return FrankWolfe(**options)(PartialGW.balanced(cases.problem(pair, parameters)), torch.tensor(start)[None])


def pot_plan(pair, start, alpha):
    """Return the plan (n, m) of POT's conditional gradient from the same start; its fused weight is 1/(1 + alpha)."""
    share = 1 / (1 + alpha)
    options = {"G0": start, "max_iter": 1000, "tol_rel": 1e-12, "tol_abs": 1e-12}
    if not alpha:
        return ot.gromov.gromov_wasserstein(pair.dx, pair.dy, pair.a, pair.b, "square_loss", **options)
    args = pair.cost, pair.dx, pair.dy, pair.a, pair.b, "square_loss"
    return ot.gromov.fused_gromov_wasserstein(*args, alpha=share, **options)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("parameters", [PLAIN, FUSED], ids=["plain", "fused"])
def test_equal_to_pot_or_better_from_the_same_start(parameters, seed):
    pair = cases.clouds(8, 9, seed)
    start = np.outer(pair.a, pair.b) if seed == 0 else cases.hard_plan(pair, seed)
    theirs = cases.value(pair, parameters, pot_plan(pair, start, parameters.alpha))
    ours = solve_balanced(pair, parameters, start)
    value = cases.value(pair, parameters, ours.plan)
    assert ours.value == pytest.approx(value, rel=1e-11)
    assert ours.converged
    assert value <= theirs + 1e-9
    assert value < cases.value(pair, parameters, start) - 1e-3


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("parameters", [PLAIN, FUSED], ids=["plain", "fused"])
def test_solve_is_not_worse_than_pot(parameters, seed):
    pair = cases.clouds(6, 7, seed)
    fused = ugw.Fused(parameters.alpha, pair.cost) if parameters.alpha else None
    result = ugw.solve(pair.x, pair.y, rho=INF, eps=0.0, fused=fused)
    theirs = cases.value(pair, parameters, pot_plan(pair, np.outer(pair.a, pair.b), parameters.alpha))
    assert result.converged
    assert result.value <= theirs + 1e-9
    assert result.terms.entropy == result.terms.marginal_a == result.terms.marginal_b == 0.0


@pytest.mark.parametrize("mass", [1.3, 1e-3])
def test_marginals_are_exact(mass):
    pair = cases.clouds(8, 9, 3, (mass, mass))
    start = cases.random_plan(pair, 2)  # far from the marginals, and of another mass
    for result in (solve_balanced(pair, PLAIN, start), ugw.solve(pair.x, pair.y, rho=INF, eps=0.0, init=start)):
        plan = np.asarray(result.plan).reshape(8, 9)
        np.testing.assert_allclose(plan.sum(1), pair.a, rtol=0, atol=1e-12 * mass)
        np.testing.assert_allclose(plan.sum(0), pair.b, rtol=0, atol=1e-12 * mass)
        assert plan.min() >= 0
        assert float(np.max(result.marginal_error)) < 1e-12


@pytest.mark.parametrize("parameters", [PLAIN, FUSED], ids=["plain", "fused"])
@pytest.mark.parametrize("make_pair", [cases.clouds, cases.similarities])
def test_the_line_search_is_exact(make_pair, parameters):
    inside = 0
    for seed in range(4):
        pair = make_pair(6, 7, seed, (1.3, 1.3))
        start = cases.hard_plan(pair, seed)
        step = solve_balanced(pair, parameters, start, max_iter=1)
        end = np.asarray(step.plan).reshape(6, 7)
        vertex = ot.emd(pair.a, pair.b, cases.gradient(pair, parameters, start))
        grid = np.linspace(0, 1, 401)
        values = [cases.value(pair, parameters, start + t * (vertex - start)) for t in grid]
        got = cases.value(pair, parameters, end)
        assert got <= min(values) + 1e-12
        assert got >= min(values) - 1e-5  # nothing off the segment
        t = ((end - start) * (vertex - start)).sum() / ((vertex - start) ** 2).sum()
        np.testing.assert_allclose(end, start + t * (vertex - start), atol=1e-12)
        assert abs(t - grid[np.argmin(values)]) < 3e-3
        inside += 0.01 < t < 0.99
    assert inside or make_pair is cases.clouds  # a step that ends inside the segment occurs


@pytest.mark.parametrize("parameters", [PLAIN, FUSED], ids=["plain", "fused"])
def test_the_objective_falls_and_no_vertex_improves_the_end(parameters):
    pair = cases.similarities(7, 8, 1, (1.3, 1.3))
    result = solve_balanced(pair, parameters, cases.hard_plan(pair, 1))
    objective = result.tensors.trace[0, :, 0].numpy()
    assert result.converged
    assert len(objective) > 3
    assert np.diff(objective).max() <= 1e-14
    plan = np.asarray(result.plan).reshape(7, 8)
    slope = 2 * cases.gradient(pair, parameters, plan)
    vertex = ot.emd(pair.a, pair.b, slope)
    scale = float(cases.problem(pair, parameters).scale()) * 1.3**2
    assert (slope * (plan - vertex)).sum() <= 1e-8 * scale


def test_the_iteration_limit_is_a_status():
    pair = cases.similarities(7, 8, 3)
    result = solve_balanced(pair, PLAIN, cases.hard_plan(pair, 1), max_iter=2)
    assert result.status == ugw.Status.MAX_ITER
    assert result.tensors.residual.item() > 1e-6


def test_the_residual_does_not_depend_on_units():
    """It is the gap as a share of the product plan's objective, whatever the lengths and masses."""
    points = [np.random.default_rng(seed).random((7, 2)) for seed in (0, 1)]
    ends = []
    for length, mass in ((1.0, 1.0), (1e3, 20.0)):
        x, y = (ugw.Space.from_points(length * p, weights=np.full(7, mass / 7)) for p in points)
        problem = build_ugw(x, y, rho=INF, eps=0.0, fused=None)
        balanced = PartialGW.balanced(problem)
        ends.append(FrankWolfe(max_iter=1)(balanced, problem.product))
        slope = 2 * problem.linearize(problem.state_of_plan(problem.product)).cost
        vertex = balanced.linear_minimizer(balanced.state_of_plan(problem.product))
        gap = (slope * (problem.product - vertex)).sum() / problem.scale()
        assert ends[-1].tensors.residual.item() == pytest.approx(gap.item(), rel=1e-9)
    assert ends[0].tensors.residual.item() == pytest.approx(ends[1].tensors.residual.item(), rel=1e-9)
    assert ends[0].tensors.residual.item() > 1e-3


def test_zero_weights_are_left_out():
    pair = cases.clouds(8, 9, 1)
    a, b = pair.a.copy(), pair.b.copy()
    a[2] = b[4] = 0.0
    pair = cases.Pair(pair.dx, a / a.sum(), pair.dy, b / b.sum())
    result = ugw.solve(pair.x, pair.y, rho=INF, eps=0.0, init="product")
    assert result.plan[2].max() == result.plan[:, 4].max() == 0.0
    np.testing.assert_allclose(result.plan.sum(1), pair.a, atol=1e-12)
    keep = np.ix_(a > 0, a > 0), np.ix_(b > 0, b > 0)
    rest = cases.Pair(pair.dx[keep[0]], pair.a[a > 0], pair.dy[keep[1]], pair.b[b > 0])
    assert ugw.solve(rest.x, rest.y, rho=INF, eps=0.0, init="product").value == pytest.approx(result.value, rel=1e-9)


def test_only_items_without_entropy_and_with_hard_marginals_take_its_steps():
    pairs = [cases.clouds(6, 7, seed) for seed in range(3)]
    x, y = (ugw.Space.stack([getattr(pair, side) for pair in pairs]) for side in "xy")
    rho, eps = np.array([INF, 1.0, INF]), np.array([0.0, 0.0, 0.05])
    whole = ugw.solve(x, y, rho=rho, eps=eps, init="product")
    for i, pair in enumerate(pairs):
        alone = ugw.solve(pair.x, pair.y, rho=rho[i], eps=eps[i], init="product")
        assert whole[i].value == pytest.approx(alone.value, rel=1e-8)
        assert whole[i].n_iter == alone.n_iter == len(whole[i].history)
        np.testing.assert_allclose(whole[i].plan, alone.plan, atol=1e-6)
    assert abs(whole[0].plan.sum(1) - pairs[0].a).max() < 1e-13
    assert (whole[0].plan > 1e-9).sum() <= 12
    assert (whole[2].plan > 1e-9).sum() > 20


@pytest.mark.parametrize("parameters", [PLAIN, FUSED], ids=["plain", "fused"])
def test_no_swap_of_two_pairs_improves_the_end(parameters):
    """Distances that are integers have vertices that no linear step improves, and a swap does."""
    n_swaps = 0
    for seed in range(6):
        pair = cases.integer_distances(7, 8, seed)
        result = solve_balanced(pair, parameters, np.outer(pair.a, pair.b))
        assert result.converged
        plan = np.asarray(result.plan).reshape(7, 8)
        best = min(cases.value(pair, parameters, other) for other in cases.swapped_plans(plan))
        assert best >= cases.value(pair, parameters, plan) - 1e-9
        n_swaps += int((np.asarray(result.tensors.trace[0, :-1, 3]) < 1e-9).sum())  # steps with a gap of zero
    assert n_swaps > 0
