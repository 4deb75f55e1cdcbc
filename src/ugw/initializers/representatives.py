"""A few points that stand for a space: the farthest ones, or even steps of the weight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .._utils.pytree import BatchRecord
from ..geometry.landmarks import farthest_points
from ..geometry.metric import Metric
from ..geometry.space import Space
from ..kernels.reductions import quantile_indices

# Picks (B, k) of the points of a metric with weights (B, n).
Choice = Callable[[Metric, Tensor, int], Tensor]
# Eccentricities are told apart by this share of the largest: rounding, which padding changes, is far below.
GRAIN = {torch.float32: 1e-5, torch.float64: 1e-10}


@dataclass(frozen=True, eq=False)
class Representatives(BatchRecord):
    """Points of a space that stand for those nearest to them, or the cells of these.

    index: (B, k), the points; owner: (B, n), which of them each point counts for; weights: (B, k), of the points that
    count for each; columns: (B, n, k), distances to the points, or mean ones to the cells; between: (B, k, k), those
    among them. Points without weight are neither chosen nor counted; where fewer than k points differ, the rest repeat
    with weight 0. whole: (B,) bool, do they stand for every point without any loss?
    """

    index: Tensor
    owner: Tensor
    weights: Tensor
    columns: Tensor
    between: Tensor
    whole: Tensor

    def spread(self, log_weights: Tensor) -> Tensor:
        """(B, n, k): how the mass of each representative falls on its points, by weight."""
        return _spread(self.owner, log_weights.exp(), self.weights)


def representatives(
    space: Space, log_weights: Tensor, count: int, choose: Choice, *, cells: bool = False
) -> Representatives:
    """Up to `count` points of a space, and which points each stands for. cells: with mean distances over those."""
    weights, metric = log_weights.exp(), space.metric
    batch, n = weights.shape
    index = choose(metric, weights, min(count, n))
    columns = metric.columns(index).expand(batch, n, -1)
    near = columns.scatter(1, index[:, None, :], 0.0)  # a cell may be wide, and is its own nearest all the same
    owner = near.argmin(2)
    gathered = torch.zeros_like(index, dtype=weights.dtype).scatter_add_(1, owner, weights)
    whole = (torch.where(weights > 0, near.amin(2), 0.0) == 0).all(1)
    if not cells:
        between = torch.take_along_dim(columns, index[:, :, None], dim=1)
        return Representatives(index, owner, gathered, columns, between, whole)
    spread = _spread(owner, weights, gathered)
    columns = metric.apply(spread)
    between = spread.mT @ columns
    return Representatives(index, owner, gathered, columns, 0.5 * (between + between.mT), whole)


def _spread(owner: Tensor, weights: Tensor, gathered: Tensor) -> Tensor:
    own = torch.nn.functional.one_hot(owner, gathered.shape[1])
    return own * weights[:, :, None] / torch.where(gathered > 0, gathered, 1.0)[:, None, :]


def farthest(metric: Metric, weights: Tensor, count: int) -> Tensor:
    """The most eccentric point, then again and again the one farthest from all chosen before. Returns (B, count)."""
    present = weights > 0
    first = torch.where(present, rank(metric, weights), -torch.inf).argmax(1)
    return farthest_points(lambda index: _column(metric, index, len(weights)), first, count, candidates=present)


def quantiles(metric: Metric, weights: Tensor, count: int) -> Tensor:
    """Points at even steps of the weight, in the order of their eccentricity. Returns (B, count)."""
    order = rank(metric, weights).argsort(dim=1, stable=True)
    return order.gather(1, quantile_indices(weights.gather(1, order), count))


def eccentricity(metric: Metric, weights: Tensor) -> Tensor:
    """The mean distance to the others, D a, under weights (B, n) of unit mass. Returns (B, n)."""
    return metric.apply(weights[:, :, None])[:, :, 0]


def rank(metric: Metric, weights: Tensor) -> Tensor:
    """Eccentricities (B, n) in whole steps: those that differ by rounding alone tie."""
    far = eccentricity(metric, weights)
    step = GRAIN[far.dtype] * far.abs().amax(1, keepdim=True)
    return (far / step.clamp(min=torch.finfo(far.dtype).tiny)).round()


def _column(metric: object, index: Tensor, batch: int) -> Tensor:
    """Distances (B, n) to a point each, 0 for the point itself: cells have a width, and would be chosen again."""
    column = metric.columns(index[:, None]).squeeze(2).expand(batch, -1)  # type: ignore[attr-defined]
    return column.scatter(1, index[:, None], 0.0)
