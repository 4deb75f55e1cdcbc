"""The largest matches of points in a plan, stored or lazy, computed block by block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..results.lazy_plan import LazyPlan
from ..results.projection import to_numpy
from .config import REPORT_CONFIG

# Returns the rows (k, ·) of the plan at these indices (k,).
ReadRows = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Matches:
    """The largest matches of k points of one space to points of the opposite space.

    points: (k,) indices; partners, masses: for each of these points the indices of the matched points and the plan
    entries, largest first.
    """

    points: np.ndarray
    partners: list[np.ndarray]
    masses: list[np.ndarray]


def row_reader(plan: Any, side: int) -> ReadRows:
    """Return a function of indices (k,) that returns these rows (k, m) of a plan (n, m), or columns (k, n) for side 1.

    plan: an array, a tensor or a LazyPlan.
    """
    if isinstance(plan, LazyPlan):
        lazy = plan if side == 0 else plan.T
        return lambda index: to_numpy(lazy.rows(index))
    array = to_numpy(plan)
    return lambda index: array[index] if side == 0 else array[:, index].T


def largest_matches(read_rows: ReadRows, points: np.ndarray, kept_fractions: np.ndarray, width: int) -> Matches:
    """Return for each of k points the largest entries of its row of the plan and their columns, largest first.

    A point has at most 10 matches: positive entries that are at least 0.001 times the largest one of the row, equal
    ones in the order of their partners. It has none if it sends or receives less than 1 % of its weight. These limits
    are fields of REPORT_CONFIG.
    points: (k,) indices; kept_fractions: (n,), the fraction of its weight that each point of the space sends or
    receives; width: length of a row, the number of points of the opposite space.
    """
    k, step = min(REPORT_CONFIG.matches_per_point, width), max(1, REPORT_CONFIG.max_block_entries // width)
    partners: list[np.ndarray] = []
    masses: list[np.ndarray] = []
    for start in range(0, len(points), step):
        index = points[start : start + step]
        block = read_rows(index)
        columns = np.argpartition(-block, k - 1, axis=1)[:, :k]
        entries = np.take_along_axis(block, columns, axis=1)
        order = np.lexsort((columns, -entries))
        for fraction, partner, entry in zip(
            kept_fractions[index],
            np.take_along_axis(columns, order, axis=1),
            np.take_along_axis(entries, order, axis=1),
            strict=True,
        ):
            is_large = (entry > 0) & (entry >= REPORT_CONFIG.min_relative_match * entry.max())
            is_kept = is_large & (fraction >= REPORT_CONFIG.min_kept_fraction)
            partners.append(partner[is_kept])
            masses.append(entry[is_kept])
    return Matches(points, partners, masses)


@dataclass(frozen=True, eq=False)
class MatchPairs:
    """Pairs (i, j) of matched points, in the order in which the page draws them.

    i, j: (k,) indices in the first and second space; mass: (k,) plan entries; n_first: number of pairs at the beginning
    that contain the largest match of each point.
    """

    i: np.ndarray
    j: np.ndarray
    mass: np.ndarray
    n_first: int


def merge_matches(x: Matches, y: Matches, max_pairs: int) -> MatchPairs:
    """Return the index pairs (i, j), with plan entries, of the matches of points of both spaces, at most `max_pairs`.

    `n_first` is the number of those at the beginning that are the largest match of one of their points. x, y: matches
    of points of the first and of the second space; a pair that is in both is returned once. First come the largest
    matches of each point, then the second largest, and so on, each ordered by mass: ordered by mass alone, the first
    thousand could all belong to a few points.
    """
    counts_x, counts_y = ([len(partners) for partners in side.partners] for side in (x, y))
    i = np.concatenate([np.repeat(x.points, counts_x), *y.partners]).astype(int)
    j = np.concatenate([*x.partners, np.repeat(y.points, counts_y)]).astype(int)
    mass = np.concatenate([*x.masses, *y.masses]).astype(float)
    rank = np.concatenate([np.zeros(0, int), *(np.arange(count) for count in (*counts_x, *counts_y))])
    order = np.lexsort((j, i, -mass, rank))
    # A match may be in the lists of both its ends; its first occurrence has the lower rank.
    _, first_occurrence = np.unique(np.stack([i, j])[:, order], axis=1, return_index=True)
    unique = order[np.sort(first_occurrence)]
    n_first = int((rank[unique] == 0).sum())
    unique = unique[:max_pairs]
    return MatchPairs(i[unique], j[unique], mass[unique], min(n_first, max_pairs))
