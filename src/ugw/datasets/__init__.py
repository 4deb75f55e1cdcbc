"""Points with class labels, graphs and meshes, synthetic or measured: the data of the demo, the examples, the tests.

>>> import ugw
>>> moons = ugw.datasets.two_moons(n=50, outliers=5)
>>> moons.space()
Space(n=55, mass=1, float64, points in R^2)
"""

from __future__ import annotations

from .synthetic import (
    Domain,
    Labeled,
    LabeledGraph,
    Mesh,
    camels,
    communities_with_outliers,
    graph_families,
    imbalanced_mixtures,
    moons_with_outliers,
    office_caltech10,
    planar_graphs,
    scgem,
    snareseq,
    two_moons,
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
