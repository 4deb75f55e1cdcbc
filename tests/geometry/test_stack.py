"""Spaces of different sizes as one batch: padding, items, and what cannot be stacked."""

import numpy as np
import pytest
import torch

from oracles.spaces import cloud
from ugw.errors import InputError
from ugw.geometry.space import Space


def spaces_of_different_sizes():
    """Spaces of 4, 7 and 1 points with weights and features."""
    return [
        Space.from_points(cloud(n, seed=n), weights=np.arange(1.0, n + 1), features=cloud(n, 2, seed=n))
        for n in (4, 7, 1)
    ]


def are_equal(left, right):
    """Whether two spaces have equal metrics, weights, features and points."""
    pairs = [
        (getattr(left, name), getattr(right, name)) for name in ("weight_tensor", "feature_tensor", "point_tensor")
    ]
    pairs.append((left.metric.dense(), right.metric.dense()))
    return all((a is None and b is None) or torch.equal(a, b) for a, b in pairs)


def test_stack_and_index_are_inverse():
    parts = spaces_of_different_sizes()
    batch = Space.stack(parts)
    assert (batch.n, batch.sizes, batch.numpy) == (7, (4, 7, 1), True)
    assert all(are_equal(item, part) for item, part in zip(batch, parts, strict=True))
    assert are_equal(batch[-1], parts[-1])
    assert batch[0].sizes is None
    assert batch[0].numpy


def test_padding_has_no_weight_no_distance_and_no_coordinates():
    batch = Space.stack(spaces_of_different_sizes())
    for i, n in enumerate(batch.sizes):
        assert not batch.weights[i, n:].any()
        assert not batch.metric.dense()[i, n:].any()
        assert not batch.metric.dense()[i, :, n:].any()
        assert not batch.points[i, n:].any()
        assert not batch.features[i, n:].any()
    assert batch.mass.tolist() == [10.0, 28.0, 1.0]


@pytest.mark.parametrize("index", [torch.tensor([2, 0]), torch.tensor([True, False, True])])
def test_take_keeps_the_padding(index):
    batch = Space.stack(spaces_of_different_sizes())
    some = batch.take(index)
    order = index.tolist() if index.dtype != torch.bool else [0, 2]
    assert some.sizes == tuple(batch.sizes[i] for i in order)
    assert some.n == 7
    assert all(are_equal(some[j], batch[i]) for j, i in enumerate(order))
    alone = batch[0]
    assert alone.select_items(index) is alone  # one space is shared by all items


def test_points_are_dropped_where_not_all_have_them_in_one_dimension():
    flat, solid, none = (
        Space.from_points(cloud(d=2)),
        Space.from_points(cloud()),
        Space.from_distances(np.ones((6, 6)) - np.eye(6)),
    )
    assert Space.stack([flat, solid]).points is None
    assert Space.stack([solid, none]).points is None
    assert Space.stack([solid, solid]).points is not None


def test_stack_refusals():
    plain = Space.from_points(cloud())
    with pytest.raises(InputError, match="at least one space, got none"):
        Space.stack([])
    for value in (None, 3, np.array(1.0), plain, Space.stack([plain, plain])):
        with pytest.raises(InputError, match=f"must be given a list of spaces, got {type(value).__name__}"):
            Space.stack(value)
    with pytest.raises(InputError, match=r"item 1 must be a Space, got ndarray; Space.from_points makes one"):
        Space.stack([plain, cloud()])
    with pytest.raises(InputError, match="item 0 must be one space, got a batch of 2"):
        Space.stack([Space.stack([plain, plain])])
    with pytest.raises(InputError, match="dtypes float32, float64"):
        Space.stack([plain, plain.to(torch.float32)])
    with pytest.raises(InputError, match="devices cpu, meta"):
        Space.stack([plain, plain.to("meta")])
    with pytest.raises(InputError, match="widths of features 2, none"):
        Space.stack([plain, Space.from_points(cloud(), features=cloud(d=2))])
    with pytest.raises(InputError, match="widths of features 2, 3"):
        Space.stack([Space.from_points(cloud(), features=cloud(d=d)) for d in (2, 3)])
