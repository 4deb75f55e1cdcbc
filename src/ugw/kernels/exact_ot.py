"""Exact linear programs of optimal transport by POT's network simplex, and projections of plans to their constraints.

Every function treats the items of a batch separately. Shapes: cost (B, n, m), weights a (B, n) and b (B, m).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._utils.interruptible import call_interruptibly
from .config import KERNEL_CONFIG


def optimal_plan(cost: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return a plan (B, n, m) of least cost <cost, p> among those with p1 = a, p2 = b, a vertex of the polytope.

    cost: (B, n, m); a: (B, n) and b: (B, m), of equal mass.

    >>> cost = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    >>> optimal_plan(cost, torch.tensor([[0.5, 0.5]]), torch.tensor([[0.25, 0.75]]))[0]
    tensor([[0.2500, 0.2500],
            [0.0000, 0.5000]])
    """
    plans = np.zeros(cost.shape)
    for plan, (c, row, col, _) in zip(plans, _numpy_items(cost, a, b, None), strict=True):
        entries, weights = _support(row, col)
        plan[entries] = _network_simplex(*weights, c[entries])[0]
    return torch.from_numpy(plans).to(cost)


def row_multipliers(cost: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return the Lagrange multipliers (B, n), float64, of the constraint p1 = a in `optimal_plan`, up to a constant.

    Adding a number to all multipliers of an item gives multipliers, too.
    """
    multipliers = [_network_simplex(row, col, c)[1] for c, row, col, _ in _numpy_items(cost, a, b, None)]
    return torch.from_numpy(np.stack(multipliers)).to(cost.device)


def optimal_partial_plan(cost: Tensor, a: Tensor, b: Tensor, mass: Tensor | None) -> Tensor:
    """Return a plan (B, n, m) of least cost <cost, p> among those with p1 ≤ a, p2 ≤ b and total mass `mass`, a vertex.

    cost: (B, n, m); a: (B, n); b: (B, m); mass: (B,), or None if the plan may have any mass.

    A dummy point on each side receives the unmatched mass. Without a given mass this is free, so a pair is used only
    if its cost is negative; with one, transport between the dummy points costs more than any plan. Weights are cut to
    the given mass, which no point can exceed, so that a small mass is not lost beside large weights.

    >>> cost = torch.tensor([[[-1.0, 1.0], [1.0, 2.0]]])
    >>> half = torch.tensor([[0.5, 0.5]])
    >>> optimal_partial_plan(cost, half, half, None)[0]
    tensor([[0.5000, 0.0000],
            [0.0000, 0.0000]])
    >>> optimal_partial_plan(cost, half, half, torch.tensor([0.75])).sum().item()
    0.75
    """
    plans = np.zeros(cost.shape)
    for plan, (c, row, col, m) in zip(plans, _numpy_items(cost, a, b, mass), strict=True):
        entries, weights = _support(row, col)
        weights = weights if m is None else (np.minimum(weights[0], m), np.minimum(weights[1], m))
        plan[entries] = _network_simplex(*_add_dummy_points(c[entries], *weights, m))[0][:-1, :-1]
    return torch.from_numpy(plans).to(cost)


def partial_multipliers(cost: Tensor, a: Tensor, b: Tensor, mass: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the derivatives of the optimal <cost, p> of `optimal_partial_plan` with respect to a, b and the mass.

    They are float64: (B, n) and (B, m), the Lagrange multipliers of p1 ≤ a and p2 ≤ b, none positive, and (B,), that of
    the mass, 0 if no mass is given.
    """
    rows, cols, masses = [], [], []
    for c, row, col, m in _numpy_items(cost, a, b, mass):
        _, u, v = _network_simplex(*_add_dummy_points(c, row, col, m))
        rows.append(u[:-1] + v[-1])
        cols.append(v[:-1] + u[-1])
        masses.append(0.0 if m is None else c.min() - u[-1] - v[-1])
    of_a, of_b, of_mass = (torch.from_numpy(np.stack(values)).to(cost.device) for values in (rows, cols, masses))
    return of_a, of_b, of_mass


def round_to_marginals(plan: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return a plan (B, n, m) near the given one whose marginals are a and b (Altschuler, Weed, Rigollet, 2017).

    plan: (B, n, m); a: (B, n) and b: (B, m), of equal mass. The L1 distance between both plans is at most twice the
    L1 violation of the marginals.
    """
    plan = clip_to_marginals(plan, a, b)
    return add_missing_mass(plan, a, b, a.sum(1) - plan.sum(dim=(1, 2)))


def clip_to_marginals(plan: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return the plan (B, n, m) after scaling down every row, then every column, whose mass exceeds its weight.

    plan: (B, n, m); a: (B, n); b: (B, m).
    """
    tiny = torch.finfo(plan.dtype).tiny
    plan = plan * (a / plan.sum(2).clamp(min=tiny)).clamp(max=1.0)[:, :, None]
    return plan * (b / plan.sum(1).clamp(min=tiny)).clamp(max=1.0)[:, None, :]


def add_missing_mass(plan: Tensor, a: Tensor, b: Tensor, missing: Tensor) -> Tensor:
    """Return the plan (B, n, m) plus a product of the unused weights a − p1 and b − p2 that has the mass `missing`.

    plan: (B, n, m) with p1 ≤ a and p2 ≤ b; a: (B, n); b: (B, m); missing: (B,).
    """
    tiny = torch.finfo(plan.dtype).tiny
    unused_a, unused_b = (a - plan.sum(2)).clamp(min=0.0), (b - plan.sum(1)).clamp(min=0.0)
    share_a, share_b = (unused / unused.sum(1, keepdim=True).clamp(min=tiny) for unused in (unused_a, unused_b))
    return plan + missing.clamp(min=0.0)[:, None, None] * share_a[:, :, None] * share_b[:, None, :]


def _numpy_items(cost: Tensor, a: Tensor, b: Tensor, mass: Tensor | None) -> Iterator[tuple[Any, ...]]:
    """Yield (cost, a, b, mass) of each batch item: float64 arrays (n, m), (n,) and (m,), and a float or None."""
    masses = [None] * len(cost) if mass is None else mass.double().cpu().tolist()
    arrays = (tensor.detach().double().cpu().numpy() for tensor in (cost, a, b))
    return zip(*arrays, masses, strict=True)


def _support(a: np.ndarray, b: np.ndarray) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, np.ndarray]]:
    """Return the index (np.ix_) of the pairs of points of positive weight, and the weights of these points.

    a: (n,); b: (m,). The costs at other points, such as padding, would change how costs are scaled and rounded, and so
    which of several optimal vertices is found.
    """
    is_row, is_col = a > 0, b > 0
    return np.ix_(is_row, is_col), (a[is_row], b[is_col])


