"""Low-rank forms of g(|u − v|): errors below the stated bound, and the theoretical rank."""

import math

import numpy as np
import pytest
import torch

from ugw.problems.distortion.config import DISTORTION_CONFIG
from ugw.problems.distortion.factorize import factorize

GAUSS = {rho: lambda t, rho=rho: torch.exp(-(t**2) / (2 * rho)) for rho in (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0)}
OTHERS = {
    "log1p": lambda t: torch.log1p(t**2),
    "constant": torch.ones_like,
    "zero": torch.zeros_like,
    "square": torch.square,
    "cos": lambda t: torch.cos(7.0 * t),  # not positive definite times anything: both signs
    "laplace": lambda t: torch.exp(-t),
    "abs": lambda t: t,
    "cut": lambda t: torch.cos((2.0 * t).clamp(max=0.5 * math.pi)),
}
KINKS = ("laplace", "abs", "cut")


def largest_error(factors, g, count=700):
    """At random points, the ends and the diagonal, of the kernel as a whole."""
    t = torch.as_tensor(np.random.default_rng(0).random(count)) * factors.length
    t = torch.cat([t, torch.tensor([0.0, factors.length], dtype=torch.float64)])
    phi = factors.evaluate(t[None])[:, 0]  # (R, count)
    approximation = torch.einsum("r,ri,rj->ij", factors.signs.double(), phi, phi)
    return float((approximation - g((t[:, None] - t).abs())).abs().max())


@pytest.mark.parametrize("rho", GAUSS)
@pytest.mark.parametrize("length", [0.3, 1.7])
def test_gaussians_meet_the_tolerance(rho, length):
    factors = factorize(GAUSS[rho], length)
    # A share of what the kernel differs from 1 by.
    assert factors.error <= max(DISTORTION_CONFIG.smooth_tol * -math.expm1(-(length**2) / (2 * rho)), 1e-12)
    assert factors.meets_tolerance
    assert largest_error(factors, GAUSS[rho]) <= factors.error
    assert bool((factors.signs == 1).all())  # a positive definite kernel


@pytest.mark.parametrize("name", OTHERS)
def test_the_error_is_never_above_the_reported_bound(name):
    factors = factorize(OTHERS[name], 1.7)
    assert largest_error(factors, OTHERS[name]) <= factors.error + 1e-13
    if name in KINKS:
        assert factors.rank <= DISTORTION_CONFIG.max_kink_rank
        assert factors.error < 0.05
    else:
        assert factors.error <= DISTORTION_CONFIG.smooth_tol
    assert set(factors.signs.tolist()) <= {-1.0, 0.0, 1.0}


@pytest.mark.parametrize("rho", [1.0, 1e2, 1e4])
def test_a_kernel_near_1_is_as_good_as_the_loss_it_is_made_of(rho):
    # exp(−t/R) ≈ 1 − t/R: the error of the factors matters times R.
    kernel, loss = factorize(lambda t: torch.exp(-t / (2 * rho)), 1.4), factorize(OTHERS["abs"], 1.4)
    assert not kernel.meets_tolerance
    assert not loss.meets_tolerance
    assert 2 * rho * kernel.error == pytest.approx(loss.error, rel=0.5)
    assert 2 * rho * kernel.tolerance == pytest.approx(loss.tolerance, rel=0.5)
    loose = factorize(lambda t: torch.exp(-t / (2 * rho)), 1.4, tol=0.02)
    assert loose.meets_tolerance
    assert loose.error <= 0.02 * 1.4 / (2 * rho)


@pytest.mark.parametrize(("rho", "rank"), [(1.0, 7), (0.1, 15), (0.01, 40)])
def test_ranks_of_gaussians(rho, rank):
    assert factorize(GAUSS[rho], 1.7).rank <= rank


@pytest.mark.parametrize("power", [1, 2, 4, 10])
def test_an_integer_power_of_the_cosine_has_one_term_more_than_its_power(power):
    # cosᵖ(u − v) is a sum of p + 1 products; Hellinger–Kantorovich below its cutoff, 1/rho = p.
    factors = factorize(lambda t: torch.cos(t) ** power, 1.5)
    assert factors.rank == power + 1
    assert factors.error < 1e-9


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6, 1e-10])
def test_the_tolerance_is_met_with_no_more_terms_than_it_takes(tol):
    factors = factorize(GAUSS[0.1], 1.7, tol=tol)
    assert factors.error <= tol
    fewer = factorize(GAUSS[0.1], 1.7, tol=tol, max_rank=factors.rank - 1)
    assert fewer.rank == factors.rank - 1
    assert fewer.error > tol
    assert largest_error(fewer, GAUSS[0.1]) <= fewer.error


