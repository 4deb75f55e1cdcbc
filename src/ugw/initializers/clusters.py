"""Clusters of the points of a space around a few of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .._utils.pytree import BatchRecord
from ..geometry.space import Space
from .centers import ChooseCenters


@dataclass(frozen=True, eq=False)
class Clusters(BatchRecord):
    """Points of a space assigned to the nearest of k centers, which are points of the space themselves.

    centers: (B, k), indices of points; labels: (B, n), the cluster of each point; weights: (B, k), sums over clusters;
    distances: (B, n, k), from each point to the centers, or their means over the points of a cluster;
    cluster_distances: (B, k, k), the same between clusters. Points of weight 0 are no centers. Where fewer than k
    points differ, or another item has more centers, the remaining ones repeat with weight 0. is_exact: (B,) bool, does
    every point of positive weight coincide with its center?
    """

    centers: Tensor
    labels: Tensor
    weights: Tensor
    distances: Tensor
    cluster_distances: Tensor
    is_exact: Tensor

    def weight_shares(self, log_weights: Tensor) -> Tensor:
        """Return (B, n, k): the weight of each point over the weight of its cluster, 0 in all other clusters."""
        return _weight_shares(self.labels, log_weights.exp(), self.weights)


def cluster_points(
    space: Space, log_weights: Tensor, counts: Sequence[int], choose_centers: ChooseCenters, *, average: bool = False
) -> Clusters:
    """Return the `Clusters` of points around at most counts[i] centers in batch item i: labels, weights, distances.

    log_weights: (B, n), of mass 1; counts: at most the number of points of the item without padding; choose_centers:
    returns the centers for a metric, weights and counts; average: distances to a cluster are means over its points
    instead of distances to its center.
    """
    weights, metric = log_weights.exp(), space.metric
    centers = choose_centers(metric, weights, counts)
    distances = metric.columns(centers).expand(*weights.shape, -1)
    # A point that stands for a cluster of another level may be at a positive distance from itself.
    nearest = distances.scatter(1, centers[:, None, :], 0.0)
    labels = nearest.argmin(2)
    cluster_weights = torch.zeros_like(centers, dtype=weights.dtype).scatter_add_(1, labels, weights)
    is_exact = (torch.where(weights > 0, nearest.amin(2), 0.0) == 0).all(1)
    if not average:
        between = torch.take_along_dim(distances, centers[:, :, None], dim=1)
        return Clusters(centers, labels, cluster_weights, distances, between, is_exact)
    shares = _weight_shares(labels, weights, cluster_weights)
    distances = metric.apply(shares)
    between = shares.mT @ distances
    return Clusters(centers, labels, cluster_weights, distances, 0.5 * (between + between.mT), is_exact)


def _weight_shares(labels: Tensor, weights: Tensor, cluster_weights: Tensor) -> Tensor:
    """Return (B, n, k): the weight of each point over the weight of its cluster, 0 in other clusters."""
    is_member = torch.nn.functional.one_hot(labels, cluster_weights.shape[1])
    return is_member * weights[:, :, None] / torch.where(cluster_weights > 0, cluster_weights, 1.0)[:, None, :]
