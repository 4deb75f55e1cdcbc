"""What eps and rho do to a plan: two communities against imbalanced ones with outliers (the paper's appendix).

A smaller rho leaves outliers behind and keeps the communities apart. A larger eps blurs: pairs of points whose
distortion is below its square root are joined, and in the end the plan says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import ugw

from .. import datasets
from ..plots import figures as plots
from ..plots._drawing import set_thin_frame
from ..plots.style import STYLE
from ._shared import strength, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

RHOS = (1.0, 5.0, math.inf)
EPS = (8.0, 3.0, 1.5, 0.5)
COLORS = (
    STYLE.palette[0],
    STYLE.palette[5],
    STYLE.palette[3],
    STYLE.palette[2],
)  # blue, red, pink and green, as in the paper
PAPER = (
    "the paper shows pictures: a smaller rho removes outliers and matches across communities; "
    "at eps = 3 communities and their outliers mix; a large eps says nothing"
)


@dataclass(frozen=True, eq=False)
class Cell:
    """The plan for one rho and one eps, (n, m), and the classes of its rows and columns."""

    rho: float
    eps: float
    result: ugw.Result
    labels: tuple[np.ndarray, np.ndarray]

    @property
    def on_outliers(self) -> float:
        """Mass that the outliers receive, over what they weigh."""
        far = self.labels[1] >= 2
        return float(self.result.plan[:, far].sum() / far.mean())

    @property
    def across(self) -> float:
        """The share of the mass between communities that goes to the wrong one; either may be the right one."""
        plan = self.result.plan[:, self.labels[1] < 2]
        alike = float(plan[self.labels[0][:, None] == self.labels[1][self.labels[1] < 2]].sum() / plan.sum())
        return min(alike, 1 - alike)

    @property
    def information(self) -> float:
        """How much the plan says: KL of the plan, at mass 1, from the product of its marginals. 0: nothing."""
        plan = self.result.plan / self.result.plan.sum()
        product = plan.sum(axis=1, keepdims=True) * plan.sum(axis=0)
        return float(np.sum(plan * np.log(np.where(plan > 0, plan, 1) / np.where(plan > 0, product, 1))))

    @property
    def line(self) -> str:
        """The numbers under `HEADER`."""
        converged = "yes" if self.result.converged else "NO"
        return (
            f"{strength(self.rho):<6} {self.eps:>5g} {self.result.mass:>10.1%} {self.on_outliers:>12.1%} "
            f"{self.across:>8.1%} {self.information:>12.3f} {converged:>6}"
        )


HEADER = f"{'':<6} {'ε':>5} {'mass kept':>10} {'on outliers':>12} {'across':>8} {'information':>12} {'conv.':>6}"
LEGEND = (
    "on outliers: mass they receive over their weight; across: share of the communities' mass that changes community; "
    "information: of a plan about partners, in nats"
)


@dataclass(frozen=True, eq=False)
class Table:
    """Both graphs and the plans, rho by rho."""

    source: datasets.LabeledGraph
    target: datasets.LabeledGraph
    rows: list[list[Cell]]


def run(*, n: int = 60, rhos: Sequence[float] = RHOS, eps: Sequence[float] = EPS, seed: int = 1) -> Table:
    """A plan for each rho and each eps.

    >>> ((blurred, sharp),) = run(n=24, rhos=(1.0,), eps=(8.0, 0.5)).rows
    >>> sharp.across < 0.05 < blurred.across, sharp.on_outliers < 0.5
    (True, True)
    """
    source, target = datasets.communities_with_outliers(n, seed=seed)
    x, y = source.space(), target.space()
    labels = (source.labels, target.labels)
    rows = [[Cell(rho, e, ugw.solve(x, y, rho=rho, eps=e), labels) for e in eps] for rho in rhos]
    return Table(source, target, rows)


def figure(table: Table) -> Figure:
    """The graphs, and the matrix of plans on one color scale."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(11.5, 6.2), layout="constrained")
    left, right = made.subfigures(1, 2, width_ratios=(1, 3.1))
    for ax, side, name in zip(left.subplots(2, 1), (table.source, table.target), ("source", "target"), strict=True):
        _graph(ax, side)
        ax.set_title(name, fontsize=11, color=STYLE.ink)
    _plans(right, table.rows)
    return made


