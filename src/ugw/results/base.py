"""What all public results have in common: convergence and its one warning, `check`, an HTML table, `save`, `load`."""

from __future__ import annotations

import os
import warnings
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, Self, TypeVar

import torch

from .._utils.caller import warn_at_caller
from ..errors import ConvergenceWarning, InputError, NotConverged
from .io import Arrays, read_npz, saved_kind, write_npz

AnyResult = TypeVar("AnyResult", bound="ResultBase")
# Colors of the left border of HTML tables: green if everything converged, orange if not.
_CONVERGED_COLOR, _FAILED_COLOR = "#2a7d4f", "#b3541e"


class ResultBase(ABC):
    """Interface of Result, ConicResult, Debiased, Barycenter, PairwiseResult and Tightness.

    A subclass defines `converged`, `message`, `rows`, `to_arrays` and `from_arrays`.
    """

    @property
    @abstractmethod
    def converged(self) -> Any:
        """Whether the solve converged: a bool, or an array with one entry per item or pair."""

    @property
    @abstractmethod
    def message(self) -> str:
        """One line that says how the solve ended and, if it failed, what to change."""

    @abstractmethod
    def rows(self) -> list[tuple[str, str]]:
        """Return the name and the text of each line of the table that notebooks show."""

    @abstractmethod
    def to_arrays(self) -> Arrays:
        """Return arrays by name, as `save` writes them, from which `from_arrays` restores the result."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Return the result from the arrays of `to_arrays`; raise if arrays are missing or do not fit together."""

    @property
    def all_converged(self) -> bool:
        """Whether every item or pair converged, as one bool."""
        return bool(torch.as_tensor(self.converged).all())

    def check(self) -> Self:
        """Return the result itself if every item converged; otherwise raise NotConverged with `message`."""
        if not self.all_converged:
            raise NotConverged(self.message)
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result to a `.npz` file without pickled objects; an interrupted write leaves no partial file."""
        write_npz(path, self.to_arrays())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the result that `save` wrote to `path`; raise InputError for any other file."""
        name = os.fspath(path)
        if not os.path.exists(name):
            raise InputError(f"there is no file {name}")
        if not zipfile.is_zipfile(name):
            raise InputError(f"{name} is not an .npz file written by save()")
        arrays: Arrays = {}
        try:
            arrays = read_npz(path)
            return cls.from_arrays(arrays)
        except Exception as error:  # a broken file makes the readers raise errors of many kinds
            kind = saved_kind(arrays)
            found = f"it holds a {kind}, load it with {kind}.load" if kind not in (None, cls.__name__) else str(error)
            raise InputError(f"{name} is not a saved {cls.__name__}: {found}") from error

    def _repr_html_(self) -> str:
        """Return `rows` as an HTML table, its left border green if all items converged, else orange."""
        color = _CONVERGED_COLOR if self.all_converged else _FAILED_COLOR
        body = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(text)}</td></tr>"
            for name, text in self.rows()
        )
        return f"<table style='border-left:4px solid {color}'>{body}</table>"


def warn_if_not_converged(result: AnyResult, *, consequence: str = "") -> AnyResult:
    """Return the result itself; issue one ConvergenceWarning with its `message` unless every item converged.

    consequence: text that the warning has before the message.
    """
    if not result.all_converged:
        warn_at_caller(consequence + result.message, ConvergenceWarning)
    return result


@contextmanager
def convergence_warnings_ignored() -> Iterator[None]:
    """Silence ConvergenceWarning inside the `with` block, after which the caller warns about the combined result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
