"""Packed TF32 halves of the streaming sums in Triton, interpreted without a GPU."""

import pytest
import torch

from oracles.streaming import DEVICE, SHAPES, streaming_factors
from ugw._utils.precision import round_to_tf32, split_tf32
from ugw.kernels.triton.config import TRITON_CONFIG

streaming = pytest.importorskip("ugw.kernels.triton.streaming", reason="Triton is not installed")


@pytest.mark.parametrize("magnitude", [1e-3, 1.0, 300.0])
def test_packed_products_have_the_accuracy_of_float32(magnitude):
    # Rounded to TF32 as the hardware does, the packed product must be as good as float32's own.
    left, right, bias = streaming_factors((1, 40, 50, 4))
    left, shift = magnitude * left, torch.zeros_like(left[:, :, 0])
    bias = bias.clamp(min=-3.0)
    rows, cols = streaming.pack(left, right, bias, shift)
    assert torch.equal(rows, round_to_tf32(rows))
    assert torch.equal(cols, round_to_tf32(cols))
    product = (rows.double() @ cols.double().mT)[:, :, :50] / streaming.LOG2E
    exact = left.double() @ right.double().mT + bias.double()[:, None, :]
    assert float((product - exact).abs().max()) <= 2e-6 * max(1.0, magnitude)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_packing_is_that_of_plain_torch(shape):
    """Packed rows hold the halves of both factors, of the bias and of the shift, and ones."""
    left, right, bias = streaming_factors(shape)
    shift = torch.linspace(-2.0, 2.0, left[:, :, 0].numel(), device=DEVICE).view_as(left[:, :, 0])
    m, rank = right.shape[1:]
    (l_hi, l_lo), (r_hi, r_lo) = split_tf32(left * streaming.LOG2E), split_tf32(right)
    bias_halves = split_tf32((bias * streaming.LOG2E).clamp(min=TRITON_CONFIG.packed_minus_infinity))
    shift_halves = split_tf32(-streaming.LOG2E * shift)
    ones = torch.ones_like(shift), torch.ones_like(bias)
    expected_rows = torch.cat([l_hi, l_hi, l_lo, torch.stack([ones[0], ones[0], *shift_halves], dim=2)], dim=2)
    expected_cols = torch.cat([r_hi, r_lo, r_hi, torch.stack([*bias_halves, ones[1], ones[1]], dim=2)], dim=2)
    # The factor may be a transposed matrix.
    transposed = left.mT.contiguous().mT
    rows, cols = streaming.pack(transposed, right, bias, shift)
    used = 3 * rank + 4
    # The lower half may be rounded once less.
    torch.testing.assert_close(rows[:, :, :used], expected_rows, rtol=0.0, atol=1e-5)
    torch.testing.assert_close(cols[:, :m, :used], expected_cols, rtol=0.0, atol=1e-5)
    assert not rows[:, :, used:].any()
    assert not cols[:, :, used:].any()
    assert bool((cols[:, m:, 3 * rank] == TRITON_CONFIG.packed_minus_infinity).all())
    # A GPU represents NaN by other bits than a CPU.
    for nan in (torch.tensor(torch.nan), torch.tensor(0x7FFFFFFF, dtype=torch.int32).view(torch.float32)):
        bias[0, 0] = nan
        assert bool(streaming.pack(left, right, bias, shift)[1][0, 0, 3 * rank].isnan())
        assert bool(split_tf32(bias)[0][0, 0].isnan())
