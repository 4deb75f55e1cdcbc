"""Measured data: single-cell co-assays, images and meshes, read from files of the user."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..geometry.mesh import Mesh
from . import camel_meshes, coassays, office
from .labeled import Domain, Labeled


def scgem(path: str | os.PathLike[str] | None = None) -> tuple[Labeled, Labeled]:
    """Return scGEM (Cheow et al. 2016): gene expression, R³⁴, and methylation, R²⁷, of the same 177 cells.

    Row i of both is the same cell; classes are five stages of reprogramming. path: the file scgem.npz or a folder that
    contains it; None searches the folder named by the environment variable UGW_DATA, then the cache folder. Shapes,
    counts and a checksum are checked.

    >>> expression, methylation = scgem()  # doctest: +SKIP
    >>> expression.counts  # doctest: +SKIP
    {'BJ': 35, 'd8': 40, 'd16T+': 32, 'd24T+': 36, 'iPSc': 34}
    """
    return _read_coassay(coassays.SCGEM, path)


def snareseq(path: str | os.PathLike[str] | None = None) -> tuple[Labeled, Labeled]:
    """Return SNARE-seq (Chen et al. 2019): chromatin accessibility, R¹⁹, and expression, R¹⁰, of the same 1047 cells.

    Four cell lines; reduced features. path: as for `scgem`.

    >>> accessibility, expression = snareseq()  # doctest: +SKIP
    >>> expression.counts  # doctest: +SKIP
    {'H1': 379, 'GM': 324, 'BJ': 201, 'K562': 143}
    """
    return _read_coassay(coassays.SNARESEQ, path)


def office_caltech10(
    path: str | os.PathLike[str] | None = None, *, keys: Iterable[str] | None = None
) -> dict[str, Domain]:
    """Return Office-Caltech10 (Gong et al. 2012): ten classes of objects in four domains; backpacks are class 0.

    Keys are surf_caltech, surf_amazon, surf_webcam, surf_dslr (SURF, R⁸⁰⁰), decaf_webcam, decaf_dslr (DeCAF6, R⁴⁰⁹⁶),
    and mobilenet_caltech, ..., mobilenet_dslr (R¹⁰²⁴), which the paper does not have. `reduced`: 10 or 40 coordinates.
    path: a folder with the files; None searches as `scgem` does. Shapes, counts and checksums are checked.
    keys: the domains to read, all for None.

    >>> domains = office_caltech10()  # doctest: +SKIP
    >>> domains["surf_dslr"].reduced.shape, domains["surf_dslr"].counts["backpack"]  # doctest: +SKIP
    ((157, 10), 12)
    """
    domains = {}
    for key in [f"{features}_{domain}" for features, domain in office.SHA256] if keys is None else keys:
        features, _, domain = key.partition("_")
        points, reduced, labels = office.read(features, domain, path)
        domains[key] = Domain(points, labels, office.CLASSES, reduced=reduced)
    return domains


def camels(path: str | os.PathLike[str] | None = None) -> list[Mesh]:
    """Return ten poses of a galloping camel in the order of time, about 5000 vertices each: from the examples of pyFM.

    The meshes of different poses have no common vertices. path: camel_gallop.npz or a folder that contains it; None
    searches as `scgem` does. Shapes and a checksum are checked.

    >>> poses = camels()  # doctest: +SKIP
    >>> poses[0].vertices.shape, poses[0].space(points=80)  # doctest: +SKIP
    ((4999, 3), Space(n=80, mass=1, float64, points in R^3))
    """
    return camel_meshes.read(path)


def _read_coassay(source: coassays.Source, path: str | os.PathLike[str] | None) -> tuple[Labeled, Labeled]:
    """Return both assays of a file, with the same class labels."""
    first, second, labels = coassays.read(source, path)
    names = tuple(source.counts)
    return Labeled(first, labels, names), Labeled(second, labels, names)
