"""Low-rank factorization of a function of the difference of two distances: eq. (7.4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .config import DISTORTION_CONFIG

ElementwiseFunction = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class LossFactors:
    """The approximation g(|u − v|) ≈ Σ_r signs_r φ_r(u) φ_r(v) for u and v in [lowest, lowest + length].

    g is the loss λ or the conic kernel exp(−λ/R); φ_r(u) = Σ_k coefficients_kr T_k(2 (u − lowest)/length − 1) with
    Chebyshev polynomials T_k; coefficients: (K, R) float64; signs: (R,), ±1; error: bound on the largest absolute
    error; tolerance: the largest acceptable error.
    """

    coefficients: Tensor
    signs: Tensor
    length: float
    error: float
    tolerance: float
    lowest: float = 0.0

    @property
    def rank(self) -> int:
        """Number of terms R of the low-rank approximation of g(|u − v|)."""
        return len(self.signs)

    @property
    def meets_tolerance(self) -> bool:
        """Whether the `error` of the low-rank approximation is at most the `tolerance` asked for."""
        return self.error <= self.tolerance

    def truncate(self, share: float) -> LossFactors:
        """Return the factors without the last terms that together have at most `share` of Σ_r |φ_r|²; one is kept.

        The terms of `factorize` are in the order of decreasing |φ_r|², the sum of the squared coefficients of the
        factor φ_r. `error` is not changed: the error of what is left out is not added.
        """
        sizes = self.coefficients.square().sum(0)
        rests = sizes.flip(0).cumsum(0).flip(0)  # of the terms from r on
        rank = max(1, int((rests > share * sizes.sum()).sum()))
        return replace(self, coefficients=self.coefficients[:, :rank], signs=self.signs[:rank])

    def evaluate(self, distances: Tensor) -> Tensor:
        """Return φ_r without signs, (..., R, n, n), at distances (..., n, n), clipped to [lowest, lowest + length]."""
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
    """Return factors of g(|u − v|) for u, v in [0, length], of the smallest rank whose error is at most `tol`.

    They are made by Chebyshev interpolation and a truncated eigendecomposition of its coefficients. g: an elementwise
    function of t ≥ 0, the loss λ or the conic kernel exp(−λ/R); tol: error as a fraction of max g − min g; max_rank:
    limit of the rank. Default: tol 1e-8 and any rank if g is smooth as an even function, otherwise 1e-3 and a rank of
    at most 64. If no allowed rank reaches `tol`, the largest one is used, and `error` exceeds `tolerance`.
    """
    length, config = length if length > 0 else 1.0, DISTORTION_CONFIG
    samples = g(_grid(length))
    spread, smallest_tol = float(samples.max() - samples.min()), config.min_relative_tol * float(samples.abs().max())
    for degree in config.chebyshev_degrees:
        matrix = _interpolation_matrix(g, length, degree)
        tail = _tail_sum(matrix)
        tolerance = max((config.smooth_tol if tol is None else tol) * spread, smallest_tol)
        is_smooth = tail <= config.max_tail_share * tolerance and _error_on_edge(g, length, matrix) <= tolerance
        if is_smooth:
            break
    if tol is None and not is_smooth:
        tolerance = max(config.kink_tol * spread, smallest_tol)
    default_rank = degree if is_smooth else config.max_kink_rank
    rank_limit = default_rank if max_rank is None else min(max_rank, degree)
    values, vectors = torch.linalg.eigh(matrix)
    order = values.abs().argsort(descending=True)
    values, vectors = values[order], vectors[:, order]

    def error_at_rank(r: int) -> float:
        """Return a bound on the error of the factors if only the r leading terms are kept."""
        if is_smooth:
            return _truncation_bound(matrix, values[:r], vectors[:, :r]) + tail
        return _measured_error(g, length, values[:r], vectors[:, :r])

    rank, error = _smallest_rank(error_at_rank, tolerance, rank_limit)
    coefficients = vectors[:, :rank] * values[:rank].abs().sqrt()
    return LossFactors(coefficients, values[:rank].sign(), length, error, tolerance)


def _smallest_rank(error_at_rank: Callable[[int], float], tol: float, rank_limit: int) -> tuple[int, float]:
    """Return the smallest rank from 1 to `rank_limit` with error_at_rank(rank) ≤ tol, and its error.

    Returns `rank_limit` and its error if that is above tol. The error must not increase with the rank (bisection).
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
    """Return the symmetric C (degree, degree), float64, with g(|u − v|) = Σ_kl C_kl T_k(u) T_l(v) at Chebyshev nodes.

    g: the loss or conic kernel; u, v are in [0, length]; T_k(u) is the Chebyshev polynomial at 2 u/length − 1.
    """
    angles = (torch.arange(degree, dtype=torch.float64) + 0.5) * math.pi / degree
    nodes = (angles.cos() + 1.0) * (0.5 * length)
    samples = g((nodes[:, None] - nodes).abs()).double()
    transform = torch.cos(torch.arange(degree, dtype=torch.float64)[:, None] * angles) * (2.0 / degree)
    transform[0] *= 0.5
    matrix = transform @ samples @ transform.T
    return 0.5 * (matrix + matrix.T)


