"""The data of a report page, for its script."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from ..errors import InputError
from ..geometry.landmarks import evenly_spaced_indices
from ..plots.drawing import as_array, as_colors, convergence_curves, principal_coordinates
from ..results.lazy_plan import LazyPlan
from ..results.projection import barycentric_projection, divide_by_weights
from ..results.result import Result
from .arrangement import SceneTransform, arrange
from .config import REPORT_CONFIG
from .matches import Matches, largest_matches, merge_matches, row_reader
from .views import View


def page_data(result: Result, views: tuple[View, View], colors: Any, limit: int) -> dict[str, Any]:
    """Return the data of a report page as values of JSON types by name, for its script page.js.

    "sides": a dict for each space with lists of points (positions, labels, matches, masses, colors); "pairs" to draw;
    "mass" of the plan; bools "flat", "stacked", "oneScale" about the layout; "curves" of convergence. A list has the
    drawn points of the side, at most `limit`, then points that are only ends of matches; indices are positions in these
    lists. views: of both spaces; colors: (n,) numbers or (n, 3) RGB of the first space, None for a gradient along it.
    """
    plan = result.plan
    marginals = [as_array("the plan's marginals", side) for side in result.marginals]
    samples = [evenly_spaced_indices(view.space.n, limit, with_ends=True).numpy() for view in views]
    weights = [as_array("weights", view.space.weights) for view in views]
    fractions = [divide_by_weights(marginal, weight) for marginal, weight in zip(marginals, weights, strict=True)]
    matches = [largest_matches(row_reader(plan, k), samples[k], fractions[k], len(marginals[1 - k])) for k in (0, 1)]
    pairs = merge_matches(matches[0], matches[1], REPORT_CONFIG.max_lines)
    page_points = []
    for k, opposite in ((0, matches[1]), (1, matches[0])):
        ends = np.unique(np.concatenate([samples[k], *opposite.partners]).astype(int))
        page_points.append(np.concatenate([samples[k], np.setdiff1d(ends, samples[k])]))
    positions = [view.positions_and_note[0] for view in views]
    arrangement = arrange(positions[0], positions[1], pairs)
    source_colors = _source_colors(positions[0], colors)
    stored = plan if isinstance(plan, LazyPlan) else as_array("the plan", plan)
    point_colors = source_colors, np.nan_to_num(barycentric_projection(stored.T, source_colors))
    list_position = [dict(zip(side.tolist(), range(len(side)), strict=True)) for side in page_points]
    sides = []
    for k, view in enumerate(views):
        side = _side_data(view, arrangement.transforms[k], page_points[k], matches[k], list_position[1 - k])
        for name, values in (("weight", weights[k]), ("mass", marginals[k]), ("share", fractions[k])):
            side[name] = _round_values(values[page_points[k]])
        side["color"] = _hex_colors(point_colors[k][page_points[k]])
        if "surface" in side:
            side["surface"] |= {"share": _round_values(fractions[k]), "color": _hex_colors(point_colors[k])}
        sides.append(side)
    return {
        "sides": sides,
        "pairs": {
            "i": [list_position[0][i] for i in pairs.i.tolist()],
            "j": [list_position[1][j] for j in pairs.j.tolist()],
            "mass": _round_values(pairs.mass),
            "first": pairs.n_first,
        },
        "mass": float(marginals[0].sum()),
        "flat": arrangement.is_flat,
        "stacked": arrangement.is_stacked,
        "oneScale": arrangement.has_one_scale,
        "curves": [{"name": n, "step": s.tolist(), "size": _round_values(v)} for n, s, v in convergence_curves(result)],
    }


def _side_data(
    view: View, transform: SceneTransform, page_points: np.ndarray, matches: Matches, list_position: dict[int, int]
) -> dict[str, Any]:
    """Return the data of a report page about one space by name: numbers of points, and lists, one entry per page point.

    "index": `page_points`; "at": three lists of coordinates; "labels" (or None); "partners" and "masses" of the drawn
    points' matches; "edges" between drawn points, and "surface", if there are any. transform: into the 3-D picture;
    page_points: indices of the drawn points, then of points that are only ends of matches; matches: of the drawn
    points; list_position: index of a point of the opposite space → its position in the lists of that side.
    """
    positions, n, n_drawn = view.positions_and_note[0], view.space.n, len(matches.points)
    side: dict[str, Any] = {
        "n": n,
        "drawn": n_drawn,
        "index": page_points.tolist(),
        "labels": None if view.labels is None else [view.labels[k] for k in page_points],
        "at": _round_columns(transform(positions[page_points])),
        "partners": [[list_position[j] for j in partners.tolist()] for partners in matches.partners],
        "masses": [_round_values(masses) for masses in matches.masses],
    }
    edges = view.edges
    if len(edges):
        position = np.full(n, -1)
        position[matches.points] = np.arange(n_drawn)
        ends = position[edges]
        side["edges"] = ends[(ends >= 0).all(axis=1)][: REPORT_CONFIG.max_surface_size].tolist()
    if view.faces is not None and n <= REPORT_CONFIG.max_surface_size:
        side["surface"] = {
            "at": _round_columns(transform(positions)),
            "faces": view.faces.T.tolist(),
            "nearest": cKDTree(positions[matches.points]).query(positions)[1].tolist(),  # the drawn point of a vertex
        }
    return side


def _source_colors(positions: np.ndarray, colors: Any) -> np.ndarray:
    """Return RGB colors (n, 3) in [0, 1] of the points of the first space.

    colors: RGB (n, 3), numbers (n,) for the color gradient of the page, or None for a gradient along the longest
    direction of the positions (n, d).
    """
    if colors is None:
        values = principal_coordinates(positions, 1)[:, 0]
        low, high = np.quantile(values, REPORT_CONFIG.color_quantiles)
    else:
        values = as_array("colors", colors)
        if values.shape not in ((len(positions),), (len(positions), 3)):
            raise InputError(f"colors must have shape ({len(positions)},) or ({len(positions)}, 3), got {values.shape}")
        if values.ndim == 2:
            return as_colors(values)
        low, high = values.min(), values.max()
    unit = np.clip((values - low) / (high - low), 0, 1) if high > low else np.full(len(values), 0.5)
    anchors = np.array([[int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)] for color in REPORT_CONFIG.gradient])
    anchor_values = np.linspace(0, 1, len(anchors))
    return np.stack([np.interp(unit, anchor_values, anchors[:, k]) for k in range(3)], axis=1)


def _hex_colors(colors: np.ndarray) -> list[str]:
    """Return RGB colors (n, 3), clipped to [0, 1], as n strings such as `#ff8000`."""
    return [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in (np.clip(colors, 0, 1) * 255).round().astype(int).tolist()]


def _round_columns(rows: np.ndarray) -> list[list[float]]:
    """Return the three columns of an array (n, 3) as lists of n, rounded to four decimals to keep the page small."""
    return [column.round(4).tolist() for column in rows.T]


def _round_values(values: np.ndarray) -> list[float]:
    """Return an array (n,) as a list of numbers rounded to six significant digits, to keep the page small."""
    return [float(f"{value:.6g}") for value in values.tolist()]
