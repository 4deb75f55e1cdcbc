"""Functions as CUDA graphs: a first plan takes hundreds of small operations, and a graph is one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from .. import _recording
from .._batch import bare, frame, tensors
from . import replay

Made = TypeVar("Made")
# More keeps a GPU busy without a graph.
MOST_BYTES = 2**25
# What was called so often is worth to be recorded; marks what could not be.
OFTEN, NEVER = 2, "never"


def recorded(function: Callable[..., Made], *given: Any) -> Made:
    """function(*given), on CUDA as one graph where arguments that differ by numbers alone come for the third time.

    A function of a module, made of tensor operations. If it looks at numbers, to mend what is broken, it asks
    `_recording.looking` first. The last tensor of what it returns is to be finite: else it is called again, and may
    look. One that cannot be recorded, for want of memory or because it has to look, is called.
    """
    if not _may_be(given):
        return function(*given)
    given = bare(given)  # what they remember depends on who asked before
    key = function, frame(given), tuple(map(replay.shared, given)), *replay.settings(next(tensors(given)))
    if replay.met(key) < OFTEN or replay.met((key, NEVER)):
        made = function(*given)
        replay.remember(key)
        return made
    replay.remember(key)  # again: what is used stays
    call, found = replay.kept(key), None
    try:
        call = call or Call(function, given)
        found = call(given)
    except RuntimeError:
        call = None
    if call is None:
        replay.remember((key, NEVER))
    else:
        replay.keep(key, call)
    return function(*given) if found is None else found


def prepared(function: Callable[..., Made], problem: Any, *others: Any) -> Made:
    """What a function that only prepares makes of a problem, recorded if its operations never depend on numbers."""
    blind = problem.unseeing and problem.x.even and problem.y.even
    return recorded(function, problem, *others) if blind else function(problem, *others)


def _may_be(given: tuple[Any, ...]) -> bool:
    on_cuda = next(tensors(given)).is_cuda and not torch.is_grad_enabled()
    return on_cuda and replay.bytes_of(given) <= MOST_BYTES


class Call:
    """A function of arguments that stay where they are; the numbers of others are written there."""

    def __init__(self, function: Callable[..., Any], given: tuple[Any, ...]) -> None:
        # Each for itself: what two arguments share depends on who made them.
        held = tuple(map(replay.copied, given))
        self._given = list(tensors(held))
        self._device = self._given[0].device
        _recording.constants_read()
        self.bytes = replay.bytes_of(given) + self._record(lambda: self._set(function(*bare(held))))
        self._constants = _recording.constants_read()

    def _set(self, made: Any) -> None:
        self._made, self._fine = made, list(tensors(made))[-1].isfinite().all()

    def _record(self, work: Callable[[], None]) -> int:
        """Record, and say how many bytes that took."""
        return replay.reserved(self._device, lambda: self._capture(work))

    def _capture(self, work: Callable[[], None]) -> None:
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            work()

    def _replay(self) -> None:
        with torch.cuda.device(self._device):
            self._graph.replay()

    def __call__(self, given: tuple[Any, ...]) -> Any | None:
        """What the function makes of other arguments, None where that is not finite."""
        replay.write(self._given, tensors(given))
        self._replay()
        return replay.copied(self._made) if bool(self._fine) else None
