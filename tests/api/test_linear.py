"""Linear transport: against POT, linear programs, optimality conditions, and equivalent inputs."""

import itertools

import numpy as np
import ot
import pytest
import scipy.optimize
import torch
from scipy.spatial.distance import cdist

import ugw
from oracles import cases
from oracles.cases import INF
from oracles.errors import assert_refused
from oracles.versions import needs_pot

STREAMING = ugw.AlternateMin(inner=ugw.Sinkhorn(method="streaming"))


def clouds(n=9, m=11, seed=0, mass=(1.3, 0.8)):
    rng = np.random.default_rng(seed)
    x, y = rng.random((n, 2)), rng.random((m, 2)) + 0.1
    a, b = rng.random(n) + 0.2, rng.random(m) + 0.2
    return x, y, a * mass[0] / a.sum(), b * mass[1] / b.sum(), cdist(x, y, "sqeuclidean")


def value(plan, a, b, cost, rho, eps):
    """The objective, sum by sum; a hard side counts for nothing."""
    total = (cost * plan).sum()
    for r, p, w in ((rho[0], plan.sum(1), a), (rho[1], plan.sum(0), b), (eps, plan, np.outer(a, b))):
        total += 0.0 if r in (0.0, INF) else r * float(cases.kl(p, w))
    return total


@needs_pot("0.9.5")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("rho", "eps"), [((1.0, 1.0), 0.05), ((0.1, 2.0), 0.01), ((0.3, INF), 0.02), ((INF, 1.0), 0.02)]
)
def test_entropic_plans_equal_those_of_pot(rho, eps, seed):
    _, _, a, b, cost = clouds(seed=seed)
    result = ugw.solve_linear(a, b, cost=cost, rho=rho, eps=eps)
    theirs = ot.unbalanced.sinkhorn_unbalanced(a, b, cost, eps, rho, numItermax=200_000, stopThr=1e-14)
    np.testing.assert_allclose(result.plan, theirs, atol=2e-7)
    assert result.value == pytest.approx(value(theirs, a, b, cost, rho, eps), rel=1e-9)
    assert result.value == pytest.approx(value(result.plan, a, b, cost, rho, eps), rel=1e-10)
    assert result.terms.linear == pytest.approx((cost * result.plan).sum(), rel=1e-12)


@pytest.mark.parametrize(("rho", "eps"), [((1.0, 0.3), 0.05), ((0.5, INF), 0.02), ((INF, INF), 0.05)])
def test_potentials_make_the_plan_and_its_marginals(rho, eps):
    _, _, a, b, cost = clouds(mass=(1.3, 1.3))
    result = ugw.solve_linear(a, b, cost=cost, rho=rho, eps=eps)
    f, g = result.potentials
    plan = np.outer(a, b) * np.exp((f[:, None] + g - cost) / eps)
    np.testing.assert_allclose(plan, result.plan, rtol=1e-6)
    for r, potential, p, w in ((rho[0], f, plan.sum(1), a), (rho[1], g, plan.sum(0), b)):
        expected = w if r == INF else w * np.exp(-potential / r)
        np.testing.assert_allclose(p, expected, rtol=1e-5)


@pytest.mark.parametrize("rho", [(1.0, 1.0), (0.1, 0.4), (INF, 0.5), (0.5, INF)])
def test_without_entropy_the_plan_satisfies_the_optimality_conditions(rho):
    """At an optimum cost + rho1 log(p1/a) + rho2 log(p2/b) ≥ 0, and = 0 where there is mass; a hard side has any f."""
    _, _, a, b, cost = clouds(seed=1)
    result = ugw.solve_linear(a, b, cost=cost, rho=rho, eps=0.0, solver=ugw.AlternateMin(tol=1e-8, max_iter=20_000))
    p1, p2 = result.plan.sum(1), result.plan.sum(0)
    if rho[0] == INF:
        np.testing.assert_allclose(p1, a, atol=1e-9)
        slack = cost + rho[1] * np.log(p2 / b)
        slack -= slack.min(1, keepdims=True)
    elif rho[1] == INF:
        np.testing.assert_allclose(p2, b, atol=1e-9)
        slack = cost + rho[0] * np.log(p1 / a)[:, None]
        slack -= slack.min(0)
    else:
        slack = cost + rho[0] * np.log(p1 / a)[:, None] + rho[1] * np.log(p2 / b)
        theirs = ot.unbalanced.lbfgsb_unbalanced(a, b, cost, 0, rho, reg_div="kl", numItermax=10_000, stopThr=1e-14)
        assert result.value == pytest.approx(value(theirs, a, b, cost, rho, 0.0), rel=1e-6)
    assert slack.min() > -1e-4
    assert (slack * result.plan).sum() < 1e-5


