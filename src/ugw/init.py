"""First plans: product, first lower bound, linear transport, random anchors, and the coarse multistart.

Every start is a batch of shapes (B, n, m) of unit mass. None depends on an item's place in the batch, on its
padding or on zero-weight points; swapping the spaces transposes the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ._precision import rough
from .metrics import Dense, Metric
from .problems.linear import LinearProblem
from .problems.problem import Matching, Problem
from .problems.unbalanced import UGW
from .records import Sum
from .solvers.alternate import AlternateMin
from .solvers.sinkhorn import Sinkhorn
from .spaces import Space

# The coarse multistart: points kept per space, starts tried on them, anchor pairs of each, width of a start.
REPRESENTATIVES = 80
COARSE_STARTS = 40
ANCHORS = 3
WIDTH = 0.05
# They run in heats, of so many steps after which so many stay; none is sharper than this share of the cost's size.
# Plans of few entries can afford that none is dropped on the way.
HEATS, ONE_HEAT, SMALL = ((6, 12), (12, 10)), ((60, 42),), 400
SHARPEST = 5e-3
# Numbers that each point draws for a noisy start; the size of a noise that only breaks symmetries.
TRAITS, STIR = 6, 1e-6
# Of their results so many that differ by this much in L1 are lifted; the best of these run for some steps.
LIFTED, DIFFERENT = 6, 0.1
# Objectives of plans closer than this share of the largest are the same.
SAME = 1e-12
RACED, RACE_STEPS = 3, 2
# Plans of at most so many entries in all run as one batch.
TOGETHER = {"cpu": 1 << 20, "cuda": 1 << 26}
# Spaces of more points than this choose their plan on so many of them, after so many steps there.
LARGE, MIDDLE, MIDDLE_STEPS = 600, 400, 20
# Eccentricities are told apart by this share of the largest: rounding, which padding changes, is far below.
GRAIN = {torch.float32: 1e-5, torch.float64: 1e-10}
# A start need not be sharp: eps falls through these shares of the cost's scale, and no further.
BLUR = (1e-1, 1e-2)


def product(problem: UGW) -> Tensor:
    """a⊗b, eq. (2.3). Close to a saddle point: safe, and slow to leave."""
    return problem.product


def flb(problem: UGW) -> Tensor:
    """First lower bound: transport between eccentricities ecc_X = Dx a / m(a), cost |ecc_X(i) − ecc_Y(j)|²."""
    ecc_x = eccentricity(problem.x.metric, problem.log_a.exp())
    ecc_y = eccentricity(problem.y.metric, problem.log_b.exp())
    return transport((ecc_x[:, :, None] - ecc_y[:, None, :]).square(), problem)


def linear(problem: UGW) -> Tensor:
    """Transport of the points themselves, cost |x_i − y_j|²; both spaces must have points in the same R^d."""
    x, y = problem.x.points, problem.y.points
    if x is None or y is None:
        raise RuntimeError("linear starts need points: checked at the border")
    cost = torch.cdist(x.detach(), y.detach(), compute_mode="donot_use_mm_for_euclid_dist").square()
    return transport(cost.expand(problem.batch, -1, -1), problem)


def random(problem: Matching, count: int, seed: int = 0) -> Tensor:
    """`count` plans exp(−Σ_k (Dx[:, i_k] − Dy[:, j_k])² / (WIDTH·scale²)), each for a few anchor pairs (i_k, j_k).

    The same draw serves every item, scaled to its number of points. Returns (B, count, n, m).
    """
    near_x, near_y, width = anchors(problem, count, seed)
    starts = []
    for k in range(count):
        dx, dy = (d[:, :, k * ANCHORS : (k + 1) * ANCHORS] for d in (near_x, near_y))
        cost = dx.square().sum(2)[:, :, None] + dy.square().sum(2)[:, None, :] - 2.0 * dx @ dy.mT
        log_plan = problem.log_a[:, :, None] + problem.log_b[:, None, :] - cost / width[:, None, None]
        starts.append(torch.softmax(log_plan.flatten(1), dim=1).view_as(cost))
    return torch.stack(starts, dim=1)


def anchors(problem: Matching, count: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """For `count` random starts: distances to their anchors, (B, n, count·ANCHORS) and (B, m, ...), and widths (B,)."""
    draw = np.random.default_rng(seed).random((count * ANCHORS, 2))
    u = torch.as_tensor(draw, dtype=problem.log_a.dtype, device=problem.eps.device)
    # The space with the larger mean square distance draws first, whichever side it is on.
    side = (_mean_square(problem.x, problem.log_a) < _mean_square(problem.y, problem.log_b)).long()
    u = torch.stack([u, u.flip(1)])[side]  # (B, count·ANCHORS, 2)
    near_x = _distances_to_anchors(problem.x, problem.log_a, u[:, :, 0])
    near_y = _distances_to_anchors(problem.y, problem.log_b, u[:, :, 1])
    scale = _mean_square(problem.x, problem.log_a) + _mean_square(problem.y, problem.log_b)
    width = (WIDTH * torch.where(scale > 0, scale, 1.0)).to(near_x.dtype)
    return near_x, near_y, width


def noisy(problem: Matching, count: int, seed: int = 0) -> Tensor:
    """`count` plans a⊗b·exp(noise), with noise of about unit size. Returns (B, count, n, m)."""
    made = noise(problem, count, seed)
    log_plan = (problem.log_a[:, :, None] + problem.log_b[:, None, :])[:, None] + made
    return torch.softmax(log_plan.flatten(2), dim=2).view_as(made)


def noise(problem: Matching, count: int, seed: int = 0) -> Tensor:
    """Numbers of about unit size, (B, count, n, m): sums over traits drawn for each point.

    Points draw in the order of their eccentricities.
    """
    pairs = ((problem.x, problem.log_a), (problem.y, problem.log_b))
    side = (_mean_square(*pairs[0]) < _mean_square(*pairs[1])).long()  # who draws first, as in `random`
    size = (max(problem.x.n, problem.y.n), count, TRAITS)
    draws = np.stack([np.random.default_rng((seed, role)).standard_normal(size) for role in (0, 1)])
    u = torch.as_tensor(draws, dtype=problem.log_a.dtype, device=problem.eps.device)
    first = torch.arange(problem.batch, device=u.device)[:, None]
    ranks = [_by_eccentricity(*pair).argsort(1) for pair in pairs]
    of_x, of_y = u[side][first, ranks[0]], u[1 - side][first, ranks[1]]  # (B, points, count, TRAITS)
    return torch.einsum("bikt,bjkt->bkij", of_x, of_y) / TRAITS**0.5


def stirred(problem: Matching, plans: Tensor) -> Tensor:
    """Plans (B, S, n, m) with a little noise, the same for all of an item, at unit mass.

    Spaces with symmetries have plans with symmetries, which steps leave by rounding alone: another sum, another end.
    """
    return unit(plans * (STIR * noise(problem, 1)).exp())


def corners(problem: Matching, count: int, seed: int = 0) -> Tensor:
    """`count` plans with marginals a and b and few entries: north-west corners of the points in some order.

    First in the order of their eccentricities, then in random orders. Returns (B, count, n, m).
    """
    pairs = ((problem.x, problem.log_a), (problem.y, problem.log_b))
    # The k-th point with weight has the k-th number, whatever stands between.
    ranks = [((log_weights > -torch.inf).long().cumsum(1) - 1).clamp(min=0) for _, log_weights in pairs]
    side = (_mean_square(*pairs[0]) < _mean_square(*pairs[1])).long()  # who draws first, as in `random`
    made = [_corner(problem, *(_rank(s.metric, w.exp()).argsort(dim=1, stable=True) for s, w in pairs))]
    for k in range(1, count):
        draws = [np.random.default_rng((seed, k, role)).random(max(r.shape[1] for r in ranks)) for role in (0, 1)]
        u = torch.as_tensor(np.stack(draws), device=problem.eps.device)
        keys = (u[side].gather(1, ranks[0]), u[1 - side].gather(1, ranks[1]))
        made.append(_corner(problem, *(key.argsort(1) for key in keys)))
    return torch.stack(made, dim=1)


def _corner(problem: Matching, rows: Tensor, cols: Tensor) -> Tensor:
    """The plan that fills the points in the given orders (B, n), (B, m), of unit mass. Returns (B, n, m)."""
    a, b = problem.log_a.exp().gather(1, rows), problem.log_b.exp().gather(1, cols)
    end_a, end_b = a.cumsum(1), b.cumsum(1)
    plan = torch.minimum(end_a[:, :, None], end_b[:, None, :])
    plan = (plan - torch.maximum((end_a - a)[:, :, None], (end_b - b)[:, None, :])).clamp(min=0.0)
    # An entry that only rounding made would not vanish where a weight is 0.
    plan = torch.where((a > 0)[:, :, None] & (b > 0)[:, None, :], plan, 0.0)
    plan = plan.gather(1, rows.argsort(1)[:, :, None].expand_as(plan))
    return plan.gather(2, cols.argsort(1)[:, None, :].expand_as(plan))


def _rank(metric: Metric, weights: Tensor) -> Tensor:
    """Eccentricities (B, n) in whole steps: those that differ by rounding alone tie."""
    far = eccentricity(metric, weights)
    step = GRAIN[far.dtype] * far.abs().amax(1, keepdim=True)
    return (far / step.clamp(min=torch.finfo(far.dtype).tiny)).round()


def eccentricity(metric: Metric, weights: Tensor) -> Tensor:
    """The mean distance to the others, D a, under weights (B, n) of unit mass. Returns (B, n)."""
    return metric.apply(weights[:, :, None])[:, :, 0]


@dataclass(frozen=True, eq=False)
class Representatives:
    """Farthest points of a space: their indices (B, k), the columns (B, n, k) of D they own, their weights (B, k).

    A point counts for the representative nearest to it. Points without weight are neither chosen nor counted;
    where fewer than k points differ, the rest repeat with weight 0. whole: (B,) bool, do they stand for every
    point without any loss?
    """

    index: Tensor
    columns: Tensor
    weights: Tensor
    whole: Tensor

    def spread(self, log_weights: Tensor) -> Tensor:
        """(B, n, k): how the mass of each representative falls on its points, by weight."""
        own = torch.nn.functional.one_hot(self.columns.argmin(2), self.weights.shape[1])
        return own * log_weights.exp()[:, :, None] / torch.where(self.weights > 0, self.weights, 1.0)[:, None, :]


@dataclass(frozen=True, eq=False)
class Coarse:
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
        if bool(self.whole.any()):
            same = self.x.spread(fine.log_a) @ plan @ self.y.spread(fine.log_b).mT
            if bool(self.whole.all()):
                return same
        row = self.x.columns.square() @ plan.sum(2)[:, :, None]
        col = self.y.columns.square() @ plan.sum(1)[:, :, None]
        made = transport(row + col.mT - 2.0 * self.x.columns @ plan @ self.y.columns.mT, fine)
        return torch.where(self.whole[:, None, None], same, made) if bool(self.whole.any()) else made


def coarsen(problem: UGW, count: int, choose: Callable[[Metric, Tensor, int], Tensor]) -> Coarse:
    """The problem on `count` points of each space. Needs only columns of the distances, so it serves any metric.

    choose: `farthest` or `quantiles`.
    """
    x = representatives(problem.x, problem.log_a, count, choose)
    y = representatives(problem.y, problem.log_b, count, choose)
    mass_x, mass_y = problem.log_mass_a.exp().to(x.weights), problem.log_mass_b.exp().to(y.weights)
    small = problem.on(
        _coarse_space(x.columns, x.index, x.weights * mass_x[:, None], problem),
        _coarse_space(y.columns, y.index, y.weights * mass_y[:, None], problem),
        _coarse_cost(problem, x.index, y.index),
    )
    return Coarse(small, x, y)


def coarse(problem: UGW) -> Tensor:
    """The best plan of the coarse multistart."""
    return several(problem, 1)[:, 0]


def several(problem: UGW, count: int) -> Tensor:
    """The coarse multistart's best plans that differ, (B, up to `count`, n, m), best first.

    Run many starts on a few points, drop those that fall behind, lift the best that differ; they race again. The
    order of two coarse objectives says little about the fine ones, the objective of a lifted plan much, and a few
    steps nearly all. Spaces of many points are first thinned to MIDDLE of them. Where the representatives are all
    points, a lifted plan is the plan itself.
    """
    cheaper = problem.cheaper()
    with rough():
        found = _several(problem if cheaper is None else cheaper.problem, count)
    return found.to(problem.x.dtype)


def _several(problem: UGW, count: int) -> Tensor:
    if _is_large(*problem.largest):
        # Which of many plans is best shows on some of the points; all of them see the winner only.
        level = coarsen(problem, MIDDLE, quantiles)
        best, _ = race(AlternateMin(tol=1e-3, max_iter=MIDDLE_STEPS), level.problem, _several(level.problem, 1))
        return race(AlternateMin(max_iter=RACE_STEPS), problem, level.lift(best[:, 0], problem)[:, None])[0]
    level = coarsen(problem, REPRESENTATIVES, farthest)
    small = replace(level.problem, eps=torch.maximum(problem.eps, SHARPEST * level.problem.scale()))
    plans = torch.cat([product(small)[:, None], flb(small)[:, None], random(small, COARSE_STARTS)], dim=1)
    plans = stirred(small, plans)
    solver = AlternateMin(tol=1e-3, inner=Sinkhorn(tol=1e-3, max_iter=10))
    for steps, kept in ONE_HEAT if _is_small(*problem.largest) else HEATS:
        ends, values = race(replace(solver, max_iter=steps), small, plans)
        best = values.argsort(dim=1, stable=True)[:, :kept]
        plans, values = picked(ends, best), values.gather(1, best)
    chosen = torch.stack(list(different(plans, values, max(LIFTED, 3 * count))), dim=1)
    lifts = [level.lift(plan, problem) for plan in picked(plans, chosen).unbind(1)]
    judged = _told_apart(torch.stack([_value(problem, plan) for plan in lifts], dim=1))
    # An item repeats its first plan where others of the batch have more: that takes no other's place.
    again = (chosen == chosen[:, :1]).index_fill(1, chosen.new_zeros(1), value=False)
    order = judged.masked_fill(again, torch.inf).argsort(dim=1, stable=True)[:, : max(RACED, count)]
    ends, values = race(AlternateMin(max_iter=RACE_STEPS), problem, picked(torch.stack(lifts, dim=1), order))
    values = _told_apart(values).masked_fill(again.gather(1, order), torch.inf)
    return picked(ends, values.argsort(dim=1, stable=True)[:, :count])


def kind(n: int, m: int) -> tuple[bool, ...]:
    """What decides how `several` makes its plans: a batch whose items agree on it has those of its items alone."""
    return _is_large(n, m), _is_small(n, m)


def _is_large(n: int, m: int) -> bool:
    return max(n, m) > LARGE


def _is_small(n: int, m: int) -> bool:
    return min(n, REPRESENTATIVES) * min(m, REPRESENTATIVES) <= SMALL


def race(solver: AlternateMin, problem: Problem, plans: Tensor) -> tuple[Tensor, Tensor]:
    """Where plans (B, S, n, m) are after a few steps, at unit mass, and their objectives (B, S)."""
    batch = len(plans)
    together = max(1, TOGETHER.get(plans.device.type, TOGETHER["cpu"]) // plans[:, 0].numel())
    first = torch.arange(batch, device=plans.device)
    ends, values = [], []
    for group in plans.split(together, dim=1):
        several = problem if group.shape[1] == 1 else problem.take(first.repeat_interleave(group.shape[1]))
        found = solver(several, group.flatten(0, 1)).tensors
        ends.append(unit(found.plan).view_as(group))
        values.append(_repaired(several, found.terms, found.marginal_error).view(batch, -1))
    return torch.cat(ends, dim=1), torch.cat(values, dim=1)


def _told_apart(values: Tensor) -> Tensor:
    """Objectives (B, S) in steps: those that differ by rounding alone tie, and the first of them comes first."""
    finite = torch.where(torch.isfinite(values), values, 0.0)
    step = (SAME * finite.abs().amax(1, keepdim=True)).clamp(min=torch.finfo(values.dtype).tiny)
    return torch.where(torch.isfinite(values), (finite / step).round() * step, values)


def picked(plans: Tensor, index: Tensor) -> Tensor:
    """Some of each item's plans. plans: (B, S, n, m); index: (B, T). Returns (B, T, n, m)."""
    return plans[torch.arange(len(plans), device=plans.device)[:, None], index]


