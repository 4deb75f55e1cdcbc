"""Checks of the arrays that a space is made of, and the metrics of points and of compressed distances."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._utils.checks import (
    as_index,
    as_parameter,
    as_tensor,
    check_finite,
    check_ndim,
    check_nonnegative,
    check_symmetric,
    check_zero_diagonal,
    describe_value,
    dtype_name,
)
from ..errors import InputError
from .compression import PointDistances, compress_distances
from .low_rank import LowRankMetric
from .metric import DenseMetric, Metric
from .point_distances import (
    DATA_DEPENDENT_METRICS,
    check_distances_fit_in_memory,
    check_metric,
    check_no_gradient,
    point_distances,
)
from .stack import stack_metrics


def metric_from_points(points: Tensor, metric: str, tol: Any, max_rank: Any) -> Metric:
    """Return the metric with the distances between points (n, d) or (B, n, d), of the kind named by `metric`.

    It is exact if `tol` is None: a `LowRankMetric` for "sqeuclidean", else a `DenseMetric`. With `tol` it is a
    `LowRankMetric` of at most `max_rank` columns with measured errors of at most `tol` times the largest distance.
    Raises InputError for options that do not fit the metric, or if `max_rank` is too small.
    """
    check_metric(metric)
    if metric == "sqeuclidean":
        if tol is not None:
            got = describe_value(tol)
            raise InputError(f'metric="sqeuclidean" is exact and of low rank: tol must be None, got {got}')
        # Products round least for points with mean 0, and the distances do not depend on the mean.
        exact = LowRankMetric(points - points.detach().mean(-2, keepdim=True), points.new_ones(points.shape[-1]))
        check_finite("sqeuclidean distances between the points", 4.0 * exact.squared_norms)
        return exact
    if tol is None:
        check_distances_fit_in_memory(points)
        return DenseMetric(point_distances(points, metric))
    tol, max_rank = _check_compression_options(tol, max_rank)
    if metric in DATA_DEPENDENT_METRICS:
        raise InputError(
            f"metric={metric!r} depends on all points: tol must be None, got {tol:g}; Space.compressed(tol) comes after"
        )
    if points.requires_grad:
        raise InputError(
            "points with tol= cannot carry gradients, got requires_grad=True, expected detached points, tol=None, or "
            'metric="sqeuclidean", which is of low rank and has gradients'
        )
    sources = [PointDistances(item, metric) for item in (points if points.ndim == 3 else points[None])]
    metrics = [compress_distances(s, first=s.outermost_point, tol=tol, max_rank=max_rank) for s in sources]
    return stack_metrics(metrics, points.shape[-2]) if points.ndim == 3 else metrics[0]


def compress_metric(metric: Metric, sizes: tuple[int, ...] | None, *, tol: Any, max_rank: Any) -> Metric:
    """Return a low-rank metric whose distances differ from the given ones by at most `tol` times the largest one.

    All items of a batch get the same rank, at most `max_rank`; InputError if that is too small. A low-rank metric of
    such a rank is returned unchanged, or InputError raised if its own `error` exceeds the limit. sizes: points of each
    batch item without padding, None for one space.
    """
    tol, max_rank = _check_compression_options(tol, max_rank)
    if isinstance(metric, LowRankMetric):
        longest = float(metric.extremes()[1].min()) if metric.error else 1.0
        if metric.error > tol * longest:
            raise InputError(
                f"distances of low rank do not become better: got an error of {metric.error / longest:.3g} of the "
                f"largest one, expected at most tol = {tol:g}; compress the space they were made of"
            )
        if metric.points.shape[-1] <= max_rank:
            return metric  # nothing to gain, and it may carry gradients
        check_no_gradient("distances to compress", metric.points)
    if isinstance(metric, DenseMetric):
        check_no_gradient("distances to compress", metric.matrix)
        check_zero_diagonal("distances to compress", metric.matrix)
    if sizes is None or not metric.batched:
        return _compress_one(metric, tol, max_rank)
    items = [_compress_one(metric.item(i, n), tol, max_rank) for i, n in enumerate(sizes)]
    return stack_metrics(items, metric.n)


def _compress_one(metric: Metric, tol: float, max_rank: int) -> LowRankMetric:
    """Return a low-rank approximation of one metric (n, n), with errors up to `tol` times the largest distance.

    Its `error` is the absolute one measured plus that of the given metric. Raises InputError if `max_rank` is too
    small.
    """
    mean = metric.apply(torch.ones(metric.n, 1, dtype=metric.dtype, device=metric.device) / metric.n)
    low_rank = compress_distances(metric, first=int(mean.argmax()), tol=tol, max_rank=max_rank)
    previous_error = metric.error if isinstance(metric, LowRankMetric) else 0.0
    return replace(low_rank, error=low_rank.error + previous_error)


def _check_compression_options(tol: Any, max_rank: Any) -> tuple[float, int]:
    """Return `tol` as a float in (0, 1) and `max_rank` as an integer ≥ 1, or raise InputError."""
    checked = as_parameter("tol", tol)
    if checked.ndim or float(checked) >= 1.0:
        raise InputError(f"tol must be a number below 1, a share of the largest distance, got {describe_value(tol)}")
    if isinstance(max_rank, bool) or not isinstance(max_rank, (int, np.integer)) or max_rank < 1:
        raise InputError(f"max_rank must be an integer of at least 1, got {describe_value(max_rank)}")
    return float(checked), int(max_rank)


def as_points(name: str, points: Any, *, batch: bool = True) -> Tensor:
    """Return finite points as a tensor (n, d), or (B, n, d) if a batch is allowed; raise InputError otherwise."""
    tensor = as_tensor(name, points)
    expected = "(n, d) or (B, n, d)" if batch else "(n, d); for a batch use Space.stack"
    check_ndim(name, tensor, (2, 3) if batch else (2,), expected)
    check_finite(name, tensor)
    return tensor


def as_symmetric_matrix(name: str, matrix: Any) -> Tensor:
    """Return a finite symmetric matrix as a tensor (n, n) or (B, n, n), or raise InputError."""
    tensor = as_tensor(name, matrix)
    check_ndim(name, tensor, (2, 3), "(n, n) or (B, n, n)")
    if tensor.shape[-1] != tensor.shape[-2]:
        raise InputError(f"{name} must be square, (n, n) or (B, n, n), got {tuple(tensor.shape)}")
    check_finite(name, tensor)
    check_symmetric(name, tensor)
    return tensor


def as_weights(weights: Any, like: Tensor, n: int) -> Tensor:
    """Return weights ≥ 0 of positive mass, (n,) or (B, n), in dtype and device of `like`, or raise InputError."""
    tensor = as_tensor("weights", weights, like=like)
    check_ndim("weights", tensor, (1, 2), f"({n},) or (B, {n})")
    if tensor.shape[-1] != n:
        raise InputError(f"weights must have shape (..., {n}), got {tuple(tensor.shape)}")
    check_finite("weights", tensor)
    check_nonnegative("weights", tensor)
    mass = tensor.detach().sum(-1)
    check_finite("total mass of the weights", mass)
    if mass.amin() == 0:
        place = f" in batch item {mass.argmin().item()}" if mass.ndim else ""
        raise InputError(f"weights must have positive total mass, got all zero{place}")
    return tensor


def as_features(features: Any, like: Tensor, n: int) -> Tensor:
    """Return finite features, (n, d) or (B, n, d), in dtype and device of `like`, or raise InputError."""
    tensor = as_tensor("features", features, like=like)
    check_ndim("features", tensor, (2, 3), f"({n}, d) or (B, {n}, d)")
    if tensor.shape[-2] != n:
        raise InputError(f"features must have shape (..., {n}, d), got {tuple(tensor.shape)}")
    check_finite("features", tensor)
    return tensor


def as_item_indices(index: Any, n_items: int, device: torch.device) -> Tensor:
    """Return the indices (k,) of batch items that integers (k,) or booleans (n_items,) select; InputError if none."""
    chosen = as_index("index", index, n_items, device, allow_mask=True)
    if chosen.ndim == 0 or len(chosen) == 0:
        got = "none" if chosen.ndim else f"the number {int(chosen)}, expected a list of one"
        raise InputError(f"index must select items of a batch, got {got}")
    return chosen


def read_weights_and_features(
    metric: Metric, weights: Any, features: Any
) -> tuple[Tensor, Tensor | None, tuple[int, ...]]:
    """Return the weights (n,) or (B, n), the features (n, d), (B, n, d) or None, and the batch shape, (B,) or ().

    Weights that are None become 1/n each. The batch shape is (B,) if metric, weights or features have a batch
    dimension. Raises InputError if two of them have different B, and for invalid arrays.
    """
    n, like = metric.n, torch.empty(0, dtype=metric.dtype, device=metric.device)
    if isinstance(metric, DenseMetric):
        check_finite("distances", metric.matrix)  # sums of finite coordinates or edges may overflow
    weights = like.new_full((n,), 1 / n) if weights is None else as_weights(weights, like, n)
    features = None if features is None else as_features(features, like, n)
    sizes = {"distances": metric.shape[0]} if metric.batched else {}
    for name, array, ndim in (("weights", weights, 1), ("features", features, 2)):
        if array is not None and array.ndim > ndim:
            sizes[name] = len(array)
    if len(set(sizes.values())) > 1:
        raise InputError(f"batch sizes must be equal, got {', '.join(f'{k} {v}' for k, v in sizes.items())}")
    return weights, features, tuple(set(sizes.values()))


def read_dtype_or_device(target: Any) -> torch.dtype | torch.device:
    """Return the torch dtype (float32 or float64) or torch device that `target` is or names, or raise InputError.

    >>> read_dtype_or_device("float32"), read_dtype_or_device("cpu")
    (torch.float32, device(type='cpu'))
    """
    place = {"float32": torch.float32, "float64": torch.float64}.get(str(target), target)
    if isinstance(place, torch.dtype):
        if place not in (torch.float32, torch.float64):
            raise InputError(f"a space is float32 or float64, got {dtype_name(place)}")
        return place
    try:
        return torch.empty(0, device=torch.device(place)).device
    except (RuntimeError, TypeError, AssertionError, ImportError) as error:  # unknown, or not on this machine
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"to() must be given float32, float64 or a device, got {describe_value(place)} ({reason})"
        ) from None
