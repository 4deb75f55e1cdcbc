"""Divergences of a plan of any mass, and the total mass that minimizes the objective of UGW, in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from .._utils.pytree import BatchRecord
from .config import PROBLEM_CONFIG


@dataclass(frozen=True, eq=False)
class PenaltyWeights(BatchRecord):
    """The factors of the three divergences in an objective: KL of the first marginal, the second one and the plan.

    each: (B, 3), rho1, rho2 and eps, 0 for a hard side; total: (B,), their sum, 1 where it would be 0, because hard
    sides fix the mass there; log_references: (B, 3), log masses of a, b and a⊗b, with which KL compares.
    """

    each: Tensor
    total: Tensor
    log_references: Tensor

    @classmethod
    def from_problem(cls, problem: Any) -> PenaltyWeights:
        """Return the weights of a problem: rho1, rho2 (0 if inf), eps, their sum (1 if 0), log masses of a, b, a⊗b."""
        each = torch.stack([problem.div_a.penalty, problem.div_b.penalty, problem.eps], dim=1)
        total, (log_ma, log_mb) = each.sum(1), (problem.log_mass_a, problem.log_mass_b)
        log_references = torch.stack([log_ma, log_mb, log_ma + log_mb], dim=1)
        return cls(each, total.masked_fill(total <= 0, 1.0), log_references)

    def weighted_sum(self, kls: Tensor) -> Tensor:
        """Return Σ_k each_k (kls_k − log_references_k), (B,), for the kls (B, 3) of a plan of mass 1.

        each: (rho1, rho2, eps), 0 for inf; log_references: log masses of a, b and a⊗b.
        """
        return (self.each * (kls - self.log_references)).sum(1)


@dataclass(frozen=True, eq=False)
class MassRule(BatchRecord):
    """The total mass m that minimizes F(m·p, m·p) for a plan p of mass 1, eq. (3.3): with R = rho1 + rho2 + eps,

        F = m² (B − R + 2 R log m) + m·L + C   ⟹   log m = −B/2R + W(−L/4R e^{B/2R}),  L = alpha <M, p>.

    Where the Lambert function W has no real value, the linear cost exceeds the gain of any mass: no mass is optimal,
    and the branch point W = −1 is used while a solver looks for a better plan. A hard side fixes the mass.
    weights: rho1, rho2, eps; alpha: (B,), factor of the linear cost, None if there is none; is_hard_a, is_hard_b: (B,)
    bool; log_mass_a, log_mass_b: (B,), log masses of the weights.
    """

    weights: PenaltyWeights
    alpha: Tensor | None
    is_hard_a: Tensor
    is_hard_b: Tensor
    log_mass_a: Tensor
    log_mass_b: Tensor

    @cached_property
    def min_log_mass(self) -> Tensor:
        """The log mass (B,) below which a plan has collapsed: that of sqrt(m(a) m(b)) minus 30."""
        return min_log_mass(self.log_mass_a, self.log_mass_b)

    def optimal_log_mass(self, distortion: Tensor, kls: Tensor, linear: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log of the mass m that minimizes UGW's F(m·p, m·p), and of the mass reported to users, (B,) each.

        Both are equal, except where the linear cost is so large that no mass is optimal: there the first is that of the
        branch point of Lambert W, and the second next to no mass. A hard side fixes m to its mass. For a plan p of
        mass 1, distortion: (B,), Σ λ p_ij p_i'j'; kls: (B, 3), KL(p1 | a), KL(p2 | b) and KL(p | a⊗b) with a, b of mass
        1; linear: (B,), <M, p>.
        """
        log_mass_without_linear = (
            torch.add(self.weights.weighted_sum(kls), distortion, alpha=0.5).neg() / self.weights.total
        )
        log_mass = log_mass_without_linear
        if self.alpha is not None:
            inverse_mass = (-log_mass_without_linear).clamp(max=PROBLEM_CONFIG.max_log).exp()
            lambert_argument = -self.alpha * linear / (4.0 * self.weights.total) * inverse_mass
            log_mass = log_mass + lambert(lambert_argument)
        log_mass = torch.where(self.is_hard_b, self.log_mass_b, log_mass)
        log_mass = torch.where(self.is_hard_a, self.log_mass_a, log_mass)
        if self.alpha is None:
            return log_mass, log_mass
        has_no_optimum = ~(self.is_hard_a | self.is_hard_b) & (lambert_argument < -1.0 / math.e)
        return log_mass, torch.where(has_no_optimum, self.min_log_mass + PROBLEM_CONFIG.no_mass_log, log_mass)

    def linear_weight(self, log_mass: Tensor) -> Tensor:
        """Return alpha/2m, (B,), the factor of the linear cost at mass m = exp(max(log_mass, min_log_mass))."""
        return 0.5 * cast(Tensor, self.alpha) * (-torch.maximum(log_mass, self.min_log_mass)).exp()


