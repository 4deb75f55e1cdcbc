"""Low-rank approximations of distances that are not squared Euclidean.

Classical scaling, eq. (6.5): −½ J D J has eigenvectors u_k and eigenvalues λ_k, and D_ij = Σ_k sign(λ_k) (φ_ik −
φ_jk)² with φ_k = √|λ_k| u_k. Only the eigenpairs with the largest |λ_k| are kept. Truncation alone would make all
distances too short by about the same amount, so the weights of the kept columns are fitted to the distances again,
which reduces the mean error to a fourth or less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from .._utils.config import UTILS_CONFIG
from ..errors import InputError
from .config import GEOMETRY_CONFIG
from .landmarks import evenly_spaced_indices, farthest_points
from .low_rank import LowRankMetric
from .mds import DistanceSource, double_center
from .point_distances import cross_distances


@dataclass(frozen=True, eq=False)
class PointDistances:
    """The distances between points (n, d) under a named metric, computed when needed: a `DistanceSource`."""

    points: Tensor
    metric: str

    @property
    def n(self) -> int:
        """The number of points."""
        return len(self.points)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the points, float32 or float64."""
        return self.points.dtype

    @property
    def device(self) -> torch.device:
        """The device of the points."""
        return self.points.device

    @property
    def outermost_point(self) -> int:
        """The index of the point with the largest Euclidean distance to the mean of all points."""
        points = self.points.double()
        return int((points - points.mean(0)).norm(dim=1).argmax())

    def submatrix(self, rows: Tensor, cols: Tensor) -> Tensor:
        """Return the distances D[rows][:, cols], (k, l). rows: (k,), cols: (l,), indices."""
        return cross_distances(self.points[rows], self.points[cols], self.metric)


def compress_distances(distances: DistanceSource, *, first: int, tol: float, max_rank: int) -> LowRankMetric:
    """Return a low-rank metric whose distances differ from the given ones by at most `tol` times the largest one.

    Takes O(n·landmarks·r) time and O(n·r) memory. first: the index of the first landmark; each further one is the
    farthest from those before, so that a permuted space gets the same distances (ties go to the lowest index). The
    `error` of the result is the largest absolute one measured: on all pairs up to n = 2048, else on about 4 million
    pairs, or on 64 rows where these are more. Raises InputError, with advice, if `max_rank` columns do not suffice.

    >>> line = PointDistances(torch.linspace(0, 1, 5, dtype=torch.float64)[:, None], "euclidean")
    >>> compress_distances(line, first=0, tol=1e-9, max_rank=8).points.shape
    torch.Size([5, 4])
    """
    landmarks, order = _choose_landmarks(distances, first)
    scaling = _scale_landmarks(distances, landmarks, order, max(max_rank, GEOMETRY_CONFIG.max_advised_rank))
    ranks = _candidate_ranks(min(max_rank, scaling.max_rank))
    error = 0.0
    for rank in ranks[_position_of_sufficient_rank(scaling, ranks, tol) :]:
        metric = _extend_to_all_points(distances, scaling, rank)
        error = _measure_error(distances, metric, order) / scaling.largest_distance
        if error <= tol:
            return replace(metric, error=error * scaling.largest_distance)
    raise InputError(
        f"distances must be within tol = {tol:.3g} of the largest one, got {error:.3g} at rank {ranks[-1]}: "
        f"take {_rank_advice(scaling, ranks[-1], tol)}tol={GEOMETRY_CONFIG.advised_tol_factor * error:.2g}"
    )


