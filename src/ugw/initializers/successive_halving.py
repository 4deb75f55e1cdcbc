"""Successive halving: run all candidate plans for a few steps, keep the best, run those for more steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor

from .._utils.device_calls import call_on_device
from ..problems.base import Problem, hard_marginal_error
from ..solvers.alternating import AlternateMin
from ..solvers.frank_wolfe import FrankWolfe
from .config import INITIALIZER_CONFIG
from .plans import to_unit_mass
from .search_steps import report_search_steps


@dataclass(frozen=True)
class Round:
    """One round: every candidate runs for at most `solver.max_iter` steps, then the best of each item survive.

    solver: None if candidates are only evaluated; n_survivors: per item, best first, None for all in unchanged order;
    must_differ: are plans close to a better one dropped (`different_candidates`), and plans whose objective is above
    the lowest by more than `max_gap` times `objective_scale`? tie_tolerance: objectives closer than this share of the
    lowest count as equal, and the first of them is the better one.
    """

    solver: AlternateMin | FrankWolfe | None
    n_survivors: int | None = None
    _: KW_ONLY
    tie_tolerance: float = 0.0
    must_differ: bool = False
    max_gap: float = math.inf

    @property
    def n_steps(self) -> int:
        """The maximum number of steps of a candidate in this round."""
        return 0 if self.solver is None else self.solver.max_iter


def successive_halving(problem: Any, plans: Tensor, schedule: Sequence[Round]) -> tuple[Tensor, Tensor]:
    """Return the plans (B, T, n, m) that survive all rounds, after their last steps, and their objectives (B, T).

    plans: (B, S, n, m), the candidates of each item; schedule: the rounds, one at least. The best plan comes first if
    the last round selects survivors, otherwise all stay in order. Plans are returned scaled to mass 1, with objectives
    at the optimal mass plus a penalty for missed hard marginals; those of a partial problem keep their mass. An
    objective is inf if it is not finite, or if its plan repeats the first one because fewer plans differ.
    """
    values = plans.new_empty(plans.shape[:2])
    is_decided = torch.zeros(len(plans), dtype=torch.bool, device=plans.device)  # only one different plan is left
    for round_ in schedule:
        before = plans, values
        plans, values = _run_candidates(problem, plans, round_.solver)
        plans = torch.where(is_decided[:, None, None, None], before[0], plans)
        values = torch.where(is_decided[:, None], before[1], values)
        if round_.n_survivors is None:
            continue
        if round_.must_differ:
            scale = objective_scale(problem)[:, None]
            values = values.masked_fill(values > values.amin(1, keepdim=True) + round_.max_gap * scale, torch.inf)
            index = different_candidates(plans, values, round_.n_survivors, INITIALIZER_CONFIG.candidate_tie * scale)
        else:
            index = best_candidates(values, round_.n_survivors, round_.tie_tolerance)
        plans, values = pick_plans(plans, index), values.gather(1, index)
        if round_.must_differ:  # a repeated plan is no further candidate
            is_repeated = (index == index[:, :1]).index_fill(1, index.new_zeros(1), value=False)
            values = values.masked_fill(is_repeated, torch.inf)
            is_decided = torch.isinf(values[:, 1:]).all(1)
            if not is_decided.is_cuda and bool(is_decided.all()):
                break
    return plans, values


def best_candidates(values: Tensor, count: int, tie_tolerance: float = 0.0) -> Tensor:
    """Return the indices (B, up to `count`) of the lowest of the values (B, S), lowest first.

    Of values within the share `tie_tolerance` above the lowest that is left, the first comes first.

    >>> best_candidates(torch.tensor([[2.0, 1.01, 1.0]]), 2, tie_tolerance=0.1)
    tensor([[1, 2]])
    """
    if not tie_tolerance:
        return values.argsort(dim=1, stable=True)[:, :count]
    chosen: list[Tensor] = []
    is_left = torch.ones_like(values, dtype=torch.bool)
    values = torch.where(torch.isnan(values), torch.inf, values)  # the minimum would be NaN
    for _ in range(min(count, values.shape[1])):
        lowest = values.masked_fill(~is_left, torch.inf).amin(1, keepdim=True)
        is_lowest = is_left & (values <= lowest + tie_tolerance * lowest.abs())
        chosen.append(is_lowest.to(torch.int8).argmax(1))  # the first True
        is_left = is_left.scatter(1, chosen[-1][:, None], value=False)
    return torch.stack(chosen, dim=1)


def different_candidates(plans: Tensor, values: Tensor, count: int, tie: Tensor | float = 0.0) -> Tensor:
    """Return the indices (B, up to `count`) of the plans of lowest values, none of them close to a better one.

    plans: (B, S, n, m); values: (B, S); tie: (B, 1) or a number, of values above the lowest by at most this the first
    counts as the lowest. Two plans are close if, scaled to mass 1, their L1 distance is below 0.1. An item
    with fewer different plans repeats its first; columns in which all items would repeat are left out, except on a GPU.
    """
    first = torch.arange(len(values), device=values.device)
    unit_plans = to_unit_mass(plans)
    left, best = values.clone(), _first_lowest(values, tie)
    chosen: list[Tensor] = []
    for _ in range(count):
        chosen.append(torch.where(torch.isinf(left).all(1), best, _first_lowest(left, tie)))
        distance = (unit_plans - unit_plans[first, chosen[-1]][:, None]).abs().sum(dim=(2, 3))
        left = torch.where(distance < INITIALIZER_CONFIG.min_candidate_distance, torch.inf, left)
        if not left.is_cuda and bool(torch.isinf(left).all()):
            break
    return torch.stack(chosen, dim=1)


def _first_lowest(values: Tensor, tie: Tensor | float) -> Tensor:
    """Return the index (B,) of the first of the values (B, S) at most `tie`, (B, 1), absolute, above the lowest."""
    return (values <= values.amin(1, keepdim=True) + tie).to(torch.int8).argmax(1)


def pick_plans(plans: Tensor, index: Tensor) -> Tensor:
    """Return the plans (B, T, n, m) at the indices (B, T) among each item's plans (B, S, n, m)."""
    return plans[torch.arange(len(plans), device=plans.device)[:, None], index]


