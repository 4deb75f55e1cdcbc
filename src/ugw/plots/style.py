"""Colors, sizes and limits of all pictures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlotStyle:
    """Colors, sizes and limits; areas are in points², other sizes relative to what is drawn."""

    # Class colors by Okabe and Ito, distinguishable with the common color-vision deficiencies.
    palette: tuple[str, ...] = (
        "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000",
    )  # fmt: skip
    # Text, ticks, spines and matching lines.
    ink: str = "#333333"
    # Matching lines between different classes.
    mismatch: str = "#B2182B"
    # Graph edges, grid lines, and points that receive no mass.
    pale: str = "#D9D9D9"
    # Colormap of ordered values; its lightness is ordered too, for gray print.
    colormap: str = "viridis"
    # Part of the colormap in use: its last yellow is too light on white.
    colormap_end: float = 0.95
    # Colormap of plan entries.
    plan_colormap: str = "Blues"
    # Quantile of the positive plan entries at which the color scale ends: a few large entries would hide all others.
    plan_scale_quantile: float = 0.995
    # Area of a dot of n, in points²: dot_area_total / n within the two limits.
    dot_area_total: float = 6000.0
    min_dot_area: float = 4.0
    max_dot_area: float = 50.0
    # Area of a dot relative to that of a point that keeps its whole weight; larger fractions are not drawn larger.
    max_dot_scale: float = 2.0
    # Smallest relative area of a dot, so that points without mass stay visible; nodes of graphs need a larger one.
    min_dot_scale: float = 0.02
    min_node_scale: float = 0.06
    # Area of a graph node relative to that of a dot.
    node_scale: float = 1.5
    # Gap between two clouds, relative to the larger extent.
    cloud_gap: float = 0.45
    # Margin around the points, relative to their extent.
    margin: float = 0.04
    # Opacity of a matching line: the smallest, and the range above it, which grows with the root of the plan entry.
    min_line_opacity: float = 0.1
    line_opacity_range: float = 0.65
    # Font sizes in points of titles and axis labels, and of ticks and legends.
    font_size: int = 9
    small_font_size: int = 8
    # Nodes up to which a graph is laid out by path lengths (Kamada-Kawai, seconds at this size); springs beyond.
    max_path_layout_nodes: int = 150
    # Points whose distances are decomposed to place all points of a space (0.3 s at this size; the time is cubic).
    max_mds_landmarks: int = 1000


STYLE = PlotStyle()
