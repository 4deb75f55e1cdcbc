"""Robustness to imbalanced classes: balanced GW and UGW (Figure 1 of the paper; `ugw demo`, `ugw reproduce`).

An ellipsoid and a ball in R³, half of the mass each, against an ellipse and a square in R² with .3 and .7 of
it, then .7 and .3. GW must move all mass, so that at least .2 of it goes to the other class, and for one of
the mixtures it is even cheaper to exchange the classes. UGW leaves the surplus unmatched and does not mix the
classes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import ugw

from .. import datasets
from ..plots import figures as plots
from ..plots.style import STYLE
from ._shared import Matching, draw_legend, method_name, uniform_weights, write_results

# Fractions of the ellipse in the target.
SHARES = (0.3, 0.7)
# The distance between the shapes is about 1: matching mass between them costs more than leaving it unmatched.
RHO = 0.1
EPS = 1e-2
POINTS = 200


@dataclass(frozen=True, eq=False)
class Record(Matching):
    """A matching with a target in which the ellipse has the fraction `share` of the mass. seconds: of the solve."""

    source: datasets.Labeled
    target: datasets.Labeled
    share: float
    seconds: float

    @property
    def method(self) -> str:
        """The name of the method: "GW" for hard marginals, else "UGW"."""
        return method_name(self.rho)

    @property
    def mixture(self) -> str:
        """The fractions of the target's mass in its two classes, as text such as "0.3 ellipse + 0.7 square"."""
        return f"{self.share:.1f} ellipse + {1 - self.share:.1f} square"

    @property
    def across(self) -> float:
        """Fraction, in [0, 1], of the plan's mass that joins points of different classes, in either direction."""
        return 1 - self.same_class

    @property
    def line(self) -> str:
        """A line of the table: target, method, objective, its four terms, mass, `across`, convergence, seconds.

        The terms are the distortion, the penalties of both marginals, and the entropy.
        """
        result, terms = self.result, self.result.terms
        return (
            f"{self.mixture:<24} {self.method:<4} {result.value:>8.4f} {terms.distortion:>9.4f} "
            f"{terms.marginal_a:>z8.4f} {terms.marginal_b:>z8.4f} {terms.entropy:>8.4f} "
            f"{result.mass:>6.1%} {self.across:>7.1%} {self.converged:>5} {self.seconds:>5.1f}"
        )


def run(
    *,
    n: int = POINTS,
    rho: float = RHO,
    eps: float = EPS,
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    report: Callable[[Record], None] | None = None,
) -> list[Record]:
    """Return for each share a record of GW, then one of UGW with this rho, between two point sets of n points each.

    A record has the point sets, rho, the `ugw.Result`, the share, and the seconds of the solve. shares: the ellipse's
    fractions of the target's points, whose others are in a square; report: called with each record when it is ready.

    >>> [(record.method, record.across < 0.05) for record in run(n=20, eps=0.02, shares=(0.3,))]
    [('GW', False), ('UGW', True)]
    """
    records = []
    for share in shares:
        source, target = datasets.imbalanced_mixtures(n, share=share, seed=seed)
        x, y = source.space(), target.space()
        for side_rho in (math.inf, rho):
            start = time.perf_counter()
            result = ugw.solve(x, y, rho=side_rho, eps=eps)
            records.append(Record(source, target, side_rho, result, share, time.perf_counter() - start))
            if report is not None:
                report(records[-1])
    return records


HEADER = (
    f"{'target':<24} {'':<4} {'value':>8} {'distort.':>9} {'marg. a':>8} {'marg. b':>8} {'entropy':>8} "
    f"{'kept':>6} {'across':>7} {'conv.':>5} {'sec.':>5}"
)
LEGEND = "kept: mass of the plan; across: share of it between different classes; conv.: converged"
PAPER = "the paper shows pictures: GW matches the shapes poorly as their masses differ, UGW recovers coherent matchings"


def figure(records: Sequence[Record]) -> Figure:
    """Return a picture of the matchings, one panel for each record, those with the same share of the ellipse together.

    Lines from some points show their largest plan entries, in red between points of different classes.
    """
    mixtures = list(dict.fromkeys(record.share for record in records))
    groups = [[record for record in records if record.share == share] for share in mixtures]
    canvas = Figure(figsize=(3.0 * len(records), 4.2))
    top, *_ = canvas.subfigures(2, 1, height_ratios=(12, 1))
    parts = top.subfigures(1, len(groups), squeeze=False)[0]
    for part, group in zip(parts, groups, strict=True):
        part.suptitle(f"target: {group[0].mixture}", fontsize=11, color=STYLE.ink, y=0.98)
        part.subplots_adjust(left=0.01, right=0.99, bottom=0.0, top=0.82, wspace=0.02)
        for k, record in enumerate(group, start=1):
            _draw_panel(part.add_subplot(1, len(group), k, projection="3d"), record)
    pairs = zip(records[0].source.names, records[0].target.names, strict=True)
    names = [f"{first} and {second}" for first, second in pairs]
    draw_legend(canvas, names, "across classes", loc="lower center", handletextpad=0.5)
    return canvas


def show(echo: Callable[[str], None]) -> list[Record]:
    """Return the record of GW, then that of UGW, for each of `SHARES`; `echo` lines of their table when ready.

    A share is the fraction of the target's mass that is in its ellipse.
    """
    echo(HEADER)
    records = run(report=lambda record: echo(record.line))
    echo(LEGEND)
    return records


def reproduce(folder: Path, echo: Callable[[str], None]) -> None:
    """Solve GW and UGW between imbalanced classes, `echo` a table, and write imbalanced.png and .json into `folder`."""
    records = show(echo)
    echo(PAPER)
    solved = [record.numbers("share", "method", "value", "across") for record in records]
    write_results(folder, "imbalanced", figure(records), {"eps": EPS, "solved": solved}, dpi=100)


def _draw_panel(ax: Axes, record: Record) -> None:
    """Draw the matching of a record into 3-D axes, and above it the method and the record's numbers."""
    source, target, result = record.source, record.target, record.result
    weights, labels = uniform_weights(result.plan), (source.labels, target.labels)
    plots.matching(result, source.points, reflected_target(record), weights=weights, labels=labels, lines=70, ax=ax)
    name = "GW" if record.method == "GW" else f"UGW, ρ = {record.rho:g}"
    warning = "" if result.converged else ", NOT CONVERGED"
    numbers = f"{record.across:.0%} across classes\nvalue {result.value:.3f}, mass kept {result.mass:.0%}{warning}"
    for height, text, size, weight in ((1.12, name, 11, "bold"), (1.05, numbers, 9, "normal")):
        style = {"fontsize": size, "fontweight": weight, "color": STYLE.ink, "ha": "center", "va": "top"}
        ax.text2D(0.5, height, text, transform=ax.transAxes, **style)


def reflected_target(record: Record) -> np.ndarray:
    """Return the target's points (m, 2), second coordinates negated if matched points tend to have opposite signs.

    Only matches within a class count. Fewer matching lines cross then.
    """
    source, target = record.source, record.target
    plan_within_classes = np.where(source.labels[:, None] == target.labels, record.result.plan, 0)
    same_orientation = source.points[:, 1] @ plan_within_classes @ target.points[:, 1] >= 0
    return target.points * (1 if same_orientation else [1, -1])
