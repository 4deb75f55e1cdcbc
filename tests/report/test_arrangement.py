"""Arrangement of two spaces in a report: proportions are kept, matches are aligned, nothing overlaps."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from ugw.plots.drawing import aligning_rotation
from ugw.report.arrangement import arrange, facing_rotation, pad_dimensions
from ugw.report.config import REPORT_CONFIG
from ugw.report.matches import MatchPairs


def cloud(n, d, seed=0, scale=(3.0, 1.0, 0.3)):
    return np.random.default_rng(seed).normal(size=(n, d)) * np.array(scale)[:d]


def identity_pairs(n):
    return MatchPairs(np.arange(n), np.arange(n), np.full(n, 1 / n), n)


def rotation(d, seed=0, sign=1):
    q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))
    q[:, 0] *= sign * np.sign(np.linalg.det(q))
    return q


@pytest.mark.parametrize(("dx", "dy"), [(1, 1), (1, 2), (2, 2), (2, 3), (3, 1), (3, 3)])
def test_distances_keep_their_proportions(dx, dy):
    x, y = cloud(20, dx), cloud(20, dy, seed=1)
    arrangement = arrange(x, y, identity_pairs(20))
    for points, frame in zip((x, y), arrangement.transforms, strict=True):
        positions = frame(points)
        assert np.allclose(cdist(positions, positions), frame.scale * cdist(points, points))
        assert np.allclose(
            (positions.max(axis=0) + positions.min(axis=0)) / 2, frame.shift
        )  # in the middle of its room
    assert arrangement.is_flat == (max(dx, dy) <= 2)


@pytest.mark.parametrize("d", [2, 3])
def test_a_rotated_copy_is_aligned_with_the_original(d):
    x = cloud(30, d)
    arrangement = arrange(x, x @ rotation(d) + 5, identity_pairs(30))
    first, second = arrangement.transforms
    difference = first(x) - second(x @ rotation(d) + 5)
    assert np.allclose(difference, difference[0])
    assert arrangement.has_one_scale


def test_planes_may_be_mirrored_and_solids_may_not():
    for d, mirrors, sign in ((2, True, -1), (3, False, 1)):
        x = cloud(30, d)
        rotated = aligning_rotation(np.eye(30) / 30, x, x @ rotation(d, sign=-1), allow_reflection=mirrors)
        assert np.linalg.det(rotated) == pytest.approx(sign)
        assert np.allclose(rotated @ rotated.T, np.eye(d))


def test_flat_spaces_lie_in_two_planes_the_first_above():
    x, y = cloud(20, 2), cloud(15, 2, seed=2)
    arrangement = arrange(x, y, identity_pairs(15))
    (upper,), (lower,) = (
        np.unique(frame(points)[:, 2]) for points, frame in zip((x, y), arrangement.transforms, strict=True)
    )
    assert upper > lower
    assert arrangement.is_stacked


@pytest.mark.parametrize(("shape", "stacked"), [((3.0, 1.0, 0.3), True), ((1.0, 1.0, 3.0), False)])
def test_solids_stand_apart_where_there_is_room(shape, stacked):
    x, y = cloud(40, 3, scale=shape), cloud(40, 3, seed=3, scale=shape)
    arrangement = arrange(x, y, identity_pairs(40))
    positions = [frame(points) for points, frame in zip((x, y), arrangement.transforms, strict=True)]
    assert arrangement.is_stacked == stacked
    if stacked:
        assert positions[0][:, 2].min() > positions[1][:, 2].max()
    else:
        assert positions[0][:, 0].max() < positions[1][:, 0].min()


def test_sizes_too_different_to_be_seen_at_one_scale_have_their_own():
    x = cloud(20, 2)
    for ratio, one in (
        (0.9 * REPORT_CONFIG.max_common_scale_ratio, True),
        (1.1 * REPORT_CONFIG.max_common_scale_ratio, False),
    ):
        arrangement = arrange(x, ratio * x, identity_pairs(20))
        assert arrangement.has_one_scale == one
        sizes = [
            np.ptp(frame(p)[:, :2], axis=0).max()
            for p, frame in zip((x, ratio * x), arrangement.transforms, strict=True)
        ]
        assert max(sizes) == pytest.approx(1)
        assert min(sizes) == pytest.approx(1 / ratio if one else 1)


def test_solids_face_the_viewer_with_their_wide_side():
    x = cloud(200, 3, scale=(0.3, 3.0, 1.0))
    turned_x = x @ facing_rotation(x)
    assert np.allclose(turned_x[:, 2], x[:, 2])
    assert np.ptp(turned_x[:, 0]) > 3 * np.ptp(turned_x[:, 1])
    assert np.linalg.det(facing_rotation(x)) == pytest.approx(1)


def test_one_point_each_and_no_pairs():
    none = MatchPairs(np.zeros(0, int), np.zeros(0, int), np.zeros(0), 0)
    for d in (1, 2, 3):
        arrangement = arrange(np.ones((1, d)), np.ones((1, d)), none)
        first, second = (frame(np.ones((1, d)))[0] for frame in arrangement.transforms)
        assert np.isfinite([first, second]).all()
        assert np.linalg.norm(first - second) > 0.3


def test_planes_stand_upright_beside_solids():
    assert pad_dimensions(np.array([[1.0, 2.0]]), 3).tolist() == [[1.0, 0.0, 2.0]]
    assert pad_dimensions(np.array([[1.0]]), 2).tolist() == [[1.0, 0.0]]
