"""Steps as CUDA graphs: on small problems a GPU waits for its launches, and a graph is one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..pytree import bare, clone, mapped, parts, tensors
from . import cache as recordings
from .cache import Known

# Plans with more entries keep the GPU busy without a graph.
MOST_ENTRIES = 2**25
# Steps taken one by one before one is recorded: they compile what it needs.
WARM = 1
# Rounds of inner iterations in a recorded step, where nobody looks whether fewer would do: usually, and for items that
# ask for more, up to that. More still are made one by one.
ROUNDS, LONG = 2, 40
# Where fewer than this share of the items ask for more, they get it in one of so many steps: all others would wait.
FEW, EVERY = 0.25, 8
# Recordings that read more than this are not kept for alike problems to come.
READ_BYTES = 2**27
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
        self._recordings: dict[int, Recording] = {}
        self._warm, self._waited, self._off, self._large, self._again = 0, 0, False, False, False
        self._known: Known | None = None  # by what recordings of such a step are kept, None if they are not
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
                kept = self._known is not None
                self._recordings[rounds] = Recording(self._step, self._asks, context, state, rounds, kept=kept)
            new, report, signals = self._recordings[rounds].next(state)
        fine, *asked = signals.tolist()  # the one look at what the step did
        if fine:
            self._last, self._asked = new, (asked[0], asked[1])
            if self._known is not None:
                self._known.met += 1  # such a step was taken without a look
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
        least = max(1, BUSY // max(1, state.now.unit_plan[0].numel()))
        return lambda live: max(least, 1 << (live - 1).bit_length())

    def released(self, state: Any) -> Any:
        """The last state as one's own: the recordings are left to others."""
        own = state if self._own(state) is None else clone(state)
        self._leave()
        return own

    def _begin(self, context: Any, state: Any) -> None:
        self._leave()
        self._context, self._warm, self._off = context, 0, not _needs_no_look(context, state)
        self._large, self._again, self._known = not _fits(context, state), False, None
        if self._off or self._large:
            return
        frame, flat = parts(state)  # which of its tensors are the same makes no difference: it is cloned
        known, given = recordings.known(self._step, context, frame)
        if recordings.bytes_of(given) + recordings.bytes_of(flat) > READ_BYTES:
            return
        self._known = known
        for rounds in (ROUNDS, LONG):
            there = recordings.kept(known, rounds)
            if there is not None:
                there.read(given)
                self._recordings[rounds] = there
        # A problem that comes again has compiled what it needs, and its first step is worth a recording of its own.
        self._again = known.met > 0

    def _leave(self) -> None:
        if self._known is not None:
            for rounds, recording in self._recordings.items():
                recordings.keep(self._known, rounds, recording)
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

    One that is to be kept has a context of its own, to which the numbers of any like it can be written: without what
    that remembers, which is more from step to step.
    """

    def __init__(self, step: Step, asks: Asks, context: Any, state: Any, rounds: int, *, kept: bool) -> None:
        self._context = recordings.copied(bare(context)) if kept else context
        self._given, self._first = list(tensors(self._context)), clone(state)
        self._from = list(tensors(self._first))
        self._device = state.now.unit_plan.device
        read = recordings.bytes_of(self._given) + recordings.bytes_of(self._from)
        self.bytes = read + self._record(lambda: step(bare(self._context), self._first, rounds), asks)

    def _record(self, step: Callable[[], tuple[Any, Any]], asks: Asks) -> int:
        """Record, and say how many bytes that took."""
        return recordings.reserved(self._device, lambda: self._capture(step, asks))

    def _capture(self, step: Callable[[], tuple[Any, Any]], asks: Asks) -> None:
        self._graph, self._on = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            new, self._report = step()
            given = {_place(tensor) for tensor in self._from}
            # Parts that are handed on as they are would change under it.
            self.new = mapped(new, lambda tensor: tensor.clone() if _place(tensor) in given else tensor)
            self._signals = _signals(asks, self._context, self.new, self._report)
        with torch.cuda.graph(self._on, pool=self._graph.pool()):
            recordings.write(self._from, tensors(self.new))

    def read(self, given: list[Tensor]) -> None:
        """Take over the numbers of a context, whose tensors these are."""
        recordings.write(self._given, given)

    def next(self, state: Any) -> tuple[Any, Any, Tensor]:
        """The state after this one, what the step reports, and its signals."""
        with torch.cuda.device(self._device):
            if state is self.new:
                self._on.replay()
            else:
                recordings.write(self._from, tensors(state))
            self._graph.replay()
        return self.new, self._report, self._signals

    def undo(self) -> None:
        """Make the last state what it was before the last step."""
        recordings.write(tensors(self.new), self._from)


def _signals(asks: Asks, context: Any, new: Any, report: Any) -> Tensor:
    """(3,): are all numbers of a step finite, the share of items that ask for more rounds, and how many at most."""
    fine = torch.stack(list(report.numbers.values())).isfinite().all()
    return torch.cat([fine.double()[None], _summary(asks(context, new))])


def _summary(wanted: Tensor) -> Tensor:
    return torch.stack([(wanted > 0).double().mean(), wanted.max().double()])


def _may_fit(context: Any, state: Any) -> bool:
    shape = state.now.unit_plan
    return isinstance(shape, Tensor) and shape.is_cuda and context.problem.recordable


def _needs_no_look(context: Any, state: Any) -> bool:
    """May it be taken without looks of the inner solver?"""
    shape = state.now.unit_plan
    return _may_fit(context, state) or (isinstance(shape, Tensor) and shape.is_cuda and context.problem.unseeing)


def _fits(context: Any, state: Any) -> bool:
    return _may_fit(context, state) and state.now.unit_plan.numel() <= MOST_ENTRIES


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
