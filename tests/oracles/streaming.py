"""Factors of matrices that are not stored, for the tests of streaming sums."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# (batch, n, m, rank): one row, ragged edges on both sides, ranks that fill the packed columns and that do not.
SHAPES = [(1, 1, 1, 1), (2, 65, 130, 4), (1, 130, 63, 3), (1, 7, 300, 9), (3, 20, 40, 20)]


def streaming_factors(shape, dtype=torch.float32):
    """Return left (B, n, r), right (B, m, r) and bias (B, m), float32 numbers, with a column that is ignored."""
    batch, n, m, rank = shape
    draw = torch.Generator().manual_seed(0)
    left, right = (torch.randn(batch, size, rank, generator=draw) for size in (n, m))
    bias = 3.0 * torch.randn(batch, m, generator=draw)
    if m > 1:
        bias[:, 1] = -torch.inf
    return tuple(part.to(DEVICE, dtype) for part in (left, right / rank**0.5, bias))
