"""Conic results: atoms, summary, files, and the property `is_metric`."""

import numpy as np
import pytest

import ugw
from oracles import cases
from oracles import conic as oracles
from oracles.conic import LOSSES, solve_from_one_plan
from ugw.errors import InputError

GH, HK = LOSSES


@pytest.mark.parametrize("cone", [GH, HK])
def test_the_atoms_are_a_plan_between_the_cones(cone):
    pair = cases.clouds(4, 5, 7, (1.3, 0.6))
    c = solve_from_one_plan(pair, 0.4, cone)
    atoms = c.atoms()
    for side, radius, weights in (("i", "radius_x", pair.a), ("j", "radius_y", pair.b)):
        np.testing.assert_allclose(np.bincount(atoms[side], atoms["mass"] * atoms[radius] ** 2), weights, rtol=1e-10)
    assert oracles.atoms_value(pair, atoms, 0.4, oracles.LOSSES[cone]) == pytest.approx(c.value, rel=1e-10)
    v = np.random.default_rng(0).uniform(0.5, 2.0, len(atoms["mass"]))
    dilated = atoms | {"mass": atoms["mass"] * v**2} | {k: atoms[k] / v for k in ("radius_x", "radius_y")}
    assert oracles.atoms_value(pair, dilated, 0.4, oracles.LOSSES[cone]) == pytest.approx(c.value, rel=1e-10)
    with pytest.raises(InputError, match="batch"):
        ugw.solve_conic(pair.x, pair.y, rho=np.array([0.4, 0.5]), init="flb").atoms()


def test_a_result_prints_its_distance_and_its_kernel():
    pair = cases.clouds(5, 6, 8)
    c = solve_from_one_plan(pair, 0.5)
    assert repr(c).startswith("ConicResult(5 × 6, value=")
    text = c.summary()
    for word in ("distance", "unmatched", "overlap", "kernel       exact", "gap", "converged"):
        assert word in text
    assert "not a metric" not in text
    assert "not a metric" in solve_from_one_plan(pair, 4.0, HK).summary()
    assert "not a metric" in solve_from_one_plan(pair, (0.3, 0.4)).summary()
    assert "distance" in c._repr_html_()
    large = solve_from_one_plan(cases.clouds(20, 21, 8), 0.5, solver=ugw.AlternateMin(tol=1e-3))
    assert f"kernel       rank {large.kernel_rank}, error ≤" in large.summary()


@pytest.mark.parametrize("batched", [False, True])
def test_a_result_is_saved_and_loaded(tmp_path, batched):
    pair = cases.clouds(5, 6, 8)
    c = solve_from_one_plan(pair, np.array([0.5, 1.0]) if batched else 0.5)
    c.save(tmp_path / "c.npz")
    back = ugw.ConicResult.load(tmp_path / "c.npz")
    for name in ("value", "value_bound", "distance", "plan", "mass", "kernel_error", "kernel_rank", "is_metric"):
        np.testing.assert_array_equal(getattr(back, name), getattr(c, name), err_msg=name)
    for got, expected in zip(back.lift, c.lift, strict=True):
        np.testing.assert_array_equal(got, expected)
    assert back.summary() == c.summary()
    assert back.terms.as_dict().keys() == c.terms.as_dict().keys()


def test_a_plain_result_is_not_loaded_as_a_conic_result(tmp_path):
    pair = cases.clouds(5, 6, 8)
    ugw.solve(pair.x, pair.y, eps=0.1, init="flb").save(tmp_path / "r.npz")
    with pytest.raises(InputError, match=r"it holds a Result, load it with Result\.load"):
        ugw.ConicResult.load(tmp_path / "r.npz")


def test_which_cones_and_rhos_are_metrics():
    pair = cases.clouds(3, 3, 0)
    assert solve_from_one_plan(pair, 7.0).is_metric is True
    assert solve_from_one_plan(pair, 1.0, HK).is_metric is True
    assert solve_from_one_plan(pair, 1.1, HK).is_metric is False
    assert solve_from_one_plan(pair, (0.5, 0.6)).is_metric is False
    assert solve_from_one_plan(pair, 0.5, lambda t: t**2).is_metric is False
    np.testing.assert_array_equal(solve_from_one_plan(pair, np.array([0.5, 2.0]), HK).is_metric, [True, False])
