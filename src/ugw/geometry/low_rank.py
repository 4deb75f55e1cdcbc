"""Low-rank metrics, eq. (6.1): squared distances of points in some R^r, whatever they stand for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from .._utils.config import UTILS_CONFIG


@dataclass(frozen=True, eq=False)
class WeightMoments:
    """What Σ_j D_ij² v_j needs to know of v at any point i: moments of v, float64, (..., ·) each.

    With h = Σ_k s_k φ_k²: total = Σ v, first = Σ v h, second = Σ v h², mean = Σ v φ, tilt = Σ v h φ, spread = Σ v φφᵀ.
    """

    total: Tensor
    first: Tensor
    second: Tensor
    mean: Tensor
    tilt: Tensor
    spread: Tensor


@dataclass(frozen=True, eq=False)
class LowRankMetric:
    """D_ij = Σ_k signs_k (φ_ik − φ_jk)², φ = `points` (n, r) or (B, n, r): no matrix is stored.

    Products cost O(n·r) a column. With signs 1 these are squared Euclidean distances; every conditionally negative
    distance has such points, and with signs of both kinds every symmetric matrix with a zero diagonal. `error`: the
    largest error seen where D stands for other distances, 0 where it is exact.

    >>> LowRankMetric(torch.tensor([[0.0], [2.0]]), torch.ones(1)).apply(torch.tensor([[1.0], [3.0]])).flatten()
    tensor([12.,  4.])
    """

    points: Tensor
    signs: Tensor  # (r,), ±1
    error: float = 0.0

    @property
    def shape(self) -> torch.Size:
        """(n, n) or (B, n, n)."""
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
        """float32 or float64."""
        return self.points.dtype

    @property
    def device(self) -> torch.device:
        """Where the points are."""
        return self.points.device

    @property
    def squared_norms(self) -> Tensor:
        """h_i = Σ_k signs_k φ_ik², (..., n)."""
        # What is kept has no graph: made under no_grad it would stop gradients, and made outside be spent by the first.
        graph = self.points.requires_grad and torch.is_grad_enabled()
        return (self.points.square() * self.signs).sum(-1) if graph else self._squared_norms

    @cached_property
    def _squared_norms(self) -> Tensor:
        return (self.points.detach().square() * self.signs).sum(-1)

    def apply(self, v: Tensor) -> Tensor:
        """D v. v: (..., n, k). Returns (..., n, k)."""
        left, right = self.factors()
        return left @ (right.mT @ v)

    def apply_squared(self, v: Tensor) -> Tensor:
        """(D∘D) v, with entries squared. v: (..., n, k). Returns (..., n, k)."""
        return torch.stack([self.apply_squared_to_moments(self.moments(column)) for column in v.unbind(-1)], dim=-1).to(
            v.dtype
        )

    def moments(self, v: Tensor) -> WeightMoments:
        """What `squares` needs to know of v, (..., n), at these points or at others in the same R^r."""
        v, h, points = v.double(), self.squared_norms.double(), self.points.double()
        weighted = v[..., None] * points
        return WeightMoments(
            total=v.sum(-1),
            first=(v * h).sum(-1),
            second=(v * h.square()).sum(-1),
            mean=weighted.sum(-2),
            tilt=(h[..., None] * weighted).sum(-2),
            spread=weighted.mT @ points,
        )

    def apply_squared_to_moments(self, known: WeightMoments) -> Tensor:
        """Σ_j D_ij² v_j, eq. (6.3), for the v that was gathered, in float64. Returns (..., n)."""
        h, points, signs = self.squared_norms.double(), self.points.double(), self.signs.double()
        signed = signs * points
        tilted = h[..., None] * known.mean[..., None, :] + known.tilt[..., None, :]
        across = (signed * (signed @ known.spread - tilted)).sum(-1)
        total, first, second = (part[..., None] for part in (known.total, known.first, known.second))
        return h.square() * total + 2.0 * h * first + second + 4.0 * across

    def columns(self, index: Tensor) -> Tensor:
        """D[:, index]. index: (k,) or (B, k). Returns (..., n, k)."""
        points = self.points
        if index.ndim == 2 and self.batched:
            chosen = torch.take_along_dim(points, index[:, :, None], dim=1)
        else:
            chosen = points[..., index, :]
        return _between(points, chosen, self.signs)

    def submatrix(self, rows: Tensor, cols: Tensor) -> Tensor:
        """D[rows][:, cols]. rows: (k,), cols: (l,). Returns (..., k, l)."""
        return _between(self.points[..., rows, :], self.points[..., cols, :], self.signs)

    def factors(self) -> tuple[Tensor, Tensor]:
        """(left, right) with D = left rightᵀ, both (..., n, r + 2)."""
        h, one = self.squared_norms[..., None], torch.ones_like(self.squared_norms)[..., None]
        return torch.cat([h, one, self.points], dim=-1), torch.cat([one, h, -2.0 * self.signs * self.points], dim=-1)

    def dense(self) -> Tensor:
        """D itself, (n, n) or (B, n, n)."""
        return _between(self.points, self.points, self.signs)

    def extremes(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest entry, () or (B,) each, block by block."""
        per_block = max(1, UTILS_CONFIG.max_block_entries // max(1, self.points[..., 0].numel()))
        lows, highs = [], []
        for some in self.points.split(per_block, dim=-2):
            block = _between(some, self.points, self.signs)
            lows.append(block.amin((-2, -1)))
            highs.append(block.amax((-2, -1)))
        return torch.stack(lows).amin(0), torch.stack(highs).amax(0)

    def center(self, weights: Tensor) -> LowRankMetric:
        """The same distances, the weighted mean of the points at 0, where products round least. weights: (..., n)."""
        law = (weights / weights.sum(-1, keepdim=True)).double()
        center = (law[..., None] * self.points.double()).sum(-2, keepdim=True)
        return replace(self, points=(self.points.double() - center).to(self.dtype))

    def subset(self, index: Tensor) -> LowRankMetric:
        """The metric on some of the points. index: (k,), or (B, k) with points of their own for each item."""
        if index.ndim == 2 and self.batched:
            return replace(self, points=torch.take_along_dim(self.points, index[:, :, None], dim=1))
        return replace(self, points=self.points[..., index, :])

    def take(self, index: Tensor) -> LowRankMetric:
        """The metrics of some batch items; a shared metric is itself for any items."""
        return replace(self, points=self.points[index]) if self.batched else self

    def item(self, i: int, n: int) -> LowRankMetric:
        """The metric of batch item i on its first n points."""
        return replace(self, points=(self.points[i] if self.batched else self.points)[:n])

    def scale(self, factor: Tensor | float) -> LowRankMetric:
        """D times a factor ≥ 0. factor: () or (B,)."""
        factor = torch.as_tensor(factor, dtype=self.dtype, device=self.device)
        return replace(
            self, points=self.points * factor.sqrt()[..., None, None], error=self.error * float(factor.max())
        )

    def to(self, target: torch.device | torch.dtype) -> LowRankMetric:
        """The same points on another device or in another dtype."""
        return replace(self, points=self.points.to(target), signs=self.signs.to(target))

    def detach(self) -> LowRankMetric:
        """The same metric without its autograd graph."""
        return replace(self, points=self.points.detach())


def _between(points: Tensor, others: Tensor, signs: Tensor) -> Tensor:
    """Σ_k signs_k (φ_ik − ψ_jk)², by differences, which keep the digits of small distances. Returns (..., n, m)."""
    total = None
    for k, sign in enumerate(signs.tolist()):
        square = (points[..., :, None, k] - others[..., None, :, k]).square()
        total = sign * square if total is None else torch.add(total, square, alpha=sign)
    if total is None:
        return points.new_zeros(*points.shape[:-1], others.shape[-2])
    return total
