"""Products with stored and lazy plans, and the barycentric projection."""

import numpy as np
import pytest

from oracles.plans import streamed_result
from ugw.results.lazy_plan import LazyPlan
from ugw.results.projection import apply_plan, barycentric_projection, divide_by_weights


@pytest.fixture
def lazy_plan():
    return streamed_result().plan


def test_a_projection_is_the_mean_of_the_values_weighted_by_a_row():
    plan, values = np.random.default_rng(0).random((4, 6)), np.random.default_rng(1).random((6, 2))
    expected = [np.average(values, axis=0, weights=row) for row in plan]
    np.testing.assert_allclose(barycentric_projection(plan, values), expected, rtol=1e-14)


def test_tiny_masses_do_not_underflow_and_empty_rows_are_nan():
    plan = np.array([[1e-320, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(barycentric_projection(plan, np.array([[2.0], [3.0]])), [[2.0], [np.nan]])


def test_divide_by_weights():
    assert divide_by_weights(np.array([1.0, 3.0, 0.0]), np.array([2.0, 2.0, 0.0])).tolist() == [0.5, 1.5, 0.0]


def test_a_lazy_plan_gives_the_products_of_its_entries_and_is_never_stored(lazy_plan, monkeypatch):
    dense = lazy_plan.dense()
    monkeypatch.setattr(LazyPlan, "dense", lambda *_, **__: pytest.fail("computed the whole plan"))
    for lazy, stored in ((lazy_plan, dense), (lazy_plan.T, dense.T)):
        values = np.random.default_rng(1).random((stored.shape[1], 3))
        np.testing.assert_allclose(apply_plan(lazy, values), stored @ values, rtol=1e-10)
        np.testing.assert_allclose(
            barycentric_projection(lazy, values), barycentric_projection(stored, values), rtol=1e-10
        )
