"""Thresholds and block sizes of the numerical primitives."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelConfig:
    """Thresholds and block sizes of the kernels: what each limits, its unit and the reason for its value."""

    # --- Sinkhorn ---
    # Iterations on a stored cost between two checks of the residual: a check costs as much as an iteration.
    iterations_per_check: int = 5
    # Fraction of the exponent range by which potentials may leave those that a stabilized kernel was centered at;
    # the other nine tenths are for the spread of its entries.
    max_recentering_fraction: float = 0.1

    # --- reductions and Anderson moments in torch ---
    # Entries of the blocks of rows and items in which a CPU computes moments: six of them fit into its L2 cache.
    moment_block_cpu: int = 2**15
    # The same on CUDA: the temporary tensors of a block, fifteen times as large, stay below 130 MB in float64.
    moment_block_cuda: int = 2**20

    # --- streaming sums in torch ---
    # Entries of a block on a CPU: small enough for its cache, large enough to keep the arithmetic units busy.
    streaming_block_cpu: int = 2**19
    # Entries of a block on CUDA.
    streaming_block_cuda: int = 2**26

    # --- Anderson extrapolation ---
    # Factor by which a step is prolonged where the iteration map expands, as near a saddle point.
    overrelaxation: float = 10.0
    # Change of the plan, in units of its tolerance, below which expansion is not trusted: rounding and inexact inner
    # solves have the same effect.
    min_overrelaxed_change: float = 10.0
    # Largest |c1| + |c2| of two Anderson coefficients: larger ones come from differences that are nearly parallel.
    max_two_coefficients: float = 50.0
    # Largest coefficient if only the last difference is used.
    max_one_coefficient: float = 200.0
    # Coefficients are rounded to multiples of this, so that an item has the same ones alone and in a batch.
    coefficient_grain: float = 2.0**-10
    # 1 − |cosine| of two differences below which they count as parallel.
    min_independence: float = 1e-6
    # Relative Tikhonov damping of the least-squares problem for the coefficients.
    least_squares_damping: float = 1e-8

    # --- exact optimal transport ---
    # Pivots of the network simplex in one linear program: far more than ever needed.
    max_simplex_pivots: int = 10_000_000
    # Code by which POT reports that the network simplex has found an optimum.
    simplex_optimal: int = 1
    # Plan entries from which a linear program runs in another thread, so that Ctrl-C need not wait for its end: below,
    # it takes some hundredths of a second.
    min_interruptible_entries: int = 250_000
    # Unmatched mass, as a share of the matched mass, up to which it is taken for a rounding error of the weights' sum.
    matched_mass_share: float = 1e-13
    # Decimals to which costs, divided by the largest, are rounded, so that ties are exact.
    cost_decimals: int = 12


KERNEL_CONFIG = KernelConfig()
