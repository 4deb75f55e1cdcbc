"""Both kernels against explicit sums in NumPy, and against each other near overflow and underflow."""

import math

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from ugw.kernels.sinkhorn import LogKernel, StabilizedKernel, sinkhorn_iterations

B, N, M = 3, 5, 7  # all different, and B not 1


def tensors(seed=0, spread=1.0):
    """cost with a forbidden pair, weights with a zero on each side, eps of three sizes, potentials."""
    rng = np.random.default_rng(seed)
    cost = rng.random((B, N, M)) * spread
    cost[1, 2, 3] = np.inf
    a, b = rng.random((B, N)) + 0.1, rng.random((B, M)) + 0.1
    a[2, 4] = b[2, 0] = 0.0
    eps = np.array([0.5, 0.05, 0.01])
    phi, gamma = rng.normal(size=(B, N)), rng.normal(size=(B, M))
    with np.errstate(divide="ignore"):
        return tuple(map(torch.tensor, (cost, np.log(a), np.log(b), eps))), torch.tensor(phi), torch.tensor(gamma)


def explicit_sums(arrays, phi, gamma):
    """rows, cols and log plan as NumPy sums."""
    cost, log_a, log_b, eps = (t.numpy() for t in arrays)
    scaled = cost / eps[:, None, None]
    phi, gamma = phi.numpy(), gamma.numpy()
    rows = logsumexp((log_b + gamma)[:, None, :] - scaled, axis=2)
    cols = logsumexp((log_a + phi)[:, :, None] - scaled, axis=1)
    return rows, cols, (log_a + phi)[:, :, None] + (log_b + gamma)[:, None, :] - scaled


def both_kernels(arrays, gamma):
    """The log-sum-exp kernel and the one stabilized around gamma."""
    cost, log_a, log_b, eps = arrays
    log_kernel = LogKernel(cost / -eps[:, None, None], log_a, log_b)
    return log_kernel, StabilizedKernel.from_kernel(log_kernel, gamma)


