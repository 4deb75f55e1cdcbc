"""CGW for the partial transport cone (TV, p = 1): eq. (7.5).

    CGW = rho (m(a)² + m(b)²) − max Σ (2 rho − λ(|Dx_ii' − Dy_jj'|))_+ min(P_ij P_i'j', Q_ij Q_i'j')
    over P, Q ≥ 0 with P 1 = a, Qᵀ 1 = b: one atom for each pair of points suffices, as the cone cost is convex
    and 1-homogeneous in the radii.

A lift is the pair (P, Q); ij is a pair of points, one of each space. The overlap of two lifts (P, Q) and (P', Q') is
the sum above with min(P_ij P'_i'j', Q_ij Q'_i'j'), divided by 2 rho. With (P', Q') fixed it is Σ h_ij(P_ij, Q_ij),
where h_ij is concave, 1-homogeneous and linear between rays: the half-lines of (P_ij, Q_ij) with P_ij/Q_ij = Q'_s/P'_s
for a pair s at which P' and Q' have mass. So (P_ij, Q_ij) is a sum of points on these rays, h_ij the sum of its values
there, and the best lift solves a linear program with one constraint for each point of both spaces and one variable (a
column of its matrix) for each pair and ray. Few columns are needed; column generation finds them. The code works in
units of 2 rho and of the larger mass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..._utils.interruptible import call_interruptibly
from ...errors import NotConverged
from ...geometry.space import Space
from ...measures.cones import PartialTransport
from ...measures.divergences import KL
from ...results.conic_result import ConicResult
from ...results.records import ConicTerms, Lift, SolverOutput
from ..base import SpacePair
from ..config import PROBLEM_CONFIG

LiftArrays = tuple[np.ndarray, np.ndarray]  # P and Q, (n, m) each


@dataclass(frozen=True, eq=False)
class PartialConicItem:
    """One batch item of a partial conic problem as NumPy arrays, without its points of weight 0.

    dx: (n, n), dy: (m, m), distances; a: (n,), b: (m,), weights in units of the larger mass. A lift is a pair of
    matrices (P, Q), (n, m) each, P 1 = a and Qᵀ 1 = b. The overlap of lifts (P, Q) and (P', Q') is
    Σ g_ij,i'j' min(P_ij P'_i'j', Q_ij Q'_i'j') with g of `pair_gains`.
    """

    dx: np.ndarray
    dy: np.ndarray
    a: np.ndarray
    b: np.ndarray
    rho: float
    cone: PartialTransport

    def lift_plan(self, plan: np.ndarray) -> LiftArrays:
        """Return the lift (P, Q) of a plan p (n, m): P = p a/p1 with row sums a, Q = p b/p2 with column sums b.

        A row of P without mass is a_i b/m(b), a column of Q without mass b_j a/m(a).
        """
        product = np.outer(self.a, self.b)
        return self.rescale_to_weights((plan, plan), (product, product))

    def rescale_to_weights(self, lift: LiftArrays, default: LiftArrays) -> LiftArrays:
        """Return the pair (P, Q) with rows of P and columns of Q scaled so that P 1 = a and Qᵀ 1 = b.

        Rows of P and columns of Q without mass are taken from `default`. If P 1 ≤ a and Qᵀ 1 ≤ b before, no entry
        decreases, nor does Σ (1 − λ(|Dx_ii' − Dy_jj'|)/2rho)_+ min(P_ij P'_i'j', Q_ij Q'_i'j'), the overlap with any
        lift (P', Q'). lift, default: (P, Q).
        """
        p1, q2 = lift[0].sum(1, keepdims=True), lift[1].sum(0)
        P, Q = np.where(p1 > 0, lift[0], default[0]), np.where(q2 > 0, lift[1], default[1])
        return P * (self.a / P.sum(1))[:, None], Q * (self.b / Q.sum(0))

    def pair_gains(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Return g_ij,i'j' = (1 − λ(|Dx_ii' − Dy_jj'|)/2rho)_+, (r, c), for all pairs ij in `rows` and i'j' in `cols`.

        λ(t) = t^q is the loss of the cone. rows: (r,), cols: (c,), flat indices i·m + j of pairs.
        """
        (i, j), (k, o) = (np.divmod(pairs, len(self.b)) for pairs in (rows, cols))
        return self.cone.matching_gain(np.abs(self.dx[np.ix_(i, k)] - self.dy[np.ix_(j, o)]), self.rho) / (
            2.0 * self.rho
        )

    def local_overlap(self, lift: LiftArrays) -> np.ndarray:
        """Return Σ_i'j' g_ij,i'j' min(P_ij P_i'j', Q_ij Q_i'j') for all pairs ij, (n, m).

        g_ij,i'j' = (1 − λ(|Dx_ii' − Dy_jj'|)/2rho)_+. lift: matrices (P, Q), (n, m) each. The sum over all ij is
        the overlap of the lift with itself.
        """
        s = support(lift)
        P, Q = (side.ravel()[s] for side in lift)
        out = np.zeros(lift[0].size)
        out[s] = (self.pair_gains(s, s) * np.minimum(P[:, None] * P, Q[:, None] * Q)).sum(1)
        return out.reshape(lift[0].shape)

    def overlap_along_segment(self, start: LiftArrays, end: LiftArrays) -> tuple[float, Callable[[float], float]]:
        """Return the overlap of lifts `start` and `end`, and the overlap of (1 − t)·start + t·end with itself by t.

        The second is a function of t in [0, 1]. Lifts are matrices (P, Q), (n, m) each; the overlap of two is Σ
        g_ij,i'j' min(P_ij P'_i'j', Q_ij Q'_i'j') with g_ij,i'j' = (1 − λ(|Dx_ii' − Dy_jj'|)/2rho)_+.
        """
        s = np.union1d(support(start), support(end))
        gains = self.pair_gains(s, s)
        (P, Q), (P2, Q2) = ([side.ravel()[s] for side in lift] for lift in (start, end))

        def overlap(p: np.ndarray, q: np.ndarray, p2: np.ndarray, q2: np.ndarray) -> float:
            """Return Σ gains_kl min(p_k p2_l, q_k q2_l) for lifts (p, q), (p2, q2) at the pairs s, (k,) each."""
            return float((gains * np.minimum(p[:, None] * p2, q[:, None] * q2)).sum())

        def self_overlap_at(t: float) -> float:
            """Return Σ gains_kl min(p_k p_l, q_k q_l), (p, q) the lift (1 − t) start + t end at the pairs s."""
            p, q = (1.0 - t) * P + t * P2, (1.0 - t) * Q + t * Q2
            return overlap(p, q, p, q)

        return overlap(P, Q, P2, Q2), self_overlap_at

    def maximize_overlap_with(self, lift: LiftArrays) -> LiftArrays:
        """Return the lift (P, Q) of largest overlap with the given lift, or the given one if all overlaps are 0.

        A lift has P 1 = a and Qᵀ 1 = b, (n, m) each; the overlap with the given lift (P', Q') is
        Σ g_ij,i'j' min(P_ij P'_i'j', Q_ij Q'_i'j') with g_ij,i'j' = (1 − λ(|Dx_ii' − Dy_jj'|)/2rho)_+.
        """
        s = support(lift)
        P, Q = (side.ravel()[s] for side in lift)
        angles = distinct_angles(np.arctan2(P, Q))
        ray_minima = np.minimum(P[:, None] * np.cos(angles), Q[:, None] * np.sin(angles))  # (support, rays)
        ray_gains = self.pair_gains(np.arange(lift[0].size), s) @ ray_minima
        if not (ray_gains > 0).any():
            return lift
        return self.rescale_to_weights(self._generate_columns(ray_gains, np.cos(angles), np.sin(angles)), lift)

    def _generate_columns(self, ray_gains: np.ndarray, ray_p: np.ndarray, ray_q: np.ndarray) -> LiftArrays:
        """Return P = Σ_k x_ck ray_p_k and Q = Σ_k x_ck ray_q_k, (n, m) each, for the solution x of a linear program.

        It maximizes Σ ray_gains_ck x_ck over x ≥ 0 with row sums of P at most a and column sums of Q at most b, by
        column generation. x_ck: amount of pair c = i·m + j on ray k; ray_gains: (n·m, rays), overlap per unit of x_ck;
        ray_p, ray_q: (rays,), P and Q per unit of x_ck. The first program has all x_ck of positive gain, or if they
        are more than 4000, one for each pair: on the ray of largest gain per unit of P + Q.
        """
        n, m = len(self.a), len(self.b)
        i, j = np.divmod(np.arange(n * m), m)
        is_included = ray_gains > 0
        if is_included.sum() > PROBLEM_CONFIG.max_initial_columns:
            first = (ray_gains / (ray_p + ray_q)).argmax(1)
            is_included &= np.arange(len(ray_p)) == first[:, None]
        pair, ray = np.nonzero(is_included)
        for _ in range(PROBLEM_CONFIG.max_column_rounds):
            x, u, v = self._solve_program(ray_gains[pair, ray], (i[pair], j[pair]), (ray_p[ray], ray_q[ray]))
            reduced_gains = np.where(is_included, -np.inf, ray_gains - u[i, None] * ray_p - v[j, None] * ray_q)
            best = reduced_gains.argmax(1)
            new = np.flatnonzero(reduced_gains.max(1) > PROBLEM_CONFIG.min_reduced_gain)
            if not len(new):
                break
            is_included[new, best[new]] = True
            pair, ray = np.append(pair, new), np.append(ray, best[new])
        P, Q = (np.bincount(pair, x * side[ray], n * m).reshape(n, m) for side in (ray_p, ray_q))
        return P, Q

    def _solve_program(
        self, gains: np.ndarray, points: LiftArrays, usage: LiftArrays
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return x (k,), and the multipliers (n,) and (m,) of the constraints, of a linear program with k variables.

        It maximizes <gains, x> over x ≥ 0 with Σ usage[0]·x ≤ a_i over the variables of point i, Σ usage[1]·x ≤ b_j
        over those of point j. gains: (k,); points: i (k,) and j (k,); usage: (k,) for a and (k,) for b, of a unit of x.
        """
        from scipy.optimize import linprog
        from scipy.sparse import csc_matrix

        n, m = len(self.a), len(self.b)
        unit = n + m  # weights of the order of 1, for the absolute tolerances of the solver
        column = np.arange(len(gains))
        entries = np.concatenate(usage), (np.append(points[0], n + points[1]), np.append(column, column))
        matrix = csc_matrix(entries, shape=(n + m, len(gains)))
        for method, options in PROBLEM_CONFIG.linear_program_attempts:
            limits = {"A_ub": matrix, "b_ub": np.append(self.a, self.b) * unit}
            program = call_interruptibly(linprog, -gains, **limits, method=method, options=dict(options))
            if program.status == 0:
                multipliers = -program.ineqlin.marginals
                return np.maximum(program.x, 0.0) / unit, multipliers[:n], multipliers[n:]
        raise NotConverged(f"the linear program of a partial transport step failed: {program.message}")


def support(lift: LiftArrays) -> np.ndarray:
    """Return the flat indices i·m + j, (k,), of the pairs ij at which P and Q are both positive. lift: P and Q."""
    return np.flatnonzero((lift[0] > 0) & (lift[1] > 0))


def distinct_angles(angles: np.ndarray) -> np.ndarray:
    """Return the angles (k,), radians, in ascending order, without those at most 1e-9 above the one before."""
    angles = np.sort(angles)
    return angles[np.append(True, np.diff(angles) > PROBLEM_CONFIG.min_ray_angle)]


@dataclass(frozen=True, eq=False)
class PartialCGW(SpacePair):
    """CGW of two spaces for the partial transport cone. rho: (B,), the same for both sides."""

    x: Space
    y: Space
    rho: Tensor
    cone: PartialTransport
    batched: bool = True

    div_a: KL = field(init=False)
    div_b: KL = field(init=False)
    eps: Tensor = field(init=False)

    def __post_init__(self) -> None:
        """Set eps = 0, div_a and div_b = KL(rho), and the logs of weights and masses."""
        object.__setattr__(self, "eps", torch.zeros_like(self.rho))
        for side in ("a", "b"):
            object.__setattr__(self, f"div_{side}", KL(self.rho).expand(len(self.rho), self.rho.device))
        self.set_weights()

    def take(self, index: Tensor) -> PartialCGW:
        """Return the problem of the batch items `index`, (k,); an item may appear more than once."""
        return PartialCGW(self.x.select_items(index), self.y.select_items(index), self.rho[index], self.cone)

    def result(self, tensors: SolverOutput) -> ConicResult:
        """Return the `ConicResult` (plan, lift, terms, ...) of a solver's output; its `parameters` are empty."""
        return ConicResult(tensors, self.sizes, self.numpy)

    def numpy_item(self, item: int) -> tuple[PartialConicItem, tuple[np.ndarray, ...]]:
        """Return item `item` in NumPy without its points of weight 0, and np.ix_ of the others in a plan (n, m)."""
        index = torch.tensor([item], device=self.rho.device)
        weights = [self._unit_weights(space)[item].cpu().numpy() for space in (self.x, self.y)]
        points = [np.flatnonzero(w) for w in weights]
        dx, dy = (
            space.select_items(index).metric.dense().detach().double().cpu().numpy() for space in (self.x, self.y)
        )
        dx, dy = (d.reshape(d.shape[-2:])[np.ix_(k, k)] for d, k in zip((dx, dy), points, strict=True))
        a, b = (w[k] for w, k in zip(weights, points, strict=True))
        return PartialConicItem(dx, dy, a, b, float(self.rho[item]), self.cone), np.ix_(*points)

    def _unit_weights(self, space: Space) -> Tensor:
        """Return the weights of a space in units of max(m(a), m(b)), (B, n), float64."""
        weights = space.weight_tensor.detach().double()
        return weights.expand(self.batch, -1) / self.mass_unit[:, None]

    @property
    def mass_unit(self) -> Tensor:
        """max(m(a), m(b)), (B,): the unit of weights, P and Q in `PartialConicItem`."""
        return torch.maximum(self.log_mass_a, self.log_mass_b).exp()

    def objective(self, overlap: Tensor) -> ConicTerms:
        """Return the terms of CGW, (B,) each: rho (m(a)² + m(b)²), and −2 rho max(m(a), m(b))² overlap.

        overlap: (B,), Σ (1 − λ(|Dx_ii' − Dy_jj'|)/2rho)_+ min(P_ij P'_i'j', Q_ij Q'_i'j') for two lifts (P, Q) and
        (P', Q') in units of max(m(a), m(b)).
        """
        unmatched = self.rho * ((2.0 * self.log_mass_a).exp() + (2.0 * self.log_mass_b).exp())
        return ConicTerms(unmatched=unmatched, overlap=-2.0 * self.rho * self.mass_unit.square() * overlap)

    def lift(self, P: Tensor, Q: Tensor) -> Lift:
        """Return the `Lift` of P and Q, (B, n, m) each, given in units of max(m(a), m(b)), with w = min(P, Q).

        Kernel error, tolerance, slack and rank are 0, because the kernel is exact. Of the cone: whether the distance is
        a metric, its exponent, CGW^(1/exponent), and the power of the radius that is a mass. All of these are (B,).
        """
        P, Q = ((side * self.mass_unit[:, None, None]).to(self.x.dtype) for side in (P, Q))
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
