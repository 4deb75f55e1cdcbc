"""Steps as CUDA graphs: on small problems a GPU waits for its launches, and a graph is one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._batch import clone, put_

# Plans with more entries keep the GPU busy without a graph.
MOST_ENTRIES = 2**24
# Steps taken one by one before a graph is worth recording.
WARM = 2
# Rounds of inner iterations in a recorded step, where nobody looks whether fewer would do.
ROUNDS = 2
# Where fewer than this share of the items ask for patience, they get it in one of so many steps: all others would wait.
FEW, EVERY = 0.25, 8


class Replay:
    """A step that records itself once its shapes repeat, and from then on is replayed.

    step(context, state, rounds) → (state, report) must be made of tensor operations alone when `rounds` is a number:
    then the inner solver makes so many rounds and looks at nothing. Two recordings hand the state to each other, so
    the last state is there when a new one turns out to be broken; such a step is taken again one by one, and so
    are steps whose inner solver asks for patience, or some of them if it does so for few items.
    """

    def __init__(self, step: Callable[[Any, Any, int | None], tuple[Any, Any]]) -> None:
        self._step = step
        self._context: Any = None
        self._graphs: list[tuple[torch.cuda.CUDAGraph, Any, Any]] = []
        self._calls, self._turn, self._waited, self._off = 0, 0, 0, False

    def __call__(self, context: Any, state: Any) -> tuple[Any, Any]:
        """The next state and what it reports."""
        if context is not self._context:
            self._context, self._graphs, self._calls, self._off = context, [], 0, not _fits(context, state)
        self._calls += 1
        if self._off or self._calls <= WARM or self._patient(state):
            return self._step(context, state, None)
        if not self._graphs:
            self._record(context, state)
        if state is not self._graphs[self._turn - 1][1]:
            put_(self._first, slice(None), state)
            self._turn = 0
        graph, new, report = self._graphs[self._turn]
        graph.replay()
        if not bool(torch.stack(list(report.numbers.values())).isfinite().all()):
            self._off = True
            return self._step(context, state, None)
        self._turn = 1 - self._turn
        return new, report

    def _patient(self, state: Any) -> bool:
        """Is this a step for those that ask for patience?"""
        share = float((state.patience > 1.0).double().mean())
        self._waited += share > 0.0
        return share >= FEW or (share > 0.0 and self._waited % EVERY == 0)

    def _record(self, context: Any, state: Any) -> None:
        self._first = clone(state)
        torch.cuda.synchronize()
        there, back = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(there):
            half, report = self._step(context, self._first, ROUNDS)
            half = clone(half)  # parts that are handed on as they are would change under it
        with torch.cuda.graph(back, pool=there.pool()):
            whole, last = self._step(context, half, ROUNDS)
            put_(self._first, slice(None), clone(whole))
        self._graphs, self._turn = [(there, half, report), (back, self._first, last)], 0
        put_(self._first, slice(None), state)


def _fits(context: Any, state: Any) -> bool:
    shape = state.now.shape
    return isinstance(shape, Tensor) and shape.is_cuda and shape.numel() <= MOST_ENTRIES and context.problem.recordable
