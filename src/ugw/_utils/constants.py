"""Constant tensors, such as random numbers of a fixed seed, computed once and kept on their device."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from .config import UTILS_CONFIG

_constants: OrderedDict[Any, Tensor] = OrderedDict()  # the most recently used last
_open_lists: list[list[Tensor]] = []  # the lists of the open `record_constants` contexts
_lock = Lock()  # held while either of them is read or changed


def cached_constant(make: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """Return the tensor make(*arguments) from a cache of the 16 last used ones; callers must not write to it."""
    # Copying it to a GPU in every call would make the host wait.
    key = make, arguments, torch.is_inference_mode_enabled()
    with _lock:
        constant = _constants.pop(key) if key in _constants else make(*arguments)
        _constants[key] = constant
        while len(_constants) > UTILS_CONFIG.max_constants:
            _constants.popitem(last=False)
        for used in _open_lists:
            used.append(constant)
    return constant


@contextmanager
def record_constants() -> Iterator[list[Tensor]]:
    """Yield a list to which all tensors that `cached_constant` returns inside the context are appended.

    A captured CUDA graph reads them where they are, and must hold them as long as it is used.
    """
    used: list[Tensor] = []
    with _lock:
        _open_lists.append(used)
    try:
        yield used
    finally:
        with _lock:  # other threads may have opened lists with equal contents
            _open_lists[:] = [other for other in _open_lists if other is not used]


def clear_constants() -> None:
    """Drop the tensors that `cached_constant` keeps, to free their memory."""
    with _lock:
        _constants.clear()
