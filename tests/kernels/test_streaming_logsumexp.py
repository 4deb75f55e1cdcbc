"""Streaming sums, in torch and in Triton (interpreted where there is no GPU), against sums over the stored matrix."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from ugw._utils.precision import _rounded, halves
from ugw.kernels import streaming_logsumexp as streaming

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
triton_ops = pytest.importorskip("ugw.kernels.triton.streaming", reason="Triton is not installed")
# Of both backends: the module, the dtype, and the largest error of a logarithm.
BACKENDS = [(streaming, torch.float64, 1e-12), (streaming, torch.float32, 2e-5), (triton_ops, torch.float32, 3e-5)]
NAMES = ["torch-float64", "torch-float32", "triton"]
# (batch, n, m, rank): one row, ragged edges on both sides, ranks that fill the packed columns and that do not.
SHAPES = [(1, 1, 1, 1), (2, 65, 130, 4), (1, 130, 63, 3), (1, 7, 300, 9), (3, 20, 40, 20)]


def arrays(shape, seed=0):
    """left, right, bias with a point that does not count, values; float32 numbers in float64."""
    batch, n, m, rank = shape
    rng = np.random.default_rng(seed)
    made = [rng.normal(size=(batch, n, rank)), rng.normal(size=(batch, m, rank)) / rank**0.5]
    made += [3.0 * rng.normal(size=(batch, m)), rng.normal(size=(batch, m, 5))]
    left, right, bias, values = (a.astype(np.float32).astype(np.float64) for a in made)
    if m > 1:
        bias[:, 1] = -np.inf
    return left, right, bias, values


def tensors(made, dtype):
    return [torch.tensor(a, dtype=dtype, device=DEVICE) for a in made]


def stored(left, right, bias):
    return left @ right.transpose(0, 2, 1) + bias[:, None, :]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("backend", "dtype", "error"), BACKENDS, ids=NAMES)
@pytest.mark.parametrize("off", [None, 0.0, 5.0, -400.0, 2000.0], ids=str)
def test_log_sums(backend, dtype, error, shape, off):
    left, right, bias, _ = arrays(shape)
    exact = logsumexp(stored(left, right, bias), axis=2)
    guess = None if off is None else torch.tensor(exact + off, dtype=dtype, device=DEVICE)
    got = backend.streaming_logsumexp(*tensors((left, right, bias), dtype), guess)
    # A guess that far off costs digits of the sum itself.
    np.testing.assert_allclose(got.cpu(), exact, atol=error * (1.0 + 0.02 * abs(off or 0.0)), rtol=0.0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("backend", "dtype", "error"), BACKENDS, ids=NAMES)
def test_weighted_sums(backend, dtype, error, shape):
    left, right, bias, values = arrays(shape)
    z = stored(left, right, bias)
    shift = logsumexp(z, axis=2)
    exact = np.exp(z - shift[:, :, None]) @ values
    got = backend.streaming_weighted_sum(*tensors((left, right, bias, shift, values), dtype))
    np.testing.assert_allclose(got.cpu(), exact, atol=error * np.abs(values).max(), rtol=0.0)


@pytest.mark.parametrize(("backend", "dtype", "error"), BACKENDS, ids=NAMES)
def test_wide_values(backend, dtype, error):
    left, right, bias, _ = arrays((1, 20, 70, 2))
    values = np.random.default_rng(1).normal(size=(1, 70, 40)).astype(np.float32)
    z = stored(left, right, bias)
    shift = logsumexp(z, axis=2)
    got = backend.streaming_weighted_sum(*tensors((left, right, bias, shift, values), dtype))
    np.testing.assert_allclose(got.cpu(), np.exp(z - shift[:, :, None]) @ values, atol=5 * error, rtol=0.0)


def test_blocks_change_nothing(monkeypatch):
    made = tensors(arrays((2, 50, 31, 3)), torch.float64)
    guess = streaming.streaming_logsumexp(*made[:3])
    whole = streaming.streaming_logsumexp(*made[:3], guess), streaming.streaming_weighted_sum(*made[:3], guess, made[3])
    monkeypatch.setitem(streaming.BLOCK, DEVICE, 200)
    parts = streaming.streaming_logsumexp(*made[:3], guess), streaming.streaming_weighted_sum(*made[:3], guess, made[3])
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("magnitude", [1e-3, 1.0, 300.0])
def test_packed_products_have_the_accuracy_of_float32(magnitude):
    # Rounded to TF32 as the hardware does, the packed product must be as good as float32's own.
    left, right, bias, _ = tensors(arrays((1, 40, 50, 4)), torch.float32)
    left, shift = magnitude * left, torch.zeros_like(left[:, :, 0])
    bias = bias.clamp(min=-3.0)
    rows, cols = triton_ops.packed(left, right, bias, shift)
    assert torch.equal(rows, _rounded(rows))
    assert torch.equal(cols, _rounded(cols))
    product = (rows.double() @ cols.double().mT)[:, :, :50] / triton_ops.LOG2E
    exact = left.double() @ right.double().mT + bias.double()[:, None, :]
    assert float((product - exact).abs().max()) <= 2e-6 * max(1.0, magnitude)


def test_blocks_are_made_in_one_place(monkeypatch):
    """Each in a place of its own, with sums kept between them, they took thousands of times the memory of one."""
    monkeypatch.setitem(streaming.BLOCK, "cpu", 40)
    left, right, bias, shift = torch.rand(2, 9, 3), torch.rand(2, 5, 3), torch.rand(2, 5), torch.rand(2, 9)
    expected = left @ right.mT + bias[:, None, :] - shift[:, :, None]
    with torch.no_grad():
        seen = [(z.data_ptr(), z.clone()) for z in streaming._blocks(left, right, bias, shift)]
    assert [z.shape[1] for _, z in seen] == [4, 4, 1]
    assert len({place for place, _ in seen}) == 1
    torch.testing.assert_close(torch.cat([z for _, z in seen], dim=1), expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_packing_is_that_of_plain_torch(shape):
    """Side by side: the halves of both factors, those of the bias and of the shift, and ones beside these."""
    left, right, bias, _ = tensors(arrays(shape), torch.float32)
    shift = torch.linspace(-2.0, 2.0, left[:, :, 0].numel(), device=DEVICE).view_as(left[:, :, 0])
    m, rank = right.shape[1:]
    (l_hi, l_lo), (r_hi, r_lo) = halves(left * triton_ops.LOG2E), halves(right)
    bias_halves = halves((bias * triton_ops.LOG2E).clamp(min=triton_ops.NEVER))
    shift_halves = halves(-triton_ops.LOG2E * shift)
    ones = torch.ones_like(shift), torch.ones_like(bias)
    expected_rows = torch.cat([l_hi, l_hi, l_lo, torch.stack([ones[0], ones[0], *shift_halves], dim=2)], dim=2)
    expected_cols = torch.cat([r_hi, r_lo, r_hi, torch.stack([*bias_halves, ones[1], ones[1]], dim=2)], dim=2)
    # Points of a batch may be shared, and a matrix may be another one turned.
    turned = left.mT.contiguous().mT
    rows, cols = triton_ops.packed(turned, right, bias, shift)
    used = 3 * rank + 4
    # What is left beside the upper half may be rounded once less.
    torch.testing.assert_close(rows[:, :, :used], expected_rows, rtol=0.0, atol=1e-5)
    torch.testing.assert_close(cols[:, :m, :used], expected_cols, rtol=0.0, atol=1e-5)
    assert not rows[:, :, used:].any()
    assert not cols[:, :, used:].any()
    assert bool((cols[:, m:, 3 * rank] == triton_ops.NEVER).all())
    # However it is written: a GPU has another NaN than a CPU.
    for nan in (torch.tensor(torch.nan), torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)):
        bias[0, 0] = nan
        assert bool(triton_ops.packed(left, right, bias, shift)[1][0, 0, 3 * rank].isnan())
        assert bool(halves(bias)[0][0, 0].isnan())
