"""Spaces for the tests of `pairwise`, and its reference: a double loop over single pairs."""

from __future__ import annotations

from contextlib import AbstractContextManager

import networkx
import numpy as np

import ugw
from oracles.thresholds import changed_thresholds
from ugw.all_pairs.config import PAIRWISE_CONFIG

QUICK = ugw.Method("ugw", init="product")


def clouds(sizes=(5, 9, 7, 12, 9), *, seed=0, unit=False, features=0):
    """Return spaces of random points in the square with different weights and masses, or of mass 1 with `unit`."""
    rng, spaces = np.random.default_rng(seed), []
    for n in sizes:
        weights = rng.random(n) + 0.2
        weights *= (1.0 if unit else rng.uniform(0.5, 1.5)) / weights.sum()
        feature_array = rng.random((n, features)) if features else None
        spaces.append(ugw.Space.from_points(rng.random((n, 2)), weights=weights, features=feature_array))
    return spaces


def graphs():
    """Four graphs, three of them with symmetries: many plans have the same value, and rounding must not choose one."""
    graph_list = [
        networkx.path_graph(9),
        networkx.cycle_graph(12),
        networkx.complete_graph(6),
        networkx.gnp_random_graph(14, 0.4, seed=2),
    ]
    return [ugw.Space.from_graph(graph) for graph in graph_list]


def pairwise_loop(value, xs, ys):
    """The matrix of value(x, y) over all x and y, one pair at a time."""
    return np.array([[float(value(x, y)) for y in ys] for x in xs])


def limit_block_entries(entries: int) -> AbstractContextManager[None]:
    """Inside the returned context a block of pairs has plans of at most `entries` entries in all."""
    bounds = {f"{bound}_block_entries_{device}": entries for bound in ("min", "max") for device in ("cpu", "cuda")}
    return changed_thresholds(PAIRWISE_CONFIG, **bounds)


def have_equal_bytes(one, other):
    """Return whether two results have the same bytes."""
    return one.values.tobytes() == other.values.tobytes() and one.masses.tobytes() == other.masses.tobytes()
