"""Steps as CUDA graphs: on small problems a GPU waits for its launches, and a graph is one launch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from .. import _recording
from .._batch import bare, clone, frame, mapped, tensors

# Plans with more entries keep the GPU busy without a graph.
MOST_ENTRIES = 2**25
# Steps taken one by one before one is recorded: they compile what it needs.
WARM = 1
# Rounds of inner iterations in a recorded step, where nobody looks whether fewer would do: usually, and for items that
# ask for more, up to that. More still are made one by one.
ROUNDS, LONG = 2, 40
# Where fewer than this share of the items ask for more, they get it in one of so many steps: all others would wait.
FEW, EVERY = 0.25, 8
# Recordings are kept for alike problems to come: so many, of so many bytes in all, none of which reads more than this.
KEPT, KEPT_BYTES, READ_BYTES = 128, 2**31, 2**27
# Problems that are remembered, whether their recordings are kept or not.
MET = 1024
# A GPU takes as long for plans of fewer entries.
BUSY = 2**20

Step = Callable[[Any, Any, int | None], tuple[Any, Any]]
Asks = Callable[[Any, Any], Tensor]


class Replay:
    """A step that is recorded once and from then on replayed; one too large for that is taken without looks.

    step(context, state, rounds) → (state, report) must be made of tensor operations alone when `rounds` is a number:
    then the inner solver makes so many rounds and looks at nothing. asks(context, state) → (B,): the rounds that items
    ask for, 0 where the usual do; they get them at least, or, if few ask, in some of the steps. Steps whose numbers
    turn out to be broken are taken again one by one. Whether a step is recorded or replayed makes no difference.
    """

    def __init__(self, step: Step, asks: Asks) -> None:
        self._step, self._asks = step, asks
        self._context: Any = None
        self._bare: Any = None  # the same without what it remembers, more from step to step
        self._recordings: dict[int, Recording] = {}
        self._warm, self._waited, self._off, self._large, self._again = 0, 0, False, False, False
        self._key: Any = None  # what recordings of such a step are kept by, None if they are not
        self._last: Any = None  # a state, and what it asks for
        self._asked = 0.0, 0.0

    def __call__(self, context: Any, state: Any) -> tuple[Any, Any]:
        """The next state and what it reports. The next call may overwrite the state, unless it is broken."""
        if context is not self._context:
            self._begin(context, state)
        rounds = None if self._off else self._rounds(state)
        if rounds is None:
            return self._one(state)
        if self._large or (not self._recordings and not self._again and self._warm < WARM):
            self._warm += 1
            new, report = self._step(context, state, rounds)
            signals = _signals(self._asks, context, new, report)
        else:
            if rounds not in self._recordings:
                given = context if self._key is None else self._bare
                self._recordings[rounds] = Recording(self._step, self._asks, given, state, rounds, self._key)
            new, report, signals = self._recordings[rounds].next(state)
        fine, *asked = signals.tolist()  # the one look at what the step did
        if fine:
            self._last, self._asked = new, (asked[0], asked[1])
            if self._key is not None:
                remember(self._key)  # such a step was taken without a look
            return new, report
        self._off = True
        own = self._own(state)
        if own is not None and own is self._recordings.get(rounds):  # it has written over the state that it made
            own.undo()
        return self._one(state)

    def sizes(self, context: Any, state: Any) -> Callable[[int], int]:
        """How many items to hold where so many are left: for recordings few sizes, each half of the one before."""
        if not _may_fit(context, state):
            return int
        least = max(1, BUSY // max(1, state.now.shape[0].numel()))
        return lambda live: max(least, 1 << (live - 1).bit_length())

    def released(self, state: Any) -> Any:
        """The last state as one's own: the recordings are left to others."""
        own = state if self._own(state) is None else clone(state)
        self._leave()
        return own

    def _begin(self, context: Any, state: Any) -> None:
        self._leave()
        self._context, self._warm, self._off = context, 0, not _needs_no_look(context, state)
        self._large, self._again, self._key = not _fits(context, state), False, None
        if self._off or self._large or bytes_of(context) + bytes_of(state) > READ_BYTES:
            return
        self._bare = bare(context)
        self._key = _key(self._step, self._bare, state)
        for rounds in (ROUNDS, LONG):
            there = kept((self._key, rounds))
            if there is not None:
                there.read(self._bare)
                self._recordings[rounds] = there
        # A problem that comes again has compiled what it needs, and its first step is worth a recording of its own.
        self._again = met(self._key) > 0

    def _leave(self) -> None:
        for recording in self._recordings.values():
            if recording.key is not None:
                keep(recording.key, recording)
        self._recordings, self._last = {}, None

    def _own(self, state: Any) -> Recording | None:
        """The recording that has made a state, and will overwrite it."""
        return next((r for r in self._recordings.values() if state is r.new), None)

    def _one(self, state: Any) -> tuple[Any, Any]:
        """A step of its own, which a recording will not overwrite."""
        return self._step(self._context, state if self._own(state) is None else clone(state), None)

    def _rounds(self, state: Any) -> int | None:
        """Rounds of the next step, None for as many as its items ask for."""
        if state is not self._last:
            self._asked = tuple(_summary(self._asks(self._context, state)).tolist())
        share, most = self._asked
        self._waited += share > 0.0
        if share < FEW and not (share > 0.0 and self._waited % EVERY == 0):
            return ROUNDS
        return LONG if self._again and most <= LONG else None