def _value(problem: Problem, plan: Tensor) -> Tensor:
    """What a plan of unit mass is worth, (B,)."""
    state = problem.couple(plan)
    return _repaired(problem, problem.objective(state), problem.marginal_error(state))


def _repaired(problem: Problem, terms: Sum, marginal_error: Tensor) -> Tensor:
    """Objectives (B,), with about what it costs to mend the hard marginals that a plan misses."""
    return terms.total + problem.cost_size() * (problem.log_mass_a + problem.log_mass_b).exp() * marginal_error


def unit(plan: Tensor) -> Tensor:
    """A plan (..., n, m) divided by its mass."""
    return plan / plan.sum(dim=(-2, -1), keepdim=True).clamp(min=torch.finfo(plan.dtype).tiny)


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
        if bool(torch.isinf(left).all()):
            return


def transport(cost: Tensor, problem: UGW) -> Tensor:
    """Shape of the entropic transport plan for a cost, with the problem's divergences. cost: (B, n, m)."""
    log_ab = problem.log_a[:, :, None] + problem.log_b[:, None, :]
    mean = (cost * log_ab.exp()).sum(dim=(1, 2), dtype=torch.float64)
    scale = torch.where(mean > 0, mean, 1.0)
    centred = cost - mean.to(cost.dtype)[:, None, None]
    sides = problem.log_a, problem.log_b, problem.div_a, problem.div_b
    solve, found = Sinkhorn(tol=1e-2, max_iter=20), None
    for share in BLUR:
        sharp = LinearProblem(centred, *sides, torch.maximum(problem.eps, share * scale))
        found = solve(sharp, None if found is None else (found.f, found.g))
    if found is None:
        raise RuntimeError("BLUR is empty")
    return found.shape


