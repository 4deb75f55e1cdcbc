"""The number of threads that torch uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def single_thread() -> Iterator[None]:
    """Run torch on one thread inside the context, and restore the number of threads at the end.

    Matrices of a few hundred rows gain nothing from several threads, and waiting for a busy core is slow.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
