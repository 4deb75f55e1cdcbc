"""Limits of the command line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MatchConfig:
    """Limits of `ugw match`."""

    # Largest entries of each row in plan.npz if the plan is too large to store.
    n_partners: int = 10
    # Points per side in the picture of such a plan.
    max_drawn_points: int = 1000
    # Plan entries up to which one thread is as fast as several.
    max_single_thread_entries: int = 250_000


MATCH_CONFIG = MatchConfig()
