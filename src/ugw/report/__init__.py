"""An interactive report of a solve: one HTML page that needs no network. Writing it requires plotly.

>>> import tempfile, numpy as np, ugw
>>> from pathlib import Path
>>> x = ugw.Space.from_points(np.random.default_rng(0).random((12, 2)))
>>> with tempfile.TemporaryDirectory() as folder:
...     ugw.report.write(ugw.solve(x, x), x, x, f"{folder}/report.html")
...     Path(folder, "report.html").stat().st_size > 10_000
True
"""

from .page import write
from .views import View

__all__ = ["View", "write"]
