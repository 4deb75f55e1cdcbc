"""The effect of eps and rho on a plan: two communities against imbalanced ones with outliers (paper, appendix).

With a smaller rho outliers are not matched and the communities do not mix. A larger eps blurs the plan: points whose
distances differ by less than its square root are mixed, until the plan has no information.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm, to_rgb
from matplotlib.figure import Figure, SubFigure
from scipy.special import rel_entr

import ugw

from .. import datasets
from ..plots import figures as plots
from ..plots.drawing import set_thin_frame
from ..plots.style import STYLE
from ._shared import Matching, format_rho, write_results

RHOS = (1.0, 5.0, math.inf)
EPS = (8.0, 3.0, 1.5, 0.5)
# Colors of the four classes, blue, red, pink and green as in the paper.
COLORS = tuple(STYLE.palette[k] for k in (0, 5, 3, 2))
PAPER = (
    "the paper shows pictures: a smaller rho removes outliers and matches across communities; "
    "at eps = 3 communities and their outliers mix; a large eps says nothing"
)


@dataclass(frozen=True, eq=False)
class GridMatching(Matching):
    """The matching of the two graphs for one rho and one eps."""

    eps: float

    @property
    def across(self) -> float:
        """Fraction of the mass received by the target's communities that comes from the wrong community of the source.

        It is the smaller one of both ways to assign the two communities to each other, so at most 0.5.
        """
        return min(self.same_class, 1 - self.same_class)

    @property
    def information(self) -> float:
        """Mutual information, in nats, of the plan scaled to mass 1: KL(plan, product of the plan's marginals)."""
        plan = self.result.plan / self.result.plan.sum()
        return float(rel_entr(plan, plan.sum(axis=1, keepdims=True) * plan.sum(axis=0)).sum())

    @property
    def line(self) -> str:
        """A line of the table: rho, eps; mass, `on_outliers` and `across` in %; `information`, convergence."""
        return (
            f"{format_rho(self.rho):<6} {self.eps:>5g} {self.result.mass:>10.1%} {self.on_outliers:>12.1%} "
            f"{self.across:>8.1%} {self.information:>12.3f} {self.converged:>6}"
        )


Grid = list[list[GridMatching]]  # a row for each rho, a column for each eps
HEADER = f"{'':<6} {'ε':>5} {'mass kept':>10} {'on outliers':>12} {'across':>8} {'information':>12} {'conv.':>6}"
LEGEND = (
    "on outliers: mass they receive over their weight; across: share of the communities' mass that changes community; "
    "information: of a plan about partners, in nats"
)


def run(*, n: int = 60, rhos: Sequence[float] = RHOS, eps: Sequence[float] = EPS, seed: int = 1) -> Grid:
    """Return UGW results between two graphs of communities: for each rho a list with a record for each eps.

    A record has both graphs, of `communities_with_outliers(n, seed=seed)`, rho, eps and the `ugw.Result`.

    >>> ((blurred, sharp),) = run(n=24, rhos=(1.0,), eps=(8.0, 0.5))
    >>> sharp.across < 0.05 < blurred.across, sharp.on_outliers < 0.5
    (True, True)
    """
    source, target = datasets.communities_with_outliers(n, seed=seed)
    x, y = source.space(), target.space()
    return [[GridMatching(source, target, rho, ugw.solve(x, y, rho=rho, eps=e), e) for e in eps] for rho in rhos]


def figure(rows: Grid) -> Figure:
    """Return a picture: the two graphs of `rows` on the left, their plans as a grid of heat maps on the right."""
    canvas = Figure(figsize=(11.5, 6.2), layout="constrained")
    left, right = canvas.subfigures(1, 2, width_ratios=(1, 3.1))
    for ax, name in zip(left.subplots(2, 1), ("source", "target"), strict=True):
        side = getattr(rows[0][0], name)
        rgb = np.array([to_rgb(COLORS[k]) for k in side.labels])
        plots.colored_graph(side.graph, rgb, shares=np.full(len(rgb), 0.5), ax=ax)
        ax.set_title(name, fontsize=11, color=STYLE.ink)
    _draw_plans(right, rows)
    return canvas


def _draw_plans(part: SubFigure, rows: Grid) -> None:
    """Draw the plans in a part of a figure: heat maps with one color scale, a row per rho, a column per eps."""
    panels = part.subplots(len(rows), len(rows[0]), squeeze=False)
    largest = max(float(np.quantile(matching.result.plan, 0.999)) for row in rows for matching in row)
    norm = PowerNorm(0.5, vmin=0, vmax=largest)
    for axes, row in zip(panels, rows, strict=True):
        for ax, matching in zip(axes, row, strict=True):
            image = ax.imshow(matching.result.plan, cmap="Blues", norm=norm, aspect="auto")
            set_thin_frame(ax)
            _mark_classes(ax, (matching.source.labels, matching.target.labels))
            label = f"{matching.on_outliers:.0%} of outliers, {matching.across:.0%} across"
            ax.set_xlabel(label, fontsize=8.5, color=STYLE.ink, labelpad=7)
        axes[0].set_ylabel(format_rho(row[0].rho), fontsize=11, color=STYLE.ink, labelpad=9)
    for ax, matching in zip(panels[0], rows[0], strict=True):
        ax.set_title(f"ε = {matching.eps:g}", fontsize=11, color=STYLE.ink)
    bar = part.colorbar(image, ax=panels, fraction=0.03, pad=0.02, ticks=[0, largest / 4, largest], extend="max")
    bar.ax.set_yticklabels(["0", f"{largest / 4:.1g}", f"{largest:.1g}"], fontsize=8, color=STYLE.ink)
    bar.set_label("mass of an entry", fontsize=9, color=STYLE.ink)
    bar.outline.set_visible(False)


def _mark_classes(ax: Axes, labels: tuple[np.ndarray, np.ndarray]) -> None:
    """Mark the classes in the heat map of a plan (n, m) whose rows and columns are sorted by class.

    Draws lines between classes, and left of and below the map a stripe in the color of each class. labels: classes of
    the rows, (n,), and of the columns, (m,), integers from 0 on, in any order: only the size of each class counts.
    """
    ax.set_xticks([])
    ax.set_yticks([])
    for axis, side in enumerate(reversed(labels)):
        ends = np.concatenate([[0], np.cumsum(np.bincount(side))])
        for k, (start, end) in enumerate(zip(ends[:-1] / len(side), ends[1:] / len(side), strict=True)):
            style = {"color": COLORS[k], "linewidth": 3, "clip_on": False, "solid_capstyle": "butt"}
            span = [start, end] if axis == 0 else [1 - start, 1 - end]
            stripe = (span, [-0.03, -0.03]) if axis == 0 else ([-0.03, -0.03], span)
            ax.plot(*stripe, transform=ax.transAxes, **style)
            if start:
                draw_line = ax.axvline if axis == 0 else ax.axhline
                draw_line(start * len(side) - 0.5, color=STYLE.ink, linewidth=0.5)


def reproduce(folder: Path, echo: Callable[[str], None]) -> None:
    """Solve UGW for a grid of rho and eps, `echo` a table, and write eps-rho.png and .json into `folder`."""
    rows = run()
    matchings = [matching for row in rows for matching in row]
    echo("\n".join((HEADER, *(matching.line for matching in matchings), LEGEND, PAPER)))
    plans = [matching.numbers("eps", "on_outliers", "across", "information") for matching in matchings]
    write_results(folder, "eps-rho", figure(rows), {"plans": plans}, dpi=100)
