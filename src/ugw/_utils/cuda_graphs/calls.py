"""Functions as CUDA graphs: a first plan takes hundreds of small operations, and a graph is one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..pytree import bare, tensors
from . import cache as recordings
from . import mode as _recording

Made = TypeVar("Made")
# More keeps a GPU busy without a graph.
MOST_BYTES = 2**25
# What was called so often is worth to be recorded; there is one recording of it.
OFTEN, CALL = 2, "call"


def recorded(function: Callable[..., Made], *given: Any) -> Made:
    """function(*given), on CUDA as one graph where arguments that differ by numbers alone come for the third time.

    A function of a module, made of tensor operations. If it looks at numbers, to mend what is broken, it asks
    `_recording.looking` first. The last tensor of what it returns is to be finite: else it is called again, and may
    look. One that cannot be recorded, for want of memory or because it has to look, is called.
    """
    if not _may_be(given):
        return function(*given)
    known, flat = recordings.known(function, *given)
    known.met += 1
    if known.never or known.met <= OFTEN or recordings.bytes_of(flat) > MOST_BYTES:
        return function(*given)
    call, found = recordings.kept(known, CALL), None
    try:
        call = call or Call(function, given)
        found = call(flat)
    except RuntimeError:
        known.never = True
    else:
        recordings.keep(known, CALL, call)
    return function(*given) if found is None else found


def prepared(function: Callable[..., Made], problem: Any, *others: Any) -> Made:
    """What a function that only prepares makes of a problem, recorded if its operations never depend on numbers."""
    blind = problem.unseeing and problem.x.has_equal_sizes and problem.y.has_equal_sizes
    return recorded(function, problem, *others) if blind else function(problem, *others)


def _may_be(given: tuple[Any, ...]) -> bool:
    return next(tensors(given)).is_cuda and not torch.is_grad_enabled()


class Call:
    """A function of arguments that stay where they are; the numbers of others are written there."""

    def __init__(self, function: Callable[..., Any], given: tuple[Any, ...]) -> None:
        # Each for itself: what two arguments share depends on who made them.
        held = tuple(recordings.copied(bare(argument)) for argument in given)
        self._given = list(tensors(held))
        self._device = self._given[0].device
        _recording.constants_read()
        self.bytes = recordings.bytes_of(self._given) + self._record(lambda: self._set(function(*bare(held))))
        self._constants = _recording.constants_read()

    def _set(self, made: Any) -> None:
        self._made, self._fine = made, list(tensors(made))[-1].isfinite().all()

    def _record(self, work: Callable[[], None]) -> int:
        """Record, and say how many bytes that took."""
        return recordings.reserved(self._device, lambda: self._capture(work))

    def _capture(self, work: Callable[[], None]) -> None:
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            work()

    def _replay(self) -> None:
        with torch.cuda.device(self._device):
            self._graph.replay()

    def __call__(self, given: list[Tensor]) -> Any | None:
        """What the function makes of other arguments, whose tensors these are; None where that is not finite."""
        recordings.write(self._given, given)
        self._replay()
        return recordings.copied(self._made) if bool(self._fine) else None
