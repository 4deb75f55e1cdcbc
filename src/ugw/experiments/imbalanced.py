"""Robustness to imbalanced classes: balanced GW beside UGW (Figure 1 of the paper; `ugw demo`, `ugw reproduce`).

An ellipsoid and a ball in R³, half of the mass each, against an ellipse and a square in R² with .3 and .7 of
it, then .7 and .3. GW must move all mass, so that at least .2 of it goes to the other class, and for one of
the mixtures it is cheaper still to exchange the classes. UGW leaves the surplus where it is and keeps them
apart.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import ugw

from .. import datasets
from ..plots import figures as plots
from ..plots.style import STYLE
from ._shared import uniform, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHARES = (0.3, 0.7)  # of the ellipse in the target
RHO = 0.1  # the shapes lie about 1 apart: moving mass between them costs more than leaving it
EPS = 1e-2
POINTS = 200


@dataclass(frozen=True, eq=False)
class Record:
    """One solve: the data, what was asked, the result and its time.

    >>> record = run(n=20, eps=0.02, shares=(0.3,))[1]
    >>> record.method, record.across < 0.05
    ('UGW', True)
    """

    source: datasets.Labeled
    target: datasets.Labeled
    share: float
    rho: float
    result: ugw.Result
    seconds: float

    @property
    def method(self) -> str:
        """GW where the marginals are hard, else UGW."""
        return "GW" if math.isinf(self.rho) else "UGW"

    @property
    def mixture(self) -> str:
        """The class masses of the target."""
        return f"{self.share:.1f} ellipse + {1 - self.share:.1f} square"

    @property
    def across(self) -> float:
        """The share of the moved mass that goes from one class to the other."""
        apart = self.source.labels[:, None] != self.target.labels
        return float(self.result.plan[apart].sum() / self.result.plan.sum())


def run(
    *,
    n: int = POINTS,
    rho: float = RHO,
    eps: float = EPS,
    shares: Sequence[float] = SHARES,
    seed: int = 0,
    report: Callable[[Record], None] | None = None,
) -> list[Record]:
    """Solve GW and UGW for each mixture, n points a side; `report` is called with each record as it comes.

    >>> [record.method for record in run(n=20, eps=0.02, shares=(0.3,))]
    ['GW', 'UGW']
    """
    records = []
    for share in shares:
        source, target = datasets.imbalanced_mixtures(n, share=share, seed=seed)
        x, y = source.space(), target.space()
        for strength in (math.inf, rho):
            start = time.perf_counter()
            result = ugw.solve(x, y, rho=strength, eps=eps)
            records.append(Record(source, target, share, strength, result, time.perf_counter() - start))
            if report is not None:
                report(records[-1])
    return records


HEADER = (
    f"{'target':<24} {'':<4} {'value':>8} {'distort.':>9} {'marg. a':>8} {'marg. b':>8} {'entropy':>8} "
    f"{'kept':>6} {'across':>7} {'conv.':>5} {'sec.':>5}"
)
LEGEND = "kept: mass of the plan; across: share of it between different classes; conv.: converged"
PAPER = "the paper shows pictures: GW matches the shapes poorly as their masses differ, UGW recovers coherent matchings"


def row(record: Record) -> str:
    """One line of the table under `HEADER`: value, its terms, mass kept, mass across, converged, seconds.

    >>> print(row(run(n=20, eps=0.02, shares=(0.3,))[0]).split()[5])
    GW
    """
    result, terms = record.result, record.result.terms
    converged = "yes" if result.converged else "NO"
    return (
        f"{record.mixture:<24} {record.method:<4} {result.value:>8.4f} {terms.distortion:>9.4f} "
        f"{terms.marginal_a:>z8.4f} {terms.marginal_b:>z8.4f} {terms.entropy:>8.4f} "
        f"{result.mass:>6.1%} {record.across:>7.1%} {converged:>5} {record.seconds:>5.1f}"
    )


def figure(records: Sequence[Record]) -> Figure:
    """A panel for each record, mixture by mixture, with its numbers above. Red lines join different classes.

    >>> len(figure(run(n=20, eps=0.02, shares=(0.3,))).axes)
    2
    """
    from matplotlib.figure import Figure

    mixtures = list(dict.fromkeys(record.share for record in records))
    groups = [[record for record in records if record.share == share] for share in mixtures]
    made = Figure(figsize=(3.0 * len(records), 4.2))
    top, *_ = made.subfigures(2, 1, height_ratios=(12, 1))
    parts = top.subfigures(1, len(groups), squeeze=False)[0]
    for part, group in zip(parts, groups, strict=True):
        part.suptitle(f"target: {group[0].mixture}", fontsize=11, color=STYLE.ink, y=0.98)
        part.subplots_adjust(left=0.01, right=0.99, bottom=0.0, top=0.82, wspace=0.02)
        for k, record in enumerate(group, start=1):
            _panel(part.add_subplot(1, len(group), k, projection="3d"), record)
    _legend(made, records[0])
    return made


def show(echo: Callable[[str], None]) -> list[Record]:
    """Run and print the table, row by row as they come."""
    echo(HEADER)
    records = run(report=lambda record: echo(row(record)))
    echo(LEGEND)
    return records


def reproduce(folder: Path, echo: Callable[[str], None]) -> None:
    """Run, print the numbers, and write imbalanced.png and imbalanced.json."""
    records = show(echo)
    echo(PAPER)
    solved = [
        {
            "share": record.share,
            "method": record.method,
            "rho": str(record.rho),
            "value": float(record.result.value),
            "mass": float(record.result.mass),
            "across": record.across,
            "converged": bool(record.result.converged),
        }
        for record in records
    ]
    write(folder, "imbalanced", figure(records), {"eps": EPS, "solved": solved}, dpi=100)


def _panel(ax: Axes, record: Record) -> None:
    source, target, result = record.source, record.target, record.result
    weights, labels = uniform(result.plan), (source.labels, target.labels)
    plots.matching(result, source.points, _as_seen(record), weights=weights, labels=labels, lines=70, ax=ax)
    name = "GW" if record.method == "GW" else f"UGW, ρ = {record.rho:g}"
    ended = "" if result.converged else ", NOT CONVERGED"
    numbers = f"{record.across:.0%} across classes\nvalue {result.value:.3f}, mass kept {result.mass:.0%}{ended}"
    texts = ((1.12, name, 11, "bold"), (1.05, numbers, 9, "normal"))
    for height, text, size, weight in texts:
        style = {"fontsize": size, "fontweight": weight, "color": STYLE.ink, "ha": "center", "va": "top"}
        ax.text2D(0.5, height, text, transform=ax.transAxes, **style)


def _as_seen(record: Record) -> np.ndarray:
    """The target's points, mirrored if the plan mirrors the shapes: the distances stay, fewer lines cross."""
    source, target = record.source, record.target
    within = np.where(source.labels[:, None] == target.labels, record.result.plan, 0)
    upright = source.points[:, 1] @ within @ target.points[:, 1] >= 0
    return target.points * (1 if upright else [1, -1])


def _legend(made: Figure, record: Record) -> None:
    from matplotlib.lines import Line2D

    dot = {"marker": "o", "linestyle": "", "markersize": 6}
    handles = [
        Line2D([], [], color=color, label=f"{a} and {b}", **dot)
        for color, a, b in zip(STYLE.palette, record.source.names, record.target.names, strict=False)
    ]
    handles.append(Line2D([], [], color=STYLE.ink, linewidth=1, label="a point's largest plan entry"))
    handles.append(Line2D([], [], color=STYLE.mismatch, linewidth=1, label="across classes"))
    style = {"frameon": False, "fontsize": 9, "labelcolor": STYLE.ink, "handletextpad": 0.5}
    made.legend(handles=handles, loc="lower center", ncols=len(handles), **style)
