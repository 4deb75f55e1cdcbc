"""Partial GW on the graphs of `graphs`, at the masses that UGW found there (the paper's appendix).

UGW thins out what does not fit, partial GW takes a node or leaves it: its plan is that of GW between sub-graphs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import ugw

from . import graphs
from ._shared import write

RHOS = tuple(rho for rho in graphs.RHOS if math.isfinite(rho))


def run(
    *, n: int = 160, rhos: Sequence[float] = RHOS, eps: float = graphs.EPS
) -> tuple[list[graphs.Matched], list[graphs.Matched]]:
    """UGW for each rho, and partial GW at its mass; then both without a choice: GW with and without entropy.

    >>> unbalanced, partial = run(n=32, rhos=(0.1,))
    >>> [round(abs(u.mass - p.mass), 6) for u, p in zip(unbalanced, partial)]
    [0.0, 0.0]
    """
    unbalanced = graphs.run(n=n, rhos=(*rhos, math.inf), eps=eps)
    x, y = unbalanced[0].source.space(), unbalanced[0].target.space()
    partial = []
    for found in unbalanced:
        mass = min(found.mass, 1.0)  # hard marginals are met to rounding only
        title = f"PGW, m = {mass:.3f}"
        partial.append(graphs.Matched(title, found.source, found.target, ugw.solve(x, y, rho=ugw.Mass(mass))))
    return unbalanced, partial


def reproduce(folder: Path, echo: Callable[[str], None]) -> None:
    """Run, print the numbers, and write graphs-partial.png and graphs-partial.json."""
    unbalanced, partial = run()
    echo(graphs.header(partial[0]))
    for pair in zip(unbalanced, partial, strict=True):
        for record in pair:
            echo(record.line)
    for line in (graphs.LEGEND, *graphs.published(partial)):
        echo(line)
    numbers = {
        "eps": graphs.EPS,
        "published_masses": graphs.PUBLISHED_MASSES,
        "unbalanced": [record.numbers for record in unbalanced],
        "partial": [record.numbers for record in partial],
    }
    write(folder, "graphs-partial", graphs.figure(partial), numbers, dpi=110)