def test_hard_marginals_are_exact():
    _, _, a, b, cost = clouds(mass=(1.3, 1.3))
    result = ugw.solve_linear(a, b, cost=cost, rho=INF, eps=0.0)
    assert result.value == pytest.approx(ot.emd2(a, b, cost), rel=1e-12)
    assert (result.plan > 0).sum() <= 19
    np.testing.assert_allclose(result.plan.sum(1), a, atol=1e-14)
    np.testing.assert_allclose(result.plan.sum(0), b, atol=1e-14)


@pytest.mark.parametrize("mass", [0.1, 0.5, 0.8])
def test_a_given_mass_is_partial_transport(mass):
    _, _, a, b, cost = clouds()
    result = ugw.solve_linear(a, b, cost=cost, rho=ugw.Mass(mass))
    theirs = (cost * ot.partial.partial_wasserstein(a, b, cost, m=min(mass, b.sum(), a.sum()))).sum()
    assert result.value == pytest.approx(theirs, abs=1e-12)
    assert result.mass == pytest.approx(mass, rel=1e-12)


@pytest.mark.parametrize("rho", [(0.02, 0.02), (0.005, 0.03), (1.0, 1.0)])
def test_total_variation_is_the_linear_program(rho):
    """Over p ≥ 0 with slacks p1 + u = a, p2 + v = b, as scipy solves it."""
    _, _, a, b, cost = clouds(seed=3)
    n, m = cost.shape
    coefficients = np.concatenate([cost.ravel(), np.full(n, rho[0]), np.full(m, rho[1])])
    rows = np.hstack([np.vstack([np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))]), np.eye(n + m)])
    least = scipy.optimize.linprog(coefficients, A_eq=rows, b_eq=np.concatenate([a, b])).fun
    result = ugw.solve_linear(a, b, cost=cost, rho=(ugw.TV(rho[0]), ugw.TV(rho[1])))
    assert result.value == pytest.approx(least, rel=1e-9)
    assert not result.plan[cost > sum(rho)].any()
    assert result.terms.marginal_a == pytest.approx(rho[0] * abs(result.plan.sum(1) - a).sum(), abs=1e-14)


def test_nothing_is_matched_if_every_cost_exceeds_the_penalties():
    result = ugw.solve_linear([[0.0]], [[9.0]], rho=ugw.TV(0.5))
    assert result.converged
    assert result.value == pytest.approx(1.0)
    assert result.mass == 0.0


def test_points_spaces_and_matrices_give_the_same_result():
    x, y, a, b, cost = clouds()
    uniform = ugw.solve_linear(x, y)
    np.testing.assert_allclose(ugw.solve_linear(None, None, cost=cost).plan, uniform.plan, atol=1e-12)
    spaces = [ugw.Space.from_points(p, weights=w) for p, w in ((x, a), (y, b))]
    weighted = ugw.solve_linear(*spaces)
    np.testing.assert_allclose(ugw.solve_linear(a, b, cost=cost).plan, weighted.plan, atol=1e-12)
    np.testing.assert_allclose(ugw.solve_linear(*spaces, cost=cost).plan, weighted.plan, atol=1e-12)
    np.testing.assert_allclose(
        ugw.solve_linear(*spaces, cost="cityblock").plan,
        ugw.solve_linear(a, b, cost=cdist(x, y, "cityblock")).plan,
        atol=1e-12,
    )
    tensors = ugw.solve_linear(torch.tensor(x), torch.tensor(y))
    assert isinstance(tensors.plan, torch.Tensor)
    np.testing.assert_allclose(tensors.plan, uniform.plan, atol=1e-12)
    share = ugw.solve_linear(x, y, eps=ugw.relative(0.1))
    np.testing.assert_allclose(ugw.solve_linear(x, y, eps=0.1 * cost.mean()).plan, share.plan, atol=1e-9)


