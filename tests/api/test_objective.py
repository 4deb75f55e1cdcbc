"""`objective` of any plan against the four-index sum; bad plans."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ugw
from oracles import cases
from oracles.cases import INF
from oracles.errors import assert_refused
from oracles.spaces import pair, space
from ugw.geometry.space import Space

PLAN = np.random.default_rng(2).random((6, 7)) + 0.1


def test_objective_of_the_plan_is_the_value_term_by_term():
    x, y = pair(mass=1.7)
    rho = np.array([1.0, 0.3, INF, INF, 0.5]), np.array([1.0, 2.0, INF, 0.5, INF])
    options = {"rho": rho, "eps": np.array([0.1, 0.0, 0.15, 0.1, 0.0])}
    options["fused"] = ugw.Fused(0.3, PLAN)
    r = ugw.solve(x, y, init="product", solver=ugw.AlternateMin(max_iter=100), **options)
    terms = ugw.objective(r.plan, x, y, **options)
    np.testing.assert_allclose(terms.total, r.value, rtol=1e-12)
    for name, term in terms.as_dict().items():
        np.testing.assert_allclose(term, getattr(r.terms, name), rtol=1e-9, atol=1e-12)


@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 10**6),
    st.sampled_from([0.1, 1.0, 30.0]),
    st.sampled_from([(0.2, 1.0), (1.0, 0.7), (INF, 0.7), (0.7, INF)]),
    st.sampled_from([0.0, 0.3]),
)
def test_objective_equals_the_four_index_sum(n, m, seed, mass, rho, eps):
    rho1, rho2 = rho
    data = cases.clouds(n, m, seed, mass=(mass, 0.6))
    parameters = cases.Parameters(rho1, rho2, eps, alpha=0.4)
    plan = cases.random_plan(data, seed, mass=1.3)
    terms = ugw.objective(plan, data.x, data.y, rho=rho, eps=eps, fused=ugw.Fused(0.4, data.cost))
    for name, expected in cases.terms(data, parameters, plan).items():
        assert getattr(terms, name) == pytest.approx(float(expected), rel=1e-9, abs=1e-9)


def test_objective_of_a_batch_is_the_objective_of_its_items():
    xs, ys = [space(5, 2, 0), space(4, 2, 1), space(6, 2, 2)], [space(3, 2, 3), space(4, 2, 4), space(7, 2, 5)]
    plans = [np.outer(x.weights, y.weights) for x, y in zip(xs, ys, strict=True)]
    padded = np.zeros((3, 6, 7))
    for i, plan in enumerate(plans):
        padded[i, : plan.shape[0], : plan.shape[1]] = plan
    terms = ugw.objective(padded, Space.stack(xs), Space.stack(ys), rho=np.array([0.5, 1.0, 2.0]))
    for i, rho in enumerate((0.5, 1.0, 2.0)):
        alone = ugw.objective(plans[i], xs[i], ys[i], rho=rho)
        assert terms.total[i] == pytest.approx(alone.total, rel=1e-12)
        assert terms.distortion[i] == pytest.approx(alone.distortion, rel=1e-12)


def test_objective_of_the_zero_plan_is_the_penalty_of_all_mass():
    x, y = space(5, 2, 0, mass=2.0), space(4, 2, 1, mass=3.0)
    terms = ugw.objective(np.zeros((5, 4)), x, y, rho=(0.5, 0.25), eps=0.1)
    assert terms.total == pytest.approx(0.5 * 4.0 + 0.25 * 9.0 + 0.1 * 36.0)


@pytest.mark.parametrize("bad", [PLAN.T, -PLAN, PLAN * math.nan, "auto", None])
def test_objective_refuses_bad_plans_by_their_name(bad):
    assert assert_refused(ugw.objective, bad, *pair()).startswith("plan must")
