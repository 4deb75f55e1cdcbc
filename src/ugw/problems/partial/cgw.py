"""CGW for the partial transport cone (TV, p = 1): eq. (7.5).

    CGW = rho (m(a)² + m(b)²) − max Σ (2 rho − λ(|Dx_ii' − Dy_jj'|))_+ min(P_ij P_i'j', Q_ij Q_i'j')
    over P, Q ≥ 0 with P 1 = a, Qᵀ 1 = b: one atom for each pair of points suffices, as the cone cost is convex
    and 1-homogeneous in the radii.

With the other factor held at (P', Q') the saving of a pair ij is h_ij(P_ij, Q_ij), concave, 1-homogeneous and linear
between the rays P/Q = Q'_s/P'_s of the support s of (P', Q'). So (P_ij, Q_ij) is a sum of points on these rays, h_ij
the sum of its values there, and what is left is a linear program with one row for each point of both spaces and one
column for each pair and ray, of which few are needed. The code works in units of 2 rho and of the larger mass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import NotConverged
from ...geometry.space import Space
from ...measures.cones import PartialTransport
from ...measures.divergences import KL
from ...results.conic_result import ConicResult
from ...results.records import ConicTerms, Lift, SolverOutput
from ..base import SpacePair

# Rays at angles as close as this count as one: nearly parallel columns make bases that are nearly singular.
SAME_RAY = 1e-9
# Columns that would add more than this per unit of mass, in units of 2 rho, enter the linear program.
WORTH = 1e-10
# A linear program with at most so many columns has all of them from the start.
FEW = 4000
# Rounds of new columns; far more than are ever needed.
ROUNDS = 1000
# Settings of the linear program, in the order in which they are tried. Duals are exact enough to price by.
ATTEMPTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("highs-ds", {"presolve": False, "dual_feasibility_tolerance": 1e-10}),
    ("highs-ds", {}),
    ("highs-ipm", {}),
)

Pair = tuple[np.ndarray, np.ndarray]  # P and Q, (n, m) each


@dataclass(frozen=True, eq=False)
class Small:
    """One item without its points of weight 0. dx: (n, n); dy: (m, m); a: (n,), b: (m,), the larger mass 1."""

    dx: np.ndarray
    dy: np.ndarray
    a: np.ndarray
    b: np.ndarray
    rho: float
    cone: PartialTransport

    def lift(self, plan: np.ndarray) -> Pair:
        """P = p a/p1 and Q = p b/p2, in proportion to the other side's weights where p has no mass. plan: (n, m)."""
        return self.filled((plan, plan), (np.outer(self.a, self.b), np.outer(self.a, self.b)))

    def filled(self, w: Pair, other: Pair) -> Pair:
        """P and Q scaled to P 1 = a and Qᵀ 1 = b, which loses nothing if they fell short of it.

        Rows of P and columns of Q without mass are those of `other`.
        """
        p1, q2 = w[0].sum(1, keepdims=True), w[1].sum(0)
        P, Q = np.where(p1 > 0, w[0], other[0]), np.where(q2 > 0, w[1], other[1])
        return P * (self.a / P.sum(1))[:, None], Q * (self.b / Q.sum(0))

    def saved(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """(1 − λ/2rho)_+ between two lists of pairs, given as flat indices of the plan. Returns (rows, cols)."""
        (i, j), (k, o) = (np.divmod(pairs, len(self.b)) for pairs in (rows, cols))
        return self.cone.matching_gain(np.abs(self.dx[np.ix_(i, k)] - self.dy[np.ix_(j, o)]), self.rho) / (
            2.0 * self.rho
        )

    def local(self, w: Pair) -> np.ndarray:
        """What each pair saves against w, both at w. Returns (n, m)."""
        s = support(w)
        P, Q = (side.ravel()[s] for side in w)
        out = np.zeros(w[0].size)
        out[s] = (self.saved(s, s) * np.minimum(P[:, None] * P, Q[:, None] * Q)).sum(1)
        return out.reshape(w[0].shape)

    def overlaps(self, w: Pair, v: Pair) -> tuple[float, Callable[[float], float]]:
        """The overlap of w with v, and as a function of t that of (1 − t) w + t v with itself."""
        s = np.union1d(support(w), support(v))
        saved = self.saved(s, s)
        (P, Q), (P2, Q2) = ([side.ravel()[s] for side in pair] for pair in (w, v))

        def overlap(p: np.ndarray, q: np.ndarray, p2: np.ndarray, q2: np.ndarray) -> float:
            return float((saved * np.minimum(p[:, None] * p2, q[:, None] * q2)).sum())

        def along(t: float) -> float:
            p, q = (1.0 - t) * P + t * P2, (1.0 - t) * Q + t * Q2
            return overlap(p, q, p, q)

        return overlap(P, Q, P2, Q2), along

    def best_against(self, w: Pair) -> Pair:
        """The pair (P, Q) with the largest overlap with w: the linear step."""
        s = support(w)
        P, Q = (side.ravel()[s] for side in w)
        angles = distinct(np.arctan2(P, Q))
        along = np.minimum(P[:, None] * np.cos(angles), Q[:, None] * np.sin(angles))  # (support, rays)
        value = self.saved(np.arange(w[0].size), s) @ along
        if not (value > 0).any():  # nothing is close enough to match
            return w
        return self.filled(self._program(value, np.cos(angles), np.sin(angles)), w)

    def _program(self, value: np.ndarray, along_p: np.ndarray, along_q: np.ndarray) -> Pair:
        """Maximize Σ value_ck x_ck over x ≥ 0 with Σ x along_p ≤ a, Σ x along_q ≤ b, by columns that are worth it.

        value: (pairs, rays); along_p, along_q: (rays,). Where there are many columns, a pair starts with one.
        """
        n, m = len(self.a), len(self.b)
        i, j = np.divmod(np.arange(n * m), m)
        known = value > 0
        if known.sum() > FEW:
            first = (value / (along_p + along_q)).argmax(1)
            known &= np.arange(len(along_p)) == first[:, None]
        pair, ray = np.nonzero(known)
        for _ in range(ROUNDS):
            x, u, v = self._solved(value[pair, ray], (i[pair], j[pair]), (along_p[ray], along_q[ray]))
            reduced = np.where(known, -np.inf, value - u[i, None] * along_p - v[j, None] * along_q)
            best = reduced.argmax(1)
            new = np.flatnonzero(reduced.max(1) > WORTH)
            if not len(new):
                break
            known[new, best[new]] = True
            pair, ray = np.append(pair, new), np.append(ray, best[new])
        P, Q = (np.bincount(pair, x * side[ray], n * m).reshape(n, m) for side in (along_p, along_q))
        return P, Q

    def _solved(self, value: np.ndarray, where: Pair, along: Pair) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The linear program with the given columns: its solution, and the prices of a and b."""
        from scipy.optimize import linprog
        from scipy.sparse import csc_matrix

        n, m = len(self.a), len(self.b)
        unit = n + m  # weights of the size of 1
        column = np.arange(len(value))
        entries = np.concatenate(along), (np.append(where[0], n + where[1]), np.append(column, column))
        matrix = csc_matrix(entries, shape=(n + m, len(value)))
        for method, options in ATTEMPTS:
            made = linprog(-value, A_ub=matrix, b_ub=np.append(self.a, self.b) * unit, method=method, options=options)
            if made.status == 0:
                prices = -made.ineqlin.marginals
                return np.maximum(made.x, 0.0) / unit, prices[:n], prices[n:]
        raise NotConverged(f"the linear program of a partial transport step failed: {made.message}")


def support(w: Pair) -> np.ndarray:
    """Flat indices of the pairs at which both P and Q have mass."""
    return np.flatnonzero((w[0] > 0) & (w[1] > 0))


def distinct(angles: np.ndarray) -> np.ndarray:
    """The angles in order, without those that repeat one up to rounding."""
    angles = np.sort(angles)
    return angles[np.append(True, np.diff(angles) > SAME_RAY)]


@dataclass(frozen=True, eq=False)
class PartialCGW(SpacePair):
    """Two spaces, one rho for both (B,), and the cone."""

    x: Space
    y: Space
    rho: Tensor
    cone: PartialTransport
    batched: bool = True

    div_a: KL = field(init=False)
    div_b: KL = field(init=False)
    eps: Tensor = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", torch.zeros_like(self.rho))
        for side in ("a", "b"):
            object.__setattr__(self, f"div_{side}", KL(self.rho).expand(len(self.rho), self.rho.device))
        self.set_weights()

    def take(self, index: Tensor) -> PartialCGW:
        """The problem of the batch items `index`, (k,); an item may appear more than once."""
        return PartialCGW(self.x.take(index), self.y.take(index), self.rho[index], self.cone)

    def result(self, tensors: SolverOutput) -> ConicResult:
        """The result for users of the output of a solver."""
        return ConicResult(tensors, self.sizes, self.numpy)

    def small(self, item: int) -> tuple[Small, tuple[np.ndarray, ...]]:
        """One item in NumPy, and the rows and columns of the batch's tensors that it has, as np.ix_ gives them."""
        here = torch.tensor([item], device=self.rho.device)
        weights = [self._weights(side)[item].cpu().numpy() for side in ("a", "b")]
        kept = [np.flatnonzero(w) for w in weights]
        dx, dy = (space.take(here).metric.dense().detach().double().cpu().numpy() for space in (self.x, self.y))
        dx, dy = (d.reshape(d.shape[-2:])[np.ix_(k, k)] for d, k in zip((dx, dy), kept, strict=True))
        a, b = (w[k] for w, k in zip(weights, kept, strict=True))
        return Small(dx, dy, a, b, float(self.rho[item]), self.cone), np.ix_(*kept)

    def _weights(self, side: str) -> Tensor:
        """Weights in units of the larger mass, (B, n) or (B, m), float64."""
        space = self.x if side == "a" else self.y
        weights = space.weight_tensor.detach().double()
        return weights.expand(self.batch, -1) / self.unit[:, None]

    @property
    def unit(self) -> Tensor:
        """The larger mass, (B,)."""
        return torch.maximum(self.log_mass_a, self.log_mass_b).exp()

    def objective(self, overlap: Tensor) -> ConicTerms:
        """The value for an overlap (B,) in the units of `Small`."""
        apart = self.rho * ((2.0 * self.log_mass_a).exp() + (2.0 * self.log_mass_b).exp())
        return ConicTerms(apart=apart, overlap=-2.0 * self.rho * self.unit.square() * overlap)

    def lift(self, P: Tensor, Q: Tensor) -> Lift:
        """P, Q, their minimum, and the facts about them; the sum is exact. P, Q: (B, n, m), in the units of `Small`."""
        P, Q = ((side * self.unit[:, None, None]).to(self.x.dtype) for side in (P, Q))
        zero = torch.zeros_like(self.rho)
        return Lift(
            P=P,
            Q=Q,
            w=torch.minimum(P, Q),
            kernel_error=zero,
            kernel_tolerance=zero,
            value_slack=zero,
            kernel_rank=torch.zeros_like(self.rho, dtype=torch.long),
            is_metric=self.cone.is_metric(self.rho),
            distance_exponent=torch.full_like(self.rho, self.cone.distance_exponent),
            radius_power=torch.full_like(self.rho, self.cone.mass_exponent),
        )
