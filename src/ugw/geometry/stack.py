"""Batches of metrics and tensors of different sizes, padded with points of weight zero."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ..errors import InputError
from .low_rank import LowRankMetric
from .metric import DenseMetric, Metric


def pad_with_zeros(tensor: Tensor, *sizes: int) -> Tensor:
    """Return the tensor padded to the given sizes, one for each dimension, with zeros after its entries."""
    amounts = [(0, size - have) for size, have in zip(sizes, tensor.shape, strict=True)]
    return torch.nn.functional.pad(tensor, [amount for pair in reversed(amounts) for amount in pair])


def stack_metrics(metrics: Sequence[Metric], n: int) -> Metric:
    """Return one metric (B, n, n) of metrics (n_i, n_i), n_i ≤ n, padded to n points.

    It is a LowRankMetric if all of them are, and padded points then coincide with the first point; otherwise it is a
    DenseMetric, and padded points have distance 0 to all points. `error` is the largest one of the metrics.
    """
    low_rank = [m for m in metrics if isinstance(m, LowRankMetric)]
    if len(low_rank) < len(metrics):
        return DenseMetric(torch.stack([pad_with_zeros(m.dense(), n, n) for m in metrics]))
    if len({tuple(m.signs.tolist()) for m in low_rank}) > 1:
        low_rank = _with_common_signs(low_rank)
    # Padding coincides with the first point, so that it does not change the largest distance.
    points = [torch.cat([m.points, m.points[:1].expand(n - m.n, -1)]) for m in low_rank]
    return LowRankMetric(torch.stack(points), low_rank[0].signs, max(m.error for m in low_rank))


def _with_common_signs(metrics: Sequence[LowRankMetric]) -> list[LowRankMetric]:
    """Return the metrics with the same `signs`, those of 1 first, and unchanged distances.

    Coordinates of each sign are padded with zeros to the largest number that a metric has of them.
    """
    by_sign = [[m.points[:, m.signs == sign] for sign in (1.0, -1.0)] for m in metrics]
    ranks = [max(pair[k].shape[1] for pair in by_sign) for k in (0, 1)]
    signs = torch.tensor([1.0] * ranks[0] + [-1.0] * ranks[1], dtype=metrics[0].dtype, device=metrics[0].device)
    points = [
        torch.cat([pad_with_zeros(h, len(h), r) for h, r in zip(pair, ranks, strict=True)], dim=1) for pair in by_sign
    ]
    return [LowRankMetric(p, signs, m.error) for p, m in zip(points, metrics, strict=True)]


def stack_padded_rows(tensors: Sequence[Tensor], n: int) -> Tensor:
    """Return tensors (n_i, d) as one tensor (B, n, d), padded with zeros."""
    return torch.stack([pad_with_zeros(tensor, n, tensor.shape[-1]) for tensor in tensors])


def check_all_equal(name: str, values: Iterable[str]) -> None:
    """Raise InputError, "stacked spaces must agree, got `name` ...", if two of the values differ."""
    distinct = sorted(set(values))
    if len(distinct) > 1:
        raise InputError(f"stacked spaces must agree, got {name} {', '.join(distinct)}")
