"""Pictures: matching lines, plan heat map, color transfer onto a graph, convergence curve.

Each takes a Result (or a bare plan where that is enough) and `ax=None`, draws, and returns the axes. Given axes
are all that a picture touches; with `ax=None` it makes a figure with pyplot, which keeps it until it is closed.
matplotlib and networkx are imported on the first drawing.

>>> import numpy as np, ugw
>>> points = np.random.default_rng(0).random((20, 2))
>>> space = ugw.Space.from_points(points)
>>> axes = ugw.plots.matching(ugw.solve(space, space), points, points)
"""

from __future__ import annotations

from .figures import aligned, color_transfer, colored_graph, convergence, layout, matching, plan

__all__ = ["aligned", "color_transfer", "colored_graph", "convergence", "layout", "matching", "plan"]
