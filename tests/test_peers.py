"""Comparison with POT and the paper's package, and the invariants that these libraries test."""

import numpy as np
import ot
import pytest
import torch
from unbalancedgw.vanilla_ugw_solver import log_ugw_sinkhorn

import ugw
from oracles import cases
from oracles.cases import INF, Parameters

CLOSE = 1e-6  # in objective


def pot_plan(pair, parameters, start, **options):
    """POT's plan and reported cost, with the settings for which its objective is that of ugw."""
    options = {
        "unbalanced_solver": "sinkhorn_log" if parameters.eps else "mm",
        "max_iter": 3000,
        "tol": 1e-8,
        "max_iter_ot": 3000,
        "tol_ot": 1e-8 / (parameters.eps or 1.0),
    } | options
    plan, _, log = ot.gromov.fused_unbalanced_gromov_wasserstein(
        pair.dx, pair.dy, pair.a, pair.b, reg_marginals=parameters.rho, epsilon=parameters.eps, divergence="kl",
        alpha=parameters.alpha, M=pair.cost if parameters.alpha else None, init_pi=start, log=True, **options,
    )  # fmt: skip
    return plan, log["fugw_cost"]


def paper_plan(pair, parameters, start):
    """The plan of the paper's log solver, for equal rhos because it exchanges them."""
    assert parameters.rho1 == parameters.rho2
    a, dx, b, dy, init = (torch.tensor(v) for v in (pair.a, pair.dx, pair.b, pair.dy, start))
    return log_ugw_sinkhorn(
        a, dx, b, dy, init=init, eps=parameters.eps, rho=parameters.rho1, rho2=parameters.rho2, nits_plan=3000, tol_plan=1e-7,
        nits_sinkhorn=3000, tol_sinkhorn=1e-9,
    ).numpy()  # fmt: skip


def compare(pair, parameters, start, plan):
    """Our default solver from the same start ends at the same objective and, nearly, the same plan."""
    fused = ugw.Fused(parameters.alpha, pair.cost) if parameters.alpha else None
    result = ugw.solve(pair.x, pair.y, rho=parameters.rho, eps=parameters.eps, fused=fused, init=start)
    theirs = cases.value(pair, parameters, plan)
    scale = max(1.0, theirs)
    assert result.value == pytest.approx(theirs, abs=CLOSE * scale)
    assert cases.value(pair, parameters, result.plan) == pytest.approx(theirs, abs=CLOSE * scale)
    assert abs(result.plan - plan).sum() < 1e-3 * plan.sum()
    # A different problem would not pass: a rho or eps 2 % off moves the value by more than that.
    for name in ("rho1", "rho2", "eps"):
        other = Parameters(**(vars(parameters) | {name: 1.02 * getattr(parameters, name)}))
        assert abs(cases.value(pair, other, plan) - theirs) > 10 * CLOSE * scale


@pytest.mark.parametrize("start", ["product", "random"])
@pytest.mark.parametrize("mass", [(1.0, 1.0), (3.0, 0.7)])
@pytest.mark.parametrize(
    "parameters",
    [
        Parameters(1.0, 1.0, 0.05),
        Parameters(0.1, 0.1, 0.02),
        Parameters(0.3, 2.0, 0.05),
        Parameters(0.3, 0.5, 0.02, 0.4),
    ],
    ids=str,
)
def test_pot(parameters, mass, start):
    pair = cases.clouds(12, 15, 1, mass)
    first = pair.product if start == "product" else cases.random_plan(pair, 5)
    plan, cost = pot_plan(pair, parameters, first)
    assert cost == pytest.approx(cases.value(pair, parameters, plan), rel=1e-6)  # so its objective is ours, fused too
    compare(pair, parameters, first, plan)


@pytest.mark.parametrize("start", ["product", "random"])
@pytest.mark.parametrize("mass", [(1.0, 1.0), (3.0, 0.7)])
@pytest.mark.parametrize("parameters", [Parameters(1.0, 1.0, 0.05), Parameters(0.1, 0.1, 0.02)], ids=str)
def test_the_paper_s_package(parameters, mass, start):
    pair = cases.clouds(12, 15, 1, mass)
    first = pair.product if start == "product" else cases.random_plan(pair, 5)
    compare(pair, parameters, first, paper_plan(pair, parameters, first))


def test_the_paper_s_package_with_hard_sides():
    pair, parameters = cases.clouds(8, 9, 2), Parameters(INF, INF, 0.1)
    plan = paper_plan(pair, parameters, pair.product)
    result = ugw.solve(pair.x, pair.y, rho=INF, eps=parameters.eps, init="product")
    assert result.terms.distortion == pytest.approx(float(cases.terms(pair, parameters, plan)["distortion"]), abs=CLOSE)
    assert abs(result.plan - plan).sum() < 1e-4


def test_starts_by_name_are_the_documented_plans():
    pair, parameters = cases.clouds(12, 15, 1, (3.0, 0.7)), Parameters(0.3, 2.0, 0.05)
    by_name, by_plan = (
        ugw.solve(pair.x, pair.y, rho=parameters.rho, eps=parameters.eps, init=init)
        for init in ("product", pair.product)
    )
    np.testing.assert_allclose(by_name.plan, by_plan.plan, rtol=1e-9)
    # The mass of a start does not matter, only its shape.
    heavy = ugw.solve(pair.x, pair.y, rho=parameters.rho, eps=parameters.eps, init=1e3 * pair.product)
    np.testing.assert_allclose(heavy.plan, by_plan.plan, rtol=1e-9)


# --- what POT tests of itself ---


