"""Which pairs are solved together: classes of alike sizes, and blocks of pairs, each a tile of the matrix.

Blocks depend on the sizes of the spaces, the device and the method alone, never on how many workers there are: a run
that goes on with other workers has the same blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

# The work of all pairs grows by at most this share through padding. Of fewer points than this a space takes no less
# time: calls, not arithmetic, are most of it.
WASTE, TINY = 0.3, 24
# Entries of the plans of a block: at least and at most so many, and between them such a share of all that a few
# workers have something to do. A GPU wants many pairs at a time.
LEAST = {"cpu": 2**18, "cuda": 2**26}
MOST = {"cpu": 2**19, "cuda": 2**27}
SHARE = 1 / 32

Pair = tuple[int, int]


@dataclass(frozen=True)
class Block:
    """Pairs (i, j) that are solved together, i of the first list and j of the second.

    own: None, or the list, 0 or 1, of which each space is paired with itself.
    """

    pairs: tuple[Pair, ...]
    work: float
    own: int | None = None

    @property
    def rows(self) -> list[int]:
        """The spaces of the first list that it needs."""
        return sorted({i for i, _ in self.pairs})

    @property
    def cols(self) -> list[int]:
        """Those of the second."""
        return sorted({j for _, j in self.pairs})


def budget(entries: float, device: str, weight: int) -> int:
    """Entries of the plans of a block, if all pairs have so many; weight: how much more a pair takes than another."""
    place = device if device in MOST else "cpu"
    return max(1, int(min(MOST[place], max(LEAST[place], SHARE * entries)) // weight))


def tiles(sizes: Sequence[int], others: Sequence[int], entries: int, wanted: Callable[[int, int], bool]) -> list[Block]:
    """Blocks of the pairs (i, j) that are wanted, of at most so many entries; one pair may have more."""
    made = []
    for one, other in product(classes(sizes), classes(others)):
        most = max(1, entries // (sizes[one[0]] * others[other[0]]))
        cols = min(len(other), max(math.isqrt(most), most // len(one)))
        for top, left in product(_runs(one, most // cols), _runs(other, cols)):
            pairs = tuple((i, j) for i, j in product(top, left) if wanted(i, j))
            if pairs:
                made.append(Block(pairs, sum(_work(sizes[i], others[j]) for i, j in pairs)))
    return made


def diagonal(sizes: Sequence[int], entries: int, own: int = 0) -> list[Block]:
    """Blocks of each space of a list with itself."""
    runs = [run for group in classes(sizes) for run in _runs(group, max(1, entries // sizes[group[0]] ** 2))]
    return [Block(tuple((i, i) for i in run), sum(2 * _work(sizes[i], sizes[i]) for i in run), own) for run in runs]


def classes(sizes: Sequence[int], waste: float = WASTE) -> list[list[int]]:
    """Indices of spaces in classes, the largest first, each to be padded to its largest.

    As few classes as keep the padding small: the work of all pairs goes with the square of the sum of the sizes.

    >>> classes([5, 100, 6, 98, 5])
    [[1, 3], [2, 0, 4]]
    """
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    sizes = [max(size, TINY) for size in sizes]
    known, counts = (found[::-1] for found in np.unique(np.asarray(sizes), return_counts=True))
    below = np.concatenate([[0], counts.cumsum()])
    # cost[s, e]: the sum of the padded sizes of a class of the s-th to the e-th size, the e-th not included.
    cost = np.full((len(below), len(below)), np.inf)
    cost[:-1] = known[:, None] * (below[None, :] - below[:-1, None]).astype(float)
    cost[np.tril_indices(len(below))] = np.inf
    best, starts = cost[0], [np.zeros(len(below), dtype=int)]
    while best[-1] > math.sqrt(1.0 + waste) * sum(sizes):
        longer = best[:, None] + cost
        starts.append(longer.argmin(0))
        best = longer.min(0)
    cuts = [len(known)]
    for start in reversed(starts):
        cuts.append(int(start[cuts[-1]]))
    smallest = [known[end - 1] for end in cuts[-2::-1]]  # of each class, the largest first
    made: list[list[int]] = [[] for _ in smallest]
    for i in order:
        made[next(k for k, least in enumerate(smallest) if sizes[i] >= least)].append(i)
    return made


def _runs(items: Sequence[int], most: int) -> list[Sequence[int]]:
    """Items in runs of at most so many, none much shorter than another."""
    count = -(-len(items) // max(1, most))
    bounds = [round(k * len(items) / count) for k in range(count + 1)]
    return [items[a:b] for a, b in pairwise(bounds)]


def _work(n: int, m: int) -> float:
    return n * m * (n + m + 100.0)  # products, and what goes with the entries of a plan
