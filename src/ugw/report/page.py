"""Writing of a report as one HTML file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from numbers import Real
from string import Template
from typing import Any

from .._utils.checks import as_path, check_whole_number, describe_value
from .._utils.deprecation import renamed_arguments
from .._utils.output_folder import output_folder
from ..errors import InputError
from ..geometry.space import Space
from ..results.records import Status
from ..results.result import Result
from .config import REPORT_CONFIG
from .contents import page_data
from .views import View

# Statuses whose plans are meaningless; the warning on the page is red.
SEVERE_STATUSES = (Status.NON_FINITE, Status.COLLAPSED, Status.PRECISION)


@renamed_arguments(colours="colors")
def write(
    result: Result,
    x: Space | View,
    y: Space | View,
    path: str | os.PathLike[str],
    *,
    colors: Any = None,
    facts: Mapping[str, Any] | None = None,
    limit: int = 2000,
) -> None:
    """Write an interactive HTML page to `path`: both spaces in one 3-D picture, their matches, and convergence curves.

    x, y: the spaces of the solve, or a `View` of each that says how to draw it. colors: (n,) numbers or (n, 3) RGB in
    [0, 1] for the first space, which the plan transfers to the second; by default along its longest direction.
    facts: further lines of the table, such as `{"rho": 1.0}`. At most `limit` points of a side are drawn, at even steps
    of their indices; the page says so. Lazy plans are read block by block.

    The file needs no network. It appears complete or not at all; an existing file of that name is replaced.

    >>> import tempfile, numpy as np, ugw
    >>> x = Space.from_points(np.random.default_rng(0).normal(size=(20, 2)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(ugw.solve(x, x, eps=0.1), x, x, f"{folder}/report.html", facts={"eps": 0.1})
    """
    script = plotly_script()
    target = as_path("path", path)
    views = _checked_views(result, x, y)
    if facts is not None and not isinstance(facts, Mapping):
        raise InputError(f"facts must be a dictionary of names and values, got {describe_value(facts)}")
    limit = check_whole_number("limit", limit)
    with output_folder(target.parent, names=(target.name,)) as stage:
        text = _fill_template(result, views, page_data(result, views, colors, limit), facts or {}, script)
        # A file name that is not valid text contains surrogates, which cannot be encoded.
        (stage / target.name).write_bytes(text.encode("utf-8", errors="replace"))


def plotly_script() -> str:
    """Return the JavaScript of Plotly, about 5 MB; raise an ImportError that names the extra if it is not installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError("a report needs plotly: pip install 'ugw[report]'") from error
    return get_plotlyjs()


def _checked_views(result: Any, x: Any, y: Any) -> tuple[View, View]:
    """Return x and y as Views, spaces with drawing options; InputError unless `result` has one plan of their sizes."""
    if not isinstance(result, Result):
        raise InputError(f"a report is of a Result, got {type(result).__name__}")
    if result.batched:
        raise InputError(f"a report is of one solve, got a batch of {len(result)}: take an item, result[i]")
    pair = [space if isinstance(space, View) else View(space) for space in (x, y)]
    sizes, shape = tuple(view.space.n for view in pair), tuple(result.plan.shape)
    if sizes != shape:
        raise InputError(f"the spaces must be those of the plan, {shape[0]} × {shape[1]}, got {sizes[0]} × {sizes[1]}")
    return pair[0], pair[1]


# -- parts of the page --------------------------------------------------------------------------------------


def _fill_template(
    result: Result, views: tuple[View, View], data: dict[str, Any], facts: Mapping[str, Any], script: str
) -> str:
    """Return the HTML of the whole page.

    data: points, matches and values of the page by name; "names" (of both spaces) and "converged" are added to it in
    place; facts: further lines of the table; script: the JavaScript of Plotly.
    """
    names = [view.name or default for view, default in zip(views, ("source", "target"), strict=True)]
    data |= {"names": names, "converged": result.converged}
    html, css, *scripts = (_asset_text(name) for name in ("page.html", "page.css", "scene.js", "page.js"))
    return Template(html).substitute(
        title=escape(f"{names[0]} → {names[1]}"),
        style=css,
        headline=escape(f"value {float(result.value):.6g}, mass {float(result.mass):.4g}"),
        banner=_banner(result),
        table=_summary_rows(result, views, facts),
        notes="".join(f"<li>{escape(note)}</li>" for note in _notes(views, names, data)),
        # A "<" in a string of the JSON could end the script element.
        data=json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        plotly=script,
        script="\n".join(scripts),
    )


def _asset_text(name: str) -> str:
    """Return the text of the file with this name in the folder report/assets."""
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _banner(result: Result) -> str:
    """Return the HTML of the warning that the solve did not converge, an empty string if it did."""
    if result.converged:
        return ""
    level = "grave" if result.status in SEVERE_STATUSES else "warning"
    status = result.status.name.lower().replace("_", " ")
    return f'<p class="banner {level}" role="alert"><b>Not converged ({status}).</b> {escape(result.message)}</p>'


def _summary_rows(result: Result, views: tuple[View, View], facts: Mapping[str, Any]) -> str:
    """Return the HTML of the rows (`<tr>` elements) of the summary table, without the `<table>` around them.

    The rows are sizes and total weights of the spaces, `facts` (the caller's names and values), the numbers of the
    result, its outer steps, and how the plan is stored.
    """
    sizes, masses = zip(*((view.space.n, float(view.space.mass)) for view in views), strict=True)
    rows = [("points", f"{sizes[0]} × {sizes[1]}"), ("total weights", f"{masses[0]:.6g} and {masses[1]:.6g}")]
    rows += [(str(name), _format_value(value)) for name, value in facts.items()]
    lines = [_table_row(name, text) for name, text in rows]
    lines += [
        _table_row(name.strip().replace("_", " "), text, inner=name.startswith(" ")) for name, text in result.rows()
    ]
    return "".join([*lines, _table_row("steps", str(result.n_iter)), _table_row("plan", result.path)])


def _table_row(name: str, text: str, *, inner: bool = False) -> str:
    """Return a row of the summary table as HTML. inner: indented, as a part of the row above."""
    opening = '<tr class="inner">' if inner else "<tr>"
    return f"{opening}<th>{escape(name)}</th><td>{escape(text)}</td></tr>"


def _format_value(value: Any) -> str:
    """Return str(value), but floats with six significant digits, 1.0 as "1", tuples and lists separated by commas."""
    if isinstance(value, tuple | list):
        return ", ".join(_format_value(part) for part in value)
    return f"{float(value):.6g}" if isinstance(value, Real) and not isinstance(value, int) else str(value)


def _notes(views: tuple[View, View], names: list[str], data: dict[str, Any]) -> list[str]:
    """Return a list of sentences that explain the drawing: positions, omitted points, scales and matches.

    names: of both spaces; data: points, matches and values of the page, by name.
    """
    notes = []
    for view, name, side in zip(views, names, data["sides"], strict=True):
        if explanation := view.positions_and_note[1]:
            notes.append(f"{name}: {explanation}.")
        if side["drawn"] < side["n"]:
            notes.append(f"{name}: {side['drawn']} of {side['n']} points are drawn, at even steps of their numbers.")
        if view.faces is not None and "surface" not in side:
            notes.append(
                f"{name}: the surface has more than {REPORT_CONFIG.max_surface_size} vertices and is not drawn."
            )
        if len(side.get("edges", ())) == REPORT_CONFIG.max_surface_size:
            notes.append(f"{name}: the first {REPORT_CONFIG.max_surface_size} edges are drawn.")
    scale = "Both are drawn at one scale" if data["oneScale"] else "Each is drawn at its own scale"
    notes.append(f"{scale}; {names[1]} is rotated to align matched points.")
    count, fraction = REPORT_CONFIG.matches_per_point, REPORT_CONFIG.min_kept_fraction
    notes.append(
        f"Of each point the {count} largest matches are kept, of one that is matched with less than {fraction:.0%} of "
        "its weight none. The slider draws the largest of each point first, then the second largest, and so on."
    )
    if len(data["pairs"]["i"]) == REPORT_CONFIG.max_lines:
        notes.append(f"It draws at most {REPORT_CONFIG.max_lines}.")
    return notes
