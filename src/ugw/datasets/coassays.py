"""Single-cell co-assays, where each cell was measured twice: scGEM and SNARE-seq, as SCOT prepared them.

The files are read where they lie; nothing is downloaded and nothing is unpickled.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from ._measured import check_digest, digest, find, read_arrays

__all__ = ["SCGEM", "SNARESEQ", "Source", "digest", "read"]


@dataclass(frozen=True)
class Source:
    """A file, its arrays and what they must be: the two assays (name, width), cells of each class, and a checksum."""

    file: str
    assays: tuple[tuple[str, int], tuple[str, int]]
    counts: dict[str, int]
    sha256: str

    @property
    def cells(self) -> int:
        """How many cells there are."""
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
    """Both assays (n, d), (n, e) in float64 and classes (n,) from 0, checked. path: a file, or a folder that has it."""
    shapes = {name: (source.cells, width) for name, width in source.assays}
    listed = ", ".join(f"{name} ({source.cells} × {width})" for name, width in source.assays)
    found = find(
        source.file,
        "scot",
        path,
        "The data are those of SCOT, https://github.com/rsinghlab/SCOT, folder data/: save them as one .npz with "
        f"arrays {listed} and y, the class of each cell from 1, in the order {', '.join(source.counts)}",
    )
    arrays = read_arrays(found, shapes, list(source.counts.values()))
    check_digest(found, arrays, list(shapes), source.sha256)
    first, second = (arrays[name].astype(np.float64) for name in shapes)
    return first, second, arrays["y"].astype(np.int64) - 1
