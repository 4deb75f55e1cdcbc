"""Steps as CUDA graphs: on small problems a GPU waits for its launches, and a graph is one launch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from .._batch import clone, frame, mapped, tensors

# Plans with more entries keep the GPU busy without a graph.
MOST_ENTRIES = 2**25
# Steps taken one by one before one is recorded: they compile what it needs.
WARM = 1
# Rounds of inner iterations in a recorded step, where nobody looks whether fewer would do.
ROUNDS = 2
# Where fewer than this share of the items ask for patience, they get it in one of so many steps: all others would wait.
FEW, EVERY = 0.25, 8
# Recordings are kept for alike problems to come: so many, of so many bytes in all, none of which reads more than this.
KEPT, KEPT_BYTES, READ_BYTES = 32, 2**30, 2**27
# A GPU takes as long for plans of fewer entries.
BUSY = 2**20

Step = Callable[[Any, Any, int | None], tuple[Any, Any]]
Asks = Callable[[Any, Any], Tensor]


class Replay:
    """A step that is recorded once and from then on replayed.

    step(context, state, rounds) → (state, report) must be made of tensor operations alone when `rounds` is a number:
    then the inner solver makes so many rounds and looks at nothing. Steps whose numbers turn out to be broken are
    taken again one by one, and so are steps for items that ask for more rounds, asks(context, state) → (B,) bool, or
    some of them if few do. Whether another step is recorded, replayed or neither makes no difference but for rounding.
    """

    def __init__(self, step: Step, asks: Asks) -> None:
        self._step, self._asks = step, asks
        self._context: Any = None
        self._recording: Recording | None = None
        self._warm, self._waited, self._off = 0, 0, False

    def __call__(self, context: Any, state: Any) -> tuple[Any, Any]:
        """The next state and what it reports. The next call may overwrite the state, unless it is broken."""
        if context is not self._context:
            self._begin(context, state)
        if self._off or self._patient(state):
            return self._one(state)
        if self._recording is None and self._warm < WARM:
            self._warm += 1
            new, report = self._step(context, state, ROUNDS)
            fine = _finite(report)
        else:
            if self._recording is None:
                self._recording = Recording(self._step, context, state)
            new, report, fine = self._recording.next(state)
        if bool(fine):
            return new, report
        self._off = True
        if self._recording is not None and state is self._recording.new:
            self._recording.undo()
        return self._one(state)

    def sizes(self, context: Any, state: Any) -> Callable[[int], int]:
        """How many items to hold where so many are left: for recordings few sizes, each half of the one before."""
        if not _may_fit(context, state):
            return int
        least = max(1, BUSY // max(1, state.now.shape[0].numel()))
        return lambda live: max(least, 1 << (live - 1).bit_length())

    def released(self, state: Any) -> Any:
        """The last state as one's own: the recordings are left to others."""
        own = clone(state) if self._recording is not None else state
        self._leave()
        return own

    def _begin(self, context: Any, state: Any) -> None:
        self._leave()
        self._context, self._warm, self._off = context, 0, not _fits(context, state)
        if not self._off:
            self._recording = _kept.pop(_key(self._step, context, state), None)
        if self._recording is not None:
            self._recording.read(context)

    def _leave(self) -> None:
        if self._recording is not None and self._recording.key is not None:
            _kept[self._recording.key] = self._recording
            while len(_kept) > KEPT or sum(r.bytes for r in _kept.values()) > KEPT_BYTES:
                _kept.popitem(last=False)
        self._recording = None

    def _one(self, state: Any) -> tuple[Any, Any]:
        """A step of its own, which a recording will not overwrite."""
        mine = self._recording is not None and state is self._recording.new
        return self._step(self._context, clone(state) if mine else state, None)

    def _patient(self, state: Any) -> bool:
        """Is this a step for those that ask for more?"""
        share = float(self._asks(self._context, state).double().mean())
        self._waited += share > 0.0
        return share >= FEW or (share > 0.0 and self._waited % EVERY == 0)


