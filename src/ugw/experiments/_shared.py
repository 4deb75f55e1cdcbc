"""Functions shared by the experiments: numbers of a matching, headings and legends of pictures, writing of files."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
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
    """The result of a solve, with a plan (n, m), between a source of n and a target of m labeled points or nodes.

    Both have the classes 0 and 1; further classes of the target are outliers. rho: of the solve, ∞ for balanced GW.
    """

    source: Labeled | LabeledGraph
    target: Labeled | LabeledGraph
    rho: float
    result: ugw.Result

    @property
    def value(self) -> float:
        """The objective of the solve at its plan, with marginal penalties and entropy, as a float."""
        return float(self.result.value)

    @property
    def converged(self) -> str:
        """Whether the solve converged, for a table: "yes" or "NO"."""
        return format_flag(self.result.converged)

    @property
    def same_class(self) -> float:
        """Fraction of the mass received by the target's classes 0 and 1 that comes from the source's same class."""
        is_inlier = self.target.labels < 2
        plan = self.result.plan[:, is_inlier]
        return float(plan[self.source.labels[:, None] == self.target.labels[is_inlier]].sum() / plan.sum())

    @property
    def on_outliers(self) -> float:
        """Mass that the target's outliers (labels ≥ 2) receive over their total weight (each of m points has 1/m)."""
        is_outlier = self.target.labels >= 2
        return float(self.result.plan[:, is_outlier].sum() / is_outlier.mean())

    def numbers(self, *names: str) -> dict[str, Any]:
        """Return "rho" (text), "mass" of the plan, "converged" (bool) and the attributes `names`, by name, for JSON."""
        common = {"rho": str(self.rho), "mass": float(self.result.mass), "converged": bool(self.result.converged)}
        return common | {name: getattr(self, name) for name in names}


def method_name(rho: float) -> str:
    """Return "GW" for hard marginals, rho = ∞, and "UGW" otherwise."""
    return "GW" if math.isinf(rho) else "UGW"


def format_rho(rho: float) -> str:
    """Return a rho as text such as `ρ = 0.1`, with six significant digits, or `ρ = ∞` for hard marginals."""
    return f"ρ = {rho:g}".replace("inf", "∞")


def format_flag(flag: Any) -> str:
    """Return "yes" for a true flag, and "NO", which is easily seen in a table, for a false one."""
    return "yes" if flag else "NO"


def uniform_weights(plan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return for a plan (n, m) the weights of all points: 1/n for the source, (n,), and 1/m for the target, (m,)."""
    n, m = plan.shape
    return np.full(n, 1 / n), np.full(m, 1 / m)


def set_heading(ax: Axes, title: str, subtitle: str) -> None:
    """Write above the axes a bold title, and below it a subtitle of one or more lines."""
    height = subtitle.count("\n") + 1
    ax.set_title(title, fontsize=11, fontweight="bold", color=STYLE.ink, pad=6 + 12.5 * height)
    style = {"fontsize": 9, "color": STYLE.ink, "ha": "center", "va": "bottom", "linespacing": 1.25}
    ax.annotate(subtitle, (0.5, 1.0), xycoords="axes fraction", xytext=(0, 4), textcoords="offset points", **style)


def draw_legend(canvas: Figure, class_names: Sequence[str], mismatch: str, **options: Any) -> None:
    """Draw the legend of a figure with panels by `ugw.plots.matching`: a dot for each class, one line per line color.

    The dark line stands for matches, the red one for matches between different classes. mismatch: text beside the
    red line; options: further arguments of `Figure.legend`, such as `loc`.
    """
    dot = {"marker": "o", "linestyle": "", "markersize": 6}
    colors = zip(STYLE.palette, class_names, strict=False)
    handles = [Line2D([], [], color=color, label=name, **dot) for color, name in colors]
    for color, name in ((STYLE.ink, "a point's largest plan entry"), (STYLE.mismatch, mismatch)):
        handles.append(Line2D([], [], color=color, linewidth=1, label=name))
    style = {"frameon": False, "fontsize": 9, "labelcolor": STYLE.ink, "ncols": len(handles)}
    canvas.legend(handles=handles, **style, **options)


def write_results(folder: Path, name: str, figure: Figure, numbers: Mapping[str, Any], *, dpi: int = 160) -> None:
    """Write the figure as NAME.png, with 256 colors if it is larger than 150 kB, and the numbers as NAME.json."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi, bbox_inches="tight", pad_inches=0.08)
    with Image.open(buffer) as image:
        picture = image.convert("RGB")
    if len(buffer.getvalue()) > MAX_PICTURE_BYTES:
        picture = picture.quantize(256)
    picture.save(folder / f"{name}.png", optimize=True)
    write_numbers(folder, name, numbers)


def write_numbers(folder: Path, name: str, numbers: Mapping[str, Any]) -> None:
    """Write the numbers as NAME.json, where NAME is `name`, into the folder."""
    (folder / f"{name}.json").write_text(json.dumps(dict(numbers), indent=1) + "\n", encoding="utf-8")
