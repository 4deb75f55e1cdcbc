"""Finding, reading and checking of the `.npz` files of measured data. Nothing is downloaded or unpickled."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ..errors import InputError


def find_file(file: str, folder: str, path: str | os.PathLike[str] | None, origin: str) -> Path:
    """Return the path of a data file with the name `file`; raise InputError if it is not found.

    path: the file itself or a folder; None searches the folder that the environment variable UGW_DATA names, then ugw
    in the user's cache folder. folder: subfolder of these that may contain the file; origin: for the error, where to
    get the data.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ugw"
    data_folder = os.environ.get("UGW_DATA")
    roots = [Path(path)] if path is not None else [*([Path(data_folder)] if data_folder else []), cache]
    for root in roots:
        for candidate in (root, root / file, root / folder / file):
            if candidate.is_file():
                return candidate
    raise InputError(
        f"{file} was not found in {', '.join(map(str, roots))}. {origin}; put it into {cache / folder}, or into a "
        f"folder {folder}/ below one that the environment variable UGW_DATA names, or give path="
    )


def load_arrays(file_path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the arrays with these names of an `.npz` file, by name; raise InputError if they cannot be read."""
    try:
        with np.load(file_path, allow_pickle=False) as file:
            return {name: file[name] for name in names}
    except Exception as error:  # a damaged file may raise anything
        message = " ".join(str(error).split())
        listed = f"{', '.join(names[:-1])} and {names[-1]}"
        raise InputError(f"{file_path} must be an .npz with arrays {listed}, got: {message}") from error


def load_labeled_arrays(
    file_path: Path, shapes: Mapping[str, tuple[int, int]], counts: Sequence[int], sha256: str
) -> list[np.ndarray]:
    """Return the arrays of an `.npz` file with the names in `shapes`, in float64, and last the classes (n,), int64.

    Raises InputError unless arrays have these shapes (n, d), the array `y` in the file has counts[k] entries k + 1, and
    the checksum of all of them, made by `digest`, is `sha256`. Returned classes begin with 0.
    """
    arrays = load_arrays(file_path, (*shapes, "y"))
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise InputError(f"{name} must have shape {shape}, got {arrays[name].shape} in {file_path}")
    y = arrays["y"]
    if y.shape != (sum(counts),) or y.dtype.kind not in "iu" or y.min() < 1:
        raise InputError(f"y must be {sum(counts)} classes 1, 2, ..., got {y.dtype} {y.shape} in {file_path}")
    actual = np.bincount(y, minlength=len(counts) + 1)[1:].tolist()
    if actual != list(counts):
        raise InputError(f"y must have {list(counts)} of the classes 1, 2, ..., got {actual} in {file_path}")
    check_digest(file_path, arrays, sha256)
    return [*(arrays[name].astype(np.float64) for name in shapes), y.astype(np.int64) - 1]


def check_digest(file_path: Path, arrays: Mapping[str, np.ndarray], sha256: str) -> None:
    """Raise InputError unless the `digest` of the arrays of a file is `sha256`."""
    if digest(arrays) != sha256:
        raise InputError(f"{file_path} must have the checksum {sha256[:12]}…, got other numbers: take the file anew")


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256, in hex digits, of the numbers of the arrays in order, floats as float32, integers as int64.

    >>> digest({"x": np.zeros((2, 1)), "y": np.array([1, 2])})[:8]
    'ab25350e'
    """
    hasher = hashlib.sha256()
    for array in arrays.values():
        hasher.update(np.ascontiguousarray(array, dtype="<f4" if array.dtype.kind == "f" else "<i8").tobytes())
    return hasher.hexdigest()
