"""Thresholds of the problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ProblemConfig:
    """Thresholds of the problems, one per line with unit and reason."""

    # Log of the smallest mass of a plan relative to sqrt(m(a) m(b)); a lighter plan has collapsed.
    min_relative_log_mass: float = -30.0
    # Added to the log mass at which a plan has collapsed: the log mass reported where the linear cost exceeds the gain
    # of any mass.
    no_mass_log: float = -270.0
    # Log mass below which a plan has no mass, in float64; that of a plan of zeros.
    min_log_mass: float = -700.0
    # Largest exponent used for a mass, so that exp does not overflow float64.
    max_log: float = 700.0
    # A potential's side counts as hard if eps/rho is below this many units of rounding, because it is then lost.
    hard_side_rounding: float = 10.0
    # Entries of a product plan may deviate from the product of its marginals by this many units of rounding.
    product_plan_rounding: float = 32.0
    # Entries of an implicit plan that are computed to estimate a norm; a pass over all pairs would cost a Sinkhorn
    # step.
    sampled_entries: int = 2**24
    # Rows sampled at least, so that the estimate is an average over many points.
    min_sampled_rows: int = 256
    # Entries of one block of sampled rows in memory; several blocks are held at once.
    row_block_entries: int = 2**20
    # Overlap of a conic plan below which nothing matches.
    min_overlap: float = 1e-50
    # Share of the conic kernel's terms that the comparison of candidates leaves out: with 1e-6 it takes a tenth longer,
    # with 1e-3 values change by 3e-5.
    dropped_kernel_share: float = 1e-4
    # Multiple of its last change by which the local cost of a conic problem is extrapolated: steps leave the
    # neighborhood of saddle points in a third of the steps (measured: 1, 2, 3, 4 and 6).
    conic_extrapolation: float = 3.0
    # Share of an entry of the local cost below which its extrapolation does not fall: costs stay finite.
    min_extrapolated_share: float = 0.01
    # Steps over which the decrease of a conic value is measured: single steps are irregular.
    decrease_window: int = 4
    # Bounds of the rate at which the decrease of the value is assumed to fall from one window to the next. The lower
    # one makes the estimate at least three times the last decrease: progress often resumes after a slow window.
    min_decrease_rate: float = 0.75
    max_decrease_rate: float = 0.999
    # Share of the largest possible conic value below which a value counts as 0: rounding is a hundredth of it.
    min_relative_value: float = 1e-8
    # Rounding errors of a product with the conic kernel, in units of those of one entry.
    conic_rounding: float = 16.0
    # Mass of a partial plan, relative to the largest possible, below which it matches nothing.
    min_partial_mass: float = 1e-12
    # Rounding errors of the gradient of a partial problem, in units of those of one entry.
    partial_gradient_rounding: float = 64.0
    # Halley iterations for the Lambert function; ten reach float64 precision, twenty at the branch point.
    lambert_iterations: int = 20
    # Slope of w·exp(w) below which an iteration leaves w as it is: at the branch point the slope is 0.
    min_lambert_slope: float = 1e-12
    # Bounds of the mean conic kernel, so that its logarithm is finite and not 0.
    min_mean_kernel: float = 1e-30
    max_mean_kernel: float = 1.0 - 1e-12
    # eps="auto" as a share of the mean distortion under the product plan (of the mean cost in linear problems): sharp
    # plans that still converge fast, in any units of the distances.
    auto_eps_share: float = 1e-2
    # eps of a surrogate, the UGW problem from whose plans a conic or partial solve starts, as a share of the mean
    # distortion: sharp enough to match points, quickly solved.
    surrogate_eps_share: float = 1e-2
    # rho of the surrogate of a problem of given mass, as a share of the mean distortion: keeps most of the mass.
    surrogate_rho_share: float = 0.03
    # eps of the surrogate of a partial problem is at most this share of its rho: a larger entropy hides which mass is
    # better left unmatched.
    max_surrogate_eps_over_rho: float = 0.2
    # A given mass may exceed the smaller of both masses by this many machine epsilons: sums of weights are rounded.
    mass_rounding_units: float = 64.0
    # The masses of two hard sides may differ by this many machine epsilons, relatively: they too are sums.
    hard_mass_rounding_units: float = 1e3
    # Distances at which a loss is tested for infinite values.
    n_loss_samples: int = 2000

    # -- linear programs of partial conic problems
    # Smallest angle between two rays, radians: nearly parallel columns make bases that are nearly singular.
    min_ray_angle: float = 1e-9
    # Smallest reduced gain of a column that enters a linear program, per unit of mass, in units of 2 rho; the dual
    # tolerance of the first attempt below.
    min_reduced_gain: float = 1e-10
    # Number of columns up to which a linear program has all of them from the start; more take longer than new rounds.
    max_initial_columns: int = 4000
    # Rounds of column generation; far more than are ever needed.
    max_column_rounds: int = 1000
    # Method and options of SciPy's linprog, in the order in which they are tried. The first has duals that are precise
    # enough for column generation, but fails on some degenerate programs.
    linear_program_attempts: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = (
        ("highs-ds", (("presolve", False), ("dual_feasibility_tolerance", 1e-10))),
        ("highs-ds", ()),
        ("highs-ipm", ()),
    )

    # Last bits of a relative eps that are dropped: the order of its sums decides the last few of a mean distortion.
    dropped_eps_bits: int = 13

    # -- swaps of two pairs
    # Number of steps into which the least decrease that counts is divided: changes closer than one step are equal.
    swap_levels: float = 16.0
    # Swaps of one plan in one step: most descents of up to 24 points need fewer.
    max_swaps: int = 100
    # Mass of an entry of a plan, as a share of the mass of the plan, up to which it is rounding error.
    min_vertex_share: float = 1e-12


PROBLEM_CONFIG = ProblemConfig()
