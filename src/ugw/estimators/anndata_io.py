"""AnnData at the door of `Aligner`: read a representation and its graph, write what was found. No import is needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError
from ..geometry.space import Space
from ._common import KNN, as_space

# The names under which results are written.
REPRESENTATION, KEPT, PREFIX = "X_ugw", "ugw_mass", "ugw_"


def is_cells(given: Any) -> bool:
    """Is it an AnnData, or something that has all that is asked of one?"""
    return all(hasattr(given, name) for name in ("obs", "obsm", "obsp", "n_obs"))


def representation(cells: Any, use_rep: str | None) -> np.ndarray:
    """The cells as points (n, d): obsm[use_rep], X for "X"; None is obsm["X_pca"] if it is there, else X."""
    if use_rep is None:
        use_rep = "X_pca" if "X_pca" in cells.obsm else "X"
    if use_rep != "X" and use_rep not in cells.obsm:
        there = ", ".join(sorted(map(repr, cells.obsm.keys()))) or "nothing"
        raise InputError(f"use_rep must be a key of obsm or 'X', got {use_rep!r}; obsm has {there}")
    points = cells.X if use_rep == "X" else cells.obsm[use_rep]
    if points is None:
        raise InputError("the cells have no X: say use_rep=, a key of obsm")
    points = points.toarray() if hasattr(points, "toarray") else points
    return np.asarray(points, dtype=np.float64)


def space_of(cells: Any, points: np.ndarray, metric: Any) -> Space:
    """The space of the cells; a nearest-neighbor metric reuses obsp["distances"] where that was computed before."""
    metric = KNN() if metric is None or metric == "knn" else metric
    if isinstance(metric, KNN) and "distances" in cells.obsp:
        return metric.paths(cells.obsp["distances"], points)
    return as_space(points, metric)


def labels_of(given: tuple[Any, Any], name: str) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The labels of two sets of cells by the name of a column of obs, None where there is no such column."""
    if not all(map(is_cells, given)):
        raise InputError(f"labels by name, got {name!r}, need AnnData on both sides: give a pair of arrays")
    first, second = (np.asarray(one.obs[name]) if name in one.obs else None for one in given)
    if first is None and second is None:
        raise InputError(f"labels must be a column of obs of X or Y, got {name!r}")
    return first, second


def write(cells: Any, points: np.ndarray | None, kept: np.ndarray) -> None:
    """obsm["X_ugw"], points in the space of both if there are any, and obs["ugw_mass"], what each cell kept."""
    if points is not None:
        cells.obsm[REPRESENTATION] = points
    cells.obs[KEPT] = kept
