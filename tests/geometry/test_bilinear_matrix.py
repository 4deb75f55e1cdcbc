"""Bilinear matrices against the same matrices with all entries stored."""

from dataclasses import replace

import pytest
import torch

from oracles.bilinear import entries, random_matrix


@pytest.fixture
def pair():
    """Two matrices over the same bases."""
    first = random_matrix()
    return first, replace(random_matrix(1), left=first.left, right=first.right)


def test_dense_rows_and_transpose_give_the_entries_of_the_definition():
    z = random_matrix()
    assert z.shape == (2, 6, 8)
    torch.testing.assert_close(z.dense(), entries(z))
    torch.testing.assert_close(z.mT.dense(), entries(z).mT)
    torch.testing.assert_close(z.rows(torch.tensor([4, 1])), entries(z)[:, [4, 1]])


def test_sums_and_multiples_equal_those_of_the_entries(pair):
    first, second = pair
    factor = torch.tensor([2.0, -0.5], dtype=torch.float64)[:, None, None]
    torch.testing.assert_close((first + second).dense(), entries(first) + entries(second))
    torch.testing.assert_close((first - factor * second).dense(), entries(first) - factor * entries(second))
    torch.testing.assert_close((first - factor).dense(), entries(first) - factor)
    torch.testing.assert_close((3.0 * first).dense(), 3.0 * entries(first))


def test_core_factors_have_the_smaller_rank():
    z = random_matrix()
    for matrix in (z, z.mT):
        left, right = matrix.core_factors()
        assert left.shape[2] == right.shape[2] == 2
        torch.testing.assert_close(left @ right.mT, matrix.left @ matrix.core @ matrix.right.mT)


def test_take_selects_batch_items():
    z = random_matrix()
    torch.testing.assert_close(z.take(torch.tensor([1, 0, 1])).dense(), entries(z)[[1, 0, 1]])