@pytest.mark.parametrize("kind", ["KL", "TV", "Mass", "hard"])
def test_items_of_a_batch_equal_single_solves(kind):
    problems = [clouds(seed=seed, mass=(1.0, 1.0)) for seed in range(3)]
    a, b, cost = (np.stack([item[k] for item in problems]) for k in (2, 3, 4))
    numbers = np.array([0.05, 0.2, 0.6])
    rho = {"KL": lambda v: v, "TV": ugw.TV, "Mass": ugw.Mass, "hard": lambda v: np.inf + 0 * v}[kind]
    eps = {"KL": np.array([0.05, 0.0, 0.02]), "hard": 0.0}.get(kind, "auto")
    whole = ugw.solve_linear(a, b, cost=cost, rho=rho(numbers), eps=eps)
    points = ugw.solve_linear(
        *(ugw.Space.from_points(np.stack([item[k] for item in problems]), weights=w) for k, w in ((0, a), (1, b))),
        rho=rho(numbers),
        eps=eps,
    )
    np.testing.assert_allclose(points.value, whole.value, rtol=1e-9)
    for i in range(3):
        item_eps = eps[i] if kind == "KL" else eps
        alone = ugw.solve_linear(a[i], b[i], cost=cost[i], rho=rho(numbers[i]), eps=item_eps)
        assert whole[i].value == pytest.approx(alone.value, rel=1e-9)


def test_items_without_entropy_and_with_hard_marginals_are_exact_in_every_batch():
    """Linear programs solve them, whatever solves the other items. The distance in R¹ has many optimal plans."""
    rng = np.random.default_rng(0)
    sizes, rho, eps = [(9, 12), (14, 5), (6, 8)], np.array([INF, INF, 1.0]), np.array([0.0, 0.05, 0.0])
    pairs = [[ugw.Space.from_points(rng.random((n, 1)), weights=cases.clouds(n, 1, n).a) for n in s] for s in sizes]
    stacks = [ugw.Space.stack(list(side)) for side in zip(*pairs, strict=True)]
    whole = ugw.solve_linear(*stacks, cost="euclidean", rho=rho, eps=eps)
    for i, pair in enumerate(pairs):
        alone = ugw.solve_linear(*pair, cost="euclidean", rho=rho[i], eps=eps[i])
        assert whole[i].status is alone.status
        assert whole[i].n_iter == alone.n_iter
        assert whole[i].value == pytest.approx(alone.value, rel=1e-12)
        np.testing.assert_allclose(whole[i].plan, alone.plan, atol=1e-12)
    assert bool(whole.tensors.potentials[0][0].isnan().all())
    assert np.isfinite(whole[1].potentials[0]).all()
    names = [whole.parameters["solver"][i]["name"] for i in range(3)]
    assert (
        names == [item.parameters["solver"]["name"] for item in whole] == ["FrankWolfe", "AlternateMin", "AlternateMin"]
    )
    for solver in (ugw.FrankWolfe(), ugw.AlternateMin(), "quick"):
        message = f"solver must be None for a batch of which linear programs solve only item 0, .* got {type(solver).__name__}"
        assert_refused(ugw.solve_linear, *stacks, rho=rho, eps=eps, solver=solver, match=message)


