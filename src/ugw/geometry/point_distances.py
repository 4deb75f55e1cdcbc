"""Distances between points in R^d, by the name of a metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy  # its submodules load when they are first used, which saves `import ugw` half a second
import torch
from torch import Tensor

from .._utils.checks import check_finite, describe_value
from .._utils.device_memory import machine_memory
from ..errors import InputError
from .config import GEOMETRY_CONFIG

# Metrics computed by torch, through which gradients pass.
DIFFERENTIABLE_METRICS = ("euclidean", "sqeuclidean")
# Metrics with units that SciPy takes from all points: two points do not determine their distance.
DATA_DEPENDENT_METRICS = ("seuclidean", "mahalanobis")
_EXPECTED_METRIC = (
    f"metric must be {', '.join(DIFFERENTIABLE_METRICS)} or a name that scipy.spatial.distance.cdist knows and that "
    "fits the points"
)


def check_metric(metric: Any) -> None:
    """Raise InputError unless `metric` is a string or a function; whether SciPy knows it is not checked."""
    if not isinstance(metric, str) and not callable(metric):
        raise InputError(f"{_EXPECTED_METRIC}, got {describe_value(metric)}")


def point_distances(points: Tensor, metric: str) -> Tensor:
    """Return the distances (n, n) or (B, n, n) between points (n, d) or (B, n, d), by the name of a metric.

    "euclidean" and "sqeuclidean" are differentiable (once); other names are computed by SciPy.

    >>> point_distances(torch.tensor([[0.0], [3.0]]), "cityblock")
    tensor([[0., 3.],
            [3., 0.]])
    """
    if metric in DIFFERENTIABLE_METRICS:
        distances = euclidean_distances(points, points, squared=metric == "sqeuclidean")
    else:
        check_no_gradient(f"points with metric={metric!r}", points)
        items = points.cpu().double().numpy().reshape(-1, *points.shape[-2:])
        stacked = np.stack([_scipy_distances(metric, item) for item in items])
        distances = torch.from_numpy(stacked).to(points).reshape(*points.shape[:-1], points.shape[-2])
    check_finite(f"{metric} distances between the points", distances)
    return distances


def cross_distances(points_x: Tensor, points_y: Tensor, metric: str) -> Tensor:
    """Return the distances (n, m) from points (n, d) to points (m, d) that need no gradient, by the name of a metric.

    >>> cross_distances(torch.tensor([[0.0], [3.0]]), torch.tensor([[1.0]]), "cityblock").flatten()
    tensor([1., 2.])
    """
    if metric in DIFFERENTIABLE_METRICS:
        distances = euclidean_distances(points_x, points_y, squared=metric == "sqeuclidean")
    else:
        arrays = (points.cpu().double().numpy() for points in (points_x, points_y))
        distances = torch.from_numpy(_scipy_distances(metric, *arrays)).to(points_x)
    check_finite(f"{metric} distances between the points", distances)
    return distances


def check_distances_fit_in_memory(points: Tensor) -> None:
    """Raise InputError if the distances between points (..., n, d) take more than half of the memory there is."""
    needed = points[..., 0].numel() * points.shape[-2] * points.element_size()
    if points.device.type == "cuda":
        memory = float(torch.cuda.get_device_properties(points.device).total_memory)
    else:
        memory = machine_memory()
    if needed > GEOMETRY_CONFIG.max_memory_share * memory:
        raise InputError(
            f"the stored distances of {points.shape[-2]} points would take {needed / 2**30:.3g} GiB of the "
            f"{memory / 2**30:.3g} GiB there are: give tol=, an error that is allowed for distances of low rank, or "
            'take metric="sqeuclidean", which stores none'
        )


def check_no_gradient(name: str, tensor: Tensor) -> None:
    """Raise InputError if a tensor, called `name` in the message, requires gradients, which SciPy would lose."""
    if tensor.requires_grad:
        raise InputError(
            f"{name} cannot carry gradients, got requires_grad=True, expected detached points or"
            f" Space.from_points with metric {' or '.join(DIFFERENTIABLE_METRICS)}"
        )


def euclidean_distances(points_x: Tensor, points_y: Tensor, *, squared: bool = False) -> Tensor:
    """Return Euclidean distances, or their squares, (..., n, m) between points (..., n, d) and (..., m, d).

    >>> euclidean_distances(torch.zeros(1, 2), torch.tensor([[3.0, 4.0]]))
    tensor([[5.]])
    """
    # Differences of coordinates, not |x|² + |y|² - 2 x·y, which loses the digits of small distances and leaves
    # rounding errors on the diagonal. The gradient at coincident points is 0, not NaN.
    distances = torch.cdist(points_x, points_y, compute_mode="donot_use_mm_for_euclid_dist")
    return distances.square() if squared else distances


def _scipy_distances(metric: str, points: np.ndarray, others: np.ndarray | None = None) -> np.ndarray:
    """Return SciPy's distances (n, n) between points (n, d), or (n, m) from them to `others`, (m, d).

    Raises InputError if SciPy does not accept the metric for these points.
    """
    try:
        if others is not None:
            return scipy.spatial.distance.cdist(points, others, metric)
        # pdist does half the work of cdist(x, x), and is exactly symmetric with a zero diagonal.
        return scipy.spatial.distance.squareform(scipy.spatial.distance.pdist(points, metric))
    except (ValueError, TypeError) as error:
        raise InputError(f"{_EXPECTED_METRIC}, got {describe_value(metric)} ({error})") from error
