"""Points with class labels, graphs and meshes, synthetic or measured: the data of the demo, the examples, the tests."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real

import numpy as np

from .._utils.checks import check_whole_number
from ..errors import InputError
from ..geometry.mesh import Mesh
from ..geometry.space import Space
from . import camel_meshes as _camels
from . import coassays, office
from .graph_data import (
    LabeledGraph,
    communities_with_outliers,
    graph_families,
    planar_graphs,
)

__all__ = [
    "Domain",
    "Labeled",
    "LabeledGraph",
    "Mesh",
    "camels",
    "communities_with_outliers",
    "graph_families",
    "imbalanced_mixtures",
    "moons_with_outliers",
    "office_caltech10",
    "planar_graphs",
    "scgem",
    "snareseq",
    "two_moons",
]

# Lengths of the imbalanced mixtures. The long shape stands upright beside the round one, and the gap between
# them is wider than either is thick: a plan that mixes the classes must stretch or shrink that gap.
_LONG, _THICK = 0.55, 0.13  # semi-axes of the ellipsoid and the ellipse
_RADIUS = 0.22  # of the ball
_SIDE = 0.43  # of the square: its mean distance is that of the ball
_GAP = 0.95  # between the centers of the two classes
_SMALL = 0.25  # radius of the moons that share the unit square with outliers


@dataclass(frozen=True, eq=False)
class Labeled:
    """Points with a class each. points: (n, d); labels: (n,) integers into `names`.

    >>> source, target = imbalanced_mixtures(n=100, share=0.3)
    >>> target.counts
    {'ellipse': 30, 'square': 70}
    """

    points: np.ndarray
    labels: np.ndarray
    names: tuple[str, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many points each class has."""
        sizes = np.bincount(self.labels, minlength=len(self.names))
        return dict(zip(self.names, sizes.tolist(), strict=True))

    def space(self) -> Space:
        """The points with Euclidean distances and weights 1/n."""
        return Space.from_points(self.points)


@dataclass(frozen=True, eq=False)
class Domain(Labeled):
    """Images of a domain: features `points` (n, d), classes, and `reduced` (n, k), the paper's few coordinates.

    >>> cloud = two_moons(n=4)
    >>> Domain(cloud.points, cloud.labels, cloud.names, reduced=cloud.points[:, :1]).reduced.shape
    (4, 1)
    """

    reduced: np.ndarray


def imbalanced_mixtures(n: int = 300, *, share: float = 0.3, seed: int = 0) -> tuple[Labeled, Labeled]:
    """Two mixtures of the same two classes in different dimensions and different proportions.

    The source, in R³, is half ellipsoid and half ball. The target, in R², is an ellipse that has the fraction
    `share` of its n points and a square that has the rest. Points are uniform in each shape. Proportions are
    numbers of points, all of weight 1/n, so that they can be seen. Class 0 is the long shape on both sides.

    >>> source, target = imbalanced_mixtures(n=200, share=0.7)
    >>> source.points.shape, target.points.shape
    ((200, 3), (200, 2))
    """
    check_whole_number("n", n, minimum=4)  # two points per class
    if not isinstance(share, Real) or not 0 < float(share) < 1:
        raise InputError(f"share must be a number between 0 and 1, got {share!r}")
    check_whole_number("seed", seed, minimum=0)
    rng = np.random.default_rng(seed)
    half, first = n // 2, min(max(round(share * n), 1), n - 1)
    beside = np.array([_GAP, 0.0, 0.0])
    source = [
        _in_ellipsoid(rng, half, (_THICK, _LONG, _THICK)),
        _in_ellipsoid(rng, n - half, (_RADIUS,) * 3) + beside,
    ]
    target = [
        _in_ellipsoid(rng, first, (_THICK, _LONG)),
        rng.uniform(-_SIDE / 2, _SIDE / 2, size=(n - first, 2)) + beside[:2],
    ]
    return _labeled(source, ("ellipsoid", "ball")), _labeled(target, ("ellipse", "square"))


