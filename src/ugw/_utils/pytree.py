"""Records of tensors that share one leading batch dimension: select, write, join, copy and flatten their items.

A record is a tensor, a tuple of records, or an object with attributes and a method `take`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cache, cached_property
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

Record = TypeVar("Record")


def take(value: Record, index: Tensor) -> Record:
    """Return the batch items `index` of a tensor, a tuple or a record with its own method `take`.

    index: (k,) integers or (B,) bools. Any other value (a number, None) is returned as it is.

    >>> import torch
    >>> take((torch.tensor([1.0, 2.0, 3.0]), None), torch.tensor([2, 0]))
    (tensor([3., 1.]), None)
    """
    if isinstance(value, Tensor):
        return value[index]  # type: ignore[return-value]
    if isinstance(value, tuple):
        return tuple(take(v, index) for v in value)  # type: ignore[return-value]
    if hasattr(value, "take"):
        return value.take(index)
    return value


class BatchRecord:
    """Mixin for dataclasses whose tensor fields share one leading batch dimension: selects batch items field by field.

    Fields may be tensors, tuples, other records or None; `take` leaves everything else as it is.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Pair(BatchRecord):
    ...     first: Tensor
    ...     second: Tensor | None = None
    >>> Pair(torch.tensor([1.0, 2.0, 3.0])).take(torch.tensor([2, 0])).first
    tensor([3., 1.])
    """

    def take(self, index: Tensor) -> Self:
        """Return the record of the batch items `index`, (k,) integers or (B,) bools."""
        changes = {f.name: take(getattr(self, f.name), index) for f in fields(self)}  # type: ignore[arg-type]
        return replace(self, **changes)  # type: ignore[type-var]


def put_(target: Any, index: Tensor | slice, source: Any) -> None:
    """Write the batch items of `source` to the positions `index` of the tensors in `target`, in place.

    source, target: tensors, tuples or records of the same structure; values that are None are skipped.
    """
    if isinstance(target, Tensor):
        target[index] = source
    elif isinstance(target, tuple):
        for target_part, source_part in zip(target, source, strict=True):
            put_(target_part, index, source_part)
    elif target is not None:
        for f in fields(target):
            put_(getattr(target, f.name), index, getattr(source, f.name))


def join(parts: Sequence[Record]) -> Record:
    """Return one record with the batch items of several records of the same structure, concatenated in order.

    >>> join([(torch.tensor([1.0, 2.0]), None), (torch.tensor([3.0]), None)])
    (tensor([1., 2., 3.]), None)
    """
    first = parts[0]
    if len(parts) == 1 or first is None:
        return first
    if isinstance(first, Tensor):
        return torch.cat(parts)  # type: ignore
    if isinstance(first, tuple):
        return tuple(map(join, zip(*parts, strict=True)))  # type: ignore
    return replace(first, **{f.name: join([getattr(p, f.name) for p in parts]) for f in fields(first)})  # type: ignore


def clone(value: Record) -> Record:
    """Return a copy of a record with copies of its tensors, without its cached properties.

    Fields may be tensors, tuples, other records or None; any other value raises TypeError. Autograd graphs are kept.
    """
    if isinstance(value, Tensor):
        return value.clone()  # type: ignore[return-value]
    if isinstance(value, tuple):
        return tuple(clone(v) for v in value)  # type: ignore[return-value]
    if value is None:
        return value
    return replace(value, **{f.name: clone(getattr(value, f.name)) for f in fields(value)})  # type: ignore


def tree_map(value: Record, change: Callable[[Tensor], Tensor]) -> Record:
    """Return a copy of a record, including its cached properties, with each tensor replaced by change(tensor).

    Values that are no tensors are shared with the original.

    >>> tree_map((torch.ones(2), "name"), torch.neg)
    (tensor([-1., -1.]), 'name')
    """
    return _rebuild(value, change, lambda record: list(vars(record).items()), {})


def without_cached_properties(value: Record) -> Record:
    """Return a copy of a record, and of those in it, with the same tensors but without cached properties."""
    return _rebuild(value, lambda tensor: tensor, _fields_without_cache, {})


def _rebuild(
    value: Any,
    change: Callable[[Tensor], Tensor],
    fields_of: Callable[[Any], list[tuple[str, Any]]],
    copies: dict[int, Any],
) -> Any:
    """Return a copy of a record with each tensor in it replaced by change(tensor).

    fields_of: gives names and values of the attributes to copy; copies: those made so far, by the id of the original,
    so that a record that appears twice is copied once; extended in place.
    """
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple):
        return tuple([_rebuild(part, change, fields_of, copies) for part in value])
    if not _is_record(value):
        return value
    if id(value) not in copies:
        copy = copies[id(value)] = object.__new__(type(value))
        for name, part in fields_of(value):
            object.__setattr__(copy, name, _rebuild(part, change, fields_of, copies))
    return copies[id(value)]


def leaves(value: Any) -> Iterator[Tensor]:
    """Yield all tensors of a tensor, tuple or record, also those of cached properties, and repeated ones repeatedly."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple) or _is_record(value):
        for part in value if isinstance(value, tuple) else vars(value).values():
            yield from leaves(part)


