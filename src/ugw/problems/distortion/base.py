"""The interface of distortion sums, and the function of two distances whose values they add up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...geometry.metric import Metric
from ..config import PROBLEM_CONFIG


@dataclass(frozen=True, eq=False)
class StoredKernel:
    """The matrices of the distortion sum of one item of n × m points, rows padded with zeros for the compiled library.

    left: φ_r(Dx) for all terms, (rank·n, padded n), and right: signs_r φ_r(Dy), (rank·padded m, padded m); for a sum
    term by term the rank is 0, left has the values g(|Dx_ii' − Dy_jj'|), (n·m, n·padded m), and right is None.
    right_rows: the transposes of the terms of `right` side by side, (padded m, rank·padded m), or None.
    """

    n: int
    m: int
    rank: int
    left: Tensor
    right: Tensor | None
    right_rows: Tensor | None = None


class Distortion(ABC):
    """The distortion sum Σ_i'j' g(|Dx_ii' − Dy_jj'|) plan_i'j' for all i, j: a linear map of plans (B, n, m).

    g(t) is the loss λ(t), or the kernel exp(−λ(t)/R) of a conic problem, R = rho1 + rho2. B is the batch size of the
    plans. Subclasses differ in how they compute the sum, and implement the abstract methods; those that are exact up to
    rounding inherit `error` and `tolerance`.
    """

    # Is any of `infinite_items` True? No property, which could not be read while a CUDA graph is captured.
    may_be_infinite: bool = False
    # Has it a method `update`, which computes the sum from that of the previous plan? See `IncrementalDistortion`.
    is_incremental: bool = False

    @property
    @abstractmethod
    def rank(self) -> Tensor:
        """Number of terms φ_r(Dx)·plan·φ_r(Dy) in one sum, (B,) or (1,); 0 if g is not factorized."""

    @property
    def error(self) -> Tensor:
        """Bound on the absolute error of approximate values g(|Dx_ii' − Dy_jj'|), (B,) or (1,); 0 if only rounded."""
        return torch.zeros(1, dtype=torch.float64, device=self.rank.device)

    @property
    def tolerance(self) -> Tensor:
        """The largest `error` that was asked for, (B,) or (1,); by default `error` itself, so that it is met."""
        return self.error

    @property
    def infinite_items(self) -> Tensor:
        """Whether g(|Dx_ii' − Dy_jj'|) may be infinite in each item, (B,) or (1,) bool, on the CPU.

        Tested on a grid of the range of differences, so that True does not say that two points have such distances.
        """
        return torch.zeros(1, dtype=torch.bool)

    @abstractmethod
    def apply(self, plan: Tensor) -> Tensor:
        """Return Σ_i'j' g(|Dx_ii' − Dy_jj'|) plan_i'j' for all i, j, (B, n, m), g: loss or kernel. plan: (B, n, m)."""

    def product_mean(self, log_a: Tensor, log_b: Tensor) -> Tensor:
        """Return the mean Σ g(|Dx_ii' − Dy_jj'|) p_ij p_i'j', (B,), float64, for the product plan p = a⊗b.

        g: loss or conic kernel; log_a: (B, n), log_b: (B, m), logarithms of the weights a and b of mass 1.
        """
        product = (log_a[:, :, None] + log_b[:, None, :]).exp()
        return (self.apply(product) * product).sum(dim=(1, 2), dtype=torch.float64)

    def stored_kernels(self) -> list[StoredKernel] | None:
        """Return the values of g or its low-rank factors as matrices for the C++ library, one per plan or one for all.

        g: loss or conic kernel. None if they are not stored, or not in float64 on a CPU.
        """
        return None

    @abstractmethod
    def with_metrics(self, dx: Metric, dy: Metric) -> Distortion:
        """Return the distortion sum of the same loss for other metrics, whose distances are in the range of these."""

    def truncate(self, share: float) -> Distortion:
        """Return the distortion sum with the leading terms of its factors only, or the sum itself if it has no factors.

        share: the last terms that have together at most this share of the sum of squared coefficients are left out.
        """
        return self

    @abstractmethod
    def take(self, index: Tensor) -> Distortion:
        """Return the distortion sum for the plans of the batch items `index`, (k,) integers or (B,) bool."""


@dataclass(frozen=True, eq=False)
class PairLoss:
    """The function g(t) of the difference t of two distances: λ(t), or the conic kernel exp(−λ(t)/rho_total).

    loss: λ, elementwise; rho_total: (B,) or (1,), rho1 + rho2 of the conic distance, None for λ itself.
    """

    loss: Callable[[Tensor], Tensor]
    rho_total: Tensor | None = None

    def __call__(self, t: Tensor) -> Tensor:
        """Return λ(t), or exp(−λ(t)/rho_total) if that is given, elementwise. t: ≥ 0, (B, ...) or (1, ...)."""
        if self.rho_total is None:
            return self.loss(t)
        return (-self.loss(t) / self.rho_total.to(t.dtype).view(-1, *[1] * (t.ndim - 1))).exp()

    def is_finite_up_to(self, longest: float) -> bool:
        """Return whether the loss is finite on a grid of differences from 0 to `longest`; True for the conic kernel."""
        if self.rho_total is not None:
            return True
        differences = torch.linspace(0.0, longest, PROBLEM_CONFIG.n_loss_samples, dtype=torch.float64)
        return bool(torch.isfinite(self.loss(differences)).all())

    def take(self, index: Tensor) -> PairLoss:
        """Return the functions g of the batch items `index`, (k,) integers or (B,) bool."""
        if self.rho_total is None or len(self.rho_total) == 1:
            return self
        return replace(self, rho_total=self.rho_total[index])


def distance_range(metric: Metric) -> tuple[Tensor, Tensor]:
    """Return min(0, smallest entry) and max(0, largest entry) of each matrix D, (B,) or (1,) float64 on the CPU.

    The range includes 0, because padded points have distance 0.
    """
    low, high = (end.detach().double().reshape(-1).cpu() for end in metric.extremes())
    return low.clamp(max=0.0), high.clamp(min=0.0)
