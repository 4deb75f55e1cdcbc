"""Plans by formulas: product, first lower bound, linear transport, random anchors, noise and vertices.

All are plans (B, n, m) of mass 1. None depends on an item's place in the batch, on its padding or on points of
weight 0; swapping the spaces transposes the plan.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .._utils.constants import cached_constant
from ..geometry.point_distances import euclidean_distances
from ..geometry.space import Space
from ..problems.base import SpacePair
from ..problems.distortion.squares import distance_moments
from ..problems.linear import LinearProblem
from ..problems.ugw import UGW
from ..solvers.sinkhorn import Sinkhorn
from .centers import eccentricities, rounded_eccentricities
from .config import INITIALIZER_CONFIG


def first_lower_bound_plan(problem: UGW) -> Tensor:
    """Return the entropic transport plan (B, n, m) of mass 1 between eccentricities, cost |ecc_X(i) − ecc_Y(j)|².

    ecc_X = Dx a, with a of mass 1, is the mean distance of each point to all. The marginals have the rhos of the
    problem; hard ones without entropy would give the plan of the first lower bound of Gromov–Wasserstein.
    """
    ecc_x = eccentricities(problem.x.metric, problem.log_a.exp())
    ecc_y = eccentricities(problem.y.metric, problem.log_b.exp())
    return transport_plan((ecc_x[:, :, None] - ecc_y[:, None, :]).square(), problem)


def linear_transport_plan(problem: UGW) -> Tensor:
    """Return the entropic transport plan (B, n, m) of mass 1 for the cost |x_i − y_j|² and the rhos of the problem.

    Both spaces have points in the same R^d.
    """
    x, y = problem.x.point_tensor, problem.y.point_tensor
    if x is None or y is None:
        raise RuntimeError("linear starts need points: checked by check_common_dimension")
    cost = euclidean_distances(x.detach(), y.detach(), squared=True)
    return transport_plan(cost.expand(problem.batch, -1, -1), problem)


def random_anchor_plans(problem: SpacePair, count: int, seed: int = 0) -> Tensor:
    """Return `count` plans of mass 1, (B, count, n, m), which match points with similar distances to random anchors.

    A plan is proportional to a⊗b·exp(−Σ_k (Dx[:, i_k] − Dy[:, j_k])² / width) for a few anchor pairs (i_k, j_k). The
    same draw serves every item, scaled to its number of points.
    """
    near_x, near_y, width = anchor_distances(problem, count, seed)
    return _plans_of_anchors(problem, near_x, near_y, width, count)


def matching_anchor_plans(problem: SpacePair, count: int) -> Tensor:
    """Return `count` plans like those of `random_anchor_plans`, (B, count, n, m), from anchors that match.

    The anchor pairs of each plan are drawn 16 times, and the first draw is taken whose distances between anchors differ
    least between the spaces (`anchor_mismatch`). problem: its metrics are stored.
    """
    n_proposals, n_pairs = INITIALIZER_CONFIG.n_anchor_proposals, INITIALIZER_CONFIG.n_anchor_pairs
    rows, cols = (
        anchors.unflatten(1, (count, n_proposals, n_pairs)) for anchors in _anchors(problem, count * n_proposals, 0)
    )
    mismatch = anchor_mismatch(problem, rows, cols)
    first = (mismatch <= mismatch.amin(2, keepdim=True)).to(torch.int8).argmax(2)[:, :, None, None]
    rows, cols = (anchors.take_along_dim(first, dim=2).flatten(1) for anchors in (rows, cols))
    near_x, near_y = _columns(problem.x, rows), _columns(problem.y, cols)
    return _plans_of_anchors(problem, near_x, near_y, _anchor_width(problem), count)


def anchor_mismatch(problem: SpacePair, rows: Tensor, cols: Tensor) -> Tensor:
    """Return how much the anchors (B, ..., k) of two spaces differ, (B, ...), in whole steps of 1e-6.

    The sum of the squared differences of the distances between anchors and of their eccentricities, divided by the sum
    of their squared distances; inf if that is 0. rows, cols: (B, ..., k), indices of the anchor pairs in both spaces.
    """
    sides = ((problem.x, problem.log_a, rows), (problem.y, problem.log_b, cols))
    items = torch.arange(len(rows), device=rows.device).view(-1, *[1] * rows.ndim)
    between_x, between_y = (
        space.metric.dense().expand(problem.batch, -1, -1)[items, anchors[..., None], anchors[..., None, :]].tril(-1)
        for space, _, anchors in sides
    )
    of_x, of_y = (
        eccentricities(space.metric, log_weights.exp())[items[..., 0], anchors] for space, log_weights, anchors in sides
    )
    differences = (between_x - between_y).square().sum((-2, -1)) + (of_x - of_y).square().sum(-1)
    squares = (between_x.square() + between_y.square()).sum((-2, -1))
    steps = torch.round(differences / squares / INITIALIZER_CONFIG.anchor_mismatch_step)
    return torch.where(squares > 0, steps, torch.inf)


def _plans_of_anchors(problem: SpacePair, near_x: Tensor, near_y: Tensor, width: Tensor, count: int) -> Tensor:
    """Return the plans (B, count, n, m) of mass 1 ∝ a⊗b·exp(−Σ_k (near_x[i, k] − near_y[j, k])² / width).

    near_x: (B, n, count·k), near_y: (B, m, count·k), distances to the k anchors of each plan; width: (B,).
    """
    dx, dy = (near.unflatten(2, (count, -1)).transpose(1, 2) for near in (near_x, near_y))
    cost = dx.square().sum(3)[:, :, :, None] + dy.square().sum(3)[:, :, None, :] - 2.0 * dx @ dy.mT
    log_ab = problem.log_a[:, :, None] + problem.log_b[:, None, :]
    log_plan = log_ab[:, None] - cost / width[:, None, None, None]
    return torch.softmax(log_plan.flatten(2), dim=2).view_as(cost)


def anchor_distances(problem: SpacePair, count: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return distances (B, n, K), (B, m, K) of all points to K random anchors of their space, and kernel widths (B,).

    K is `count` times the number of anchor pairs of a random plan ∝ a⊗b·exp(−(squared differences) / width).
    """
    rows, cols = _anchors(problem, count, seed)
    return _columns(problem.x, rows), _columns(problem.y, cols), _anchor_width(problem)


