"""Conversion of spaces to plain arrays, for other processes, and their digests, for checkpoints."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..geometry.space import Space


def to_arrays(value: Any) -> Any:
    """Return a record of tensors as (class, {field: array}), recursively; other values are returned unchanged.

    Arrays are contiguous copies, so that a view does not bring its whole batch along.
    """
    if isinstance(value, Tensor):
        return np.ascontiguousarray(value.detach().cpu().numpy())
    if is_dataclass(value) and not isinstance(value, type):
        return type(value), {f.name: to_arrays(getattr(value, f.name)) for f in fields(value)}
    return value


def from_arrays(value: Any) -> Any:
    """Return the record that `to_arrays` converted, with tensors on the CPU."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value if value.flags.writeable else value.copy())
    if isinstance(value, tuple) and len(value) == 2 and is_dataclass(value[0]):
        record_class, arrays = value
        return record_class(**{name: from_arrays(array) for name, array in arrays.items()})
    return value


def digest(space: Space) -> str:
    """Return a hash of all arrays of a space, with their names, dtypes and shapes, in hexadecimal digits."""
    hasher = blake2b(digest_size=16)

    def add(name: str, value: Any) -> None:
        """Hash a value that `to_arrays` returned, with its name."""
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict):
            for field_name, field_value in value[1].items():
                add(f"{name}.{field_name}", field_value)
        elif isinstance(value, np.ndarray):
            hasher.update(f"{name} {value.dtype.str} {value.shape}".encode())
            hasher.update(value.data)
        else:
            hasher.update(f"{name} {value!r}".encode())

    for name in ("metric", "weight_tensor", "feature_tensor", "point_tensor"):
        add(name, to_arrays(getattr(space, name)))
    return hasher.hexdigest()
