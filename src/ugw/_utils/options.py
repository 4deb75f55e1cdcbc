"""Checks for the fields of solver records: one line each in `__post_init__`."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from ..errors import InputError


def whole_number(name: str, value: Any, *, least: int = 1) -> None:
    """Refuse what is not an integer ≥ `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
        raise InputError(f"{name} must be a whole number ≥ {least}, got {value!r}")


def tolerance(name: str, value: Any) -> None:
    """Refuse what is not a number in (0, 1)."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < 1:
        raise InputError(f"{name} must be a number between 0 and 1, got {value!r}")


def choice(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Refuse what is not one of the words."""
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def onlookers(name: str, *, progress: Any, callback: Any) -> None:
    """Refuse a progress that is not True or False, and a callback that cannot be called."""
    if not isinstance(progress, bool):
        raise InputError(f"{name} progress must be True or False, got {progress!r}")
    if callback is not None and not callable(callback):
        raise InputError(f"{name} callback must be a function of one step, got {callback!r}")


def shares(name: str, value: Any, names: tuple[str, ...]) -> None:
    """Raise unless `value` is a tuple of numbers in (0, 1), one for each name."""
    if not isinstance(value, tuple) or len(value) != len(names):
        raise InputError(f"{name} must be a tuple ({', '.join(names)}), got {value!r}")
    for part, number in zip(names, value, strict=True):
        tolerance(f"{name}, {part},", number)
