"""Thresholds of the distortion sums."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DistortionConfig:
    """Thresholds of the distortion sums: what each limits, its unit and the reason for its value."""

    # Plan entries n·m up to which the sum is taken term by term: (n·m)² terms are then cheaper than a factorization.
    max_exact_plan: int = 400
    # Plan entries n·m up to which it is taken term by term if the factorization misses its tolerance.
    max_exact_plan_if_coarse: int = 2500
    # Terms evaluated at a time in a term-by-term sum: 64 MiB in float64.
    block_terms: int = 2**23
    # Bytes up to which evaluated factors are kept between products; on CUDA half of the free memory if that is more.
    max_cached_bytes: int = 4 * 2**30

    # Floating-point operations of one product with the terms of factors: about 0.3 s on one core, so that Ctrl-C, which
    # takes effect between products, need not wait longer; a GPU is busy with far fewer.
    max_product_flops: int = 10**10

    # Degrees of the Chebyshev interpolation that are tried in turn; a loss that needs a higher one has a kink.
    chebyshev_degrees: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    # Error of the factors of a smooth loss, as a fraction of the range of the loss: below the default tolerances.
    smooth_tol: float = 1e-8
    # Share of the tolerance of a smooth loss for the coefficients above the degree: truncation takes the rest.
    max_tail_share: float = 0.1
    # Error of the factors of a loss with a kink, whose error decreases only like 1/rank.
    kink_tol: float = 1e-3
    # Largest rank for a loss with a kink: a rank of 64 costs as much as 64 products.
    max_kink_rank: int = 64
    # Smallest useful tolerance, as a fraction of the largest value of the loss: rounding errors are of this size.
    min_relative_tol: float = 1e-12
    # Points per axis of the grid on which errors of the factors are measured.
    error_grid_points: int = 1500

    # Sum of L1 changes of a plan, as a fraction of its mass, over which its cost is updated from these changes. TF32,
    # off by at most 1e-3, then adds an error of 1e-6 to the cost and of 1e-8 to the value: less than float32 does.
    max_drift: float = 2.5e-3
    # Mean distortions below this fraction of the mean squared distances are rounding errors.
    min_relative_mean: float = 1e-9


DISTORTION_CONFIG = DistortionConfig()
