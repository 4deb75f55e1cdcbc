"""The parts of a space: checked, made low-rank, and put into batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._utils.checks import (
    as_positive,
    as_tensor,
    check_finite,
    check_ndim,
    check_nonnegative,
    check_square,
    check_symmetric,
    check_zero_diagonal,
    dtype_name,
)
from ..errors import InputError
from .compression import Points, embed
from .low_rank import LowRankMetric
from .metric import DenseMetric, Metric
from .point_distances import (
    DATA_DEPENDENT_METRICS,
    check_distances_fit_in_memory,
    check_no_gradient,
    point_distances,
)


def metric_of_points(points: Tensor, metric: str, tol: Any, max_rank: Any) -> Metric:
    """Distances by name of points (n, d) or (B, n, d): exact ones, or with `tol` ones of low rank."""
    if metric == "sqeuclidean":
        if tol is not None:
            raise InputError('metric="sqeuclidean" is exact and of low rank: tol must be None, got ' + repr(tol))
        return squared(points)
    if tol is None:
        check_distances_fit_in_memory(points)
        return DenseMetric(point_distances(points, metric))
    tol, max_rank = _options(tol, max_rank)
    if metric in DATA_DEPENDENT_METRICS:
        raise InputError(
            f"metric={metric!r} depends on all points: tol must be None, got {tol:g}; Space.compressed(tol) comes after"
        )
    if points.requires_grad:
        raise InputError(
            "points with tol= cannot carry gradients, got requires_grad=True, expected detached points, tol=None, or "
            'metric="sqeuclidean", which is of low rank and has gradients'
        )
    sources = [Points(item, metric) for item in (points if points.ndim == 3 else points[None])]
    made = [embed(source, first=source.outermost, tol=tol, max_rank=max_rank) for source in sources]
    return stack_metrics(made, points.shape[-2]) if points.ndim == 3 else made[0]


def compressed(metric: Metric, sizes: tuple[int, ...] | None, *, tol: Any, max_rank: Any) -> Metric:
    """The same distances up to a share `tol` of the largest, of low rank; a batch has one rank."""
    tol, max_rank = _options(tol, max_rank)
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
    if not metric.batched:
        return _compressed(metric, tol, max_rank)
    items = [metric.item(i, n) for i, n in enumerate(sizes or (metric.n,) * metric.shape[0])]
    return stack_metrics([_compressed(item, tol, max_rank) for item in items], metric.n)


def _compressed(metric: Metric, tol: float, max_rank: int) -> LowRankMetric:
    """One metric (n, n)."""
    mean = metric.apply(torch.ones(metric.n, 1, dtype=metric.dtype, device=metric.device) / metric.n)
    made = embed(metric, first=int(mean.argmax()), tol=tol, max_rank=max_rank)
    known = metric.error if isinstance(metric, LowRankMetric) else 0.0
    return replace(made, error=made.error + known)


def _options(tol: Any, max_rank: Any) -> tuple[float, int]:
    checked = as_positive("tol", tol, allow_inf=False)
    if checked.ndim or float(checked) >= 1.0:
        raise InputError(f"tol must be a number below 1, a share of the largest distance, got {tol!r}")
    if isinstance(max_rank, bool) or not isinstance(max_rank, (int, np.integer)) or max_rank < 1:
        raise InputError(f"max_rank must be an integer of at least 1, got {max_rank!r}")
    return float(checked), int(max_rank)


def coordinates_of(name: str, points: Any, *, batch: bool = True) -> Tensor:
    """Checked coordinates, (n, d), or (B, n, d) where a batch is taken."""
    tensor = as_tensor(name, points)
    expected = "(n, d) or (B, n, d)" if batch else "(n, d); for a batch use Space.stack"
    check_ndim(name, tensor, (2, 3) if batch else (2,), expected)
    check_finite(name, tensor)
    return tensor


def symmetric(name: str, matrix: Any) -> Tensor:
    """A checked symmetric matrix, (n, n) or (B, n, n)."""
    tensor = as_tensor(name, matrix)
    check_square(name, tensor)
    check_finite(name, tensor)
    check_symmetric(name, tensor)
    return tensor


def squared(points: Tensor) -> LowRankMetric:
    """Squared Euclidean distances of points (n, d) or (B, n, d), whose mean does not matter and is best at 0."""
    made = LowRankMetric(points - points.detach().mean(-2, keepdim=True), points.new_ones(points.shape[-1]))
    check_finite("sqeuclidean distances between the points", 4.0 * made.squared_norms)
    return made


def weights_of(weights: Any, like: Tensor, n: int) -> Tensor:
    """Checked weights, (n,) or (B, n)."""
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


def features_of(features: Any, like: Tensor, n: int) -> Tensor:
    """Checked features, (n, d) or (B, n, d)."""
    tensor = as_tensor("features", features, like=like)
    check_ndim("features", tensor, (2, 3), f"({n}, d) or (B, {n}, d)")
    if tensor.shape[-2] != n:
        raise InputError(f"features must have shape (..., {n}, d), got {tuple(tensor.shape)}")
    check_finite("features", tensor)
    return tensor


def dtype_or_device(target: Any) -> torch.dtype | torch.device:
    """What `Space.to` was asked for, if there is such a thing here."""
    target = {"float32": torch.float32, "float64": torch.float64}.get(str(target), target)
    if isinstance(target, torch.dtype):
        if target not in (torch.float32, torch.float64):
            raise InputError(f"a space is float32 or float64, got {dtype_name(target)}")
        return target
    try:
        return torch.empty(0, device=torch.device(target)).device
    except (RuntimeError, TypeError, AssertionError, ImportError) as error:  # no such name, or not on this machine
        said = str(error).strip().split("\n")[0]
        raise InputError(f"to() must be given float32, float64 or a device, got {target!r} ({said})") from None


def pad(tensor: Tensor, *sizes: int) -> Tensor:
    """Zeros after the entries, to the given sizes."""
    amounts = [(0, size - have) for size, have in zip(sizes, tensor.shape, strict=True)]
    return torch.nn.functional.pad(tensor, [amount for pair in reversed(amounts) for amount in pair])


def stack_metrics(metrics: Sequence[Metric], n: int) -> Metric:
    """One metric for a batch, embedded if all are."""
    embedded = [m for m in metrics if isinstance(m, LowRankMetric)]
    if len(embedded) < len(metrics):
        return DenseMetric(torch.stack([pad(m.dense(), n, n) for m in metrics]))
    if len({tuple(m.signs.tolist()) for m in embedded}) > 1:
        embedded = _common_signs(embedded)
    # Padding stands where the first point does: it makes no distance longer.
    points = [torch.cat([m.points, m.points[:1].expand(n - m.n, -1)]) for m in embedded]
    return LowRankMetric(torch.stack(points), embedded[0].signs, max(m.error for m in embedded))


def _common_signs(metrics: Sequence[LowRankMetric]) -> list[LowRankMetric]:
    """The same metrics with as many columns of each sign, those of sign 1 first, filled up with zeros."""
    halves = [[m.points[:, m.signs == sign] for sign in (1.0, -1.0)] for m in metrics]
    ranks = [max(pair[k].shape[1] for pair in halves) for k in (0, 1)]
    signs = torch.tensor([1.0] * ranks[0] + [-1.0] * ranks[1], dtype=metrics[0].dtype, device=metrics[0].device)
    points = [torch.cat([pad(h, len(h), r) for h, r in zip(pair, ranks, strict=True)], dim=1) for pair in halves]
    return [LowRankMetric(p, signs, m.error) for p, m in zip(points, metrics, strict=True)]


def stack_rows(tensors: Sequence[Tensor], n: int) -> Tensor:
    """(n_i, d) each, to (B, n, d)."""
    return torch.stack([pad(tensor, n, tensor.shape[-1]) for tensor in tensors])
