"""Clusters of points, and the problem between them."""

import numpy as np
import pytest
import torch

from ugw._utils.size_class import THRESHOLDS
from ugw.geometry.space import Space
from ugw.initializers import plans as init
from ugw.initializers.aggregation import aggregate
from ugw.initializers.centers import farthest_centers, quantile_centers
from ugw.initializers.clusters import cluster_points
from ugw.problems.build import build_ugw


def arrays(n=6, d=2, seed=0):
    rng = np.random.default_rng(seed)
    weights = rng.random(n) + 0.2
    return rng.random((n, d)), weights / weights.sum()


def space(n=6, d=2, seed=0):
    points, weights = arrays(n, d, seed)
    return Space.from_points(points, weights=weights)


def make_problem(x, y):
    return build_ugw(x, y, rho=1.0, eps=0.05, fused=None)


def test_representatives_are_far_apart_and_carry_all_weight():
    x = space(200, 2, 0)
    problem = make_problem(x, space(5))
    clusters = cluster_points(x, problem.log_a, (min(x.n, THRESHOLDS.n_coarse_clusters),), farthest_centers)
    index, columns, weights = clusters.centers, clusters.distances, clusters.weights
    k = THRESHOLDS.n_coarse_clusters
    assert index.shape == weights.shape == (1, k)
    assert columns.shape == (1, 200, k)
    assert index.unique().numel() == k
    assert weights.sum().item() == pytest.approx(1.0)
    d = x.metric.dense()
    torch.testing.assert_close(columns[0], d[:, index[0]])
    # Every point is closer to its representative than the representatives are to each other.
    among = d[index[0]][:, index[0]] + torch.eye(k) * 1e3
    assert columns[0].amin(1).amax() <= among.amin() + 1e-12


def test_few_points_are_all_representatives():
    x = space(9, 2, 0)
    problem = make_problem(x, space(5))
    clusters = cluster_points(x, problem.log_a, (min(x.n, THRESHOLDS.n_coarse_clusters),), farthest_centers)
    index, weights = clusters.centers, clusters.weights
    assert clusters.is_exact.all()
    assert sorted(index[0].tolist()) == list(range(9))
    torch.testing.assert_close(weights[0], problem.log_a.exp()[0, index[0]])


def test_points_without_weight_represent_nothing():
    points, weights = arrays(9, 2, 0)
    weights[[1, 4]] = 0.0
    x = Space.from_points(points, weights=weights)
    clusters = cluster_points(x, make_problem(x, space(5)).log_a, (9,), farthest_centers)
    index, weights = clusters.centers, clusters.weights
    used = index[0][weights[0] > 0]
    assert not {1, 4} & set(used.tolist())
    assert weights.sum().item() == pytest.approx(1.0)
    assert sorted(used.tolist()) == [0, 2, 3, 5, 6, 7, 8]


def test_the_local_cost_of_clusters_is_that_of_plans_constant_on_clusters():
    """Dx P Dy averaged over clusters, up to the squared distances, whose sums depend on rows or columns only."""
    x, y = space(60, 2, 0), space(50, 3, 1)
    problem = make_problem(x, y)
    level = aggregate(problem, 12, quantile_centers, average=True)
    plan = init.to_unit_mass(torch.rand(1, 12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    spread = level.x.weight_shares(problem.log_a)[0], level.y.weight_shares(problem.log_b)[0]
    for part in spread:
        torch.testing.assert_close(part.sum(0), torch.ones(12, dtype=torch.float64))
        assert ((part > 0).sum(1) == 1).all(), "a point is in one cluster"
    product = spread[0] @ plan[0] @ spread[1].mT
    across = x.metric.dense() @ product @ y.metric.dense()
    on_cells = level.problem.x.metric.matrix[0] @ plan[0] @ level.problem.y.metric.matrix[0]
    torch.testing.assert_close(on_cells, spread[0].mT @ across @ spread[1])
    torch.testing.assert_close(level.x.distances[0] @ plan[0] @ level.y.distances[0].mT, across)


def test_a_wide_cluster_is_chosen_once():
    """Outliers cause clusters of points far from each other; no point is the center of two clusters."""
    points = np.random.default_rng(0).standard_cauchy((300, 2))
    problem = make_problem(Space.from_points(points), space(5))
    level = aggregate(problem, 100, quantile_centers, average=True).problem
    few = cluster_points(level.x, level.log_a, (50,), farthest_centers)
    present = int((level.log_a > -torch.inf).sum())
    assert int((few.weights > 0).sum()) == min(50, present)


@pytest.mark.parametrize("choose_centers", [quantile_centers, farthest_centers])
def test_clusters_of_an_item_do_not_depend_on_its_padding(choose_centers):
    """Neither those of few points, each of which is a center, nor the sizes of the problem between them."""
    sizes = [(7, 50), (20, 9), (30, 31)]
    pairs = [(space(n, 2, i), space(m, 3, 10 + i)) for i, (n, m) in enumerate(sizes)]
    stack = make_problem(*(Space.stack(list(side)) for side in zip(*pairs, strict=True)))
    level = aggregate(stack, 20, choose_centers, average=True)
    assert level.problem.sizes == ((7, 20), (20, 9), (20, 20))
    for i, pair in enumerate(pairs):
        single = aggregate(make_problem(*pair), 20, choose_centers, average=True)
        for clusters, expected in ((level.x, single.x), (level.y, single.y)):
            k, n = expected.centers.shape[1], expected.labels.shape[1]
            assert clusters.centers[i, :k].tolist() == expected.centers[0].tolist()
            assert clusters.labels[i, :n].tolist() == expected.labels[0].tolist()
            torch.testing.assert_close(clusters.weights[i, :k], expected.weights[0])
            assert not clusters.weights[i, k:].any()
