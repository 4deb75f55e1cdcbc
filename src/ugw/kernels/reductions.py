"""Sums over the entries of plans and costs (B, n, m), in plain torch: the specification of the Triton kernels.

Sums are float64; those of a row may be made in the dtype of the entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

# Covariances of plans up to so many entries are made at once on a GPU; on a CPU so many entries at a time.
TOGETHER, CACHED = 2**16, 2**15


def dot(u: Tensor, v: Tensor) -> Tensor:
    """<u, v> per item. u: (B, n, m) or (n, m); v: (B, n, m). Returns (B,)."""
    return _total(u * v)


def l1_distance(u: Tensor, v: Tensor) -> Tensor:
    """Σ |u − v| per item. Returns (B,)."""
    return _total((u - v).abs_())


def neg_entropy(p: Tensor) -> Tensor:
    """Σ p log p per item, 0 where p is. Returns (B,)."""
    # Where the plan is 0, or as good as that, its logarithm may be anything finite.
    return dot(p.clamp(min=torch.finfo(p.dtype).tiny).log_(), p)


def gram(a: Tensor, b: Tensor, costs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Means (B, k, 1) of k costs under weights a (B, n) and b (B, m), and means of their products, (B, k, k)."""
    entries = a.shape[1] * b.shape[1]
    if not a.is_cuda or entries <= TOGETHER:
        items = len(a) if a.is_cuda else max(1, CACHED // entries)
        rows = a.shape[1] if a.is_cuda else max(1, CACHED // b.shape[1])
        parts = [_in_rows(rows, v, w, some) for v, w, *some in _blocks(items, 0, a, b, *costs)]
        mean, products = (torch.cat(part) for part in zip(*parts, strict=True))
        return mean, products
    # One by one: several costs at once would be the peak of a solve.
    weight, flat = (a[:, :, None] * b[:, None, :]).flatten(1), [c.flatten(1) for c in costs]
    means, products = [], weight.new_empty((len(weight), len(flat), len(flat)))
    for k, cost in enumerate(flat):
        weighted = (cost * weight)[:, None, :]
        means.append(weighted.sum(2))
        for j, other in enumerate(flat[: k + 1]):
            products[:, k, j] = products[:, j, k] = (weighted @ other[:, :, None])[:, 0, 0]
    return torch.stack(means, dim=1).double(), products.double()


def anderson_differences(given: Sequence[Any], found: Sequence[Any]) -> tuple[Any, ...]:
    """Differences of three costs and the three that steps made of them, stored or not.

    The two changes of the given ones, by how much the found ones changed otherwise, and what the last step did.
    """
    into = given[1] - given[0], given[2] - given[1]
    out = found[1] - found[0], found[2] - found[1]
    return *into, *(o - i for o, i in zip(out, into, strict=True)), found[2] - given[2]


def anderson_moments(a: Tensor, b: Tensor, given: Sequence[Tensor], found: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """`gram` of `anderson_differences`."""
    return gram(a, b, anderson_differences(given, found))


def quantile_indices(weights: Tensor, count: int) -> Tensor:
    """Places (B, count) at even steps of weights (B, n), in the order in which they stand."""
    reached = weights.cumsum(1, dtype=torch.float64)
    steps = (torch.arange(count, dtype=torch.float64, device=weights.device) + 0.5) / count
    return torch.searchsorted(reached, (steps * reached[:, -1:]).contiguous()).clamp(max=weights.shape[1] - 1)


def sample_rows(a: Tensor, costs: Sequence[Tensor], count: int) -> tuple[Tensor, list[Tensor]]:
    """So many rows of costs (B, n, m), at even steps of the weights a (B, n), and the weights that they then have.

    Neither padding nor points without weight change which rows these are.
    """
    batch, n = a.shape
    flat = (quantile_indices(a, count) + n * torch.arange(batch, device=a.device)[:, None]).flatten()
    rows = [cost.flatten(0, 1).index_select(0, flat).view(batch, count, -1) for cost in costs]
    return torch.full_like(a[:, :1], 1.0 / count).expand(-1, count), rows


def extrapolate(given: Any, found: Sequence[Any], factors: Sequence[Tensor]) -> Any:
    """The last of three costs, farther by multiples (B,) of its changes before the last, the last, and from `given`."""
    guess = found[2]
    ways = (found[1] - found[0], found[2] - found[1], found[2] - given)
    for factor, way in zip(factors, ways, strict=True):
        by = factor.to(way.dtype)[:, None, None]
        guess = torch.addcmul(guess, way, by) if isinstance(way, Tensor) else guess + way * by
    return guess


def _total(t: Tensor) -> Tensor:
    return t.sum(2).sum(1, dtype=torch.float64)


def _blocks(count: int, dim: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Some entries at a time of tensors that have equally many in a dimension."""
    return zip(*(t.split(count, dim) for t in tensors), strict=True)


def _in_rows(rows: int, a: Tensor, b: Tensor, costs: Sequence[Tensor]) -> list[Tensor]:
    """`_sums` over so many rows of the costs (B, n, m) at a time, in float64."""
    parts = [_sums(v, b, torch.stack(some, dim=1)) for v, *some in _blocks(rows, 1, a, *costs)]
    return [torch.stack(part).sum(0, dtype=torch.float64) for part in zip(*parts, strict=True)]


def _sums(a: Tensor, b: Tensor, costs: Tensor) -> tuple[Tensor, Tensor]:
    """Sums (B, k, 1) of costs (B, k, n, m) and (B, k, k) of their products under weights (B, n) and (B, m)."""
    weighted = (costs * (a[:, :, None] * b[:, None, :])[:, None]).flatten(2)
    return weighted.sum(2, keepdim=True), weighted @ costs.flatten(2).mT
