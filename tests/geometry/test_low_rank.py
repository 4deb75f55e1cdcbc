"""Low-rank metrics against the same metrics with all entries stored."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

import ugw
from ugw.geometry.low_rank import LowRankMetric


def random_metric(batch=(), signs=(1.0, 1.0, -1.0), n=9, seed=0, dtype=torch.float64):
    """A low-rank metric of random points with these signs."""
    points = torch.tensor(np.random.default_rng(seed).normal(size=(*batch, n, len(signs))), dtype=dtype)
    return LowRankMetric(points, torch.tensor(signs, dtype=dtype))


def entries(m):
    """All entries of a low-rank metric by its definition."""
    difference = m.points[..., :, None, :] - m.points[..., None, :, :]
    return (difference.square() * m.signs).sum(-1)


@pytest.mark.parametrize("batch", [(), (4,)])
def test_products_entries_and_changes_equal_those_of_the_stored_matrix(batch):
    m = random_metric(batch)
    d = entries(m)
    v = torch.tensor(np.random.default_rng(1).normal(size=(*batch, 9, 3)))
    torch.testing.assert_close(m.dense(), d)
    torch.testing.assert_close(m.apply(v), d @ v)
    torch.testing.assert_close(m.apply_squared(v), d.square() @ v)
    torch.testing.assert_close(m.columns(torch.tensor([2, 5])), d[..., [2, 5]])
    left, right = m.factors()
    torch.testing.assert_close(left @ right.mT, d)
    low, high = m.extremes()
    torch.testing.assert_close(torch.stack([low, high]), torch.stack([d.amin((-2, -1)), d.amax((-2, -1))]))
    torch.testing.assert_close(m.scale(3.0).dense(), 3.0 * d)
    weights = torch.rand(*batch, 9, dtype=torch.float64)
    centered = m.center(weights)
    torch.testing.assert_close(centered.dense(), d)
    middle = (weights[..., None] * centered.points).sum(-2)
    torch.testing.assert_close(middle, torch.zeros_like(middle), atol=1e-14, rtol=0.0)


def test_a_shared_metric_applies_to_any_leading_dimensions():
    m = random_metric()
    v = torch.rand(5, 2, 9, 4, dtype=torch.float64)
    torch.testing.assert_close(m.apply(v), entries(m) @ v)
    torch.testing.assert_close(m.apply_squared(v), entries(m).square() @ v)


def test_columns_and_subsets_with_one_index_per_item():
    m = random_metric((2,))
    index = torch.tensor([[0, 3], [7, 1]])
    expected = torch.stack([entries(m)[b][:, index[b]] for b in range(2)])
    torch.testing.assert_close(m.columns(index), expected)
    torch.testing.assert_close(
        m.subset(index).dense(), torch.stack([entries(m)[b][index[b]][:, index[b]] for b in (0, 1)])
    )


def test_squared_euclidean_distances_are_low_rank_and_keep_small_distances():
    points = np.random.default_rng(0).random((30, 3)) * 1e-4 + 1e3
    x = ugw.Space.from_points(points, metric="sqeuclidean")
    assert isinstance(x.metric, LowRankMetric)
    np.testing.assert_allclose(x.metric.dense(), cdist(points, points, "sqeuclidean"), rtol=1e-6)


def test_gradients_reach_the_points():
    points = torch.rand(6, 2, dtype=torch.float64, requires_grad=True)
    x = ugw.Space.from_points(points, metric="sqeuclidean")
    v = torch.rand(6, 1, dtype=torch.float64)
    (got,) = torch.autograd.grad(x.metric.apply(v).square().sum(), points)
    (expected,) = torch.autograd.grad((torch.cdist(points, points).square() @ v).square().sum(), points)
    torch.testing.assert_close(got, expected)


def test_stacked_low_rank_spaces_are_low_rank():
    rng = np.random.default_rng(0)
    spaces = [ugw.Space.from_points(rng.random((n, 2)), metric="sqeuclidean") for n in (4, 7)]
    batch = ugw.Space.stack(spaces)
    assert isinstance(batch.metric, LowRankMetric)
    for item, space in zip(batch, spaces, strict=True):
        torch.testing.assert_close(item.metric.dense(), space.metric.dense())
    assert batch.scaled().metric.extremes()[1].tolist() == pytest.approx([1.0, 1.0])