def mirrored_pair(n=5):
    """POT's sanity case: xt = xs reversed, distances over their maximum, features that say the same."""
    xs = np.random.RandomState(4).normal(size=(n, 2))
    dx, dy = (ot.dist(v, v) for v in (xs, xs[::-1]))
    w = np.full(n, 1 / n)
    return cases.Pair(dx / dx.max(), w, dy / dy.max(), w, np.ones((n, n)) - np.fliplr(np.eye(n)))


@pytest.mark.parametrize("fused", [0.0, 0.5])
@pytest.mark.parametrize("rho", [(100.0, 50.0), (1.0, 2.0), (INF, 50.0), (INF, INF)])
def test_sanity(rho, fused):
    pair = mirrored_pair()
    linear = ugw.Fused(fused, pair.cost) if fused else None
    result = ugw.solve(pair.x, pair.y, rho=rho, eps=0.0, fused=linear)
    np.testing.assert_allclose(result.plan, np.fliplr(np.eye(5)) / 5, atol=1e-6)
    assert result.value == pytest.approx(0.0, abs=1e-8)


def test_a_rho_in_every_spelling():
    pair = mirrored_pair()
    values = [
        ugw.solve(pair.x, pair.y, rho=rho, eps=0.05, init="product").value
        for rho in (2.0, 2, np.float32(2.0), (2.0, 2.0), ugw.KL(2.0), (ugw.KL(2.0), 2.0))
    ]
    assert len(set(values)) == 1


def test_no_weights_are_uniform_weights():
    rng = np.random.default_rng(0)
    points, other = rng.random((6, 2)), rng.random((7, 2))
    parameters = [np.full(6, 1 / 6), np.full(7, 1 / 7)]
    results = []
    for a, b in ((None, None), parameters):
        x, y = ugw.Space.from_points(points, weights=a), ugw.Space.from_points(other, weights=b)
        results.append(ugw.solve(x, y, eps=0.05, init="product"))
    assert results[0].value == results[1].value


# --- what fugw and OTT test of themselves ---


@pytest.mark.parametrize(
    "parameters", [Parameters(0.3, 2.0, 0.05, 0.4), Parameters(INF, 2.0, 0.05), Parameters(0.3, 2.0, 0.0)], ids=str
)
def test_terms_sum_to_the_value_and_the_loss_falls(parameters):
    pair = cases.clouds(7, 8, 0, (1.3, 0.6))
    fused = ugw.Fused(parameters.alpha, pair.cost) if parameters.alpha else None
    result = ugw.solve(pair.x, pair.y, rho=parameters.rho, eps=parameters.eps, fused=fused, init="product")
    assert sum(result.terms.as_dict().values()) == pytest.approx(result.value, rel=1e-12)
    loss = result.history.objective
    assert loss[-1] < loss[0]
    # Inner loops are inexact on purpose. With soft sides no step gives anything back; a plan that does not meet
    # a hard marginal yet may lie below the value it will have when it does.
    slack = 1e-2 if INF in parameters.rho else 1e-8
    rises = np.diff(loss) > slack * (loss[0] - loss[-1])
    # At eps = 0 a converged plan is perturbed once, and the run ends if it converges again.
    assert rises.sum() <= (parameters.eps == 0)
    assert result.plan.shape == (7, 8)
    if parameters.eps:
        assert [len(v) for v in result.potentials] == [7, 8]


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
@pytest.mark.parametrize("rho", [(0.05, 0.05), (0.4, 0.9), (100.0, 0.5), (1.0, INF), (INF, 0.01)])
@pytest.mark.parametrize("eps", [0.1, 1e-3, 0.0])
def test_no_nan(rho, eps):
    # OTT's list: uneven taus, one side balanced, zero weights; a peer gives NaN at rho = eps = .1.
    pair = cases.clouds(6, 7, 3, (1.0, 1.0))
    a, b = pair.a.copy(), pair.b.copy()
    a[1] = b[0] = b[5] = 0.0
    x, y = ugw.Space.from_matrix(pair.dx, weights=a), ugw.Space.from_matrix(pair.dy, weights=b)
    result = ugw.solve(x, y, rho=rho, eps=eps, init="product", solver=ugw.AlternateMin(max_iter=60))
    for numbers in (result.plan, result.value, *result.terms.as_dict().values(), result.marginals[0], result.gap):
        assert np.isfinite(numbers).all()
    assert np.isfinite(result.history.objective).all()
    assert result.plan.min() >= 0
    if eps:
        assert np.isfinite(result.potentials[0]).all()
        assert np.isfinite(result.potentials[1]).all()


def test_nearly_balanced_is_nearly_balanced():
    # OTT: tau → 1 meets the balanced plan in mass and in primal cost.
    pair = cases.clouds(6, 7, 0)
    hard = ugw.solve(pair.x, pair.y, rho=INF, eps=0.05, init="product")
    soft = ugw.solve(pair.x, pair.y, rho=500.0, eps=0.05, init="product")
    assert soft.mass == pytest.approx(1.0, abs=1e-3)
    assert soft.terms.distortion == pytest.approx(hard.terms.distortion, rel=1e-2)


def test_float32_is_float64_within_its_digits():
    pair, parameters = cases.clouds(12, 15, 1, (3.0, 0.7)), Parameters(0.3, 2.0, 0.05)
    wide = ugw.solve(pair.x, pair.y, rho=parameters.rho, eps=parameters.eps, init="product")
    narrow = ugw.solve(
        pair.x.to(torch.float32), pair.y.to(torch.float32), rho=parameters.rho, eps=parameters.eps, init="product",
        solver=ugw.AlternateMin(tol=1e-5),
    )  # fmt: skip
    assert narrow.plan.dtype == np.float32
    assert narrow.value == pytest.approx(wide.value, rel=1e-4)
    assert abs(narrow.plan - wide.plan).sum() < 1e-3 * wide.mass
