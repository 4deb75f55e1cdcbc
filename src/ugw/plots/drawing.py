"""Functions shared by the pictures: reading of arrays, colors, dot sizes and axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._utils.checks import describe_value
from ..errors import InputError
from ..geometry.landmarks import evenly_spaced_indices
from ..geometry.mds import landmark_mds
from ..geometry.metric import DenseMetric
from ..geometry.space import Space
from ..results.projection import barycentric_projection, divide_by_weights, to_numpy
from .style import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plan_array(result: Any) -> np.ndarray:
    """Return the plan (n, m) of a Result, or the given plan, unscaled, as a float64 array; InputError for a batch."""
    array = as_array("the plan", getattr(result, "plan", result))
    if array.ndim != 2 or array.size == 0:
        raise InputError(
            f"a picture needs one plan of shape (n, m), got {array.shape}; of a batch take an item, result[i]"
        )
    return array


def as_array(name: str, values: Any) -> np.ndarray:
    """Return an array, a list or a tensor (on any device, with or without gradients) as an array of float64.

    Raises InputError unless all entries are finite numbers; name: what the error calls the argument.
    """
    try:
        array = np.asarray(to_numpy(values), dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be an array of numbers, got {type(values).__name__}") from None
    if not np.isfinite(array).all():
        index = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        raise InputError(f"{name} must be finite to be drawn, got {array[index]} at index {index}")
    return array


def as_pair(name: str, values: Any) -> tuple[Any, Any]:
    """Return the two entries of a sequence or array; InputError, with this name, for strings and other lengths."""
    if isinstance(values, str) or not hasattr(values, "__len__") or len(values) != 2:
        description = type(values).__name__ + (f" of {len(values)}" if hasattr(values, "__len__") else "")
        raise InputError(f"{name} must be a pair, one part for each space, got {description}")
    first, second = values
    return first, second


def point_array(name: str, points: Any) -> np.ndarray:
    """Return an array, or the points (n, d) of a Space, as an array of float64; the shape is not checked.

    Raises InputError for a Space without points, and unless all entries are finite numbers. name: what the error calls
    the argument.
    """
    if not isinstance(points, Space):
        return as_array(name, points)
    if points.point_tensor is None:
        raise InputError(f"{name} must be points (n, d) or a Space with points, got a Space without points")
    return as_array(name, points.point_tensor)


def drawable_points(name: str, points: Any) -> np.ndarray:
    """Return points (n, d), given as an array or as a Space, in float64; raise InputError unless d is 1, 2 or 3.

    name: what the error calls the argument.
    """
    array = point_array(name, points)
    if array.ndim != 2 or not 1 <= array.shape[1] <= 3:
        raise InputError(f"{name} must have shape (n, 1), (n, 2) or (n, 3) to be drawn, got {array.shape}")
    return array


def principal_coordinates(points: np.ndarray, k: int = 2) -> np.ndarray:
    """Return the first k principal coordinates (n, k) of centered points (n, d), largest variance first, 0 beyond d."""
    left, sizes, _ = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    return np.pad(left * sizes, ((0, 0), (0, k)))[:, :k]


def mds_coordinates(distances: np.ndarray, k: int = 2) -> np.ndarray:
    """Return points (n, k) whose distances approximate `distances` (n, n), by classical multidimensional scaling.

    With more than 1000 points, 1000 at evenly spaced indices are scaled as landmarks, and the others are placed by
    their distances to these.
    """
    metric = DenseMetric(torch.from_numpy(np.asarray(distances)))
    return landmark_mds(metric, evenly_spaced_indices(metric.n, STYLE.max_mds_landmarks), k).numpy()


def convergence_curves(result: Any) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Return (name, steps, values) of each convergence curve of a Result or Barycenter; only positive values are kept.

    Steps count from 1. The three curves are |objective − final value| / |final value|, without the last step, the
    relative change of the plan (of a Barycenter: of the distances), and the residual of the inner solver.
    """
    if not hasattr(result, "history"):
        raise InputError(f"convergence draws a Result, got {type(result).__name__}")
    if getattr(result, "batched", False):  # a Barycenter is never a batch
        raise InputError("convergence draws one solve, got a batch: take an item first, result[i]")
    history, value = result.history, float(result.value)  # value is a tensor if the spaces are
    objective_error = np.abs(history.objective - value) / max(abs(value), np.finfo(float).tiny)
    named = (
        ("|objective − final|", objective_error[:-1]),
        ("distance change" if hasattr(result, "parts") else "plan change", history.change),
        ("inner residual", history.residual),
    )
    curves = []
    for name, values in named:
        is_positive = np.isfinite(values) & (values > 0)
        curves.append((name, 1 + np.flatnonzero(is_positive), values[is_positive]))
    return curves


def kept_fractions(plan: np.ndarray, weights: tuple[Any, Any] | None) -> list[np.ndarray]:
    """Return for each point of both sides, (n,) and (m,), the mass that it sends or receives divided by its weight.

    weights: pair of arrays (n,), (m,), each of which, or the pair, may be None for equal weights with the mass of the
    plan (n, m). A point without weight has 0.
    """
    fractions = []
    pair = (None, None) if weights is None else as_pair("weights", weights)
    for k, (marginal, given) in enumerate(zip((plan.sum(axis=1), plan.sum(axis=0)), pair, strict=True)):
        weight = np.full(len(marginal), marginal.mean()) if given is None else as_array(f"weights[{k}]", given)
        if weight.shape != marginal.shape:
            raise InputError(f"weights[{k}] must have shape {marginal.shape}, got {weight.shape}")
        fractions.append(divide_by_weights(marginal, weight))
    return fractions