def min_log_mass(log_mass_a: Tensor, log_mass_b: Tensor) -> Tensor:
    """Return the log mass (B,) below which a plan has collapsed: that of sqrt(m(a) m(b)) minus 30.

    log_mass_a, log_mass_b: (B,), log masses of the weights.
    """
    return 0.5 * (log_mass_a + log_mass_b) + PROBLEM_CONFIG.min_relative_log_mass


def shift_potentials(
    linear: tuple[Tensor, Tensor],
    constants: tuple[Tensor, Tensor],
    constant_sum: Tensor,
    *,
    is_hard: tuple[Tensor, Tensor],
    factor: Tensor,
    eps: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the potentials factor·(linear + constant), (B, n) and (B, m), of both sides; NaN for items with eps = 0.

    linear: of the last linear problem; constants: (B,) each, used for a side that is not hard (finite rho); a hard side
    gets the rest of constant_sum, (B,), or half of it if both are hard; is_hard: (B,) bool each; factor, eps: (B,).
    """
    (constant_f, constant_g), (is_hard_a, is_hard_b) = constants, is_hard
    of_hard_a = torch.where(is_hard_b, 0.5 * constant_sum, constant_sum - constant_g)
    constant_f = torch.where(is_hard_a, of_hard_a, constant_f)
    factor = factor.masked_fill(eps <= 0, torch.nan)[:, None]
    f, g = (
        (factor * (u.double() + c[:, None])).to(u.dtype)
        for u, c in zip(linear, (constant_f, constant_sum - constant_f), strict=True)
    )
    return f, g


def mean_log(marginal: Tensor, log_weights: Tensor) -> Tensor:
    """Return Σ_i p_i log a_i, (B,), with 0 log 0 = 0. marginal: (B, n), p; log_weights: (B, n), log a."""
    return (marginal * log_weights.masked_fill(marginal <= 0, 0.0)).sum(1)


def product_kl(kl_sum: Tensor, log_mass: Tensor, log_reference: Tensor) -> Tensor:
    """Return KL(p⊗q | r⊗r), eq. (1.3), for measures p, q and r, elementwise in the arguments, which broadcast.

    kl_sum: KL(p/m(p) | r/m(r)) + KL(q/m(q) | r/m(r)); log_mass: log m(p)m(q); log_reference: log m(r). Computed as
    m(r)² [e^t (kl_sum + t) − (e^t − 1)] with t = log m(p)m(q)/m(r)², which keeps the digits near 0.
    """
    twice = 2.0 * log_reference
    t = log_mass - twice
    return twice.exp() * (t.exp() * (kl_sum + t) - torch.expm1(t))


def scaled_kl(unit_kl: Tensor, log_mass: Tensor, log_reference: Tensor) -> Tensor:
    """Return KL(p | r) = m(r) [e^t (unit_kl + t) − (e^t − 1)], t = log m(p)/m(r), elementwise in the arguments.

    unit_kl: KL(p/m(p) | r/m(r)); log_mass: log m(p); log_reference: log m(r).
    """
    t = log_mass - log_reference
    return log_reference.exp() * (t.exp() * (unit_kl + t) - torch.expm1(t))


def lambert(z: Tensor) -> Tensor:
    """Return the Lambert function W(z), the solution w ≥ −1 of w e^w = z, elementwise; −1 where z < −1/e."""
    z = z.clamp(min=-1.0 / math.e)
    near_branch = -1.0 + (2.0 * (math.e * z + 1.0)).clamp(min=0.0).sqrt()
    w = torch.where(z < 0, near_branch, torch.log1p(z.clamp(min=0.0)))
    for _ in range(PROBLEM_CONFIG.lambert_iterations):
        excess = w * w.exp() - z
        slope = w.exp() * (w + 1.0)
        is_regular = slope.abs() > PROBLEM_CONFIG.min_lambert_slope
        newton = excess / torch.where(is_regular, slope, 1.0)
        w = w - torch.where(is_regular, newton / (1.0 - 0.5 * newton * (w + 2.0) / (w + 1.0)), 0.0)
    return w
