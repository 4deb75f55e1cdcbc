"""Numeric limits of the geometry package."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GeometryConfig:
    """Limits of stored distances and of low-rank approximations of distances (`compression`)."""

    # Largest share of the memory of the machine or GPU that the distances of points may take: a solve needs as much
    # again for the plan and the cost.
    max_memory_share: float = 0.5
    # Points whose distance matrix is decomposed; all other points are placed by their distances to these. The
    # decomposition takes 0.3 s at this size, and its time is cubic.
    max_landmarks: int = 1000
    # Points on all pairs of which the rank is chosen and the column weights are fitted: a matrix of 32 MiB in float64.
    max_fit_points: int = 2048
    # Least number of rows on which the error of an approximation is measured, where all pairs would take longer than
    # one block of `UTILS_CONFIG.max_block_entries`.
    min_error_rows: int = 64
    # Ranks up to this one are all tried; above, each is larger than the one before by the factor `rank_growth`.
    n_consecutive_ranks: int = 8
    # Factor between two ranks that are tried: a rank is at most a fifth larger than needed.
    rank_growth: float = 1.2
    # Eigenpairs computed even if fewer columns are allowed, so that the error message can name a sufficient rank.
    max_advised_rank: int = 512
    # Eigenvalues below this many machine epsilons of the largest one are taken for rounding errors.
    eigenvalue_rounding_units: float = 64.0
    # Ridge of the weight fit relative to the diagonal of its normal equations: decides where the pairs do not.
    fit_ridge: float = 1e-10
    # The error on the sampled pairs must be below this share of the tolerance before a rank is advised, because the
    # pairs that are not sampled may have larger errors.
    advice_margin: float = 0.9
    # Factor by which an advised tolerance exceeds the error that was reached, so that two digits are enough.
    advised_tol_factor: float = 1.05
    # Components of a graph whose sizes an error message lists.
    max_listed_components: int = 10


GEOMETRY_CONFIG = GeometryConfig()
