"""Single-cell co-assays, two measurements of each cell: scGEM and SNARE-seq, as prepared by SCOT."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from ._measured import check_digest, digest, find_file, load_labeled_arrays

__all__ = ["SCGEM", "SNARESEQ", "Source", "digest", "read"]


@dataclass(frozen=True)
class Source:
    """Required contents of a file: the two assays (name, number of features), cells of each class, and a checksum."""

    file: str
    assays: tuple[tuple[str, int], tuple[str, int]]
    counts: dict[str, int]
    sha256: str

    @property
    def cells(self) -> int:
        """The number of cells."""
        return sum(self.counts.values())


SCGEM = Source(
    "scgem.npz",
    (("expression", 34), ("methylation", 27)),
    {"BJ": 35, "d8": 40, "d16T+": 32, "d24T+": 36, "iPSc": 34},
    "f830c249bc4796a05d5a4091d29e3ffb9fa00f0effe583345ce18d8b3675907d",
)
SNARESEQ = Source(
    "snareseq.npz",
    (("atac", 19), ("rna", 10)),
    {"H1": 379, "GM": 324, "BJ": 201, "K562": 143},
    "c9e58c98202ca413fd4b312bbf9fd87861b1d0d18e52180b33f3475cd3134d5e",
)


def read(source: Source, path: str | os.PathLike[str] | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return both assays (n, d), (n, e) in float64 and classes (n,) from 0. path: a file, or a folder that has it."""
    shapes = {name: (source.cells, width) for name, width in source.assays}
    listed = ", ".join(f"{name} ({source.cells} × {width})" for name, width in source.assays)
    file_path = find_file(
        source.file,
        "scot",
        path,
        "The data are those of SCOT, https://github.com/rsinghlab/SCOT, folder data/: save them as one .npz with "
        f"arrays {listed} and y, the class of each cell from 1, in the order {', '.join(source.counts)}",
    )
    arrays = load_labeled_arrays(file_path, shapes, list(source.counts.values()))
    check_digest(file_path, arrays, list(shapes), source.sha256)
    first, second = (arrays[name].astype(np.float64) for name in shapes)
    return first, second, arrays["y"].astype(np.int64) - 1
