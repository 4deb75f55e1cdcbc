"""Atomic writing of several files: all of them appear complete, or none does."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield the path of a hidden temporary folder, whose files are moved into `folder`, which exists, on success.

    After an exception or Ctrl-C, also one during the moves, the files of `folder` are as before. Only a process killed
    during the moves can leave new files beside old ones. Errors name `folder` or the file in it, not the hidden folder.

    >>> with tempfile.TemporaryDirectory() as home, atomic_folder(Path(home)) as stage:
    ...     _ = (stage / "a.txt").write_text("done")
    """
    # The temporary folder is inside `folder` because a move between file systems is a copy, which can stop halfway.
    # Files created in a folder get the mode of the umask; those of `tempfile` would not.
    stage = folder / f".ugw-{uuid4().hex}"  # its name is known before it exists: Ctrl-C in between leaves nothing
    try:
        try:
            stage.mkdir(mode=0o700)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(folder)) from None
        yield stage
        _move_all(stage, folder)
    finally:
        _remove(stage)


def _remove(folder: Path) -> None:
    """Remove a folder if it exists, ignoring errors; after Ctrl-C finish the removal, then raise KeyboardInterrupt."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def refuse_directories(folder: Path, names: Sequence[str]) -> None:
    """Raise IsADirectoryError if `folder` has a subfolder with one of the names, which a file cannot replace."""
    for name in names:
        target = folder / name
        if target.is_dir() and not target.is_symlink():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))


def _move_all(stage: Path, folder: Path) -> None:
    """Move the files of `stage` into `folder`, replacing old ones; if a move fails, restore these and raise."""
    names = sorted(file.name for file in stage.iterdir())
    refuse_directories(folder, names)
    backup = Path(tempfile.mkdtemp(dir=stage))
    for name in names:
        if os.path.lexists(folder / name):
            _back_up(folder / name, backup / name)
    name = ""
    try:
        for name in names:
            os.replace(stage / name, folder / name)
    except BaseException as error:
        for moved in names:  # also the names not yet moved: restoring these changes nothing
            _restore(backup / moved, folder / moved)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(folder / name)) from None
        raise


def _back_up(file: Path, copy: Path) -> None:
    """Create `copy` as a hard link to the file, or as a copy if the file system has no hard links."""
    try:
        os.link(file, copy, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(file, copy, follow_symlinks=False)


def _restore(copy: Path, file: Path) -> None:
    """Move the backup `copy` back to `file`, or delete `file` if it has no backup and so is new; ignore errors."""
    with suppress(OSError):  # the original error is the one to report
        if os.path.lexists(copy):
            os.replace(copy, file)
        else:
            file.unlink()
