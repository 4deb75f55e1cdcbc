"""How exact the big products have to be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def rough() -> Iterator[None]:
    """Let float32 products on CUDA round to TF32 inside: for starts, whose errors later steps forget."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
