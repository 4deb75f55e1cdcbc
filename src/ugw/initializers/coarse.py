"""The coarse multistart: many starts on a few points, the best of them carried to all points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.cuda_graphs.calls import prepared
from .._utils.cuda_graphs.mode import looking
from .._utils.precision import rough
from .._utils.pytree import BatchRecord
from .._utils.size_class import THRESHOLDS, size_class
from ..geometry.metric import DenseMetric
from ..geometry.space import Space
from ..problems.base import Problem
from ..problems.ugw import UGW
from ..solvers.alternating import AlternateMin
from ..solvers.sinkhorn import Sinkhorn
from .plans import flb, product, random, stirred, transport, unit
from .representatives import Choice, Representatives, farthest, quantiles, representatives

# Random starts tried on the coarsest level.
STARTS = 40
# They run in heats, of so many steps after which so many stay; none is sharper than this share of the cost's size.
# Plans of few entries can afford that none is dropped on the way.
HEATS, ONE_HEAT = ((6, 12), (8, 6)), ((60, STARTS + 2),)
SHARPEST = 5e-3
# Of their results so many that differ by this much in L1 are lifted, and run for some steps.
LIFTED, DIFFERENT, RACE_STEPS = 4, 0.1, 2
# Objectives of plans closer than this share of the largest are the same; of plans that are not yet solutions, this.
SAME, ALIKE = 1e-12, 1e-5
# When plans have settled well enough to be compared: entropy falls faster there than in a solve to the end.
NEARLY = AlternateMin(tol=1e-4, max_iter=60, proximal=(0.3, 0.01, 0.8))
# Plans of at most so many entries in all run as one batch.
TOGETHER = {"cpu": 1 << 20, "cuda": 1 << 26}
# Steps on the middle level before its plans are compared.
MIDDLE_STEPS = 30


@dataclass(frozen=True, eq=False)
class Coarse(BatchRecord):
    """A problem on a few representatives of each space."""

    problem: UGW
    x: Representatives
    y: Representatives

    @property
    def whole(self) -> Tensor:
        """(B,) bool: is it the fine problem itself, in another order?"""
        return self.x.whole & self.y.whole

    def lift(self, plan: Tensor, fine: UGW) -> Tensor:
        """The fine plan for the cost ∫ (Dx[:, r] − Dy[:, s])² dplan(r, s). plan: (B, k, l), any mass > 0.

        Where the representatives are all there is, the plan itself.
        """
        plan = unit(plan)
        if looking() and not bool(self.whole.any()):
            return self._transported(plan, fine)
        same = self.x.spread(fine.log_a) @ plan @ self.y.spread(fine.log_b).mT
        if looking() and bool(self.whole.all()):
            return same
        return torch.where(self.whole[:, None, None], same, self._transported(plan, fine))

    def _transported(self, plan: Tensor, fine: UGW) -> Tensor:
        row = self.x.columns.square() @ plan.sum(2)[:, :, None]
        col = self.y.columns.square() @ plan.sum(1)[:, :, None]
        return transport(row + col.mT - 2.0 * self.x.columns @ plan @ self.y.columns.mT, fine)


def coarsen(problem: UGW, count: int, choose: Choice, *, cells: bool = False) -> Coarse:
    """The problem on `count` points of each space, chosen by `farthest` or `quantiles`.

    cells: on as many cells instead. That is the problem itself, for plans that treat all points of a cell alike, but
    for the spread of the distances within a cell, so it has nearly the same valleys.
    """
    x = representatives(problem.x, problem.log_a, count, choose, cells=cells)
    y = representatives(problem.y, problem.log_b, count, choose, cells=cells)
    mass_x, mass_y = problem.log_mass_a.exp().to(x.weights), problem.log_mass_b.exp().to(y.weights)
    small = problem.on(
        _coarse_space(x, x.weights * mass_x[:, None], problem),
        _coarse_space(y, y.weights * mass_y[:, None], problem),
        _coarse_cost(problem, x, y, cells=cells),
    )
    return Coarse(small, x, y)


def start(problem: UGW) -> Tensor:
    """The best plan of the coarse multistart."""
    return several(problem, 1)[:, 0]


def several(problem: UGW, count: int) -> Tensor:
    """The coarse multistart's best plans that differ, (B, up to `count`, n, m), best first.

    Run many starts on a few cells, drop those that fall behind, lift the best that differ; they race again. The
    order of two coarse objectives says little about the fine ones, the objective of a lifted plan much, and a few
    steps nearly all. Spaces of many points are first gathered in some hundred cells, on which the winner and the
    product plan nearly settle. Where the cells are single points, a lifted plan is the plan itself.
    """
    with rough():
        found = _several(_cheaper(problem), count)
    return found.to(problem.x.dtype)


def _cheaper(problem: UGW) -> UGW:
    """The problem with less exact numbers, where these are worth it."""
    cheaper = problem.cheaper()
    return problem if cheaper is None else cheaper.problem


def _several(problem: UGW, count: int) -> Tensor:
    if size_class(*problem.largest).n_middle_clusters:
        # Which of two valleys is lower shows when plans have nearly settled there, on cells as well as on all points.
        level = prepared(_gathered, problem)
        plans = prepared(_beside_product, level.problem, _searched(level.problem, 1)[1])
        ends, values = race(AlternateMin(tol=1e-3, max_iter=MIDDLE_STEPS), level.problem, plans)
        return prepared(_lowest, problem, level, ends, values)
    again, plans = _searched(problem, max(LIFTED, count))
    ends, values = race(AlternateMin(max_iter=RACE_STEPS), problem, plans)
    values = _told_apart(values).masked_fill(again, torch.inf)
    return picked(ends, values.argsort(dim=1, stable=True)[:, :count])


def _searched(problem: UGW, count: int) -> tuple[Tensor, Tensor]:
    """Of many starts on a few cells the ends that differ, on all points, (B, up to `count`, n, m), best first.

    Before them, which, (B, ...) bool, repeat the first of their item, where others of the batch have more.
    """
    level, plans = prepared(_many_starts, problem)
    solver = AlternateMin(tol=1e-3, inner=Sinkhorn(tol=1e-3, max_iter=10))
    for steps, kept in ONE_HEAT if size_class(*problem.largest).has_small_coarse_level else HEATS:
        ends, values = race(replace(solver, max_iter=steps), level.problem, plans)
        best = values.argsort(dim=1, stable=True)[:, :kept]
        plans, values = picked(ends, best), values.gather(1, best)
    return prepared(_different_lifted, problem, level, plans, values, count)


def _gathered(problem: UGW) -> Coarse:
    return coarsen(problem, size_class(*problem.largest).n_middle_clusters, quantiles, cells=True)


def _beside_product(problem: UGW, plans: Tensor) -> Tensor:
    return stirred(problem, torch.cat([product(problem)[:, None], plans], dim=1))


def _lowest(problem: UGW, level: Coarse, plans: Tensor, values: Tensor) -> Tensor:
    """Of coarse plans (B, S, k, l) the one of the lowest value, on all points, (B, 1, n, m)."""
    return level.lift(picked(plans, values.argmin(1, keepdim=True))[:, 0], problem)[:, None]


def _many_starts(problem: UGW) -> tuple[Coarse, Tensor]:
    """The problem on a few cells, not too sharp, and plans to start from, (B, S, k, l)."""
    level = coarsen(problem, THRESHOLDS.n_coarse_clusters, farthest, cells=True)
    small = replace(level.problem, eps=torch.maximum(problem.eps, SHARPEST * level.problem.scale()))
    plans = torch.cat([product(small)[:, None], flb(small)[:, None], random(small, STARTS)], dim=1)
    return replace(level, problem=small), stirred(small, plans)


def _different_lifted(problem: UGW, level: Coarse, plans: Tensor, values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Of coarse plans (B, S, k, l) with these values up to `count` that differ, on all points, and see `_searched`."""
    chosen = torch.stack(list(different(plans, values, max(LIFTED, count))), dim=1)
    lifts, judged = _lifted(level, picked(plans, chosen), problem)
    again = (chosen == chosen[:, :1]).index_fill(1, chosen.new_zeros(1), value=False)
    order = _told_apart(judged).masked_fill(again, torch.inf).argsort(dim=1, stable=True)[:, :count]
    return again.gather(1, order), picked(lifts, order)


