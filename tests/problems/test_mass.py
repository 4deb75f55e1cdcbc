"""The optimal mass of a plan against brute-force scalar minimization, with linear costs and hard sides, and Lambert's W."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import lambertw

import ugw
from oracles import cases
from oracles.cases import HARD, INF, MASSES, SOFT, Parameters, clouds_of_mass, kl
from ugw.problems.config import PROBLEM_CONFIG
from ugw.problems.mass import lambert, mean_log, product_kl, scaled_kl


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("parameters", SOFT, ids=str)
def test_the_mass_of_a_state_minimizes_the_objective(parameters, mass):
    pair, parameters = clouds_of_mass(parameters, mass), replace(parameters, alpha=parameters.alpha * mass[1])
    unit_plan = cases.random_plan(pair, 1)
    problem = cases.problem(pair, parameters)
    state = problem.state_of_plan(torch.tensor(unit_plan)[None])
    unit = math.sqrt(mass[0] * mass[1])
    minimum = minimize_scalar(
        lambda log_m: cases.value(pair, parameters, math.exp(log_m) * unit_plan),
        bracket=(math.log(unit) - 0.5, math.log(unit)),
        options={"xtol": 1e-12},
    )
    assert state.log_mass.item() == pytest.approx(minimum.x, abs=1e-6)
    best = cases.value(pair, parameters, state.plan[0].numpy())
    assert best == pytest.approx(minimum.fun, rel=1e-12)
    for other in (0.999, 1.001):
        assert cases.value(pair, parameters, other * state.plan[0].numpy()) > best


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("parameters", SOFT[:3], ids=str)
def test_the_optimal_mass_and_value_are_the_closed_form_of_the_paper(parameters, mass):
    # A = F(p,p) − C + R m(p)², s = exp(−A/(2R m(p)²)), F(sp,sp) = C − R s² m(p)².
    pair = clouds_of_mass(parameters, mass)
    plan = cases.random_plan(pair, 1, 0.7)
    (ma, mb), total = mass, parameters.rho1 + parameters.rho2 + parameters.eps
    constant = parameters.rho1 * ma**2 + parameters.rho2 * mb**2 + parameters.eps * (ma * mb) ** 2
    a = cases.value(pair, parameters, plan) - constant + total * plan.sum() ** 2
    s = math.exp(-a / (2 * total * plan.sum() ** 2))
    problem = cases.problem(pair, parameters)
    state = problem.state_of_plan(torch.tensor(plan / plan.sum())[None])
    assert state.log_mass.exp().item() == pytest.approx(s * plan.sum(), rel=1e-11)
    expected = constant - total * (s * plan.sum()) ** 2
    assert problem.objective(state).total.item() == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("parameters", HARD, ids=str)
def test_a_hard_side_fixes_the_mass(parameters):
    pair = clouds_of_mass(parameters, (1.3, 0.6))
    state = cases.problem(pair, parameters).state_of_plan(torch.tensor(cases.random_plan(pair, 1))[None])
    expected = pair.a.sum() if parameters.rho1 == INF else pair.b.sum()
    assert state.log_mass.exp().item() == pytest.approx(expected, rel=1e-14)


def test_lambert_solves_its_equation_and_agrees_with_scipy():
    z = np.concatenate(
        [-np.exp(-1) + np.logspace(-16, -0.5, 40), [0.0], np.logspace(-12, 3, 30), -np.logspace(-12, -1, 9)]
    )
    z = z[z >= -1 / math.e]
    got = lambert(torch.tensor(z)).numpy()
    # Near −1/e the function has a vertical tangent: only the equation holds to full precision there.
    np.testing.assert_allclose(got * np.exp(got), z, rtol=1e-12, atol=1e-15)
    away = z > -1 / math.e + 1e-3
    np.testing.assert_allclose(got[away], lambertw(z[away]).real, rtol=1e-12, atol=1e-300)
    assert (got >= -1.0).all()
    assert lambert(torch.tensor([-1.0, -50.0], dtype=torch.float64)).tolist() == pytest.approx([-1.0, -1.0], abs=1e-6)


def test_a_linear_cost_above_the_gain_of_any_mass_gives_the_status_collapsed():
    # F(m) = m²(…) + m·L + C decreases toward m = 0 for every plan once alpha is large enough.
    pair = cases.clouds(5, 6, 0)
    pair = replace(pair, cost=pair.cost + 1.0)
    parameters = Parameters(0.3, 0.4, 0.05, 30.0)
    for seed in range(3):
        unit_plan = cases.random_plan(pair, seed)
        values = [cases.value(pair, parameters, m * unit_plan) for m in np.logspace(-6, 0, 60)]
        assert np.argmin(values) == 0
    with pytest.warns(ugw.ConvergenceWarning, match="next to no mass"):
        result = cases.solve(pair, parameters)
    assert result.status == ugw.Status.COLLAPSED
    assert result.mass < 1e-6
    nothing = cases.value(pair, parameters, 1e-30 * pair.product)
    assert result.value == pytest.approx(nothing, rel=1e-6)


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
@pytest.mark.parametrize("alpha", [0.1, 0.3, 0.5, 0.8, 1.0, 3.0])
def test_a_fused_plan_has_a_stationary_mass_or_next_to_none(alpha):
    pair = cases.clouds(5, 6, 0)
    pair, parameters = replace(pair, cost=pair.cost + 1.0), Parameters(0.3, 0.4, 0.05, alpha)
    result = cases.solve(pair, parameters)
    assert result.status in (ugw.Status.CONVERGED, ugw.Status.COLLAPSED)
    if result.converged:
        assert all(cases.value(pair, parameters, s * result.plan) > result.value for s in (0.99, 1.01))
    else:
        assert result.mass < 1e-6
    # At the smallest alpha there is a plan of lower objective than the empty one.
    if alpha == 0.1:
        assert result.converged
        assert result.value < cases.value(pair, parameters, 1e-30 * pair.product)


def test_without_an_optimum_the_reported_mass_is_next_to_zero_and_the_iterated_mass_stays_positive():
    pair = cases.clouds(5, 6, 0)
    problem = cases.problem(replace(pair, cost=pair.cost + 1.0), Parameters(0.3, 0.4, 0.05, 30.0))
    unit_plan = cases.random_plan(pair, 1)
    state = problem.state_of_plan(torch.tensor(unit_plan)[None])
    no_mass = problem.mass_rule.min_log_mass.item() + PROBLEM_CONFIG.no_mass_log
    assert state.reported_log_mass.item() == pytest.approx(no_mass)
    # The iterated mass is that of W = −1, one e below the optimal mass without a linear cost.
    free = cases.problem(pair, Parameters(0.3, 0.4, 0.05)).state_of_plan(torch.tensor(unit_plan)[None])
    assert state.log_mass.item() == pytest.approx(free.log_mass.item() - 1.0, abs=1e-6)
    assert state.is_collapsed.tolist() == [True]


def test_divergences_of_scaled_plans_equal_their_definitions():
    rng = np.random.default_rng(0)
    p, q, r = rng.random(6), rng.random(6) * 2.0, rng.random(6) * 3.0
    p[2] = 0.0
    unit_kls = [kl(v / v.sum(), r / r.sum()) for v in (p, q)]
    log_p, log_q, log_r = (torch.tensor(math.log(v.sum()), dtype=torch.float64) for v in (p, q, r))
    assert scaled_kl(unit_kls[0], log_p, log_r).item() == pytest.approx(float(kl(p, r)), rel=1e-12)
    expected = float(kl(np.outer(p, q), np.outer(r, r)))
    assert product_kl(unit_kls[0] + unit_kls[1], log_p + log_q, log_r).item() == pytest.approx(expected, rel=1e-12)


def test_mean_log_ignores_points_without_mass_and_weight():
    marginal, weights = torch.tensor([[0.25, 0.0, 0.75]]), torch.tensor([[0.5, 0.0, 0.5]])
    assert mean_log(marginal, weights.log()).tolist() == pytest.approx([math.log(0.5)])
