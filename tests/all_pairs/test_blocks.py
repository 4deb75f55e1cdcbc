"""Blocks of pairs: results do not depend on them, and all pairs are in one of them."""

import math
from itertools import product

import numpy as np
import pytest
import torch

import ugw
from oracles.pairwise import QUICK, clouds, graphs, limit_block_entries
from ugw.all_pairs.blocks import BlockLimits, group_by_padding, max_block_entries, self_pair_blocks, tile_pairs
from ugw.all_pairs.config import PAIRWISE_CONFIG
from ugw.all_pairs.inputs import read_spaces
from ugw.all_pairs.job import PairwiseJob
from ugw.all_pairs.methods import pair_seconds

# Plans on both sides of 400 entries, where the choice of initial plans changes. 70 and 72 points: more than 5000
# entries, where the first steps are in float32.
SMALL_SIZES = (19, 6, 22)


# -- results -------------------------------------------------------------------------------------------------


def undo_permutation(matrix, order):
    """Return the matrix of the spaces in their order before the permutation."""
    inverse = np.argsort(order)
    return matrix[np.ix_(inverse, inverse)]


@pytest.mark.parametrize(
    ("spaces", "method", "options"),
    [
        (clouds((19, 6, 22, 70, 72)), "ugw", {"eps": 0.01}),
        (clouds(SMALL_SIZES), "ugw", {"eps": ugw.relative(0.01), "rho": 0.3}),
        (clouds(SMALL_SIZES), "ugw", {"eps": 0.0, "rho": 0.5}),
        (graphs(), "ugw", {"eps": 0.02, "rho": 0.5}),
        (clouds(SMALL_SIZES, unit=True), "gw", {"eps": 0.02}),
        (clouds(SMALL_SIZES), "cgw", {"rho": 0.5}),
        (graphs(), "cgw", {"rho": 0.5}),
        (clouds(SMALL_SIZES), "debiased", {"eps": 0.02}),
    ],
    ids=["clouds", "relative", "sharp", "graphs", "gw", "cgw", "cgw-graphs", "debiased"],
)
def test_results_do_not_depend_on_blocks_or_order(spaces, method, options):
    """With the default initial plans: random ones are seeded by the pair and not by its batch."""
    expected = ugw.pairwise(spaces, method=method, **options).check()
    order = np.random.default_rng(1).permutation(len(spaces))
    with limit_block_entries(1):  # each pair by itself, without padding
        alone = ugw.pairwise([spaces[i] for i in order], method=method, **options)
    np.testing.assert_allclose(undo_permutation(alone.values, order), expected.values, rtol=0, atol=1e-9)
    np.testing.assert_allclose(undo_permutation(alone.masses, order), expected.masses, rtol=0, atol=1e-6)
    order = np.random.default_rng(2).permutation(len(spaces))
    with limit_block_entries(3000):
        tiled = ugw.pairwise([spaces[i] for i in order], method=method, **options)
    np.testing.assert_allclose(undo_permutation(tiled.values, order), expected.values, rtol=0, atol=1e-9)


def test_a_value_does_not_depend_on_the_other_spaces_of_the_call():
    spaces = clouds((19, 6, 22, 12))
    whole = ugw.pairwise(spaces, eps=0.01).values
    part = ugw.pairwise([spaces[3], spaces[0], spaces[2]], eps=0.01).values
    np.testing.assert_allclose(part, whole[np.ix_([3, 0, 2], [3, 0, 2])], rtol=0, atol=1e-9)


# -- groups and tiles ----------------------------------------------------------------------------------------


def min_group_count(sizes, max_overhead):
    """Return the smallest number of groups whose padding is within the bound, by trying every division."""
    falling = sorted((max(s, PAIRWISE_CONFIG.min_effective_size) for s in sizes), reverse=True)
    best = len(falling)
    for splits in product((False, True), repeat=len(falling) - 1):
        padded, top = 0, falling[0]
        for size, is_split in zip(falling, (False, *splits), strict=True):
            top = size if is_split else top
            padded += top
        if padded**2 <= (1 + max_overhead) * sum(falling) ** 2:
            best = min(best, 1 + sum(splits))
    return best


