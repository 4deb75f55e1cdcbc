"""What `pairwise` gives back: a matrix of values, and the truth about each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, NotConverged
from ..results.records import Status

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False, repr=False)
class PairwiseResult:
    """Values (n, m) of all pairs of n spaces and m others, or of n spaces with each other.

    values, masses: NumPy arrays if the spaces were made of them, else tensors on their device; NaN where a pair was not
    solved. codes, n_iter: (n, m) arrays, codes of `ugw.Status` and outer steps, 0 where a value is known exactly.
    names: of the rows and of the columns, None where they have none. method: its name.

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
    codes: np.ndarray
    n_iter: np.ndarray
    names: tuple[tuple[str, ...] | None, tuple[str, ...] | None]
    method: str
    roots: Any = None  # (n, m), None where the method is no distance

    @property
    def status(self) -> np.ndarray:
        """(n, m) of `ugw.Status`, one for each pair."""
        members = np.empty(self.codes.shape, dtype=object)
        for place, code in np.ndenumerate(self.codes):
            members[place] = Status(int(code))
        return members

    @property
    def converged(self) -> np.ndarray:
        """(n, m) bool: is the status CONVERGED?"""
        return self.codes == int(Status.CONVERGED)

    @property
    def distances(self) -> Any:
        """(n, m), roots of the values, for methods that are distances: "cgw", and "gw" with eps = 0."""
        if self.roots is None:
            why = {
                "cgw": " with this cone, rho and eps (see `is_metric` of `ugw.solve_conic`; it takes eps = 0)",
                "gw": " at eps > 0: take eps = 0",
            }
            cure = why.get(self.method, ": take method='cgw'")
            raise InputError(
                f"the values of {self.method!r} are no powers of a distance{cure}, or `values` as they are"
            )
        return self.roots

    @property
    def message(self) -> str:
        """What happened, with the cure, to the first pair that did not converge."""
        failed = np.argwhere(~self.converged)
        if not len(failed):
            return Status.CONVERGED.message
        i, j = (int(k) for k in failed[0])
        count = f"{len(failed)} of {self.codes.size} values" if len(failed) > 1 else "one value"
        return f"{count} not converged, first {self.label(i, j)}: {Status(int(self.codes[i, j])).message}"

    def label(self, i: int, j: int) -> str:
        """A pair as people call it: by names, or by places."""
        said = [repr(side[k]) if side is not None else str(k) for side, k in zip(self.names, (i, j), strict=True)]
        return f"({said[0]}, {said[1]})"

    def check(self) -> PairwiseResult:
        """Itself if every pair converged; raises NotConverged otherwise."""
        if not bool(self.converged.all()):
            raise NotConverged(self.message)
        return self

    def to_frame(self, what: str = "values") -> pandas.DataFrame:
        """`values`, or `masses`, `distances`, `status`, `n_iter`, as a table of pandas with the names."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_frame needs pandas: pip install pandas") from None
        if what not in ("values", "masses", "distances", "status", "n_iter"):
            raise InputError(f"to_frame must be given values, masses, distances, status or n_iter, got {what!r}")
        table = getattr(self, what)
        array = table if isinstance(table, np.ndarray) else table.cpu().numpy()
        rows, cols = (None if side is None else list(side) for side in self.names)
        return pandas.DataFrame(array, index=rows, columns=cols)

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        n, m = self.codes.shape
        share = float(self.converged.mean())
        return f"PairwiseResult({self.method}, {n} × {m}, {'all' if share == 1.0 else f'{share:.1%}'} converged)"
