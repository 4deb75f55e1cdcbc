"""Files that appear complete or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def all_or_nothing(folder: Path) -> Iterator[Path]:
    """A hidden folder to write into; its files move into `folder` at the end, and only if all went well.

    An error or Ctrl-C leaves the files of `folder` as they were.

    >>> with tempfile.TemporaryDirectory() as home, all_or_nothing(Path(home)) as stage:
    ...     _ = (stage / "a.txt").write_text("done")
    """
    # Inside `folder`, so that a move never crosses file systems: there it would be a copy, which can stop halfway.
    # A folder rather than a temporary file, because files opened in it have the mode that the umask gives.
    stage = Path(tempfile.mkdtemp(prefix=".ugw-", dir=folder))
    try:
        yield stage
        for file in sorted(stage.iterdir()):
            os.replace(file, folder / file.name)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
