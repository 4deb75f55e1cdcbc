"""Warnings that point at the line of the user's code that called the library."""

from __future__ import annotations

import sys
import warnings

# Packages whose frames are skipped: a torch module calls the `forward` of a loss.
_INTERNAL_PACKAGES = ("ugw", "torch")


def warn_at_caller(message: str, category: type[Warning]) -> None:
    """Issue a warning whose location is the innermost line outside `ugw` and torch."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INTERNAL_PACKAGES:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
