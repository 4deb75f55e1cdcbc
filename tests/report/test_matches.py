"""The largest matches of a plan, against sorting of the plan itself."""

import numpy as np
import pytest

from oracles.plans import streamed_result
from oracles.thresholds import changed_thresholds
from ugw.report.config import REPORT_CONFIG
from ugw.report.matches import Matches, largest_matches, merge_matches, row_reader
from ugw.results.lazy_plan import LazyPlan
from ugw.results.projection import divide_by_weights


def plan_and_weights(seed=0, n=13, m=17):
    """Entries over many orders of magnitude, a tie, a row of almost no mass and a column of zeros."""
    rng = np.random.default_rng(seed)
    plan = 10.0 ** rng.uniform(-6, 0, size=(n, m))
    plan[3] = 0.25  # ties, more than are kept
    plan[5] *= 1e-9
    plan[:, 4] = 0
    return plan, rng.uniform(0.5, 2, size=n), rng.uniform(0.5, 2, size=m)


def sorted_matches(row, weight):
    """Return the matches of one point, by sorting all of them."""
    if row.sum() < REPORT_CONFIG.min_kept_fraction * weight:
        return []
    ordered = sorted(range(len(row)), key=lambda j: (-row[j], j))[: REPORT_CONFIG.matches_per_point]
    return [(j, row[j]) for j in ordered if row[j] > 0 and row[j] >= REPORT_CONFIG.min_relative_match * row.max()]


@pytest.mark.parametrize("block", [1, 40, 2**20])
@pytest.mark.parametrize("side", [0, 1])
def test_the_largest_matches_are_those_of_a_sort(side, block):
    plan, a, b = plan_and_weights()
    rows, weights = (plan, a) if side == 0 else (plan.T, b)
    points = np.arange(0, len(rows), 2)
    fractions = divide_by_weights(rows.sum(axis=1), weights)
    with changed_thresholds(REPORT_CONFIG, max_block_entries=block):
        matches = largest_matches(row_reader(plan, side), points, fractions, rows.shape[1])
    assert matches.points.tolist() == points.tolist()
    for k, partners, masses in zip(points, matches.partners, matches.masses, strict=True):
        if k != 3 or side == 1:  # which of too many ties are kept is not said, only that they come in order
            assert list(zip(partners, masses, strict=True)) == sorted_matches(rows[k], weights[k])


def test_ties_are_ordered_and_unmatched_points_have_no_matches():
    plan, a, _ = plan_and_weights()
    matches = largest_matches(row_reader(plan, 0), np.arange(13), divide_by_weights(plan.sum(axis=1), a), 17)
    assert (np.diff(matches.partners[3]) > 0).all()
    assert len(matches.partners[3]) == REPORT_CONFIG.matches_per_point
    assert len(matches.partners[5]) == 0
    assert 4 not in np.concatenate(matches.partners)


def test_pairs_are_ordered_by_rank_and_mass_without_repeats():
    plan, a, b = plan_and_weights(1)
    sides = [
        largest_matches(row_reader(plan, k), np.arange(len(p)), divide_by_weights(p.sum(axis=1), w), p.shape[1])
        for k, (p, w) in enumerate(((plan, a), (plan.T, b)))
    ]
    best = {}
    for k, side in enumerate(sides):
        for point, partners in zip(side.points, side.partners, strict=True):
            for rank, partner in enumerate(partners):
                pair = (point, partner) if k == 0 else (partner, point)
                best[pair] = min(rank, best.get(pair, REPORT_CONFIG.matches_per_point))
    expected = sorted(best, key=lambda p: (best[p], -plan[p], p))
    for most in (7, 10**6):
        pairs = merge_matches(*sides, most)
        assert list(zip(pairs.i, pairs.j, strict=True)) == expected[:most]
        assert pairs.mass == pytest.approx([plan[p] for p in expected[:most]])
        assert pairs.n_first == min(most, sum(rank == 0 for rank in best.values()))


def test_a_plan_without_mass_has_no_pairs():
    nothing = Matches(np.arange(2), [np.zeros(0, int)] * 2, [np.zeros(0)] * 2)
    pairs = merge_matches(nothing, nothing, 10)
    assert (len(pairs.i), len(pairs.j), len(pairs.mass), pairs.n_first) == (0, 0, 0, 0)


@pytest.fixture(scope="module")
def lazy_plan():
    return streamed_result().plan


def test_a_plan_that_is_not_stored_gives_the_same_and_is_not_made(lazy_plan, monkeypatch):
    dense = lazy_plan.dense()
    monkeypatch.setattr(LazyPlan, "dense", lambda *_, **__: pytest.fail("made the whole plan"))
    for side, rows in enumerate((dense, dense.T)):
        share = np.ones(len(rows))
        lazy, stored = (
            largest_matches(row_reader(p, side), np.arange(len(rows)), share, rows.shape[1]) for p in (lazy_plan, dense)
        )
        assert [p.tolist() for p in lazy.partners] == [p.tolist() for p in stored.partners]
        np.testing.assert_allclose(np.concatenate(lazy.masses), np.concatenate(stored.masses), rtol=1e-10)
