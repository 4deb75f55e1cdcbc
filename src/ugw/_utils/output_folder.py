"""Result folders that receive all files of a run or none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ..errors import InputError
from .atomic_files import atomic_folder, refuse_directories


@contextmanager
def output_folder(folder: Path, *, names: Sequence[str] = ()) -> Iterator[Path]:
    """Yield the path of a hidden temporary folder, whose files are moved into `folder` on success.

    `folder` is created if missing. After an exception or Ctrl-C everything is as before. A folder that is not writable,
    or that has subfolders with the `names` of the files to be written, raises InputError before the block is entered.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as home, output_folder(Path(home, "out")) as stage:
    ...     _ = (stage / "a.txt").write_text("done")
    """
    with ExitStack() as stack:
        try:
            for part in (*reversed(folder.parents), folder):
                if not part.exists():
                    stack.callback(_remove_if_empty, part)
            folder.mkdir(parents=True, exist_ok=True)
            refuse_directories(folder, names)
            stage = stack.enter_context(atomic_folder(folder))
        except OSError as error:
            raise InputError(f"cannot write to {error.filename or folder}: {error.strerror or error}") from None
        yield stage


def _remove_if_empty(folder: Path) -> None:
    """Remove a folder if it is empty; errors are ignored."""
    with suppress(OSError):
        folder.rmdir()
