"""Slow reference versions of the conic formulas of docs/mathematics.md and the paper: four-index sums, loops, brute force.

They share no code with `src`. Losses here are NumPy functions; `kernel` holds every term at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.optimize
import torch

import ugw
from oracles.cases import Pair

Loss = Callable[[np.ndarray], np.ndarray]


def gh(t):
    """λ of the Gaussian–Hellinger cone."""
    return np.asarray(t, dtype=float) ** 2


def hk(t, cutoff=0.5 * math.pi):
    """λ of the Hellinger–Kantorovich cone: −log cos², infinite from the cutoff on."""
    t = np.asarray(t, dtype=float)
    near = np.where(t < cutoff, t, 0.0) * (0.5 * math.pi / cutoff)
    return np.where(t < cutoff, -2.0 * np.log(np.cos(near)), np.inf)


LOSSES = {"gaussian-hellinger": gh, "hellinger-kantorovich": hk}


def differences(pair: Pair) -> np.ndarray:
    """|Dx_ii' − Dy_jj'| at [i, j, i', j']."""
    return np.abs(pair.dx[:, None, :, None] - pair.dy[None, :, None, :])


def kernel(pair: Pair, rho: tuple[float, float], loss: Loss = gh) -> np.ndarray:
    """G at [i, j, i', j']."""
    return np.exp(-loss(differences(pair)) / sum(rho))


def value(pair: Pair, w: np.ndarray, rho: tuple[float, float], loss: Loss = gh, other: np.ndarray | None = None):
    """rho1 m(a)² + rho2 m(b)² − R <w, G w'>, w' = w unless given."""
    overlap = np.einsum("ij,ijkl,kl->", w, kernel(pair, rho, loss), w if other is None else other)
    return rho[0] * pair.a.sum() ** 2 + rho[1] * pair.b.sum() ** 2 - sum(rho) * overlap


def lift(pair: Pair, plan: np.ndarray, rho: tuple[float, float] = (1.0, 1.0)) -> tuple[np.ndarray, ...]:
    """P, Q and w of a plan, entry by entry; P of an empty row and Q of an empty column are spread where w = 0."""
    share = rho[0] / sum(rho)
    n, m = plan.shape
    p1, p2 = plan.sum(1), plan.sum(0)
    P, Q = np.zeros((n, m)), np.zeros((n, m))
    for i in range(n):
        for j in range(m):
            P[i, j] = pair.a[i] * plan[i, j] / p1[i] if p1[i] > 0 else pair.a[i] * pair.b[j] / pair.b.sum()
            Q[i, j] = pair.b[j] * plan[i, j] / p2[j] if p2[j] > 0 else pair.b[j] * pair.a[i] / pair.a.sum()
    return P, Q, np.where(plan > 0, P**share * Q ** (1.0 - share), 0.0)


def cone_cost(t, r, s, rho: float, loss: Loss = gh):
    """rho (r² + s² − 2 r s exp(−λ(t)/2rho)): the squared distance of [u, r] and [v, s], t = |u − v|."""
    return rho * (r**2 + s**2 - 2.0 * r * s * np.exp(-loss(t) / (2.0 * rho)))


def atoms_value(pair: Pair, atoms: dict[str, np.ndarray], rho: float, loss: Loss = gh) -> float:
    """Σ D([dx, r r'], [dy, s s'])² over all pairs of atoms: the paper's functional, at a plan between cones."""
    i, j, mass = atoms["i"], atoms["j"], atoms["mass"]
    t = np.abs(pair.dx[np.ix_(i, i)] - pair.dy[np.ix_(j, j)])
    r, s = np.outer(atoms["radius_x"], atoms["radius_x"]), np.outer(atoms["radius_y"], atoms["radius_y"])
    return float((cone_cost(t, r, s, rho, loss) * np.outer(mass, mass)).sum())


# -- minima ------------------------------------------------------------------------------------------------


