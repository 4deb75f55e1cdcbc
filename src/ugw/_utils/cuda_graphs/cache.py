"""What recordings of steps and of functions share: by what they are found, how numbers get into them, who is kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ..pytree import mapped, parts
from . import mode as _recording

# Recordings are kept for what comes again: so many, of so many bytes in all.
KEPT, KEPT_BYTES = 128, 2**31
# What is remembered to have come before, whether its recording is kept or not.
MET = 1024


class Known:
    """What is known of all that differs by numbers alone. It is told apart by what it is, so a key is hashed once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.met = 0  # how often it came
        self.never = False  # could it not be recorded?


# The latest last. Recordings are found by what they are of, and which of its recordings they are.
_known: OrderedDict[Any, Known] = OrderedDict()
_kept: OrderedDict[tuple[Known, Any], Any] = OrderedDict()
_held = 0  # bytes of what is kept


def known(work: Callable[..., Any], *given: Any) -> tuple[Known, list[Tensor]]:
    """What is known of a call of `work`, a function that stays, and the tensors that it would read.

    Calls are alike whose arguments have equal frames, and which agree on what of each is one and the same tensor.
    """
    frames, found = zip(*map(parts, given), strict=True)
    flat = [tensor for some in found for tensor in some]
    key = work, frames, tuple(map(_same, found)), *_settings(flat[0])
    same = _known.setdefault(key, Known(work.__name__))
    _known.move_to_end(key)
    while len(_known) > MET:
        _, gone = _known.popitem(last=False)
        for owner, which in list(_kept):  # nobody would find them any more
            if owner is gone:
                kept(owner, which)
    return same, flat


def _same(found: list[Tensor]) -> tuple[int, ...]:
    """Which of the tensors are one and the same."""
    places: dict[int, int] = {}
    return tuple([places.setdefault(id(tensor), len(places)) for tensor in found])


def _settings(some: Tensor) -> tuple[Any, ...]:
    """What else a recording is made for; on another stream it could be overwritten while its last state is copied."""
    stream = torch.cuda.current_stream(some.device).cuda_stream if some.is_cuda else None
    modes = torch.are_deterministic_algorithms_enabled(), torch.is_inference_mode_enabled()
    return stream, torch.backends.cuda.matmul.allow_tf32, *modes


def keep(known: Known, which: Any, recording: Any) -> None:
    """Leave a recording, which says how many `bytes` it holds, to others."""
    global _held
    kept(known, which)
    _kept[known, which] = recording
    _held += recording.bytes
    while _kept and (len(_kept) > KEPT or _held > KEPT_BYTES):
        kept(*next(iter(_kept)))


def kept(known: Known, which: Any) -> Any:
    """The recording that was left there, no longer to be found; None if there is none."""
    global _held
    recording = _kept.pop((known, which), None)
    _held -= 0 if recording is None else recording.bytes
    return recording


def forget() -> None:
    """Drop the recordings that are kept: they hold memory of the device."""
    global _held
    _kept.clear()
    _known.clear()
    _held = 0
    _recording.forget()


def reserved(device: torch.device, record: Callable[[], None]) -> int:
    """Record something, and say how many bytes the device holds for it."""
    with torch.cuda.device(device):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # as a graph does that is recorded, which would hide what it takes
        before = torch.cuda.memory_reserved()
        record()
        return max(0, torch.cuda.memory_reserved() - before)


def bytes_of(found: Iterable[Tensor]) -> int:
    """What tensors take, each once."""
    return sum({id(tensor): tensor.nbytes for tensor in found}.values())


def copied(record: Any) -> Any:
    """A copy in which a tensor that is there twice is copied once."""
    twins: dict[int, tuple[Tensor, Tensor]] = {}

    def twin(tensor: Tensor) -> Tensor:
        if id(tensor) not in twins:
            twins[id(tensor)] = torch.empty_like(tensor), tensor
        return twins[id(tensor)][0]

    made = mapped(record, twin)
    write((mine for mine, _ in twins.values()), (given for _, given in twins.values()))
    return made


def write(targets: Iterable[Tensor], sources: Iterable[Tensor]) -> None:
    """Copy tensor by tensor; one that is there twice once."""
    kinds: dict[torch.dtype, dict[int, tuple[Tensor, Tensor]]] = {}
    for pair in zip(targets, sources, strict=True):
        kinds.setdefault(pair[0].dtype, {})[id(pair[0])] = pair
    for pairs in kinds.values():  # those of one type in one operation
        mine, given = map(list, zip(*pairs.values(), strict=True))
        torch._foreach_copy_(mine, given)