class Recording:
    """A step from `first` to `new`, two states that stay where they are, in a context that does so too.

    Small ones have a key and a context of their own, to which the numbers of any context with that key can be written.
    """

    def __init__(self, step: Step, context: Any, state: Any) -> None:
        read = _bytes(context) + _bytes(state)
        self.key = _key(step, context, state) if read <= READ_BYTES else None
        self._context = context if self.key is None else _copied(context)
        self._given = list(tensors(self._context))
        self._first = clone(state)
        self._device = state.now.shape.device
        self.bytes = read + self._record(step)

    def _record(self, step: Step) -> int:
        """Record, and say how many bytes that took."""
        with torch.cuda.device(self._device):
            before = torch.cuda.memory_reserved()
            self._capture(step)
            return max(0, torch.cuda.memory_reserved() - before)

    def _capture(self, step: Step) -> None:
        torch.cuda.synchronize()
        self._graph, self._on = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            new, self._report = step(self._context, self._first, ROUNDS)
            given = {_place(tensor) for tensor in tensors(self._first)}
            # Parts that are handed on as they are would change under it.
            self.new = mapped(new, lambda tensor: tensor.clone() if _place(tensor) in given else tensor)
            self._fine = _finite(self._report)
        with torch.cuda.graph(self._on, pool=self._graph.pool()):
            _write(tensors(self._first), tensors(self.new))

    def read(self, context: Any) -> None:
        """Take over the numbers of a context."""
        _write(self._given, tensors(context))

    def next(self, state: Any) -> tuple[Any, Any, Tensor]:
        """The state after this one, what the step reports, and whether all of that is finite."""
        with torch.cuda.device(self._device):
            if state is self.new:
                self._on.replay()
            else:
                _write(tensors(self._first), tensors(state))
            self._graph.replay()
        return self.new, self._report, self._fine

    def undo(self) -> None:
        """Make the last state what it was before the last step."""
        _write(tensors(self.new), tensors(self._first))


# Those that nobody uses at the moment, the latest last.
_kept: OrderedDict[Any, Recording] = OrderedDict()


def forget() -> None:
    """Drop the recordings that are kept: they hold memory of the device."""
    _kept.clear()


def _may_fit(context: Any, state: Any) -> bool:
    shape = state.now.shape
    return isinstance(shape, Tensor) and shape.is_cuda and context.problem.recordable


def _fits(context: Any, state: Any) -> bool:
    return _may_fit(context, state) and state.now.shape.numel() <= MOST_ENTRIES


def _key(step: Step, context: Any, state: Any) -> Any:
    """Equal for steps that differ by numbers alone, and agree on which tensors of the context are one and the same."""
    places: dict[int, int] = {}
    shared = tuple(places.setdefault(id(tensor), len(places)) for tensor in tensors(context))
    return step, frame(context), frame(state), shared, *_settings(state)


def _settings(state: Any) -> tuple[Any, ...]:
    """What else a recording is made for; on another stream it could be overwritten while its last state is copied."""
    stream = torch.cuda.current_stream(state.now.shape.device).cuda_stream if state.now.shape.is_cuda else None
    return stream, torch.backends.cuda.matmul.allow_tf32, torch.are_deterministic_algorithms_enabled()


def _bytes(record: Any) -> int:
    return sum({id(tensor): tensor.nbytes for tensor in tensors(record)}.values())


def _copied(context: Any) -> Any:
    """A copy in which a tensor that is there twice is copied once."""
    known: dict[int, Tensor] = {}

    def copied(tensor: Tensor) -> Tensor:
        if id(tensor) not in known:
            known[id(tensor)] = tensor.clone()
        return known[id(tensor)]

    return mapped(context, copied)


def _write(targets: Iterable[Tensor], sources: Iterable[Tensor]) -> None:
    written = set()
    for mine, given in zip(targets, sources, strict=True):
        if id(mine) not in written:
            mine.copy_(given)
            written.add(id(mine))


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _finite(report: Any) -> Tensor:
    return torch.stack(list(report.numbers.values())).isfinite().all()