def linear_program(pair: Pair, rho: float, loss: Loss = gh, levels: int = 10, starts: int = 10) -> float:
    """The paper's method: radii on a grid up to R, R² = m(a) + m(b), linear programs in turn until nothing moves.

    The best value at one plan of `starts` random and as many permutation starts.
    """
    n, m = len(pair.a), len(pair.b)
    radii = np.arange(levels + 1) * math.sqrt(pair.a.sum() + pair.b.sum()) / levels
    i, j, k, h = (index.ravel() for index in np.indices((n, m, levels + 1, levels + 1)))
    r, s = radii[k], radii[h]
    t = np.abs(pair.dx[np.ix_(i, i)] - pair.dy[np.ix_(j, j)])
    cost = cone_cost(t, np.outer(r, r), np.outer(s, s), rho, loss)
    rows = np.concatenate([(i == p) * r**2 for p in range(n)] + [(j == q) * s**2 for q in range(m)])
    rows = rows.reshape(n + m, -1)
    sides = np.concatenate([pair.a, pair.b])
    rng = np.random.default_rng(0)
    firsts = [rng.random(len(i)) for _ in range(starts)]
    for _ in range(starts):
        order = np.concatenate([rng.permutation(max(n, m)) for _ in range(1)])
        firsts.append((order[i] % m == j).astype(float) if n >= m else (order[j] % n == i).astype(float))
    best = math.inf
    for plan in firsts:
        reached = math.inf
        for _ in range(50):
            end = scipy.optimize.linprog(cost @ plan, A_eq=rows, b_eq=sides, method="highs")
            plan = end.x
            if not end.fun < reached - 1e-10:
                break
            reached = end.fun
        best = min(best, float(plan @ cost @ plan))
    return best


