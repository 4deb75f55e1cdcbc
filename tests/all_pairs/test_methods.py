"""Methods of `pairwise` and their options."""

import numpy as np
import pytest

import ugw
from oracles.pairwise import QUICK, clouds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "fast"}, "method must be one of"),
        ({"init": "best guess"}, "init of method 'ugw' must be one of"),
        ({"init": np.eye(3)}, r"must be the name of an initial plan, the same for all pairs, got ndarray$"),
        ({"cone": "gaussian-hellinger"}, "method 'ugw' has no cone"),
        ({"name": "cgw", "fused": ugw.Fused(1.0)}, "method 'cgw' has no fused"),
        ({"fused": ugw.Fused(1.0, np.eye(3))}, "by the features of the spaces"),
        ({"fused": 0.5}, "must be ugw.Fused"),
    ],
)
def test_methods_are_checked(options, message):
    with pytest.raises(ugw.InputError, match=message):
        ugw.Method(**options)


def test_options_of_a_method():
    spaces = clouds((5, 6), features=2)
    fused = ugw.Method("ugw", fused=ugw.Fused(0.3), init="product")
    expected = ugw.solve(spaces[1], spaces[0], eps=0.05, fused=ugw.Fused(0.3), init="product").value
    assert ugw.pairwise(spaces, method=fused, eps=0.05).values[1, 0] == pytest.approx(expected, abs=1e-9)
    cone = ugw.Method("cgw", cone="hellinger-kantorovich")
    d = ugw.pairwise(spaces, method=cone, rho=0.5)
    expected = ugw.solve_conic(spaces[1], spaces[0], rho=0.5, cone="hellinger-kantorovich").distance
    assert d.distances[0, 1] == pytest.approx(expected, abs=1e-9)
    with pytest.raises(ugw.InputError, match="not powers of a distance with this cone"):
        _ = ugw.pairwise(spaces, method=cone, rho=2.0).distances  # beyond rho = 1 no metric


def test_another_loss():
    spaces = clouds((4, 5))
    method = ugw.Method("ugw", loss=lambda t: t.abs(), init="product")
    d = ugw.pairwise(spaces, method=method, eps=0.05)
    expected = ugw.solve(spaces[1], spaces[0], loss=lambda t: t.abs(), eps=0.05, init="product").value
    assert d.values[0, 1] == pytest.approx(expected, abs=1e-9)
    assert ugw.pairwise(spaces, method=method, eps=0.0).values.diagonal().tolist() == [0.0, 0.0]


def test_which_values_are_distances():
    spaces = clouds((4, 5), unit=True)
    with pytest.raises(ugw.InputError, match="'ugw' are not powers"):
        _ = ugw.pairwise(spaces, method=QUICK, eps=1e-2).distances
    with pytest.raises(ugw.InputError, match="'gw' are not powers"):
        _ = ugw.pairwise(spaces, method=ugw.Method("gw", init="product"), eps=1e-2).distances
    with pytest.raises(ugw.InputError, match="'cgw' are not powers of a distance with this cone, rho and eps"):
        _ = ugw.pairwise(spaces, method=ugw.Method("cgw", init="product"), eps=0.1).distances