def ahead(problem: UGW, plans: Tensor) -> Tensor:
    """Of plans (B, S, n, m) the one that is best when they have nearly settled, then. Returns (B, n, m).

    Where no plan gets there, which less exact numbers may be the reason for, the first as it is.
    """
    given = _cheaper(problem)
    with rough():
        ends, values = race(NEARLY, given, plans.to(given.x.dtype))
    found = picked(ends, first_lowest(values, ALIKE)[:, None])[:, 0].to(plans.dtype)
    return torch.where(torch.isfinite(values).any(1)[:, None, None], found, plans[:, 0])


def first_lowest(values: Tensor, share: float) -> Tensor:
    """The first (B,) of the values (B, S) that are the lowest of their item, or above it by this share at most."""
    lowest = values.amin(1, keepdim=True)
    # argmax of a bool is the first True.
    return (values <= lowest + share * lowest.abs()).to(torch.int8).argmax(1)


def race(solver: AlternateMin, problem: Problem, plans: Tensor) -> tuple[Tensor, Tensor]:
    """Where plans (B, S, n, m) are after a few steps, at unit mass, and their objectives (B, S), inf if that failed."""
    ends, values = [], []
    for group, index in _groups(plans, plans.shape[2:]):
        several = problem if index is None else prepared(_taken, problem, index)[0]
        end, value = prepared(_finished, several, solver.end(several, group.flatten(0, 1)))
        ends.append(end.view_as(group))
        values.append(value.view(group.shape[:2]))
    value = torch.cat(values, dim=1)
    return torch.cat(ends, dim=1), torch.where(torch.isfinite(value), value, torch.inf)


