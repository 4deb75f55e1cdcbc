"""The numbers that the script of a report draws."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError
from ..plots._drawing import as_array, as_colors, convergence_curves, principal_coordinates
from ..results.lazy_plan import LazyPlan
from ..results.projection import barycentric_projection
from ..results.result import Result
from .matches import Matches, largest, pairs_of, seen_from, shares_of
from .stage import Frame, frames
from .views import View, even

LINES = 4000  # matches that the slider may draw
SURFACE = 20_000  # vertices of a mesh, and edges of a graph, that are drawn
# Readable on white and on black, from one end of the first space to the other.
ANCHORS = ("#4477DD", "#2AA7C9", "#3FB56B", "#C7B52A", "#EE8336", "#D9486E")


def contents(result: Result, views: tuple[View, View], colors: Any, limit: int) -> dict[str, Any]:
    """Numbers for page.js. Points are numbered by their place in the lists of their side, drawn ones first."""
    plan = result.plan
    sums = [as_array("the plan's marginals", side).astype(float) for side in result.marginals]
    shown = [even(view.space.n, limit) for view in views]
    weights = [as_array("weights", view.space.weights).astype(float) for view in views]
    shares = [shares_of(some, weight) for some, weight in zip(sums, weights, strict=True)]
    found = [largest(seen_from(plan, k), shown[k], shares[k], len(sums[1 - k])) for k in (0, 1)]
    pairs = pairs_of(found[0], found[1], LINES)
    known = []
    for k, other in ((0, found[1]), (1, found[0])):  # ends of pairs are among these
        ends = np.unique(np.concatenate([shown[k], *other.partners]).astype(int))
        known.append(np.concatenate([shown[k], np.setdiff1d(ends, shown[k])]))
    places = [view.located[0] for view in views]
    stage = frames(places[0], places[1], pairs)
    own = _own_colors(places[0], colors)
    stored = plan if isinstance(plan, LazyPlan) else as_array("the plan", plan)
    carried = np.nan_to_num(barycentric_projection(stored.T, own))
    local = [dict(zip(side.tolist(), range(len(side)), strict=True)) for side in known]
    sides = [
        _side(view, stage.frames[k], known[k], found[k], local[1 - k])
        | _amounts(known[k], weights[k], sums[k], shares[k], (own, carried)[k])
        for k, view in enumerate(views)
    ]
    for side, share, color in zip(sides, shares, (own, carried), strict=True):
        if "surface" in side:
            side["surface"] |= {"share": _digits(share), "color": _hex(color)}
    return {
        "sides": sides,
        "pairs": {
            "i": [local[0][i] for i in pairs.i.tolist()],
            "j": [local[1][j] for j in pairs.j.tolist()],
            "mass": _digits(pairs.mass),
            "first": pairs.first,
        },
        "mass": float(sums[0].sum()),
        "flat": stage.flat,
        "stacked": stage.stacked,
        "oneScale": stage.one_scale,
        "curves": [{"name": n, "step": s.tolist(), "size": _digits(v)} for n, s, v in convergence_curves(result)],
    }


def _side(view: View, frame: Frame, known: np.ndarray, found: Matches, local: dict[int, int]) -> dict[str, Any]:
    """One space. known: the points in its lists, those that are drawn and those that only matches end in."""
    places, n, drawn = view.located[0], view.space.n, len(found.points)
    side: dict[str, Any] = {
        "n": n,
        "drawn": drawn,
        "index": known.tolist(),
        "labels": None if view.labels is None else [view.labels[k] for k in known],
        "at": _columns(frame(places[known])),
        "partners": [[local[j] for j in some.tolist()] for some in found.partners],
        "masses": [_digits(some) for some in found.masses],
    }
    edges = view.edges
    if len(edges):
        number = np.full(n, -1)
        number[found.points] = np.arange(drawn)
        ends = number[edges]
        side["edges"] = ends[(ends >= 0).all(axis=1)][:SURFACE].tolist()
    if view.faces is not None and n <= SURFACE:
        faces = [column.tolist() for column in view.faces.T]
        side["surface"] = {"at": _columns(frame(places)), "faces": faces, "nearest": _nearest(places, found.points)}
    return side


def _amounts(known: np.ndarray, weights: np.ndarray, sums: np.ndarray, shares: np.ndarray, colors: np.ndarray) -> dict:
    """What the points in the lists of a side weigh, send or receive, and their colors."""
    return {
        "weight": _digits(weights[known]),
        "mass": _digits(sums[known]),
        "share": _digits(shares[known]),
        "color": _hex(colors[known]),
    }


def _nearest(places: np.ndarray, drawn: np.ndarray) -> list[int]:
    """For each point the number of the drawn one nearest to it."""
    from scipy.spatial import cKDTree

    return cKDTree(places[drawn]).query(places)[1].tolist()


def _own_colors(places: np.ndarray, colors: Any) -> np.ndarray:
    """(n, 3) in [0, 1] for the first space."""
    if colors is None:
        along = principal_coordinates(places, 1)[:, 0]
        low, high = np.quantile(along, [0.01, 0.99])
    else:
        along = as_array("colors", colors)
        if along.shape not in ((len(places),), (len(places), 3)):
            raise InputError(f"colors must have shape ({len(places)},) or ({len(places)}, 3), got {along.shape}")
        if along.ndim == 2:
            return as_colors(along)
        low, high = along.min(), along.max()
    unit = np.clip((along - low) / (high - low), 0, 1) if high > low else np.full(len(along), 0.5)
    steps = np.array([[int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)] for color in ANCHORS])
    at = np.linspace(0, 1, len(steps))
    return np.stack([np.interp(unit, at, steps[:, k]) for k in range(3)], axis=1)


def _hex(colors: np.ndarray) -> list[str]:
    return [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in (np.clip(colors, 0, 1) * 255).round().astype(int).tolist()]


def _columns(rows: np.ndarray) -> list[list[float]]:
    return [column.round(4).tolist() for column in rows.T]


def _digits(values: np.ndarray) -> list[float]:
    """Six digits are enough to read, and keep the page small."""
    return [float(f"{value:.6g}") for value in values.tolist()]
