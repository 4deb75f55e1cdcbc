"""Warnings that point at the line of the user's code that called the library."""

from __future__ import annotations

import sys
import warnings

# Packages whose frames are skipped: a torch module calls the `forward` of a loss.
_INTERNAL_PACKAGES = ("ugw", "torch")


def warn_at_caller(message: str, category: type[Warning]) -> None:
    """Issue a warning whose location is the innermost line outside `ugw` and torch."""
    warnings.warn(message, category, stacklevel=_stacklevel_outside_library() + 1)


def _stacklevel_outside_library() -> int:
    """Return the `stacklevel` of the innermost frame outside `ugw` and torch, counted from the calling function."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and _package(frame.f_globals.get("__name__", "")) in _INTERNAL_PACKAGES:
        frame, level = frame.f_back, level + 1
    return level - 1


def _package(module: str) -> str:
    """Return the top-level package of a module's dotted name."""
    return module.partition(".")[0]
