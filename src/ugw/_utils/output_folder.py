"""A folder for results that receives all files of a run or none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ..errors import InputError
from .atomic_files import all_or_nothing, refuse_folders


@contextmanager
def output_folder(folder: Path, *, names: Sequence[str] = ()) -> Iterator[Path]:
    """A hidden folder whose files move into `folder`, made if need be, at the end; all of them or none.

    An error or Ctrl-C leaves everything as it was. A place that cannot be written to, or where folders have
    the `names` of the files to come, is found out before the work and not after.

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
            refuse_folders(folder, names)
            stage = stack.enter_context(all_or_nothing(folder))
        except OSError as error:
            raise InputError(f"cannot write to {error.filename or folder}: {error.strerror or error}") from None
        yield stage


def _remove_if_empty(folder: Path) -> None:
    """Undo the making of a folder, unless something is in it: the results, or what someone else put there."""
    with suppress(OSError):
        folder.rmdir()
