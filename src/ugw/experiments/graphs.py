"""Graph matching: two planar graphs with shortest-path distances, GW and UGW (paper, appendix).

The graphs differ in small substructures: half of the cluster is missing in the target, and its long branch ends in a
small circle. The plan transfers the colors of the source to the target. GW must match all mass and exchanges the
branches; with a small rho the small circle is not matched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import ugw

from .. import datasets
from ..plots import figures as plots
from ..plots.style import STYLE
from ._shared import format_flag, format_rho, method_name, set_heading, uniform_weights, write_results

RHOS = (0.1, 1.0, 10.0, math.inf)
EPS = 1e-2
# Masses of UGW at rho = 0.1, 1, 10 on the authors' graphs, with a ring of radius 1.
PUBLISHED_MASSES = (0.645, 0.925, 0.98)
# A node counts as unmatched if the mass that it sends or receives is below this fraction of its weight.
MIN_KEPT_FRACTION = 0.05
# Positions in the unit square, and their colors; nodes between them get a mixture of these colors.
_ANCHORS = ((0.4, 0.1), (0.05, 0.9), (0.88, 0.7), (0.4, 0.5))
_ANCHOR_COLORS = (STYLE.palette[0], STYLE.palette[1], STYLE.palette[3], STYLE.palette[2])


@dataclass(frozen=True, eq=False)
class GraphMatching:
    """The result of a solve, with a plan (n, m), between two graphs of n and m nodes. title: heading of its picture."""

    title: str
    source: datasets.LabeledGraph
    target: datasets.LabeledGraph
    result: ugw.Result

    @property
    def mass(self) -> float:
        """Total mass of the plan."""
        return float(self.result.mass)

    @property
    def kept_fractions(self) -> tuple[np.ndarray, np.ndarray]:
        """Mass that each source node sends, (n,), and target node receives, (m,), over 1/n or 1/m; may exceed 1."""
        plan = self.result.plan
        first, second = uniform_weights(plan)
        return plan.sum(axis=1) / first, plan.sum(axis=0) / second

    @property
    def received_fractions(self) -> dict[str, float]:
        """Mass that each part of the target, such as its ring, receives, divided by the part's weight; by name."""
        fraction = self.kept_fractions[1]
        return {name: float(fraction[self.target.labels == k].mean()) for k, name in enumerate(self.target.names)}

    @property
    def n_unmatched(self) -> int:
        """Number of nodes of both graphs that send or receive less than `MIN_KEPT_FRACTION` (5 %) of their weight."""
        return int(sum((fraction < MIN_KEPT_FRACTION).sum() for fraction in self.kept_fractions))

    @property
    def part_to_part(self) -> float:
        """Fraction of the transported mass that goes from a part to the part of the same name."""
        first, second = (np.array(side.names)[side.labels] for side in (self.source, self.target))
        return float(self.result.plan[first[:, None] == second].sum() / self.result.plan.sum())

    @property
    def line(self) -> str:
        """A line of the table: title, mass, `received_fractions`, `part_to_part`, unmatched nodes, convergence."""
        parts = "".join(f"{share:>14.1%}" for share in self.received_fractions.values())
        converged = format_flag(self.result.converged)
        return (
            f"{self.title:<15} {self.mass:>7.4f}{parts} {self.part_to_part:>13.1%} {self.n_unmatched:>9} {converged:>6}"
        )

    @property
    def numbers(self) -> dict[str, Any]:
        """Title, mass, fractions, number of unmatched nodes, value, distortion and convergence, for a JSON file.

        Keys: title, mass, received (a dict, target part → fraction of its weight), part_to_part (a number, the share of
        the mass that goes to the part of the same name), discarded_nodes, value, distortion, converged.
        """
        return {
            "title": self.title,
            "mass": self.mass,
            "received": self.received_fractions,
            "part_to_part": self.part_to_part,
            "discarded_nodes": self.n_unmatched,
            "value": float(self.result.value),
            "distortion": float(self.result.terms.distortion),
            "converged": bool(self.result.converged),
        }