def representatives(
    space: Space, log_weights: Tensor, count: int, choose: Callable[[Metric, Tensor, int], Tensor]
) -> Representatives:
    """Up to `count` points of a space, and which points each stands for."""
    weights, metric = log_weights.exp(), space.metric
    batch, n = weights.shape
    index = choose(metric, weights, min(count, n))
    columns = metric.columns(index).expand(batch, n, -1)
    owner = columns.argmin(2)
    gathered = torch.zeros_like(index, dtype=weights.dtype).scatter_add_(1, owner, weights)
    whole = (torch.where(weights > 0, columns.amin(2), 0.0) == 0).all(1)
    return Representatives(index, columns, gathered, whole)


def farthest(metric: Metric, weights: Tensor, count: int) -> Tensor:
    """The most eccentric point, then again and again the one farthest from all chosen before. Returns (B, count)."""
    batch, present = len(weights), weights > 0
    chosen = [torch.where(present, _rank(metric, weights), -torch.inf).argmax(1)]
    nearest = _column(metric, chosen[0], batch)
    for _ in range(count - 1):
        chosen.append(torch.where(present, nearest, -1.0).argmax(1))
        nearest = torch.minimum(nearest, _column(metric, chosen[-1], batch))
    return torch.stack(chosen, dim=1)


