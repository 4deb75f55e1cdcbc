"""Robustness to outliers: two moons against two rotated moons with a cluster of outliers (paper, appendix).

GW must match the outliers completely. UGW matches fewer of them for a smaller rho, and still matches moon to moon.
Unbalanced Wasserstein (UW) compares positions and not distances: it is not invariant under the rotation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import ugw

from .. import datasets
from ..plots import figures as plots
from ..plots.style import STYLE
from ._shared import format_rho, set_heading, uniform_weights, write_results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RHOS = (math.inf, 1.0, 0.1)
RHO_LINEAR = 1e-2
EPS = 1e-2
PAPER = (
    "the paper shows pictures: a smaller rho reduces and even removes the outliers' influence; "
    "UW does not see through an isometry"
)


@dataclass(frozen=True, eq=False)
class Record:
    """One matching of the moons, by GW, UGW or UW."""

    method: str
    rho: float
    source: datasets.Labeled
    target: datasets.Labeled
    result: ugw.Result

    @property
    def matched_labels(self) -> np.ndarray:
        """The target's labels, with the moons exchanged if the plan exchanges them, which an isometry does."""
        labels, moons = self.target.labels, self.target.labels < 2
        same = self.source.labels[:, None] == labels[moons]
        swapped = 2 * self.result.plan[:, moons][same].sum() < self.result.plan[:, moons].sum()
        return np.where(moons & swapped, 1 - labels, labels)

    @property
    def on_outliers(self) -> float:
        """Mass that the outliers receive, divided by their weight."""
        is_outlier = self.target.labels == 2
        return float(self.result.plan[:, is_outlier].sum() / is_outlier.mean())

    @property
    def moon_to_moon(self) -> float:
        """Fraction of the mass of the target's moons that comes from the matching moon; 0.5 is chance."""
        moons = self.target.labels < 2
        plan = self.result.plan[:, moons]
        return float(plan[self.source.labels[:, None] == self.matched_labels[moons]].sum() / plan.sum())

    @property
    def line(self) -> str:
        """The line of text under `HEADER`: method, rho, percentages of mass kept and of `LEGEND`, and convergence."""
        converged = "yes" if self.result.converged else "NO"
        return (
            f"{self.method:<4} {format_rho(self.rho):<9} {self.result.mass:>9.1%} {self.on_outliers:>12.1%} "
            f"{self.moon_to_moon:>13.1%} {converged:>6}"
        )


HEADER = f"{'':<4} {'':<9} {'mass kept':>9} {'on outliers':>12} {'moon to moon':>13} {'conv.':>6}"
LEGEND = (
    "on outliers: mass they receive over their weight; moon to moon: share of the moons' mass that is sorted by moon"
)


def run(
    *, n: int = 150, outliers: int = 20, rhos: Sequence[float] = RHOS, eps: float = EPS, seed: int = 0
) -> list[Record]:
    """Return UGW for each rho, GW for inf, and UW.

    >>> [(record.method, record.on_outliers < 0.5) for record in run(n=30, outliers=4)]
    [('GW', False), ('UGW', False), ('UGW', True), ('UW', True)]
    """
    source, target = datasets.moons_with_outliers(n, outliers=outliers, seed=seed)
    x, y = source.space(), target.space()
    records = []
    for rho in rhos:
        name = "GW" if math.isinf(rho) else "UGW"
        records.append(Record(name, rho, source, target, ugw.solve(x, y, rho=rho, eps=eps)))
    linear = ugw.solve_linear(source.points, target.points, rho=RHO_LINEAR, eps=eps)
    return [*records, Record("UW", RHO_LINEAR, source, target, linear)]


def figure(records: Sequence[Record]) -> Figure:
    """Return a picture with one panel for each record; red lines join different moons."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    canvas = Figure(figsize=(2.7 * len(records), 5.0), layout="constrained")
    canvas.get_layout_engine().set(h_pad=0.1)
    for ax, record in zip(canvas.subplots(1, len(records)), records, strict=True):
        source, target = record.source, record.target
        plan, labels = record.result.plan, (source.labels, record.matched_labels)
        plots.matching(
            plan, source.points, target.points, weights=uniform_weights(plan), labels=labels, lines=60, ax=ax
        )
        numbers = f"{record.on_outliers:.0%} of the outliers matched\n{record.moon_to_moon:.0%} moon to moon"
        set_heading(ax, f"{record.method}, {format_rho(record.rho)}", numbers)
    dot = {"marker": "o", "linestyle": "", "markersize": 6}
    handles = [
        Line2D([], [], color=color, label=name, **dot)
        for color, name in zip(STYLE.palette, ("a moon", "the other moon", "outliers"), strict=False)
    ]
    handles.append(Line2D([], [], color=STYLE.ink, linewidth=1, label="a point's largest plan entry"))
    handles.append(Line2D([], [], color=STYLE.mismatch, linewidth=1, label="to the wrong moon or an outlier"))
    canvas.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=9, labelcolor=STYLE.ink)
    return canvas


def reproduce(folder: Path, echo: Callable[[str], None]) -> None:
    """Run the experiment, print its numbers with `echo`, and write outliers.png and outliers.json into `folder`."""
    records = run()
    for line in (HEADER, *(record.line for record in records), LEGEND, PAPER):
        echo(line)
    solved = [
        {
            "method": record.method,
            "rho": str(record.rho),
            "mass": float(record.result.mass),
            "on_outliers": record.on_outliers,
            "moon_to_moon": record.moon_to_moon,
            "value": float(record.result.value),
            "converged": bool(record.result.converged),
        }
        for record in records
    ]
    write_results(folder, "outliers", figure(records), {"eps": EPS, "solved": solved}, dpi=110)
