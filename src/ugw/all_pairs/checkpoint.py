"""Folders of finished blocks: one file per block, and a manifest with the data and options of the run."""

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
from .._utils.checks import as_path, describe_value
from .._utils.version import version
from ..errors import InputError
from ..measures.divergences import Divergence
from .blocks import Block
from .config import PAIRWISE_CONFIG
from .methods import Columns

FORMAT = 3
MANIFEST = "manifest.json"
# Entries of the manifest, with their names in error messages.
MANIFEST_ENTRIES = {
    "format": "the format of the files",
    "version": "the version of ugw",
    "data": "the spaces",
    "options": "the options",
}


@dataclass(frozen=True)
class Checkpoint:
    """A folder with the finished blocks of one run; each file is complete or does not exist.

    folder: its path; run: hash of the manifest, which identifies the run in each file.
    """

    folder: Path
    run: str

    @classmethod
    def open(cls, folder: str | os.PathLike[str], digests: Sequence[Sequence[str]], options: Any) -> Checkpoint:
        """Return a Checkpoint: the path of the folder, and a hash of version, spaces and options, which is this run's.

        The folder is created if it is missing. Raises InputError if it belongs to another run, has other files, or
        cannot be written to. digests: hashes of the spaces of each list; options: values that `to_json` accepts.
        """
        path = as_path("checkpoint", folder, kind="folder")
        manifest = {"format": FORMAT, "version": version(), "data": _hash(digests), "options": to_json(options)}
        _create_folder(path)
        _remove_stale_files(path)
        existing = _read_manifest(path)
        if existing is None:
            if any(path.glob("block-*.npz")):
                raise InputError(f"checkpoint {path} has blocks but no {MANIFEST}: take another folder")
            if foreign := next((file.name for file in path.iterdir() if not file.name.startswith(".")), None):
                raise InputError(f"checkpoint must be a folder of its own, got {path}, which has {foreign}")
            with atomic_folder(path) as stage:
                (stage / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        else:
            _check_same_run(path, existing, manifest)
        return cls(path, _hash(manifest))

    def read_blocks(self, blocks: Sequence[Block]) -> dict[int, Columns]:
        """Return the results (arrays by name) of each block that has an intact file, by index; others are left out.

        Raises InputError if a file is of another run.
        """
        columns_of = {k: self._read_block(k, block) for k, block in enumerate(blocks)}
        return {k: columns for k, columns in columns_of.items() if columns is not None}

    def write_block(self, k: int, block: Block, columns: Columns) -> None:
        """Write the results of block k, arrays by name, to the block's file."""
        arrays = {f"column_{name}": column for name, column in columns.items()}
        with atomic_folder(self.folder) as stage, (stage / _file_name(k)).open("wb") as file:
            np.savez(file, run=np.array(self.run), pairs=np.array(block.pairs), **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())  # the bytes must be on disk before the file gets its name

    def _read_block(self, k: int, block: Block) -> Columns | None:
        """Return the results of block k, arrays by name, or None without an intact file; raise if of another run."""
        file = self.folder / _file_name(k)
        if not file.exists():
            return None
        try:
            with np.load(file, allow_pickle=False) as arrays:
                contents = dict(arrays)
        except Exception:  # a damaged file may raise anything; the block is solved again
            return None
        if str(contents.pop("run", "")) != self.run or not np.array_equal(contents.pop("pairs", None), block.pairs):
            raise InputError(
                f"{file} is a block of another run: take another folder for checkpoint, or remove the file"
            )
        return {name.removeprefix("column_"): column for name, column in contents.items()}


def to_json(value: Any) -> Any:
    """Return an option as JSON values: inf and nan as text, arrays as flat lists, records as {class name: contents}.

    The contents are a dict of fields, or the number of a Divergence. Raises InputError for other objects.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else str(float(value))
    if isinstance(value, torch.Tensor | np.ndarray):
        return [to_json(entry) for entry in np.asarray(value).ravel().tolist()]
    if isinstance(value, Divergence):
        return {type(value).__name__: to_json(value._parameter)}
    if isinstance(value, dict):
        return {str(name): to_json(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(entry) for entry in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {type(value).__name__: {f.name: to_json(getattr(value, f.name)) for f in fields(value)}}
    raise InputError(
        f"a checkpoint must know its options again, which it cannot for {describe_value(value)}: "
        "take a loss or cone by name, or no checkpoint"
    )


def _file_name(k: int) -> str:
    """Return the name of the file of block k, such as block-000012.npz."""
    return f"block-{k:06d}.npz"


def _hash(value: Any) -> str:
    """Return a hash, 32 hexadecimal digits, of a value of JSON types."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def _create_folder(path: Path) -> None:
    """Create the folder if it is missing; raise InputError if it is no folder or not writable."""
    if path.exists() and not path.is_dir():
        raise InputError(f"checkpoint must be a folder, got the file {path}")
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"is there room?")
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
        raise InputError(f"checkpoint {path} cannot be written to: {reason}") from None


def _remove_stale_files(path: Path) -> None:
    """Remove temporary subfolders of `path` that are older than one hour: killed runs left them. Errors are ignored."""
    for folder in path.glob(".ugw-*"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > PAIRWISE_CONFIG.stale_folder_seconds:
                shutil.rmtree(folder, ignore_errors=True)


def _read_manifest(path: Path) -> dict[str, Any] | None:
    """Return the manifest (format, version, hash of spaces, options), None without the file; InputError if damaged."""
    file = path / MANIFEST
    if not file.exists():
        return None
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror}): take another folder for checkpoint") from None
    except ValueError:
        raise InputError(f"{file} is damaged: take another folder for checkpoint, or remove this one") from None
    if not isinstance(manifest, dict):
        raise InputError(f"{file} is not the manifest of a checkpoint: take another folder")
    return manifest


def _check_same_run(path: Path, existing: dict[str, Any], manifest: dict[str, Any]) -> None:
    """Raise InputError if the `existing` manifest in the folder `path` differs from `manifest`, that of this run."""
    for entry, name in MANIFEST_ENTRIES.items():
        old, new = existing.get(entry), manifest[entry]
        if old == new:
            continue
        difference = name
        if entry == "options" and isinstance(old, dict):
            option_names = sorted(k for k in {*old, *new} if old.get(k) != new.get(k))
            difference = f"{name} {', '.join(option_names)}"
        elif entry in ("format", "version"):
            difference = f"{name} ({old}, now {new})"
        raise InputError(
            f"checkpoint {path} is of another run, {difference} differ: take another folder, or remove this one"
        )