def header(record: GraphMatching) -> str:
    """Return the first line of the table, the names of the columns; one column for each part of the record's target."""
    parts = "".join(f"{name:>14}" for name in record.received_fractions)
    return f"{'':<15} {'mass':>7}{parts} {'part to part':>13} {'discarded':>9} {'conv.':>6}"


LEGEND = "parts of the target: mass received over weight; discarded: nodes that move less than 5 % of their weight"


def run(*, n: int = 160, rhos: Sequence[float] = RHOS, eps: float = EPS, seed: int = 0) -> list[GraphMatching]:
    """Return for each rho a record of the result of UGW, of GW for rho = ∞, between the graphs of `planar_graphs`.

    A record has a title, both graphs, and the `ugw.Result`. n: approximate number of nodes of each graph.

    >>> record = run(n=40, rhos=(0.1,))[0]
    >>> min(record.received_fractions, key=record.received_fractions.get)
    'small circle'
    """
    source, target = datasets.planar_graphs(n, seed=seed)
    x, y = source.space(), target.space()
    return [
        GraphMatching(f"{method_name(rho)}, {format_rho(rho)}", source, target, ugw.solve(x, y, rho=rho, eps=eps))
        for rho in rhos
    ]


def node_colors(graph: datasets.LabeledGraph) -> np.ndarray:
    """Return RGB colors (n, 3) in [0, 1] of the nodes, mixtures of four colors by position, similar for neighbors."""
    distance = np.linalg.norm(plots.layout(graph.graph)[:, None] - np.array(_ANCHORS), axis=2)
    weight = np.exp(-((distance / 0.18) ** 2) / 2) + 1e-9
    return (weight / weight.sum(axis=1, keepdims=True)) @ np.array([to_rgb(color) for color in _ANCHOR_COLORS])


def figure(records: Sequence[GraphMatching]) -> Figure:
    """Return a matplotlib figure with a column for each matching: the source, and below it the target.

    Target nodes have the mean color of the source nodes that are matched to them.
    """
    canvas = Figure(figsize=(2.9 * len(records), 5.8), layout="constrained")
    panels = canvas.subplots(2, len(records), squeeze=False)
    source_colors = node_colors(records[0].source)
    for (above, below), record in zip(panels.T, records, strict=True):
        sent, _ = record.kept_fractions
        plots.colored_graph(record.source.graph, source_colors, shares=sent, ax=above)
        weights = uniform_weights(record.result.plan)[1]
        plots.color_transfer(record.result, source_colors, record.target.graph, weights=weights, ax=below)
        circle = f"{record.received_fractions['small circle']:.0%} of the small circle matched"
        set_heading(above, record.title, f"mass {record.mass:.3f}, {record.part_to_part:.0%} part to part\n{circle}")
    for ax, side in zip(panels[:, 0], ("source", "target"), strict=True):
        style = {"fontsize": 10, "color": STYLE.ink, "rotation": 90, "va": "center", "ha": "right"}
        ax.text(-0.02, 0.5, side, transform=ax.transAxes, **style)
    return canvas


def compare_with_paper(records: Sequence[GraphMatching]) -> list[str]:
    """Return lines: masses of the first three plans (rho = 0.1, 1, 10) and the paper's; last why they may differ."""
    rows = [
        f"{record.title:<15} mass {record.mass:.3f}, the paper's graphs {published:g}"
        for record, published in zip(records, PUBLISHED_MASSES, strict=False)
    ]
    note = "ours are graphs of the same kind, drawn by another generator and smaller: the masses need not be equal"
    return [*rows, note]


def reproduce(folder: Path, echo: Callable[[str], None]) -> None:
    """Solve UGW between planar graphs for each rho, `echo` a table, and write graphs.png and .json into `folder`."""
    records = run()
    lines = (record.line for record in records)
    echo("\n".join((header(records[0]), *lines, LEGEND, *compare_with_paper(records))))
    numbers = {"eps": EPS, "published_masses": PUBLISHED_MASSES, "solved": [record.numbers for record in records]}
    write_results(folder, "graphs", figure(records), numbers, dpi=110)
