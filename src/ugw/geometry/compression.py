"""Low-rank forms of distances that are not squared Euclidean.

Classical scaling, eq. (6.5): −½ J D J has eigenvectors u_k and eigenvalues λ_k, and D_ij = Σ_k sign(λ_k) (φ_ik −
φ_jk)² with φ_k = √|λ_k| u_k. The few largest |λ_k| are kept. What is cut off would make all distances too short by
about the same amount, so the weights of the kept columns are fitted again to the distances: a fourth or less of the
mean error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from .._utils.config import UTILS_CONFIG
from ..errors import InputError
from .landmarks import evenly_spaced_indices, farthest_points
from .low_rank import LowRankMetric
from .mds import double_center
from .point_distances import cross_distances

# Eigenvectors come from at most so many points, which the others are laid beside.
LANDMARKS = 1000
# The rank is chosen, and weights are fitted, on all pairs of at most so many points.
JUDGES = 2048
# The error is measured on all pairs, or above `max_block_entries` on rows of at least so many points.
ROWS = 64
# Ranks tried: all up to 8, then steps of a fifth.
STEP = 1.2
# Looked at beyond the rank that was allowed, to say which one would do.
HIGHEST_RANK = 512
# Eigenvalues below this many units of rounding of the largest are rounding.
ROUNDING = 64.0


class Distances(Protocol):
    """What is to be approximated: some entries of a symmetric matrix with a zero diagonal."""

    @property
    def n(self) -> int:
        """The number of points."""

    @property
    def dtype(self) -> torch.dtype:
        """float32 or float64."""

    @property
    def device(self) -> torch.device:
        """Where the entries are."""

    def submatrix(self, rows: Tensor, cols: Tensor) -> Tensor:
        """D[rows][:, cols]. rows: (k,), cols: (l,). Returns (k, l)."""


@dataclass(frozen=True, eq=False)
class Points:
    """Distances by name of points (n, d), made where they are needed."""

    points: Tensor
    metric: str

    @property
    def n(self) -> int:
        """The number of points."""
        return len(self.points)

    @property
    def dtype(self) -> torch.dtype:
        """float32 or float64."""
        return self.points.dtype

    @property
    def device(self) -> torch.device:
        """Where the points are."""
        return self.points.device

    @property
    def outermost(self) -> int:
        """The point farthest from the mean."""
        points = self.points.double()
        return int((points - points.mean(0)).norm(dim=1).argmax())

    def submatrix(self, rows: Tensor, cols: Tensor) -> Tensor:
        """D[rows][:, cols]. Returns (k, l)."""
        return cross_distances(self.points[rows], self.points[cols], self.metric)


def embed(distances: Distances, *, first: int, tol: float, max_rank: int) -> LowRankMetric:
    """Columns of few points' distances, extended to all points: O(n·landmarks·r) work, O(n·r) memory.

    tol: the largest error allowed, a share of the largest distance; first: the landmark to begin with, each next one
    being farthest from those before, so that a permuted space has the same distances (ties go to the lowest index).
    The `error` of the result is the largest one seen: of all pairs up to n = 2048, else of some 4 million pairs, or 64
    rows where these are more. An InputError says what is possible where `max_rank` columns do not reach `tol`.

    >>> line = Points(torch.linspace(0, 1, 5, dtype=torch.float64)[:, None], "euclidean")
    >>> embed(line, first=0, tol=1e-9, max_rank=8).points.shape
    torch.Size([5, 4])
    """
    landmarks, order = _landmarks(distances, first)
    known = _scaling(distances, landmarks, order, max(max_rank, HIGHEST_RANK))
    ranks = _ranks(min(max_rank, known.rank))
    reached = 0.0
    for rank in ranks[_least(known, ranks, tol) :]:
        made = _extended(distances, known, rank)
        reached = _error(distances, made, order) / known.size
        if reached <= tol:
            return LowRankMetric(made.points, made.signs, reached * known.size)
    raise InputError(
        f"distances must be within tol = {tol:.3g} of the largest one, got {reached:.3g} at rank {ranks[-1]}: "
        f"take {_advice(known, ranks[-1], tol)}tol={_rounded_up(reached)}"
    )


@dataclass(frozen=True, eq=False)
class Scaling:
    """Classical scaling of the landmarks, in units of the largest distance, and how well it does on the judges."""

    size: float  # the largest distance
    landmarks: Tensor  # (m,) indices
    middle: Tensor  # (m,) mean distance to the landmarks
    values: Tensor  # (R,) eigenvalues, largest first without their signs
    vectors: Tensor  # (m, R)
    judges: Tensor  # (N, R): the eigenvectors, extended to the judges
    true: Tensor  # (N, N) distances of the judges

    @property
    def rank(self) -> int:
        """How many eigenvalues are more than rounding; one column of zeros if none is."""
        return len(self.values)

    def extend(self, columns: Tensor) -> Tensor:
        """The eigenvectors at points with these distances (k, m) to the landmarks, eq. (6.6). Returns (k, R)."""
        # A constant in a row is lost here: eigenvectors other than that of the mean add up to 0.
        return -0.5 * (columns - self.middle) @ (self.vectors / self.values)

    @cached_property
    def normal(self) -> tuple[Tensor, Tensor, Tensor]:
        """Normal equations of eq. (6.7) over all pairs of judges: (R, R), (R,), and a ridge (R,).

        Nested: those of a smaller rank are their first rows and columns.
        """
        u, n = self.judges - self.judges.mean(0), len(self.judges)
        squares, sums = u.square(), u.square().sum(0)
        # Σ_ij (a_i − a_j)² (b_i − b_j)², written out for Σ a = Σ b = 0.
        left = 2.0 * n * squares.mT @ squares + 2.0 * sums[:, None] * sums + 4.0 * (u.mT @ u).square()
        right = 2.0 * (squares * self.true.sum(1)[:, None]).sum(0) - 2.0 * (u * (self.true @ u)).sum(0)
        return left, right, (1e-10 * left.diagonal()).clamp(min=torch.finfo(left.dtype).tiny)

    def weights(self, rank: int) -> Tensor:
        """c (rank,), of the signs of the eigenvalues or 0, that fits all pairs of judges best."""
        left, right, ridge = (part[(slice(rank),) * part.ndim] for part in self.normal)
        plain, kept = self.values[:rank], torch.arange(rank, device=right.device)
        fitted = torch.zeros_like(plain)
        while len(kept):
            a = left[kept][:, kept]
            # The step from the eigenvalues, which are exact at full rank; the ridge decides where pairs do not.
            step = torch.linalg.solve(a + torch.diag(ridge[kept]), right[kept] - a @ plain[kept])
            found = plain[kept] + step
            agree = found * plain[kept] > 0
            if bool(agree.all()):
                fitted[kept] = found
                break
            kept = kept[agree]
        return min((plain, fitted), key=self.misfit)

    def misfit(self, weights: Tensor) -> float:
        """The largest error on the pairs of judges, c given."""
        u = self.judges[:, : len(weights)]
        return float((_between(u, u, weights) - self.true).abs().max())


def _landmarks(distances: Distances, first: int) -> tuple[Tensor, Tensor]:
    """Indices (m,) of points far from each other, and all points in the order of their distance to the first."""
    everyone = torch.arange(distances.n, device=distances.device)
    begin = everyone[first : first + 1]
    order = distances.submatrix(everyone, begin)[:, 0].argsort(stable=True)
    if distances.n <= LANDMARKS:
        return order, order

    def column(index: Tensor) -> Tensor:
        """Return the sizes (1, n) of the distances to one point."""
        return distances.submatrix(everyone, index).mT.abs()

    return farthest_points(column, begin, LANDMARKS, stop_when_covered=True)[0], order


def _scaling(distances: Distances, landmarks: Tensor, order: Tensor, highest: int) -> Scaling:
    """Eigenvectors at the landmarks, and at the judges: the landmarks and others at even steps of the order."""
    others = order[~torch.isin(order, landmarks)]
    judges = torch.cat([landmarks, others[evenly_spaced_indices(len(others), JUDGES - len(landmarks), others.device)]])
    true = _square(distances, judges)
    size = float(true.abs().max()) or 1.0
    true = true / size
    m = len(landmarks)
    own = true[:m, :m]
    middle = own.mean(0)
    values, vectors = torch.linalg.eigh(double_center(own))
    largest_first = values.abs().argsort(descending=True, stable=True)[: max(1, min(m - 1, highest))]
    values, vectors = values[largest_first], vectors[:, largest_first]
    sure = values.abs() > ROUNDING * torch.finfo(distances.dtype).eps * values.abs().max()
    values, vectors = values[sure], vectors[:, sure]
    if len(values) == 0:  # all distances are 0
        values, vectors = middle.new_ones(1), middle.new_zeros(m, 1)
    known = Scaling(size, landmarks, middle, values, vectors, vectors, true)
    return Scaling(size, landmarks, middle, values, vectors, known.extend(true[:, :m]), true)


def _square(distances: Distances, index: Tensor) -> Tensor:
    """D[index][:, index] in float64, exactly symmetric."""
    block = distances.submatrix(index, index).double()
    return 0.5 * (block + block.mT)


def _ranks(highest: int) -> list[int]:
    """The ranks that are tried, the last of them `highest`."""
    ranks, rank = [], 1
    while rank < highest:
        ranks.append(rank)
        rank = max(rank + 1, int(STEP * rank)) if rank >= 8 else rank + 1
    return [*ranks, highest]


def _least(known: Scaling, ranks: list[int], tol: float) -> int:
    """The first rank that is enough for the judges, or the last one; found by halving, errors fall with the rank."""
    low, high = 0, len(ranks) - 1
    while low < high:
        half = (low + high) // 2
        if known.misfit(known.weights(ranks[half])) <= tol:
            high = half
        else:
            low = half + 1
    return low


def _extended(distances: Distances, known: Scaling, rank: int) -> LowRankMetric:
    """All points, block by block; columns with sign 1 first."""
    weights = known.weights(rank)
    order = weights.sign().argsort(descending=True, stable=True)
    order = order[weights[order] != 0] if bool((weights != 0).any()) else order[:1]
    factor = weights.abs().sqrt() * known.size**0.5
    blocks = []
    for rows in torch.arange(distances.n, device=distances.device).split(
        max(1, UTILS_CONFIG.max_block_entries // len(known.landmarks))
    ):
        columns = distances.submatrix(rows, known.landmarks).double() / known.size
        blocks.append((known.extend(columns)[:, :rank] * factor)[:, order].to(distances.dtype))
    return LowRankMetric(torch.cat(blocks), torch.where(weights[order] < 0, -1.0, 1.0).to(distances.dtype))


def _error(distances: Distances, made: LowRankMetric, order: Tensor) -> float:
    """The largest error on rows at even steps of the order, against all points."""
    n = distances.n
    rows = order[evenly_spaced_indices(n, max(ROWS, UTILS_CONFIG.max_block_entries // n), order.device)]
    largest = 0.0
    for cols in torch.arange(n, device=distances.device).split(max(1, UTILS_CONFIG.max_block_entries // len(rows))):
        near = _between(made.points[rows], made.points[cols], made.signs)
        largest = max(largest, float((near - distances.submatrix(rows, cols)).abs().max()))
    return largest


def _between(points: Tensor, others: Tensor, weights: Tensor) -> Tensor:
    """Σ_k c_k (φ_ik − ψ_jk)² by one product. Returns (n, m)."""
    h, k = (points.square() @ weights, others.square() @ weights)
    return torch.addmm(h[:, None] + k, points * weights, others.mT, alpha=-2.0)


def _advice(known: Scaling, rank: int, tol: float) -> str:
    """The rank that would do, if there is one."""
    larger = [r for r in _ranks(known.rank) if r > rank]
    if not larger:
        return ""
    enough = larger[_least(known, larger, 0.9 * tol)]  # the judges are some of the points
    return f"max_rank={enough} or " if known.misfit(known.weights(enough)) <= tol else ""


def _rounded_up(value: float) -> str:
    """Two digits, not below the value."""
    return f"{1.05 * value:.2g}"
