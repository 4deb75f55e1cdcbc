"""Centers of clusters: a few points of a space, the farthest from each other or at quantiles of the eccentricity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from ..geometry.landmarks import farthest_points
from ..geometry.metric import Metric
from ..kernels.reductions import even_quantiles, quantile_indices
from .config import INITIALIZER_CONFIG

# Maps a metric, weights (B, n) and the number of centers of each item to their indices (B, k), k the largest number.
# Indices beyond the number of an item repeat some of its centers.
ChooseCenters = Callable[[Metric, Tensor, Sequence[int]], Tensor]


def farthest_centers(metric: Metric, weights: Tensor, counts: Sequence[int]) -> Tensor:
    """Return indices (B, k): the point of largest mean distance to all, then each time the farthest from those chosen.

    weights: (B, n), points of weight 0 are never chosen; counts: of each item, k is the largest, and every item gets k.
    Indices repeat in items with fewer than k different points.
    """
    has_weight = weights > 0
    first = torch.where(has_weight, rounded_eccentricities(metric, weights), -torch.inf).argmax(1)
    return farthest_points(partial(_column, metric, len(weights)), first, max(counts), candidates=has_weight)


def quantile_centers(metric: Metric, weights: Tensor, counts: Sequence[int]) -> Tensor:
    """Return indices (B, k) of points at even quantiles of the weights (B, n), points sorted by mean distance to all.

    counts: of each item, k is the largest; items with fewer repeat their first index.
    """
    order = rounded_eccentricities(metric, weights).argsort(dim=1, stable=True)
    rows = {count: even_quantiles(count, weights.device) for count in counts}
    quantiles = rows[counts[0]]
    if len(rows) > 1:
        k = max(counts)
        quantiles = torch.stack([torch.cat([rows[c], rows[c][:1].expand(k - c)]) for c in counts])
    return order.gather(1, quantile_indices(weights.gather(1, order), quantiles))


def eccentricities(metric: Metric, weights: Tensor) -> Tensor:
    """Return the mean distance (B, n) of each point to the others, D a, under weights (B, n) of mass 1."""
    return metric.apply(weights[:, :, None])[:, :, 0]


def rounded_eccentricities(metric: Metric, weights: Tensor) -> Tensor:
    """Return the mean distances D a, (B, n), of points to all others, in units of 1e-10 (float32: 1e-5) of the largest.

    They are rounded to whole numbers, so that points whose mean distances differ by rounding alone tie.
    """
    values = eccentricities(metric, weights)
    share = INITIALIZER_CONFIG.eccentricity_step[str(values.dtype).removeprefix("torch.")]
    step = share * values.abs().amax(1, keepdim=True)
    return (values / step.clamp(min=torch.finfo(values.dtype).tiny)).round()


def _column(metric: Metric, batch: int, index: Tensor) -> Tensor:
    """Return column `index`, (B,), of each distance matrix, (B, n), with 0 at the diagonal entry.

    A point that stands for a cluster may be at a positive distance from itself, and would be chosen again.
    """
    column = metric.columns(index[:, None]).squeeze(2).expand(batch, -1)
    return column.scatter(1, index[:, None], 0.0)
