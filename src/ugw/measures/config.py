"""Numeric limits of the measures package."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MeasuresConfig:
    """Limits of the checks of loss functions that users pass."""

    # Distances in [0, longest] at which a loss function is checked; a multiple of twice `n_check_columns`.
    n_check_distances: int = 2000
    # Columns of the 2-D tensor with which the check calls a loss function, to find out whether it is elementwise.
    n_check_columns: int = 40
    # Two values of a loss at one distance count as equal up to this many machine epsilons relative to the value:
    # vectorized functions may round differently for tensors of another shape.
    elementwise_rounding_units: float = 1e3
    # Two values of a loss count as equal up to this absolute difference, far below any distance that matters.
    elementwise_atol: float = 1e-30


MEASURES_CONFIG = MeasuresConfig()
