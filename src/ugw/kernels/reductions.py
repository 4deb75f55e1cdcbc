"""Sums over the entries of plans and costs (B, n, m), and sampled rows, in plain torch: the reference.

Sums are accumulated over rows in the dtype of the entries and over the batch item in float64.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def dot(u: Tensor, v: Tensor) -> Tensor:
    """Return the inner product Σ u·v of each item. u: (B, n, m) or (n, m); v: (B, n, m). Returns (B,), float64."""
    return _item_sum(u * v)


def l1_distance(u: Tensor, v: Tensor) -> Tensor:
    """Return the L1 distance Σ |u − v| of each item. u, v: (B, n, m). Returns (B,), float64."""
    return _item_sum((u - v).abs_())


def neg_entropy(p: Tensor) -> Tensor:
    """Return the negative entropy Σ p log p (natural) of each item, (B,), float64, 0 log 0 = 0. p: (B, n, m)."""
    # Where p is 0, the logarithm may be anything finite.
    return dot(p.clamp(min=torch.finfo(p.dtype).tiny).log_(), p)


def even_quantiles(count: int, device: torch.device) -> Tensor:
    """Return the numbers (k + 1/2)/count for k = 0, …, count − 1, (count,), float64."""
    return (torch.arange(count, dtype=torch.float64, device=device) + 0.5) / count


def quantile_indices(weights: Tensor, quantiles: Tensor) -> Tensor:
    """Return the indices (B, k) of the first points whose cumulative weight reaches q·(total weight) for each q.

    weights: (B, n) ≥ 0; quantiles: (k,) or (B, k), the numbers q between 0 and 1.
    """
    cumulative = weights.cumsum(1, dtype=torch.float64)
    targets = (quantiles * cumulative[:, -1:]).contiguous()
    return torch.searchsorted(cumulative, targets).clamp(max=weights.shape[1] - 1)


def sample_rows(a: Tensor, costs: Sequence[Tensor], count: int) -> tuple[Tensor, list[Tensor]]:
    """Return weights 1/count, (B, count), and `count` rows of each cost, (B, count, m), at even quantiles of weights a.

    Rows are in increasing order and repeat where one has much weight. a: (B, n), weights of the rows; costs: (B, n, m)
    each. Padding and points of weight 0 do not change the selection.
    """
    batch, n = a.shape
    index = quantile_indices(a, even_quantiles(count, a.device))
    flat = (index + n * torch.arange(batch, device=a.device)[:, None]).flatten()
    rows = [cost.flatten(0, 1).index_select(0, flat).view(batch, count, -1) for cost in costs]
    return torch.full_like(a[:, :1], 1.0 / count).expand(-1, count), rows


def _item_sum(t: Tensor) -> Tensor:
    """Return the sum of the entries of each item, (B,), float64. t: (B, n, m)."""
    return t.sum(2).sum(1, dtype=torch.float64)
