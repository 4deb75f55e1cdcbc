"""Copies of spaces for other processes, and digests of spaces for checkpoints."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._utils.pytree import tree_map, without_cached_properties
from ..geometry.space import Space


def portable_copy(space: Space) -> Space:
    """Return a copy of a space that can be pickled for another machine: contiguous tensors on the CPU, without graphs.

    Cached properties are left out, and so is the rest of a batch of which the space is a view.
    """

    def copy(tensor: Tensor) -> Tensor:
        """Return a contiguous copy of the tensor on the CPU, without autograd graph."""
        return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)

    return tree_map(without_cached_properties(space), copy)


def digest(space: Space) -> str:
    """Return a hash, 32 hexadecimal digits, of all tensors of a space, with their names, dtypes and shapes."""
    hasher = blake2b(digest_size=16)

    def add(name: str, value: Any) -> None:
        """Add the name and contents of a tensor, a dataclass or another value to the hash."""
        if isinstance(value, Tensor):
            array = np.ascontiguousarray(value.detach().cpu().numpy())
            hasher.update(f"{name} {array.dtype.str} {array.shape}".encode())
            hasher.update(array.data)
        elif is_dataclass(value):
            for f in fields(value):
                add(f"{name}.{f.name}", getattr(value, f.name))
        else:
            hasher.update(f"{name} {value!r}".encode())

    for name in ("metric", "weight_tensor", "feature_tensor", "point_tensor"):
        add(name, getattr(space, name))
    return hasher.hexdigest()
