"""The number of outer steps by which initial plans are searched, and its report to the progress bar of the run.

All functions that make steps of candidates report them here. The count belongs to the innermost `count_search_steps` of
the thread, so that the many functions between a solve and the steps of its candidates need no argument for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..problems.base import SpacePair
from ..results.records import SolverOutput
from ..solvers.monitor import Monitor


@dataclass(eq=False)
class SearchSteps:
    """The outer steps of all candidates of each item so far. n_steps: (B,); monitor: shows them, None for none."""

    n_steps: Tensor
    monitor: Monitor | None

    def add_to(self, output: SolverOutput) -> SolverOutput:
        """Return the output of the solve that followed the search, with `n_steps` added to its `n_iter_search`."""
        return replace(output, n_iter_search=output.n_iter_search + self.n_steps)


_CURRENT: ContextVar[SearchSteps | None] = ContextVar("search_steps", default=None)


@contextmanager
def count_search_steps(problem: SpacePair, monitor: Monitor | None) -> Iterator[SearchSteps]:
    """Yield a `SearchSteps` with n_steps = 0, (B,), to which `report_search_steps` adds within the context."""
    steps = SearchSteps(torch.zeros(problem.batch, dtype=torch.long, device=problem.x.device), monitor)
    token = _CURRENT.set(steps)
    try:
        yield steps
    finally:
        _CURRENT.reset(token)


def report_search_steps(n_iter: Tensor) -> None:
    """Add steps of candidates to the `SearchSteps` of the current context, if any, and show it in the progress bar.

    n_iter: (B·k,), steps of k candidates of each of its B items, those of an item one after the other.
    """
    current = _CURRENT.get()
    if current is None:
        return
    current.n_steps += n_iter.view(len(current.n_steps), -1).sum(1)
    if current.monitor is not None:
        current.monitor.show_search(current.n_steps)
