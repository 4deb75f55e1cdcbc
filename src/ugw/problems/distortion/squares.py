"""The distortion sum for the loss t², as matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ...geometry.metric import Metric
from .base import Distortion
from .config import DISTORTION_CONFIG


@dataclass(frozen=True, eq=False)
class SquaredDistortion(Distortion):
    """The sum for g(t) = t², exact up to rounding: (Dx∘Dx) p1 ⊕ (Dy∘Dy) p2 − 2 Dx·plan·Dy."""

    dx: Metric
    dy: Metric

    @property
    def rank(self) -> Tensor:
        """3: the two marginal terms and the cross term."""
        return torch.full((1,), 3, device=self.dx.device)

    def apply(self, plan: Tensor) -> Tensor:
        """Compute the sum for a plan (B, n, m). Returns (B, n, m)."""
        cross = triple_product(self.dx, plan, self.dy)
        row = self.dx.apply_squared(plan.sum(2)[:, :, None])
        col = self.dy.apply_squared(plan.sum(1)[:, :, None])
        return torch.add(row + col.mT, cross, alpha=-2.0)

    def apply_to_product_plan(self, p1: Tensor, p2: Tensor) -> Tensor:
        """Compute the sum for the plan p1⊗p2 of unit mass by matrix-vector products alone.

        p1: (B, n), p2: (B, m). Returns (B, n, m).
        """
        p1, p2 = p1[:, :, None], p2[:, :, None]
        row, col = self.dx.apply_squared(p1), self.dy.apply_squared(p2)
        return torch.add(row + col.mT, self.dx.apply(p1) * self.dy.apply(p2).mT, alpha=-2.0)

    def product_mean(self, log_a: Tensor, log_b: Tensor) -> Tensor:
        """Mean of t² under the product plan, 0 where only rounding is left. Returns (B,), float64."""
        return self.product_mean_and_scale(log_a, log_b)[0]

    def product_mean_and_scale(self, log_a: Tensor, log_b: Tensor) -> tuple[Tensor, Tensor]:
        """Mean of t² under the product plan of unit mass, and the sum of the mean squared distances of both spaces.

        log_a: (B, n); log_b: (B, m). Returns (B,) each, float64.
        """
        mean_x, square_x = distance_moments(self.dx, log_a)
        mean_y, square_y = distance_moments(self.dy, log_b)
        squares, mean = square_x + square_y, square_x + square_y - 2.0 * mean_x * mean_y
        return torch.where(mean > DISTORTION_CONFIG.min_relative_mean * squares, mean, 0.0), squares

    def with_metrics(self, dx: Metric, dy: Metric) -> Self:
        """The sum on other metrics."""
        return type(self)(dx, dy)

    def take(self, index: Tensor) -> Self:
        """Return the distortion sum of the batch items `index`."""
        return type(self)(self.dx.take(index), self.dy.take(index))


def distance_moments(metric: Metric, log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Mean distance Σ D w w' and mean squared distance Σ D² w w' under weights w of unit mass.

    log_weights: (B, n), log w. Returns (B,) each, float64.
    """
    w = log_weights.exp()[:, :, None]
    first, second = (
        (w * applied).sum(dim=(1, 2), dtype=torch.float64) for applied in (metric.apply(w), metric.apply_squared(w))
    )
    return first, second


def triple_product(dx: Metric, plan: Tensor, dy: Metric) -> Tensor:
    """Dx · plan · Dy for symmetric distances. plan: (B, n, m). Returns (B, n, m)."""
    return dy.apply(dx.apply(plan).mT).mT
