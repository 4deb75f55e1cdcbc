"""Sizes of the synthetic shapes and graphs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ShapeConfig:
    """Lengths of the shapes.

    In the imbalanced mixtures the distance between the classes is larger than either is thick: a plan that mixes the
    classes must stretch or shrink that distance.
    """

    # Semi-axes of the ellipsoid and of the ellipse.
    long_semi_axis: float = 0.55
    short_semi_axis: float = 0.13
    # Radius of the ball.
    ball_radius: float = 0.22
    # Side of the square; its mean distance is that of the ball.
    square_side: float = 0.43
    # Distance between the centers of the two classes.
    class_distance: float = 0.95
    # Radius of the moons that share the unit square with outliers.
    moon_radius: float = 0.25


@dataclass(frozen=True)
class GraphConfig:
    """Lengths of edges and numbers of nodes of the synthetic graphs."""

    # Edge lengths of the communities, as in the paper: within one, between two, and to an outlier.
    inner_length: float = 1.0
    bridge_length: float = 4.0
    outlier_length: float = 2.0
    # Number of nodes of a graph of a family.
    min_family_nodes: int = 15
    max_family_nodes: int = 25
    # Length of an edge to an outlier of `graph_families`, in edges of the graph.
    family_outlier_length: float = 3.0


SHAPE_CONFIG = ShapeConfig()
GRAPH_CONFIG = GraphConfig()
