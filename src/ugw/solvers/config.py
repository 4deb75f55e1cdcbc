"""Thresholds of the solvers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SolverConfig:
    """Thresholds of the solvers, one per line with unit and reason."""

    # -- Sinkhorn
    # Iterations of Sinkhorn per linear problem unless given; more rarely pay, because the cost changes in every step.
    default_inner_max_iter: int = 50
    # Residual of an inner solve unless given: below `default_tol`, so that inner solves do not limit the outer one.
    default_inner_tol: float = 1e-7
    # Largest convergence rate that an Aitken extrapolation of the potentials assumes; above, it would not be stable.
    max_aitken_rate: float = 1.0 - 1e-6
    # Share of items still running below which a batch of Sinkhorn iterations is compacted: compaction copies all costs.
    inner_compaction_share: float = 0.5

    # -- stopping
    # A larger limit of steps or iterations is stored as this, which no run reaches: integers up to here are exact in
    # float64, and sums and products of a few of them fit into 64 bits.
    max_countable_iter: int = 2**53
    # Relative L1 change of the plan at which a run stops unless given: far below what a plan is used for.
    default_tol: float = 1e-6
    # Relative L1 change of the plan by rounding alone above which a result has the status PRECISION.
    max_trusted_noise: float = 1e-3
    # The same in a low-precision phase, above which an item skips it: its plan would be rounded too much.
    max_low_precision_noise: float = 1e-4
    # Rounding errors of a sum over a row or column, in units of those of one entry.
    sum_rounding: float = 8.0
    # A converged plan still moves by this many times the rounding noise.
    noise_factor: float = 4.0
    # Inner residual at most this over sqrt(rho / cost scale): a marginal that is off by r costs rho·r².
    stiff_residual: float = 1e-3
    # Smallest inner residual that is ever required; float64 cannot do better.
    min_residual: float = 1e-13
    # Two objectives are equal if they differ by less than this share of the tolerance times the scale of the problem.
    objective_resolution: float = 1e-4
    # A plan alternates if every second plan agrees to this share of the tolerance ...
    alternation_tol: float = 1e-3
    # ... in this many steps in a row.
    alternation_steps: int = 3

    # -- inner solves
    # Inner tolerance relative to the last change of the plan: more precision would be lost in the next step.
    forcing: float = 0.1
    # Upper bound of the inner tolerance.
    max_inner_tol: float = 0.01
    # The inner solver keeps up with the proximal schedule if its residual is below this.
    max_residual_of_solved: float = 0.01
    # Tolerance above which inner solves get no additional iterations: such a run does not need them.
    coarse_tol: float = 1e-5
    # The plan has nearly converged if its change is at most this many times its tolerance.
    near_convergence: float = 10.0
    # Upper bound of the inner iterations of one linear problem when only the inner solver has not converged.
    max_inner_iter: int = 3200
    # Multiple of the inner iterations for the first linear problem, which has no potentials to start from.
    first_iteration_multiplier: float = 4.0
    # Change of the plan assumed before the first step if the initial plan has potentials: a Sinkhorn pass is expensive.
    assumed_first_change: float = 1e-2

    # -- proximal steps
    # Upper bound of the entropy of a proximal step, as a share of the cost scale.
    max_proximal_share: float = 0.3
    # An eps given as exactly the last share counts as reached, although both are rounded.
    proximal_rounding: float = 1e-6
    # Annealing ends, and eps has its value, once the annealed eps is below this share of the entropy of the last steps:
    # the proximal term then dominates the step, and a factor never leads to eps = 0.
    negligible_eps_share: float = 1e-3
    # Share of the product plan mixed into the reference plan of a proximal step that must be able to leave zeros.
    product_share: float = 1e-3
    # Largest negative gradient of a converged plan, as a share of the cost scale.
    max_negative_gradient: float = 1e-4
    # Relative decrease of the objective that counts as an improvement between two converged plans.
    min_improvement: float = 1e-7

    # -- extrapolation
    # Relative L1 change of the plan below which steps are extrapolated; larger steps still choose a local minimum.
    max_change_to_extrapolate: float = 0.1

    # -- alternating linear programs
    # Positions on the segment from a lift to the solution of its linear program at which the overlap is evaluated, from
    # the end to a thousandth of the way.
    segment_shares: tuple[float, ...] = tuple(np.geomspace(1.0, 1e-3, 16).tolist())
    # Largest multiple of a step by which its line is extended to the boundary; more would amplify rounding.
    max_line_extension: float = 1e3
    # A relative gain of the overlap below this is rounding.
    overlap_rounding: float = 1e-14
    # Relative gap below which an item whose overlap no longer grows has converged; the linear program is not more
    # precise.
    max_gap_without_gain: float = 1e-6

    # -- mixed precision
    # Fewest steps of a run for which a low-precision phase pays.
    min_iter_for_low_precision: int = 31
    # Tolerance and steps of a phase in float32.
    float32_tol: float = 1e-5
    float32_max_iter: int = 200
    # Tolerance and steps of a phase with TF32 products.
    tf32_tol: float = 5e-4
    tf32_max_iter: int = 40
    # Plan entries of a batch from which the local cost is updated incrementally on CUDA after a TF32 phase.
    min_incremental_entries: int = 2**25

    # -- compiled steps
    # Seconds of one call of the compiled loop, after which Python can react to an interrupt.
    compiled_call_seconds: float = 0.2
    # Steps for which the history of a compiled run has room at first; then it grows.
    first_history_rows: int = 64

    # Options of runs whose table of thresholds is kept: a program uses few of them, a table takes a few kilobytes.
    max_cached_configs: int = 64

    # -- CUDA
    # Steps between two synchronizations of an unmonitored run on CUDA.
    max_unchecked_steps: int = 6
    # Share of items still running below which a batch is compacted; compaction copies all others.
    compaction_share: float = 0.8


SOLVER_CONFIG = SolverConfig()
