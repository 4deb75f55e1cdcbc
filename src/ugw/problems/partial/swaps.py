"""Swaps: a plan that matches i with j and k with l matches i with l and k with j instead, which keeps its marginals.

At a vertex of the polytope of plans that no linear step improves, a swap may still lower the objective, because the
objective is concave along it. Distances that are integers, as of graphs, have many such vertices.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...geometry.metric import Metric
from ..config import PROBLEM_CONFIG


def best_swap(
    plan: Tensor, gradient: Tensor, dx: Metric, dy: Metric, min_decrease: Tensor, n_points: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the direction d (B, n, m) of the swap of two pairs that lowers F most, and (B,) bool: is there one?

    d = 0 if none lowers F by min_decrease, (B,) > 0. F is a function of plans p with F(p + d) − F(p) = <gradient, d> +
    Σ (Dx_ii' − Dy_jj')² d_ij d_i'j' for directions d with marginals 0. A swap moves all mass that is matched on both
    pairs (i, j) and (k, l), or the mass of one of them if the other has more. plan: (B, n, m) ≥ 0; gradient: (B, n, m).

    n_points: (B,), n + m without padding. Only the first 2 (n + m) entries of positive mass are swapped: a vertex has
    fewer than n + m, but a swap may split the larger one of two entries.
    """
    rows, cols, mass = _positive_entries(plan)
    mass = torch.where(torch.arange(mass.shape[1], device=mass.device) < 2 * n_points[:, None], mass, 0.0)
    items = torch.arange(len(plan), device=plan.device)[:, None]
    moved = torch.minimum(mass[:, :, None], mass[:, None, :])
    crossed = gradient[items[:, :, None], rows[:, :, None], cols[:, None, :]]
    kept = gradient[items, rows, cols]
    slope = crossed + crossed.mT - kept[:, :, None] - kept[:, None, :]
    curvature = -2.0 * _second_differences(dx, rows) * _second_differences(dy, cols)
    change = moved * (slope + moved * curvature)
    # Changes that differ by rounding are equal, and the first of them is the lowest, alone and in a batch.
    levels = (change.double() / min_decrease[:, None, None] * PROBLEM_CONFIG.swap_levels).round().flatten(1)
    first, second = torch.unravel_index(levels.argmin(1), change.shape[1:])
    items = items[:, 0]
    lowers = change[items, first, second] < -min_decrease
    amount = torch.where(lowers, moved[items, first, second], 0.0)
    (row_1, row_2), (col_1, col_2) = ((places[items, first], places[items, second]) for places in (rows, cols))
    direction = torch.zeros_like(plan)
    for row, col, sign in ((row_1, col_1, -1.0), (row_2, col_2, -1.0), (row_1, col_2, 1.0), (row_2, col_1, 1.0)):
        direction[items, row, col] += sign * amount
    return direction, lowers


def _positive_entries(plan: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows, columns and masses (B, K) of the first K positive entries of a plan (B, n, m), in row-major order.

    K is the largest number of positive entries of an item, at most 2 (n + m); items with fewer have some of mass 0 too.
    """
    n, m = plan.shape[1:]
    min_mass = PROBLEM_CONFIG.min_vertex_share * plan.sum(dim=(1, 2), keepdim=True)
    is_positive = (plan > min_mass).flatten(1)
    count = min(max(1, int(is_positive.sum(1).max())), 2 * (n + m))
    index = (~is_positive).to(torch.int8).argsort(dim=1, stable=True)[:, :count]
    return index // m, index % m, plan.flatten(1).gather(1, index)


def _second_differences(metric: Metric, index: Tensor) -> Tensor:
    """Return D_ii + D_kk − 2 D_ik, (B, K, K), for all pairs i, k of the points `index`, (B, K)."""
    columns = metric.columns(index)
    distances = columns.expand(len(index), -1, -1).take_along_dim(index[:, :, None], dim=1)
    diagonal = distances.diagonal(dim1=1, dim2=2)
    return diagonal[:, :, None] + diagonal[:, None, :] - 2.0 * distances
