"""Reading of arrays and graphs from files; errors name the file and the line."""

from __future__ import annotations

import csv
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError

if TYPE_CHECKING:
    import networkx

ARRAY_SUFFIXES = (".npy", ".npz", ".csv")
GRAPH_SUFFIXES = (".graphml", ".gml", ".edgelist")


# -- arrays ------------------------------------------------------------------------------------------------


def read_array(source: str) -> np.ndarray:
    r"""Return the array of a `.npy`, `.npz` or `.csv` file in float64; raise InputError for other or empty files.

    `file.npz:key` names one of several arrays. A `.csv` has commas, semicolons or tabs between its numbers,
    and decimal points; a first line of column names and lines that start with # are skipped; one column
    gives shape (n, 1).

    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "points.csv")
    ...     _ = path.write_text("x,y\n0,1\n2,3\n")
    ...     print(read_array(str(path)).shape)
    (2, 2)
    """
    path, key = _split_key(source)
    _check_readable(path)
    suffix = path.suffix.lower()
    if suffix not in ARRAY_SUFFIXES:
        arrays, graphs = ", ".join(ARRAY_SUFFIXES), ", ".join(GRAPH_SUFFIXES)
        raise InputError(f"{path}: expected {arrays} (graphs: {graphs}), got {suffix or 'no suffix'!r}")
    array = _read_csv(path) if suffix == ".csv" else _read_numpy(path, key)
    if array.dtype.kind not in "iuf":
        raise InputError(f"{source}: expected real numbers, got dtype {array.dtype}")
    if array.size == 0:
        raise InputError(f"{source}: the array is empty, got shape {array.shape}")
    return array.astype(np.float64)


def _split_key(source: str) -> tuple[Path, str | None]:
    """Return (path of file.npz, key) for a source `file.npz:key`, and (path of source, None) for any other.

    A source that as a whole is the path of an existing file has no key.
    """
    stem, mark, key = source.rpartition(".npz:")
    if mark and not Path(source).exists():
        return Path(stem + ".npz"), key
    return Path(source), None


def _check_readable(path: Path) -> None:
    """Raise InputError unless the path is a file that is not empty."""
    if path.is_dir():
        raise InputError(f"{path}: expected a file, got a folder")
    try:
        empty = path.stat().st_size == 0
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    if empty:
        raise InputError(f"{path}: the file is empty")


def _read_numpy(path: Path, key: str | None) -> np.ndarray:
    """Return the array of a `.npy` file, or the array `key` of a `.npz` file, without unpickling objects.

    key: None selects the only array of a `.npz` file; a `.npy` file has no keys. Raises InputError if the file cannot
    be read or holds Python objects, or if a `.npz` file has no array `key`, or several arrays and key is None.
    """
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return loaded[_select_key(path, loaded.files, key)]
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, InputError):
            raise
        if "Object arrays" in str(error):
            reason = "it holds Python objects, which need pickle and are not loaded; save plain numbers"
        else:
            reason = f"not a {path.suffix} file of plain numbers (damaged, or made by pickle, which is not loaded)"
        raise InputError(f"{path}: {reason}") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _select_key(path: Path, keys: list[str], key: str | None) -> str:
    """Return `key`, or for None the only one of `keys`, the names of the arrays in the file; raise if there is none."""
    if key is None and len(keys) == 1:
        return keys[0]
    if key in keys:
        return str(key)
    if not keys:
        raise InputError(f"{path}: the file holds no array")
    if key is None:
        raise InputError(f"{path}: several arrays ({', '.join(keys)}), say which: {path}:{keys[0]}")
    raise InputError(f"{path}: no array {key!r}, it holds {', '.join(keys)}")


