"""Single-cell co-assays, where each cell was measured twice: scGEM and SNARE-seq, as SCOT prepared them.

The files are read where they lie; nothing is downloaded and nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .errors import InputError


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
    found = _found(source, path)
    names = [name for name, _ in source.assays]
    try:
        with np.load(found, allow_pickle=False) as file:
            arrays = {name: file[name] for name in (*names, "y")}
    except Exception as error:  # whatever a broken file makes the reader raise
        raise InputError(f"{found} must be an .npz with arrays {', '.join(names)} and y, got: {error}") from error
    for name, width in source.assays:
        if arrays[name].shape != (source.cells, width):
            raise InputError(f"{name} must have shape {(source.cells, width)}, got {arrays[name].shape} in {found}")
    counts = np.bincount(arrays["y"], minlength=len(source.counts) + 1)[1:].tolist()
    if arrays["y"].shape != (source.cells,) or counts != list(source.counts.values()):
        raise InputError(f"y must have {source.counts} cells of classes 1, 2, ..., got {counts} in {found}")
    if digest(arrays, names) != source.sha256:
        raise InputError(f"{found} must have the checksum {source.sha256[:12]}…, got other numbers: take the file anew")
    first, second = (arrays[name].astype(np.float64) for name in names)
    return first, second, arrays["y"].astype(np.int64) - 1


def digest(arrays: dict[str, Any], names: list[str]) -> str:
    """sha256 of the numbers themselves, in float32 and int64, however the file was packed."""
    made = hashlib.sha256()
    for name in names:
        made.update(np.ascontiguousarray(arrays[name], dtype="<f4").tobytes())
    made.update(np.ascontiguousarray(arrays["y"], dtype="<i8").tobytes())
    return made.hexdigest()


def _found(source: Source, path: str | os.PathLike[str] | None) -> Path:
    """The file itself, in or below the first of: `path`, the folder UGW_DATA, the cache folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ugw"
    given = os.environ.get("UGW_DATA")
    roots = [Path(path)] if path is not None else [*([Path(given)] if given else []), cache]
    for root in roots:
        for candidate in (root, root / source.file, root / "scot" / source.file):
            if candidate.is_file():
                return candidate
    looked = ", ".join(map(str, roots))
    names = ", ".join(f"{name} ({source.cells} × {width})" for name, width in source.assays)
    raise InputError(
        f"{source.file} was not found in {looked}. The data are those of SCOT, https://github.com/rsinghlab/SCOT, "
        f"folder data/: save them as one .npz with arrays {names} and y, the class of each cell from 1, in the order "
        f"{', '.join(source.counts)}; put it into {cache / 'scot'}, or into a folder scot/ below one that the "
        f"environment variable UGW_DATA names, or give path="
    )
