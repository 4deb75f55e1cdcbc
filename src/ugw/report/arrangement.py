"""Arrangement of two spaces in one 3-D picture: aligned by the matches, at one scale if possible, without overlap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array

from ..plots.drawing import aligning_rotation
from .config import REPORT_CONFIG
from .matches import MatchPairs


@dataclass(frozen=True, eq=False)
class SceneTransform:
    """The map of the points (n, 1 to 3) of a space into the 3-D picture: p ↦ scale·(p − center)·rotation + shift."""

    dim: int  # dimension to which points are padded before the rotation, 2 or 3
    center: np.ndarray  # (dim,)
    rotation: np.ndarray  # (dim, dim), orthogonal
    scale: float
    shift: np.ndarray  # (3,)

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """Return positions (n, 3) in the 3-D picture, scale·(p − center)·rotation + shift, of points p (n, 1 to 3)."""
        rotated = self.scale * (pad_dimensions(points, self.dim) - self.center) @ self.rotation
        return np.pad(rotated, ((0, 0), (0, 3 - self.dim))) + self.shift


def pad_dimensions(points: np.ndarray, dim: int) -> np.ndarray:
    """Return points (n, d), d = 1 to 3, padded with zeros to (n, max(d, dim)), dim = 2 or 3.

    For dim = 3 a plane becomes vertical, (a, b) → (a, 0, b), and a line horizontal.
    """
    n, d = points.shape
    if d >= dim:
        return points
    padded = np.zeros((n, dim))
    padded[:, [0, dim - 1][:d]] = points
    return padded


@dataclass(frozen=True, eq=False)
class Arrangement:
    """The maps of both spaces into the 3-D picture that shows both.

    is_flat: the spaces are in two parallel planes; is_stacked: the first is above the second, else to its left;
    has_one_scale: both have the same scale.
    """

    transforms: tuple[SceneTransform, SceneTransform]
    is_flat: bool
    is_stacked: bool
    has_one_scale: bool


def arrange(x: np.ndarray, y: np.ndarray, pairs: MatchPairs) -> Arrangement:
    """Return the maps of points x (n, 1 to 3) and y (m, 1 to 3) into one 3-D picture, with flags about its layout.

    Flags: `is_flat`, two parallel planes; `is_stacked`, x above y, else to its left; `has_one_scale`, for both.
    pairs: matched points with plan entries; y is rotated so that they are close. Two flat spaces are drawn in two
    parallel planes. Otherwise both face the viewer with their wide side, above or beside each other, whichever leaves
    more room.

    >>> point, no_pairs = np.zeros((1, 2)), MatchPairs(np.zeros(0, int), np.zeros(0, int), np.zeros(0), 0)
    >>> above, below = arrange(point, point, no_pairs).transforms
    >>> bool(above(point)[0, 2] > below(point)[0, 2])
    True
    """
    dim = 2 if max(x.shape[1], y.shape[1]) <= 2 else 3
    clouds = [pad_dimensions(x, dim), pad_dimensions(y, dim)]
    rotations = [np.eye(2) if dim == 2 else facing_rotation(clouds[0])]
    plan = coo_array((pairs.mass, (pairs.i, pairs.j)), shape=(len(x), len(y)))
    rotations += [aligning_rotation(plan, clouds[0] @ rotations[0], clouds[1], allow_reflection=dim == 2)]
    rotated = [cloud @ rotation for cloud, rotation in zip(clouds, rotations, strict=True)]
    sizes = [float(np.ptp(cloud, axis=0).max()) for cloud in rotated]
    has_one_scale = 0 < max(sizes) <= REPORT_CONFIG.max_common_scale_ratio * min(sizes)
    scales = [1 / max(sizes)] * 2 if has_one_scale else [1 / size if size > 0 else 1.0 for size in sizes]
    boxes = np.stack([scale * np.ptp(cloud, axis=0) for scale, cloud in zip(scales, rotated, strict=True)])
    is_stacked, offset = (True, np.array([0.0, 0.0, REPORT_CONFIG.plane_gap])) if dim == 2 else _solid_offset(boxes)
    transforms = []
    for sign, cloud, rotation, scale in zip((0.5, -0.5), rotated, rotations, scales, strict=True):
        center = (cloud.max(axis=0) + cloud.min(axis=0)) / 2 @ rotation.T
        transforms.append(SceneTransform(dim, center, rotation, scale, sign * offset))
    return Arrangement((transforms[0], transforms[1]), dim == 2, is_stacked, has_one_scale)


def _solid_offset(boxes: np.ndarray) -> tuple[bool, np.ndarray]:
    """Return whether the first solid is above the second, and the vector (3,) from the second to the first.

    boxes: (2, 3), widths, depths and heights of both. They are stacked if both can then be drawn larger.
    """
    width, _, height = boxes.max(axis=0)
    total_width, _, total_height = boxes.sum(axis=0) + REPORT_CONFIG.solid_gap
    if max(width / REPORT_CONFIG.scene_aspect, total_height) < max(total_width / REPORT_CONFIG.scene_aspect, height):
        return True, np.array([0.0, 0.0, boxes[:, 2].mean() + REPORT_CONFIG.solid_gap])
    return False, np.array([-boxes[:, 0].mean() - REPORT_CONFIG.solid_gap, 0.0, 0.0])


def facing_rotation(points: np.ndarray) -> np.ndarray:
    """Return R (3, 3), the rotation about the third axis for which points @ R (n, 3) vary most in the first axis."""
    horizontal = points[:, :2] - points[:, :2].mean(axis=0)
    _, _, axes = np.linalg.svd(horizontal, full_matrices=False) if len(points) > 1 else (None, None, np.eye(2))
    c, s = axes[0] if axes[0][0] >= 0 else -axes[0]
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
