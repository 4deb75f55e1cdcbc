"""Exact linear programs of optimal transport by POT's network simplex, and projections of plans to their constraints.

Every function treats the items of a batch separately. Shapes: cost (B, n, m), weights a (B, n) and b (B, m).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
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
    return torch.from_numpy(_optimal_plans(*_to_numpy(cost, a, b))).to(cost)


def row_multipliers(cost: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return the dual potentials u (B, n), float64, of p1 = a in `optimal_plan`: u_i + v_j ≤ cost_ij for some v.

    They are, up to one constant per item, the derivatives of the least cost <cost, p> with respect to a.
    """
    multipliers = [_multipliers(*item)[0] for item in zip(*_to_numpy(cost, a, b), strict=True)]
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
    costs, rows, cols = _to_numpy(cost, a, b)
    masses = None if mass is None else _to_numpy(mass)[0]
    if masses is not None:
        rows, cols = (np.minimum(weights, masses[:, None]) for weights in (rows, cols))
        # Entries at points of weight 0, such as padding, do not change the costs of the others.
        is_used = (rows > 0)[:, :, None] & (cols > 0)[:, None, :]
        costs = np.where(is_used, costs, np.where(is_used, costs, np.inf).min((1, 2), keepdims=True))
    plans = _optimal_plans(_add_dummy_costs(costs, masses), *_add_dummy_weights(rows, cols, masses))
    return torch.from_numpy(plans[:, :-1, :-1]).to(cost)


class ProgramBatch:
    """The linear programs of `optimal_partial_plan` with fixed weights, for costs that change from step to step.

    Only points of positive weight take part, the dummy points among them. Arrays have one program after the other.
    supports: indices of the points, n or m for a dummy point; costs: to be written, scaled and rounded as in
    `_optimal_plans`; vertices: solutions of mass 1; layout: (B, 5), numbers of rows and columns, where the indices of
    the rows and of the columns begin in `supports`, and the cost in `costs`; masses: (B,), of the given programs.
    """

    def __init__(self, a: Tensor, b: Tensor, mass: Tensor | None) -> None:
        """Set masses, indices of used points (`supports`) and array positions (`layout`) of B linear programs.

        `costs` and `vertices`, the plans, are set to 0, to be written later.
        a: (B, n) and b: (B, m), weights; mass: (B,), that of the plans, None for any mass.
        """
        rows, cols = _to_numpy(a, b)
        masses = None if mass is None else _to_numpy(mass)[0]
        if masses is not None:
            rows, cols = (np.minimum(weights, masses[:, None]) for weights in (rows, cols))
        sides = _add_dummy_weights(rows, cols, masses)
        is_used, totals = [side > 0 for side in sides], [_total(side) for side in sides]
        counts = [mask.sum(1) for mask in is_used]
        first = [count.cumsum() - count for count in counts]
        sizes = counts[0] * counts[1]
        starts = sizes.cumsum() - sizes
        unit_rows, unit_cols = (
            (side / total[:, None])[mask] for side, total, mask in zip(sides, totals, is_used, strict=True)
        )
        layout = np.column_stack([*counts, first[0], counts[0].sum() + first[1], starts])
        self.layout = torch.from_numpy(layout)
        self.supports = torch.from_numpy(np.concatenate([mask.nonzero()[1] for mask in is_used]))
        self.masses = torch.from_numpy(totals[0])
        costs, vertices = (np.zeros(int(sizes.sum())) for _ in range(2))
        self.costs, self.vertices = torch.from_numpy(costs), torch.from_numpy(vertices)
        self._programs = [
            (
                unit_rows[row : row + n_rows],
                unit_cols[col : col + n_cols],
                costs[start : start + n_rows * n_cols].reshape(n_rows, n_cols),
                vertices[start : start + n_rows * n_cols].reshape(n_rows, n_cols),
            )
            for n_rows, n_cols, row, col, start in np.column_stack([*counts, *first, starts]).tolist()
        ]

    def solve(self, items: Sequence[int]) -> None:
        """Solve the linear programs `items` (indices) for the present `costs`; write plans of mass 1 to `vertices`."""
        for item in items:
            a, b, cost, vertex = self._programs[item]
            vertex[:] = _network_simplex(a, b, cost)