def read_labels(plan: np.ndarray, labels: tuple[Any, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels of both sides of a plan (n, m) as arrays (n,), (m,); InputError unless they are integers."""
    checked = []
    for k, (given, n) in enumerate(zip(as_pair("labels", labels), plan.shape, strict=True)):
        try:
            side = np.asarray(to_numpy(given))
        except ValueError:  # lists of different lengths
            raise InputError(f"labels[{k}] must be integers of shape ({n},), got {type(given).__name__}") from None
        if side.shape != (n,) or side.dtype.kind not in "iu":
            raise InputError(f"labels[{k}] must be integers of shape ({n},), got {side.dtype} of shape {side.shape}")
        checked.append(side)
    return checked[0], checked[1]


def read_class_names(classes: tuple[np.ndarray, np.ndarray], names: Any) -> list[list[str]]:
    """Return for each space the names of the classes that occur in it, in the order of the class numbers.

    classes: class numbers of the points, (n,) and (m,); names: pair of lists, names[k][c] for class c of space k.
    """
    names_of_sides = []
    for k, (side, given) in enumerate(zip(classes, as_pair("names", names), strict=True)):
        used = np.unique(side).tolist()
        all_names = [] if isinstance(given, str) or not hasattr(given, "__len__") else list(given)
        if used[0] < 0 or used[-1] >= len(all_names):
            raise InputError(f"names[{k}] must hold a name for each of the classes {used}, got {describe_value(given)}")
        names_of_sides.append([str(all_names[c]) for c in used])
    return names_of_sides


def as_colors(values: np.ndarray) -> np.ndarray:
    """Return RGB colors (n, 3) in [0, 1]: values (n,) by the colormap from minimum to maximum; RGB (n, 3) clipped.

    Equal values (n,) get the middle of the colormap. Raises InputError for other shapes.
    """
    if values.ndim == 2 and values.shape[1] == 3:
        return np.clip(values, 0, 1)
    if values.ndim != 1:
        raise InputError(f"colors must have shape (n,) or (n, 3), got {values.shape}")
    from matplotlib import colormaps

    low, high = values.min(), values.max()
    unit = (values - low) / (high - low) if high > low else np.full(len(values), 0.5)
    return colormaps[STYLE.colormap](STYLE.colormap_end * unit)[:, :3]


def aligning_rotation(plan: Any, x: np.ndarray, y: np.ndarray, *, allow_reflection: bool = True) -> np.ndarray:
    """Return the orthogonal matrix R (d, d) for which y R is closest to x under the plan (Procrustes problem).

    Both are centered at their means under the plan; R is the identity if the plan has no mass. R is a rotation unless
    `allow_reflection`. plan: (n, m), an array or a SciPy sparse array; x: (n, d); y: (m, d).
    """
    mass = plan.sum()
    if not mass > 0:
        return np.eye(y.shape[1])
    x, y = x - plan.sum(axis=1) @ x / mass, y - plan.sum(axis=0) @ y / mass
    left, _, right = np.linalg.svd(y.T @ (plan.T @ x) / mass)
    if not allow_reflection and np.linalg.det(left @ right) < 0:
        left[:, -1] *= -1  # reverse the direction with the smallest singular value
    return left @ right


def transfer_colors(plan: np.ndarray, colors: np.ndarray) -> np.ndarray:
    """Return colors (m, 3): means of source colors (n, 3) weighted by the plan (n, m); light gray without mass."""
    from matplotlib.colors import to_rgb

    averages = barycentric_projection(plan.T, colors)
    return np.where(np.isnan(averages), to_rgb(STYLE.pale), averages)


def dot_area(n: int) -> float:
    """Return the area, in typographic points², of each dot of a picture with n dots: 6000/n, at least 4, at most 50."""
    return float(np.clip(STYLE.dot_area_total / n, STYLE.min_dot_area, STYLE.max_dot_area))


def make_axes(ax: Axes | None, *, three_d: bool) -> Axes:
    """Return the given axes, or for None those of a new figure; InputError unless they are 3-D exactly if `three_d`."""
    if ax is None:
        import matplotlib.pyplot as plt

        figure = plt.figure(figsize=(5.0, 4.5), layout="constrained")
        return figure.add_subplot(projection="3d" if three_d else None)
    if three_d and ax.name != "3d":
        raise InputError('points in R³ need axes made with projection="3d", got plane axes')
    if not three_d and ax.name == "3d":
        raise InputError("this picture is plane, got 3-D axes")
    return ax


def set_equal_frame(ax: Axes, points: np.ndarray) -> None:
    """Set equal scales and limits around the points (n, 2 or 3), and hide the axis lines."""
    low, high = points.min(axis=0), points.max(axis=0)
    margin = STYLE.margin * max((high - low).max(), 1e-12)
    low, high = low - margin, high + margin
    ax.set_xlim(low[0], high[0])
    ax.set_ylim(low[1], high[1])
    if points.shape[1] == 3:
        ax.set_zlim(low[2], high[2])
        ax.set_box_aspect(high - low, zoom=1.28)
        ax.view_init(elev=24, azim=-66)
    else:
        ax.set_aspect("equal")
    ax.set_axis_off()


def set_labels(ax: Axes, x: str, y: str) -> None:
    """Write x and y as labels of the horizontal and the vertical axis."""
    ax.set_xlabel(x, fontsize=STYLE.font_size, color=STYLE.ink)
    ax.set_ylabel(y, fontsize=STYLE.font_size, color=STYLE.ink)


def set_thin_frame(ax: Axes) -> None:
    """Draw spines (frame) as thin gray lines, and ticks small."""
    ax.tick_params(labelsize=STYLE.small_font_size, length=2.5, color=STYLE.ink, labelcolor=STYLE.ink)
    for spine in ax.spines.values():
        spine.set_color(STYLE.ink)
        spine.set_linewidth(0.6)
