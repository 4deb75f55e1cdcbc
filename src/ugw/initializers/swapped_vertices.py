"""Candidates of balanced GW without entropy for few points: vertices of the transport polytope, improved by swaps.

A swap takes a small part of the time of a linear program, so that many vertices can be compared.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._utils.pytree import take
from ..problems.partial.gw import PartialGW
from ..solvers.compiled_frank_wolfe import CompiledSteps
from ..solvers.frank_wolfe import FrankWolfe, Iterate, descend_by_swaps, make_step
from .config import INITIALIZER_CONFIG
from .plans import anchor_orders, north_west_corner
from .search_steps import report_search_steps
from .successive_halving import best_candidates, pick_plans, split_candidates


def swapped_vertices(problem: PartialGW) -> Tensor:
    """Return the best plans (B, S, n, m), S ≤ 2, best first, to which swaps and linear steps lead from 32 vertices.

    Plans have mass 1. The vertices are made by the north-west corner rule from `anchor_orders` and improved by swaps.
    In each of three rounds a step of Frank–Wolfe and swaps improve the best of them. Plans of equal objective count as
    one: an item with fewer of them repeats its best. problem: balanced GW with the loss t².
    """
    survivors = INITIALIZER_CONFIG.swapped_survivors
    moves = _Moves(problem, survivors[0])
    rows, cols = anchor_orders(problem, INITIALIZER_CONFIG.n_swapped_vertices)
    plans, values = problem.product[:, None][:, :0], problem.eps[:, None][:, :0]
    # Not more plans at a time than fit into a cache: only the best are kept.
    for group, _ in split_candidates(torch.arange(rows.shape[1]).expand(problem.batch, -1), problem.product.shape[1:]):
        some = moves.swap_from_vertices(rows[:, group[0]], cols[:, group[0]])
        plans, values = (torch.cat(pair, dim=1) for pair in zip((plans, values), some, strict=True))
        index = _best_different(values, survivors[0])
        plans, values = pick_plans(plans, index), values.gather(1, index)
    for count in survivors:
        plans = pick_plans(plans, _best_different(values, count))
        plans, values = moves.swap(moves.step(plans))
    return pick_plans(plans, _best_different(values, survivors[-1]))


class _Moves:
    """Swaps and Frank–Wolfe steps of several plans per item, in the compiled library where it can be used."""

    def __init__(self, problem: PartialGW, max_steps: int) -> None:
        """Prepare the constants of swaps, and those of a step of at most `max_steps` plans of each item."""
        scale, tol = problem.gap_scale(), problem.gap_resolution().clamp(min=FrankWolfe().tol)
        self._problem, self._min_decrease, self._max_steps = problem, scale * tol, max_steps
        index = self._items(max_steps)
        # Each item has `max_steps` places, so that its steps have arrays of their own; swaps use the first of them.
        self._repeated = problem.take(index)
        self._step, self._context = make_step(self._repeated, scale[index], tol[index])

    def swap_from_vertices(self, rows: Tensor, cols: Tensor) -> tuple[Tensor, Tensor]:
        """Return plans (B, S, n, m) after swaps, from vertices by the north-west corner rule, and objectives (B, S).

        rows: (B, S, n), cols: (B, S, m), the orders of the points.
        """
        count = rows.shape[1]
        index, orders = self._items(count), (rows.flatten(0, 1), cols.flatten(0, 1))
        if not isinstance(self._context, CompiledSteps):
            plans = north_west_corner(self._problem.take(index), *orders)
            return self.swap(plans.unflatten(0, (-1, count)))
        return _by_item(self._context.take(index * self._max_steps).swap_from_vertices(*orders), count)

    def swap(self, plans: Tensor) -> tuple[Tensor, Tensor]:
        """Return plans (B, S, n, m) of mass 1 after swaps, and their objectives (B, S)."""
        count = plans.shape[1]
        index = self._items(count)
        if isinstance(self._context, CompiledSteps):
            return _by_item(self._context.take(index * self._max_steps).swap_from_plans(plans.flatten(0, 1)), count)
        repeated = self._problem.take(index)
        state = repeated.state_of_plan(plans.flatten(0, 1))
        state, _ = descend_by_swaps(repeated, state, self._min_decrease[index])
        return _by_item((state.unit_plan, repeated.objective(state).total), count)

    def step(self, plans: Tensor) -> Tensor:
        """Return plans (B, S, n, m) of mass 1 after a step of Frank–Wolfe each; S is at most `max_steps`."""
        batch, count = plans.shape[:2]
        index = (torch.arange(batch * self._max_steps, device=plans.device).view(batch, -1)[:, :count]).flatten()
        problem, one = self._repeated.take(index), plans.new_ones(len(index))
        iterate = Iterate(problem.state_of_plan(plans.flatten(0, 1)), one, one)
        iterate, _ = self._step(take(self._context, index), iterate)
        report_search_steps(torch.ones_like(index))
        return iterate.state.unit_plan.unflatten(0, (batch, count))

    def _items(self, count: int) -> Tensor:
        """Return the item of each plan, (B·count,), where each item has `count` plans."""
        return torch.arange(self._problem.batch, device=self._min_decrease.device).repeat_interleave(count)


def _by_item(results: tuple[Tensor, Tensor], count: int) -> tuple[Tensor, Tensor]:
    """Return plans (B·count, n, m) and objectives (B·count,) as (B, count, n, m) and (B, count)."""
    plans, values = results
    return plans.unflatten(0, (-1, count)), values.view(-1, count)


def _best_different(values: Tensor, count: int) -> Tensor:
    """Return the indices (B, min(count, S)) of the lowest values (B, S), lowest first, of equal ones only the first.

    Equal: within 1e-9 of the value. Where an item has fewer different values, the index of the lowest is repeated.
    """
    order = best_candidates(values, values.shape[1])
    ordered = values.gather(1, order)
    is_new = torch.ones_like(order, dtype=torch.bool)
    is_new[:, 1:] = ordered.diff(dim=1) > INITIALIZER_CONFIG.solution_tie * ordered[:, 1:].abs()
    place = (~is_new).to(torch.int8).argsort(dim=1, stable=True)[:, :count]
    place = torch.where(is_new.gather(1, place), place, 0)
    return order.gather(1, place)
