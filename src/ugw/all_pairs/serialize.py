"""Spaces as plain arrays: to send them to another process, and to know them again."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..geometry.space import Space


def packed(value: Any) -> Any:
    """A record of tensors as (its class, its fields), tensors as arrays of their own: a view takes no more along."""
    if isinstance(value, Tensor):
        return np.ascontiguousarray(value.detach().cpu().numpy())
    if is_dataclass(value) and not isinstance(value, type):
        return type(value), {f.name: packed(getattr(value, f.name)) for f in fields(value)}
    return value


def unpacked(value: Any) -> Any:
    """What `packed` made, as it was, on the CPU."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value if value.flags.writeable else value.copy())
    if isinstance(value, tuple) and len(value) == 2 and is_dataclass(value[0]):
        kind, parts = value
        return kind(**{name: unpacked(part) for name, part in parts.items()})
    return value


def digest(space: Space) -> str:
    """The fingerprint of all arrays of a space."""
    found = blake2b(digest_size=16)

    def add(name: str, value: Any) -> None:
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict):
            for part, inside in value[1].items():
                add(f"{name}.{part}", inside)
        elif isinstance(value, np.ndarray):
            found.update(f"{name} {value.dtype.str} {value.shape}".encode())
            found.update(value.data)
        else:
            found.update(f"{name} {value!r}".encode())

    for name in ("metric", "weight_tensor", "feature_tensor", "point_tensor"):
        add(name, packed(getattr(space, name)))
    return found.hexdigest()
