"""Two assays of the same cells, aligned without knowing which row belongs to which: scGEM and SNARE-seq.

    UGW_DATA=folder python examples/single_cell.py [scgem] [snareseq]

The folder holds scot/scgem.npz and scot/snareseq.npz (the error says where to get them). Cells are points of unit
norm; their distance counts edges of a graph of nearest neighbours by correlation, over its maximum: SCOT's recipe,
which then matches all cells to all by balanced entropic GW. Beside it the same with unbalanced marginals, first on
all cells, then with one cell type taken out of the second assay, so that a part of the first has no counterpart.

FOSCTTM: fraction of samples closer than the true match, 0 is perfect; 5-NN: share of cells of the first assay whose
five nearest cells of the second have their type; votes: share of cells of the second assay that are sent the right
type; kept: weight that the cells without counterpart keep, 1 if they are matched like all others.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ugw import InputError, datasets
from ugw.estimators import KNN, Aligner, foscttm, label_transfer_accuracy

EPS = 5e-3
# One setting for everything, chosen with both data sets in view: the assay that has more than the other may leave
# cells behind, the other may not.
SOFT, FIRM = 0.01, 1.0
NEIGHBOURS = {"scgem": 35, "snareseq": 50}


@dataclass(frozen=True)
class Row:
    """One alignment: what was removed from the second assay, the method, and how good it is."""

    removed: str
    method: str
    foscttm: float
    neighbours: float
    votes: float
    kept: float

    def __str__(self) -> str:
        kept = "" if math.isnan(self.kept) else f"{self.kept:>7.2f}"
        numbers = f"{self.foscttm:>8.3f} {self.neighbours:>7.3f} {self.votes:>7.3f} {kept}"
        return f"{self.removed:<8} {self.method:<11} {numbers}".rstrip()


HEADER = f"{'removed':<8} {'method':<11} {'FOSCTTM':>8} {'5-NN':>7} {'votes':>7} {'kept':>7}"


def unit_rows(points: np.ndarray) -> np.ndarray:
    """Points (n, d) scaled to length 1."""
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def align(name: str, removed: str | None, rho: float | tuple[float, float]) -> Row:
    """Align the first assay of a data set with the second, of which one cell type is removed."""
    first, second = getattr(datasets, name)()
    X, Y, labels = unit_rows(first.points), unit_rows(second.points), first.labels
    there = np.ones(len(X), dtype=bool) if removed is None else labels != first.names.index(removed)
    metric = KNN(k=NEIGHBOURS[name], metric="correlation", hops=True, bridge=True)
    aligner = Aligner(metric=metric, rho=rho, eps=EPS).fit(X, Y[there])
    projected, truth = aligner.embedding_[there], labels[there]
    return Row(
        removed="nothing" if removed is None else removed,
        method="balanced" if rho == math.inf else "unbalanced",
        foscttm=foscttm(projected, Y[there]),
        neighbours=label_transfer_accuracy(projected, truth, Y[there], truth),
        votes=float((aligner.transfer_labels(labels)[0] == truth).mean()),
        kept=math.nan if there.all() else float(aligner.mass_[0][~there].mean()),
    )


def rows(name: str) -> Iterator[Row]:
    """Balanced beside unbalanced: on all cells, then without each cell type in turn."""
    names = getattr(datasets, name)()[0].names
    for removed in (None, *names):
        for rho in (math.inf, FIRM if removed is None else (SOFT, FIRM)):
            yield align(name, removed, rho)


def main(names: list[str]) -> int:
    """Print a table for each data set, and the means over the cell types that are removed."""
    for name in names or list(NEIGHBOURS):
        try:
            print(f"\n{name}, k = {NEIGHBOURS[name]}, eps = {EPS:g}\n{HEADER}")
            made = []
            for row in rows(name):
                made.append(row)
                print(row, flush=True)
        except InputError as error:
            print(error)
            return 1
        for method in ("balanced", "unbalanced"):
            some = [row for row in made if row.method == method and row.removed != "nothing"]
            mean = np.mean([(row.foscttm, row.neighbours, row.votes, row.kept) for row in some], axis=0)
            print(Row("mean", method, *mean.tolist()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
