"""Aggregated problems: the same problem on a few clusters of each space, and prolongation of its plans."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .._utils.pytree import BatchRecord
from ..geometry.metric import DenseMetric
from ..geometry.space import Space
from ..problems.ugw import UGW
from .centers import ChooseCenters
from .clusters import Clusters, cluster_points
from .plans import to_unit_mass, transport_plan


@dataclass(frozen=True, eq=False)
class AggregatedProblem(BatchRecord):
    """The problem whose k and l points are clusters of the points of an original problem, and these clusters."""

    problem: UGW
    x: Clusters
    y: Clusters

    def prolongate(self, plan: Tensor, original: UGW) -> Tensor:
        """Return a plan (B, n, m) of mass 1 between all points, made from a plan (B, k, l) between clusters.

        It is the entropic transport plan, with the rhos of `original`, for the cost
        ∫ (Dx[:, r] − Dy[:, s])² dplan(r, s), with Dx[:, r] and Dy[:, s] the distances to cluster r of x and s of y. If
        all points of an item coincide with their centers, each entry of the plan is instead spread over the points of
        its two clusters, in proportion to their weights. plan: of any mass > 0; it is scaled to mass 1 first.
        """
        plan, is_exact = to_unit_mass(plan), self.x.is_exact & self.y.is_exact
        if not plan.is_cuda and not bool(is_exact.any()):
            return self._transport(plan, original)
        same = self.x.weight_shares(original.log_a) @ plan @ self.y.weight_shares(original.log_b).mT
        if not plan.is_cuda and bool(is_exact.all()):
            return same
        return torch.where(is_exact[:, None, None], same, self._transport(plan, original))

    def _transport(self, plan: Tensor, original: UGW) -> Tensor:
        """Return the transport plan (B, n, m), of mass 1, for ∫ (Dx[:, r] − Dy[:, s])² dplan(r, s), rhos of `original`.

        Dx[:, r], Dy[:, s]: distances of all points to cluster r of x and s of y; plan: (B, k, l).
        """
        row = self.x.distances.square() @ plan.sum(2)[:, :, None]
        col = self.y.distances.square() @ plan.sum(1)[:, :, None]
        return transport_plan(row + col.mT - 2.0 * self.x.distances @ plan @ self.y.distances.mT, original)


def aggregate(problem: UGW, count: int, choose_centers: ChooseCenters, *, average: bool = False) -> AggregatedProblem:
    """Return the problem aggregated to at most `count` clusters of each space, and these clusters.

    Clusters are not more than an item has points. The problem has the rhos, eps, alpha and loss of the original one.
    choose_centers: returns the centers around which clusters are formed; average: distances between clusters are
    weighted means over their points instead of distances between their centers. For plans that treat all points of a
    cluster alike this is the problem itself, but for the variance of the distances within a cluster, so that it has
    nearly the same local minima.
    """
    sizes = problem.sizes or ((problem.x.n, problem.y.n),)
    counts_x, counts_y = (tuple(min(count, size) for size in side) for side in zip(*sizes, strict=True))
    x = cluster_points(problem.x, problem.log_a, counts_x, choose_centers, average=average)
    y = cluster_points(problem.y, problem.log_b, counts_y, choose_centers, average=average)
    mass_x, mass_y = problem.log_mass_a.exp().to(x.weights), problem.log_mass_b.exp().to(y.weights)
    small = problem.with_spaces(
        _space_of_clusters(x, x.weights * mass_x[:, None], counts_x, numpy=problem.numpy),
        _space_of_clusters(y, y.weights * mass_y[:, None], counts_y, numpy=problem.numpy),
        None if problem.cost is None else _aggregated_cost(problem, x, y, average=average),
    )
    return AggregatedProblem(small, x, y)


def _space_of_clusters(clusters: Clusters, weights: Tensor, counts: tuple[int, ...], *, numpy: bool) -> Space:
    """Return the B spaces whose points are the clusters, of given weights (B, k); counts: clusters of each item."""
    return Space(DenseMetric(clusters.cluster_distances), weights, None, None, counts, numpy)


def _aggregated_cost(problem: UGW, x: Clusters, y: Clusters, *, average: bool) -> Tensor:
    """Return the linear cost (B, k, l) of clusters: weighted means over their points if `average`, else of centers."""
    cost = problem.cost.expand(problem.batch, -1, -1)
    if average:
        return x.weight_shares(problem.log_a).mT @ cost @ y.weight_shares(problem.log_b)
    rows = torch.take_along_dim(cost, x.centers[:, :, None], dim=1)
    return torch.take_along_dim(rows, y.centers[:, None, :], dim=2)
