"""Streaming sums in torch against sums over the stored matrix; other backends: test_dispatch.py."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from oracles.streaming import DEVICE, SHAPES, streaming_factors
from ugw.kernels import streaming_logsumexp as streaming

# The dtype and the largest error of a logarithm.
DTYPES = [(torch.float64, 1e-12), (torch.float32, 2e-5)]
SHAPES = [*SHAPES, (2, 700, 500, 3)]  # the last one in two blocks on a CPU


def arrays(shape):
    """left, right, bias with a point that does not count, values; float32 numbers in float64."""
    values = torch.randn(shape[0], shape[2], 5, generator=torch.Generator().manual_seed(1))
    return [part.double().cpu().numpy() for part in (*streaming_factors(shape), values)]


def tensors(matrices, dtype):
    return [torch.tensor(a, dtype=dtype, device=DEVICE) for a in matrices]


def exponent_matrix(left, right, bias):
    return left @ right.transpose(0, 2, 1) + bias[:, None, :]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("dtype", "error"), DTYPES, ids=str)
@pytest.mark.parametrize("off", [None, 0.0, 5.0, -400.0, 2000.0], ids=str)
def test_logsumexp(dtype, error, shape, off):
    left, right, bias, _ = arrays(shape)
    exact = logsumexp(exponent_matrix(left, right, bias), axis=2)
    guess = None if off is None else torch.tensor(exact + off, dtype=dtype, device=DEVICE)
    got = streaming.streaming_logsumexp(*tensors((left, right, bias), dtype), guess)
    # A guess that far off costs digits of the sum itself.
    np.testing.assert_allclose(got.cpu(), exact, atol=error * (1.0 + 0.02 * abs(off or 0.0)), rtol=0.0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("dtype", "error"), DTYPES, ids=str)
def test_weighted_sum(dtype, error, shape):
    left, right, bias, values = arrays(shape)
    z = exponent_matrix(left, right, bias)
    shift = logsumexp(z, axis=2)
    exact = np.exp(z - shift[:, :, None]) @ values
    got = streaming.streaming_weighted_sum(*tensors((left, right, bias, shift, values), dtype))
    np.testing.assert_allclose(got.cpu(), exact, atol=error * np.abs(values).max(), rtol=0.0)


@pytest.mark.parametrize(("dtype", "error"), DTYPES, ids=str)
def test_wide_values(dtype, error):
    left, right, bias, _ = arrays((1, 20, 70, 2))
    values = np.random.default_rng(1).normal(size=(1, 70, 40)).astype(np.float32)
    z = exponent_matrix(left, right, bias)
    shift = logsumexp(z, axis=2)
    got = streaming.streaming_weighted_sum(*tensors((left, right, bias, shift, values), dtype))
    np.testing.assert_allclose(got.cpu(), np.exp(z - shift[:, :, None]) @ values, atol=5 * error, rtol=0.0)


def test_blocks_share_one_buffer():
    """Separate blocks with sums between them would fragment the memory: thousands of times that of one buffer."""
    left, right, bias, shift = torch.rand(2, 1200, 3), torch.rand(2, 512, 3), torch.rand(2, 512), torch.rand(2, 1200)
    expected = left @ right.mT + bias[:, None, :] - shift[:, :, None]
    with torch.no_grad():
        blocks = [(z.data_ptr(), z.clone()) for z in streaming.exponent_blocks(left, right, bias, shift)]
    assert [z.shape[1] for _, z in blocks] == [512, 512, 176]
    assert len({place for place, _ in blocks}) == 1
    torch.testing.assert_close(torch.cat([z for _, z in blocks], dim=1), expected)
