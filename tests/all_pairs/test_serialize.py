"""Spaces as bytes: complete, without their batch, and with a digest of their own."""

import pickle

import numpy as np
import pytest
import torch

import ugw
from ugw.all_pairs.serialize import digest, portable_copy


def spaces_by_kind():
    """Return spaces with all kinds of metrics and arrays, by name."""
    points = np.random.default_rng(0).random((40, 2))
    lazy = ugw.Space.from_points(points, metric="sqeuclidean")
    _ = lazy.metric.squared_norms  # a cached property
    dense = ugw.Space.from_points(points, features=points[:, :1])
    batch = ugw.Space.stack([dense] * 50)
    graph = torch.rand(40, 2, requires_grad=True)
    return {
        "dense": dense,
        "lazy": lazy,
        "low rank": dense.compressed(tol=0.3),
        "float32": dense.to(torch.float32),
        "view": batch[7],
        "gradient": ugw.Space.from_points(graph),
    }


@pytest.mark.parametrize("name", spaces_by_kind())
def test_a_serialized_space_is_complete_and_holds_nothing_else(name):
    space = spaces_by_kind()[name]
    data = pickle.dumps(portable_copy(space))
    assert len(data) < 8 * 40 * (40 + 30) + 4000  # a view does not contain its batch
    back = pickle.loads(data)
    assert type(back.metric) is type(space.metric)
    assert back.dtype == space.dtype
    assert back.numpy == space.numpy
    assert torch.equal(back.metric.dense(), space.metric.dense().detach())
    assert torch.equal(back.weight_tensor, space.weight_tensor)
    assert digest(back) == digest(space)


def test_different_spaces_have_different_digests():
    points = np.random.default_rng(0).random((6, 2))
    weights = np.full(6, 1 / 6)
    other, heavier = points.copy(), weights.copy()
    other[3, 1] += 1e-15
    heavier[0] += 1e-15
    spaces = [
        ugw.Space.from_points(points),
        ugw.Space.from_points(other),
        ugw.Space.from_points(points, weights=heavier),
        ugw.Space.from_points(points, features=points),
        ugw.Space.from_points(points, metric="sqeuclidean"),
        ugw.Space.from_points(points).to(torch.float32),
        ugw.Space.from_points(points).scaled("max"),
    ]
    assert len({digest(space) for space in spaces}) == len(spaces)
    assert digest(ugw.Space.from_points(points, weights=weights)) == digest(spaces[0])
