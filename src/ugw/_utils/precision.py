"""TF32 on and off for matrix products on CUDA, and float32 numbers split into parts that TF32 represents exactly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def tf32_products(*, allowed: bool = True) -> Iterator[None]:
    """Allow or forbid TF32 in float32 matrix products on CUDA inside the context; restore the setting afterwards."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def split_tf32(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return (high, low), float32, with x = high + low up to the last bit of a float32 x.

    high is x rounded to TF32, low the rest rounded to TF32, so that TF32 represents both exactly.
    """
    high = round_to_tf32(x)
    return high, round_to_tf32(x - high)


def round_to_tf32(x: Tensor) -> Tensor:
    """Return the float32 numbers nearest to a float32 x that have the 11 significant bits of TF32; NaN stays NaN.

    Ties are rounded away from 0.
    """
    nearest = ((x.contiguous().view(torch.int32) + 4096) & -8192).view(torch.float32)
    return torch.where(x.isnan(), x, nearest)  # rounding the bits of NaN would give 0