@pytest.mark.parametrize("damping", [0.7, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_iterations_of_both_kernels_agree(seed, damping):
    arrays, _, gamma = tensors(seed)
    dampings = tuple(torch.full((B, 1), d, dtype=torch.float64) for d in (damping, 0.9))
    share = torch.tensor([[0.0], [0.3], [2.0]], dtype=torch.float64)
    exact, stored = (kernel.iterate(gamma, dampings, share) for kernel in both_kernels(arrays, gamma))
    has_weight = [w > -math.inf for w in arrays[1:3]]  # elsewhere a value is arbitrary
    for name in ("updates", "marginals"):
        for one, two, mask in zip(getattr(exact, name), getattr(stored, name), has_weight, strict=True):
            torch.testing.assert_close(two[mask], one[mask], rtol=1e-9, atol=1e-12, msg=name)
    for name in ("gamma", "last_change", "previous_change"):
        one, two = (getattr(result, name)[has_weight[1]] for result in (exact, stored))
        torch.testing.assert_close(two, one, rtol=1e-9, atol=1e-12, msg=name)


def test_the_residual_vanishes_at_the_fixed_point_and_the_extrapolation_is_nearer_to_it():
    arrays, _, gamma = tensors()
    kernel, _ = both_kernels(arrays, gamma)
    dampings = tuple(torch.full((B, 1), d, dtype=torch.float64) for d in (0.9, 0.8))
    share = torch.full((B, 1), 1.0 / (1.0 / 0.9 - 1.0 + 1.0 / 0.8 - 1.0), dtype=torch.float64)
    first = iterate = sinkhorn_iterations(gamma, kernel, dampings, share, 1.0 - 1e-6)
    for _ in range(200):
        iterate = sinkhorn_iterations(iterate.gamma, kernel, dampings, share, 1.0 - 1e-6)
    assert float(iterate.residual.max()) < 1e-12
    assert float(first.residual.min()) > 1e-6
    has_weight = arrays[2] > -math.inf
    errors = [torch.where(has_weight, (g - iterate.gamma).abs(), 0.0).amax(1) for g in first[:2]]
    assert bool((errors[1] < errors[0]).all())


def assert_accurate_or_not_finite(value, exact, digits):
    """Assert that finite values are accurate: a stored kernel returns a non-finite value where a sum underflows."""
    is_finite = torch.isfinite(value)
    torch.testing.assert_close(value[is_finite], exact[is_finite], rtol=digits, atol=0.0)


@pytest.mark.parametrize("drift", [0.0, 3.0, 200.0])
@pytest.mark.parametrize("method", [0, 1], ids=["log", "stabilized"])
def test_reductions_agree_with_explicit_sums(method, drift):
    arrays, phi, gamma = tensors()
    rows, cols, log_plan = explicit_sums(arrays, phi + drift, gamma - drift)
    kernel = both_kernels(arrays, gamma)[method]
    present = arrays[1] > -np.inf, arrays[2] > -np.inf
    got_rows, got_cols = kernel.row_logsumexp(gamma - drift), kernel.col_logsumexp(phi + drift)
    np.testing.assert_allclose(got_rows[present[0]], rows[present[0]], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(got_cols[present[1]], cols[present[1]], rtol=1e-12, atol=1e-12)
    damping = torch.tensor([[1.0], [0.5], [0.9]], dtype=torch.float64)
    phi, shape, log_mass = kernel.plan(gamma - drift, damping)
    np.testing.assert_allclose(phi[present[0]], -(damping.numpy() * rows)[present[0]], rtol=1e-12, atol=1e-12)
    log_plan = explicit_sums(arrays, phi, gamma - drift)[2]
    np.testing.assert_allclose(log_mass, logsumexp(log_plan, axis=(1, 2)), rtol=1e-12)
    np.testing.assert_allclose(
        shape, np.exp(log_plan - logsumexp(log_plan, axis=(1, 2))[:, None, None]), rtol=1e-10, atol=1e-300
    )


@pytest.mark.parametrize("method", [0, 1], ids=["log", "stabilized"])
def test_the_plan_has_unit_mass_and_respects_zeros(method):
    arrays, _, gamma = tensors()
    _, shape, _ = both_kernels(arrays, gamma)[method].plan(gamma, torch.ones(B, 1, dtype=torch.float64))
    np.testing.assert_allclose(shape.sum(dim=(1, 2)), 1.0, rtol=1e-14)
    assert shape[1, 2, 3] == 0
    assert (shape[2, 4] == 0).all()
    assert (shape[2, :, 0] == 0).all()
    assert int((shape == 0).sum()) == 1 + M + N - 1  # and nowhere else


def test_zero_weight_points_have_a_finite_value():
    arrays, phi, gamma = tensors()
    _, kernel = both_kernels(arrays, gamma)
    assert torch.isfinite(kernel.row_logsumexp(gamma)).all()
    assert torch.isfinite(kernel.col_logsumexp(phi)).all()


@pytest.mark.parametrize("spread", [1.0, 100.0, 1e4])
def test_the_stabilized_kernel_agrees_with_the_log_kernel(spread):
    arrays, phi, gamma = tensors(spread=spread)
    log, stabilized = both_kernels(arrays, gamma)
    present = arrays[1] > -np.inf, arrays[2] > -np.inf
    for scale in (0.0, 1.0, 30.0, 1000.0):
        rows, cols = log.row_logsumexp(scale * gamma)[present[0]], log.col_logsumexp(scale * phi)[present[1]]
        assert_accurate_or_not_finite(stabilized.row_logsumexp(scale * gamma)[present[0]], rows, 1e-11)
        assert_accurate_or_not_finite(stabilized.col_logsumexp(scale * phi)[present[1]], cols, 1e-11)
    assert torch.isfinite(stabilized.row_logsumexp(gamma)).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("share", [0.4, 0.97, 1.01, 1.02, 1.03, 1.04, 1.05, 1.1, 1.18, 7.0])
def test_a_sum_that_underflows_is_accurate_or_not_finite(share, dtype):
    # Column 0 is reached from row 0 alone, and that row's potential lies `depth` below where K was made. Past
    # the smallest normal number a product holds a few bits of the sum, further on none.
    depth = -share * math.log(torch.finfo(dtype).tiny)
    cost = torch.zeros(1, 3, 3, dtype=dtype)
    cost[0, 1:, 0] = 1e5
    log_w = torch.full((1, 3), 1 / 3, dtype=dtype).log()
    arrays = cost, log_w, log_w, torch.ones(1, dtype=dtype)
    log, stabilized = both_kernels(arrays, torch.zeros(1, 3, dtype=dtype))
    phi = torch.tensor([[-depth, 0.0, 0.0]], dtype=dtype)
    digits = 8 * torch.finfo(dtype).eps
    assert log.col_logsumexp(phi)[0, 0].item() == pytest.approx(-depth - math.log(3), rel=digits)
    assert_accurate_or_not_finite(stabilized.col_logsumexp(phi), log.col_logsumexp(phi), digits)


def test_an_entry_that_underflows_beside_a_small_sum():
    # Rows 0 and 1 give column 0 the same share; K holds a few bits of the second, whose potential is higher.
    cost = torch.zeros(1, 3, 3, dtype=torch.float64)
    cost[0, 1, 0], cost[0, 2, 0] = 743.0, 1e5
    log_w = torch.zeros(1, 3, dtype=torch.float64)
    arrays = cost, log_w, log_w, torch.ones(1, dtype=torch.float64)
    log, stabilized = both_kernels(arrays, torch.zeros(1, 3, dtype=torch.float64))
    for lift in (0.0, 5.0, 40.0):
        phi = torch.tensor([[lift - 743.0, lift, 0.0]], dtype=torch.float64)
        assert_accurate_or_not_finite(stabilized.col_logsumexp(phi), log.col_logsumexp(phi), 1e-12)


def test_a_row_of_forbidden_pairs_has_no_sum():
    arrays, _, gamma = tensors()
    arrays[0][0, 1] = torch.inf
    for kernel in both_kernels(arrays, gamma):
        assert not torch.isfinite(kernel.row_logsumexp(gamma)[0, 1])
        phi, shape, log_mass = kernel.plan(gamma, torch.ones(B, 1, dtype=torch.float64))
        assert phi[0, 1] == 0
        assert (shape[0, 1] == 0).all()
        assert torch.isfinite(log_mass).all()


def test_take_selects_batch_items():
    arrays, phi, gamma = tensors()
    index = torch.tensor([2, 0])
    for kernel in both_kernels(arrays, gamma):
        part = kernel.take(index)
        torch.testing.assert_close(
            part.row_logsumexp(gamma[index]), kernel.row_logsumexp(gamma)[index], rtol=1e-14, atol=1e-14
        )
        torch.testing.assert_close(
            part.col_logsumexp(phi[index]), kernel.col_logsumexp(phi)[index], rtol=1e-14, atol=1e-14
        )
        ones = torch.ones(B, 1, dtype=torch.float64)
        torch.testing.assert_close(part.plan(gamma[index], ones[index])[1], kernel.plan(gamma, ones)[1][index])
    far = gamma + 300.0
    part = both_kernels(arrays, far)[1].take(index)
    assert part.recenter(far[index]) is part  # the center is taken too
