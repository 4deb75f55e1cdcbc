"""Limits and layout of reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReportConfig:
    """Limits and layout of reports."""

    # Matches that the slider can draw: more would make the scene slow to rotate.
    max_lines: int = 4000
    # Vertices of a mesh, or edges of a graph, that are drawn.
    max_surface_size: int = 20_000
    # Matches of a point in the page.
    matches_per_point: int = 10
    # Smallest match of a point in the page, relative to its largest one.
    min_relative_match: float = 1e-3
    # Fraction of its weight below which a point counts as unmatched and has no matches in the page.
    min_kept_fraction: float = 0.01
    # Plan entries in memory at a time (128 MiB in float64).
    max_block_entries: int = 2**24
    # Landmarks of multidimensional scaling for spaces without points; the time is cubic.
    max_mds_landmarks: int = 1000
    # Ratio of the sizes of both spaces up to which both are drawn at one scale.
    max_common_scale_ratio: float = 3.0
    # Distance between two solids, and between the planes of two flat spaces, relative to the size of the larger.
    solid_gap: float = 0.35
    plane_gap: float = 0.75
    # Width of the scene divided by its height, as on most screens.
    scene_aspect: float = 1.5
    # Quantiles of the positions along the first space at which the gradient ends: outliers would take most of it.
    color_quantiles: tuple[float, float] = (0.01, 0.99)
    # Colors along the first space, readable on white and on black.
    gradient: tuple[str, ...] = ("#4477DD", "#2AA7C9", "#3FB56B", "#C7B52A", "#EE8336", "#D9486E")


REPORT_CONFIG = ReportConfig()
