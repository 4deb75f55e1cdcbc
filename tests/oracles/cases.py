"""Pairs of spaces, some with known solutions, and slow reference versions of the formulas of docs/mathematics.md.

The references share no code with `src`: the objective is the four-index sum over explicit outer products, and the
brute force is L-BFGS over the logarithms of a plan's entries.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, replace

import numpy as np
import ot
import scipy.optimize
import torch
from scipy.spatial.distance import cdist

import ugw
from ugw.problems.build import build_ugw
from ugw.problems.ugw import UGW
from ugw.problems.ugw_state import PlanState

INF = math.inf


def label(value: object) -> str:
    """A name for a test case, without memory addresses: workers in parallel must agree on it."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value)).replace("\n", " ")[:40]


@dataclass(frozen=True)
class Pair:
    """Two spaces as arrays: dx (n, n), a (n,), dy (m, m), b (m,), and perhaps a linear cost M (n, m)."""

    dx: np.ndarray
    a: np.ndarray
    dy: np.ndarray
    b: np.ndarray
    cost: np.ndarray | None = None

    @property
    def x(self) -> ugw.Space:
        """The first space."""
        return ugw.Space.from_matrix(self.dx, weights=self.a)

    @property
    def y(self) -> ugw.Space:
        """The second space."""
        return ugw.Space.from_matrix(self.dy, weights=self.b)

    @property
    def product(self) -> np.ndarray:
        """a⊗b / sqrt(m(a) m(b)), the paper's start: eq. (2.3)."""
        return np.outer(self.a, self.b) / math.sqrt(self.a.sum() * self.b.sum())

    def transpose(self) -> Pair:
        """The pair with its spaces exchanged and the linear cost transposed."""
        return Pair(self.dy, self.b, self.dx, self.a, None if self.cost is None else self.cost.T)

    def with_masses(self, mass_a: float, mass_b: float) -> Pair:
        """The same spaces with other total masses."""
        return replace(self, a=self.a * mass_a / self.a.sum(), b=self.b * mass_b / self.b.sum())


@dataclass(frozen=True)
class Parameters:
    """rho1, rho2, eps and alpha."""

    rho1: float = 1.0
    rho2: float = 1.0
    eps: float = 0.0
    alpha: float = 0.0

    @property
    def rho(self) -> tuple[float, float]:
        """(rho1, rho2), as `ugw.solve` takes it."""
        return self.rho1, self.rho2

    def transpose(self) -> Parameters:
        """The parameters with rho1 and rho2 exchanged."""
        return replace(self, rho1=self.rho2, rho2=self.rho1)


# Total masses of both spaces, and parameters with finite rhos and with hard sides, over which facts of UGW are tested.
MASSES = [(1.0, 1.0), (1.3, 0.6), (30.0, 0.02)]
SOFT = [
    Parameters(1.0, 1.0, 0.1),
    Parameters(0.3, 2.0, 0.05),
    Parameters(2.0, 0.3, 0.0),
    Parameters(0.3, 2.0, 0.05, 0.7),
]
HARD = [
    Parameters(INF, 0.7, 0.05),
    Parameters(0.7, INF, 0.05),
    Parameters(INF, INF, 0.05),
    Parameters(INF, 0.7, 0.05, 0.7),
]


def clouds(n: int, m: int, seed: int, mass: tuple[float, float] = (1.0, 1.0)) -> Pair:
    """Random points in R³ and R², uneven weights, and a linear cost that is not of rank one."""
    rng = np.random.default_rng(seed)
    x, y = rng.random((n, 3)), rng.random((m, 2))
    a, b = rng.random(n) + 0.2, rng.random(m) + 0.2
    pair = Pair(cdist(x, x), a, cdist(y, y), b, rng.random((n, m)))
    return pair.with_masses(*mass)


def clouds_of_mass(parameters: Parameters, mass: tuple[float, float], seed: int = 0) -> Pair:
    """Clouds of 5 and 6 points with the given masses; both have the first mass if both sides are hard."""
    return clouds(5, 6, seed, (mass[0], mass[0]) if parameters.rho == (INF, INF) else mass)


def integer_distances(n: int, m: int, seed: int, mass: tuple[float, float] = (1.0, 1.0)) -> Pair:
    """Rounded distances of random points and equal weights, as of graphs: many plans have equal linearized costs."""
    pair = clouds(n, m, seed)
    dx, dy = (np.round(4 * d) for d in (pair.dx, pair.dy))
    return Pair(dx, np.full(n, 1 / n), dy, np.full(m, 1 / m), np.round(2 * pair.cost)).with_masses(*mass)


