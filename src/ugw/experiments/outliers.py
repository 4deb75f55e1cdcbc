"""Robustness to outliers: two moons against two rotated moons with a cluster of outliers (paper, appendix).

GW must match the outliers completely. UGW matches fewer of them for a smaller rho, and still matches moon to moon.
Unbalanced Wasserstein (UW) compares positions and not distances: it is not invariant to the rotation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import ugw

from .. import datasets
from ..plots import figures as plots
from ._shared import Matching, draw_legend, format_rho, method_name, set_heading, uniform_weights, write_results

RHOS = (math.inf, 1.0, 0.1)
# rho of UW.
RHO_LINEAR = 1e-2
EPS = 1e-2
PAPER = (
    "the paper shows pictures: a smaller rho reduces and even removes the outliers' influence; "
    "UW is not invariant to isometries"
)


@dataclass(frozen=True, eq=False)
class Record(Matching):
    """A matching of the moons by a method: "GW", "UGW" or "UW"."""

    source: datasets.Labeled
    target: datasets.Labeled
    method: str

    @property
    def matched_labels(self) -> np.ndarray:
        """The target's labels (m,), 0 and 1 exchanged if its moons get under half of their mass from the same label.

        Outliers keep label 2, and their mass does not count. An exchange of the moons is not worse, because the half
        turn that exchanges them is an isometry.
        """
        labels = self.target.labels
        return np.where((labels < 2) & (self.same_class < 0.5), 1 - labels, labels)

    @property
    def moon_to_moon(self) -> float:
        """Fraction of the mass received by the target's moons that comes from the matched moon of the source.

        The matching of moons with the larger fraction is taken, so it is at least 0.5, its value for random matches.
        """
        return max(self.same_class, 1 - self.same_class)

    @property
    def line(self) -> str:
        """A line of the table: method, rho, the plan's mass, `on_outliers` and `moon_to_moon` in %, and convergence."""
        return (
            f"{self.method:<4} {format_rho(self.rho):<9} {self.result.mass:>9.1%} {self.on_outliers:>12.1%} "
            f"{self.moon_to_moon:>13.1%} {self.converged:>6}"
        )


HEADER = f"{'':<4} {'':<9} {'mass kept':>9} {'on outliers':>12} {'moon to moon':>13} {'conv.':>6}"
LEGEND = (
    "on outliers: mass they receive over their weight; moon to moon: share of the moons' mass that is sorted by moon"
)


def run(
    *, n: int = 150, outliers: int = 20, rhos: Sequence[float] = RHOS, eps: float = EPS, seed: int = 0
) -> list[Record]:
    """Return records of UGW for each rho (GW for ∞), last UW for rho = 0.01, between two pairs of moons of n points.

    A record has the points, rho, the `ugw.Result` and the method. UW is unbalanced Wasserstein, of the points, with the
    same eps. outliers: number of further points of the target.

    >>> [(record.method, record.on_outliers < 0.5) for record in run(n=30, outliers=4)]
    [('GW', False), ('UGW', False), ('UGW', True), ('UW', True)]
    """
    source, target = datasets.moons_with_outliers(n, outliers=outliers, seed=seed)
    x, y = source.space(), target.space()
    records = [Record(source, target, rho, ugw.solve(x, y, rho=rho, eps=eps), method_name(rho)) for rho in rhos]
    linear = ugw.solve_linear(source.points, target.points, rho=RHO_LINEAR, eps=eps)
    return [*records, Record(source, target, RHO_LINEAR, linear, "UW")]


def figure(records: Sequence[Record]) -> Figure:
    """Return a picture with one panel for each record: both clouds, joined by lines between matched points.

    A line is red if the label of the source's point differs from that of the target's in `matched_labels`, such as a
    line from a moon to an outlier.
    """
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
    names = ("a moon", "the other moon", "outliers")
    draw_legend(canvas, names, "to the wrong moon or an outlier", loc="outside lower center")
    return canvas


def reproduce(folder: Path, echo: Callable[[str], None]) -> None:
    """Solve GW, UGW and UW between moons, `echo` a table, and write outliers.png and .json into `folder`."""
    records = run()
    echo("\n".join((HEADER, *(record.line for record in records), LEGEND, PAPER)))
    solved = [record.numbers("method", "on_outliers", "moon_to_moon", "value") for record in records]
    write_results(folder, "outliers", figure(records), {"eps": EPS, "solved": solved}, dpi=110)
