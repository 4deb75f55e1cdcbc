"""First plans: product, first lower bound, linear transport, random anchors, noise and corners.

Every start is a batch of shapes (B, n, m) of unit mass. None depends on an item's place in the batch, on its
padding or on zero-weight points; swapping the spaces transposes the start.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .._utils.cuda_graphs.mode import constant
from ..geometry.space import Space
from ..problems.base import SpacePair
from ..problems.linear import LinearProblem
from ..problems.ugw import UGW
from ..solvers.sinkhorn import Sinkhorn
from .representatives import eccentricity, rank

# A random start: its anchor pairs, and its width as a share of the mean square distance.
ANCHORS, WIDTH = 3, 0.05
# Numbers that each point draws for a noisy start; the size of a noise that only breaks symmetries.
TRAITS, STIR = 6, 1e-6
# A start need not be sharp: eps falls through these shares of the cost's scale, and no further.
BLUR = (1e-1, 1e-2)
# Rounds of iterations for each of them, where nobody looks.
BLIND = 2


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
    x, y = problem.x.point_tensor, problem.y.point_tensor
    if x is None or y is None:
        raise RuntimeError("linear starts need points: checked at the border")
    cost = torch.cdist(x.detach(), y.detach(), compute_mode="donot_use_mm_for_euclid_dist").square()
    return transport(cost.expand(problem.batch, -1, -1), problem)


def random(problem: SpacePair, count: int, seed: int = 0) -> Tensor:
    """`count` plans exp(−Σ_k (Dx[:, i_k] − Dy[:, j_k])² / (WIDTH·scale²)), each for a few anchor pairs (i_k, j_k).

    The same draw serves every item, scaled to its number of points. Returns (B, count, n, m).
    """
    near_x, near_y, width = anchors(problem, count, seed)
    dx, dy = (near.unflatten(2, (count, ANCHORS)).transpose(1, 2) for near in (near_x, near_y))
    cost = dx.square().sum(3)[:, :, :, None] + dy.square().sum(3)[:, :, None, :] - 2.0 * dx @ dy.mT
    log_ab = problem.log_a[:, :, None] + problem.log_b[:, None, :]
    log_plan = log_ab[:, None] - cost / width[:, None, None, None]
    return torch.softmax(log_plan.flatten(2), dim=2).view_as(cost)


def anchors(problem: SpacePair, count: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """For `count` random starts: distances to their anchors, (B, n, count·ANCHORS) and (B, m, ...), and widths (B,)."""
    u = constant(_uniform, seed, (count * ANCHORS, 2), problem.log_a.dtype, problem.eps.device)
    # The space with the larger mean square distance draws first, whichever side it is on.
    side = (_mean_square(problem.x, problem.log_a) < _mean_square(problem.y, problem.log_b)).long()
    u = torch.stack([u, u.flip(1)])[side]  # (B, count·ANCHORS, 2)
    near_x = _distances_to_anchors(problem.x, problem.log_a, u[:, :, 0])
    near_y = _distances_to_anchors(problem.y, problem.log_b, u[:, :, 1])
    scale = _mean_square(problem.x, problem.log_a) + _mean_square(problem.y, problem.log_b)
    width = (WIDTH * torch.where(scale > 0, scale, 1.0)).to(near_x.dtype)
    return near_x, near_y, width


def noisy(problem: SpacePair, count: int, seed: int = 0) -> Tensor:
    """`count` plans a⊗b·exp(noise), with noise of about unit size. Returns (B, count, n, m)."""
    made = noise(problem, count, seed)
    log_plan = (problem.log_a[:, :, None] + problem.log_b[:, None, :])[:, None] + made
    return torch.softmax(log_plan.flatten(2), dim=2).view_as(made)


def noise(problem: SpacePair, count: int, seed: int = 0) -> Tensor:
    """Numbers of about unit size, (B, count, n, m): sums over traits drawn for each point.

    Points draw in the order of their eccentricities.
    """
    pairs = ((problem.x, problem.log_a), (problem.y, problem.log_b))
    side = (_mean_square(*pairs[0]) < _mean_square(*pairs[1])).long()  # who draws first, as in `random`
    size = (max(problem.x.n, problem.y.n), count, TRAITS)
    u = constant(_normal, seed, size, problem.log_a.dtype, problem.eps.device)
    first = torch.arange(problem.batch, device=u.device)[:, None]
    ranks = [_by_eccentricity(*pair).argsort(1) for pair in pairs]
    of_x, of_y = u[side][first, ranks[0]], u[1 - side][first, ranks[1]]  # (B, points, count, TRAITS)
    return torch.einsum("bikt,bjkt->bkij", of_x, of_y) / TRAITS**0.5


def _uniform(seed: int, size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers in [0, 1)."""
    return torch.as_tensor(np.random.default_rng(seed).random(size), dtype=dtype, device=device)


