"""Synthetic points with class labels, by seed: imbalanced mixtures, and two moons with outliers."""

from __future__ import annotations

import math
from numbers import Real

import numpy as np

from .._utils.checks import check_whole_number, describe_value
from ..errors import InputError
from .config import SHAPE_CONFIG
from .labeled import Labeled


def imbalanced_mixtures(n: int = 300, *, share: float = 0.3, seed: int = 0) -> tuple[Labeled, Labeled]:
    """Return two point sets with labels, mixtures of the same two classes in different dimensions and proportions.

    The source, in R³, is half ellipsoid and half ball. The target, in R², is an ellipse that has the fraction
    `share` of its n points and a square that has the rest. Points are uniform in each shape. Proportions are
    numbers of points, all of weight 1/n. Class 0 is the long shape on both sides.

    >>> source, target = imbalanced_mixtures(n=200, share=0.7)
    >>> source.points.shape, target.points.shape
    ((200, 3), (200, 2))
    """
    n = check_whole_number("n", n, minimum=4)  # two points per class
    if not isinstance(share, Real) or not 0 < float(share) < 1:
        raise InputError(f"share must be a number between 0 and 1, got {describe_value(share)}")
    share = float(share)
    seed = check_whole_number("seed", seed, minimum=0)
    rng = np.random.default_rng(seed)
    half, n_ellipse = n // 2, min(max(round(share * n), 1), n - 1)
    offset, short = np.array([SHAPE_CONFIG.class_distance, 0.0, 0.0]), SHAPE_CONFIG.short_semi_axis
    source = [
        _sample_ellipsoid(rng, half, (short, SHAPE_CONFIG.long_semi_axis, short)),
        _sample_ellipsoid(rng, n - half, (SHAPE_CONFIG.ball_radius,) * 3) + offset,
    ]
    target = [
        _sample_ellipsoid(rng, n_ellipse, (SHAPE_CONFIG.short_semi_axis, SHAPE_CONFIG.long_semi_axis)),
        rng.uniform(-SHAPE_CONFIG.square_side / 2, SHAPE_CONFIG.square_side / 2, size=(n - n_ellipse, 2)) + offset[:2],
    ]
    return _label_clouds(source, ("ellipsoid", "ball")), _label_clouds(target, ("ellipse", "square"))


def two_moons(n: int = 200, *, outliers: int = 0, noise: float = 0.05, seed: int = 0) -> Labeled:
    """Return n labeled points of R² on two interleaved half circles of radius 1 with noise, and `outliers` more.

    Classes 0 and 1 are the moons, of n // 2 and n − n // 2 points; class 2 are the outliers, a tight cluster beside
    them. noise: standard deviation of each coordinate of the moons' points.

    >>> two_moons(n=100, outliers=10).counts
    {'upper': 50, 'lower': 50, 'outliers': 10}
    """
    n, outliers, seed = (
        check_whole_number(name, value, minimum=minimum)
        for name, value, minimum in (("n", n, 2), ("outliers", outliers, 0), ("seed", seed, 0))
    )
    if not isinstance(noise, Real) or not 0 <= float(noise) < math.inf:
        raise InputError(f"noise must be a finite number ≥ 0, got {describe_value(noise)}")
    noise = float(noise)
    rng = np.random.default_rng(seed)
    upper_angle, lower_angle = rng.uniform(0, np.pi, size=n // 2), rng.uniform(0, np.pi, size=n - n // 2)
    upper = np.stack([np.cos(upper_angle), np.sin(upper_angle)], axis=1)
    lower = np.stack([1 - np.cos(lower_angle), 0.5 - np.sin(lower_angle)], axis=1)
    moons = [moon + noise * rng.normal(size=moon.shape) for moon in (upper, lower)]
    if outliers:
        moons.append(np.array([2.6, 1.2]) + 0.1 * rng.normal(size=(outliers, 2)))
    return _label_clouds(moons, ("upper", "lower", "outliers")[: len(moons)])


def moons_with_outliers(n: int = 150, *, outliers: int = 20, seed: int = 0) -> tuple[Labeled, Labeled]:
    """Return two labeled point sets: n points of two moons, and n others of the moons rotated by 90° with outliers.

    Both are in the unit square. Source and target are different samples of the same shape, so their distances agree
    only approximately. A half turn exchanges the moons of a pair, so that a plan may match either moon of the source to
    either of the target. The outliers, class 2, are far from the moons.

    >>> source, target = moons_with_outliers(n=100, outliers=10)
    >>> source.counts, target.counts
    ({'upper': 50, 'lower': 50}, {'upper': 50, 'lower': 50, 'outliers': 10})
    """
    outliers = check_whole_number("outliers", outliers, minimum=1)
    seed = check_whole_number("seed", seed, minimum=0)
    source, rotated = two_moons(n, seed=seed), two_moons(n, seed=seed + 1)
    rng = np.random.default_rng([seed, outliers])
    cluster = np.clip(np.array([0.95, 0.05]) + 0.025 * rng.normal(size=(outliers, 2)), 0, 1)
    clouds = [
        SHAPE_CONFIG.moon_radius * (cloud - cloud.min(axis=0))
        for cloud in (source.points, rotated.points[:, ::-1] * [-1, 1])
    ]
    target = [clouds[1][rotated.labels == 0], clouds[1][rotated.labels == 1], cluster]
    scaled_source = Labeled(clouds[0], source.labels, source.names)
    return scaled_source, _label_clouds(target, ("upper", "lower", "outliers"))


def _sample_ellipsoid(rng: np.random.Generator, n: int, axes: tuple[float, ...]) -> np.ndarray:
    """Return n uniform random points (n, d) of the solid ellipsoid around 0 with the semi-axes `axes`, d numbers."""
    direction = rng.normal(size=(n, len(axes)))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    radius = rng.uniform(size=(n, 1)) ** (1 / len(axes))  # the volume within radius r is proportional to r^d
    return radius * direction * np.asarray(axes)


def _label_clouds(clouds: list[np.ndarray], names: tuple[str, ...]) -> Labeled:
    """Return the points of several clouds, (n_k, d) each, as one labeled set; those of clouds[k] have class k."""
    labels = np.repeat(np.arange(len(clouds)), [len(cloud) for cloud in clouds])
    return Labeled(points=np.concatenate(clouds), labels=labels, names=names)
