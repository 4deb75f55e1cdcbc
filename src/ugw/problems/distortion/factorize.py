"""Low-rank factorization of a function of the difference of two distances: eq. (7.4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .config import DISTORTION_CONFIG

ElementwiseFunction = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class LossFactors:
    """The approximation g(|u − v|) ≈ Σ_r signs_r φ_r(u) φ_r(v) for u and v in [lowest, lowest + length].

    φ_r(u) = Σ_k coefficients_kr T_k(2 (u − lowest)/length − 1) with Chebyshev polynomials T_k; coefficients: (K, R)
    float64; signs: (R,), ±1; error: bound on the largest absolute error; tolerance: the largest acceptable error.
    """

    coefficients: Tensor
    signs: Tensor
    length: float
    error: float
    tolerance: float
    lowest: float = 0.0

    @property
    def rank(self) -> int:
        """Number of terms R."""
        return len(self.signs)

    @property
    def meets_tolerance(self) -> bool:
        """Is the error bound within the tolerance?"""
        return self.error <= self.tolerance

    def evaluate(self, distances: Tensor) -> Tensor:
        """Evaluate all φ_r by Chebyshev's recurrence. distances: (..., n, n). Returns (..., R, n, n)."""
        x = ((distances - self.lowest) * (2.0 / self.length) - 1.0).clamp(-1.0, 1.0)
        weights = self.coefficients.to(distances)
        previous, current = torch.ones_like(x), x
        values = weights[0, :, None, None] * previous.unsqueeze(-3) + weights[1, :, None, None] * current.unsqueeze(-3)
        for row in weights[2:]:
            previous, current = current, torch.addcmul(-previous, x, current, value=2.0)
            values.addcmul_(row[:, None, None].expand_as(values), current.unsqueeze(-3).expand_as(values))
        return values


def factorize(
    g: ElementwiseFunction, length: float, *, tol: float | None = None, max_rank: int | None = None
) -> LossFactors:
    """Factorize g(|u − v|) by Chebyshev interpolation and a truncated eigendecomposition of its coefficients.

    g: an elementwise function of t ≥ 0; length: the largest distance; tol: acceptable error as a fraction of the range
    of g. Default: 1e-8 with any rank if g is smooth as an even function, otherwise 1e-3 with a rank of at most 64. The
    field `error` of the result tells the error that was reached.
    """
    length = length if length > 0 else 1.0
    spread, smallest_tol = _spread_and_smallest_tol(g, length)
    for degree in DISTORTION_CONFIG.chebyshev_degrees:
        matrix = _interpolation_matrix(g, length, degree)
        tail = _tail_sum(matrix)
        tolerance = max((DISTORTION_CONFIG.smooth_tol if tol is None else tol) * spread, smallest_tol)
        is_smooth = tail <= 0.1 * tolerance and _error_on_edge(g, length, matrix) <= tolerance
        if is_smooth:
            break
    if tol is None and not is_smooth:
        tolerance = max(DISTORTION_CONFIG.kink_tol * spread, smallest_tol)
    default_rank = degree if is_smooth else DISTORTION_CONFIG.max_kink_rank
    rank_limit = default_rank if max_rank is None else min(max_rank, degree)
    values, vectors = torch.linalg.eigh(matrix)
    order = values.abs().argsort(descending=True)
    values, vectors = values[order], vectors[:, order]

    def error_at_rank(r: int) -> float:
        """Bound on the error of the r leading terms."""
        if is_smooth:
            return _truncation_bound(matrix, values[:r], vectors[:, :r]) + tail
        return _measured_error(g, length, values[:r], vectors[:, :r])

    rank, error = _smallest_rank(error_at_rank, tolerance, rank_limit)
    kept = values[:rank]
    return LossFactors(vectors[:, :rank] * kept.abs().sqrt(), kept.sign(), length, error, tolerance)