def two_moons(n: int = 200, *, outliers: int = 0, noise: float = 0.05, seed: int = 0) -> Labeled:
    """Two interleaved half circles of radius 1 with Gaussian noise: n points, and `outliers` more.

    The outliers are a tight cluster beside the moons, class 2.

    >>> two_moons(n=100, outliers=10).counts
    {'upper': 50, 'lower': 50, 'outliers': 10}
    """
    for name, value, least in (("n", n, 2), ("outliers", outliers, 0), ("seed", seed, 0)):
        check_whole_number(name, value, minimum=least)
    if not isinstance(noise, Real) or not 0 <= float(noise) < math.inf:
        raise InputError(f"noise must be a finite number ≥ 0, got {noise!r}")
    rng = np.random.default_rng(seed)
    turn_upper, turn_lower = rng.uniform(0, np.pi, size=n // 2), rng.uniform(0, np.pi, size=n - n // 2)
    upper = np.stack([np.cos(turn_upper), np.sin(turn_upper)], axis=1)
    lower = np.stack([1 - np.cos(turn_lower), 0.5 - np.sin(turn_lower)], axis=1)
    moons = [moon + noise * rng.normal(size=moon.shape) for moon in (upper, lower)]
    if outliers:
        moons.append(np.array([2.6, 1.2]) + 0.1 * rng.normal(size=(outliers, 2)))
    return _labeled(moons, ("upper", "lower", "outliers")[: len(moons)])


def moons_with_outliers(n: int = 150, *, outliers: int = 20, seed: int = 0) -> tuple[Labeled, Labeled]:
    """Two moons, and other two moons turned by a right angle with a cluster of outliers, all in the unit square.

    Distances alone tell nothing of the turn. The moons of a pair can be exchanged by half a turn, so that a plan
    may join either of the source to either of the target. The outliers, class 2, lie far from the moons.

    >>> source, target = moons_with_outliers(n=100, outliers=10)
    >>> source.counts, target.counts
    ({'upper': 50, 'lower': 50}, {'upper': 50, 'lower': 50, 'outliers': 10})
    """
    check_whole_number("outliers", outliers, minimum=1)
    source, turned = two_moons(n, seed=seed), two_moons(n, seed=seed + 1)
    rng = np.random.default_rng([seed, outliers])
    cluster = np.clip(np.array([0.95, 0.05]) + 0.025 * rng.normal(size=(outliers, 2)), 0, 1)
    clouds = [_SMALL * (cloud - cloud.min(axis=0)) for cloud in (source.points, turned.points[:, ::-1] * [-1, 1])]
    target = [clouds[1][turned.labels == 0], clouds[1][turned.labels == 1], cluster]
    moved = Labeled(clouds[0], source.labels, source.names)
    return moved, _labeled(target, ("upper", "lower", "outliers"))


def scgem(path: str | os.PathLike[str] | None = None) -> tuple[Labeled, Labeled]:
    """scGEM (Cheow et al. 2016): gene expression, R³⁴, and methylation, R²⁷, of the same 177 cells, row by row.

    Five stages of reprogramming. path: the file scgem.npz or a folder that has it; None looks into the folder that
    the environment variable UGW_DATA names, then into the cache folder. Shapes, counts and a checksum are tested.

    >>> expression, methylation = scgem()  # doctest: +SKIP
    >>> expression.counts  # doctest: +SKIP
    {'BJ': 35, 'd8': 40, 'd16T+': 32, 'd24T+': 36, 'iPSc': 34}
    """
    return _coassay(coassays.SCGEM, path)


def snareseq(path: str | os.PathLike[str] | None = None) -> tuple[Labeled, Labeled]:
    """SNARE-seq (Chen et al. 2019): chromatin accessibility, R¹⁹, and expression, R¹⁰, of the same 1047 cells.

    Four cell lines; reduced features. path: as for `scgem`.

    >>> accessibility, expression = snareseq()  # doctest: +SKIP
    >>> expression.counts  # doctest: +SKIP
    {'H1': 379, 'GM': 324, 'BJ': 201, 'K562': 143}
    """
    return _coassay(coassays.SNARESEQ, path)


def office_caltech10(
    path: str | os.PathLike[str] | None = None, *, keys: Iterable[str] | None = None
) -> dict[str, Domain]:
    """Office-Caltech10 (Gong et al. 2012): ten classes of objects, of which backpacks are class 0, in four domains.

    Keys are surf_caltech, surf_amazon, surf_webcam, surf_dslr (SURF, R⁸⁰⁰), decaf_webcam, decaf_dslr (DeCAF6, R⁴⁰⁹⁶),
    and mobilenet_caltech, ..., mobilenet_dslr (R¹⁰²⁴), which the paper does not have. `reduced`: 10 or 40 coordinates.
    path: a folder with the files; None looks as `scgem` does. Shapes, counts and a checksum of each file are tested.
    keys: those to read, all if None.

    >>> domains = office_caltech10()  # doctest: +SKIP
    >>> domains["surf_dslr"].reduced.shape, domains["surf_dslr"].counts["backpack"]  # doctest: +SKIP
    ((157, 10), 12)
    """
    made = {}
    for key in [f"{features}_{domain}" for features, domain in office.SHA256] if keys is None else keys:
        features, _, domain = key.partition("_")
        points, reduced, labels = office.read(features, domain, path)
        made[key] = Domain(points, labels, office.CLASSES, reduced=reduced)
    return made


def camels(path: str | os.PathLike[str] | None = None) -> list[Mesh]:
    """Ten poses of a galloping camel in the order of time, about 5000 vertices each: from the examples of pyFM.

    Each pose has a mesh of its own: no vertex of one is known to be a vertex of another. path: camel_gallop.npz or a
    folder that has it; None looks as `scgem` does. Shapes and a checksum are tested.

    >>> poses = camels()  # doctest: +SKIP
    >>> poses[0].vertices.shape, poses[0].space(points=80)  # doctest: +SKIP
    ((4999, 3), Space(n=80, mass=1, float64, points in R^3))
    """
    return _camels.read(path)


def _coassay(source: coassays.Source, path: str | os.PathLike[str] | None) -> tuple[Labeled, Labeled]:
    first, second, labels = coassays.read(source, path)
    names = tuple(source.counts)
    return Labeled(first, labels, names), Labeled(second, labels, names)


def _in_ellipsoid(rng: np.random.Generator, n: int, axes: tuple[float, ...]) -> np.ndarray:
    """Uniform in the solid ellipsoid with these semi-axes, (n, len(axes))."""
    direction = rng.normal(size=(n, len(axes)))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    radius = rng.uniform(size=(n, 1)) ** (1 / len(axes))  # the volume within a radius r grows as r^d
    return radius * direction * np.asarray(axes)


def _labeled(clouds: list[np.ndarray], names: tuple[str, ...]) -> Labeled:
    labels = np.repeat(np.arange(len(clouds)), [len(cloud) for cloud in clouds])
    return Labeled(points=np.concatenate(clouds), labels=labels, names=names)
