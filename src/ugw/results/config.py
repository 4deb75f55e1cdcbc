"""Thresholds of the results package."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ResultsConfig:
    """Limits on the work of plans that are not stored."""

    # Most entries that `LazyPlan.dense()` computes without force=True: 0.8 GB in float64.
    max_dense_entries: int = 10**8
    # Entries that a pass over all rows computes at a time: 128 MiB in float64.
    block_entries: int = 2**24


RESULTS_CONFIG = ResultsConfig()
