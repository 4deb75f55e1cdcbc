"""Reading from and writing to AnnData for `Aligner`. The package anndata is not imported."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError
from ..geometry.space import Space
from ._common import KNN, as_space

# Keys of obsm and obs under which results are written.
EMBEDDING_KEY = "X_ugw"
MASS_KEY = "ugw_mass"
LABEL_PREFIX = "ugw_"


def is_anndata(data: Any) -> bool:
    """Return whether the object has the attributes obs, obsm, obsp and n_obs of an AnnData."""
    return all(hasattr(data, name) for name in ("obs", "obsm", "obsp", "n_obs"))


def read_points(cells: Any, use_rep: str | None) -> np.ndarray:
    """Return the cells of an AnnData as points (n, d) in float64.

    use_rep: "X" for X, or a key of obsm; None for obsm["X_pca"] if it exists, else X.
    """
    if use_rep is None:
        use_rep = "X_pca" if "X_pca" in cells.obsm else "X"
    if use_rep != "X" and use_rep not in cells.obsm:
        keys = ", ".join(sorted(map(repr, cells.obsm.keys()))) or "nothing"
        raise InputError(f"use_rep must be a key of obsm or 'X', got {use_rep!r}; obsm has {keys}")
    points = cells.X if use_rep == "X" else cells.obsm[use_rep]
    if points is None:
        raise InputError("the cells have no X: say use_rep=, a key of obsm")
    points = points.toarray() if hasattr(points, "toarray") else points
    return np.asarray(points, dtype=np.float64)


def make_space(cells: Any, points: np.ndarray, metric: Any) -> Space:
    """Return the space of the cells of an AnnData, given as points (n, d), with weights 1/n.

    metric: a distance by name, "knn", or a function that makes a Space of points; "knn" for None. "knn" or a KNN takes
    shortest paths in the graph obsp["distances"] if it exists.
    """
    metric = KNN() if metric is None or metric == "knn" else metric
    if isinstance(metric, KNN) and "distances" in cells.obsp:
        return metric.paths(cells.obsp["distances"], points)
    return as_space(points, metric)


def read_labels(sides: tuple[Any, Any], name: str) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the column `name` of obs of two AnnData, None for one without this column; raise if both lack it."""
    if not all(map(is_anndata, sides)):
        raise InputError(f"labels by name, got {name!r}, need AnnData on both sides: give a pair of arrays")
    first, second = (np.asarray(cells.obs[name]) if name in cells.obs else None for cells in sides)
    if first is None and second is None:
        raise InputError(f"labels must be a column of obs of X or Y, got {name!r}")
    return first, second


def write_result(cells: Any, points: np.ndarray | None, fractions: np.ndarray) -> None:
    """Write results into an AnnData of n cells: points (n, e) to obsm["X_ugw"], fractions (n,) to obs["ugw_mass"].

    points: the cells in the space of Y, None to leave obsm unchanged; fractions: of each cell's weight, the fraction
    that is matched.
    """
    if points is not None:
        cells.obsm[EMBEDDING_KEY] = points
    cells.obs[MASS_KEY] = fractions
