"""The result of `pairwise`: matrices of values, masses and statuses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from .._utils.checks import check_choice
from ..errors import InputError
from ..results.base import ResultBase
from ..results.io import Arrays, from_json_array, json_array, to_array
from ..results.records import Status

if TYPE_CHECKING:
    import pandas

# The matrices (n, m) of a result; `roots` may be None.
_TABLES = ("values", "masses", "codes", "n_iter", "roots")


@dataclass(frozen=True, eq=False, repr=False)
class PairwiseResult(ResultBase):
    """Values (n, m) of all pairs of n spaces and m others, or of n spaces with each other.

    values, masses, n_iter, codes: (n, m), NumPy arrays if the spaces were made from NumPy arrays, else tensors on their
    device. Values and masses are NaN where a pair was not solved; n_iter, the number of outer iterations, is 0 where a
    value is known exactly. codes: (n, m) integers, the codes of `status`, which is a NumPy array of enum members for
    tensors too. names: of the rows and of the columns, None without names. method: the name of the method.
    parameters: the method, its rho, eps and other options as a plain dict, in the form of `Result.parameters`. A
    relative eps, also that of "auto", is stored as its share, {"name": "Relative", "share": 0.01}: each pair has its
    own eps.

    >>> import numpy as np, ugw
    >>> sizes = {"ant": 4, "bee": 5, "cow": 9}
    >>> spaces = {name: ugw.Space.from_points(np.random.default_rng(n).random((n, 2))) for name, n in sizes.items()}
    >>> d = ugw.pairwise(spaces, method="cgw").check()
    >>> d
    PairwiseResult(cgw, 3 × 3, all converged)
    >>> bool(np.allclose(d.distances, d.distances.T)), d.status[0, 1].name
    (True, 'CONVERGED')
    """

    values: Any
    masses: Any
    codes: Any
    n_iter: Any
    names: tuple[tuple[str, ...] | None, tuple[str, ...] | None]
    method: str
    roots: Any = None  # (n, m) distances, None if the values of the method are not powers of a distance
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> np.ndarray:
        """The `ugw.Status` of each pair, a NumPy array (n, m) of objects."""
        codes = self._array("codes")
        members = np.empty(codes.shape, dtype=object)
        for index, code in np.ndenumerate(codes):
            members[index] = Status(int(code))
        return members

    @property
    def converged(self) -> Any:
        """Booleans (n, m), true where the status is CONVERGED: an array, or a tensor like `values`."""
        return self.codes == int(Status.CONVERGED)

    @property
    def _is_converged(self) -> np.ndarray:
        """Booleans (n, m), true where the status is CONVERGED, as a NumPy array."""
        return self._array("codes") == int(Status.CONVERGED)

    @property
    def distances(self) -> Any:
        """Distances (n, m), for "cgw" (if known to be a metric) and "gw" with eps = 0; InputError otherwise.

        They are the square roots of the values; for "cgw" with the cone PartialTransport the q-th roots.
        """
        if self.roots is None:
            reasons = {
                "cgw": " with this cone, rho and eps (see `is_metric` of `ugw.solve_conic`; it takes eps = 0)",
                "gw": " at eps > 0: take eps = 0",
            }
            reason = reasons.get(self.method, ": take method='cgw'")
            raise InputError(
                f"the values of {self.method!r} are not powers of a distance{reason}; `values` has them as they are"
            )
        return self.roots

    @property
    def message(self) -> str:
        """How many pairs did not converge, with the status of the first one and what to change; or "converged"."""
        failed = np.argwhere(~self._is_converged)
        if not len(failed):
            return Status.CONVERGED.message
        i, j = (int(k) for k in failed[0])
        count = f"{len(failed)} of {self._is_converged.size} values" if len(failed) > 1 else "one value"
        return f"{count} not converged, first {self.label(i, j)}: {Status(int(self.codes[i, j])).message}"

    def label(self, i: int, j: int) -> str:
        """Return the text for pair (i, j): `('a', 'b')`, the names of the spaces, or `(0, 1)` if they have none."""
        labels = [repr(side[k]) if side is not None else str(k) for side, k in zip(self.names, (i, j), strict=True)]
        return f"({labels[0]}, {labels[1]})"

    def rows(self) -> list[tuple[str, str]]:
        """Return (name, text) of each line of the table that notebooks show: method, pairs, range of values, status."""
        n, m = self.codes.shape
        values = self._array("values")
        spread = f"{np.nanmin(values):.6g} to {np.nanmax(values):.6g}" if np.isfinite(values).any() else "none"
        return [("method", self.method), ("pairs", f"{n} × {m}"), ("values", spread), ("status", self.message)]

    def to_arrays(self) -> Arrays:
        """Return for `save` all matrices by name, "facts" (method, names, parameters as JSON), and the bool "numpy"."""
        arrays = {"numpy": np.array(isinstance(self.values, np.ndarray))}
        for name in _TABLES:
            if getattr(self, name) is not None:
                arrays[name] = self._array(name)
        facts = {"method": self.method, "names": self.names, "parameters": self.parameters}
        return arrays | {"facts": json_array(facts)}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Return the `PairwiseResult` stored in the arrays of `to_arrays`; KeyError or ValueError for other arrays."""
        facts = from_json_array(arrays["facts"])
        names = tuple(None if side is None else tuple(side) for side in facts["names"])
        tables: dict[str, Any] = {name: arrays.get(name) for name in _TABLES}
        if not arrays["numpy"]:
            tables = {name: None if table is None else torch.from_numpy(table) for name, table in tables.items()}
        if arrays["values"].shape != arrays["codes"].shape or arrays["codes"].ndim != 2:
            raise ValueError("arrays of the wrong shape")
        return cls(
            names=names,  # type: ignore[arg-type]
            method=facts["method"],
            parameters=facts["parameters"],
            **tables,
        )

    def to_frame(self, what: str = "values") -> pandas.DataFrame:
        """Return a matrix (n, m) as a pandas DataFrame whose index and columns are the names of the spaces.

        Without names these are 0, 1, and so on. what: "values", "masses", "distances", "status" (enum members) or
        "n_iter". Raises InputError for "distances" of a method without any.
        """
        try:
            import pandas
        except ImportError:
            raise InputError("to_frame needs pandas: pip install pandas") from None
        check_choice("what", what, ("values", "masses", "distances", "status", "n_iter"))
        rows, cols = (None if side is None else list(side) for side in self.names)
        return pandas.DataFrame(self._array(what), index=rows, columns=cols)

    def _array(self, name: str) -> np.ndarray:
        """Return the attribute with this name, a matrix (n, m), as a NumPy array."""
        table = getattr(self, name)
        return table if isinstance(table, np.ndarray) else to_array(table)

    def __len__(self) -> int:
        """Return the number of rows, which is the number of spaces of the first list."""
        return len(self.codes)

    def __repr__(self) -> str:
        """Return one line: method, number of rows and columns, and fraction of converged pairs."""
        n, m = self.codes.shape
        fraction = float(self._is_converged.mean())
        return f"PairwiseResult({self.method}, {n} × {m}, {'all' if fraction == 1.0 else f'{fraction:.1%}'} converged)"
