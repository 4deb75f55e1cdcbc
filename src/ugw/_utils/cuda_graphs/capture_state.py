"""Constants on the device that captured CUDA graphs read, which must stay where they are as long as the graphs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .config import CAPTURE_CONFIG

_constants: OrderedDict[Any, Tensor] = OrderedDict()  # the most recently used last
_read_in_capture: list[Tensor] = []


def is_capturing() -> bool:
    """Is a CUDA graph being captured, so that no value may be read on the host?"""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def cached_constant(make: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """Return make(*arguments), computed once; copying it to a GPU in every call would make the host wait. Read-only."""
    key = make, arguments, torch.is_inference_mode_enabled()
    if key not in _constants:
        _constants[key] = make(*arguments)
    _constants.move_to_end(key)
    while len(_constants) > CAPTURE_CONFIG.max_constants:
        _constants.popitem(last=False)
    if is_capturing():
        _read_in_capture.append(_constants[key])
    return _constants[key]


def pop_captured_constants() -> list[Tensor]:
    """Return the constants read in captures since the last call; a captured graph must hold them while it is used."""
    found = list(_read_in_capture)
    _read_in_capture.clear()
    return found


def clear_constants() -> None:
    """Empty the cache of tensors that `cached_constant` fills, to free their memory."""
    _constants.clear()
