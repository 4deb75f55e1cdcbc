"""Classical and landmark MDS recover Euclidean points up to an isometry."""

import pytest
import torch

from ugw._utils.config import UTILS_CONFIG
from ugw.geometry.compression import PointDistances
from ugw.geometry.mds import classical_mds, double_center, landmark_mds
from ugw.geometry.metric import DenseMetric


def cloud(n, dim, seed=0):
    """Random points (n, dim), widest along the first axis."""
    points = torch.randn(n, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return points * torch.arange(dim, 0, -1)


def test_double_centering_is_a_product_with_the_centering_matrix():
    matrix = torch.cdist(cloud(7, 2), cloud(7, 2))
    centering = torch.eye(7, dtype=torch.float64) - 1 / 7
    torch.testing.assert_close(double_center(matrix), -0.5 * centering @ matrix @ centering)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_euclidean_points_are_recovered_up_to_an_isometry(dim):
    points = cloud(20, dim)
    coordinates = classical_mds(torch.cdist(points, points), dim)
    torch.testing.assert_close(torch.cdist(coordinates, coordinates), torch.cdist(points, points))
    torch.testing.assert_close(coordinates.mean(0), torch.zeros(dim, dtype=torch.float64))
    # Orthogonal Procrustes: the best rotation or reflection of the found points leaves no residual.
    centered = points - points.mean(0)
    u, _, v = torch.linalg.svd(coordinates.mT @ centered)
    torch.testing.assert_close(coordinates @ (u @ v), centered)


def test_coordinates_are_sorted_by_variance_and_missing_ones_are_zero():
    points = cloud(15, 2)
    coordinates = classical_mds(torch.cdist(points, points), 3)
    assert coordinates.var(0).argsort(descending=True).tolist() == [0, 1, 2]
    assert float(coordinates[:, 2].abs().max()) < 1e-6
    assert classical_mds(torch.zeros(2, 2), 4).tolist() == [[0.0] * 4] * 2


@pytest.mark.parametrize("count", [4, 9, 25])
def test_landmarks_determine_the_coordinates_of_all_other_points(count):
    points = cloud(25, 3)
    metric = DenseMetric(torch.cdist(points, points))
    order = torch.randperm(25, generator=torch.Generator().manual_seed(0))[:count]
    coordinates = landmark_mds(metric, order, 3)
    torch.testing.assert_close(torch.cdist(coordinates, coordinates), metric.matrix)


def test_many_points_are_placed_in_blocks():
    points = cloud(2 * UTILS_CONFIG.max_block_entries // 99, 3)
    coordinates = landmark_mds(PointDistances(points, "euclidean"), torch.arange(100), 3)[::999]
    torch.testing.assert_close(torch.cdist(coordinates, coordinates), torch.cdist(points[::999], points[::999]))


def test_similarities_and_coincident_points_have_finite_places():
    for matrix in (-torch.eye(5), torch.zeros(5, 5)):
        for count in (2, 5):
            assert torch.isfinite(landmark_mds(DenseMetric(matrix), torch.arange(count), 3)).all()
