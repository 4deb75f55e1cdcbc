"""Thresholds and defaults of the estimators."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EstimatorConfig:
    """Thresholds and defaults of the estimators."""

    # eps="auto" for KL penalties and scaled distances, in their units: sharp enough to transfer labels, and still fast.
    default_eps: float = 5e-3
    # Fraction of the positives hidden among the unlabeled points to choose rho and eps.
    hidden_fraction: float = 0.2
    # Predicted positives from which on their overlap with the transported positives is tested; fewer are too noisy.
    min_positives_for_warning: int = 5
    # Scores with a smaller relative difference are ties. Relative to the score itself and not to the largest one,
    # because entropic plans rank points by scores of any size.
    tie_tolerance: float = 1e-9
    # The same in machine epsilons of the plan's dtype; the larger of both tolerances counts.
    tie_rounding_units: float = 8.0


ESTIMATOR_CONFIG = EstimatorConfig()
