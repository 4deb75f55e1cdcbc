"""Thresholds of the results package."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ResultsConfig:
    """Limits on the work of plans that are not stored, and the rounding of parameters."""

    # Most entries that `LazyPlan.dense()` computes without force=True: 0.8 GB in float64.
    max_dense_entries: int = 10**8
    # Entries that a pass over all rows computes at a time: 128 MiB in float64.
    block_entries: int = 2**24
    # Relative difference up to which two numbers in `parameters` are equal: a relative eps has the rounding of a mean,
    # which padding changes, also in float32.
    parameter_rounding: float = 1e-5


RESULTS_CONFIG = ResultsConfig()
