"""Single-cell co-assays, two measurements of each cell: scGEM and SNARE-seq, as prepared by SCOT."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .labeled import Labeled
from .npz_files import find_file, load_labeled_arrays


@dataclass(frozen=True)
class Source:
    """Required contents of a file: the two assays (name, number of features), cells of each class by name, checksum."""

    file: str
    assays: tuple[tuple[str, int], tuple[str, int]]
    counts: dict[str, int]
    sha256: str


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


def scgem(path: str | os.PathLike[str] | None = None) -> tuple[Labeled, Labeled]:
    """Return points with class labels of scGEM (Cheow et al. 2016): gene expression (177, 34), methylation (177, 27).

    Row i of both is the same cell; classes are five stages of reprogramming. path: the file scgem.npz or a folder that
    contains it; None searches the folder named by the environment variable UGW_DATA, then the cache folder. Shapes,
    counts and a checksum are checked.

    >>> expression, methylation = scgem()  # doctest: +SKIP
    >>> expression.counts  # doctest: +SKIP
    {'BJ': 35, 'd8': 40, 'd16T+': 32, 'd24T+': 36, 'iPSc': 34}
    """
    return read_coassay(SCGEM, path)


def snareseq(path: str | os.PathLike[str] | None = None) -> tuple[Labeled, Labeled]:
    """Return points with class labels of SNARE-seq (Chen et al. 2019): accessibility (1047, 19), expression (1047, 10).

    Row i of both is the same cell; features are reduced, classes are four cell lines. path: as for `scgem`.

    >>> accessibility, expression = snareseq()  # doctest: +SKIP
    >>> expression.counts  # doctest: +SKIP
    {'H1': 379, 'GM': 324, 'BJ': 201, 'K562': 143}
    """
    return read_coassay(SNARESEQ, path)


def read_coassay(source: Source, path: str | os.PathLike[str] | None) -> tuple[Labeled, Labeled]:
    """Return both assays of a file: points (n, d) and (n, e) of the same n cells, with the same class labels (n,).

    source: name and required contents of the file; path: as for `scgem`.
    """
    counts = list(source.counts.values())
    shapes = {name: (sum(counts), width) for name, width in source.assays}
    listed = ", ".join(f"{name} ({n} × {width})" for name, (n, width) in shapes.items())
    origin = (
        "The data are those of SCOT, https://github.com/rsinghlab/SCOT, folder data/: save them as one .npz with "
        f"arrays {listed} and y, the class of each cell from 1, in the order {', '.join(source.counts)}"
    )
    file_path = find_file(source.file, "scot", path, origin)
    first, second, labels = load_labeled_arrays(file_path, shapes, counts, source.sha256)
    names = tuple(source.counts)
    return Labeled(first, labels, names), Labeled(second, labels, names)
