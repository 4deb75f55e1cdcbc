"""UGW beside CGW."""

import numpy as np
import torch

import cases
import ugw


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


def test_batches_and_tensors():
    spaces = [ugw.Space.from_points(torch.rand(n, 2, generator=torch.manual_seed(n)).double()) for n in (4, 5, 6)]
    t = ugw.tightness(ugw.Space.stack(spaces), ugw.Space.stack(spaces[::-1]), rho=0.5)
    assert t.ratio.shape == (3,)
    assert isinstance(t.ratio, torch.Tensor)
    assert repr(t).startswith("Tightness(batch of 3")
