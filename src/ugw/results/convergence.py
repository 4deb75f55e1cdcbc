"""The convergence warning that every entry point issues, located at the line of its caller."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from .._utils.caller import warn_at_caller
from ..errors import ConvergenceWarning
from .base import ResultBase

AnyResult = TypeVar("AnyResult", bound=ResultBase)


def warn_if_not_converged(result: AnyResult, *, consequence: str = "") -> AnyResult:
    """Return the result; issue one ConvergenceWarning with its message unless all of it converged.

    consequence: what follows for the caller, printed before the message of the result.
    """
    if not result.all_converged:
        warn_at_caller(consequence + result.message, ConvergenceWarning)
    return result


@contextmanager
def convergence_warnings_ignored() -> Iterator[None]:
    """Silence ConvergenceWarning inside the block: the caller reports on the combined result afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
