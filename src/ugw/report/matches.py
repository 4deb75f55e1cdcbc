"""Where the mass goes: what a report asks of a plan, stored or not, without ever making all of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..plots._drawing import to_numpy
from ..results.lazy_plan import LazyPlan

KEPT = 10  # matches of a point
LEAST = 1e-3  # of a point's largest match, below which another is not kept
LEFT = 0.01  # of a point's weight: one that sends or receives less is left behind, and has no matches
BLOCK = 2**24  # entries in hand at a time

Rows = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Matches:
    """The largest matches of some points. points: (k,) indices; a list for each: partners, and the masses they get."""

    points: np.ndarray
    partners: list[np.ndarray]
    masses: list[np.ndarray]


def seen_from(plan: Any, side: int) -> Rows:
    """The rows (side 0) or columns (side 1) of some points, (k, ·)."""
    if isinstance(plan, LazyPlan):
        seen = plan if side == 0 else plan.T
        return lambda index: to_numpy(seen.rows(index))
    array = to_numpy(plan)
    return lambda index: array[index] if side == 0 else array[:, index].T


def largest(rows: Rows, points: np.ndarray, shares: np.ndarray, width: int) -> Matches:
    """The KEPT largest of the `width` entries of these points' rows, largest first; ties go to the lowest partner.

    shares: (n,), how much of its weight every point sends or receives. Those left behind have no matches.
    """
    k, step = min(KEPT, width), max(1, BLOCK // width)
    partners: list[np.ndarray] = []
    masses: list[np.ndarray] = []
    for start in range(0, len(points), step):
        index = points[start : start + step]
        block = rows(index)
        kept = np.argpartition(-block, k - 1, axis=1)[:, :k]
        mass = np.take_along_axis(block, kept, axis=1)
        order = np.lexsort((kept, -mass))
        for share, who, what, by in zip(shares[index], kept, mass, order, strict=True):
            good = (what[by] > 0) & (what[by] >= LEAST * what.max()) & (share >= LEFT)
            partners.append(who[by][good])
            masses.append(what[by][good])
    return Matches(points, partners, masses)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Matches to draw, in this order. i, j, mass: (k,); the largest match of each point is among the `first`."""

    i: np.ndarray
    j: np.ndarray
    mass: np.ndarray
    first: int


def pairs_of(x: Matches, y: Matches, most: int) -> Pairs:
    """The matches of both sides, each once, at most so many: the largest of each point, its second, ...

    Each round has the heavier first. By mass alone the first thousand may all be those of a few points.
    """
    counts_x, counts_y = ([len(some) for some in side.partners] for side in (x, y))
    i = np.concatenate([np.repeat(x.points, counts_x), *y.partners]).astype(int)
    j = np.concatenate([*x.partners, np.repeat(y.points, counts_y)]).astype(int)
    mass = np.concatenate([*x.masses, *y.masses]).astype(float)
    rank = np.concatenate([np.zeros(0, int), *(np.arange(count) for count in (*counts_x, *counts_y))])
    order = np.lexsort((j, i, -mass, rank))
    _, where = np.unique(np.stack([i, j])[:, order], axis=1, return_index=True)  # the first of each, hence the best
    kept = order[np.sort(where)]
    first = int((rank[kept] == 0).sum())
    kept = kept[:most]
    return Pairs(i[kept], j[kept], mass[kept], min(first, most))


def shares_of(sums: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """What each point sends or receives, over its weight; 0 where it has none."""
    return np.divide(sums, weights, out=np.zeros_like(weights), where=weights > 0)
