"""UGW: every term against the four-index sum, masses against scalar minimization, steps against F(·, q)."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import ugw
from oracles import cases
from oracles.cases import HARD, INF, MASSES, SOFT, Parameters, clouds_of_mass
from ugw.problems.base import hard_marginal_error
from ugw.problems.distortion import squares
from ugw.problems.distortion.incremental import IncrementalDistortion
from ugw.problems.linear import LinearSolution
from ugw.problems.plan_operations import find_product_plans, normalize
from ugw.solvers.sinkhorn import Sinkhorn

TIGHT = Sinkhorn(tol=1e-12, max_iter=5000)


def hard_mass(pair, parameters):
    """Return the mass that a hard side fixes."""
    return pair.a.sum() if parameters.rho1 == INF else pair.b.sum()


# --- the objective ---


@pytest.mark.parametrize("make_plan", [cases.clouds, cases.similarities])
@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("parameters", SOFT + HARD, ids=str)
def test_every_term_equals_its_four_index_sum(parameters, mass, make_plan):
    pair = make_plan(5, 6, 3, mass if parameters.rho != (INF, INF) else (mass[0], mass[0]))
    plan = cases.random_plan(pair, 1, 0.8 * math.sqrt(mass[0] * mass[1]))
    fused = ugw.Fused(parameters.alpha, pair.cost) if parameters.alpha else None
    got = ugw.objective(plan, pair.x, pair.y, rho=parameters.rho, eps=parameters.eps, fused=fused)
    expected = cases.terms(pair, parameters, plan)
    assert set(got.as_dict()) == set(expected)
    for name, term in expected.items():
        assert getattr(got, name) == pytest.approx(float(term), rel=1e-11, abs=1e-13), name
    assert got.total == pytest.approx(sum(map(float, expected.values())), rel=1e-11)
    # None of them is trivially zero.
    assert got.distortion > 0
    assert (got.linear > 0) == (parameters.alpha > 0)
    assert (got.entropy > 0) == (parameters.eps > 0)
    assert (got.marginal_a > 0, got.marginal_b > 0) == (parameters.rho1 < INF, parameters.rho2 < INF)


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("parameters", SOFT + HARD, ids=str)
def test_every_term_of_a_pair_of_plans(parameters, mass):
    pair = clouds_of_mass(parameters, mass, seed=4)
    unit = math.sqrt(mass[0] * mass[1])
    p, q = cases.random_plan(pair, 1, 0.4 * unit), cases.random_plan(pair, 2, 2.5 * unit)
    problem = cases.problem(pair, parameters)
    got = problem.objective(cases.state_of_plan(problem, p), cases.state_of_plan(problem, q))
    for name, term in cases.terms(pair, parameters, p, q).items():
        assert getattr(got, name).item() == pytest.approx(float(term), rel=1e-11, abs=1e-13), name
    back = problem.objective(cases.state_of_plan(problem, q), cases.state_of_plan(problem, p))
    assert back.total.item() == pytest.approx(got.total.item(), rel=1e-12)


def test_zero_entries_of_a_plan_contribute_nothing():
    pair, parameters = cases.clouds(5, 6, 0), Parameters(0.3, 2.0, 0.05)
    plan = cases.random_plan(pair, 1)
    plan[2], plan[:, 3], plan[0, 0] = 0.0, 0.0, 0.0
    got = ugw.objective(plan, pair.x, pair.y, rho=parameters.rho, eps=parameters.eps)
    for name, term in cases.terms(pair, parameters, plan).items():
        assert getattr(got, name) == pytest.approx(float(term), rel=1e-12), name


def test_the_brute_force_objective_equals_the_four_index_sum():
    for parameters in SOFT:
        pair = clouds_of_mass(parameters, (1.3, 0.6))
        plan = cases.random_plan(pair, 1)
        quick = float(cases.value_by_contractions(pair, parameters, torch.tensor(plan)))
        assert quick == pytest.approx(cases.value(pair, parameters, plan), rel=1e-13)


def test_local_cost_is_the_contraction():
    pair = cases.similarities(5, 6, 0)
    plan = cases.random_plan(pair, 1)
    expected = (cases.distortion_tensor(pair).numpy() * plan).sum((2, 3))
    state = cases.state_of_plan(cases.problem(pair, Parameters()), plan)
    np.testing.assert_allclose(state.local_cost[0], expected, rtol=1e-12, atol=1e-14)


def test_scale_is_the_mean_distortion():
    pair = cases.clouds(5, 6, 0, (3.0, 0.2))
    unit = pair.product / pair.product.sum()
    expected = float(cases.terms(pair, Parameters(), unit)["distortion"])
    assert cases.problem(pair, Parameters()).scale().item() == pytest.approx(expected, rel=1e-12)


# --- the linear step ---


def step(pair, parameters, q):
    """The minimizer of F(·, q): the unit_plan that the library finds, with the mass that a scalar search finds."""
    problem = cases.problem(pair, parameters)
    state = cases.state_of_plan(problem, q)
    solution = TIGHT(problem.linearize(state))
    assert solution.residual.item() <= 1e-12
    unit_plan = solution.unit_plan[0].numpy()
    if INF in parameters.rho:
        return unit_plan * hard_mass(pair, parameters)
    # ∂F(m·unit_plan, q)/∂m = 0 is linear in log m.
    slope_at_one = (cases.gradient(pair, parameters, unit_plan, q) * unit_plan).sum()
    total = (parameters.rho1 + parameters.rho2 + parameters.eps) * q.sum()
    return unit_plan * math.exp(-slope_at_one / total)


@pytest.mark.parametrize("mass", MASSES[:2])
@pytest.mark.parametrize("parameters", SOFT[:2] + SOFT[3:] + HARD, ids=str)
def test_a_linear_step_minimizes_f_against_a_fixed_plan(parameters, mass):
    pair = clouds_of_mass(parameters, mass)
    q = cases.random_plan(pair, 7, 0.6 * math.sqrt(mass[0] * mass[1]))
    if parameters.alpha:  # there the mass of q counts; linearize() takes it from the state
        q *= 1.7
    p = step(pair, parameters, q)
    best = cases.value(pair, parameters, p, q)
    # Stationary: the gradient vanishes up to the multipliers of the hard sides.
    left = cases.gradient(pair, parameters, p, q)
    if parameters.rho1 == INF:
        np.testing.assert_allclose(p.sum(1), pair.a, rtol=1e-10)
        left = left - left.mean(1, keepdims=True)
    if parameters.rho2 == INF:
        np.testing.assert_allclose(p.sum(0), pair.b, rtol=1e-10)
        left = left - left.mean(0, keepdims=True)
    assert abs(left).max() < 1e-8 * q.sum()
    # And a minimum, F(·, q) being convex: the entropy alone adds m(q)·eps·Σ p φ(d/p).
    rng = np.random.default_rng(8)
    for size in (1e-2, 0.3):
        for _ in range(10):
            d = rng.uniform(-1, 1, p.shape) * p * size
            if parameters.rho == (INF, INF):
                i, j = rng.choice(5, 2, replace=False), rng.choice(6, 2, replace=False)
                d = np.zeros_like(p)
                d[i, j] = size * p[np.ix_(i, j)].min()
                d[i, j[::-1]] = -d[i, j]
            elif parameters.rho1 == INF:
                d -= p * (d.sum(1) / p.sum(1))[:, None]
            elif parameters.rho2 == INF:
                d -= p * (d.sum(0) / p.sum(0))[None, :]
            bound = 0.4 * q.sum() * parameters.eps * (d**2 / p).sum()
            assert cases.value(pair, parameters, p + d, q) >= best + bound - 1e-12 * abs(best)


@pytest.mark.parametrize("parameters", SOFT[:2], ids=str)
def test_the_unit_plan_of_a_step_does_not_depend_on_the_masses(parameters):
    # The premise of unit-mass shapes: the paper's linear problem at other masses has a solution of the same unit_plan.
    plans = []
    for mass in MASSES:
        pair = clouds_of_mass(parameters, mass)
        q = cases.random_plan(pair, 7, 0.6 * mass[1])
        p = step(pair, parameters, q)
        plans.append(p / p.sum())
    np.testing.assert_allclose(plans[1], plans[0], rtol=1e-9)
    np.testing.assert_allclose(plans[2], plans[0], rtol=1e-9)


@pytest.mark.parametrize("parameters", [SOFT[1], SOFT[3], HARD[0]], ids=str)
def test_a_converged_plan_is_a_fixed_point_of_the_step(parameters):
    pair = clouds_of_mass(parameters, (1.3, 0.6))
    problem = cases.problem(pair, parameters)
    end = cases.state_of_plan(problem, cases.solve(pair, parameters).plan)
    solution = TIGHT(problem.linearize(end))
    np.testing.assert_allclose(solution.unit_plan[0], end.unit_plan[0], atol=1e-7)
    # The constant in the cost keeps the inner solver's numbers near 1, whatever the masses.
    assert abs(solution.log_mass.item()) < math.log(30)
    after = problem.accept(end, solution)
    assert after.log_mass.item() == pytest.approx(end.log_mass.item(), abs=1e-7)


# --- potentials ---


SHARP = [Parameters(1.0, 0.4, 1e-3), Parameters(INF, 0.4, 1e-3), Parameters(1.0, 0.4, 1e-3, 0.3)]  # proximal steps


@pytest.mark.parametrize("mass", MASSES[:2])
@pytest.mark.parametrize("parameters", SOFT[:2] + SOFT[3:] + HARD + SHARP, ids=str)
def test_potentials_are_those_of_the_paper(parameters, mass):
    pair = clouds_of_mass(parameters, mass)
    result = cases.solve(pair, parameters)
    f, g = result.potentials
    p, q = result.plan_pair
    m, cost = q.sum(), cases.full_cost(pair, parameters, q)
    plan = np.outer(pair.a, pair.b) * np.exp((f[:, None] + g[None] - cost) / (m * parameters.eps))
    # A small eps blows up in the exponent how far the pair is from meeting; entries without mass are still falling.
    counts = p > (0 if parameters.eps > 1e-2 else 1e-4)
    assert p[counts].sum() > 0.99 * p.sum()
    np.testing.assert_allclose(plan[counts], p[counts], rtol=1e-8 if parameters.eps > 1e-2 else 1e-4)
    if parameters.rho1 < INF:
        np.testing.assert_allclose(p.sum(1), pair.a * np.exp(-f / (m * parameters.rho1)), rtol=1e-7)
    if parameters.rho2 < INF:
        np.testing.assert_allclose(p.sum(0), pair.b * np.exp(-g / (m * parameters.rho2)), rtol=1e-7)


def test_potentials_at_the_iteration_limit():
    # The plan is still that of its potentials, exactly; only its marginals are not yet theirs.
    pair, parameters = clouds_of_mass(SOFT[1], (1.3, 0.6)), SOFT[1]
    with pytest.warns(ugw.ConvergenceWarning):
        result = cases.solve(pair, parameters, cases.random_plan(pair, 5), max_iter=3)
    f, g = result.potentials
    p, q = result.plan_pair
    assert abs(p - q).sum() > 1e-2
    cost = cases.full_cost(pair, parameters, q)
    plan = np.outer(pair.a, pair.b) * np.exp((f[:, None] + g[None] - cost) / (q.sum() * parameters.eps))
    np.testing.assert_allclose(plan, p, rtol=1e-9)


# --- hard marginals ---


def test_marginal_error_counts_hard_sides_only():
    pair = cases.clouds(5, 6, 0)
    plan = cases.random_plan(pair, 1)
    off_a, off_b = abs(plan.sum(1) - pair.a).sum(), abs(plan.sum(0) - pair.b).sum()
    expected = {(1.0, 1.0): 0.0, (INF, 1.0): off_a, (1.0, INF): off_b, (INF, INF): max(off_a, off_b)}
    for (rho1, rho2), error in expected.items():
        problem = cases.problem(pair, Parameters(rho1, rho2, 0.1))
        assert hard_marginal_error(problem, (cases.state_of_plan(problem, plan)).unit_plan).item() == pytest.approx(
            error, rel=1e-12
        )


# --- first plans, and plans of float32 numbers ---


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("product", [True, False])
def test_the_state_of_a_product_plan_needs_no_matrix_product(monkeypatch, product, dtype):
    pair, calls = cases.clouds(7, 6, 0), []
    double = cases.problem(pair, Parameters(1.0, 0.4, 0.1))
    problem = double.with_spaces(double.x.to(dtype), double.y.to(dtype), None)
    plan = torch.tensor(np.outer(pair.a, pair.b) if product else cases.random_plan(pair, 1)).to(dtype)[None]
    unit_plan, triple_product = normalize(plan), squares.triple_product
    monkeypatch.setattr(squares, "triple_product", lambda *factors: calls.append(0) or triple_product(*factors))
    state = problem.state_of_plan(unit_plan, is_product=find_product_plans(unit_plan))
    assert len(calls) == (0 if product else 1)
    expected = torch.einsum("ijkl,kl->ij", cases.distortion_tensor(pair), unit_plan[0].double())
    np.testing.assert_allclose(
        state.local_cost[0].numpy(), expected, rtol=1e-12 if dtype == torch.float64 else 1e-5, atol=1e-7
    )


def test_the_local_cost_of_a_product_plan_in_a_batch_has_the_closed_form():
    pair = cases.clouds(7, 6, 0)
    problem = cases.problem(pair, Parameters(1.0, 0.4, 0.1)).take(torch.tensor([0, 0]))
    unit_plan = normalize(torch.tensor(np.stack([np.outer(pair.a, pair.b), cases.random_plan(pair, 1)])))
    state = problem.state_of_plan(unit_plan, is_product=find_product_plans(unit_plan))
    closed_form = problem.distortion_sum.apply_to_product_plan(unit_plan.sum(2), unit_plan.sum(1))
    assert torch.equal(state.local_cost[0], closed_form[0])
    assert torch.equal(state.local_cost[1], problem.distortion_sum.apply(unit_plan)[1])


def test_items_of_an_incremental_problem_index_the_metrics_once():
    batch = torch.tensor([0, 0])
    problem = cases.problem(cases.clouds(7, 6, 0), Parameters(1.0, 0.4, 0.1)).take(batch)
    problem = replace(problem, distortion_sum=IncrementalDistortion.of(problem.distortion_sum))
    item = problem.take(torch.tensor([1]))
    assert isinstance(item.distortion_sum, IncrementalDistortion)
    assert item.distortion_sum.dx is item.x.metric
    assert item.distortion_sum.dy is item.y.metric


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_a_value_in_float32_is_that_of_its_plan(metric):
    # Rounding makes the mass of a plan, and the weights, miss 1: what they miss is not to be part of the entropy.
    rng = np.random.default_rng(0)
    points = rng.random((1000, 3)), rng.random((900, 2))
    short, long = ([ugw.Space.from_points(p.astype(kind), metric=metric) for p in points] for kind in ("f4", "f8"))
    inner = Sinkhorn(method="streaming" if metric == "sqeuclidean" else "auto")
    result = ugw.solve(*short, eps=0.3, init="product", solver=ugw.AlternateMin(inner=inner))
    plan = result.plan.dense() if metric == "sqeuclidean" else result.plan
    judged = ugw.objective(plan.astype("f8"), *long, eps=0.3).total
    assert result.value == pytest.approx(judged, rel=3e-7)


# --- costs by changes of the plan ---


def with_incremental_updates(problem):
    """The problem with incremental updates of its local cost."""
    return replace(problem, distortion_sum=IncrementalDistortion.of(problem.distortion_sum))


def make_products_inaccurate(monkeypatch):
    """Make matrix products too large by a thousandth where TF32 is allowed."""
    triple_product = squares.triple_product

    def inaccurate_product(*factors):
        """Return the product with a relative error of 1e-3 where TF32 is allowed."""
        return triple_product(*factors) * (1.001 if torch.backends.cuda.matmul.allow_tf32 else 1.0)

    monkeypatch.setattr(squares, "triple_product", inaccurate_product)


@pytest.mark.parametrize("start", ["product", "near"])
def test_incremental_updates_tolerate_inaccurate_products(monkeypatch, start):
    parameters, solver = Parameters(1.0, 0.4, 0.05), ugw.AlternateMin(tol=1e-8)
    problem = cases.problem(cases.clouds(20, 18, 0), parameters)
    exact = solver(problem, problem.product)
    make_products_inaccurate(monkeypatch)
    first = problem.product if start == "product" else ugw.AlternateMin(tol=1e-2)(problem, problem.product).plan[None]
    result = solver(with_incremental_updates(problem), torch.as_tensor(first))
    assert result.converged
    assert result.value == pytest.approx(exact.value, rel=1e-7), "off by more than float32 rounds a value"
    assert abs(result.plan - exact.plan).sum() < (2e-5 if start == "near" else 1e-3) * exact.mass


def test_after_large_changes_the_local_cost_is_recomputed(monkeypatch):
    problem = with_incremental_updates(cases.problem(cases.clouds(20, 18, 0), Parameters(1.0, 0.4, 0.05)))
    make_products_inaccurate(monkeypatch)
    state = problem.state_of_plan(problem.product)
    other = normalize(problem.product * torch.rand(1, 20, 18, generator=torch.Generator().manual_seed(0)).double())
    for share, is_recomputed in ((0.0005, False), (0.001, False), (0.5, True)):
        unit_plan = torch.lerp(state.unit_plan, other, share)
        new = problem.accept(state, LinearSolution(unit_plan, *[None] * 4))
        off = (new.local_cost - problem.state_of_plan(unit_plan).local_cost).abs().max()
        assert (off == 0) == is_recomputed
        assert off < 1e-5
        assert (new.drift == 0) == is_recomputed
        state = new
