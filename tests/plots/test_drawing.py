"""Coordinates at which spaces are drawn."""

import numpy as np

import ugw
from oracles.errors import assert_refused
from oracles.spaces import cloud, pair
from ugw.plots.drawing import mds_coordinates, principal_coordinates


def test_mds_reproduces_the_distances_of_plane_points():
    x = cloud(12, 2)
    far = np.linalg.norm(x[:, None] - x, axis=2)
    back = mds_coordinates(far)
    assert np.allclose(np.linalg.norm(back[:, None] - back, axis=2), far)
    for n in (1, 2, 3):  # where there is nothing to unfold
        assert mds_coordinates(np.zeros((n, n))).shape == (n, 2)
        assert mds_coordinates(np.zeros((n, n)), 3).shape == (n, 3)
    assert principal_coordinates(cloud(1, 7)).shape == (1, 2)
    solid = cloud(9, 3)
    far = np.linalg.norm(solid[:, None] - solid, axis=2)
    for back in (mds_coordinates(far, 3), principal_coordinates(solid, 3)):
        assert np.allclose(np.linalg.norm(back[:, None] - back, axis=2), far)
        assert (np.diff(back.var(axis=0)) < 0).all()  # the widest first


def test_results_without_a_plan_are_named():
    x, y = pair(5, 4, dims=(2, 2))
    for result in (ugw.debiased(x, y), ugw.tightness(x, y), ugw.debiased(ugw.Space.stack([x, x]), y)):
        for draw in (ugw.plots.plan, lambda r: ugw.plots.matching(r, x, y), lambda r: ugw.plots.align_points(r, x, y)):
            assert_refused(draw, result, match=f"the plan must be an array of numbers, got {type(result).__name__}")