def noise_plans(problem: SpacePair, count: int) -> Tensor:
    """Return `count` plans a⊗b·exp(noise) scaled to mass 1, (B, count, n, m), with random noise of about unit size."""
    noise = low_rank_noise(problem, count)
    log_plan = (problem.log_a[:, :, None] + problem.log_b[:, None, :])[:, None] + noise
    return torch.softmax(log_plan.flatten(2), dim=2).view_as(noise)


def low_rank_noise(problem: SpacePair, count: int) -> Tensor:
    """Return random matrices (B, count, n, m), entries of about unit size: inner products of normal vectors of points.

    Random vectors, the same in every call, are assigned in the order of eccentricities, so that the order of the points
    does not matter.
    """
    sides = ((problem.x, problem.log_a), (problem.y, problem.log_b))
    side = _side_that_draws_first(problem)
    n_factors = INITIALIZER_CONFIG.n_noise_factors
    size = (max(problem.x.n, problem.y.n), count, n_factors)
    u = cached_constant(normal_draws, 0, size, problem.log_a.dtype, problem.eps.device)
    items = torch.arange(problem.batch, device=u.device)[:, None]
    ranks = [_eccentricity_order(*pair).argsort(1) for pair in sides]
    of_x, of_y = u[side][items, ranks[0]], u[1 - side][items, ranks[1]]  # (B, points, count, n_factors)
    return torch.einsum("bikt,bjkt->bkij", of_x, of_y) / n_factors**0.5