def _add_dummy_points(
    cost: np.ndarray, row: np.ndarray, col: np.ndarray, mass: float | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the balanced transport problem with a dummy point on each side, which receives the unmatched mass.

    cost: (n, m); row: (n,) and col: (m,), weights; mass: of the plan between the given points, or None for any. Returns
    the weights (n + 1,) and (m + 1,) and the cost (n + 1, m + 1).
    """
    extended = np.zeros((len(row) + 1, len(col) + 1))
    if mass is None:
        extended[:-1, :-1] = cost
        unmatched_a, unmatched_b = row.sum(), col.sum()
    else:
        # With a given mass, a constant changes nothing; it makes every cost nonnegative.
        extended[:-1, :-1] = cost - cost.min()
        extended[-1, -1] = 2.0 * extended.max() or 1.0
        unmatched_a, unmatched_b = max(row.sum() - mass, 0.0), max(col.sum() - mass, 0.0)
    return np.append(row, unmatched_b), np.append(col, unmatched_a), extended


def _network_simplex(a: np.ndarray, b: np.ndarray, cost: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return an optimal plan (n, m) of one balanced transport problem, and the multipliers (n,), (m,) of its marginals.

    a: (n,); b: (m,); cost: (n, m). The means of both multipliers under the weights agree. Costs and masses are scaled
    to the order of 1, because POT's tolerances are absolute. Costs are rounded so that ties, as of pairs that match
    each other, are exact and the last bit does not choose between vertices.
    """
    import ot
    from ot.lp import emd_wrap

    size, mass = float(abs(cost).max()) or 1.0, a.sum()
    scaled = np.round(cost / size, KERNEL_CONFIG.cost_decimals)
    inputs, limit = (a / mass, b / b.sum(), scaled), KERNEL_CONFIG.max_simplex_pivots
    if scaled.size >= KERNEL_CONFIG.min_interruptible_entries:
        plan, log = call_interruptibly(ot.emd, *inputs, numItermax=limit, log=True)
        return plan * mass, log["u"] * size, log["v"] * size
    if a.min() > 0 and b.min() > 0:
        # For few points the checks of `ot.emd` take three times as long as the network simplex itself.
        plan, _, u, v, code = emd_wrap.emd_c(*map(np.ascontiguousarray, inputs), limit, 1)
        if code == KERNEL_CONFIG.simplex_optimal:
            shift = 0.5 * (v @ inputs[1] - u @ inputs[0])  # as `ot.emd` returns them: equal means
            return plan * mass, (u + shift) * size, (v - shift) * size
    plan, log = ot.emd(*inputs, numItermax=limit, log=True)
    return plan * mass, log["u"] * size, log["v"] * size
