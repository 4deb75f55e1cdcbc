"""Low-rank metrics, eq. (6.1): signed sums of squared differences of r coordinates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from .._utils.config import UTILS_CONFIG


@dataclass(frozen=True, eq=False)
class WeightMoments:
    """Moments of a vector v over the points φ_j, in float64, from which Σ_j D_ij² v_j follows at any point i.

    h_j = Σ_k signs_k φ_jk² is the squared norm of a point. All have the leading dimensions of v.
    """

    mass: Tensor  # Σ_j v_j, (...)
    norm_sum: Tensor  # Σ_j v_j h_j, (...)
    squared_norm_sum: Tensor  # Σ_j v_j h_j², (...)
    point_sum: Tensor  # Σ_j v_j φ_j, (..., r)
    norm_point_sum: Tensor  # Σ_j v_j h_j φ_j, (..., r)
    outer_sum: Tensor  # Σ_j v_j φ_j φ_jᵀ, (..., r, r)


@dataclass(frozen=True, eq=False)
class LowRankMetric:
    """The metric D_ij = Σ_k signs_k (φ_ik − φ_jk)² of points φ, (n, r) or (B, n, r); the matrix is not stored.

    A product with a vector takes O(n·r) time. With all signs 1 these are squared Euclidean distances, and every
    conditionally negative distance has this form; with signs of both kinds every symmetric matrix with a zero diagonal
    has it. error: the largest measured error of an approximation of other distances, 0 if D is exact.

    >>> LowRankMetric(torch.tensor([[0.0], [2.0]]), torch.ones(1)).apply(torch.tensor([[1.0], [3.0]])).flatten()
    tensor([12.,  4.])
    """

    points: Tensor
    signs: Tensor  # (r,), ±1
    error: float = 0.0

    @property
    def shape(self) -> torch.Size:
        """The shape (n, n), or (B, n, n) if each batch item has its own points."""
        return torch.Size((*self.points.shape[:-1], self.n))

    @property
    def n(self) -> int:
        """The number of points."""
        return self.points.shape[-2]

    @property
    def batched(self) -> bool:
        """Whether each batch item has its own points."""
        return self.points.ndim == 3

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the points, float32 or float64."""
        return self.points.dtype

    @property
    def device(self) -> torch.device:
        """The device of the points."""
        return self.points.device

    @property
    def squared_norms(self) -> Tensor:
        """The signed squared norms h_i = Σ_k signs_k φ_ik², (..., n)."""
        # The cached value has no autograd graph: a graph would be freed by the first backward pass, and a value cached
        # under no_grad would stop gradients.
        needs_graph = self.points.requires_grad and torch.is_grad_enabled()
        return (self.points.square() * self.signs).sum(-1) if needs_graph else self._detached_squared_norms

    @cached_property
    def _detached_squared_norms(self) -> Tensor:
        """The values of `squared_norms` without an autograd graph, cached."""
        return (self.points.detach().square() * self.signs).sum(-1)

    def apply(self, v: Tensor) -> Tensor:
        """Return the product D v with the matrix D of distances, (..., n, k). v: (..., n, k)."""
        left, right = self.factors()
        return left @ (right.mT @ v)

    def apply_squared(self, v: Tensor) -> Tensor:
        """Return the product (D∘D) v of the entrywise squared matrix, (..., n, k). v: (..., n, k)."""
        return torch.stack([self.apply_squared_to_moments(self.moments(column)) for column in v.unbind(-1)], dim=-1).to(
            v.dtype
        )

    def moments(self, v: Tensor) -> WeightMoments:
        """Return Σ_j v_j times 1, h_j, h_j², φ_j, h_j φ_j and φ_j φ_jᵀ over the points φ_j, for v (..., n), in float64.

        h_j: signed squared norm; `apply_squared_to_moments` of a metric of any points in R^r computes Σ_j D_ij² v_j.
        """
        v, h, points = v.double(), self.squared_norms.double(), self.points.double()
        weighted = v[..., None] * points
        return WeightMoments(
            mass=v.sum(-1),
            norm_sum=(v * h).sum(-1),
            squared_norm_sum=(v * h.square()).sum(-1),
            point_sum=weighted.sum(-2),
            norm_point_sum=(h[..., None] * weighted).sum(-2),
            outer_sum=weighted.mT @ points,
        )

    def apply_squared_to_moments(self, moments: WeightMoments) -> Tensor:
        """Return Σ_j D_ij² v_j at the points i of this metric, (..., n), float64: eq. (6.3).

        moments: those of v, (..., n'), over the points j of any metric with the same signs; D_ij: distance of i and j.
        """
        h, points, signs = self.squared_norms.double(), self.points.double(), self.signs.double()
        signed = signs * points
        linear = h[..., None] * moments.point_sum[..., None, :] + moments.norm_point_sum[..., None, :]
        cross = (signed * (signed @ moments.outer_sum - linear)).sum(-1)
        scalars = (moments.mass, moments.norm_sum, moments.squared_norm_sum)
        mass, norm_sum, squared_norm_sum = (moment[..., None] for moment in scalars)
        return h.square() * mass + 2.0 * h * norm_sum + squared_norm_sum + 4.0 * cross

    def columns(self, index: Tensor) -> Tensor:
        """Return the distances D[:, index], (..., n, k). index: (k,) the same for all items, or (B, k)."""
        return _signed_squared_distances(self.points, self.subset(index).points, self.signs)

    def submatrix(self, rows: Tensor, cols: Tensor) -> Tensor:
        """Return the distances D[rows][:, cols], (..., k, l). rows: (k,), cols: (l,), indices."""
        return _signed_squared_distances(self.points[..., rows, :], self.points[..., cols, :], self.signs)

    def factors(self) -> tuple[Tensor, Tensor]:
        """Return (left, right), both (..., n, r + 2), with D = left rightᵀ."""
        h, one = self.squared_norms[..., None], torch.ones_like(self.squared_norms)[..., None]
        return torch.cat([h, one, self.points], dim=-1), torch.cat([one, h, -2.0 * self.signs * self.points], dim=-1)

    def dense(self) -> Tensor:
        """Return the matrix of all distances, (n, n) or (B, n, n)."""
        return _signed_squared_distances(self.points, self.points, self.signs)

    def extremes(self) -> tuple[Tensor, Tensor]:
        """Return the smallest and the largest distance, diagonal included, () or (B,) each, computed block by block."""
        rows_per_block = max(1, UTILS_CONFIG.max_block_entries // max(1, self.points[..., 0].numel()))
        lows, highs = [], []
        for rows in self.points.split(rows_per_block, dim=-2):
            block = _signed_squared_distances(rows, self.points, self.signs)
            lows.append(block.amin((-2, -1)))
            highs.append(block.amax((-2, -1)))
        return torch.stack(lows).amin(0), torch.stack(highs).amax(0)

    def center(self, weights: Tensor) -> LowRankMetric:
        """Return an equal metric whose points have weighted mean 0, where products round least. weights: (..., n)."""
        unit_weights = (weights / weights.sum(-1, keepdim=True)).double()
        center = (unit_weights[..., None] * self.points.double()).sum(-2, keepdim=True)
        return replace(self, points=(self.points.double() - center).to(self.dtype))

    def subset(self, index: Tensor) -> LowRankMetric:
        """Return the metric (..., k, k) of the points `index`, (k,) the same for all items, or (B, k)."""
        if index.ndim == 2 and self.batched:
            return replace(self, points=torch.take_along_dim(self.points, index[:, :, None], dim=1))
        return replace(self, points=self.points[..., index, :])

    def take(self, index: Tensor) -> LowRankMetric:
        """Return the metrics of the batch items `index`, (k,); a metric shared by all items is returned unchanged."""
        return replace(self, points=self.points[index]) if self.batched else self

    def item(self, i: int, n: int) -> LowRankMetric:
        """Return the metric (n, n) of the first n points of batch item i, or of the one metric that all items share."""
        return replace(self, points=(self.points[i] if self.batched else self.points)[:n])

    def scale(self, factor: Tensor | float) -> LowRankMetric:
        """Return the metric with all distances multiplied by a factor ≥ 0, () or (B,), `error` by the largest."""
        factor = torch.as_tensor(factor, dtype=self.dtype, device=self.device)
        return replace(
            self, points=self.points * factor.sqrt()[..., None, None], error=self.error * float(factor.max())
        )

    def to(self, target: torch.device | torch.dtype) -> LowRankMetric:
        """Return the metric on another device or in another dtype."""
        return replace(self, points=self.points.to(target), signs=self.signs.to(target))

    def detach(self) -> LowRankMetric:
        """Return the metric without its autograd graph."""
        return replace(self, points=self.points.detach())


def _signed_squared_distances(points_x: Tensor, points_y: Tensor, signs: Tensor) -> Tensor:
    """Return Σ_k signs_k (x_ik − y_jk)², (..., n, m). points_x: (..., n, r), points_y: (..., m, r)."""
    # Differences of coordinates keep the digits of small distances, which a matrix product would lose.
    total = None
    for k, sign in enumerate(signs.tolist()):
        square = (points_x[..., :, None, k] - points_y[..., None, :, k]).square()
        total = sign * square if total is None else torch.add(total, square, alpha=sign)
    if total is None:
        return points_x.new_zeros(*points_x.shape[:-1], points_y.shape[-2])
    return total
