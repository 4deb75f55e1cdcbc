"""Warnings that point at the line of the user's code that called the library."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ..errors import ConvergenceWarning

# Packages whose frames are skipped: a torch module calls the `forward` of a loss.
_INTERNAL_PACKAGES = ("ugw", "torch")
# Whether the current thread is silent about solves that did not converge.
_ignores_convergence: ContextVar[bool] = ContextVar("ignores_convergence", default=False)


def warn_at_caller(message: str, category: type[Warning]) -> None:
    """Issue a warning at the innermost line outside `ugw` and torch, unless it is a suppressed ConvergenceWarning."""
    if _ignores_convergence.get() and issubclass(category, ConvergenceWarning):
        return
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INTERNAL_PACKAGES:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def convergence_warnings_ignored() -> Iterator[None]:
    """Suppress the ConvergenceWarnings of this thread inside the `with` block; the caller reports the combined result.

    The filters of `warnings`, which all threads share, do not change.
    """
    token = _ignores_convergence.set(True)
    try:
        yield
    finally:
        _ignores_convergence.reset(token)
