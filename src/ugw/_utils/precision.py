"""How exact the big products have to be, and numbers in halves that TF32 holds exactly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor


def rough() -> AbstractContextManager[None]:
    """Let float32 products on CUDA round to TF32 inside: for starts, whose errors later steps forget."""
    return _tf32(allowed=True)


def careful() -> AbstractContextManager[None]:
    """Keep them from it."""
    return _tf32(allowed=False)


@contextmanager
def _tf32(*, allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """x = hi + lo up to the last bit of a float32 x, where TF32 holds both exactly."""
    hi = _rounded(x)
    return hi, _rounded(x - hi)


def _rounded(x: Tensor) -> Tensor:
    """The nearest number with the 11 bits of TF32."""
    nearest = ((x.contiguous().view(torch.int32) + 4096) & -8192).view(torch.float32)
    return torch.where(x.isnan(), x, nearest)  # whose bits would become those of 0