@pytest.mark.parametrize("seed", range(6))
def test_groups_are_as_few_as_the_padding_allows(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(5, 200, size=9).tolist()
    groups = group_by_padding(sizes)
    assert sorted(i for group in groups for i in group) == list(range(9))
    assert len(groups) == min_group_count(sizes, PAIRWISE_CONFIG.max_padding_overhead)
    smallest = PAIRWISE_CONFIG.min_effective_size
    padded = sum(len(group) * max(max(sizes[i], smallest) for i in group) for group in groups)
    assert padded**2 <= (1 + PAIRWISE_CONFIG.max_padding_overhead) * sum(max(s, smallest) for s in sizes) ** 2
    tops = [max(sizes[i] for i in group) for group in groups]
    assert tops == sorted(tops, reverse=True)


def test_small_spaces_are_one_group():
    assert group_by_padding([3, 5, 20, 11, 3]) == [[2, 3, 1, 0, 4]]
    assert group_by_padding([7]) == [[0]]


@pytest.mark.parametrize("entries", [1, 900, 5000, 10**6])
def test_each_wanted_pair_is_in_one_block(entries):
    rng = np.random.default_rng(0)
    sizes = sorted(rng.integers(2, 60, size=17).tolist(), reverse=True)
    others = sorted(rng.integers(2, 60, size=5).tolist(), reverse=True)
    for second, is_wanted in ((sizes, lambda i, j: i < j), (sizes, lambda i, j: i != j), (others, lambda i, j: True)):
        blocks = tile_pairs(sizes, second, BlockLimits(entries), is_wanted)
        pairs = [pair for block in blocks for pair in block.pairs]
        assert len(pairs) == len(set(pairs))
        assert set(pairs) == {(i, j) for i in range(len(sizes)) for j in range(len(second)) if is_wanted(i, j)}
        for block in blocks:
            plan = max(sizes[i] for i, _ in block.pairs) * max(second[j] for _, j in block.pairs)
            assert len(block.pairs) == 1 or len(block.pairs) * plan <= entries
    blocks = self_pair_blocks(sizes, BlockLimits(entries), 1)
    assert sorted(pair for block in blocks for pair in block.pairs) == [(i, i) for i in range(17)]
    assert {block.self_side for block in blocks} == {1}


def test_a_block_of_many_pairs_needs_few_spaces():
    """200 spaces of 30 points: a block of several hundred pairs needs some dozen spaces."""
    blocks = tile_pairs([30] * 200, [30] * 200, BlockLimits(2**19), lambda i, j: i < j)
    largest = max(blocks, key=lambda block: len(block.pairs))
    assert len(largest.pairs) >= 500
    rows, cols = (set(indices) for indices in zip(*largest.pairs, strict=True))
    assert len(rows) + len(cols) <= 2.5 * math.sqrt(len(largest.pairs))


def test_blocks_are_a_function_of_the_data():
    spaces = clouds((30, 31, 60, 8) * 4)
    options = QUICK.solve_options("auto", "auto", None)
    first, second = (PairwiseJob.create(QUICK, options, read_spaces(spaces, None, None)).blocks for _ in range(2))
    assert first == second
    assert max_block_entries(1e12, "cpu", 1) == PAIRWISE_CONFIG.max_block_entries_cpu
    assert max_block_entries(10.0, "cpu", 1) == PAIRWISE_CONFIG.min_block_entries_cpu
    assert max_block_entries(1e12, "cuda", 8) == PAIRWISE_CONFIG.max_block_entries_cuda // 8


# -- time ----------------------------------------------------------------------------------------------------


def make_job(sizes, method="ugw", rho="auto", eps="auto", solver=None):
    """Return the job of all pairs of clouds of these sizes, of mass 1."""
    spaces = clouds(sizes, unit=True)
    chosen = method if isinstance(method, ugw.Method) else ugw.Method(method)
    options = chosen.solve_options(rho, eps, solver)
    options["solver"] = chosen.spec.check(spaces[0], spaces[0], options)
    return PairwiseJob.create(chosen, options, read_spaces(spaces, None, None))


def estimated_seconds(job, block):
    """The seconds that the tables give a block; its pairs of a space with itself are solved twice."""
    constant, factor = pair_seconds(job.options)
    return constant * len(block.pairs) * (1 if block.self_side is None else 2) + factor * block.work


OPTIONS = {
    "ugw": {},
    "sharp": {"eps": 0.0},
    "gw": {"method": "gw", "eps": 0.02},
    "exact gw": {"method": "gw", "eps": 0.0},
    "debiased": {"method": "debiased", "eps": 0.02},
    "cgw": {"method": "cgw"},
    "partial": {"rho": ugw.TV(0.3)},
    "loss": {"method": ugw.Method("ugw", loss=torch.abs)},
    "multistart": {"solver": ugw.Multistart(n=40)},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("n", [20, 60, 120, 300])
def test_a_block_takes_at_most_the_estimated_seconds_or_is_a_pair(name, n):
    job = make_job((n,) * 9, **OPTIONS[name])
    n_pairs = 36 if job.method.spec.has_zero_self_value(job.options) else 45
    assert sum(len(block.pairs) for block in job.blocks) == n_pairs
    for block in job.blocks:
        assert len(block.pairs) == 1 or estimated_seconds(job, block) <= PAIRWISE_CONFIG.max_block_seconds


def test_blocks_of_slower_methods_are_smaller():
    def largest(**options):
        return max(len(block.pairs) for block in make_job((60,) * 40, **options).blocks)

    assert 1 < largest(method="cgw") < largest(eps=0.0) < largest()
    assert largest(solver=ugw.Multistart(n=40)) < largest()
    assert largest(method=ugw.Method("ugw", loss=torch.abs)) < largest()


def test_a_pair_of_partial_transport_is_a_block():
    job = make_job((5, 6, 7), method=ugw.Method("cgw", cone="partial-transport"))
    assert [len(block.pairs) for block in job.blocks] == [1, 1, 1]


def test_the_way_of_solving_sets_the_estimated_seconds():
    """One entry of the table for each way; partial transport is the one where a pair takes longest."""
    table = PAIRWISE_CONFIG.pair_seconds
    cases = {
        "entropic": {},
        "hard": {"method": "gw", "eps": 0.02},
        "sharp": {"method": "gw", "eps": 0.0},
        "partial": {"rho": ugw.Mass(0.5)},
        "general loss": {"method": ugw.Method("ugw", loss=torch.abs)},
        "conic": {"method": "cgw"},
        "conic, general loss": {"method": ugw.Method("cgw", cone="hellinger-kantorovich")},
        "linear programs": {"method": ugw.Method("cgw", cone=ugw.PartialTransport())},
    }
    assert set(cases) == set(table)
    assert {name: pair_seconds(make_job((5, 6), **options).options) for name, options in cases.items()} == table