def _graph(ax: Axes, side: datasets.LabeledGraph) -> None:
    from matplotlib.colors import to_rgb

    rgb = np.array([to_rgb(COLORS[k]) for k in side.labels])
    plots.colored_graph(side.graph, rgb, shares=np.full(len(rgb), 0.5), ax=ax)


def _plans(part: SubFigure, rows: list[list[Cell]]) -> None:
    from matplotlib.colors import PowerNorm

    panels = part.subplots(len(rows), len(rows[0]), squeeze=False)
    top = max(float(np.quantile(cell.result.plan, 0.999)) for row in rows for cell in row)
    norm = PowerNorm(0.5, vmin=0, vmax=top)
    for axes, row in zip(panels, rows, strict=True):
        for ax, cell in zip(axes, row, strict=True):
            image = ax.imshow(cell.result.plan, cmap="Blues", norm=norm, aspect="auto")
            set_thin_frame(ax)
            _mark(ax, cell.labels)
            under = f"{cell.on_outliers:.0%} of outliers, {cell.across:.0%} across"
            ax.set_xlabel(under, fontsize=8.5, color=STYLE.ink, labelpad=7)
        axes[0].set_ylabel(strength(row[0].rho), fontsize=11, color=STYLE.ink, labelpad=9)
    for ax, cell in zip(panels[0], rows[0], strict=True):
        ax.set_title(f"ε = {cell.eps:g}", fontsize=11, color=STYLE.ink)
    bar = part.colorbar(image, ax=panels, fraction=0.03, pad=0.02, ticks=[0, top / 4, top], extend="max")
    bar.ax.set_yticklabels(["0", f"{top / 4:.1g}", f"{top:.1g}"], fontsize=8, color=STYLE.ink)
    bar.set_label("mass of an entry", fontsize=9, color=STYLE.ink)
    bar.outline.set_visible(False)


def _mark(ax: Axes, labels: tuple[np.ndarray, np.ndarray]) -> None:
    """Lines between classes, and a stripe in the color of each along the edge of the picture."""
    ax.set_xticks([])
    ax.set_yticks([])
    for axis, side in enumerate(reversed(labels)):
        ends = np.concatenate([[0], np.cumsum(np.bincount(side))])
        for k, (start, end) in enumerate(zip(ends[:-1] / len(side), ends[1:] / len(side), strict=True)):
            across = {"color": COLORS[k], "linewidth": 3, "clip_on": False, "solid_capstyle": "butt"}
            span = [start, end] if axis == 0 else [1 - start, 1 - end]
            ends_at = (span, [-0.03, -0.03]) if axis == 0 else ([-0.03, -0.03], span)
            ax.plot(*ends_at, transform=ax.transAxes, **across)
            if start:
                rule = ax.axvline if axis == 0 else ax.axhline
                rule(start * len(side) - 0.5, color=STYLE.ink, linewidth=0.5)


def reproduce(folder: Path, echo: Callable[[str], None]) -> None:
    """Run, print the numbers, and write eps-rho.png and eps-rho.json."""
    table = run()
    cells = [cell for row in table.rows for cell in row]
    for line in (HEADER, *(cell.line for cell in cells), LEGEND, PAPER):
        echo(line)
    write(folder, "eps-rho", figure(table), {"plans": [_numbers(cell) for cell in cells]}, dpi=100)


def _numbers(cell: Cell) -> dict[str, Any]:
    return {
        "rho": str(cell.rho),
        "eps": cell.eps,
        "mass": float(cell.result.mass),
        "on_outliers": cell.on_outliers,
        "across": cell.across,
        "information": cell.information,
        "converged": bool(cell.result.converged),
    }