@dataclass(frozen=True, eq=False)
class LandmarkScaling:
    """Eigenpairs of the doubly centered landmark distances, and the points on which weights are fitted (fit points).

    Distances are in units of the largest one. m landmarks, R eigenpairs, N fit points, the landmarks first.
    """

    largest_distance: float  # between fit points, in the unit of the input
    landmarks: Tensor  # (m,) indices
    column_means: Tensor  # (m,) mean distance to the landmarks
    values: Tensor  # (R,) eigenvalues in the order of decreasing absolute value
    vectors: Tensor  # (m, R) eigenvectors
    fit_vectors: Tensor  # (N, R) eigenvectors extended to the fit points
    fit_distances: Tensor  # (N, N)

    @property
    def max_rank(self) -> int:
        """The number R of stored eigenpairs; it is 1, with a vector of zeros, if all distances are 0."""
        return len(self.values)

    def extend(self, columns: Tensor) -> Tensor:
        """Return the R eigenvectors extended to k further points (Nyström), (k, R), eq. (6.6).

        They are −½ (columns − column_means) · vectors / values, with the eigenpairs (m, R) and (R,) of the landmarks
        and the landmarks' mean distances (m,) to each landmark. columns: (k, m), distances of the points to the m
        landmarks, in units of the largest distance.
        """
        # A constant added to a row has no effect: eigenvectors other than that of the mean sum to 0.
        return -0.5 * (columns - self.column_means) @ (self.vectors / self.values)

    @cached_property
    def normal_equations(self) -> tuple[Tensor, Tensor, Tensor]:
        """Matrix (R, R), right-hand side (R,) and ridge (R,) of the least-squares fit of the R column weights w.

        The fit minimizes Σ_ij (Σ_k w_k (u_ik − u_jk)² − d_ij)² over all pairs of fit points, u = fit_vectors and
        d = fit_distances: eq. (6.7) of docs/mathematics.md. The ridge is a diagonal, not yet added to the matrix. The
        equations of a smaller rank are the leading rows and columns.
        """
        u, n = self.fit_vectors - self.fit_vectors.mean(0), len(self.fit_vectors)
        squares, sums = u.square(), u.square().sum(0)
        # Σ_ij (a_i − a_j)² (b_i − b_j)², written out for Σ a = Σ b = 0.
        left = 2.0 * n * squares.mT @ squares + 2.0 * sums[:, None] * sums + 4.0 * (u.mT @ u).square()
        right = 2.0 * (squares * self.fit_distances.sum(1)[:, None]).sum(0) - 2.0 * (u * (self.fit_distances @ u)).sum(
            0
        )
        ridge = (GEOMETRY_CONFIG.fit_ridge * left.diagonal()).clamp(min=torch.finfo(left.dtype).tiny)
        return left, right, ridge

    def fit_weights(self, rank: int) -> Tensor:
        """Return weights w (rank,) for which Σ_k w_k (u_ik − u_jk)² approximates the distances of the fit points i, j.

        Distances are in units of the largest one; u: the first `rank` eigenvectors at the fit points. w minimizes the
        squared error among weights that have the sign of their eigenvalue or are 0, unless the eigenvalues themselves
        have a smaller largest error: then the eigenvalues are returned.
        """
        left, right, ridge = (part[(slice(rank),) * part.ndim] for part in self.normal_equations)
        eigenvalues, active = self.values[:rank], torch.arange(rank, device=right.device)
        fitted = torch.zeros_like(eigenvalues)
        while len(active):
            matrix = left[active][:, active]
            # Solved for the difference from the eigenvalues, which are exact at full rank; the ridge keeps them where
            # the pairs do not determine the weights.
            residual = right[active] - matrix @ eigenvalues[active]
            solution = eigenvalues[active] + torch.linalg.solve(matrix + torch.diag(ridge[active]), residual)
            same_sign = solution * eigenvalues[active] > 0
            if bool(same_sign.all()):
                fitted[active] = solution
                break
            active = active[same_sign]
        return min((eigenvalues, fitted), key=self.max_error)

    def max_error(self, weights: Tensor) -> float:
        """Return the largest |Σ_k weights_k (u_ik − u_jk)² − d_ij| of fit points i, j, a share of the largest distance.

        weights: (rank,); u: the first columns of `fit_vectors`; d: `fit_distances`, of which the largest is 1.
        """
        u = self.fit_vectors[:, : len(weights)]
        return float((_weighted_squared_distances(u, u, weights) - self.fit_distances).abs().max())


def _choose_landmarks(distances: DistanceSource, first: int) -> tuple[Tensor, Tensor]:
    """Return the indices of the landmarks (m,), and of all points (n,) by increasing distance to point `first`.

    Landmarks are all points, by increasing distance too, if there are at most 1000; else at most 1000 different ones:
    `first`, then each time the farthest from those before.
    """
    all_points = torch.arange(distances.n, device=distances.device)
    begin = all_points[first : first + 1]
    order = distances.submatrix(all_points, begin)[:, 0].argsort(stable=True)
    if distances.n <= GEOMETRY_CONFIG.max_landmarks:
        return order, order

    def column(index: Tensor) -> Tensor:
        """Return the absolute distances (1, n) of all points to the point `index`, (1,)."""
        return distances.submatrix(all_points, index).mT.abs()

    return farthest_points(column, begin, GEOMETRY_CONFIG.max_landmarks, stop_when_covered=True)[0], order


def _scale_landmarks(distances: DistanceSource, landmarks: Tensor, order: Tensor, max_rank: int) -> LandmarkScaling:
    """Return the eigenpairs of largest |eigenvalue|, at most `max_rank`, of the doubly centered landmark distances.

    The eigenvectors are extended to a sample, the fit points: the landmarks, (m,) indices, then other points at even
    steps of `order`, (n,) indices of all points. Distances are divided by the largest one of the fit points. Eigenpairs
    that may be rounding errors are left out, but for one.
    """
    others = order[~torch.isin(order, landmarks)]
    n_others = GEOMETRY_CONFIG.max_fit_points - len(landmarks)
    fit_points = torch.cat([landmarks, others[evenly_spaced_indices(len(others), n_others, others.device)]])
    fit_distances = distances.submatrix(fit_points, fit_points).double()
    fit_distances = 0.5 * (fit_distances + fit_distances.mT)  # exactly symmetric
    largest = float(fit_distances.abs().max()) or 1.0
    fit_distances = fit_distances / largest
    m = len(landmarks)
    between_landmarks = fit_distances[:m, :m]
    means = between_landmarks.mean(0)
    values, vectors = torch.linalg.eigh(double_center(between_landmarks))
    order_by_size = values.abs().argsort(descending=True, stable=True)[: max(1, min(m - 1, max_rank))]
    values, vectors = values[order_by_size], vectors[:, order_by_size]
    rounding = GEOMETRY_CONFIG.eigenvalue_rounding_units * torch.finfo(distances.dtype).eps * values.abs().max()
    is_significant = values.abs() > rounding
    values, vectors = values[is_significant], vectors[:, is_significant]
    if len(values) == 0:  # all distances are 0
        values, vectors = means.new_ones(1), means.new_zeros(m, 1)
    scaling = LandmarkScaling(largest, landmarks, means, values, vectors, vectors, fit_distances)
    return replace(scaling, fit_vectors=scaling.extend(fit_distances[:, :m]))