class Recording:
    """A step from `first` to `new`, two states that stay where they are, in a context that does so too.

    Small ones have a key and a context of their own, to which the numbers of any context with that key can be written.
    """

    def __init__(self, step: Step, asks: Asks, context: Any, state: Any, rounds: int, key: Any) -> None:
        read = bytes_of(context) + bytes_of(state)
        self.key = None if key is None else (key, rounds)
        self._context = context if self.key is None else copied(context)
        self._given = list(tensors(self._context))
        self._first = clone(state)
        self._device = state.now.shape.device
        self.bytes = read + self._record(lambda: step(self._context, self._first, rounds), asks)

    def _record(self, step: Callable[[], tuple[Any, Any]], asks: Asks) -> int:
        """Record, and say how many bytes that took."""
        return reserved(self._device, lambda: self._capture(step, asks))

    def _capture(self, step: Callable[[], tuple[Any, Any]], asks: Asks) -> None:
        self._graph, self._on = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            new, self._report = step()
            given = {_place(tensor) for tensor in tensors(self._first)}
            # Parts that are handed on as they are would change under it.
            self.new = mapped(new, lambda tensor: tensor.clone() if _place(tensor) in given else tensor)
            self._signals = _signals(asks, self._context, self.new, self._report)
        with torch.cuda.graph(self._on, pool=self._graph.pool()):
            write(tensors(self._first), tensors(self.new))

    def read(self, context: Any) -> None:
        """Take over the numbers of a context."""
        write(self._given, tensors(context))

    def next(self, state: Any) -> tuple[Any, Any, Tensor]:
        """The state after this one, what the step reports, and its signals."""
        with torch.cuda.device(self._device):
            if state is self.new:
                self._on.replay()
            else:
                write(tensors(self._first), tensors(state))
            self._graph.replay()
        return self.new, self._report, self._signals

    def undo(self) -> None:
        """Make the last state what it was before the last step."""
        write(tensors(self.new), tensors(self._first))


def _signals(asks: Asks, context: Any, new: Any, report: Any) -> Tensor:
    """(3,): are all numbers of a step finite, the share of items that ask for more rounds, and how many at most."""
    fine = torch.stack(list(report.numbers.values())).isfinite().all()
    return torch.cat([fine.double()[None], _summary(asks(context, new))])


def _summary(wanted: Tensor) -> Tensor:
    return torch.stack([(wanted > 0).double().mean(), wanted.max().double()])


# Recordings that nobody uses at the moment, and how often what was done before, the latest last.
_kept: OrderedDict[Any, Any] = OrderedDict()
_met: OrderedDict[Any, int] = OrderedDict()


def keep(key: Any, recording: Any) -> None:
    """Leave a recording, which says how many `bytes` it holds, to others."""
    _kept[key] = recording
    while len(_kept) > KEPT or sum(r.bytes for r in _kept.values()) > KEPT_BYTES:
        _kept.popitem(last=False)


def kept(key: Any) -> Any:
    """The recording that was left under a key, no longer to be found there; None if there is none."""
    return _kept.pop(key, None)


def met(key: Any) -> int:
    """How often this was done before."""
    return _met.get(key, 0)


def remember(key: Any) -> None:
    """Note that it was done."""
    _met[key] = met(key) + 1
    _met.move_to_end(key)
    while len(_met) > MET:
        _met.popitem(last=False)


def forget() -> None:
    """Drop the recordings that are kept: they hold memory of the device."""
    _kept.clear()
    _met.clear()
    _recording.forget()


def _may_fit(context: Any, state: Any) -> bool:
    shape = state.now.shape
    return isinstance(shape, Tensor) and shape.is_cuda and context.problem.recordable


def _needs_no_look(context: Any, state: Any) -> bool:
    """May it be taken without looks of the inner solver?"""
    shape = state.now.shape
    return _may_fit(context, state) or (isinstance(shape, Tensor) and shape.is_cuda and context.problem.unseeing)


def _fits(context: Any, state: Any) -> bool:
    return _may_fit(context, state) and state.now.shape.numel() <= MOST_ENTRIES


def _key(step: Step, context: Any, state: Any) -> Any:
    """Equal for steps that differ by numbers alone, and agree on which tensors of the context are one and the same."""
    return step, frame(context), frame(state), shared(context), *settings(state.now.shape)


def shared(record: Any) -> tuple[int, ...]:
    """Which of the tensors of a record are one and the same."""
    places: dict[int, int] = {}
    return tuple(places.setdefault(id(tensor), len(places)) for tensor in tensors(record))


def settings(some: Tensor) -> tuple[Any, ...]:
    """What else a recording is made for; on another stream it could be overwritten while its last state is copied."""
    stream = torch.cuda.current_stream(some.device).cuda_stream if some.is_cuda else None
    modes = torch.are_deterministic_algorithms_enabled(), torch.is_inference_mode_enabled()
    return stream, torch.backends.cuda.matmul.allow_tf32, *modes


def reserved(device: torch.device, record: Callable[[], None]) -> int:
    """Record something, and say how many bytes the device holds for it."""
    with torch.cuda.device(device):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # as a graph does that is recorded, which would hide what it takes
        before = torch.cuda.memory_reserved()
        record()
        return max(0, torch.cuda.memory_reserved() - before)


def bytes_of(record: Any) -> int:
    """What the tensors of a record take, each once."""
    return sum({id(tensor): tensor.nbytes for tensor in tensors(record)}.values())


def copied(context: Any) -> Any:
    """A copy in which a tensor that is there twice is copied once."""
    known: dict[int, Tensor] = {}

    def copied(tensor: Tensor) -> Tensor:
        if id(tensor) not in known:
            known[id(tensor)] = tensor.clone()
        return known[id(tensor)]

    return mapped(context, copied)


def write(targets: Iterable[Tensor], sources: Iterable[Tensor]) -> None:
    """Copy tensor by tensor; one that is there twice once."""
    written = set()
    for mine, given in zip(targets, sources, strict=True):
        if id(mine) not in written:
            mine.copy_(given)
            written.add(id(mine))


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