def _normal(seed: int, size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Normal numbers for the space that draws first, and for the other. Returns (2, ...)."""
    draws = [np.random.default_rng((seed, role)).standard_normal(size) for role in (0, 1)]
    return torch.as_tensor(np.stack(draws), dtype=dtype, device=device)


def stirred(problem: SpacePair, plans: Tensor) -> Tensor:
    """Plans (B, S, n, m) with a little noise, the same for all of an item, at unit mass.

    Spaces with symmetries have plans with symmetries, which steps leave by rounding alone: another sum, another end.
    """
    return unit(plans * (STIR * noise(problem, 1)).exp())


def corners(problem: SpacePair, count: int, seed: int = 0) -> Tensor:
    """`count` plans with marginals a and b and few entries: north-west corners of the points in some order.

    First in the order of their eccentricities, then in random orders. Returns (B, count, n, m).
    """
    pairs = ((problem.x, problem.log_a), (problem.y, problem.log_b))
    # The k-th point with weight has the k-th number, whatever stands between.
    ranks = [((log_weights > -torch.inf).long().cumsum(1) - 1).clamp(min=0) for _, log_weights in pairs]
    side = (_mean_square(*pairs[0]) < _mean_square(*pairs[1])).long()  # who draws first, as in `random`
    made = [_corner(problem, *(rank(s.metric, w.exp()).argsort(dim=1, stable=True) for s, w in pairs))]
    for k in range(1, count):
        draws = [np.random.default_rng((seed, k, role)).random(max(r.shape[1] for r in ranks)) for role in (0, 1)]
        u = torch.as_tensor(np.stack(draws), device=problem.eps.device)
        keys = (u[side].gather(1, ranks[0]), u[1 - side].gather(1, ranks[1]))
        made.append(_corner(problem, *(key.argsort(1) for key in keys)))
    return torch.stack(made, dim=1)


def _corner(problem: SpacePair, rows: Tensor, cols: Tensor) -> Tensor:
    """The plan that fills the points in the given orders (B, n), (B, m), of unit mass. Returns (B, n, m)."""
    a, b = problem.log_a.exp().gather(1, rows), problem.log_b.exp().gather(1, cols)
    end_a, end_b = a.cumsum(1), b.cumsum(1)
    plan = torch.minimum(end_a[:, :, None], end_b[:, None, :])
    plan = (plan - torch.maximum((end_a - a)[:, :, None], (end_b - b)[:, None, :])).clamp(min=0.0)
    # An entry that only rounding made would not vanish where a weight is 0.
    plan = torch.where((a > 0)[:, :, None] & (b > 0)[:, None, :], plan, 0.0)
    plan = plan.gather(1, rows.argsort(1)[:, :, None].expand_as(plan))
    return plan.gather(2, cols.argsort(1)[:, None, :].expand_as(plan))


def unit(plan: Tensor) -> Tensor:
    """A plan (..., n, m) divided by its mass."""
    return plan / plan.sum(dim=(-2, -1), keepdim=True).clamp(min=torch.finfo(plan.dtype).tiny)


def transport(cost: Tensor, problem: UGW) -> Tensor:
    """Shape of the entropic transport plan for a cost, with the problem's divergences. cost: (B, n, m)."""
    log_ab = problem.log_a[:, :, None] + problem.log_b[:, None, :]
    mean = (cost * log_ab.exp()).sum(dim=(1, 2), dtype=torch.float64)
    scale = torch.where(mean > 0, mean, 1.0)
    centered = cost - mean.to(cost.dtype)[:, None, None]
    sides = problem.log_a, problem.log_b, problem.div_a, problem.div_b
    solve, found = Sinkhorn(tol=1e-2, max_iter=20), None
    for share in BLUR:
        sharp = LinearProblem(centered, *sides, torch.maximum(problem.eps, share * scale))
        found = solve.at_once(sharp, None if found is None else (found.f, found.g), BLIND)
    if found is None:
        raise RuntimeError("BLUR is empty")
    return found.unit_plan


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
    far = rank(space.metric, log_weights.exp())
    return torch.where(log_weights > -torch.inf, -far, torch.inf).argsort(dim=1, stable=True)


def _mean_square(space: Space, log_weights: Tensor) -> Tensor:
    w = log_weights.exp()[:, :, None]
    return (w * space.metric.apply_squared(w)).sum(dim=(1, 2), dtype=torch.float64)
