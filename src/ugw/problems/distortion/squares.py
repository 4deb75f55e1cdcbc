"""The distortion sum for the loss t², as matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ..._utils.pytree import BatchRecord
from ...geometry.metric import Metric
from .base import Distortion
from .config import DISTORTION_CONFIG


@dataclass(frozen=True, eq=False)
class SquaredDistortion(BatchRecord, Distortion):
    """The distortion sum for the loss t², exact up to rounding: (Dx∘Dx) p1 ⊕ (Dy∘Dy) p2 − 2 Dx·plan·Dy."""

    dx: Metric
    dy: Metric

    @property
    def rank(self) -> Tensor:
        """Number of terms of the factorized loss, 3 for (u − v)² = u² + v² − 2 u v, (1,)."""
        return torch.full((1,), 3, device=self.dx.device)

    def apply(self, plan: Tensor) -> Tensor:
        """Return the distortion sum Σ_i'j' (Dx_ii' − Dy_jj')² plan_i'j' for all i, j, (B, n, m). plan: (B, n, m)."""
        cross = triple_product(self.dx, plan, self.dy)
        row = self.dx.apply_squared(plan.sum(2)[:, :, None])
        col = self.dy.apply_squared(plan.sum(1)[:, :, None])
        return torch.add(row + col.mT, cross, alpha=-2.0)

    def apply_to_product_plan(self, p1: Tensor, p2: Tensor) -> Tensor:
        """Return the distortion sum (B, n, m) of the plan p1⊗p2, p1 (B, n) and p2 (B, m) of mass 1, in O(n² + m²)."""
        p1, p2 = p1[:, :, None], p2[:, :, None]
        row, col = self.dx.apply_squared(p1), self.dy.apply_squared(p2)
        return torch.add(row + col.mT, self.dx.apply(p1) * self.dy.apply(p2).mT, alpha=-2.0)

    def product_mean(self, log_a: Tensor, log_b: Tensor) -> Tensor:
        """Return Σ (Dx_ii' − Dy_jj')² p_ij p_i'j', (B,), float64, p = a⊗b, 0 where it is rounding error alone.

        log_a: (B, n), log_b: (B, m), logarithms of the weights a and b of mass 1.
        """
        return self.product_mean_and_scale(log_a, log_b)[0]

    def product_mean_and_scale(self, log_a: Tensor, log_b: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean distortion Σ (Dx_ii' − Dy_jj')² p_ij p_i'j', p = a⊗b, and Σ Dx² a a' + Σ Dy² b b', (B,) each.

        The second is an upper bound of the first; both are float64. The mean is 0 where it is rounding error alone.
        log_a: (B, n), log_b: (B, m), logarithms of the weights a and b of mass 1.
        """
        mean_x, square_x = distance_moments(self.dx, log_a)
        mean_y, square_y = distance_moments(self.dy, log_b)
        squares, mean = square_x + square_y, square_x + square_y - 2.0 * mean_x * mean_y
        return torch.where(mean > DISTORTION_CONFIG.min_relative_mean * squares, mean, 0.0), squares

    def with_metrics(self, dx: Metric, dy: Metric) -> Self:
        """Return the distortion sum for other metrics: the same class and loss t²."""
        return type(self)(dx, dy)


def distance_moments(metric: Metric, log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return Σ_ij D_ij w_i w_j and Σ_ij D_ij² w_i w_j, (B,) each, float64. log_weights: (B, n), log w."""
    w = log_weights.exp()[:, :, None]
    first, second = (
        (w * applied).sum(dim=(1, 2), dtype=torch.float64) for applied in (metric.apply(w), metric.apply_squared(w))
    )
    return first, second


def triple_product(dx: Metric, plan: Tensor, dy: Metric) -> Tensor:
    """Return Dx · plan · Dy, (B, n, m), for symmetric distance matrices Dx and Dy. plan: (B, n, m)."""
    return dy.apply(dx.apply(plan).mT).mT
