"""A folder that keeps finished blocks: one file each, and a manifest that says what they are blocks of."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._utils.atomic_files import atomic_folder
from .._utils.version import version
from ..errors import InputError
from ..measures.divergences import Divergence
from .blocks import Block
from .methods import Columns

FORMAT = 1
MANIFEST = "manifest.json"
# What the manifest says, and how an error calls it.
PARTS = {
    "format": "the format of the files",
    "version": "the version of ugw",
    "data": "the spaces",
    "options": "the options",
}
# What a killed run had not finished writing is removed after so many seconds: another run may be writing now.
STALE = 3600


@dataclass(frozen=True)
class Checkpoint:
    """Finished blocks of one run. `done` reads them back, `keep` adds one; a file is there complete or not at all."""

    folder: Path
    run: str

    @classmethod
    def open(cls, folder: str | os.PathLike[str], digests: Sequence[Sequence[str]], options: Any) -> Checkpoint:
        """The folder of a run with these data and options, made if it is not there; one of another run is refused."""
        if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
            raise InputError(f"checkpoint must be the path of a folder, got {folder!r}")
        place = Path(folder)
        said = {"format": FORMAT, "version": version(), "data": _hash(digests), "options": described(options)}
        _make(place)
        _sweep(place)
        found = _manifest(place)
        if found is None:
            if any(place.glob("block-*.npz")):
                raise InputError(f"checkpoint {place} has blocks but no {MANIFEST}: take another folder")
            if other := next((file.name for file in place.iterdir() if not file.name.startswith(".")), None):
                raise InputError(f"checkpoint must be a folder of its own, got {place}, which has {other}")
            with atomic_folder(place) as stage:
                (stage / MANIFEST).write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
        else:
            _compare(place, found, said)
        return cls(place, _hash(said))

    def done(self, blocks: Sequence[Block]) -> dict[int, Columns]:
        """The blocks that are finished; one whose file is damaged is not."""
        read = {k: self._read(k, block) for k, block in enumerate(blocks)}
        return {k: columns for k, columns in read.items() if columns is not None}

    def keep(self, k: int, block: Block, columns: Columns) -> None:
        """Write a finished block."""
        arrays = {f"column_{name}": column for name, column in columns.items()}
        with atomic_folder(self.folder) as stage, (stage / _name(k)).open("wb") as file:
            np.savez(file, run=np.array(self.run), pairs=np.array(block.pairs), **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())  # the name must not be there before the bytes are

    def _read(self, k: int, block: Block) -> Columns | None:
        file = self.folder / _name(k)
        if not file.exists():
            return None
        try:
            with np.load(file, allow_pickle=False) as arrays:
                found = dict(arrays)
        except Exception:  # whatever a torn file makes the readers raise: it is made again
            return None
        if str(found.pop("run", "")) != self.run or not np.array_equal(found.pop("pairs", None), np.array(block.pairs)):
            raise InputError(
                f"{file} is a block of another run: take another folder for checkpoint, or remove the file"
            )
        return {name.removeprefix("column_"): column for name, column in found.items()}


def described(value: Any) -> Any:
    """An option as JSON has it, so that equal options have equal texts; refuses what cannot be told apart."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else str(float(value))
    if isinstance(value, torch.Tensor | np.ndarray):
        return [described(entry) for entry in np.asarray(value).ravel().tolist()]
    if isinstance(value, Divergence):
        return {type(value).__name__: described(value._parameter)}
    if isinstance(value, dict):
        return {str(name): described(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [described(entry) for entry in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {type(value).__name__: {f.name: described(getattr(value, f.name)) for f in fields(value)}}
    raise InputError(
        f"a checkpoint must know its options again, which it cannot for {value!r}: take a loss or cone by name, or "
        "no checkpoint"
    )


def _name(k: int) -> str:
    return f"block-{k:06d}.npz"


def _hash(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def _make(place: Path) -> None:
    """Make the folder, and see that files can be written to it before any work is done."""
    if place.exists() and not place.is_dir():
        raise InputError(f"checkpoint must be a folder, got the file {place}")
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"is there room?")
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
        raise InputError(f"checkpoint {place} cannot be written to: {reason}") from None


def _sweep(place: Path) -> None:
    """Remove what a killed run had not finished writing."""
    for left in place.glob(".ugw-*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > STALE:
                shutil.rmtree(left, ignore_errors=True)


def _manifest(place: Path) -> dict[str, Any] | None:
    file = place / MANIFEST
    if not file.exists():
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror}): take another folder for checkpoint") from None
    except ValueError:
        raise InputError(f"{file} is damaged: take another folder for checkpoint, or remove this one") from None
    if not isinstance(found, dict):
        raise InputError(f"{file} is not the manifest of a checkpoint: take another folder")
    return found


def _compare(place: Path, found: dict[str, Any], said: dict[str, Any]) -> None:
    """Refuse a folder of another run, and say what is different."""
    for part, name in PARTS.items():
        if found.get(part) == said.get(part):
            continue
        what = name
        if part == "options" and isinstance(found.get(part), dict):
            names = sorted(k for k in {*found[part], *said[part]} if found[part].get(k) != said[part].get(k))
            what = f"{name} {', '.join(names)}"
        elif part in ("format", "version"):
            what = f"{name} ({found.get(part)}, now {said[part]})"
        raise InputError(
            f"checkpoint {place} is of another run, {what} differ: take another folder, or remove this one"
        )