def _lifted(level: Coarse, plans: Tensor, fine: UGW) -> tuple[Tensor, Tensor]:
    """Coarse plans (B, S, k, l) on all points, (B, S, n, m), and what these are worth, (B, S)."""
    made, values = [], []
    for group, index in _groups(plans, (fine.x.n, fine.y.n)):
        several, own = (fine, level) if index is None else (fine.take(index), level.take(index))
        plan = own.lift(group.flatten(0, 1), several)
        made.append(plan.view(*group.shape[:2], *plan.shape[1:]))
        values.append(_worth(several, several.state_of_plan(plan)).view(group.shape[:2]))
    return torch.cat(made, dim=1), torch.cat(values, dim=1)


def _groups(plans: Tensor, size: Sequence[int]) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Some of the plans (B, S, ...) of all items at a time, as many as run together if they have this size.

    And which items they are of, None where each has one.
    """
    most = TOGETHER.get(plans.device.type, TOGETHER["cpu"])
    first = torch.arange(len(plans), device=plans.device)
    for group in plans.split(max(1, most // (len(plans) * math.prod(size))), dim=1):
        yield group, None if group.shape[1] == 1 else first.repeat_interleave(group.shape[1])


def _told_apart(values: Tensor) -> Tensor:
    """Objectives (B, S) in steps: those that differ by rounding alone tie, and the first of them comes first."""
    finite = torch.where(torch.isfinite(values), values, 0.0)
    step = (SAME * finite.abs().amax(1, keepdim=True)).clamp(min=torch.finfo(values.dtype).tiny)
    return torch.where(torch.isfinite(values), (finite / step).round() * step, values)


def picked(plans: Tensor, index: Tensor) -> Tensor:
    """Some of each item's plans. plans: (B, S, n, m); index: (B, T). Returns (B, T, n, m)."""
    return plans[torch.arange(len(plans), device=plans.device)[:, None], index]


def _taken(problem: Problem, index: Tensor) -> tuple[Problem, Tensor]:
    """Some items, and which: what a problem holds itself may be infinite."""
    return problem.take(index), index


def _finished(problem: Problem, state: Any) -> tuple[Tensor, Tensor]:
    """The plan of a state at unit mass, and what it is worth."""
    return unit(state.unit_plan), _worth(problem, state)


def _worth(problem: Problem, state: Any) -> Tensor:
    """The objective (B,) of a state, with about what it costs to mend the hard marginals that its plan misses."""
    mend = problem.cost_size() * (problem.log_mass_a + problem.log_mass_b).exp() * problem.marginal_error(state)
    return problem.objective(state).total + mend


def different(plans: Tensor, values: Tensor, most: int) -> Iterator[Tensor]:
    """Up to `most` plans per item, lowest values first, none close to one before. Yields indices (B,).

    plans: (B, S, k, l); values: (B, S). An item with fewer different plans repeats its first.
    """
    first = torch.arange(len(values), device=values.device)
    shapes = unit(plans)
    left = values.clone()
    winner = values.argmin(1)
    for _ in range(most):
        chosen = torch.where(torch.isinf(left).all(1), winner, left.argmin(1))
        yield chosen
        apart = (shapes - shapes[first, chosen][:, None]).abs().sum(dim=(2, 3))
        left = torch.where(apart < DIFFERENT, torch.inf, left)
        if looking() and bool(torch.isinf(left).all()):
            return


def _coarse_space(few: Representatives, weights: Tensor, problem: UGW) -> Space:
    return Space(DenseMetric(few.between), weights, None, None, (weights.shape[1],) * problem.batch, problem.numpy)


def _coarse_cost(problem: UGW, x: Representatives, y: Representatives, *, cells: bool) -> Tensor | None:
    if problem.cost is None:
        return None
    cost = problem.cost.expand(problem.batch, -1, -1)
    if cells:
        return x.spread(problem.log_a).mT @ cost @ y.spread(problem.log_b)
    return torch.take_along_dim(torch.take_along_dim(cost, x.index[:, :, None], dim=1), y.index[:, None, :], dim=2)
