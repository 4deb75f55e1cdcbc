"""Files of the command line: arrays and graphs come in or say why not; results go out all or none."""

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
    r"""Real numbers, in float64, from a `.npy`, `.npz` or `.csv` file.

    `file.npz:key` names one of several arrays. A `.csv` has commas, semicolons or tabs between its numbers,
    and decimal points; a first line of column names and lines that start with # are passed over; one column
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
    """`file.npz:key` -> the path and the key; a file of that very name comes first."""
    stem, mark, key = source.rpartition(".npz:")
    if mark and not Path(source).exists():
        return Path(stem + ".npz"), key
    return Path(source), None


def _check_readable(path: Path) -> None:
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
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return loaded[_one_key(path, loaded.files, key)]
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, InputError):
            raise
        if "Object arrays" in str(error):
            what = "it holds Python objects, which need pickle and are not loaded; save plain numbers"
        else:
            what = f"not a {path.suffix} file of plain numbers (damaged, or made by pickle, which is not loaded)"
        raise InputError(f"{path}: {what}") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _one_key(path: Path, keys: list[str], key: str | None) -> str:
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
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    numbered = [(i, line) for i, line in enumerate(text.splitlines(), start=1) if line.strip()]
    numbered = [(i, line) for i, line in numbered if not _COMMENT.match(line)]
    if not numbered:
        raise InputError(f"{path}: the file holds no numbers")
    delimiter = next((mark for mark in (";", "\t", ",") if mark in numbered[0][1]), ",")
    try:
        width = _header_width(*numbered[0], delimiter)
        rows = numbered[1:] if width else numbered
        if not rows:
            raise InputError("a line of names and no numbers")
        table = _read_rows(rows, delimiter)
        if width not in (None, table.shape[1]):
            raise InputError(f"line {numbered[0][0]}: {width} names above rows of {table.shape[1]} numbers")
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return table


# A spreadsheet writes its errors as #N/A or #DIV/0!: a row that begins so is a row and not a comment.
_COMMENT = re.compile(r"\s*#(?!N/A|DIV/0!|VALUE!|REF!|NUM!|NAME\?|NULL!)")
_MISSING = {"na", "n/a", "<na>", "#n/a", "null", "none", "nil", "nat", "missing"}  # float() knows nan


def _header_width(i: int, line: str, delimiter: str) -> int | None:
    """The number of column names in the first line, or None where it is a row like the others."""
    fields = [field.strip() for field in next(csv.reader([line], delimiter=delimiter))]
    if len(fields) > 1 and not fields[0]:
        raise InputError(
            f"line {i}: the first field is empty, expected a number or a name; "
            "if the column is an index, leave it out (pandas: index=False, R: row.names=FALSE)"
        )
    if any(_is_number(field) for field in fields):
        return None
    for field in fields:
        wordless = not any(sign.isalpha() for sign in field)
        if wordless or field.lower() in _MISSING or _is_number(field.replace(",", ".")):
            raise InputError(f"line {i}: expected numbers or column names, got {_shown(field)}")
    return len(fields)


def _read_rows(numbered: list[tuple[int, str]], delimiter: str) -> np.ndarray:
    lines = [line for _, line in numbered]
    try:
        return np.loadtxt(lines, delimiter=delimiter, quotechar='"', comments=None, ndmin=2)
    except ValueError:
        raise InputError(_first_fault(numbered, delimiter)) from None


def _shown(field: str) -> str:
    comma = "," in field and _is_number(field.replace(",", "."))
    return repr(field.strip()) + (" (numbers need a decimal point)" if comma else "")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _first_fault(numbered: list[tuple[int, str]], delimiter: str) -> str:
    """Why a table could not be read, with its line."""
    width = None
    for i, line in numbered:
        fields = next(csv.reader([line], delimiter=delimiter))
        bad = next((field for field in fields if not _is_number(field)), None)
        if bad is not None:
            return f"line {i}: expected a number, got {_shown(bad)}"
        width = width or len(fields)
        if len(fields) != width:
            return f"line {i}: expected {width} numbers as above, got {len(fields)}"
    return "not a table of numbers"


# -- graphs ------------------------------------------------------------------------------------------------


def is_graph(source: str) -> bool:
    """Whether the name ends like a graph file."""
    return Path(source).suffix.lower() in GRAPH_SUFFIXES


def read_graph(source: str) -> networkx.Graph:
    """A networkx graph from `.graphml`, `.gml`, or `.edgelist` (lines `node node [length]`, undirected)."""
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
    problem: Exception | None = None
    for reader, options in readers[path.suffix.lower()]:
        try:
            graph = reader(path, **options)
        except Exception as error:  # the parsers of three formats fail in a dozen ways, from XML to struct errors
            problem = problem or error
            continue
        if graph.number_of_nodes() == 0:
            raise InputError(f"{path}: the graph has no nodes")
        return graph
    said = " ".join(str(problem).split()) or type(problem).__name__
    raise InputError(f"{path}: not a readable {path.suffix} graph ({said})") from problem
