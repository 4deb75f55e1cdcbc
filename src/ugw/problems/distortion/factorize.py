"""Low-rank forms of a function of the difference of two distances: eq. (7.4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

# Chebyshev degrees tried, each twice the last; a function that needs more has a kink.
DEGREES = (16, 32, 64, 128, 256, 512)
# Accuracy for smooth functions; accuracy and rank for those with a kink, which converge only algebraically. Both are
# shares of the function's range: a kernel near 1 throughout matters by what it differs from 1.
SMOOTH_TOL, KINK_TOL, MAX_RANK = 1e-8, 1e-3, 64
# No tolerance is below this share of the function's largest value: rounding would be above it.
LEAST = 1e-12
# Points on each axis at which the error of a function with a kink is measured.
GRID = 1500


@dataclass(frozen=True, eq=False)
class Factors:
    """g(|u − v|) ≈ Σ_r signs_r φ_r(u) φ_r(v) for u and v between `lowest` and `lowest + length`.

    φ_r(u) = Σ_k coefficients_kr T_k(2 (u − lowest)/length − 1); coefficients: (K, R) float64; signs: (R,), ±1;
    error: a bound on the largest error anywhere; wanted: what it should be at most.
    """

    coefficients: Tensor
    signs: Tensor
    length: float
    error: float
    wanted: float
    lowest: float = 0.0

    @property
    def rank(self) -> int:
        """Number of terms."""
        return len(self.signs)

    @property
    def good(self) -> bool:
        """Is the error within the tolerance?"""
        return self.error <= self.wanted

    def evaluate(self, distances: Tensor) -> Tensor:
        """All φ_r at once. distances: (..., n, n). Returns (..., R, n, n)."""
        x = ((distances - self.lowest) * (2.0 / self.length) - 1.0).clamp(-1.0, 1.0)
        weights = self.coefficients.to(distances)
        last, now = torch.ones_like(x), x
        values = weights[0, :, None, None] * last.unsqueeze(-3) + weights[1, :, None, None] * now.unsqueeze(-3)
        for row in weights[2:]:
            last, now = now, torch.addcmul(-last, x, now, value=2.0)
            values.addcmul_(row[:, None, None].expand_as(values), now.unsqueeze(-3).expand_as(values))
        return values


def factorize(
    g: Callable[[Tensor], Tensor], length: float, *, tol: float | None = None, max_rank: int | None = None
) -> Factors:
    """Chebyshev interpolation of g(|u − v|) and a truncated eigendecomposition of its coefficients.

    g: a function of t ≥ 0, elementwise; length: the largest distance; tol: the error, as a share of the range of g.
    Default tolerance and rank: 1e-8 and as many as it takes if g is smooth as an even function, else 1e-3 and at
    most 64; `error` says what was reached.
    """
    length = length if length > 0 else 1.0
    span, least = _span(g, length)
    for degree in DEGREES:
        matrix = _coefficients(g, length, degree)
        tail = _tail(matrix)
        wanted = max((SMOOTH_TOL if tol is None else tol) * span, least)
        smooth = tail <= 0.1 * wanted and _off_the_nodes(g, length, matrix) <= wanted
        if smooth:
            break
    if tol is None and not smooth:
        wanted = max(KINK_TOL * span, least)
    most = (degree if smooth else MAX_RANK) if max_rank is None else min(max_rank, degree)
    values, vectors = torch.linalg.eigh(matrix)
    order = values.abs().argsort(descending=True)
    values, vectors = values[order], vectors[:, order]
    measure = _bound if smooth else _measured
    rank, error = _fewest(
        lambda r: measure(g, length, matrix, values[:r], vectors[:, :r]) + tail * smooth, wanted, most
    )
    kept = values[:rank]
    return Factors(vectors[:, :rank] * kept.abs().sqrt(), kept.sign(), length, error, wanted)


def _fewest(error: Callable[[int], float], tol: float, most: int) -> tuple[int, float]:
    """The smallest rank whose error is at most tol, by bisection, or `most`; and its error."""
    low, high, reached = 1, most, error(most)
    while low < high and reached <= tol:
        middle = (low + high) // 2
        there = error(middle)
        if there <= tol:
            high, reached = middle, there
        else:
            low = middle + 1
    return high, reached


def _nodes(length: float, degree: int) -> tuple[Tensor, Tensor]:
    angles = (torch.arange(degree, dtype=torch.float64) + 0.5) * math.pi / degree
    return angles, (angles.cos() + 1.0) * (0.5 * length)


def _coefficients(g: Callable[[Tensor], Tensor], length: float, degree: int) -> Tensor:
    """C with g(|u − v|) = Σ C_kl T_k(u) T_l(v) at the Chebyshev nodes. Returns (degree, degree), symmetric."""
    angles, nodes = _nodes(length, degree)
    samples = g((nodes[:, None] - nodes).abs()).double()
    transform = torch.cos(torch.arange(degree, dtype=torch.float64)[:, None] * angles) * (2.0 / degree)
    transform[0] *= 0.5
    matrix = transform @ samples @ transform.T
    return 0.5 * (matrix + matrix.T)


def _tail(matrix: Tensor) -> float:
    """Sum of the coefficients of high degree: what the next ones must be smaller than."""
    cut = len(matrix) * 3 // 4
    return float(matrix.abs().sum() - matrix[:cut, :cut].abs().sum())


def _off_the_nodes(g: Callable[[Tensor], Tensor], length: float, matrix: Tensor) -> float:
    """The largest error on a line of the square: nodes alone would miss a narrow spike of g."""
    t = torch.linspace(0.0, length, GRID, dtype=torch.float64)
    degrees = torch.arange(len(matrix), dtype=torch.float64)
    basis = torch.cos(degrees * torch.acos((2.0 * t / length - 1.0).clamp(-1.0, 1.0))[:, None])
    return float((basis @ matrix @ basis[0] - g(t)).abs().max())


def _span(g: Callable[[Tensor], Tensor], length: float) -> tuple[float, float]:
    """The range of g, its largest value less its smallest, and the least tolerance that makes sense."""
    values = g(torch.linspace(0.0, length, GRID, dtype=torch.float64))
    return float(values.max() - values.min()), LEAST * float(values.abs().max())


def _bound(g: Callable[[Tensor], Tensor], length: float, matrix: Tensor, values: Tensor, vectors: Tensor) -> float:
    """Sum of |C − C_r|: no error is larger, since |T_k| ≤ 1."""
    return float((matrix - (vectors * values) @ vectors.T).abs().sum())


def _measured(g: Callable[[Tensor], Tensor], length: float, matrix: Tensor, values: Tensor, vectors: Tensor) -> float:
    """The largest error on a grid, and what it can rise by between two of its points."""
    t = torch.linspace(0.0, length, GRID, dtype=torch.float64)
    degrees = torch.arange(len(matrix), dtype=torch.float64)
    basis = torch.cos(degrees * torch.acos((2.0 * t / length - 1.0).clamp(-1.0, 1.0))[:, None]) @ vectors
    error = (basis * values) @ basis.T - g((t[:, None] - t).abs())
    # Along each axis the error changes by at most its largest step, half of it on the way to the next point.
    steps = [float(error.diff(dim=axis).abs().max()) for axis in (0, 1)]
    return float(error.abs().max()) + 0.5 * sum(steps)
