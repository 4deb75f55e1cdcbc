"""What users can do with a plan that is not stored, against the plan itself."""

import numpy as np
import pytest
import torch

import ugw
from oracles.plans import STREAMING, streamed_result
from oracles.thresholds import changed_thresholds
from ugw.results.config import RESULTS_CONFIG


@pytest.fixture(scope="module")
def result():
    return streamed_result()


def test_a_lazy_plan_equals_the_dense_plan(result):
    plan, p = result.plan, result.plan.dense()
    assert plan.shape == p.shape == (30, 20)
    np.testing.assert_allclose(plan.marginals[0], p.sum(1), rtol=1e-10)
    np.testing.assert_allclose(plan.marginals[1], p.sum(0), rtol=1e-10)
    assert plan.mass == pytest.approx(p.sum())
    assert result.mass == pytest.approx(p.sum())
    v, w = np.random.default_rng(1).normal(size=(20, 4)), np.random.default_rng(2).normal(size=30)
    np.testing.assert_allclose(plan.apply(v), p @ v, atol=1e-13)
    np.testing.assert_allclose(plan.apply(v[:, 0]), p @ v[:, 0], atol=1e-13)
    np.testing.assert_allclose(plan.T.apply(w), p.T @ w, atol=1e-13)
    np.testing.assert_allclose(plan.T.dense(), p.T, rtol=1e-10)
    np.testing.assert_allclose(plan.rows(4), p[4], rtol=1e-10)
    np.testing.assert_allclose(plan.rows([4, -1]), p[[4, -1]], rtol=1e-10)
    np.testing.assert_array_equal(plan.argmax(), p.argmax(1))
    values, places = plan.top(3)
    np.testing.assert_allclose(values, -np.sort(-p, axis=1)[:, :3], rtol=1e-10)
    np.testing.assert_allclose(np.take_along_axis(p, places, 1), values, rtol=1e-10)
    np.testing.assert_allclose(result.transport(w), (p.T @ w) / p.sum(0), rtol=1e-9)
    assert "not stored" in repr(plan)


def test_the_block_size_does_not_change_the_result(result):
    whole = result.plan.argmax(), result.plan.dense()
    with changed_thresholds(RESULTS_CONFIG, block_entries=50):
        np.testing.assert_array_equal(result.plan.argmax(), whole[0])
        np.testing.assert_allclose(result.plan.dense(), whole[1], rtol=1e-12)


def test_gradients_pass_through_apply_with_the_plan_fixed():
    rng = np.random.default_rng(0)
    x, y = (ugw.Space.from_points(torch.tensor(rng.random((k, 2))), metric="sqeuclidean") for k in (6, 5))
    plan = ugw.solve(x, y, rho=0.5, eps=0.05, solver=STREAMING).plan
    v = torch.tensor(rng.normal(size=(5, 2)), requires_grad=True)
    g = torch.tensor(rng.normal(size=(6, 2)))
    (plan.apply(v) * g).sum().backward()
    torch.testing.assert_close(v.grad, plan.dense().mT @ g)


@changed_thresholds(RESULTS_CONFIG, max_dense_entries=100)
def test_too_many_entries_are_refused(result):
    with pytest.raises(ugw.InputError, match="force=True"):
        result.plan.dense()
    assert result.plan.dense(force=True).shape == (30, 20)


@pytest.mark.parametrize("index", [30, -31, 1.5, [True, False]])
def test_rows_that_are_not_there(result, index):
    with pytest.raises(ugw.InputError, match="index"):
        result.plan.rows(index)


def test_bad_matrices(result):
    for bad in (np.ones(3), np.ones((20, 2, 2)), np.full(20, np.nan)):
        with pytest.raises(ugw.InputError, match="matrix"):
            result.plan.apply(bad)
    with pytest.raises(ugw.InputError, match="k must be"):
        result.plan.top(21)


def test_a_streamed_result_is_saved_and_loaded(result, tmp_path):
    result.save(tmp_path / "r.npz")
    loaded = ugw.Result.load(tmp_path / "r.npz")
    assert loaded.path == "streaming"
    np.testing.assert_array_equal(loaded.plan.dense(), result.plan.dense())
    assert loaded.summary() == result.summary()
    assert repr(loaded) == repr(result)
