"""Functions shared by the experiments: numbers of a matching, its heading and legend, and writing of files."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

import ugw

from ..datasets import Labeled, LabeledGraph
from ..plots.style import STYLE

# Size in bytes above which a picture is reduced to 256 colors, to keep the documentation small.
MAX_PICTURE_BYTES = 150_000


@dataclass(frozen=True, eq=False)
class Matching:
    """A plan between a source and a target with the same classes 0 and 1; further classes of the target are outliers.

    rho: ∞ for balanced GW. result: its plan is (n, m).
    """

    source: Labeled | LabeledGraph
    target: Labeled | LabeledGraph
    rho: float
    result: ugw.Result

    @property
    def value(self) -> float:
        """The objective of the plan."""
        return float(self.result.value)

    @property
    def converged(self) -> str:
        """Whether the solve converged, for a table: "yes" or "NO"."""
        return format_flag(self.result.converged)

    @property
    def same_class(self) -> float:
        """Fraction of the mass received by the target's classes 0 and 1 that comes from the same class."""
        is_inlier = self.target.labels < 2
        plan = self.result.plan[:, is_inlier]
        return float(plan[self.source.labels[:, None] == self.target.labels[is_inlier]].sum() / plan.sum())

    @property
    def on_outliers(self) -> float:
        """Mass that the outliers receive, divided by their weight."""
        is_outlier = self.target.labels >= 2
        return float(self.result.plan[:, is_outlier].sum() / is_outlier.mean())

    def numbers(self, *names: str) -> dict[str, Any]:
        """Return rho, mass, convergence and the attributes of these names, for a JSON file."""
        common = {"rho": str(self.rho), "mass": float(self.result.mass), "converged": bool(self.result.converged)}
        return common | {name: getattr(self, name) for name in names}


def method_name(rho: float) -> str:
    """Return "GW" for hard marginals, rho = ∞, and "UGW" otherwise."""
    return "GW" if math.isinf(rho) else "UGW"


def format_rho(rho: float) -> str:
    """Return the text `ρ = 0.1`, or `ρ = ∞` for hard marginals."""
    return f"ρ = {rho:g}".replace("inf", "∞")


def format_flag(flag: Any) -> str:
    """Return "yes", or "NO" so that it is seen in a table."""
    return "yes" if flag else "NO"


def uniform_weights(plan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights 1/n, (n,), and 1/m, (m,), for a plan (n, m)."""
    n, m = plan.shape
    return np.full(n, 1 / n), np.full(m, 1 / m)


def set_heading(ax: Axes, title: str, below: str) -> None:
    """Write a bold title, and the numbers of the picture below it."""
    height = below.count("\n") + 1
    ax.set_title(title, fontsize=11, fontweight="bold", color=STYLE.ink, pad=6 + 12.5 * height)
    style = {"fontsize": 9, "color": STYLE.ink, "ha": "center", "va": "bottom", "linespacing": 1.25}
    ax.annotate(below, (0.5, 1.0), xycoords="axes fraction", xytext=(0, 4), textcoords="offset points", **style)


def draw_legend(canvas: Figure, class_names: Sequence[str], mismatch: str, **options: Any) -> None:
    """Draw the legend of `ugw.plots.matching` below the panels: a dot for each class, and both colors of lines.

    mismatch: the name of the red lines; options: of `Figure.legend`.
    """
    dot = {"marker": "o", "linestyle": "", "markersize": 6}
    colors = zip(STYLE.palette, class_names, strict=False)
    handles = [Line2D([], [], color=color, label=name, **dot) for color, name in colors]
    for color, name in ((STYLE.ink, "a point's largest plan entry"), (STYLE.mismatch, mismatch)):
        handles.append(Line2D([], [], color=color, linewidth=1, label=name))
    style = {"frameon": False, "fontsize": 9, "labelcolor": STYLE.ink, "ncols": len(handles)}
    canvas.legend(handles=handles, **style, **options)


def print_lines(echo: Callable[[str], None], lines: Iterable[str]) -> None:
    """Call `echo` with each line."""
    for line in lines:
        echo(line)


def write_results(folder: Path, name: str, figure: Figure, numbers: Mapping[str, Any], *, dpi: int = 160) -> None:
    """Write NAME.png, with 256 colors if it would be large otherwise, and NAME.json into the folder."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi, bbox_inches="tight", pad_inches=0.08)
    with Image.open(buffer) as image:
        picture = image.convert("RGB")
    if len(buffer.getvalue()) > MAX_PICTURE_BYTES:
        picture = picture.quantize(256)
    picture.save(folder / f"{name}.png", optimize=True)
    write_numbers(folder, name, numbers)


def write_numbers(folder: Path, name: str, numbers: Mapping[str, Any]) -> None:
    """Write NAME.json into the folder."""
    (folder / f"{name}.json").write_text(json.dumps(dict(numbers), indent=1) + "\n", encoding="utf-8")