def _candidate_ranks(max_rank: int) -> list[int]:
    """Return the increasing ranks to try: 1, 2, ..., 8, then each about 1.2 times the one before, `max_rank` last."""
    ranks, rank = [], 1
    while rank < max_rank:
        ranks.append(rank)
        is_consecutive = rank < GEOMETRY_CONFIG.n_consecutive_ranks
        rank = rank + 1 if is_consecutive else max(rank + 1, int(GEOMETRY_CONFIG.rank_growth * rank))
    return [*ranks, max_rank]


def _position_of_sufficient_rank(scaling: LandmarkScaling, ranks: list[int], tol: float) -> int:
    """Return the position in `ranks` of the first rank with an error ≤ tol on the fit points, else of the last rank."""
    low, high = 0, len(ranks) - 1
    while low < high:  # bisection: errors decrease with the rank
        middle = (low + high) // 2
        if scaling.max_error(scaling.fit_weights(ranks[middle])) <= tol:
            high = middle
        else:
            low = middle + 1
    return low


def _extend_to_all_points(distances: DistanceSource, scaling: LandmarkScaling, rank: int) -> LowRankMetric:
    """Return the low-rank metric of all n points, in the unit of `distances`, from the first `rank` eigenpairs.

    Columns with a fitted weight of 0 are left out; those of sign 1 come first. Its `error` is 0: not yet measured.
    """
    weights = scaling.fit_weights(rank)
    order = weights.sign().argsort(descending=True, stable=True)
    order = order[weights[order] != 0] if bool((weights != 0).any()) else order[:1]
    factor = weights.abs().sqrt() * scaling.largest_distance**0.5
    rows_per_block = max(1, UTILS_CONFIG.max_block_entries // len(scaling.landmarks))
    blocks = []
    for rows in torch.arange(distances.n, device=distances.device).split(rows_per_block):
        columns = distances.submatrix(rows, scaling.landmarks).double() / scaling.largest_distance
        blocks.append((scaling.extend(columns)[:, :rank] * factor)[:, order].to(distances.dtype))
    return LowRankMetric(torch.cat(blocks), torch.where(weights[order] < 0, -1.0, 1.0).to(distances.dtype))


def _measure_error(distances: DistanceSource, metric: LowRankMetric, order: Tensor) -> float:
    """Return the largest |distance in `metric` − exact distance| from points at even steps of `order` to all points.

    It is absolute, in the unit of `distances`. order: (n,) indices. With n ≤ 2048 all pairs are compared, else about 4
    million, or those of 64 points where these are more.
    """
    n = distances.n
    n_rows = max(GEOMETRY_CONFIG.min_error_rows, UTILS_CONFIG.max_block_entries // n)
    rows = order[evenly_spaced_indices(n, n_rows, order.device)]
    largest = 0.0
    for cols in torch.arange(n, device=distances.device).split(max(1, UTILS_CONFIG.max_block_entries // len(rows))):
        approximate = _weighted_squared_distances(metric.points[rows], metric.points[cols], metric.signs)
        largest = max(largest, float((approximate - distances.submatrix(rows, cols)).abs().max()))
    return largest


def _weighted_squared_distances(points_x: Tensor, points_y: Tensor, weights: Tensor) -> Tensor:
    """Return Σ_k weights_k (x_ik − y_jk)², (n, m), by one matrix product. points_x: (n, r), points_y: (m, r)."""
    norms_x, norms_y = points_x.square() @ weights, points_y.square() @ weights
    return torch.addmm(norms_x[:, None] + norms_y, points_x * weights, points_y.mT, alpha=-2.0)


def _rank_advice(scaling: LandmarkScaling, rank: int, tol: float) -> str:
    """Return the text "max_rank=R or " with a rank R > `rank` that reaches `tol` on the fit points, "" if none does.

    R: the smallest rank tried with an error below `tol` by a margin, else the largest tried. tol: a share of the
    largest distance.
    """
    larger = [r for r in _candidate_ranks(scaling.max_rank) if r > rank]
    if not larger:
        return ""
    sufficient = larger[_position_of_sufficient_rank(scaling, larger, GEOMETRY_CONFIG.advice_margin * tol)]
    is_enough = scaling.max_error(scaling.fit_weights(sufficient)) <= tol
    return f"max_rank={sufficient} or " if is_enough else ""