def _read_csv(path: Path) -> np.ndarray:
    """Return the numbers (n, d) of a `.csv` file; raise InputError with the number of the first wrong line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    lines = enumerate(text.splitlines(), start=1)
    numbered_lines = [(i, line) for i, line in lines if line.strip() and not _COMMENT.match(line)]
    if not numbered_lines:
        raise InputError(f"{path}: the file holds no numbers")
    delimiter = next((mark for mark in (";", "\t", ",") if mark in numbered_lines[0][1]), ",")
    try:
        width = _header_width(*numbered_lines[0], delimiter)
        rows = numbered_lines[1:] if width else numbered_lines
        if not rows:
            raise InputError("a line of names and no numbers")
        table = _read_rows(rows, delimiter)
        if width not in (None, table.shape[1]):
            raise InputError(f"line {numbered_lines[0][0]}: {width} names above rows of {table.shape[1]} numbers")
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return table


# Spreadsheets write errors as #N/A or #DIV/0!: a line that begins with one of these is a row and not a comment.
_COMMENT = re.compile(r"\s*#(?!N/A|DIV/0!|VALUE!|REF!|NUM!|NAME\?|NULL!)")
_MISSING = {"na", "n/a", "<na>", "#n/a", "null", "none", "nil", "nat", "missing"}  # nan is read by float()


def _header_width(i: int, line: str, delimiter: str) -> int | None:
    """Return the number of column names in line i of a file, None for a row: a line with any field that is a number.

    InputError for other lines that are not all names, and for an empty first of several fields.
    """
    fields = [field.strip() for field in next(csv.reader([line], delimiter=delimiter))]
    if len(fields) > 1 and not fields[0]:
        raise InputError(
            f"line {i}: the first field is empty, expected a number or a name; "
            "if the column is an index, leave it out (pandas: index=False, R: row.names=FALSE)"
        )
    if any(_is_number(field) for field in fields):
        return None
    for field in fields:
        has_letters = any(character.isalpha() for character in field)
        if not has_letters or field.lower() in _MISSING or _is_number(field.replace(",", ".")):
            raise InputError(f"line {i}: expected numbers or column names, got {_describe_field(field)}")
    return len(fields)


def _read_rows(numbered_lines: list[tuple[int, str]], delimiter: str) -> np.ndarray:
    """Return the numbers (n, d) in n lines, given as (line number, text); InputError names the first invalid line."""
    lines = [line for _, line in numbered_lines]
    try:
        return np.loadtxt(lines, delimiter=delimiter, quotechar='"', comments=None, ndmin=2)
    except ValueError:
        raise InputError(_first_error(numbered_lines, delimiter)) from None


def _describe_field(field: str) -> str:
    """Return the text of a field in quotes, for an error message, with a hint if it has a decimal comma."""
    has_comma = "," in field and _is_number(field.replace(",", "."))
    return repr(field.strip()) + (" (numbers need a decimal point)" if has_comma else "")


def _is_number(text: str) -> bool:
    """Return whether `float` can read the text."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _first_error(numbered_lines: list[tuple[int, str]], delimiter: str) -> str:
    """Return the error message for lines (number, text) that are no table: what is wrong in the first wrong line."""
    width = None
    for i, line in numbered_lines:
        fields = next(csv.reader([line], delimiter=delimiter))
        invalid = next((field for field in fields if not _is_number(field)), None)
        if invalid is not None:
            return f"line {i}: expected a number, got {_describe_field(invalid)}"
        width = width or len(fields)
        if len(fields) != width:
            return f"line {i}: expected {width} numbers as above, got {len(fields)}"
    return "not a table of numbers"


# -- graphs ------------------------------------------------------------------------------------------------


def is_graph(source: str) -> bool:
    """Return whether the file name ends with .graphml, .gml or .edgelist, in small or capital letters."""
    return Path(source).suffix.lower() in GRAPH_SUFFIXES


def read_graph(source: str) -> networkx.Graph:
    """Return the graph of a `.graphml`, `.gml` or `.edgelist` file; raise InputError if it is empty or unreadable.

    Edge lengths are in the attribute `weight`, missing if the file has none. An `.edgelist` has lines `node node
    [length]` and is undirected; graphs of other files may be directed, as the file says.
    """
    import networkx

    path = Path(source)
    _check_readable(path)
    readers: dict[str, list[tuple[Any, dict[str, Any]]]] = {
        ".graphml": [(networkx.read_graphml, {})],
        ".gml": [(networkx.read_gml, {}), (networkx.read_gml, {"label": "id"})],
        ".edgelist": [
            (networkx.read_edgelist, {"data": [("weight", float)]}),
            (networkx.read_edgelist, {"data": True}),
        ],
    }
    first_error: Exception | None = None
    for reader, options in readers[path.suffix.lower()]:
        try:
            graph = reader(path, **options)
        except Exception as error:  # the parsers raise many different errors
            first_error = first_error or error
            continue
        if graph.number_of_nodes() == 0:
            raise InputError(f"{path}: the graph has no nodes")
        return graph
    message = " ".join(str(first_error).split()) or type(first_error).__name__
    raise InputError(f"{path}: not a readable {path.suffix} graph ({message})") from first_error
