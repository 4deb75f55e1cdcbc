"""UGW compared with CGW."""

import inspect

import numpy as np
import pytest
import torch

import ugw
from oracles import cases
from ugw.api import certificate as certify
from ugw.errors import InputError


def test_the_certificate_holds_and_the_ratio_is_at_most_1():
    pair = cases.clouds(6, 7, 3)
    for rho in (0.1, 1.0, (0.3, 2.0)):
        t = ugw.tightness(pair.x, pair.y, rho=rho)
        assert t.holds
        assert 0.2 < t.ratio <= 1.0 + 1e-9
        assert t.cgw <= t.ugw
        assert t.ugw == ugw.objective(t.unbalanced.plan, pair.x, pair.y, rho=rho).total
        assert "certified" in repr(t)


def test_isometric_spaces_have_ratio_1_without_entropy():
    copies, _ = cases.copies(6, seed=1)
    t = ugw.tightness(copies.x, copies.y, rho=1.0, eps=0.0)
    assert abs(t.cgw) < 1e-9
    assert abs(t.ugw) < 1e-9
    assert t.ratio == 1.0


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")  # rounding may cause the warning
@pytest.mark.parametrize("rho", [0.1, 10.0])
@pytest.mark.parametrize("eps", [0.0, ugw.relative(1e-3)], ids=str)
def test_rounding_makes_no_ratio_negative_or_above_1(eps, rho):
    copies, _ = cases.copies(6, seed=0)
    t = ugw.tightness(copies.x.to(torch.float32), copies.y.to(torch.float32), rho=rho, eps=eps)
    assert t.cgw < 0  # as rounding has it
    assert 0.0 <= t.ratio <= 1.0
    assert eps != 0.0 or t.ratio == 1.0


def test_eps_is_that_of_solve():
    pair = cases.clouds(5, 6, 0)
    for options, expected in (({}, ugw.relative(1e-3)), ({"eps": "auto"}, ugw.relative(1e-2)), ({"eps": 0.1}, 0.1)):
        result = ugw.tightness(pair.x, pair.y, **options).unbalanced
        assert result.parameters["eps"] == ugw.solve(pair.x, pair.y, eps=expected).parameters["eps"]
    assert repr(inspect.signature(ugw.tightness).parameters["eps"].default) == "relative(0.001)"
    with pytest.raises(InputError, match="eps"):
        ugw.tightness(pair.x, pair.y, eps=None)


def test_a_saved_comparison_is_loaded_by_its_public_class(tmp_path):
    pair = cases.clouds(5, 6, 0)
    t = ugw.tightness(pair.x, pair.y)
    t.save(tmp_path / "t.npz")
    assert ugw.Tightness.load(tmp_path / "t.npz").ratio == t.ratio
    with pytest.raises(InputError, match=r"it holds a Tightness, load it with Tightness\.load"):
        ugw.Result.load(tmp_path / "t.npz")


def test_the_certificate_is_refused_where_the_conic_value_is_too_large():
    pair = cases.clouds(5, 6, 0)
    t = ugw.tightness(pair.x, pair.y, rho=1.0)
    wrong = type(t)(t.conic, t.unbalanced, 0.5 * t.cgw)
    assert not wrong.holds
    assert "NOT certified" in repr(wrong)


def test_hellinger_kantorovich():
    rng = np.random.default_rng(0)
    x, y = (ugw.Space.from_points(0.5 * rng.random((n, 2))) for n in (5, 6))
    assert ugw.tightness(x, y, rho=0.5, cone="hellinger-kantorovich").holds


@pytest.mark.parametrize("scale", [3.0, 5.0])
def test_hellinger_kantorovich_past_its_cutoff(scale):
    rng = np.random.default_rng(1)
    x, y = (ugw.Space.from_points(scale * rng.random((6, 2))) for _ in range(2))
    t = ugw.tightness(x, y, rho=0.5, cone="hellinger-kantorovich")
    assert t.holds
    assert 0.2 < t.ratio <= 1.0
    assert np.isfinite(t.ugw)
    # UGW has more than a single pair of points to itself.
    assert (t.unbalanced.plan > 0).sum() > 1
    pair = ugw.Space.stack([x, y]), ugw.Space.stack([y, x])
    both = ugw.tightness(*pair, rho=0.5, cone="hellinger-kantorovich")
    np.testing.assert_allclose(both.ratio, t.ratio, rtol=1e-6)


def test_bad_input_is_refused_before_any_solve(monkeypatch):
    pair = cases.clouds(5, 6, 0)
    far = ugw.Space.from_matrix(np.full((3, 3), 9.0))
    near = ugw.Space.from_matrix(np.zeros((4, 4)))
    with (
        pytest.raises(InputError, match="cone must have a finite λ at some pair"),
        pytest.warns(ugw.ConvergenceWarning),
    ):
        ugw.tightness(far, near, cone="hellinger-kantorovich")
    for name in ("solve", "solve_conic"):
        monkeypatch.setattr(certify, name, None)
    with pytest.raises(InputError, match="rho must be finite"):
        ugw.tightness(pair.x, pair.y, rho=np.inf)
    with pytest.raises(InputError, match="cone must be one over KL"):
        ugw.tightness(pair.x, pair.y, cone="partial-transport")


def test_advice_names_arguments_of_tightness():
    pair = cases.clouds(5, 6, 0)
    t = ugw.tightness(pair.x, pair.y, rho=1.0)
    text = repr(type(t)(t.conic, t.unbalanced, 0.5 * t.cgw))
    assert "eps" in text
    assert "cone" in text
    assert "init" not in text


def test_batches_and_tensors():
    spaces = [ugw.Space.from_points(torch.rand(n, 2, generator=torch.manual_seed(n)).double()) for n in (4, 5, 6)]
    t = ugw.tightness(ugw.Space.stack(spaces), ugw.Space.stack(spaces[::-1]), rho=0.5)
    assert t.ratio.shape == (3,)
    assert isinstance(t.ratio, torch.Tensor)
    assert repr(t).startswith("Tightness(batch of 3")
