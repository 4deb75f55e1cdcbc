"""Points with class labels, graphs and meshes, synthetic or measured: data of the demo, the examples and the tests.

>>> import ugw
>>> moons = ugw.datasets.two_moons(n=50, outliers=5)
>>> moons.space()
Space(n=55, mass=1, float64, points in R^2)
"""

from __future__ import annotations

from .._utils.deprecation import renamed_names
from ..geometry.mesh import Mesh
from .camel_meshes import camels
from .coassays import scgem, snareseq
from .graph_data import LabeledGraph, communities_with_outliers, graph_families, planar_graphs
from .labeled import Domain, Labeled
from .office import office_caltech10
from .synthetic import imbalanced_mixtures, moons_with_outliers, two_moons

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

__getattr__ = renamed_names(__name__, Labelled="Labeled", LabelledGraph="LabeledGraph")
