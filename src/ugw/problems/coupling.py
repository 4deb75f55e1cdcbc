"""What a problem knows of a plan, and the formulas that turn sums over it into terms of the objective."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._batch import take_fields


@dataclass(frozen=True, eq=False)
class Coupling:
    """A plan and what the problem needs to know of it: the state that solvers hand around.

    shape: (B, n, m) of unit mass; local: (B, n, m), Σ (Dx_ii' − Dy_jj')² shape_i'j'; scalars (B,) in float64:
    log_mass; distortion = <local, shape>; kl_a, kl_b, kl_plan against the weights at unit mass; linear = <M, shape>;
    drift: L1 length of the way since the last plan whose local cost was made from that plan alone.
    """

    shape: Any  # a tensor, or a plan that answers to the same questions
    local: Any  # None where only the plan is remembered
    log_mass: Tensor
    distortion: Tensor
    kl_a: Tensor
    kl_b: Tensor
    kl_plan: Tensor
    linear: Tensor
    drift: Tensor

    @property
    def plan(self) -> Tensor:
        """(B, n, m), with its mass."""
        return self.shape * self.log_mass.exp().to(self.shape.dtype)[:, None, None]

    def weighing(self, log_mass: Tensor) -> Coupling:
        """The same shape with a given mass. log_mass: (B,)."""
        return replace(self, log_mass=log_mass)

    def take(self, index: Tensor) -> Coupling:
        """Some items of the batch."""
        return take_fields(self, index)


def mean_log(marginal: Tensor, log_weights: Tensor) -> Tensor:
    """Σ p log a, 0 where p is. marginal, log_weights: (B, n). Returns (B,)."""
    return (marginal * torch.where(marginal > 0, log_weights, 0.0)).sum(1)


def product_kl(kl_sum: Tensor, log_mass: Tensor, log_reference: Tensor) -> Tensor:
    """KL(p⊗q | r⊗r) from unit-mass divergences: m(r)² [e^t (kl_sum + t) − (e^t − 1)], t = log m(p)m(q)/m(r)².

    kl_sum = KL(p/m(p) | r/m(r)) + the same for q. It is eq. (1.3), written so that it keeps its digits near 0.
    """
    t = log_mass - 2.0 * log_reference
    return (2.0 * log_reference).exp() * (t.exp() * (kl_sum + t) - torch.expm1(t))


def lambert(z: Tensor) -> Tensor:
    """Upper real branch of w e^w = z; −1 where z < −1/e. Halley's iteration from a start good at −1/e."""
    z = z.clamp(min=-1.0 / math.e)
    near_branch = -1.0 + (2.0 * (math.e * z + 1.0)).clamp(min=0.0).sqrt()
    w = torch.where(z < 0, near_branch, torch.log1p(z.clamp(min=0.0)))
    for _ in range(20):
        excess = w * w.exp() - z
        slope = w.exp() * (w + 1.0)
        newton = excess / torch.where(slope.abs() > 1e-12, slope, 1.0)
        w = w - torch.where(slope.abs() > 1e-12, newton / (1.0 - 0.5 * newton * (w + 2.0) / (w + 1.0)), 0.0)
    return w