def partial_multipliers(cost: Tensor, a: Tensor, b: Tensor, mass: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the derivatives of the optimal <cost, p> of `optimal_partial_plan` with respect to a, b and the mass.

    They are float64: (B, n) and (B, m), the Lagrange multipliers of p1 ≤ a and p2 ≤ b, none positive, and (B,), that of
    the mass, 0 if no mass is given.
    """
    costs, rows, cols = _to_numpy(cost, a, b)
    masses = None if mass is None else _to_numpy(mass)[0]
    programs = _add_dummy_costs(costs, masses), *_add_dummy_weights(rows, cols, masses)
    pairs = [_multipliers(*item) for item in zip(*programs, strict=True)]
    u, v = (np.stack(multipliers) for multipliers in zip(*pairs, strict=True))
    lowest = costs.min((1, 2))
    of_mass = np.zeros(len(lowest)) if mass is None else lowest - u[:, -1] - v[:, -1]
    results = u[:, :-1] + v[:, -1:], v[:, :-1] + u[:, -1:], of_mass
    of_a, of_b, of_total = (torch.from_numpy(values).to(cost.device) for values in results)
    return of_a, of_b, of_total


def clip_to_marginals(plan: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return the plan (B, n, m) after scaling down every row, then every column, whose mass exceeds its weight.

    plan: (B, n, m); a: (B, n); b: (B, m).
    """
    tiny = torch.finfo(plan.dtype).tiny
    plan = plan * (a / plan.sum(2).clamp(min=tiny)).clamp(max=1.0)[:, :, None]
    return plan * (b / plan.sum(1).clamp(min=tiny)).clamp(max=1.0)[:, None, :]


def add_missing_mass(plan: Tensor, a: Tensor, b: Tensor, missing: Tensor) -> Tensor:
    """Return the plan (B, n, m) plus a product of the unused weights a − p1 and b − p2 that has the mass `missing`.

    plan: (B, n, m) with p1 ≤ a and p2 ≤ b; a: (B, n); b: (B, m); missing: (B,), a negative one counts as 0.
    """
    tiny = torch.finfo(plan.dtype).tiny
    unused_a, unused_b = (a - plan.sum(2)).clamp(min=0.0), (b - plan.sum(1)).clamp(min=0.0)
    share_a, share_b = (unused / unused.sum(1, keepdim=True).clamp(min=tiny) for unused in (unused_a, unused_b))
    return plan + missing.clamp(min=0.0)[:, None, None] * share_a[:, :, None] * share_b[:, None, :]


def _to_numpy(*tensors: Tensor) -> list[np.ndarray]:
    """Return detached copies or views of tensors as contiguous float64 NumPy arrays."""
    return [np.ascontiguousarray(tensor.detach().double().cpu().numpy()) for tensor in tensors]


def _add_dummy_costs(costs: np.ndarray, masses: np.ndarray | None) -> np.ndarray:
    """Return the costs (B, n + 1, m + 1) of transport problems with a dummy point on each side for the unmatched mass.

    With `masses`, (B,), of the plans between the given points, the smallest cost becomes 0 by a shift, and the pair of
    dummy points costs twice the largest (1 if that is 0); other entries at dummy points are 0. None for any mass: the
    costs, (B, n, m), are kept and all entries at dummy points are 0.
    """
    batch, n, m = costs.shape
    extended = np.zeros((batch, n + 1, m + 1))
    if masses is None:
        extended[:, :-1, :-1] = costs
    else:
        # With a given mass, a constant changes nothing; it makes every cost nonnegative.
        extended[:, :-1, :-1] = costs - costs.min((1, 2), keepdims=True)
        highest = extended.max((1, 2))
        extended[:, -1, -1] = np.where(highest > 0, 2.0 * highest, 1.0)
    return extended


def _add_dummy_weights(rows: np.ndarray, cols: np.ndarray, masses: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights (B, n + 1) and (B, m + 1) of balanced problems with a dummy point on each side.

    The dummy point, last, has the mass of the other side less `masses`, (B,), the mass of the plans between the given
    points; None for any: nothing is subtracted. rows: (B, n) and cols: (B, m), weights.
    """
    unmatched_a, unmatched_b = _total(rows), _total(cols)
    if masses is not None:
        # A dummy point that receives only rounding errors is left out: the problem is balanced without it.
        is_matched = KERNEL_CONFIG.matched_mass_share * masses
        unmatched_a, unmatched_b = (
            np.where(total - masses > is_matched, total - masses, 0.0) for total in (unmatched_a, unmatched_b)
        )
    return np.column_stack([rows, unmatched_b]), np.column_stack([cols, unmatched_a])


def _total(weights: np.ndarray) -> np.ndarray:
    """Return the sum (B,) of weights (B, n), in their order, so that appended zeros do not change its rounding."""
    return weights.cumsum(1)[:, -1]


def _optimal_plans(costs: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Return an optimal plan (B, n, m) of each balanced transport problem; costs: (B, n, m), rows (B, n), cols (B, m).

    Plans have the row sums `rows`. Costs and masses are scaled to the order of 1, because POT's tolerances are
    absolute. Costs are rounded so that ties, as of pairs that match each other, are exact and the last bit does not
    choose between vertices. Costs at points of weight 0, such as padding, count neither for the scale nor for the
    choice of a vertex.
    """
    is_row, is_col = rows > 0, cols > 0
    used = np.where(is_row[:, :, None] & is_col[:, None, :], costs, 0.0)
    size, mass = abs(used).max((1, 2)), _total(rows)
    scaled = np.round(used / np.where(size > 0, size, 1.0)[:, None, None], KERNEL_CONFIG.cost_decimals)
    unit_rows, unit_cols = rows / mass[:, None], cols / _total(cols)[:, None]
    plans = np.zeros(costs.shape)
    for k, (row, col) in enumerate(zip(_supports(is_row), _supports(is_col), strict=True)):
        entries = (row, col) if isinstance(row, slice) and isinstance(col, slice) else _outer_index(row, col)
        cost = np.ascontiguousarray(scaled[k][entries])
        plans[k][entries] = _network_simplex(unit_rows[k, row], unit_cols[k, col], cost)
    plans *= mass[:, None, None]
    return plans


def _supports(is_used: np.ndarray) -> list[slice | np.ndarray]:
    """Return for each row of a mask (B, n) its true positions: as a slice if they are the first ones, else as indices.

    A slice is a view, and most items of a batch have only padding at the end.
    """
    counts = is_used.sum(1)
    ends = is_used.shape[1] - is_used[:, ::-1].argmax(1)
    return [
        slice(0, int(count)) if count == end else np.flatnonzero(mask)
        for mask, count, end in zip(is_used, counts, ends, strict=True)
    ]


def _outer_index(row: slice | np.ndarray, col: slice | np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the index (np.ix_) of the submatrix with the rows `row` and the columns `col`."""
    return np.ix_(*(np.arange(index.stop) if isinstance(index, slice) else index for index in (row, col)))


def _network_simplex(a: np.ndarray, b: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Return an optimal plan (n, m) with row sums a, (n,), and column sums b, (m,), all positive. cost: (n, m)."""
    limit = KERNEL_CONFIG.max_simplex_pivots
    if cost.size < KERNEL_CONFIG.min_interruptible_entries:
        # For few points the checks of `ot.emd` take three times as long as the network simplex itself.
        plan, _, _, _, code = _compiled_simplex()(a, b, cost, limit, 1)
        if code == KERNEL_CONFIG.simplex_optimal:
            return plan
    import ot

    return call_interruptibly(ot.emd, a, b, cost, numItermax=limit)


@cache
def _compiled_simplex() -> Callable[..., Any]:
    """Return POT's `emd_c`, the compiled network simplex; cached, since an import takes a tenth of a solve's time."""
    from ot.lp import emd_wrap

    return emd_wrap.emd_c


def _multipliers(cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the dual potentials u (n,), v (m,) of one balanced transport problem, by POT: u_i + v_j ≤ cost_ij.

    cost: (n, m); a: (n,) and b: (m,), zeros included. Costs and masses are scaled and rounded as by `_optimal_plans`.
    """
    import ot

    size = float(abs(cost).max()) or 1.0
    scaled = np.round(cost / size, KERNEL_CONFIG.cost_decimals)
    inputs, limit = (a / a.sum(), b / b.sum(), scaled), KERNEL_CONFIG.max_simplex_pivots
    if scaled.size >= KERNEL_CONFIG.min_interruptible_entries:
        _, log = call_interruptibly(ot.emd, *inputs, numItermax=limit, log=True)
    else:
        _, log = ot.emd(*inputs, numItermax=limit, log=True)
    return log["u"] * size, log["v"] * size
