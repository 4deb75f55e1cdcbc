"""A few points of a space that stand for all: farthest-point sampling, and indices at even steps."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Maps indices (B,) to the distances (B, n) of all points to the point with that index in each batch item.
DistanceColumn = Callable[[Tensor], Tensor]


def farthest_points(
    column: DistanceColumn,
    first: Tensor,
    count: int,
    *,
    candidates: Tensor | None = None,
    stop_when_covered: bool = False,
) -> Tensor:
    """Return indices (B, count) of points, each one the farthest from all points chosen before it in its batch item.

    column: maps indices (B,) to the distances (B, n) from these points, called once for each chosen point, in order;
    first: (B,), the first index of each item; candidates: (B, n) bool, points that may be chosen after it, None for
    all. Ties go to the lowest index. Where fewer than `count` points differ, indices repeat; `stop_when_covered`: fewer
    indices are returned instead, as soon as every candidate of every item coincides with a chosen point (this looks at
    the distances, so a GPU is synchronized at each point).

    >>> places = torch.tensor([0.0, 1.0, 4.0, 10.0])
    >>> farthest_points(lambda index: (places - places[index][:, None]).abs(), torch.tensor([0]), 3)
    tensor([[0, 3, 2]])
    """
    chosen, nearest = [first], column(first)
    if candidates is not None:
        nearest = torch.where(candidates, nearest, -torch.inf)
    while len(chosen) < count:
        if stop_when_covered and not bool((nearest > 0).any()):
            break
        chosen.append(nearest.argmax(1))
        nearest = torch.minimum(nearest, column(chosen[-1]))
    return torch.stack(chosen, dim=1)[:, :count]


def evenly_spaced_indices(n: int, count: int, device: torch.device | None = None, *, with_ends: bool = False) -> Tensor:
    """Return `count` of the indices 0 to n − 1 at even steps, all of them if there are no more.

    with_ends: the first and the last index are among them, else the middles of `count` equal intervals.

    >>> evenly_spaced_indices(10, 4), evenly_spaced_indices(3, 4)
    (tensor([1, 3, 6, 8]), tensor([0, 1, 2]))
    >>> evenly_spaced_indices(10, 4, with_ends=True)
    tensor([0, 3, 6, 9])
    """
    if n <= count:
        return torch.arange(n, device=device)
    if with_ends:
        return torch.linspace(0, n - 1, count, dtype=torch.float64, device=device).round().long()
    steps = (torch.arange(count, dtype=torch.float64, device=device) + 0.5) / count
    return (steps * n).long()