def test_items_of_a_batch_have_the_parameters_and_messages_of_their_own_solves():
    """Also those that linear programs solve beside others, and items smaller than the matrix of the batch."""
    rng = np.random.default_rng(0)
    sizes = [(4, 5), (6, 3), (5, 5)]
    pairs = [[ugw.Space.from_points(rng.random((n, 2))) for n in size] for size in sizes]
    stacks = [ugw.Space.stack(list(side)) for side in zip(*pairs, strict=True)]
    cost, rho, eps = rng.random((3, 6, 5)), np.array([INF, 1.0, INF]), np.array([0.0, 0.1, 0.1])
    whole = ugw.solve_linear(*stacks, cost=cost, rho=rho, eps=eps)
    for i, (n, m) in enumerate(sizes):
        alone = ugw.solve_linear(*pairs[i], cost=cost[i, :n, :m], rho=rho[i], eps=eps[i])
        assert whole[i].parameters == alone.parameters
        assert whole[i].message == alone.message
        assert whole[i].better(alone).value == pytest.approx(alone.value, rel=1e-9)
    assert "converged" in whole.message
    again = type(whole).from_arrays(whole.to_arrays())
    assert again[1].parameters == whole[1].parameters


def test_a_callback_stops_the_items_of_all_sizes():
    rng = np.random.default_rng(0)
    spaces = ugw.Space.stack([ugw.Space.from_points(rng.random((n, 2))) for n in (5, 120)])
    with pytest.warns(ugw.ConvergenceWarning, match="callback stopped"):
        stopped = ugw.solve_linear(spaces, spaces, solver=ugw.AlternateMin(callback=lambda step: True))
    assert {status.name for status in stopped.status} == {"STOPPED"}


def test_masses_and_costs_scale():
    """Twice the weights: twice the plan where there is no entropy; a constant in the cost of a hard problem is added to the value."""
    _, _, a, b, cost = clouds(mass=(1.0, 1.0))
    for rho in (0.3, ugw.TV(0.05)):
        one, two = (ugw.solve_linear(s * a, s * b, cost=cost, rho=rho, eps=0.0).value for s in (1.0, 2.0))
        assert two == pytest.approx(2 * one, rel=1e-6)
    for rho, unit in itertools.product((ugw.TV, lambda _: ugw.Mass(0.4), lambda _: INF), (1e-12, 1e12)):
        one, other = (ugw.solve_linear(a, b, cost=c * cost, rho=rho(0.05 * c), eps=0.0).value for c in (1.0, unit))
        assert other / unit == pytest.approx(one, rel=1e-9)
    low, high = (ugw.solve_linear(a, b, cost=cost + c, rho=INF, eps=0.05).value for c in (0.0, 100.0))
    assert high - low == pytest.approx(100.0, rel=1e-9)


def test_invalid_arguments_are_refused():
    x, y, a, b, cost = clouds()
    space = ugw.Space.from_distances(1 - np.eye(9), weights=a)
    for args, options, message in (
        ((a, b), {"cost": cost[:, :5]}, "cost must have shape"),
        ((a, b), {"cost": cost * np.nan}, "cost must be finite"),
        ((a, b), {"cost": cost[0]}, "must be a matrix"),
        ((x, y[:, :1]), {}, "points of one dimension"),
        ((space, space), {}, "needs spaces with points"),
        ((x, y), {"cost": "nonsense"}, "metric must be"),
        ((a, b), {"cost": cost, "rho": INF}, "equal masses"),
        ((a, b), {"cost": cost, "rho": ugw.Mass(0.9)}, "smaller of both masses"),
        ((a, b), {"cost": cost, "rho": ugw.TV(1.0), "eps": 0.1}, "eps must be 0"),
        ((a, b), {"cost": cost, "rho": ugw.TV(1.0), "eps": ugw.relative(0.1)}, "eps must be 0"),
        ((a, b), {"cost": -cost, "eps": ugw.relative(0.1)}, "positive mean cost"),
        ((a, b), {"cost": cost, "eps": None}, 'eps must be a number, a relative eps or "auto", got None'),
        ((a, b), {"cost": cost, "rho": ugw.TV(1.0), "eps": None}, '"auto", got None'),
        ((a, b), {"cost": cost, "solver": ugw.FrankWolfe()}, "must be an AlternateMin for KL .* got FrankWolfe"),
        ((a, b), {"cost": cost, "solver": "quick"}, "must be an AlternateMin for KL .* got str"),
        ((a, b), {"cost": cost, "solver": ugw.Multistart()}, "got Multistart"),
        ((a, b), {"cost": cost, "rho": ugw.TV(1.0), "solver": ugw.AlternateMin()}, "must be a FrankWolfe for TV"),
        ((a, a), {"cost": cost[:, :9], "rho": INF, "eps": 0.0, "solver": ugw.AlternateMin()}, "got AlternateMin"),
        ((a, b), {"cost": cost, "solver": STREAMING}, 'solve_linear stores its plans: .* got "streaming"'),
        ((np.ones((2, 9)), b), {"cost": cost, "rho": np.ones(3)}, "batch sizes must agree"),
    ):
        with pytest.raises(ugw.InputError, match=message):
            ugw.solve_linear(*args, **options)


