"""Distances between points against SciPy."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from ugw.errors import InputError
from ugw.geometry.point_distances import DIFFERENTIABLE_METRICS, cross_distances, point_distances


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cityblock", "chebyshev", "cosine", "canberra"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_point_distances_equal_scipy(metric, dtype):
    points = torch.randn(2, 20, 3, generator=torch.Generator().manual_seed(1), dtype=dtype)
    distances = point_distances(points, metric)
    assert distances.dtype == dtype
    assert torch.equal(distances, distances.mT)
    assert torch.equal(torch.diagonal(distances, dim1=-2, dim2=-1), torch.zeros(2, 20, dtype=dtype))
    for ours, item in zip(distances, points, strict=True):
        tolerance = 1e-14 if dtype == torch.float64 else 2e-6
        np.testing.assert_allclose(ours, cdist(item, item, metric), rtol=tolerance, atol=tolerance)


def test_small_distances_far_from_the_origin_keep_their_digits():
    points = torch.tensor([[1e6, 0.0], [1e6 + 1e-3, 0.0]], dtype=torch.float64)
    exact = points[1, 0] - points[0, 0]
    assert point_distances(points, "euclidean")[0, 1] == exact
    assert point_distances(points, "sqeuclidean")[0, 1] == exact**2


@pytest.mark.parametrize("metric", DIFFERENTIABLE_METRICS)
def test_gradients_are_right_and_finite_at_coincident_points(metric):
    points = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    off_diagonal = ~torch.eye(4, dtype=torch.bool)  # the diagonal is zero and stays so
    assert torch.autograd.gradcheck(lambda p: point_distances(p, metric)[off_diagonal], (points,))
    coincident = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]], requires_grad=True)
    point_distances(coincident, metric).sum().backward()
    assert torch.isfinite(coincident.grad).all()


@pytest.mark.parametrize("metric", ["no such metric", None, 3, ""])
def test_unknown_metrics_are_refused(metric):
    with pytest.raises(InputError, match="metric must be euclidean, sqeuclidean or a name"):
        point_distances(torch.zeros(3, 2), metric)


def test_distances_that_overflow_or_are_undefined_are_refused():
    with pytest.raises(InputError, match="euclidean distances between the points must be finite, got inf"):
        point_distances(torch.tensor([[0.0], [1e30]]), "euclidean")
    with pytest.raises(InputError, match="cosine distances between the points must be finite, got nan"):
        point_distances(torch.tensor([[0.0, 0.0], [1.0, 0.0]]), "cosine")


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cityblock"])
def test_cross_distances_equal_scipy(metric):
    x, y = (torch.randn(n, 3, generator=torch.Generator().manual_seed(n), dtype=torch.float64) for n in (5, 8))
    np.testing.assert_allclose(cross_distances(x, y, metric), cdist(x, y, metric), rtol=1e-14)
    with pytest.raises(InputError, match=r"metric must be .*got 'nonsense'"):
        cross_distances(x, y, "nonsense")
