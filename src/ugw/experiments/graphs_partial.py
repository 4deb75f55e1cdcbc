"""Partial GW on the graphs of `graphs`, at the masses of the UGW plans (paper, appendix).

UGW reduces the mass of nodes that do not fit; partial GW matches a node completely or not at all, so that its plan is
that of GW between subgraphs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import ugw

from . import graphs
from ._shared import write_results

RHOS = tuple(rho for rho in graphs.RHOS if math.isfinite(rho))


def run(
    *, n: int = 160, rhos: Sequence[float] = RHOS, eps: float = graphs.EPS
) -> tuple[list[graphs.GraphMatching], list[graphs.GraphMatching]]:
    """Return two lists: matchings by UGW for each rho, and matchings by partial GW at the masses of these UGW plans.

    Both end with one entry more, balanced GW: with entropy in the first list, without in the second. An entry has a
    title, both graphs, and the `ugw.Result`.
    n: approximate number of nodes of each graph; eps: of UGW.

    >>> unbalanced, partial = run(n=32, rhos=(0.1,))
    >>> [round(abs(u.mass - p.mass), 6) for u, p in zip(unbalanced, partial)]
    [0.0, 0.0]
    """
    unbalanced = graphs.run(n=n, rhos=(*rhos, math.inf), eps=eps)
    x, y = unbalanced[0].source.space(), unbalanced[0].target.space()
    partial = []
    for record in unbalanced:
        mass = min(record.mass, 1.0)  # hard marginals hold only up to rounding
        title = f"PGW, m = {mass:.3f}"
        partial.append(graphs.GraphMatching(title, record.source, record.target, ugw.solve(x, y, rho=ugw.Mass(mass))))
    return unbalanced, partial


def reproduce(folder: Path, echo: Callable[[str], None]) -> None:
    """Solve UGW and partial GW, `echo` a table, and write graphs-partial.png and .json into `folder`."""
    unbalanced, partial = run()
    lines = [record.line for pair in zip(unbalanced, partial, strict=True) for record in pair]
    echo("\n".join((graphs.header(partial[0]), *lines, graphs.LEGEND, *graphs.compare_with_paper(partial))))
    numbers = {
        "eps": graphs.EPS,
        "published_masses": graphs.PUBLISHED_MASSES,
        "unbalanced": [record.numbers for record in unbalanced],
        "partial": [record.numbers for record in partial],
    }
    write_results(folder, "graphs-partial", graphs.figure(partial), numbers, dpi=110)
