"""Candidates of balanced GW without entropy for few points: vertices of the transport polytope, improved by swaps.

A swap takes a small part of the time of a linear program, so that many vertices can be compared.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..problems.partial.gw import PartialGW
from ..solvers.compiled_frank_wolfe import CompiledSteps, has_compiled_steps
from ..solvers.frank_wolfe import FrankWolfe, descend_by_swaps
from .config import INITIALIZER_CONFIG
from .plans import anchor_orders, north_west_corner
from .successive_halving import best_candidates, pick_plans, split_candidates


def swapped_vertices(problem: PartialGW) -> Tensor:
    """Return the best plans (B, S, n, m), of mass 1, found by swaps of two pairs from many vertices of the polytope.

    problem: balanced GW with the loss t². The vertices are made by the north-west corner rule from `anchor_orders`.
    Plans of equal objective count as one: an item with fewer of them repeats its best.
    """
    config = INITIALIZER_CONFIG
    rows, cols = anchor_orders(problem, config.n_swapped_vertices)
    gap_scale, tol = problem.gap_scale(), problem.gap_resolution().clamp(min=FrankWolfe().tol)
    steps = CompiledSteps(problem, gap_scale, tol) if has_compiled_steps(problem) else None
    items, (n, m) = torch.arange(problem.batch, device=rows.device), (rows.shape[2], cols.shape[2])
    plans, values = problem.product[:, None][:, :0], problem.eps[:, None][:, :0]
    # Not more plans at a time than fit into a cache: only the best are kept.
    for group, _ in split_candidates(torch.arange(rows.shape[1]).expand(problem.batch, -1), (n, m)):
        first, last = int(group[0, 0]), int(group[0, -1]) + 1
        index = items.repeat_interleave(last - first)
        orders = rows[:, first:last].flatten(0, 1), cols[:, first:last].flatten(0, 1)
        if steps is not None:
            new_plans, new_values = steps.take(index).swap_from_vertices(*orders, config.max_swaps)
        else:
            repeated = problem.take(index)
            vertices = north_west_corner(repeated, *orders)
            new_plans, new_values = descend_by_swaps(repeated, vertices, (gap_scale * tol)[index], config.max_swaps)
        plans = torch.cat([plans, new_plans.unflatten(0, (problem.batch, -1))], dim=1)
        values = torch.cat([values, new_values.view(problem.batch, -1)], dim=1)
        index = _best_different(values, config.n_swapped_survivors)
        plans, values = pick_plans(plans, index), values.gather(1, index)
    return plans


def _best_different(values: Tensor, count: int) -> Tensor:
    """Return the indices (B, up to `count`) of the lowest values (B, S), lowest first, equal ones only once.

    Where an item has fewer different values, the index of the lowest is repeated.
    """
    order = best_candidates(values, values.shape[1])
    ordered = values.gather(1, order)
    is_new = torch.ones_like(order, dtype=torch.bool)
    is_new[:, 1:] = ordered.diff(dim=1) > INITIALIZER_CONFIG.solution_tie * ordered[:, 1:].abs()
    place = (~is_new).to(torch.int8).argsort(dim=1, stable=True)[:, :count]
    place = torch.where(is_new.gather(1, place), place, 0)
    return order.gather(1, place)
