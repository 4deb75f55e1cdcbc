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
from .successive_halving import Round, best_candidates, pick_plans, successive_halving


def swapped_vertices(problem: PartialGW) -> Tensor:
    """Return the best plans (B, S, n, m), of mass 1, to which swaps and linear steps lead from many vertices.

    problem: balanced GW with the loss t². The vertices are made by the north-west corner rule from `anchor_orders` and
    improved by swaps. Then, as long as candidates remain, a step of Frank–Wolfe and swaps improve the best of them.
    Plans of equal objective count as one: an item with fewer of them repeats its best.
    """
    config, descent = INITIALIZER_CONFIG, _SwapDescent(problem)
    rows, cols = anchor_orders(problem, config.n_swapped_vertices)
    plans, values = descent.from_vertices(rows, cols)
    for count in config.swapped_survivors:
        index = _best_different(values, count)
        plans, steps = pick_plans(plans, index), FrankWolfe(max_iter=1)
        stepped, _ = successive_halving(problem, plans, (Round(steps),))
        plans, values = descent.from_plans(stepped)
    return pick_plans(plans, _best_different(values, config.swapped_survivors[-1]))


class _SwapDescent:
    """Swaps of the candidates of a balanced problem, by the compiled library where it can be used."""

    def __init__(self, problem: PartialGW) -> None:
        """Prepare the compiled arrays of the problem."""
        gap_scale, tol = problem.gap_scale(), problem.gap_resolution().clamp(min=FrankWolfe().tol)
        self._problem, self._min_decrease = problem, gap_scale * tol
        self._steps = CompiledSteps(problem, gap_scale, tol) if has_compiled_steps(problem) else None

    def from_vertices(self, rows: Tensor, cols: Tensor) -> tuple[Tensor, Tensor]:
        """Return plans (B, S, n, m) after swaps, from vertices by the north-west corner rule, and objectives (B, S).

        rows: (B, S, n), cols: (B, S, m), the orders of the points.
        """
        count = rows.shape[1]
        index, orders = self._items(count), (rows.flatten(0, 1), cols.flatten(0, 1))
        if self._steps is None:
            plans = north_west_corner(self._problem.take(index), *orders)
            return self.from_plans(plans.unflatten(0, (-1, count)))
        return _unflatten(self._steps.take(index).swap_from_vertices(*orders), count)

    def from_plans(self, plans: Tensor) -> tuple[Tensor, Tensor]:
        """Return plans (B, S, n, m) of mass 1 after swaps, and their objectives (B, S)."""
        count = plans.shape[1]
        index = self._items(count)
        if self._steps is None:
            repeated = self._problem.take(index)
            state = repeated.state_of_plan(plans.flatten(0, 1))
            state, _ = descend_by_swaps(repeated, state, self._min_decrease[index])
            return _unflatten((state.unit_plan, repeated.objective(state).total), count)
        return _unflatten(self._steps.take(index).swap_from_plans(plans.flatten(0, 1)), count)

    def _items(self, count: int) -> Tensor:
        """Return the item of each plan, (B·count,), where each item has `count` plans."""
        return torch.arange(self._problem.batch, device=self._min_decrease.device).repeat_interleave(count)


def _unflatten(results: tuple[Tensor, Tensor], count: int) -> tuple[Tensor, Tensor]:
    """Return plans (B·count, n, m) and objectives (B·count,) with `count` plans for each of B items."""
    plans, values = results
    return plans.unflatten(0, (-1, count)), values.view(-1, count)


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
