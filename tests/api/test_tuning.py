"""The rho of a given matched mass, and eps-annealing."""

import math

import numpy as np
import pytest
import torch

import ugw
from oracles.errors import assert_refused
from oracles.spaces import space
from ugw.errors import InputError
from ugw.geometry.space import Space


def matched_share(x, y, rho, eps=None, init="coarse"):
    r = ugw.solve(x, y, rho=rho, eps=ugw.relative(1e-2) if eps is None else eps, init=init)
    return r.mass / np.sqrt(x.mass * y.mass)


def stack_masses(n, d, seed, masses):
    return Space.stack([space(n, d, seed, mass) for mass in masses])


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
def test_the_plan_keeps_the_requested_mass_fraction(share):
    x, y = stack_masses(6, 2, 0, (1.0, 1e-3, 2.0)), stack_masses(7, 3, 1, (1.0, 1e-3, 0.5))
    rho = ugw.rho_for_mass(x, y, kept=share)
    np.testing.assert_allclose(matched_share(x, y, rho), share, atol=5e-3)


def test_rho_for_mass_at_extreme_masses():
    """Without entropy, whose reference a⊗b has the mass m(a)·m(b) and so affects the mass of a plan."""
    x, y = stack_masses(6, 2, 0, (1e-6, 1e4)), stack_masses(7, 3, 1, (1e6, 30.0))
    np.testing.assert_allclose(matched_share(x, y, ugw.rho_for_mass(x, y, kept=0.8, eps=0.0), eps=0.0), 0.8, atol=5e-3)


def test_half_of_the_mass_of_two_clouds():
    """Plans of other families keep .47 and .55 here; the solution between them is found from starts for its rho."""
    x, y = space(8, 2, 0), space(9, 3, 1)
    assert matched_share(x, y, ugw.rho_for_mass(x, y, kept=0.5)) == pytest.approx(0.5, abs=5e-3)


@pytest.mark.parametrize("eps", [0.05, ugw.relative(0.1)])
def test_eps_may_be_given(eps):
    x, y = space(6), space(7, 3, 1)
    assert matched_share(x, y, ugw.rho_for_mass(x, y, kept=0.7, eps=eps), eps) == pytest.approx(0.7, abs=5e-3)


def test_rho_is_in_units_of_squared_distance():
    scales = np.array([1.0, 1e-6, 1e6])
    x = Space.stack([space(5, scale=scale) for scale in scales])
    y = Space.stack([space(6, 3, 1, scale=scale) for scale in scales])
    rho = ugw.rho_for_mass(x, y, kept=0.8)
    np.testing.assert_allclose(rho, rho[0] * scales**2, rtol=1e-6)


def test_keeping_more_takes_a_larger_rho():
    x, y = space(5), space(6, 3, 1)
    rhos = [ugw.rho_for_mass(x, y, kept=share) for share in (0.6, 0.8, 0.95)]
    assert rhos == sorted(rhos)


def test_a_batch_has_one_rho_per_item():
    xs, ys = [space(5, seed=0), space(6, seed=1, mass=3.0)], [space(4, 3, 3), space(6, 3, 4)]
    rho = ugw.rho_for_mass(Space.stack(xs), Space.stack(ys), kept=0.8)
    assert isinstance(rho, np.ndarray)
    assert rho.shape == (2,)
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        assert matched_share(x, y, float(rho[i])) == pytest.approx(0.8, abs=5e-3)
        assert rho[i] == pytest.approx(ugw.rho_for_mass(x, y, kept=0.8), rel=1e-6)


def test_tensors_give_a_tensor():
    x, y = (Space.from_points(torch.rand(n, 2, generator=torch.manual_seed(n))) for n in (6, 7))
    rho = ugw.rho_for_mass(x, y, kept=0.8)
    assert isinstance(rho, torch.Tensor)
    assert rho.shape == ()
    assert float(ugw.solve(x, y, rho=rho, eps=ugw.relative(1e-2), init="coarse").mass) == pytest.approx(0.8, abs=5e-3)


def test_rho_for_mass_of_spaces_above_the_coarse_size():
    x, y = space(90, 2, 0), space(84, 3, 1)
    assert matched_share(x, y, ugw.rho_for_mass(x, y, kept=0.85)) == pytest.approx(0.85, abs=5e-3)


@pytest.mark.parametrize(
    "share", [0, 1, 0.0, 1.0, -0.2, 1.5, math.nan, math.inf, "0.8", None, True, [0.8], np.array([0.5])]
)
def test_bad_shares(share):
    assert_refused(
        ugw.rho_for_mass, space(8), space(8), kept=share, match="^kept must be a number strictly between 0 and 1, got"
    )


def test_an_unreachable_mass_fraction_is_an_input_error():
    """Entropy alone decides the mass of isometric copies of one point; and a large eps keeps too much."""
    for x, y, eps in ((space(1), space(1), 0.1), (space(8), space(9, 3, 1), 1e6)):
        with pytest.raises(InputError, match=r"kept=0\.3 is out of reach.*got"):
            ugw.rho_for_mass(x, y, kept=0.3, eps=eps)


def test_where_the_kept_mass_jumps_the_closest_rho_and_a_warning(monkeypatch):
    def share(problem):
        rho = problem.div_a.rho
        return torch.where(rho < 0.2, 0.45, 0.9) + 0.01 * rho.clamp(max=1.0)

    monkeypatch.setattr(ugw.api.tuning, "kept_share", share)
    x, y = stack_masses(3, 2, 0, (1.0, 2.0)), stack_masses(4, 3, 1, (1.0, 0.5))
    with pytest.warns(ugw.ConvergenceWarning, match=r"jumps over kept=0\.5 .* keeps 0\.452, 0\.452$"):
        rho = ugw.rho_for_mass(x, y, kept=0.5)
    assert (rho < 0.2).all()
    np.testing.assert_allclose(rho, 0.2, rtol=0.05)


# --- annealing ---


def test_annealing_lowers_the_mean_value_at_small_eps():
    """A mean over problems: both results of one problem are local minima. The difference is relative to the value."""
    differences = []
    for rho, eps in ((0.1, 0.003), ((0.3, 2.0), 0.005), ((math.inf, 0.5), 0.01)):
        x = Space.stack([space(6, 2, seed) for seed in range(16)])
        y = Space.stack([space(7, 3, 100 + seed) for seed in range(16)])
        plain = ugw.solve(x, y, rho=rho, eps=eps, init="product")
        annealed = ugw.solve(x, y, rho=rho, eps=eps, init="product", solver=ugw.AlternateMin(anneal=0.9))
        assert annealed.converged.all()
        differences += (annealed.value / plain.value - 1.0).tolist()
    better, worse = sum(d < -1e-6 for d in differences), sum(d > 1e-6 for d in differences)
    assert better > 1.5 * worse
    assert np.mean(differences) < -0.01


def test_annealing_ends_at_the_given_eps():
    """From a converged plan back to it, through a larger eps and down again, the value is that of eps."""
    x, y = space(8), space(9, 3, 1)
    r = ugw.solve(x, y, eps=0.05, init="product", solver=ugw.AlternateMin(anneal=0.8, tol=1e-9))
    assert ugw.objective(r.plan, x, y, eps=0.05).total == pytest.approx(r.value, rel=1e-12)
    again = ugw.solve(x, y, eps=0.05, init=r.plan, solver=ugw.AlternateMin(tol=1e-9))
    assert again.value == pytest.approx(r.value, rel=1e-9)
    constant = 1.0 + 1.0 + 0.05
    assert r.value == pytest.approx(constant - constant * r.mass**2, abs=1e-8)  # stationary at eps = 0.05
