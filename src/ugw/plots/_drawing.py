"""What the pictures share: colors, dot sizes, axes, and plans of any origin as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..errors import InputError
from ..geometry.landmarks import evenly_spaced_indices
from ..geometry.mds import landmark_mds
from ..geometry.metric import DenseMetric
from ..results.projection import barycentric_projection

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colors, told apart with any of the common color-vision deficiencies.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
INK = "#333333"
ACROSS = "#B2182B"  # lines between different classes
PALE = "#D9D9D9"  # graph edges and points that receive nothing
GRADIENT = "viridis"  # ordered, also in gray print

LARGEST_DOT = 2.0  # times the area of a point that moves its own weight; more is not drawn larger

# Points whose distances are decomposed to place all points of a space (0.3 s at this size; the time is cubic).
MAX_MDS_LANDMARKS = 1000


def plan_of(result: Any) -> np.ndarray:
    """The (n, m) plan of a Result, or a given one, as an array."""
    array = as_array("the plan", getattr(result, "plan", result))
    if array.ndim != 2 or array.size == 0:
        raise InputError(
            f"a picture needs one plan of shape (n, m), got {array.shape}; of a batch take an item, result[i]"
        )
    return array


def as_array(name: str, values: Any) -> np.ndarray:
    """Finite floats from an array, a list or a tensor on any device."""
    try:
        array = np.asarray(on_cpu(values), dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be an array of numbers, got {type(values).__name__}") from None
    if not np.isfinite(array).all():
        where = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        raise InputError(f"{name} must be finite to be drawn, got {array[where]} at index {where}")
    return array


def on_cpu(values: Any) -> Any:
    """What NumPy can read: a tensor on another device, or with gradients, cannot be read by it directly."""
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values


def both(name: str, values: Any) -> tuple[Any, Any]:
    """The two parts of a pair, one for each space."""
    if isinstance(values, str) or not hasattr(values, "__len__") or len(values) != 2:
        got = type(values).__name__ + (f" of {len(values)}" if hasattr(values, "__len__") else "")
        raise InputError(f"{name} must be a pair, one part for each space, got {got}")
    first, second = values
    return first, second


def coordinates(name: str, points: Any) -> np.ndarray:
    """Points that can be drawn, (n, 1 to 3)."""
    array = as_array(name, points)
    if array.ndim != 2 or not 1 <= array.shape[1] <= 3:
        raise InputError(f"{name} must have shape (n, 1), (n, 2) or (n, 3) to be drawn, got {array.shape}")
    return array


def flattened(points: np.ndarray, k: int = 2) -> np.ndarray:
    """The first k principal coordinates of points (n, d), (n, k), the widest first."""
    left, sizes, _ = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    return np.pad(left * sizes, ((0, 0), (0, k)))[:, :k]


def unfolded(distances: np.ndarray, k: int = 2) -> np.ndarray:
    """Points (n, k) with distances near the given ones (n, n): classical multidimensional scaling, the widest first."""
    metric = DenseMetric(torch.from_numpy(np.asarray(distances)))
    return landmark_mds(metric, evenly_spaced_indices(metric.n, MAX_MDS_LANDMARKS), k).numpy()


def history_curves(result: Any) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(name, steps, sizes) of each curve that tells how a solve went; sizes are positive, for a logarithmic scale.

    The distance of the objective from its last value, relative to that; the relative change of the plan; the residual
    of the inner solver.
    """
    if not hasattr(result, "history"):
        raise InputError(f"convergence draws a Result, got {type(result).__name__}")
    if result.batched:
        raise InputError("convergence draws one solve, got a batch: take an item first, result[i]")
    history, value = result.history, float(result.value)  # a tensor where the spaces were tensors
    away = np.abs(history.objective - value) / max(abs(value), np.finfo(float).tiny)
    named = (("|objective − final|", away[:-1]), ("plan change", history.change), ("inner residual", history.residual))
    curves = []
    for name, values in named:
        seen = np.isfinite(values) & (values > 0)
        curves.append((name, 1 + np.flatnonzero(seen), values[seen]))
    return curves


