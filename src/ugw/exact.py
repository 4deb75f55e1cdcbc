"""Exact linear programs of transport, by POT's network simplex, and the nearest plans to start them from.

Every function works on each item of a batch by itself: weights (B, n) and (B, m), costs (B, n, m).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

# Pivots allowed in one linear program; far more than are ever needed.
PIVOTS = 10_000_000


def transport(cost: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """An optimal vertex of each item's transport polytope, p1 = a and p2 = b, which must have one mass.

    >>> cost = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    >>> transport(cost, torch.tensor([[0.5, 0.5]]), torch.tensor([[0.25, 0.75]]))[0]
    tensor([[0.2500, 0.2500],
            [0.0000, 0.5000]])
    """
    vertices = []
    for c, row, col in zip(*map(_array, (cost, a, b)), strict=True):
        vertices.append(_emd(row / row.sum(), col / col.sum(), c) * row.sum())
    return torch.from_numpy(np.stack(vertices)).to(cost)


def partial(cost: Tensor, a: Tensor, b: Tensor, mass: Tensor | None) -> Tensor:
    """A vertex of p1 ≤ a, p2 ≤ b with the least <cost, p>: of the given masses (B,), or of any mass if None.

    One more point on each side takes what is left behind. Without a mass it is free there, so that a pair is used
    only if its cost is negative; with one, the two extra points are kept apart by a price that no plan pays.

    >>> cost = torch.tensor([[[-1.0, 1.0], [1.0, 2.0]]])
    >>> half = torch.tensor([[0.5, 0.5]])
    >>> partial(cost, half, half, None)[0]
    tensor([[0.5000, 0.0000],
            [0.0000, 0.0000]])
    >>> partial(cost, half, half, torch.tensor([0.75])).sum().item()
    0.75
    """
    masses = [None] * len(cost) if mass is None else mass.double().cpu().tolist()
    vertices = []
    for c, row, col, m in zip(*map(_array, (cost, a, b)), masses, strict=True):
        total_a, total_b = row.sum(), col.sum()
        left_a, left_b = (total_a, total_b) if m is None else (max(total_a - m, 0.0), max(total_b - m, 0.0))
        wide = np.zeros((len(row) + 1, len(col) + 1))
        # A constant changes nothing where the mass is given, and makes every cost nonnegative.
        wide[:-1, :-1] = c if m is None else c - c.min()
        wide[-1, -1] = 0.0 if m is None else 2.0 * wide.max() + 1.0
        rows, cols = np.append(row, left_b), np.append(col, left_a)
        vertices.append((_emd(rows / rows.sum(), cols / cols.sum(), wide) * rows.sum())[:-1, :-1])
    return torch.from_numpy(np.stack(vertices)).to(cost)


def round_to_marginals(plan: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Move as little mass as it takes to give a plan of one mass with a and b these marginals. plan: (B, n, m)."""
    plan = clip(plan, a, b)
    return filled(plan, a, b, a.sum(1) - plan.sum(dim=(1, 2)))


def clip(plan: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Scale down the rows, then the columns, that have more than their weight. plan: (B, n, m)."""
    tiny = torch.finfo(plan.dtype).tiny
    plan = plan * (a / plan.sum(2).clamp(min=tiny)).clamp(max=1.0)[:, :, None]
    return plan * (b / plan.sum(1).clamp(min=tiny)).clamp(max=1.0)[:, None, :]


def filled(plan: Tensor, a: Tensor, b: Tensor, missing: Tensor) -> Tensor:
    """Add the mass `missing` (B,) ≥ 0 in proportion to what the marginals have left. plan: (B, n, m), clipped."""
    tiny = torch.finfo(plan.dtype).tiny
    left_a, left_b = (a - plan.sum(2)).clamp(min=0.0), (b - plan.sum(1)).clamp(min=0.0)
    share_a, share_b = (left / left.sum(1, keepdim=True).clamp(min=tiny) for left in (left_a, left_b))
    return plan + missing.clamp(min=0.0)[:, None, None] * share_a[:, :, None] * share_b[:, None, :]


def _emd(a: np.ndarray, b: np.ndarray, cost: np.ndarray) -> np.ndarray:
    import ot

    return ot.emd(a, b, cost, numItermax=PIVOTS)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().cpu().numpy()
