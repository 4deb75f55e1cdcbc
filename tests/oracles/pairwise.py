"""Spaces for the tests of `pairwise`, and its slow twin: a double loop over single pairs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import networkx
import numpy as np

import ugw
from ugw.all_pairs import blocks as tiles

QUICK = ugw.Method("ugw", init="product")


def clouds(sizes=(5, 9, 7, 12, 9), *, seed=0, unit=False, features=0):
    """Random points in the square with uneven weights of uneven masses, or of mass 1."""
    rng, made = np.random.default_rng(seed), []
    for n in sizes:
        weights = rng.random(n) + 0.2
        weights *= (1.0 if unit else rng.uniform(0.5, 1.5)) / weights.sum()
        more = rng.random((n, features)) if features else None
        made.append(ugw.Space.from_points(rng.random((n, 2)), weights=weights, features=more))
    return made


def graphs():
    """Graphs with symmetries: most of their plans tie with others, and rounding must not choose among them."""
    made = [
        networkx.path_graph(9),
        networkx.cycle_graph(12),
        networkx.complete_graph(6),
        networkx.gnp_random_graph(14, 0.4, seed=2),
    ]
    return [ugw.Space.from_graph(graph) for graph in made]


def loop(value, xs, ys):
    """The matrix of value(x, y), one pair at a time."""
    return np.array([[float(value(x, y)) for y in ys] for x in xs])


def larger_first(value):
    """The function with its arguments exchanged where the second space is larger, as `pairwise` solves a pair."""
    return lambda x, y: value(x, y) if x.n >= y.n else value(y, x)


@contextmanager
def blocks_of(entries: int) -> Iterator[None]:
    """Blocks whose plans have at most so many entries."""
    small = {"cpu": entries, "cuda": entries}
    with mock.patch.object(tiles, "LEAST", small), mock.patch.object(tiles, "MOST", small):
        yield