def mass_shares(plan_: np.ndarray, weights: tuple[Any, Any] | None) -> list[np.ndarray]:
    """What each point sends or receives, over its weight; over the mean of the others where there is none."""
    shares = []
    pair = (None, None) if weights is None else both("weights", weights)
    for k, (marginal, given) in enumerate(zip((plan_.sum(axis=1), plan_.sum(axis=0)), pair, strict=True)):
        weight = np.full(len(marginal), marginal.mean()) if given is None else as_array(f"weights[{k}]", given)
        if weight.shape != marginal.shape:
            raise InputError(f"weights[{k}] must have shape {marginal.shape}, got {weight.shape}")
        shares.append(np.divide(marginal, weight, out=np.zeros_like(marginal), where=weight > 0))
    return shares


def class_pair(plan_: np.ndarray, labels: tuple[Any, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Checked class numbers, (n,) and (m,)."""
    checked = []
    for k, (given, n) in enumerate(zip(both("labels", labels), plan_.shape, strict=True)):
        try:
            side = np.asarray(on_cpu(given))
        except ValueError:  # lists of different lengths
            raise InputError(f"labels[{k}] must be integers of shape ({n},), got {type(given).__name__}") from None
        if side.shape != (n,) or side.dtype.kind not in "iu":
            raise InputError(f"labels[{k}] must be integers of shape ({n},), got {side.dtype} of shape {side.shape}")
        checked.append(side)
    return checked[0], checked[1]


def class_names(classes: tuple[np.ndarray, np.ndarray], names: Any) -> list[list[str]]:
    """The names of the classes that are present, in their order, for each space."""
    written = []
    for k, (side, given) in enumerate(zip(classes, both("names", names), strict=True)):
        present = np.unique(side).tolist()
        known = [] if isinstance(given, str) or not hasattr(given, "__len__") else list(given)
        if present[0] < 0 or present[-1] >= len(known):
            raise InputError(f"names[{k}] must hold a name for each of the classes {present}, got {given!r}")
        written.append([str(known[c]) for c in present])
    return written


def as_colors(values: np.ndarray) -> np.ndarray:
    """(n, 3) colors: numbers (n,) are spread over the gradient, RGB (n, 3) in [0, 1] stays as it is."""
    if values.ndim == 2 and values.shape[1] == 3:
        return np.clip(values, 0, 1)
    if values.ndim != 1:
        raise InputError(f"colors must have shape (n,) or (n, 3), got {values.shape}")
    from matplotlib import colormaps

    low, high = values.min(), values.max()
    unit = (values - low) / (high - low) if high > low else np.full(len(values), 0.5)
    return colormaps[GRADIENT](0.95 * unit)[:, :3]  # the last yellow is too light on white


def carried(plan_: np.ndarray, colors: np.ndarray) -> np.ndarray:
    """Colors (n, 3) averaged by the plan, (m, 3); pale where nothing arrives."""
    from matplotlib.colors import to_rgb

    averages = barycentric_projection(plan_.T, colors)
    return np.where(np.isnan(averages), to_rgb(PALE), averages)


def dot_area(n: int) -> float:
    """Area in points² of a dot among n."""
    return float(np.clip(6000 / n, 4, 50))


def axes_for(ax: Axes | None, *, three_d: bool) -> Axes:
    """The given axes, or those of a new figure."""
    if ax is None:
        import matplotlib.pyplot as plt

        figure = plt.figure(figsize=(5.0, 4.5), layout="constrained")
        return figure.add_subplot(projection="3d" if three_d else None)
    if three_d and ax.name != "3d":
        raise InputError('points in R³ need axes made with projection="3d", got plane axes')
    if not three_d and ax.name == "3d":
        raise InputError("this picture is plane, got 3-D axes")
    return ax


def equal_frame(ax: Axes, points: np.ndarray) -> None:
    """Equal scales, no box: the clouds are the picture."""
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.04 * max((high - low).max(), 1e-12)
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


def quiet(ax: Axes) -> None:
    """Thin gray spines and small ticks."""
    ax.tick_params(labelsize=8, length=2.5, color=INK, labelcolor=INK)
    for spine in ax.spines.values():
        spine.set_color(INK)
        spine.set_linewidth(0.6)
