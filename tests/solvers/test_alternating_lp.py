"""Alternating linear programs: monotone values, the extension of a step to the boundary, callbacks and limits."""

import numpy as np
import pytest

import ugw
from ugw.solvers.alternating_lp import boundary_point

PT = ugw.PartialTransport()


def space(rng, n, d=2, mass=None):
    """Return a cloud of n points in R^d with uneven weights, by default of a random mass."""
    weights = rng.random(n) + 0.2
    return ugw.Space.from_points(rng.random((n, d)), weights=weights * (mass or rng.uniform(0.5, 2.0)) / weights.sum())


def conic(x, y, rho=1.0, cone=PT, **options):
    """Solve for the conic distance over partial transport."""
    return ugw.solve_conic(x, y, rho=rho, cone=cone, **options)


@pytest.mark.parametrize("init", ["product", "random", "coarse"])
def test_values_never_rise(init):
    rng = np.random.default_rng(9)
    x, y = space(rng, 8), space(rng, 7, 3)
    r = conic(x, y, rho=0.1, init=init)
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
    rng = np.random.default_rng(14)
    x, y = space(rng, 5), space(rng, 5)
    seen = []
    solver = ugw.AlternateLP(callback=lambda step: seen.append(step.iteration) or len(seen) == 2)
    with pytest.warns(ugw.ConvergenceWarning):
        stopped = conic(x, y, rho=0.2, solver=solver, init="random")
    assert stopped.status == ugw.Status.STOPPED
    assert seen == [1, 2]
    with pytest.warns(ugw.ConvergenceWarning):
        assert conic(x, y, rho=0.2, solver=ugw.AlternateLP(max_iter=1), init="random").status == ugw.Status.MAX_ITER
    many = conic(x, y, rho=0.2, solver=ugw.Multistart(solver=ugw.AlternateLP(), n=6), init="product")
    assert many.value <= conic(x, y, rho=0.2, init="product").value + 1e-12
