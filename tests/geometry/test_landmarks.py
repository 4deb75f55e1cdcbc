"""Farthest-point sampling against a brute-force search over all distances."""

import pytest
import torch

from oracles.geometry import farthest_by_definition
from ugw.geometry.landmarks import farthest_points


def distance_matrices(*shape, seed=0):
    """Euclidean distances (B, n, n) of random points."""
    points = torch.rand(*shape, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.cdist(points, points)


def columns_of(matrices):
    """The distance-column function of stored matrices (B, n, n)."""
    return lambda index: matrices[torch.arange(len(matrices)), index]


@pytest.mark.parametrize("count", [1, 2, 9, 20])
def test_every_item_of_a_batch_gets_the_points_of_the_definition(count):
    matrices, first = distance_matrices(3, 20), torch.tensor([0, 7, 19])
    expected = [farthest_by_definition(d, int(i), count) for d, i in zip(matrices, first, strict=True)]
    assert farthest_points(columns_of(matrices), first, count).tolist() == expected


def test_only_candidates_are_chosen():
    matrices, candidates = distance_matrices(2, 12), torch.arange(12).expand(2, -1) % 3 != 0
    indices = farthest_points(columns_of(matrices), torch.tensor([1, 2]), 8, candidates=candidates)
    allowed = [i for i in range(12) if i % 3]
    assert indices.tolist() == [farthest_by_definition(d, i, 8, allowed) for d, i in zip(matrices, (1, 2), strict=True)]
    assert sorted(indices[0].tolist()) == allowed


def test_ties_go_to_the_lowest_index():
    square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert farthest_points(columns_of(torch.cdist(square, square)[None]), torch.tensor([0]), 4).tolist() == [
        [0, 3, 1, 2]
    ]


def test_coincident_points_repeat_or_end_the_search():
    places = torch.tensor([0.0, 5.0, 5.0, 0.0, 2.0])
    column = columns_of((places[:, None] - places).abs()[None])
    first = torch.tensor([3])
    assert farthest_points(column, first, 5, stop_when_covered=True).tolist() == [[3, 1, 4]]
    assert farthest_points(column, first, 5)[0, :3].tolist() == [3, 1, 4]
    assert farthest_points(column, first, 5).shape == (1, 5)
    assert farthest_points(column, first, 0).shape == (1, 0)


def test_the_distances_of_each_chosen_point_are_computed_once():
    matrices, requests = distance_matrices(1, 15), []

    def column(index):
        """The stored column, and a note of its index."""
        requests.append(int(index))
        return columns_of(matrices)(index)

    assert farthest_points(column, torch.tensor([4]), 6)[0].tolist() == requests
