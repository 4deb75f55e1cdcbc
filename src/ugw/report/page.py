"""The page of a report: everything that it shows, in one file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from numbers import Real
from pathlib import Path
from string import Template
from typing import Any

from .._utils.checks import check_whole_number
from .._utils.output_folder import output_folder
from ..errors import InputError
from ..geometry.space import Space
from ..results.records import Status
from ..results.result import Result
from .contents import LINES, SURFACE, contents
from .matches import KEPT, LEFT
from .views import View

GRAVE = (Status.NON_FINITE, Status.COLLAPSED, Status.PRECISION)  # plans that mean nothing


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
    """Write an interactive page: both spaces in one scene, where their mass goes, and how the solve went.

    x, y: the spaces of the solve, or a `View` of each that says how to draw it. colors: (n,) numbers or (n, 3) RGB in
    [0, 1] for the first space, which the plan carries over to the second; by default along its longest direction.
    facts: more lines for the table, such as `{"rho": 1.0}`. At most `limit` points of a side are drawn, at even steps
    of their numbers, and the page says so. Plans that are not stored stay so.

    The file needs no network, and appears complete or not at all. One with that name is replaced.

    >>> import tempfile, numpy as np, ugw
    >>> x = Space.from_points(np.random.default_rng(0).normal(size=(20, 2)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(ugw.solve(x, x, eps=0.1), x, x, f"{folder}/report.html", facts={"eps": 0.1})
    """
    script = plotly_script()
    target = Path(path)
    views = _checked(result, x, y)
    check_whole_number("limit", limit)
    with output_folder(target.parent, names=(target.name,)) as stage:
        text = _filled(result, views, contents(result, views, colors, limit), facts or {}, script)
        # A file name that is not text has surrogates, which no encoding takes.
        (stage / target.name).write_bytes(text.encode("utf-8", errors="replace"))


def plotly_script() -> str:
    """Plotly for the browser, some 5 MB of JavaScript; an ImportError that names the extra where it is missing."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError("a report needs plotly: pip install 'ugw[report]'") from error
    return get_plotlyjs()


def _checked(result: Any, x: Any, y: Any) -> tuple[View, View]:
    if not isinstance(result, Result):
        raise InputError(f"a report is of a Result, got {type(result).__name__}")
    if result.batched:
        raise InputError(f"a report is of one solve, got a batch of {len(result)}: take an item, result[i]")
    pair = [given if isinstance(given, View) else View(given) for given in (x, y)]
    sizes, shape = tuple(view.space.n for view in pair), tuple(result.plan.shape)
    if sizes != shape:
        raise InputError(f"the spaces must be those of the plan, {shape[0]} × {shape[1]}, got {sizes[0]} × {sizes[1]}")
    return pair[0], pair[1]


# -- the page around it ------------------------------------------------------------------------------------


def _filled(
    result: Result, views: tuple[View, View], data: dict[str, Any], facts: Mapping[str, Any], script: str
) -> str:
    names = [view.name or word for view, word in zip(views, ("source", "target"), strict=True)]
    data |= {"names": names, "converged": result.converged}
    html, css, *scripts = (_asset(name) for name in ("page.html", "page.css", "scene.js", "page.js"))
    return Template(html).substitute(
        title=escape(f"{names[0]} → {names[1]}"),
        style=css,
        headline=escape(f"value {float(result.value):.6g}, mass {float(result.mass):.4g}"),
        banner=_banner(result),
        table=_table(result, views, facts),
        notes="".join(f"<li>{escape(note)}</li>" for note in _notes(views, names, data)),
        # In a script element only "<" could end it; elsewhere in JSON it does not occur.
        data=json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        plotly=script,
        script="\n".join(scripts),
    )


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _banner(result: Result) -> str:
    if result.converged:
        return ""
    level = "grave" if result.status in GRAVE else "warning"
    word = result.status.name.lower().replace("_", " ")
    return f'<p class="banner {level}" role="alert"><b>Not converged ({word}).</b> {escape(result.message)}</p>'


def _table(result: Result, views: tuple[View, View], facts: Mapping[str, Any]) -> str:
    sizes, masses = zip(*((view.space.n, float(view.space.mass)) for view in views), strict=True)
    rows = [("points", f"{sizes[0]} × {sizes[1]}"), ("total weights", f"{masses[0]:.6g} and {masses[1]:.6g}")]
    rows += [(str(name), _said(value)) for name, value in facts.items()]
    lines = [_line(name, text) for name, text in rows]
    lines += [_line(name.strip().replace("_", " "), text, inner=name.startswith(" ")) for name, text in result.rows()]
    return "".join([*lines, _line("steps", str(result.n_iter)), _line("plan", result.path)])


def _line(name: str, text: str, *, inner: bool = False) -> str:
    opening = '<tr class="inner">' if inner else "<tr>"
    return f"{opening}<th>{escape(name)}</th><td>{escape(text)}</td></tr>"


def _said(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(_said(part) for part in value)
    return f"{float(value):.6g}" if isinstance(value, Real) and not isinstance(value, int) else str(value)


def _notes(views: tuple[View, View], names: list[str], data: dict[str, Any]) -> list[str]:
    """What a reader has to know about the drawing."""
    notes = []
    for view, name, side in zip(views, names, data["sides"], strict=True):
        if how := view.located[1]:
            notes.append(f"{name}: {how}.")
        if side["drawn"] < side["n"]:
            notes.append(f"{name}: {side['drawn']} of {side['n']} points are drawn, at even steps of their numbers.")
        if view.faces is not None and "surface" not in side:
            notes.append(f"{name}: the surface has more than {SURFACE} vertices and is not drawn.")
        if len(side.get("edges", ())) == SURFACE:
            notes.append(f"{name}: the first {SURFACE} edges are drawn.")
    scale = "Both are drawn at one scale" if data["oneScale"] else "Each is drawn at its own scale"
    notes.append(f"{scale}; {names[1]} is turned so that what is matched lies alike.")
    notes.append(
        f"Of each point the {KEPT} largest matches are kept, of one that is matched with less than {LEFT:.0%} of its "
        "weight none. The slider draws the largest of each point first, then the second largest, and so on."
    )
    if len(data["pairs"]["i"]) == LINES:
        notes.append(f"It draws at most {LINES}.")
    return notes
