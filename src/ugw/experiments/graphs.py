"""Graph matching: two planar graphs with shortest paths, GW beside UGW (the paper's appendix).

The graphs are alike but for small sub-structures: half of the cluster is gone in the target, and its long branch
ends in a small circle. Colors of the source are carried over by the plan and averaged by its second marginal.
GW must place all mass, and exchanges the branches for it; a small rho leaves the small circle behind.
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
from ..plots.style import STYLE
from ._shared import heading, strength, uniform, write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RHOS = (0.1, 1.0, 10.0, math.inf)
EPS = 1e-2
PUBLISHED_MASSES = (0.645, 0.925, 0.98)  # of UGW at rho = .1, 1, 10, on the authors' graphs, ring of radius 1
DISCARDED = 0.05  # a node that moves less than this share of its weight is left behind
# Where the source has a pure color; between them colors blend.
_ANCHORS = ((0.4, 0.1), (0.05, 0.9), (0.88, 0.7), (0.4, 0.5))
_PURE = (STYLE.palette[0], STYLE.palette[1], STYLE.palette[3], STYLE.palette[2])


@dataclass(frozen=True, eq=False)
class Matched:
    """Two graphs and a plan between them: what each part of them moves."""

    title: str
    source: datasets.LabeledGraph
    target: datasets.LabeledGraph
    result: ugw.Result

    @property
    def mass(self) -> float:
        """Mass of the plan."""
        return float(self.result.mass)

    @property
    def moved(self) -> tuple[np.ndarray, np.ndarray]:
        """What each node of either graph moves, over its weight, (n,) and (m,)."""
        plan = self.result.plan
        first, second = uniform(plan)
        return plan.sum(axis=1) / first, plan.sum(axis=0) / second

    @property
    def received(self) -> dict[str, float]:
        """What each part of the target receives, over its weight."""
        share = self.moved[1]
        return {name: float(share[self.target.labels == k].mean()) for k, name in enumerate(self.target.names)}

    @property
    def discarded(self) -> int:
        """Nodes of both graphs that the plan leaves behind."""
        return int(sum((share < DISCARDED).sum() for share in self.moved))

    @property
    def part_to_part(self) -> float:
        """The share of the moved mass that goes from a part to the part of the same name."""
        first, second = (np.array(side.names)[side.labels] for side in (self.source, self.target))
        return float(self.result.plan[first[:, None] == second].sum() / self.result.plan.sum())

    @property
    def line(self) -> str:
        """The numbers under `header`."""
        parts = "".join(f"{share:>14.1%}" for share in self.received.values())
        converged = "yes" if self.result.converged else "NO"
        return (
            f"{self.title:<15} {self.mass:>7.4f}{parts} {self.part_to_part:>13.1%} {self.discarded:>9} {converged:>6}"
        )

    @property
    def numbers(self) -> dict[str, Any]:
        """The same for a file."""
        return {
            "title": self.title,
            "mass": self.mass,
            "received": self.received,
            "part_to_part": self.part_to_part,
            "discarded_nodes": self.discarded,
            "value": float(self.result.value),
            "distortion": float(self.result.terms.distortion),
            "converged": bool(self.result.converged),
        }


def header(some: Matched) -> str:
    """The names of the columns."""
    parts = "".join(f"{name:>14}" for name in some.received)
    return f"{'':<15} {'mass':>7}{parts} {'part to part':>13} {'discarded':>9} {'conv.':>6}"


LEGEND = "parts of the target: mass received over weight; discarded: nodes that move less than 5 % of their weight"


def run(*, n: int = 160, rhos: Sequence[float] = RHOS, eps: float = EPS, seed: int = 0) -> list[Matched]:
    """UGW for each rho, GW where it is inf, between graphs of about n nodes.

    >>> found = run(n=40, rhos=(0.1,))[0]
    >>> min(found.received, key=found.received.get)
    'small circle'
    """
    source, target = datasets.planar_graphs(n, seed=seed)
    x, y = source.space(), target.space()
    names = ["GW, ρ = ∞" if math.isinf(rho) else f"UGW, {strength(rho)}" for rho in rhos]
    solved = [ugw.solve(x, y, rho=rho, eps=eps) for rho in rhos]
    return [Matched(name, source, target, result) for name, result in zip(names, solved, strict=True)]


def colors(graph: datasets.LabeledGraph) -> np.ndarray:
    """A color for each node by its place, (n, 3): the parts differ, and neighbors are alike."""
    from matplotlib.colors import to_rgb

    apart = np.linalg.norm(plots.layout(graph.graph)[:, None] - np.array(_ANCHORS), axis=2)
    share = np.exp(-((apart / 0.18) ** 2) / 2) + 1e-9
    return (share / share.sum(axis=1, keepdims=True)) @ np.array([to_rgb(color) for color in _PURE])


def figure(records: Sequence[Matched]) -> Figure:
    """A column for each plan: the source above, the target in the colors that the plan carries over below."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(2.9 * len(records), 5.8), layout="constrained")
    panels = made.subplots(2, len(records), squeeze=False)
    shown = colors(records[0].source)
    for (above, below), record in zip(panels.T, records, strict=True):
        sent, _ = record.moved
        plots.colored_graph(record.source.graph, shown, shares=sent, ax=above)
        weights = uniform(record.result.plan)[1]
        plots.color_transfer(record.result, shown, record.target.graph, weights=weights, ax=below)
        circle = f"{record.received['small circle']:.0%} of the small circle matched"
        heading(above, record.title, f"mass {record.mass:.3f}, {record.part_to_part:.0%} part to part\n{circle}")
    for ax, side in zip(panels[:, 0], ("source", "target"), strict=True):
        style = {"fontsize": 10, "color": STYLE.ink, "rotation": 90, "va": "center", "ha": "right"}
        ax.text(-0.02, 0.5, side, transform=ax.transAxes, **style)
    return made


def published(records: Sequence[Matched]) -> list[str]:
    """Our masses beside the paper's, which belong to other graphs."""
    rows = [
        f"{record.title:<15} mass {record.mass:.3f}, the paper's graphs {theirs:g}"
        for record, theirs in zip(records, PUBLISHED_MASSES, strict=False)
    ]
    return [
        *rows,
        "ours are graphs of the same kind, drawn by another generator and smaller: the masses need not be equal",
    ]


def reproduce(folder: Path, echo: Callable[[str], None]) -> None:
    """Run, print the numbers, and write graphs.png and graphs.json."""
    records = run()
    for line in (header(records[0]), *(record.line for record in records), LEGEND, *published(records)):
        echo(line)
    numbers = {"eps": EPS, "published_masses": PUBLISHED_MASSES, "solved": [record.numbers for record in records]}
    write(folder, "graphs", figure(records), numbers, dpi=110)