def _smallest_rank(error_at_rank: Callable[[int], float], tol: float, rank_limit: int) -> tuple[int, float]:
    """Find the smallest rank whose error is at most tol by bisection; `rank_limit` if there is none.

    Returns the rank and its error.
    """
    low, high, error = 1, rank_limit, error_at_rank(rank_limit)
    while low < high and error <= tol:
        middle = (low + high) // 2
        middle_error = error_at_rank(middle)
        if middle_error <= tol:
            high, error = middle, middle_error
        else:
            low = middle + 1
    return high, error


def _interpolation_matrix(g: ElementwiseFunction, length: float, degree: int) -> Tensor:
    """Coefficients C with g(|u − v|) = Σ C_kl T_k(u) T_l(v) at the Chebyshev nodes. (degree, degree), symmetric."""
    angles = (torch.arange(degree, dtype=torch.float64) + 0.5) * math.pi / degree
    nodes = (angles.cos() + 1.0) * (0.5 * length)
    samples = g((nodes[:, None] - nodes).abs()).double()
    transform = torch.cos(torch.arange(degree, dtype=torch.float64)[:, None] * angles) * (2.0 / degree)
    transform[0] *= 0.5
    matrix = transform @ samples @ transform.T
    return 0.5 * (matrix + matrix.T)


def _tail_sum(matrix: Tensor) -> float:
    """Sum of |C_kl| over the highest quarter of the degrees: an estimate of the coefficients that were cut off."""
    cut = len(matrix) * 3 // 4
    return float(matrix.abs().sum() - matrix[:cut, :cut].abs().sum())


def _grid(length: float) -> Tensor:
    """Evenly spaced distances from 0 to `length` at which errors are measured, (grid,), float64."""
    return torch.linspace(0.0, length, DISTORTION_CONFIG.error_grid_points, dtype=torch.float64)


def _chebyshev_basis(t: Tensor, length: float, degree: int) -> Tensor:
    """Values T_k(2 t/length − 1) of the first `degree` Chebyshev polynomials. t: (grid,). Returns (grid, degree)."""
    degrees = torch.arange(degree, dtype=torch.float64)
    return torch.cos(degrees * torch.acos((2.0 * t / length - 1.0).clamp(-1.0, 1.0))[:, None])


def _error_on_edge(g: ElementwiseFunction, length: float, matrix: Tensor) -> float:
    """Largest interpolation error on the edge v = 0: the nodes alone could miss a narrow spike of g."""
    t = _grid(length)
    basis = _chebyshev_basis(t, length, len(matrix))
    return float((basis @ matrix @ basis[0] - g(t)).abs().max())


def _spread_and_smallest_tol(g: ElementwiseFunction, length: float) -> tuple[float, float]:
    """Largest minus smallest value of g on [0, length], and the smallest tolerance that rounding allows."""
    values = g(_grid(length))
    return float(values.max() - values.min()), DISTORTION_CONFIG.min_relative_tol * float(values.abs().max())


def _truncation_bound(matrix: Tensor, values: Tensor, vectors: Tensor) -> float:
    """Return Σ_kl |C − C_r|_kl, a bound on the change of g if C is replaced by C_r, made of r of its eigenpairs.

    C holds coefficients of products of Chebyshev polynomials T_k, and |T_k| ≤ 1. values: (r,); vectors: (K, r).
    """
    return float((matrix - (vectors * values) @ vectors.T).abs().sum())


def _measured_error(g: ElementwiseFunction, length: float, values: Tensor, vectors: Tensor) -> float:
    """Largest error of the factors on a grid, plus the amount it can increase between grid points."""
    t = _grid(length)
    basis = _chebyshev_basis(t, length, len(vectors)) @ vectors
    error = (basis * values) @ basis.T - g((t[:, None] - t).abs())
    # Between two neighbors the error exceeds the nearer one by at most half of the largest step along each axis.
    steps = [float(error.diff(dim=axis).abs().max()) for axis in (0, 1)]
    return float(error.abs().max()) + 0.5 * sum(steps)