def vertex(pair: Pair, seed: int) -> np.ndarray:
    """A random vertex (n, m) of the polytope of plans with the marginals of a pair: the plan of a random cost."""
    return ot.emd(pair.a, pair.b, np.random.default_rng(seed).random((len(pair.a), len(pair.b))))


def swapped_plans(plan: np.ndarray) -> list[np.ndarray]:
    """All plans that match i with l and k with j where `plan`, (n, m), matches i with j and k with l."""
    plans = []
    entries = list(zip(*np.nonzero(plan > 0), strict=True))
    for (i, j), (k, l) in itertools.combinations(entries, 2):  # noqa: E741
        other, moved = plan.copy(), min(plan[i, j], plan[k, l])
        for row, col, sign in ((i, j, -1), (k, l, -1), (i, l, 1), (k, j, 1)):
            other[row, col] += sign * moved
        plans.append(other)
    return plans


def similarities(n: int, m: int, seed: int, mass: tuple[float, float] = (1.0, 1.0)) -> Pair:
    """Symmetric matrices that are no distances: negative entries, a diagonal."""
    rng = np.random.default_rng(seed)
    u, v = rng.normal(size=(n, n)), rng.normal(size=(m, m))
    a, b = rng.random(n) + 0.2, rng.random(m) + 0.2
    return Pair((u + u.T) / 2, a, (v + v.T) / 2, b, rng.random((n, m))).with_masses(*mass)


def copies(n: int, seed: int) -> tuple[Pair, np.ndarray]:
    """A cloud in R³ and its rotated, reflected, shuffled copy; and the order: y[j] is x[order[j]]."""
    rng = np.random.default_rng(seed)
    points = rng.random((n, 3))
    a = rng.random(n) + 0.2
    a /= a.sum()
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    order = rng.permutation(n)
    other = (points @ turn)[order] + 1.0
    return Pair(cdist(points, points), a, cdist(other, other), a[order]), order


def random_plan(pair: Pair, seed: int, mass: float = 1.0) -> np.ndarray:
    """A positive random plan (n, m) of the given mass: a⊗b times log-normal noise."""
    rng = np.random.default_rng(seed)
    plan = np.outer(pair.a, pair.b) * np.exp(rng.normal(size=(len(pair.a), len(pair.b))))
    return plan * mass / plan.sum()


def hard_plan(pair: Pair, seed: int) -> np.ndarray:
    """A random plan with exactly the marginals a and b, which must have one mass."""
    plan = random_plan(pair, seed)
    for _ in range(500):
        plan *= (pair.a / plan.sum(1))[:, None]
        plan *= (pair.b / plan.sum(0))[None, :]
    return plan * (pair.a / plan.sum(1))[:, None]


# -- known answers ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClosedFormCase:
    """A problem with a closed-form solution. plan: the solution that is reached from the product plan."""

    name: str
    pair: Pair
    parameters: Parameters
    value: float
    plan: np.ndarray


def closed_form_cases() -> list[ClosedFormCase]:
    """All problems with closed-form solutions: single points, a simplex against a point, two segments."""
    return [
        _points(1.0, 1.0, Parameters(0.3, 2.0, 0.1)),
        _points(2.0, 0.5, Parameters(0.3, 2.0, 0.1)),
        _points(2.0, 0.5, Parameters(0.3, 2.0, 0.0)),
        _points(2.0, 0.5, Parameters(INF, 2.0, 0.1)),
        _points(2.0, 0.5, Parameters(0.3, INF, 0.0)),
        _simplex(Parameters(3.0, 0.7, 0.2)),
        _simplex(Parameters(3.0, 0.7, 0.0)),
        _simplex(Parameters(INF, INF, 0.0)),
        _segments(),
    ]


def _points(ma: float, mb: float, parameters: Parameters) -> ClosedFormCase:
    """Two single points: only the mass is free. A stationary mass has log m·R = rho1 log ma + rho2 log mb + …"""
    pair = Pair(np.zeros((1, 1)), np.array([ma]), np.zeros((1, 1)), np.array([mb]))
    rho1, rho2, eps = parameters.rho1, parameters.rho2, parameters.eps
    if rho1 == INF or rho2 == INF:
        mass = ma if rho1 == INF else mb
    else:
        logs = rho1 * math.log(ma) + rho2 * math.log(mb) + eps * math.log(ma * mb)
        mass = math.exp(logs / (rho1 + rho2 + eps))
    square = mass**2

    def penalty(rho: float, reference: float) -> float:
        """rho · KL(m² | reference²), 0 for a hard side."""
        factor = rho if rho < INF else 0.0
        return factor * (square * math.log(square / reference**2) - square + reference**2)

    value = penalty(rho1, ma) + penalty(rho2, mb) + penalty(eps, ma * mb)
    return ClosedFormCase(f"points {ma} {mb} {parameters}", pair, parameters, value, np.array([[mass]]))


