"""The spaces of a call, checked: that they can be compared with each other, and how they are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .._utils.checks import dtype_name
from ..errors import InputError
from ..geometry.space import Space
from ..measures.divergences import Mass
from .methods import Given, both_hard


@dataclass(frozen=True, eq=False)
class Side:
    """One list of spaces, and their names if they have some. what: how an error calls the list."""

    spaces: tuple[Space, ...]
    names: tuple[str, ...] | None
    what: str

    def label(self, i: int) -> str:
        """A space as people call it."""
        return f"{self.what}[{i}]" if self.names is None else repr(self.names[i])

    @property
    def sizes(self) -> list[int]:
        """Points of each."""
        return [space.n for space in self.spaces]


def read(spaces: Any, spaces_y: Any, names: Any) -> tuple[Side, Side]:
    """The two lists; the second is the first, the same object, where there is one list only."""
    if spaces_y is None:
        first = _side("spaces", spaces, names)
        _check_alike([first])
        return first, first
    given = (None, None) if names is None else names
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2 or any(map(_is_name, given)):
        raise InputError(f"names of two lists must be a pair of lists, (for spaces, for spaces_y), got {names!r}")
    first, second = _side("spaces", spaces, given[0]), _side("spaces_y", spaces_y, given[1])
    _check_alike([first, second])
    return first, second


def check_masses(first: Side, second: Side, given: Given) -> None:
    """Refuse masses that no plan can have: different ones where both are kept, or too small ones."""
    rho = given["rho"]
    known = [(float(space.mass), side.label(i)) for side in (first, second) for i, space in enumerate(side.spaces)]
    (least, lightest), (most, heaviest) = min(known), max(known)
    slack = 1e3 * torch.finfo(first.spaces[0].dtype).eps
    if both_hard(given) and most > least * (1.0 + slack):
        raise InputError(
            f"both marginals are kept, which needs equal masses, got {least:.9g} for {lightest} and {most:.9g} for "
            f"{heaviest}, which differ by {most - least:.3g}: give them weights of one total, or take method 'ugw' "
            f"with a finite rho"
        )
    if isinstance(rho, Mass) and float(rho.m) > least * (1.0 + slack):
        raise InputError(
            f"Mass must be at most that of every space, got {float(rho.m):.6g} and {least:.6g} for {lightest}"
        )


def _side(what: str, spaces: Any, names: Any) -> Side:
    if isinstance(spaces, Mapping):
        if names is not None:
            raise InputError(
                f"names must be None where {what} is a dictionary, whose keys are the names, got {names!r}"
            )
        spaces, names = list(spaces.values()), list(spaces)
    if isinstance(spaces, Space) and not spaces.batched:
        raise InputError(f"{what} must be a list of spaces, got one Space: write [space]")
    if isinstance(spaces, str) or not isinstance(spaces, Iterable | Space):
        hint = f", {spaces!r}: write method={spaces!r}" if isinstance(spaces, str) else ""
        raise InputError(f"{what} must be a list of spaces, got {type(spaces).__name__}{hint}")
    found: tuple[Any, ...] = tuple(spaces)  # type: ignore[arg-type]  # a batch is its items
    if not found:
        raise InputError(f"{what} must have at least one space, got none")
    for i, space in enumerate(found):
        if not isinstance(space, Space):
            raise InputError(f"{what}[{i}] must be a Space, got {type(space).__name__}; Space.from_points makes one")
        if space.batched:
            raise InputError(f"{what}[{i}] must be one space, got a batch of {len(space)}")
    return Side(tuple(space.detach() for space in found), _names(what, names, len(found)), what)


def _is_name(value: Any) -> bool:
    return value is not None and (isinstance(value, str) or not isinstance(value, Iterable))


def _names(what: str, names: Any, count: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InputError(f"names must be a list with one for each of {what}, got {names!r}")
    names = list(names)
    if any(name is None for name in names):
        raise InputError(f"names must be given for all spaces or none, got None for {what}[{names.index(None)}]")
    found = tuple(str(name) for name in names)
    if len(found) != count:
        raise InputError(f"names must be as many as {what}, {count}, got {len(found)}")
    first: dict[str, int] = {}
    for i, name in enumerate(found):
        if first.setdefault(name, i) != i:
            raise InputError(f"names must differ, got {name!r} for {what}[{first[name]}] and {what}[{i}]")
    return found


def _check_alike(lists: list[Side]) -> None:
    """Refuse spaces of which no batch can be made."""
    start = lists[0].spaces[0]
    for side in lists:
        for i, space in enumerate(side.spaces):
            for what, mine, theirs, cure in (
                ("dtype", dtype_name(space.dtype), dtype_name(start.dtype), "use Space.to(dtype)"),
                ("device", str(space.device), str(start.device), "use Space.to(device)"),
                ("width of features", _width(space), _width(start), "features must be on all or none, of one width"),
            ):
                if mine != theirs:
                    raise InputError(
                        f"all spaces must have one {what}, got {theirs} for {lists[0].label(0)} and {mine} for "
                        f"{side.label(i)}: {cure}"
                    )


def _width(space: Space) -> str:
    return "none" if space.feature_tensor is None else str(space.feature_tensor.shape[-1])
