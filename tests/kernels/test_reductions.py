"""Sums over entries by their definitions, and sampled rows."""

import pytest
import torch

from ugw.kernels import reductions


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 9), (1, 100, 100)], ids=str)
def test_sums(shape, dtype):
    draw = torch.Generator().manual_seed(0)
    u, v = (torch.rand(shape, generator=draw).to(dtype) for _ in range(2))
    u[u < 0.3] = 0.0
    x, y = u.double(), v.double()
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(reductions.dot(u, v), (x * y).sum((1, 2)), **tolerance)
    torch.testing.assert_close(reductions.l1_distance(u, v), (x - y).abs().sum((1, 2)), **tolerance)
    torch.testing.assert_close(reductions.neg_entropy(u), torch.xlogy(x, x).sum((1, 2)), **tolerance)


def test_sampled_rows():
    """Rows at even quantiles of the weight, wherever points without weight are; their mean is near that of all rows."""
    a = torch.rand(2, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    cost = torch.linspace(0.0, 1.0, 300, dtype=torch.float64)[None, :, None].expand(2, -1, 3).contiguous()
    weights, (rows,) = reductions.sample_rows(a, [cost], 40)
    assert rows.shape == (2, 40, 3)
    torch.testing.assert_close(weights.sum(1), torch.ones(2, dtype=torch.float64))
    all_rows = (a[:, :, None] * cost).sum(1) / a.sum(1)[:, None]
    torch.testing.assert_close((weights[:, :, None] * rows).sum(1), all_rows, rtol=0.0, atol=0.01)
    padded_a, padded_cost = torch.zeros(2, 700, dtype=torch.float64), torch.full((2, 700, 3), 9.0, dtype=torch.float64)
    padded_a[:, 1:601:2], padded_cost[:, 1:601:2] = a, cost
    torch.testing.assert_close(reductions.sample_rows(padded_a, [padded_cost], 40)[1][0], rows)