def _simplex(parameters: Parameters, n: int = 4, d: float = 0.8) -> ClosedFormCase:
    """n points at distance d of each other against one point: the plan stays uniform, with distortion d²(1 − 1/n) at unit mass."""
    pair = Pair(d * (1 - np.eye(n)), np.full(n, 1 / n), np.zeros((1, 1)), np.ones(1))
    distortion = d**2 * (1 - 1 / n)
    total = parameters.rho1 + parameters.rho2 + parameters.eps
    if total == INF:
        return ClosedFormCase(f"simplex {parameters}", pair, parameters, distortion, np.full((n, 1), 1 / n))
    # F(m) = m² (distortion − R + 2 R log m) + R at unit masses.
    mass = math.exp(-distortion / (2 * total))
    return ClosedFormCase(f"simplex {parameters}", pair, parameters, total * (1 - mass**2), np.full((n, 1), mass / n))


def _segments(d: float = 1.0, e: float = 0.6) -> ClosedFormCase:
    """Segments of lengths d and e with weights .3 and .7: balanced, matched end to end, 2·.3·.7·(d − e)²."""
    w = np.array([0.3, 0.7])
    flip = 1 - np.eye(2)
    return ClosedFormCase(
        "segments", Pair(d * flip, w, e * flip, w), Parameters(INF, INF, 0.0), 0.42 * (d - e) ** 2, np.diag(w)
    )


# -- reference formulas -------------------------------------------------------------------------------------


def kl(p, a):
    """Σ p log(p/a) − m(p) + m(a) over arrays of one shape, 0 log 0 = 0; differentiable where p > 0."""
    p, a = torch.as_tensor(p), torch.as_tensor(a)
    positive = p > 0
    log_ratio = torch.where(positive, torch.where(positive, p, 1.0).log() - a.log(), 0.0)
    return (p * log_ratio).sum() - p.sum() + a.sum()


def outer(p, q):
    """p⊗q as a tensor with the dimensions of both."""
    p, q = torch.as_tensor(p), torch.as_tensor(q)
    return p.reshape(*p.shape, *(1,) * q.ndim) * q


def distortion_tensor(pair: Pair) -> torch.Tensor:
    """(Dx_ii' − Dy_jj')² at [i, j, i', j']."""
    dx, dy = torch.as_tensor(pair.dx), torch.as_tensor(pair.dy)
    return (dx[:, None, :, None] - dy[None, :, None, :]) ** 2


def terms(pair: Pair, parameters: Parameters, p, q=None) -> dict[str, torch.Tensor]:
    """The terms of F(p, q), eq. (1.2), sum by sum; q = p unless given. A hard side contributes 0."""
    q = p if q is None else q
    p, q = torch.as_tensor(p), torch.as_tensor(q)
    a, b = torch.as_tensor(pair.a), torch.as_tensor(pair.b)
    zero = torch.zeros((), dtype=torch.float64)
    ab = outer(a, b)
    cost = None if pair.cost is None else torch.as_tensor(pair.cost)
    return {
        "distortion": (distortion_tensor(pair) * outer(p, q)).sum(),
        "linear": zero if cost is None else 0.5 * parameters.alpha * ((cost * p).sum() + (cost * q).sum()),
        "marginal_a": zero if parameters.rho1 == INF else parameters.rho1 * kl(outer(p.sum(1), q.sum(1)), outer(a, a)),
        "marginal_b": zero if parameters.rho2 == INF else parameters.rho2 * kl(outer(p.sum(0), q.sum(0)), outer(b, b)),
        "entropy": parameters.eps * kl(outer(p, q), outer(ab, ab)) if parameters.eps else zero,
    }


def value(pair: Pair, parameters: Parameters, p, q=None) -> float:
    """F(p, q)."""
    return float(sum(terms(pair, parameters, p, q).values()))


def gradient(pair: Pair, parameters: Parameters, p, q=None) -> np.ndarray:
    """∂F(p, q)/∂p with q held fixed, at positive plans; q = a copy of p unless given."""
    fixed = torch.as_tensor(p if q is None else q).clone()
    free = torch.as_tensor(p).clone().requires_grad_(True)
    sum(terms(pair, parameters, free, fixed).values()).backward()
    return free.grad.numpy()