def uniform_draws(seed: int, size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return uniform random numbers in [0, 1) of shape `size`, up to rounding the same for a seed on all devices."""
    return torch.as_tensor(np.random.default_rng(seed).random(size), dtype=dtype, device=device)


def normal_draws(seed: int, size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return seeded normal random numbers (2, *size): for the space with larger distances, then for the other one."""
    draws = [np.random.default_rng((seed, role)).standard_normal(size) for role in (0, 1)]
    return torch.as_tensor(np.stack(draws), dtype=dtype, device=device)


def break_symmetries(problem: SpacePair, plans: Tensor) -> Tensor:
    """Return the plans (B, S, n, m) times exp(noise of size 1e-6), the same for all plans of an item, scaled to mass 1.

    Spaces with symmetries have plans with symmetries, from which steps move away by rounding errors alone: sums in
    another order would then lead to another plan.
    """
    return to_unit_mass(plans * (INITIALIZER_CONFIG.symmetry_breaking_noise * low_rank_noise(problem, 1)).exp())


def vertex_plans(problem: SpacePair, count: int) -> Tensor:
    """Return `count` vertices of the polytope of plans with marginals a and b of mass 1, (B, count, n, m).

    They are made by the north-west corner rule, which takes the points in the order of their eccentricities for the
    first vertex and in random orders for the others.
    """
    pairs = ((problem.x, problem.log_a), (problem.y, problem.log_b))
    # The k-th point of positive weight takes the k-th random number, whatever padding is between.
    ranks = [((log_weights > -torch.inf).long().cumsum(1) - 1).clamp(min=0) for _, log_weights in pairs]
    side = _side_that_draws_first(problem)
    plans = [
        north_west_corner(
            problem, *(rounded_eccentricities(s.metric, w.exp()).argsort(dim=1, stable=True) for s, w in pairs)
        )
    ]
    for k in range(1, count):
        draws = [np.random.default_rng((0, k, role)).random(max(r.shape[1] for r in ranks)) for role in (0, 1)]
        u = torch.as_tensor(np.stack(draws), device=problem.eps.device)
        keys = (u[side].gather(1, ranks[0]), u[1 - side].gather(1, ranks[1]))
        plans.append(north_west_corner(problem, *(key.argsort(1) for key in keys)))
    return torch.stack(plans, dim=1)


def north_west_corner(problem: SpacePair, rows: Tensor, cols: Tensor) -> Tensor:
    """Return the plan (B, n, m) of the north-west corner rule, points in the orders rows (B, n) and cols (B, m)."""
    a, b = problem.log_a.exp().gather(1, rows), problem.log_b.exp().gather(1, cols)
    end_a, end_b = a.cumsum(1), b.cumsum(1)
    plan = torch.minimum(end_a[:, :, None], end_b[:, None, :])
    plan = (plan - torch.maximum((end_a - a)[:, :, None], (end_b - b)[:, None, :])).clamp(min=0.0)
    # An entry that only rounding made would not vanish where a weight is 0.
    plan = torch.where((a > 0)[:, :, None] & (b > 0)[:, None, :], plan, 0.0)
    plan = plan.gather(1, rows.argsort(1)[:, :, None].expand_as(plan))
    return plan.gather(2, cols.argsort(1)[:, None, :].expand_as(plan))


def anchor_orders(problem: SpacePair, count: int) -> tuple[Tensor, Tensor]:
    """Return `count` orders (indices) of the points of each space, (B, count, n) and (B, count, m).

    The first is by increasing eccentricity, the others by increasing distance to a random anchor; ties by index.
    """
    n_plans = -(-(count - 1) // INITIALIZER_CONFIG.n_anchor_pairs)
    near_x, near_y, _ = anchor_distances(problem, max(n_plans, 1))
    pairs = ((problem.x, problem.log_a, near_x), (problem.y, problem.log_b, near_y))
    rows, cols = (
        torch.cat(
            [
                rounded_eccentricities(space.metric, log_weights.exp()).argsort(dim=1, stable=True)[:, None],
                near[:, :, : count - 1].mT.argsort(dim=2, stable=True),
            ],
            dim=1,
        )
        for space, log_weights, near in pairs
    )
    return rows, cols


def starts_of_linear_programs(problem: SpacePair) -> Tensor:
    """Return random anchor plans, then vertices of the transport polytope, (B, S, n, m), of mass 1, S in all."""
    config = INITIALIZER_CONFIG
    plans = random_anchor_plans(problem, config.n_random_starts), vertex_plans(problem, config.n_vertex_starts)
    return torch.cat(plans, dim=1)


def to_unit_mass(plan: Tensor) -> Tensor:
    """Return the plan (..., n, m) divided by its mass, so that its mass is 1; a plan of zeros unchanged."""
    return plan / plan.sum(dim=(-2, -1), keepdim=True).clamp(min=torch.finfo(plan.dtype).tiny)


def transport_plan(cost: Tensor, problem: UGW) -> Tensor:
    """Return the entropic transport plan (B, n, m), of mass 1, for a cost (B, n, m), with the problem's rhos.

    eps: that of the problem, at least 0.01 of the mean cost under a⊗b. Few iterations are made: hard marginals are met
    only roughly.
    """
    log_ab = problem.log_a[:, :, None] + problem.log_b[:, None, :]
    mean = (cost * log_ab.exp()).sum(dim=(1, 2), dtype=torch.float64)
    scale = torch.where(mean > 0, mean, 1.0)
    centered = cost - mean.to(cost.dtype)[:, None, None]
    sides = problem.log_a, problem.log_b, problem.div_a, problem.div_b
    config, potentials = INITIALIZER_CONFIG, None
    sinkhorn = Sinkhorn(tol=config.transport_tol, max_iter=config.transport_max_iter)
    for share in (config.first_transport_eps_share, config.last_transport_eps_share):
        linear = LinearProblem(centered, *sides, torch.maximum(problem.eps, share * scale))
        solution = sinkhorn.solve_with_few_checks(linear, potentials, config.n_transport_rounds)
        potentials = solution.f, solution.g
    return solution.unit_plan


def _anchors(problem: SpacePair, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the indices of K random anchors of both spaces, (B, K) each, K = count times the anchors of a plan.

    A uniform number u chooses the point of rank ⌊u·(number of points of positive weight)⌋ by decreasing eccentricity.
    """
    n_anchors = count * INITIALIZER_CONFIG.n_anchor_pairs
    u = cached_constant(uniform_draws, seed, (n_anchors, 2), problem.log_a.dtype, problem.eps.device)
    u = torch.stack([u, u.flip(1)])[_side_that_draws_first(problem)]  # (B, n_anchors, 2)
    anchors = []
    for side, (space, log_weights) in enumerate(((problem.x, problem.log_a), (problem.y, problem.log_b))):
        n_points = (log_weights > -torch.inf).sum(1, keepdim=True)
        place = (u[:, :, side] * n_points).long()
        anchors.append(torch.take_along_dim(_eccentricity_order(space, log_weights), place, dim=1))
    return anchors[0], anchors[1]


def _anchor_width(problem: SpacePair) -> Tensor:
    """Return the width (B,) of the kernel of a random plan: 0.05 (mean Dx² + mean Dy²), or 0.05 where that is 0."""
    scale = distance_moments(problem.x.metric, problem.log_a)[1] + distance_moments(problem.y.metric, problem.log_b)[1]
    return (INITIALIZER_CONFIG.anchor_width * torch.where(scale > 0, scale, 1.0)).to(problem.log_a.dtype)


def _columns(space: Space, index: Tensor) -> Tensor:
    """Return the distances (B, n, K) of all n points of a space to those with the indices (B, K)."""
    return space.metric.columns(index).expand(len(index), -1, -1)


def _eccentricity_order(space: Space, log_weights: Tensor) -> Tensor:
    """Return indices (B, n) of points by decreasing mean distance to all, ties by index, those of weight 0 last."""
    rounded = rounded_eccentricities(space.metric, log_weights.exp())
    return torch.where(log_weights > -torch.inf, -rounded, torch.inf).argsort(dim=1, stable=True)


def _side_that_draws_first(problem: SpacePair) -> Tensor:
    """Return (B,): 0 if x has the larger mean squared distance, else 1. Swapped spaces so swap their random numbers."""
    squares = [distance_moments(s.metric, w)[1] for s, w in ((problem.x, problem.log_a), (problem.y, problem.log_b))]
    return (squares[0] < squares[1]).long()
