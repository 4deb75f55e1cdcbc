"""Measured data in `.npz` files: where to look for them, and what they must be.

The files are read where they lie; nothing is downloaded and nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ..errors import InputError


def cache_folder() -> Path:
    """Where data are looked for when nothing else is said."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ugw"


def find(file: str, folder: str, path: str | os.PathLike[str] | None, origin: str) -> Path:
    """The file itself, in or below the first of: `path`, the folder UGW_DATA, the cache folder.

    folder: what its folder is called there; origin: a sentence for the error, where the data come from.
    """
    cache, given = cache_folder(), os.environ.get("UGW_DATA")
    roots = [Path(path)] if path is not None else [*([Path(given)] if given else []), cache]
    for root in roots:
        for candidate in (root, root / file, root / folder / file):
            if candidate.is_file():
                return candidate
    raise InputError(
        f"{file} was not found in {', '.join(map(str, roots))}. {origin}; put it into {cache / folder}, or into a "
        f"folder {folder}/ below one that the environment variable UGW_DATA names, or give path="
    )


def load(found: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays of these names of a file."""
    try:
        with np.load(found, allow_pickle=False) as file:
            return {name: file[name] for name in names}
    except Exception as error:  # whatever a broken file makes the reader raise
        said = " ".join(str(error).split())
        listed = f"{', '.join(names[:-1])} and {names[-1]}"
        raise InputError(f"{found} must be an .npz with arrays {listed}, got: {said}") from error


def read_arrays(found: Path, shapes: Mapping[str, tuple[int, int]], classes: Sequence[int]) -> dict[str, np.ndarray]:
    """The arrays of these shapes, and y: so many of the classes 1, 2, ..., of a file, checked."""
    arrays = load(found, (*shapes, "y"))
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise InputError(f"{name} must have shape {shape}, got {arrays[name].shape} in {found}")
    y = arrays["y"]
    if y.shape != (sum(classes),) or y.dtype.kind not in "iu" or y.min() < 1:
        raise InputError(f"y must be {sum(classes)} classes 1, 2, ..., got {y.dtype} {y.shape} in {found}")
    counts = np.bincount(y, minlength=len(classes) + 1)[1:].tolist()
    if counts != list(classes):
        raise InputError(f"y must have {list(classes)} of the classes 1, 2, ..., got {counts} in {found}")
    return arrays


def check_digest(
    found: Path, arrays: Mapping[str, np.ndarray], names: Sequence[str], expected: str, whole: Sequence[str] = ("y",)
) -> None:
    """Refuse numbers that are not those of the checksum."""
    if digest(arrays, names, whole) != expected:
        raise InputError(f"{found} must have the checksum {expected[:12]}…, got other numbers: take the file anew")


def digest(arrays: Mapping[str, np.ndarray], names: Sequence[str], whole: Sequence[str] = ("y",)) -> str:
    """sha256 of the numbers themselves, `names` in float32 and `whole` in int64, however the file was packed.

    >>> digest({"x": np.zeros((2, 1)), "y": np.array([1, 2])}, ["x"])[:8]
    'ab25350e'
    """
    made = hashlib.sha256()
    for name in names:
        made.update(np.ascontiguousarray(arrays[name], dtype="<f4").tobytes())
    for name in whole:
        made.update(np.ascontiguousarray(arrays[name], dtype="<i8").tobytes())
    return made.hexdigest()
