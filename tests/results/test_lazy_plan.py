"""Methods of a plan that is not stored, against the stored plan."""

import numpy as np
import pytest
import torch

import ugw
from oracles.errors import assert_refused
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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_dtype_is_that_of_the_entries(dtype):
    points = np.random.default_rng(0).random((6, 2)).astype(dtype)
    for cloud in (points, torch.tensor(points)):
        x = ugw.Space.from_points(cloud, metric="sqeuclidean")
        plan = ugw.solve(x, x, eps=0.1, solver=STREAMING).plan
        assert plan.dtype == plan.dense().dtype
        assert type(plan.dtype) is type(plan.dense().dtype)


def clouds(*seeds):
    """Clouds of 6 points with low-rank distances."""
    return [ugw.Space.from_points(np.random.default_rng(s).random((6, 2)), metric="sqeuclidean") for s in seeds]


def test_one_plan_is_the_start_of_every_item():
    x, y, z = clouds(0, 1, 2)
    options = {"rho": 0.5, "eps": 0.02, "solver": STREAMING}
    one, batch = ugw.solve(x, y, **options), (ugw.Space.stack([x, z, x]), y)
    lazy, stored = (ugw.solve(*batch, init=init, **options) for init in (one, one.plan.dense()))
    np.testing.assert_allclose(lazy.value, stored.value, rtol=1e-6)
    assert lazy[0].value == lazy[2].value == pytest.approx(one.value, rel=1e-6)
    assert lazy.n_iter[0] < ugw.solve(*batch, init="product", **options).n_iter[0]
    again = ugw.solve(*batch, init=lazy.plan, **options)
    np.testing.assert_allclose(again.value, lazy.value, rtol=1e-6)


def test_a_start_of_another_shape_or_with_mass_at_weight_0_is_refused(result):
    x, y, z = clouds(0, 1, 2)
    options = {"rho": 0.5, "eps": 0.02, "solver": STREAMING}
    pair = ugw.solve(ugw.Space.stack([x, z]), y, **options)
    with pytest.raises(ugw.InputError, match=r"shape \(6, 6\) or \(3, 6, 6\), got \(2, 6, 6\)"):
        ugw.solve(ugw.Space.stack([x, z, x]), y, init=pair, **options)
    for init, shape in ((pair, r"\(2, 6, 6\)"), (result.plan, r"\(30, 20\)")):
        with pytest.raises(ugw.InputError, match=rf"shape \(6, 6\), got {shape}"):
            ugw.solve(x, y, init=init, **options)
    weights = np.where(np.arange(6) == 2, 0.0, 0.2)
    x0, y0 = (ugw.Space.from_points(s.points, metric="sqeuclidean", weights=weights) for s in (x, y))
    plan = ugw.solve(x, y, **options).plan
    for spaces in ((x0, y), (x, y0)):
        for init in (plan, plan.dense()):
            with pytest.raises(ugw.InputError, match="init must be 0 at points of weight 0"):
                ugw.solve(*spaces, init=init, **options)
        per_item = ugw.solve(*spaces, **options)
        assert ugw.solve(*spaces, init=per_item, **options).converged


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


@pytest.mark.parametrize("index", ["a", None, 1.0, True, [True] * 30, [[0, 1]], np.ones((20, 20))], ids=str)
def test_rows_are_chosen_by_whole_numbers(result, index):
    assert_refused(result.plan.rows, index, match="index must be whole numbers from 0 to 29")


@pytest.mark.parametrize("k", [1.5, "a", True, None, 0, 21, np.ones((3, 3))], ids=str)
def test_the_number_of_largest_entries_is_a_whole_number(result, k):
    assert_refused(result.plan.top, k, match="k must be a whole number from 1 to 20")
