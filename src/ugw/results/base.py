"""What all public results have in common: convergence and its one warning, `check`, an HTML table, `save`, `load`."""

from __future__ import annotations

import operator
import os
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from html import escape
from typing import Any, Self, TypeVar

import torch

from .._utils.caller import warn_at_caller
from .._utils.checks import as_path, describe_value
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
        """One line that says how the solve ended, of a batch for the first item that failed, and what to change."""

    @abstractmethod
    def rows(self) -> list[tuple[str, str]]:
        """Return (name, text) of each line of the table that notebooks show."""

    @abstractmethod
    def to_arrays(self) -> Arrays:
        """Return all data of the result as NumPy arrays by name, as `save` writes them and `from_arrays` reads them."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Return the result from the arrays of `to_arrays`; raise if arrays are missing or do not fit together."""

    @property
    def all_converged(self) -> bool:
        """Whether every item or pair converged, as one bool."""
        converged = self.converged
        return converged if isinstance(converged, bool) else bool(torch.as_tensor(converged).all())

    def check(self) -> Self:
        """Return the result itself if every item converged; otherwise raise NotConverged with `message`."""
        if not self.all_converged:
            raise NotConverged(self.message)
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result to a `.npz` file without pickled objects; an interrupted write leaves no partial file."""
        write_npz(as_path("path", path), self.to_arrays())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the result that `save` wrote to `path`; raise InputError for any other file."""
        name = str(as_path("path", path))
        if not os.path.exists(name):
            raise InputError(f"there is no file {name}")
        if not zipfile.is_zipfile(name):
            raise InputError(f"{name} is not an .npz file written by save()")
        arrays: Arrays = {}
        try:
            arrays = read_npz(name)
            return cls.from_arrays(arrays)
        except Exception as error:  # a broken file makes the readers raise errors of many kinds
            kind = saved_kind(arrays)
            reason = f"it holds a {kind}, load it with {kind}.load" if kind not in (None, cls.__name__) else str(error)
            if "source_marginal" in arrays:
                reason = "`ugw match` wrote it, which stores no Result"
                if "plan" in arrays:
                    reason += '; to start a solve from its plan, pass init=numpy.load(path)["plan"]'
            raise InputError(f"{name} is not a saved {cls.__name__}: {reason}") from error

    def _repr_html_(self) -> str:
        """Return `rows` as an HTML table, its left border green if all items converged, else orange."""
        color = _CONVERGED_COLOR if self.all_converged else _FAILED_COLOR
        body = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(text)}</td></tr>"
            for name, text in self.rows()
        )
        return f"<table style='border-left:4px solid {color}'>{body}</table>"


class BatchedResultBase(ResultBase):
    """Interface of the results of one problem or of a batch of problems: Result, ConicResult, Debiased, Tightness.

    A batch has len(), items `r[i]` and iteration over the items. A subclass defines `batched`, `_n_items` and `_item`.
    """

    @property
    @abstractmethod
    def batched(self) -> bool:
        """Whether the result holds a batch, also of one item; values then have a leading dimension B."""

    @property
    @abstractmethod
    def _n_items(self) -> int:
        """The number of items; 1 for a single result."""

    @abstractmethod
    def _item(self, index: int) -> Self:
        """Return item `index`, from 0 to B − 1, of a batch as a single result, without padding."""

    def __len__(self) -> int:
        """Return the number of items of a batch; raise TypeError for a single result."""
        if not self.batched:
            raise TypeError("this result is not a batch: it has no len()")
        return self._n_items

    def __bool__(self) -> bool:
        """Return True: without this, bool() of a single result would call len()."""
        return True

    def __getitem__(self, i: int) -> Self:
        """Return item i of a batch as a single result without padding; i: a whole number from −B to B − 1.

        Raises IndexError for others, TypeError for what is no integer or if this result is not a batch.
        """
        if not self.batched:
            raise TypeError("this result is not a batch: it has no items")
        try:
            index = operator.index(i)
        except TypeError:
            got = describe_value(i)
            raise TypeError(f"a batch of {len(self)} results takes an integer index, got {got}") from None
        if not -len(self) <= index < len(self):
            raise IndexError(f"a batch of {len(self)} results has no item {index}")
        return self._item(index % len(self))

    def __iter__(self) -> Iterator[Self]:
        """Return an iterator over the items of a batch, single results; raise TypeError if this is not a batch."""
        return (self[i] for i in range(len(self)))


def warn_if_not_converged(result: AnyResult, *, consequence: str = "") -> AnyResult:
    """Return `result` itself; issue a ConvergenceWarning, `consequence` + `result.message`, unless all converged."""
    if not result.all_converged:
        warn_at_caller(consequence + result.message, ConvergenceWarning)
    return result
