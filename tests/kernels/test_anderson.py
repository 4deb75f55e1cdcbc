"""How steps are extrapolated: Triton (interpreted without a GPU) as torch, whose own tests are in test_anderson.py."""

import pytest
import torch

from ugw.kernels import anderson as trail

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
triton_trail = pytest.importorskip("ugw.kernels.triton.anderson", reason="Triton is not installed")


def grams(count, rank, seed=0):
    """Covariances of five vectors of which the last three say little new, of any length."""
    draw = torch.Generator().manual_seed(seed)
    base = torch.randn(count, 5, 40, generator=draw, dtype=torch.float64)
    base[:, 1] = base[:, 0] * torch.rand(count, 1, generator=draw, dtype=torch.float64) + 10.0**-rank * base[:, 1]
    base[:, 2:4] = (torch.rand(count, 1, 1, generator=draw, dtype=torch.float64) - 0.7) * base[:, :2]
    base = base * 10.0 ** torch.randint(-6, 3, (count, 1, 1), generator=draw)
    return (base @ base.mT).to(DEVICE)


@pytest.mark.parametrize("rank", [0, 2, 5, 9])
def test_triton_is_torch(rank):
    gram = grams(60, rank)
    gram[1], gram[2, 4, 4], gram[3] = 0.0, torch.nan, torch.inf
    draw = torch.Generator().manual_seed(1)
    size = (30.0 * torch.rand(60, generator=draw, dtype=torch.float64) - 10.0).clamp(min=0.0).to(DEVICE)
    barred = (torch.rand(60, generator=draw) < 0.5).to(DEVICE)
    expected, found = (module.anderson_coefficients(gram, size, barred) for module in (trail, triton_trail))
    assert expected[2].any()
    assert (expected[1] & ~expected[2]).any()
    assert not expected[1].all()
    same = (expected[1] == found[1]) & (expected[2] == found[2])
    # What is on the edge between two answers may fall on either side; a coefficient may be a grain away.
    assert int((~same).sum()) <= 1
    torch.testing.assert_close(found[0][same], expected[0][same], rtol=1e-6, atol=1.1 * trail.GRAIN)
