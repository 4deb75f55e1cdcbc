"""What is different while a CUDA graph is recorded: nobody knows a number, and what it reads must stay where it is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# Constants that are kept, the latest last, and those that what is being recorded reads.
KEPT = 16
_constants: OrderedDict[Any, Tensor] = OrderedDict()
_read: list[Tensor] = []


def looking() -> bool:
    """May one look at numbers? Not while a graph is recorded."""
    return not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def constant(make: Callable[..., Tensor], *given: Any) -> Tensor:
    """make(*given), the same in every call: a GPU would wait for the copy each time. Not to be written to."""
    key = make, given, torch.is_inference_mode_enabled()
    if key not in _constants:
        _constants[key] = make(*given)
    _constants.move_to_end(key)
    while len(_constants) > KEPT:
        _constants.popitem(last=False)
    if not looking():
        _read.append(_constants[key])
    return _constants[key]


def constants_read() -> list[Tensor]:
    """Those that were asked for in a recording since the last call: it must hold them as long as it is replayed."""
    found = list(_read)
    _read.clear()
    return found


def forget() -> None:
    """Drop what is kept."""
    _constants.clear()
