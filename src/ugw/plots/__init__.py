"""Pictures of a solve: matching lines, heat map of the plan, color transfer to a graph, convergence curves.

Each function takes a Result, or a plan if that is enough, and `ax=None`, draws, and returns the axes. Only the given
axes are changed; with `ax=None` a new figure is made with pyplot, which keeps it until it is closed.
matplotlib and networkx are imported by the first drawing.

>>> import numpy as np, ugw
>>> points = np.random.default_rng(0).random((20, 2))
>>> space = ugw.Space.from_points(points)
>>> axes = ugw.plots.matching(ugw.solve(space, space), points, points)
"""

from __future__ import annotations

from .._utils.deprecation import renamed_names
from .figures import align_points, color_transfer, colored_graph, convergence, layout, matching, plan

__all__ = ["align_points", "color_transfer", "colored_graph", "convergence", "layout", "matching", "plan"]

__getattr__ = renamed_names(
    __name__, aligned="align_points", colour_transfer="color_transfer", coloured_graph="colored_graph"
)