def brute_force(pair: Pair, rho: tuple[float, float], loss: Loss = gh, starts: int = 20, seed: int = 0) -> float:
    """The least value over w = P^(rho1/R) Q^(rho2/R) that L-BFGS finds, P and Q softmax of free matrices."""
    a, b = torch.as_tensor(pair.a), torch.as_tensor(pair.b)
    n, m = len(a), len(b)
    g = torch.as_tensor(kernel(pair, rho, loss)).reshape(n * m, n * m)
    share = rho[0] / sum(rho)

    def overlap(theta: torch.Tensor) -> torch.Tensor:
        """<w, G w> for the w of the free numbers theta."""
        log_p, log_q = theta.reshape(2, n, m)
        log_w = share * (a.log()[:, None] + log_p.log_softmax(1)) + (1 - share) * (b.log() + log_q.log_softmax(0))
        w = log_w.exp().ravel()
        return w @ g @ w

    def function(theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The negative overlap and its gradient."""
        free = torch.as_tensor(theta).requires_grad_(True)
        loss = -overlap(free)
        loss.backward()
        return loss.item(), free.grad.numpy()

    rng = np.random.default_rng(seed)
    best = 0.0
    for width in np.linspace(0.3, 6.0, starts):
        theta = np.tile(rng.normal(size=n * m), 2) * width
        end = scipy.optimize.minimize(function, theta, jac=True, method="L-BFGS-B", options={"ftol": 1e-15})
        best = min(best, end.fun)
    return rho[0] * pair.a.sum() ** 2 + rho[1] * pair.b.sum() ** 2 + sum(rho) * best


def grid_search_two_by_two(pair: Pair, rho: tuple[float, float], loss: Loss = gh, steps: int = 21) -> float:
    """Two points against two: every P and Q on a grid, which has two free numbers each, then Nelder–Mead."""
    g = kernel(pair, rho, loss).reshape(4, 4)
    share = rho[0] / sum(rho)

    def overlap(x):
        """<w, G w> for the shares x (4, ...) of each row of P and each column of Q."""
        x = np.clip(x, 0.0, 1.0)
        P = np.stack([pair.a[0] * x[0], pair.a[0] * (1 - x[0]), pair.a[1] * x[1], pair.a[1] * (1 - x[1])])
        Q = np.stack([pair.b[0] * x[2], pair.b[1] * x[3], pair.b[0] * (1 - x[2]), pair.b[1] * (1 - x[3])])
        w = P**share * Q ** (1.0 - share)
        return np.einsum("p...,pq,q...->...", w, g, w)

    grid = np.linspace(0.0, 1.0, steps)
    values = overlap(np.stack(np.meshgrid(grid, grid, grid, grid, indexing="ij")))
    best = 0.0
    for flat in np.argsort(values.ravel())[-5:]:
        start = grid[np.array(np.unravel_index(flat, values.shape))]
        options = {"xatol": 1e-10, "fatol": 1e-14, "maxiter": 4000}
        end = scipy.optimize.minimize(lambda x: -overlap(x), start, method="Nelder-Mead", options=options)
        best = max(best, -end.fun, values.max())
    return rho[0] * pair.a.sum() ** 2 + rho[1] * pair.b.sum() ** 2 - sum(rho) * best


# -- the linear problem ------------------------------------------------------------------------------------


def unbalanced_transport(cost: np.ndarray, a, b, rho: tuple[float, float]) -> tuple[float, np.ndarray]:
    """The value and the plan of min_p <cost, p> + rho1 KL(p1 | a) + rho2 KL(p2 | b), convex: L-BFGS with bounds."""
    return _minimize(
        lambda p, c, r, s: (c * p).sum() + rho[0] * _kl(p.sum(1), r) + rho[1] * _kl(p.sum(0), s), cost, a, b
    )


def homogeneous_transport(cost: np.ndarray, a, b, rho: float, start=None) -> float:
    """min_p Σ H_c(a/p1, b/p2) p, H the cone cost at squared radii; for positive plans there are no other terms."""

    def function(p, c, r, s):
        """Σ H_c(a/p1, b/p2) p."""
        f, g = (r / p.sum(1))[:, None], s / p.sum(0)
        return (rho * (f + g - 2 * (f * g).sqrt() * (-c / (2 * rho)).exp()) * p).sum()

    return _minimize(function, cost, a, b, start)[0]


def _kl(p, a):
    """KL(p | a) of positive tensors."""
    return (p * (p / a).log()).sum() - p.sum() + a.sum()


def _minimize(function, cost, a, b, start=None) -> tuple[float, np.ndarray]:
    """The least value of function(p, cost, a, b) over p ≥ 0, and the minimizer, by L-BFGS with bounds.

    p itself is free, not log p: a minimizer has zeros, where log p would diverge.
    """
    c, r, s = (torch.as_tensor(v, dtype=torch.float64) for v in (cost, a, b))

    def value_and_gradient(theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The function at the plan theta, flattened, and its gradient."""
        free = torch.as_tensor(theta).requires_grad_(True)
        total = function(free.reshape(c.shape), c, r, s)
        total.backward()
        return total.item(), free.grad.numpy()

    options = {"maxiter": 20_000, "maxfun": 20_000, "ftol": 1e-15, "gtol": 1e-10, "maxcor": 30}
    bounds = [(1e-12, None)] * c.numel()
    start = np.maximum(np.outer(a, b) * np.exp(-np.asarray(cost)) if start is None else start, 1e-12).ravel()
    for _ in range(3):  # its memory of curvature goes stale as bounds become active
        end = scipy.optimize.minimize(
            value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        start = end.x
    return float(end.fun), end.x.reshape(c.shape)


def solve_from_one_plan(
    pair: Pair, rho: Any = 0.5, cone: Any = "gaussian-hellinger", **options: Any
) -> ugw.ConicResult:
    """Return the result of a solve from one initial plan."""
    return ugw.solve_conic(pair.x, pair.y, rho=rho, cone=cone, **({"init": "flb"} | options))
