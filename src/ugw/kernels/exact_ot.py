"""Exact linear programs of transport, by POT's network simplex, and the nearest plans to start them from.

Every function works on each item of a batch by itself: weights (B, n) and (B, m), costs (B, n, m).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Pivots allowed in one linear program; far more than are ever needed.
PIVOTS = 10_000_000
# Costs over the largest of them are the same where they agree to so many decimals.
DIGITS = 12


def optimal_plan(cost: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """An optimal vertex of each item's transport polytope, p1 = a and p2 = b, which must have one mass.

    >>> cost = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    >>> optimal_plan(cost, torch.tensor([[0.5, 0.5]]), torch.tensor([[0.25, 0.75]]))[0]
    tensor([[0.2500, 0.2500],
            [0.0000, 0.5000]])
    """
    vertices = []
    for c, row, col, _ in _items(cost, a, b, None):
        vertices.append(_emd(row, col, c)[0])
    return torch.from_numpy(np.stack(vertices)).to(cost)


def row_multipliers(cost: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The multipliers of p1 = a in each item's transport problem, up to a constant. Returns (B, n), float64."""
    found = [_emd(row, col, c)[1] for c, row, col, _ in _items(cost, a, b, None)]
    return torch.from_numpy(np.stack(found)).to(cost.device)


def optimal_partial_plan(cost: Tensor, a: Tensor, b: Tensor, mass: Tensor | None) -> Tensor:
    """A vertex of p1 ≤ a, p2 ≤ b with the least <cost, p>: of the given masses (B,), or of any mass if None.

    One more point on each side takes what is left behind. Without a mass it is free there, so that a pair is used
    only if its cost is negative; with one, the two extra points are kept apart by a price that no plan pays. No point
    can send more than a given mass: weights above it are cut, so that a small mass is not lost beside them.

    >>> cost = torch.tensor([[[-1.0, 1.0], [1.0, 2.0]]])
    >>> half = torch.tensor([[0.5, 0.5]])
    >>> optimal_partial_plan(cost, half, half, None)[0]
    tensor([[0.5000, 0.0000],
            [0.0000, 0.0000]])
    >>> optimal_partial_plan(cost, half, half, torch.tensor([0.75])).sum().item()
    0.75
    """
    vertices = []
    for c, row, col, m in _items(cost, a, b, mass):
        cut = (row, col) if m is None else (np.minimum(row, m), np.minimum(col, m))
        vertices.append(_emd(*_widened(c, *cut, m))[0][:-1, :-1])
    return torch.from_numpy(np.stack(vertices)).to(cost)


def partial_multipliers(cost: Tensor, a: Tensor, b: Tensor, mass: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """What a little more of a (B, n), of b (B, m) and of a given mass (B,) adds to the least <cost, p> of `partial`.

    The multipliers of p1 ≤ a and p2 ≤ b are not positive; that of a mass is 0 where none is given.
    """
    rows, cols, masses = [], [], []
    for c, row, col, m in _items(cost, a, b, mass):
        _, u, v = _emd(*_widened(c, row, col, m))
        rows.append(u[:-1] + v[-1])
        cols.append(v[:-1] + u[-1])
        masses.append(0.0 if m is None else c.min() - u[-1] - v[-1])
    first, second, third = (torch.from_numpy(np.stack(made)).to(cost.device) for made in (rows, cols, masses))
    return first, second, third


def _items(cost: Tensor, a: Tensor, b: Tensor, mass: Tensor | None) -> Iterator[tuple[Any, ...]]:
    masses = [None] * len(cost) if mass is None else mass.double().cpu().tolist()
    return zip(*map(_array, (cost, a, b)), masses, strict=True)


def _widened(c: np.ndarray, row: np.ndarray, col: np.ndarray, m: float | None) -> tuple[np.ndarray, ...]:
    """Weights and cost with one more point on each side, which takes what is left behind."""
    wide = np.zeros((len(row) + 1, len(col) + 1))
    if m is None:
        wide[:-1, :-1] = c
        left_a, left_b = row.sum(), col.sum()
    else:
        # A constant changes nothing where the mass is given, and makes every cost nonnegative.
        wide[:-1, :-1] = c - c.min()
        wide[-1, -1] = 2.0 * wide.max() or 1.0
        left_a, left_b = max(row.sum() - m, 0.0), max(col.sum() - m, 0.0)
    return np.append(row, left_b), np.append(col, left_a), wide


def round_to_marginals(plan: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Move as little mass as it takes to give a plan of one mass with a and b these marginals. plan: (B, n, m)."""
    plan = clip_to_marginals(plan, a, b)
    return add_missing_mass(plan, a, b, a.sum(1) - plan.sum(dim=(1, 2)))


def clip_to_marginals(plan: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Scale down the rows, then the columns, that have more than their weight. plan: (B, n, m)."""
    tiny = torch.finfo(plan.dtype).tiny
    plan = plan * (a / plan.sum(2).clamp(min=tiny)).clamp(max=1.0)[:, :, None]
    return plan * (b / plan.sum(1).clamp(min=tiny)).clamp(max=1.0)[:, None, :]


def add_missing_mass(plan: Tensor, a: Tensor, b: Tensor, missing: Tensor) -> Tensor:
    """Add the mass `missing` (B,) ≥ 0 in proportion to what the marginals have left. plan: (B, n, m), clipped."""
    tiny = torch.finfo(plan.dtype).tiny
    left_a, left_b = (a - plan.sum(2)).clamp(min=0.0), (b - plan.sum(1)).clamp(min=0.0)
    share_a, share_b = (left / left.sum(1, keepdim=True).clamp(min=tiny) for left in (left_a, left_b))
    return plan + missing.clamp(min=0.0)[:, None, None] * share_a[:, :, None] * share_b[:, None, :]


def _emd(a: np.ndarray, b: np.ndarray, cost: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An optimal plan between a (n,) and b (m,), and the multipliers of both.

    The simplex has absolute tolerances, so that it is given costs and masses of the order of 1. Pairs that have matched
    each other tie exactly: their costs are rounded, so that the last bit does not choose between vertices.
    """
    import ot

    size, mass = float(abs(cost).max()) or 1.0, a.sum()
    plan, log = ot.emd(a / mass, b / b.sum(), np.round(cost / size, DIGITS), numItermax=PIVOTS, log=True)
    return plan * mass, log["u"] * size, log["v"] * size


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().double().cpu().numpy()