def flatten(value: Any) -> tuple[Any, list[Tensor]]:
    """Return (structure, tensors) of a tensor, a tuple or a record (an object with `take`), without cached properties.

    The structure is hashable: shapes, dtypes and devices of the tensors, and all other values. Records with equal
    structures have their tensors in the same places. tensors: in the order of the fields, repeated ones repeatedly.
    """
    tensors: list[Tensor] = []
    return _structure(value, tensors), tensors


def _structure(value: Any, tensors: list[Tensor]) -> Any:
    """Return the hashable structure of a record: (shape, dtype, device) of each tensor, and all other values.

    The tensors of the record are appended to `tensors`.
    """
    if isinstance(value, Tensor):
        tensors.append(value)
        return value.shape, value.dtype, value.device
    if isinstance(value, tuple):
        return tuple([_structure(part, tensors) for part in value])
    if _is_record(value):
        return type(value), tuple([(name, _structure(part, tensors)) for name, part in _fields_without_cache(value)])
    return value


def _fields_without_cache(value: Any) -> list[tuple[str, Any]]:
    """Return (name, value) of each attribute of a record that is not a cached property."""
    cached = _cached_property_names(value.__class__)
    return [(name, part) for name, part in vars(value).items() if name not in cached]


@cache
def _cached_property_names(kind: Any) -> frozenset[str]:
    """Return the names of the cached properties of a class."""
    names = {name for base in kind.__mro__ for name in vars(base)}
    return frozenset(name for name in names if isinstance(getattr(kind, name, None), cached_property))


def _is_record(value: Any) -> bool:
    """Return whether a value is an object with attributes and a method `take`."""
    return hasattr(value.__class__, "take") and hasattr(value, "__dict__")


def where(condition: Tensor, if_true: Record, if_false: Record) -> Record:
    """Return a record with the batch items of `if_true` where the condition (B,) holds and of `if_false` elsewhere.

    >>> where(torch.tensor([True, False]), (torch.tensor([1, 2]), None), (torch.tensor([3, 4]), None))
    (tensor([1, 4]), None)
    """
    if isinstance(if_true, Tensor):
        return torch.where(condition.view(-1, *(1,) * (if_true.ndim - 1)), if_true, if_false)  # type: ignore
    if isinstance(if_true, tuple):
        return tuple(where(condition, u, v) for u, v in zip(if_true, if_false, strict=True))  # type: ignore
    if if_true is None:
        return if_true
    names = [f.name for f in fields(if_true)]  # type: ignore[arg-type]
    chosen = {name: where(condition, getattr(if_true, name), getattr(if_false, name)) for name in names}
    return replace(if_true, **chosen)  # type: ignore[type-var]