def full_cost(pair: Pair, parameters: Parameters, q: np.ndarray) -> np.ndarray:
    """The cost of the paper's linear problem, with its scalars, none of a hard side: eq. (2.2)."""

    def scalar(rho: float, p, a) -> float:
        """rho · Σ p log(p/a), 0 for a hard side."""
        return 0.0 if rho in (0.0, INF) else rho * float((p * np.log(p / a)).sum())

    cost = (distortion_tensor(pair).numpy() * q).sum((2, 3))
    cost = cost + scalar(parameters.rho1, q.sum(1), pair.a) + scalar(parameters.rho2, q.sum(0), pair.b)
    cost = cost + scalar(parameters.eps, q, np.outer(pair.a, pair.b))
    return cost if pair.cost is None else cost + 0.5 * parameters.alpha * pair.cost


def value_by_contractions(pair: Pair, parameters: Parameters, p: torch.Tensor) -> torch.Tensor:
    """F(p, p) by contractions, for many evaluations: KL(p⊗p | a⊗a) = 2 m(p) KL(p | a) + (m(p) − m(a))²."""
    dx, dy, a, b = (torch.as_tensor(v) for v in (pair.dx, pair.dy, pair.a, pair.b))
    p1, p2, mass = p.sum(1), p.sum(0), p.sum()
    total = p1 @ dx**2 @ p1 + p2 @ dy**2 @ p2 - 2 * (p * (dx @ p @ dy)).sum()
    for rho, marginal, weights in (
        (parameters.rho1, p1, a),
        (parameters.rho2, p2, b),
        (parameters.eps, p.flatten(), outer(a, b).flatten()),
    ):
        if 0 < rho < INF:
            total = total + rho * (2 * mass * kl(marginal, weights) + (mass - weights.sum()) ** 2)
    return total if not parameters.alpha else total + parameters.alpha * (torch.as_tensor(pair.cost) * p).sum()


def brute_force(pair: Pair, parameters: Parameters, starts: list[np.ndarray]) -> tuple[float, np.ndarray]:
    """The least F(p, p) that L-BFGS over log p finds from the starts; at most one side hard."""
    a, b = torch.as_tensor(pair.a), torch.as_tensor(pair.b)
    shape = (len(pair.a), len(pair.b))

    def plan(theta: torch.Tensor) -> torch.Tensor:
        """The plan of the free numbers theta; a hard side is satisfied exactly by a softmax."""
        theta = theta.reshape(shape)
        if parameters.rho1 == INF:
            return a[:, None] * torch.softmax(theta, 1)
        if parameters.rho2 == INF:
            return b[None, :] * torch.softmax(theta, 0)
        return theta.exp()

    def function(theta: np.ndarray) -> tuple[float, np.ndarray]:
        """F(p, p) at the plan of theta, and its gradient."""
        free = torch.as_tensor(theta).requires_grad_(True)
        total = value_by_contractions(pair, parameters, plan(free))
        total.backward()
        return total.item(), free.grad.numpy()

    options = {"maxiter": 20_000, "maxfun": 20_000, "ftol": 1e-14, "gtol": 1e-10, "maxcor": 30}
    minima = []
    for start in starts:
        theta = np.log(np.maximum(start, 1e-30)).ravel()
        end = scipy.optimize.minimize(function, theta, jac=True, method="L-BFGS-B", options=options)
        minima.append((end.fun, plan(torch.as_tensor(end.x)).numpy()))
    return min(minima, key=lambda pair: pair[0])


# -- the library, from plain arrays -------------------------------------------------------------------------


def problem(pair: Pair, parameters: Parameters) -> UGW:
    """The problem as the library states it, a batch of one."""
    fused = None if pair.cost is None or not parameters.alpha else ugw.Fused(parameters.alpha, pair.cost)
    return build_ugw(pair.x, pair.y, rho=parameters.rho, eps=parameters.eps, fused=fused)


def state_of_plan(problem: UGW, plan: np.ndarray) -> PlanState:
    """The state of a plan, with the plan's own mass."""
    plan = torch.as_tensor(plan)[None]
    mass = plan.sum(dim=(1, 2))
    return problem.state_of_plan(plan / mass[:, None, None]).with_log_mass(mass.log())


def solve(pair: Pair, parameters: Parameters, init=None, **options) -> ugw.Result:
    """Solve tightly, from the product plan unless a start is given; with a larger tolerance at eps = 0, where convergence is slow."""
    fused = None if pair.cost is None or not parameters.alpha else ugw.Fused(parameters.alpha, pair.cost)
    tol = 1e-9 if parameters.eps else 1e-7
    inner = ugw.Sinkhorn(
        tol=1e-2 * tol, max_iter=options.pop("inner_iter", 200), method=options.pop("method", "stabilized")
    )
    options = {"tol": tol, "max_iter": 3000} | options
    return ugw.solve(
        pair.x,
        pair.y,
        rho=parameters.rho,
        eps=parameters.eps,
        fused=fused,
        init="product" if init is None else init,
        solver=ugw.AlternateMin(inner=inner, **options),
    )
