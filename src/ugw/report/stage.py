"""Two drawn spaces in one scene: turned to lie alike, at one scale where that can be seen, and apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .matches import Pairs

ONE_SCALE = 3.0  # the larger over the smaller, up to which both are drawn at one scale
GAP = 0.35  # between the two, in units of the larger
DEPTH = 0.75  # between the two planes, in the same units
WINDOW = 1.5  # its width over its height, as most are


@dataclass(frozen=True, eq=False)
class Frame:
    """Where points (n, 1 to 3) go in the scene: p ↦ scale·(p − middle)·turn + shift, in R³."""

    width: int  # of the points once they are padded
    middle: np.ndarray  # (width,)
    turn: np.ndarray  # (width, width), orthogonal
    scale: float
    shift: np.ndarray  # (3,)

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """Points (n, 1 to 3) in the scene, (n, 3)."""
        moved = self.scale * (padded(points, self.width) - self.middle) @ self.turn
        return np.pad(moved, ((0, 0), (0, 3 - self.width))) + self.shift


def padded(points: np.ndarray, width: int) -> np.ndarray:
    """Points (n, 1 to 3) in R² or R³: a plane beside a solid stands upright, a line lies."""
    n, d = points.shape
    if d >= width:
        return points
    flat = np.zeros((n, width))
    flat[:, [0, width - 1][:d]] = points
    return flat


@dataclass(frozen=True, eq=False)
class Stage:
    """Both spaces in the scene. flat: in two planes; stacked: the first above the second, else to its left."""

    frames: tuple[Frame, Frame]
    flat: bool
    stacked: bool
    one_scale: bool


def frames(x: np.ndarray, y: np.ndarray, pairs: Pairs) -> Stage:
    """How to draw x (n, 1 to 3) and y (m, 1 to 3). pairs: what the plan joins.

    What is flat on both sides lies in two planes; the rest faces the viewer with its wide side, above or beside each
    other, whichever leaves more room.

    >>> point, nothing = np.zeros((1, 2)), Pairs(np.zeros(0, int), np.zeros(0, int), np.zeros(0), 0)
    >>> above, below = frames(point, point, nothing).frames
    >>> bool(above(point)[0, 2] > below(point)[0, 2])
    True
    """
    width = 2 if max(x.shape[1], y.shape[1]) <= 2 else 3
    clouds = [padded(x, width), padded(y, width)]
    turns = [np.eye(2) if width == 2 else facing(clouds[0])]
    turns += [turned(clouds[0] @ turns[0], clouds[1], pairs, mirrors=width == 2)]
    seen = [cloud @ turn for cloud, turn in zip(clouds, turns, strict=True)]
    sizes = [float(np.ptp(cloud, axis=0).max()) for cloud in seen]
    one = 0 < max(sizes) <= ONE_SCALE * min(sizes)
    scales = [1 / max(sizes)] * 2 if one else [1 / size if size > 0 else 1.0 for size in sizes]
    boxes = np.stack([scale * np.ptp(cloud, axis=0) for scale, cloud in zip(scales, seen, strict=True)])
    stacked, apart = (True, np.array([0.0, 0.0, DEPTH])) if width == 2 else _apart(boxes)
    made = []
    for sign, cloud, turn, scale in zip((0.5, -0.5), seen, turns, scales, strict=True):
        middle = (cloud.max(axis=0) + cloud.min(axis=0)) / 2 @ turn.T
        made.append(Frame(width, middle, turn, scale, sign * apart))
    return Stage((made[0], made[1]), width == 2, stacked, one)


def _apart(boxes: np.ndarray) -> tuple[bool, np.ndarray]:
    """Whether one solid stands above the other, and from the second to the first. boxes: (2, 3), their sizes."""
    wide, _, high = boxes.max(axis=0)
    sum_wide, _, sum_high = boxes.sum(axis=0) + GAP
    if max(wide / WINDOW, sum_high) < max(sum_wide / WINDOW, high):
        return True, np.array([0.0, 0.0, boxes[:, 2].mean() + GAP])
    return False, np.array([-boxes[:, 0].mean() - GAP, 0.0, 0.0])


def facing(points: np.ndarray) -> np.ndarray:
    """The rotation (3, 3) about the vertical after which points (n, 3) are wide from left to right."""
    level = points[:, :2] - points[:, :2].mean(axis=0)
    _, _, axes = np.linalg.svd(level, full_matrices=False) if len(points) > 1 else (None, None, np.eye(2))
    c, s = axes[0] if axes[0][0] >= 0 else -axes[0]
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def turned(x: np.ndarray, y: np.ndarray, pairs: Pairs, *, mirrors: bool) -> np.ndarray:
    """The turn (d, d) that lays what is joined alike: orthogonal, and a rotation unless it `mirrors`."""
    if not pairs.mass.sum() > 0:
        return np.eye(y.shape[1])
    law = pairs.mass[:, None] / pairs.mass.sum()
    from_x, from_y = (ends - (law * ends).sum(axis=0) for ends in (x[pairs.i], y[pairs.j]))
    left, _, right = np.linalg.svd((law * from_y).T @ from_x)
    if not mirrors and np.linalg.det(left @ right) < 0:
        left[:, -1] *= -1  # the direction that matters least
    return left @ right