def _tail_sum(matrix: Tensor) -> float:
    """Return Σ |C_kl| over k or l ≥ 3/4 of the degrees of the matrix C: an estimate of the interpolation error."""
    cut = len(matrix) * 3 // 4
    return float(matrix.abs().sum() - matrix[:cut, :cut].abs().sum())


def _grid(length: float) -> Tensor:
    """Return 1500 evenly spaced distances from 0 to `length`, both included, at which errors are measured, float64."""
    return torch.linspace(0.0, length, DISTORTION_CONFIG.error_grid_points, dtype=torch.float64)


def _chebyshev_basis(t: Tensor, length: float, degree: int) -> Tensor:
    """Return T_k(2 t/length − 1), (grid, degree), for the first `degree` Chebyshev polynomials T_k. t: (grid,)."""
    degrees = torch.arange(degree, dtype=torch.float64)
    return torch.cos(degrees * torch.acos((2.0 * t / length - 1.0).clamp(-1.0, 1.0))[:, None])


def _error_on_edge(g: ElementwiseFunction, length: float, matrix: Tensor) -> float:
    """Return the largest |Σ_kl C_kl T_k(u) T_l(0) − g(u)| on a grid of u; matrix: C, (degree, degree).

    The nodes of the interpolation alone could miss a narrow spike of g, the loss or conic kernel. T_k: the Chebyshev
    polynomial at 2 u/length − 1.
    """
    t = _grid(length)
    basis = _chebyshev_basis(t, length, len(matrix))
    return float((basis @ matrix @ basis[0] - g(t)).abs().max())


def _truncation_bound(matrix: Tensor, values: Tensor, vectors: Tensor) -> float:
    """Return Σ_kl |C − C_r|_kl, where C = `matrix`, (K, K), and C_r = vectors · diag(values) · vectorsᵀ.

    It bounds |Σ_kl (C − C_r)_kl T_k(u) T_l(v)| for Chebyshev polynomials, since |T_k| ≤ 1. values: (r,), vectors:
    (K, r), eigenpairs of C.
    """
    return float((matrix - (vectors * values) @ vectors.T).abs().sum())


def _measured_error(g: ElementwiseFunction, length: float, values: Tensor, vectors: Tensor) -> float:
    """Return a bound on |Σ_r values_r φ_r(u) φ_r(v) − g(|u − v|)| over u, v in [0, length], measured on a grid.

    g: the loss or conic kernel; φ_r = Σ_k vectors_kr T_k with Chebyshev polynomials T_k; values: (r,); vectors: (K, r).
    It is the largest error on the grid plus the amount by which the error can increase between grid points.
    """
    t = _grid(length)
    basis = _chebyshev_basis(t, length, len(vectors)) @ vectors
    error = (basis * values) @ basis.T - g((t[:, None] - t).abs())
    # Between two neighbors the error exceeds the nearer one by at most half of the largest step along each axis.
    steps = [float(error.diff(dim=axis).abs().max()) for axis in (0, 1)]
    return float(error.abs().max()) + 0.5 * sum(steps)