@pytest.mark.parametrize("name", ["abs"])
def test_the_error_at_a_kink_falls_with_the_rank(name):
    # Eigenvalues of a kink fall like 1/r², so the error falls like 1/r.
    ranks = (8, 32, 128)
    errors = [factorize(OTHERS[name], 1.0, max_rank=rank).error for rank in ranks]
    assert errors[1] < 0.35 * errors[0]
    assert errors[2] < 0.35 * errors[1]
    assert factorize(OTHERS[name], 1.0, tol=0.02).error <= 0.02


def test_the_error_at_a_jump_is_reported():
    # Nothing of rank 64 is close to a step: the error says so.
    factors = factorize(lambda t: (t < 0.5).double(), 1.0)
    assert factors.error > 0.3
    assert largest_error(factors, lambda t: (t < 0.5).double()) <= factors.error


def test_large_functions_are_factorized_too():
    factors = factorize(lambda t: torch.log1p((1000.0 * t) ** 2), 1e-3)
    assert factors.error <= DISTORTION_CONFIG.smooth_tol
    factors = factorize(torch.square, 1000.0)
    assert largest_error(factors, torch.square) <= 1e-9 * 1e6
    assert factors.rank == 3


def test_one_point_has_length_zero():
    factors = factorize(GAUSS[0.1], 0.0)
    phi = factors.evaluate(torch.zeros(1, 1, dtype=torch.float64))
    assert float((factors.signs * phi[:, 0, 0] ** 2).sum()) == pytest.approx(1.0, abs=1e-8)


@pytest.mark.parametrize("shape", [(4, 4), (3, 4, 4), (2, 3, 5, 5)])
def test_evaluate_has_the_terms_before_the_last_two_dimensions(shape):
    factors = factorize(GAUSS[0.1], 1.0)
    d = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    phi = factors.evaluate(d)
    assert phi.shape == (*shape[:-2], factors.rank, *shape[-2:])
    one = factors.evaluate(d.reshape(-1, *shape[-2:])[-1])
    torch.testing.assert_close(phi.reshape(-1, factors.rank, *shape[-2:])[-1], one, rtol=1e-13, atol=1e-15)


def test_terms_are_chebyshev_series():
    factors = factorize(GAUSS[0.1], 1.4)
    d = torch.linspace(0.0, 1.4, 30, dtype=torch.float64)
    series = np.polynomial.chebyshev.chebval(2.0 * d.numpy() / 1.4 - 1.0, factors.coefficients.numpy())
    np.testing.assert_allclose(factors.evaluate(d[None])[:, 0].numpy(), series, atol=1e-13)


@pytest.mark.parametrize("share", [1e-6, 1e-3, 0.5])
def test_truncated_factors_have_the_leading_terms(share):
    factors = factorize(lambda t: torch.exp(-8.0 * t.square()), 1.5)
    fewer = factors.truncate(share)
    assert 1 <= fewer.rank < factors.rank
    sizes = factors.coefficients.square().sum(0)
    assert sizes[fewer.rank :].sum() <= share * sizes.sum() < sizes[fewer.rank - 1 :].sum()
    torch.testing.assert_close(fewer.coefficients, factors.coefficients[:, : fewer.rank])
    torch.testing.assert_close(fewer.signs, factors.signs[: fewer.rank])
    assert factors.truncate(2.0).rank == 1


@pytest.mark.parametrize("rho", [1e-3, 0.1, 10.0])
def test_single_precision_adds_only_its_rounding(rho):
    factors = factorize(GAUSS[rho], 1.7)
    d = torch.rand(60, 60, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 1.7
    single = factors.evaluate(d.float())
    assert single.dtype == torch.float32
    # The argument is rounded too, and a term of degree K moves K² as fast.
    degree = len(factors.coefficients)
    assert float((single.double() - factors.evaluate(d)).abs().max()) < 1e-7 * degree