def quantiles(metric: Metric, weights: Tensor, count: int) -> Tensor:
    """Points at even steps of the weight, in the order of their eccentricity. Returns (B, count)."""
    order = _rank(metric, weights).argsort(dim=1, stable=True)
    reached = weights.double().gather(1, order).cumsum(1)
    steps = (torch.arange(count, dtype=torch.float64, device=order.device) + 0.5) / count
    place = torch.searchsorted(reached, (steps * reached[:, -1:]).contiguous()).clamp(max=order.shape[1] - 1)
    return order.gather(1, place)


def _column(metric: object, index: Tensor, batch: int) -> Tensor:
    return metric.columns(index[:, None]).squeeze(2).expand(batch, -1)  # type: ignore[attr-defined]


def _coarse_space(columns: Tensor, index: Tensor, weights: Tensor, problem: UGW) -> Space:
    distances = torch.take_along_dim(columns, index[:, :, None], dim=1)
    k = weights.shape[1]
    return Space(Dense(distances), weights, None, None, (k,) * problem.batch, problem.numpy)


def _coarse_cost(problem: UGW, reps_x: Tensor, reps_y: Tensor) -> Tensor | None:
    if problem.cost is None:
        return None
    rows = torch.take_along_dim(problem.cost.expand(problem.batch, -1, -1), reps_x[:, :, None], dim=1)
    return torch.take_along_dim(rows, reps_y[:, None, :], dim=2)


def _distances_to_anchors(space: Space, log_weights: Tensor, u: Tensor) -> Tensor:
    """Columns (B, n, K) of D at the points numbered ⌊u·count⌋ among those with weight, by eccentricity."""
    present = log_weights > -torch.inf
    order = _by_eccentricity(space, log_weights)
    place = (u * present.sum(1, keepdim=True)).long()
    return space.metric.columns(torch.take_along_dim(order, place, dim=1)).expand(len(order), -1, -1)


def _by_eccentricity(space: Space, log_weights: Tensor) -> Tensor:
    """The points (B, n), the most eccentric first, those without weight last.

    Ordered by what they are, not where they stand: a permuted space draws the same points.
    """
    far = _rank(space.metric, log_weights.exp())
    return torch.where(log_weights > -torch.inf, -far, torch.inf).argsort(dim=1, stable=True)


def _mean_square(space: Space, log_weights: Tensor) -> Tensor:
    w = log_weights.exp()[:, :, None]
    return (w * space.metric.apply_squared(w)).sum(dim=(1, 2), dtype=torch.float64)
