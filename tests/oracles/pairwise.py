"""Spaces for the tests of `pairwise`, and its reference: a double loop over single pairs."""

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
    """Four graphs, three of them with symmetries: many plans have the same value, and rounding must not choose one."""
    made = [
        networkx.path_graph(9),
        networkx.cycle_graph(12),
        networkx.complete_graph(6),
        networkx.gnp_random_graph(14, 0.4, seed=2),
    ]
    return [ugw.Space.from_graph(graph) for graph in made]


def loop(value, xs, ys):
    """The matrix of value(x, y) over all x and y, one pair at a time."""
    return np.array([[float(value(x, y)) for y in ys] for x in xs])


@contextmanager
def blocks_of(entries: int) -> Iterator[None]:
    """Inside this context a block of pairs has plans of at most `entries` entries in all."""
    small = {"cpu": entries, "cuda": entries}
    with mock.patch.object(tiles, "LEAST", small), mock.patch.object(tiles, "MOST", small):
        yield