def split_candidates(plans: Tensor, size: Sequence[int]) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield groups (B, k, ...) of candidates (B, S, ...) that fit into one batch, and the item (B·k,) of each of them.

    size: of one candidate, (n, m), while it runs; items: None if k = 1, that is one candidate of each item.
    """
    limits = INITIALIZER_CONFIG.max_batch_entries
    max_entries = limits.get(plans.device.type, limits["cpu"])
    items = torch.arange(len(plans), device=plans.device)
    for group in plans.split(max(1, max_entries // (len(plans) * math.prod(size))), dim=1):
        yield group, None if group.shape[1] == 1 else items.repeat_interleave(group.shape[1])


def penalized_objective(problem: Problem, state: Any) -> Tensor:
    """Return the objective (B,) at the plan of a state, plus a penalty if its marginals miss hard (rho = inf) weights.

    The objective is that at the mass of the state. The penalty is `objective_scale` times the larger L1 error of both
    unit marginals (hard sides only), about the cost of repairing them.
    """
    repair = objective_scale(problem) * hard_marginal_error(problem, state.unit_plan)
    return problem.objective(state).total + repair


def objective_scale(problem: Problem) -> Tensor:
    """Return s·m(a)·m(b), (B,), a unit of objectives, with the typical size s of an entry of the linearized cost."""
    return problem.cost_scale() * (problem.log_mass_a + problem.log_mass_b).exp()


def _run_candidates(problem: Any, plans: Tensor, solver: AlternateMin | FrankWolfe | None) -> tuple[Tensor, Tensor]:
    """Return the plans (B, S, n, m) after the steps of a solver, and their objectives (B, S), inf if not finite.

    solver: None makes no steps. Plans are scaled to mass 1, with objectives at the optimal mass plus a penalty for hard
    marginals that they miss; only those of FrankWolfe keep their mass and have no penalty.
    """
    ends, values = [], []
    for group, items in split_candidates(plans, plans.shape[2:]):
        end, value = _run_batch(problem, group.flatten(0, 1), items, solver)
        ends.append(end.view_as(group))
        values.append(value.view(group.shape[:2]))
    value = torch.cat(values, dim=1)
    return torch.cat(ends, dim=1), torch.where(torch.isfinite(value), value, torch.inf)


def _run_batch(
    problem: Any, plans: Tensor, items: Tensor | None, solver: AlternateMin | FrankWolfe | None
) -> tuple[Tensor, Tensor]:
    """Return K plans after the steps of a solver, (K, n, m), and their objectives, (K,).

    plans: (K, n, m); items: (K,), the batch item of each plan, None if plan k belongs to item k; solver: None makes no
    steps. Plans are scaled to mass 1, and their objectives are those at the optimal mass plus a penalty for hard
    marginals that they miss. Only a FrankWolfe returns plans with their own mass, and objectives without a penalty.
    """
    if isinstance(solver, FrankWolfe):  # a partial plan has its mass, and misses no marginal
        output = solver.run(problem if items is None else problem.take(items), plans, None).tensors
        report_search_steps(output.n_iter)
        return output.plan, output.terms.total
    repeated = problem if items is None else call_on_device(_take_items, problem, items)[0]
    if solver is None:
        return call_on_device(_evaluate, repeated, plans)
    state, n_iter = solver.final_state(repeated, plans)
    report_search_steps(n_iter)
    return call_on_device(_unit_plan_and_value, repeated, state)


def _take_items(problem: Problem, index: Tensor) -> tuple[Problem, Tensor]:
    """Return (problem of the items `index`, index): a function in a CUDA graph must return a finite tensor last."""
    return problem.take(index), index


def _evaluate(problem: Problem, plans: Tensor) -> tuple[Tensor, Tensor]:
    """Return plans (B, n, m) scaled to mass 1, and their objectives (B,) plus a penalty for missed hard marginals."""
    unit_plans = to_unit_mass(plans)
    return unit_plans, penalized_objective(problem, problem.state_of_plan(unit_plans).reported())


def _unit_plan_and_value(problem: Problem, state: Any) -> tuple[Tensor, Tensor]:
    """Return a state's plan scaled to mass 1, (B, n, m), and the `penalized_objective` (B,) at the state's mass."""
    return to_unit_mass(state.unit_plan), penalized_objective(problem, state)
