"""Alternating linear programs: monotone values, the extension of a step to the boundary, callbacks and limits."""

from functools import partial

import numpy as np
import pytest

import ugw
from oracles.spaces import pair
from ugw.solvers.alternating_lp import boundary_point

solve = partial(ugw.solve_conic, cone=ugw.PartialTransport())


@pytest.mark.parametrize("init", ["product", "random", "coarse"])
def test_values_never_rise(init):
    x, y = pair(8, 7)
    r = solve(x, y, rho=0.1, init=init)
    h = r.history
    assert r.converged
    assert (np.diff(h.relaxed) <= 1e-12).all()
    assert (np.diff(h.objective) <= 1e-12).all()
    assert (h.relaxed <= h.objective + 1e-12).all()
    assert r.value == pytest.approx(h.objective[-1])
    assert r.relaxed_value == pytest.approx(h.relaxed[-1])
    assert r.gap >= 0
    assert r.tensors.residual[0] <= 1e-6


def test_the_line_through_two_lifts_ends_at_the_boundary():
    before, new = (np.array([[0.5, 0.5]]),) * 2, (np.array([[0.75, 0.25]]), np.array([[0.5, 0.5]]))
    P, Q = boundary_point(before, new)
    assert np.allclose(P, [[1.0, 0.0]])
    assert np.allclose(Q, [[0.5, 0.5]])
    assert boundary_point(new, new) is None


def test_callback_limit_and_multistart():
    x, y = pair(5, 5, dims=(2, 2))
    steps = []
    solver = ugw.AlternateLP(callback=lambda step: steps.append(step.iteration) or len(steps) == 2)
    with pytest.warns(ugw.ConvergenceWarning):
        stopped = solve(x, y, rho=0.2, solver=solver, init="random")
    assert stopped.status == ugw.Status.STOPPED
    assert steps == [1, 2]
    with pytest.warns(ugw.ConvergenceWarning):
        assert solve(x, y, rho=0.2, solver=ugw.AlternateLP(max_iter=1), init="random").status == ugw.Status.MAX_ITER
    many = solve(x, y, rho=0.2, solver=ugw.Multistart(solver=ugw.AlternateLP(), n=6), init="product")
    assert many.value <= solve(x, y, rho=0.2, init="product").value + 1e-12
