"""Files that appear complete or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def all_or_nothing(folder: Path) -> Iterator[Path]:
    """A hidden folder to write into; its files move into `folder` at the end, and only if all went well.

    An error or Ctrl-C leaves the files of `folder` as they were, also when it comes during the moves. A process
    that is killed there, which takes no time but is not one act, may leave new files beside old ones. Errors
    name `folder` or the file in it, never the hidden one.

    >>> with tempfile.TemporaryDirectory() as home, all_or_nothing(Path(home)) as stage:
    ...     _ = (stage / "a.txt").write_text("done")
    """
    # Inside `folder`, so that a move never crosses file systems: there it would be a copy, which can stop halfway.
    # A folder rather than a temporary file, because files opened in it have the mode that the umask gives.
    try:
        stage = Path(tempfile.mkdtemp(prefix=".ugw-", dir=folder))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from None
    try:
        yield stage
        _move_all(stage, folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def refuse_folders(folder: Path, names: Sequence[str]) -> None:
    """Raise if one of these names is taken by a folder, which a file cannot replace."""
    for name in names:
        target = folder / name
        if target.is_dir() and not target.is_symlink():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))


def _move_all(stage: Path, folder: Path) -> None:
    names = sorted(file.name for file in stage.iterdir())
    refuse_folders(folder, names)
    old = Path(tempfile.mkdtemp(dir=stage))
    for name in names:
        if os.path.lexists(folder / name):
            _keep(folder / name, old / name)
    name = ""
    try:
        for name in names:
            os.replace(stage / name, folder / name)
    except BaseException as error:
        for each in names:  # also those not yet moved, for which this changes nothing
            _put_back(old / each, folder / each)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(folder / name)) from None
        raise


def _keep(file: Path, copy: Path) -> None:
    """A second name for the file, or a copy where the file system has no second names."""
    try:
        os.link(file, copy, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(file, copy, follow_symlinks=False)


def _put_back(copy: Path, file: Path) -> None:
    with suppress(OSError):  # the error that brought us here is the one to report
        if os.path.lexists(copy):
            os.replace(copy, file)
        else:
            file.unlink()
