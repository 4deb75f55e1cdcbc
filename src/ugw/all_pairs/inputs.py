"""Reading and checking of the lists of spaces and of their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .._utils.checks import as_list, describe_value, dtype_name
from ..errors import InputError
from ..geometry.space import Space
from ..measures.divergences import Mass
from .config import PAIRWISE_CONFIG
from .methods import are_marginals_hard


@dataclass(frozen=True, eq=False)
class SpaceList:
    """One list of spaces, with their names or None. argument: the name of the argument, for error messages."""

    spaces: tuple[Space, ...]
    names: tuple[str, ...] | None
    argument: str

    def label(self, i: int) -> str:
        """Return the name of space i in quotes, or without names a text such as `spaces[3]`."""
        return f"{self.argument}[{i}]" if self.names is None else repr(self.names[i])

    @property
    def sizes(self) -> list[int]:
        """The number of points of each space."""
        return [space.n for space in self.spaces]


def read_spaces(spaces: Any, spaces_y: Any, names: Any) -> tuple[SpaceList, SpaceList]:
    """Return the two lists of spaces with their names, checked; if `spaces_y` is None both are the same object.

    spaces, spaces_y: lists, batches or dictionaries of spaces.
    """
    if spaces_y is None:
        first = _read_list("spaces", spaces, names)
        _check_compatible(first)
        return first, first
    pair = (None, None) if names is None else names
    is_pair = isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2
    if not is_pair or any(isinstance(side, str) or not isinstance(side, Iterable | None) for side in pair):
        raise InputError(
            f"names of two lists must be a pair of lists, (for spaces, for spaces_y), got {describe_value(names)}"
        )
    first, second = _read_list("spaces", spaces, pair[0]), _read_list("spaces_y", spaces_y, pair[1])
    _check_compatible(first, second)
    return first, second


def check_masses(first: SpaceList, second: SpaceList, rho: Any) -> None:
    """Raise InputError if some pair has no plan: hard marginals and different masses, or a mass below `ugw.Mass`."""
    masses = [(float(space.mass), side.label(i)) for side in (first, second) for i, space in enumerate(side.spaces)]
    (smallest, lightest), (largest, heaviest) = min(masses), max(masses)
    tolerance = PAIRWISE_CONFIG.mass_rounding_units * torch.finfo(first.spaces[0].dtype).eps
    if are_marginals_hard(rho) and largest > smallest * (1.0 + tolerance):
        raise InputError(
            f"both marginals are kept, which needs equal masses, got {smallest:.9g} for {lightest} and "
            f"{largest:.9g} for {heaviest}, which differ by {largest - smallest:.3g}: give them weights of one "
            f"total, or take method 'ugw' with a finite rho"
        )
    if isinstance(rho, Mass) and float(rho.m) > smallest * (1.0 + tolerance):
        raise InputError(
            f"Mass must be at most that of every space, got {float(rho.m):.6g} and {smallest:.6g} for {lightest}"
        )


def _read_list(argument: str, spaces: Any, names: Any) -> SpaceList:
    """Return the spaces of a list, a batch or a dictionary, with names, checked and without autograd graphs.

    argument: what errors call `spaces`; names: of the spaces, or None; a dictionary has its keys.
    """
    if isinstance(spaces, Mapping):
        if names is not None:
            got = describe_value(names)
            raise InputError(
                f"names must be None where {argument} is a dictionary, whose keys are the names, got {got}"
            )
        spaces, names = list(spaces.values()), list(spaces)
    if isinstance(spaces, Space) and not spaces.batched:
        raise InputError(f"{argument} must be a list of spaces, got one Space: write [space]")
    if isinstance(spaces, str):
        given = describe_value(spaces)
        raise InputError(f"{argument} must be a list of spaces, got str, {given}: write method={given}")
    items = as_list(argument, spaces, "a list of spaces")  # iterating a batch yields its items
    if not items:
        raise InputError(f"{argument} must have at least one space, got none")
    for i, space in enumerate(items):
        if not isinstance(space, Space):
            raise InputError(
                f"{argument}[{i}] must be a Space, got {type(space).__name__}; Space.from_points makes one"
            )
        if space.batched:
            raise InputError(f"{argument}[{i}] must be one space, got a batch of {len(space)}")
    return SpaceList(tuple(space.detach() for space in items), _read_names(argument, names, len(items)), argument)


def _read_names(argument: str, names: Any, count: int) -> tuple[str, ...] | None:
    """Return the names as strings, None for None; raise InputError unless there are `count` different ones."""
    if names is None:
        return None
    names = as_list("names", names, f"a list with one for each of {argument}")
    if any(name is None for name in names):
        raise InputError(f"names must be given for all spaces or none, got None for {argument}[{names.index(None)}]")
    strings = tuple(str(name) for name in names)
    if len(strings) != count:
        raise InputError(f"names must be as many as {argument}, {count}, got {len(strings)}")
    first_index: dict[str, int] = {}
    for i, name in enumerate(strings):
        if first_index.setdefault(name, i) != i:
            raise InputError(f"names must differ, got {name!r} for {argument}[{first_index[name]}] and {argument}[{i}]")
    return strings


def _check_compatible(*lists: SpaceList) -> None:
    """Raise InputError unless all spaces of all lists have one dtype, one device and one number of features."""
    expected = _shared_properties(lists[0].spaces[0])
    advice = ("use Space.to(dtype)", "use Space.to(device)", "features must be on all or none, of one width")
    for space_list in lists:
        for i, space in enumerate(space_list.spaces):
            actual = _shared_properties(space)
            for (name, value), hint in zip(actual.items(), advice, strict=True):
                if value != expected[name]:
                    raise InputError(
                        f"all spaces must have one {name}, got {expected[name]} for {lists[0].label(0)} and "
                        f"{value} for {space_list.label(i)}: {hint}"
                    )


def _shared_properties(space: Space) -> dict[str, str]:
    """Return texts by name: "dtype", "device", and "width of features", their number per point ("none" without)."""
    width = "none" if space.feature_tensor is None else str(space.feature_tensor.shape[-1])
    return {"dtype": dtype_name(space.dtype), "device": str(space.device), "width of features": width}
