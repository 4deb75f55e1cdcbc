"""Division of all pairs into blocks that are solved together: spaces of similar sizes, tiles of the matrix.

Blocks depend only on the sizes of the spaces, the device, the method and its options, not on the number of workers or
on measured times: a run that is continued, with other workers or on another machine, has the same blocks. On a CPU the
time of a block is limited by an estimate from tables in the configuration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from .config import PAIRWISE_CONFIG

Pair = tuple[int, int]


@dataclass(frozen=True)
class Block:
    """Pairs (i, j) that are solved as one batch, positions of spaces in the first and in the second list.

    work: estimated arithmetic operations; self_side: None, or 0 or 1 for pairs (i, i) of spaces of the first or second
    list with themselves.
    """

    pairs: tuple[Pair, ...]
    work: float
    self_side: int | None = None


def max_block_entries(total_entries: float, device: str, relative_cost: int) -> int:
    """Return the maximum number of plan entries of a block, the pairs of spaces that are solved as one batch.

    total_entries: plan entries of all pairs; device: "cpu" or "cuda"; relative_cost: time of a pair compared with one
    of method "ugw".
    """
    smallest, largest = PAIRWISE_CONFIG.block_entries(device)
    entries = min(largest, max(smallest, PAIRWISE_CONFIG.block_fraction * total_entries))
    return max(1, int(entries // relative_cost))


@dataclass(frozen=True)
class BlockLimits:
    """The limits of a block, unless it is a single pair: plan entries, and estimated seconds.

    max_entries: most plan entries; pair_seconds: estimated seconds of a pair, a constant and a factor of the estimated
    work of a step; None for blocks without a limit of time.
    """

    max_entries: int
    pair_seconds: tuple[float, float] | None = None

    def max_pairs(self, n: int, m: int, n_solves: int = 1) -> int:
        """Return the maximum number of pairs of n and m points that are solved as one batch, at least 1.

        n_solves: solves of a pair, by which its estimated seconds are multiplied.
        """
        limit = self.max_entries // (n * m)
        if self.pair_seconds is not None:
            constant, factor = self.pair_seconds
            seconds = n_solves * (constant + factor * _estimated_work(n, m))
            limit = min(limit, int(PAIRWISE_CONFIG.max_block_seconds / seconds))
        return max(1, limit)


def tile_pairs(
    row_sizes: Sequence[int],
    col_sizes: Sequence[int],
    limits: BlockLimits,
    is_wanted: Callable[[int, int], bool] | None = None,
) -> list[Block]:
    """Return blocks within the limits: batches of pairs (i, j), which together hold each wanted pair once and no other.

    A pair is wanted if `is_wanted(i, j)`, or if that is None. row_sizes, col_sizes: numbers of points of the spaces of
    the first and of the second list.
    """
    blocks = []
    for row_group, col_group in product(group_by_padding(row_sizes), group_by_padding(col_sizes)):
        max_pairs = limits.max_pairs(row_sizes[row_group[0]], col_sizes[col_group[0]])
        n_cols = min(len(col_group), max(math.isqrt(max_pairs), max_pairs // len(row_group)))
        for rows, cols in product(_split_evenly(row_group, max_pairs // n_cols), _split_evenly(col_group, n_cols)):
            pairs = tuple((i, j) for i, j in product(rows, cols) if is_wanted is None or is_wanted(i, j))
            if pairs:
                blocks.append(Block(pairs, sum(_estimated_work(row_sizes[i], col_sizes[j]) for i, j in pairs)))
    return blocks


def self_pair_blocks(sizes: Sequence[int], limits: BlockLimits, side: int = 0) -> list[Block]:
    """Return batches of pairs (i, i) that contain each space of a list once; sizes: their numbers of points.

    side: 0 for the first list, 1 for the second.
    """
    blocks = []
    for group in group_by_padding(sizes):
        for indices in _split_evenly(group, limits.max_pairs(sizes[group[0]], sizes[group[0]], n_solves=2)):
            work = sum(2 * _estimated_work(sizes[i], sizes[i]) for i in indices)
            blocks.append(Block(tuple((i, i) for i in indices), work, side))
    return blocks


def group_by_padding(
    sizes: Sequence[int], max_overhead: float = PAIRWISE_CONFIG.max_padding_overhead
) -> list[list[int]]:
    """Return groups of indices of spaces of similar sizes, largest first; a group is to be padded to its largest space.

    The number of groups is the smallest for which padding adds at most the fraction `max_overhead` to the work of all
    pairs, which is proportional to the square of the sum of the sizes.

    >>> group_by_padding([5, 100, 6, 98, 5])
    [[1, 3], [2, 0, 4]]
    """
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    sizes = [max(size, PAIRWISE_CONFIG.min_effective_size) for size in sizes]
    distinct, counts = (array[::-1] for array in np.unique(np.asarray(sizes), return_counts=True))
    n_before = np.concatenate([[0], counts.cumsum()])
    # Dynamic programming over the falling distinct sizes. cost[s, e]: sum of the padded sizes of a group that has the
    # distinct sizes s, ..., e - 1.
    cost = np.full((len(n_before), len(n_before)), np.inf)
    cost[:-1] = distinct[:, None] * (n_before[None, :] - n_before[:-1, None]).astype(float)
    cost[np.tril_indices(len(n_before))] = np.inf
    best, starts = cost[0], [np.zeros(len(n_before), dtype=int)]
    while best[-1] > math.sqrt(1.0 + max_overhead) * sum(sizes):
        with_one_more = best[:, None] + cost
        starts.append(with_one_more.argmin(0))
        best = with_one_more.min(0)
    cuts = [len(distinct)]
    for start in reversed(starts):
        cuts.append(int(start[cuts[-1]]))
    smallest = [distinct[end - 1] for end in cuts[-2::-1]]  # smallest size of each group, the largest group first
    groups: list[list[int]] = [[] for _ in smallest]
    for i in order:
        groups[next(k for k, bound in enumerate(smallest) if sizes[i] >= bound)].append(i)
    return groups


def _split_evenly(items: Sequence[int], max_length: int) -> list[Sequence[int]]:
    """Return consecutive parts of `items` (not empty): the fewest of at most `max_length`, lengths differ by ≤ 1."""
    count = -(-len(items) // max(1, max_length))
    bounds = [round(k * len(items) / count) for k in range(count + 1)]
    return [items[start:end] for start, end in pairwise(bounds)]


def _estimated_work(n: int, m: int) -> float:
    """Return n·m·(n + m + 100), the estimated operations of one step for a pair of spaces of n and m points."""
    return n * m * (n + m + 100.0)  # matrix products, and about 100 operations per entry of a plan
