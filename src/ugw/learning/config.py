"""Thresholds of the functions with gradients, of debiased values and of barycenters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LearningConfig:
    """Tolerances of gradients, debiased values and barycenters."""

    # Relative eps of the log-sum-exp that stands for a minimum at eps = 0: equal to it up to rounding.
    softmin_eps_share: float = 1e-12
    # Relative residual at which conjugate gradients stop: rounding of float64 sums.
    max_cg_residual: float = 1e-12
    # Most products of conjugate gradients; beyond, the system is too ill-conditioned.
    max_cg_products: int = 5000
    # Relative residual above which a gradient of a plan is reported as inexact.
    max_trusted_residual: float = 1e-6
    # A debiased value is negative if below minus this share of the value of the product plan: above rounding errors.
    negative_share: float = 1e-6
    # Majorization steps between two solves for the plans of a barycenter: few, because the plans change too.
    n_majorization_steps: int = 5
    # Perturbation of a sampled start of a barycenter, as a share of its mean distance: coinciding points would never
    # separate.
    start_jitter: float = 1e-2


LEARNING_CONFIG = LearningConfig()