def test_options_that_are_not_given_are_those_of_linear_problems():
    rng = np.random.default_rng(0)
    a, b = rng.random((8, 2)), rng.random((9, 2))
    result = ugw.solve_linear(a, b, eps=1e-3, solver=ugw.AlternateMin(tol=1e-6)).parameters["solver"]
    default = ugw.solve_linear(a, b, eps=1e-3).parameters["solver"]
    assert result["tol"] == 1e-6
    assert result["proximal"] == default["proximal"]
    assert result["inner"]["max_iter"] == default["inner"]["max_iter"]


def test_a_solver_without_options_is_the_default_solver():
    rng = np.random.default_rng(0)
    a, b = rng.random((8, 2)), rng.random((9, 2))
    result = ugw.solve_linear(a, b, eps=1e-3, solver=ugw.AlternateMin())
    default = ugw.solve_linear(a, b, eps=1e-3)
    assert result.parameters == default.parameters
    assert default.parameters["solver"]["tol"] == 1e-7
    assert result.value == default.value


def test_batches_of_different_sizes_are_refused():
    for x, y in ((np.ones((2, 4, 2)), np.ones((3, 4, 2))), (np.ones((3, 4, 2)), np.ones((2, 5, 2)))):
        assert_refused(
            ugw.solve_linear, x, y, match=f"batch sizes must agree, got the first side {len(x)}, the second side"
        )


def kinds(value):
    """An array, and the tensor of the same values."""
    return value, torch.as_tensor(value)


def test_results_hold_tensors_as_soon_as_one_input_is_a_tensor():
    x, y, a, b, cost = clouds(5, 4)
    for inputs in itertools.product(kinds(x), kinds(y)):
        is_torch = any(isinstance(v, torch.Tensor) for v in inputs)
        for given in (inputs, [ugw.Space.from_points(p) for p in inputs]):
            assert isinstance(ugw.solve_linear(*given).plan, torch.Tensor) == is_torch
    spaces = [[ugw.Space.from_points(p, weights=w) for p in kinds(points)] for points, w in ((x, a), (y, b))]
    for sides in ((kinds(a), kinds(b)), spaces, ((None,), (None,))):
        for first, second, matrix in itertools.product(*sides, kinds(cost)):
            types = [type(v.distances if isinstance(v, ugw.Space) else v) for v in (first, second, matrix)]
            plan = ugw.solve_linear(first, second, cost=matrix).plan
            assert isinstance(plan, torch.Tensor) == (torch.Tensor in types)


def test_parameters_are_those_of_the_caller():
    x, y, *_, cost = clouds(4, 4)
    exact = ugw.solve_linear(x, y, rho=INF, eps=0.0).parameters
    assert (exact["divergence"], exact["rho"], exact["eps"], exact["cost"]) == ("KL", [INF, INF], 0.0, "sqeuclidean")
    assert "mass" not in exact
    batch = ugw.solve_linear(x[None], y[None], rho=INF, eps=0.0, cost="euclidean")
    assert batch[0].parameters["rho"] == [INF, INF]
    assert batch.parameters["cost"] == "euclidean"
    assert (
        ugw.solve_linear(None, None, cost=cost.tolist(), rho=(1.0, 2.0)).parameters["cost"] == "array of shape (4, 4)"
    )
    assert ugw.solve_linear(x, y, rho=ugw.Mass(0.5)).parameters["mass"] == 0.5
    assert ugw.solve_linear(x, y, rho=(ugw.TV(0.5), ugw.TV(0.6))).parameters["rho"] == [0.5, 0.6]
