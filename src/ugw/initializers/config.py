"""Numbers that say how candidates for a first plan are made, and how many of them survive."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class InitializerConfig:
    """Limits and counts of the initializers; what depends on the size of a problem is in `_utils.size_class`."""

    # -- plans by formulas ---------------------------------------------------------------------------------------------
    # Anchor pairs of a random plan: three points and their images fix a rigid motion of the plane.
    n_anchor_pairs: int = 3
    # Draws of the anchor pairs of a candidate of the coarse multistart, of which the one with the least mismatch is
    # taken. On 300 problems of 10 to 30 points, 60 candidates lead within 1e-4 of the best known value in 90 % of cases
    # with 1 draw, in 94 % with 4, in 95 % with 16.
    n_anchor_proposals: int = 16
    # Mismatches are compared in steps of this size: rounding, which decides between symmetric anchors, is far below.
    anchor_mismatch_step: float = 1e-6
    # Width of the kernel of a random plan, as a share of the mean square distance: narrow enough to match neighbors.
    anchor_width: float = 0.05
    # Eccentricities are compared in steps of this share of the largest: rounding, which padding changes, is far below.
    eccentricity_step: dict[str, float] = field(default_factory=lambda: {"float32": 1e-5, "float64": 1e-10})
    # Normal numbers that each point draws for a noise plan: with more of them noise is closer to independent entries.
    n_noise_factors: int = 6
    # Size of the noise, in log units, that breaks symmetries: above rounding, far below anything that matters.
    symmetry_breaking_noise: float = 1e-6
    # eps of the transport plans among the starts: two shares of the mean cost, one after the other; no start need be
    # sharper.
    first_transport_eps_share: float = 1e-1
    last_transport_eps_share: float = 1e-2
    # Residual and iterations at which the linear problem of such a plan is left.
    transport_tol: float = 1e-2
    transport_max_iter: int = 20
    # Rounds of Sinkhorn iterations at each of them where a GPU must not be synchronized.
    n_transport_rounds: int = 2

    # -- the coarse multistart -----------------------------------------------------------------------------------------
    # Most and fewest random candidates on the coarsest level, beside the product plan and the first lower bound.
    n_random_candidates: int = 60
    min_random_candidates: int = 4
    # Their number between these limits times eps in units of the mean distortion: the smaller eps, the more local
    # minima. Measured on 540 problems of 10 to 220 points: from a share of 0.2 on, 6 random candidates suffice.
    random_candidates_times_eps_share: float = 2.5
    # eps on the coarsest level is at least this share of its mean distortion: a smaller eps takes more steps and does
    # not give better initial plans.
    min_coarse_eps_share: float = 5e-3
    # Rounds on the coarsest level: steps, how many candidates that differ survive, and how far above the best
    # one they may be, in units of the objective scale. One step suffices to drop half of the candidates; more are
    # needed to compare the values of the others, and to detect those that lead to the same plan. Gaps a third as large
    # save a third of the steps, and lose the best local minimum in 2 % of 540 problems of 10 to 220 points.
    coarse_rounds: tuple[tuple[int, int, float], ...] = ((1, 32, 0.3), (2, 24, 0.1), (5, 16, 0.05), (12, 8, 0.02))
    # Rounds on all points, if a plan has few entries (`max_entries_with_long_search`). The candidate that ends lowest
    # is the best after 12 steps on 95 % of 37 problems of 25 to 100 points, after 40 steps on all.
    long_fine_rounds: tuple[tuple[int, int, float], ...] = ((4, 8, 0.1), (12, 3, 0.03), (20, 1, 0.0))
    # Rounds on all points of larger problems; without steps, plans are only evaluated. Most plans are in the order of
    # their final values after two steps, nearly all after eight.
    short_fine_rounds: tuple[tuple[int, int, float], ...] = ((0, 3, 0.1), (2, 2, 0.1), (8, 1, 0.0))
    # Tolerance of all these steps, and inner iterations of the search for one plan, whose objectives are close to those
    # of solved linear problems, and of the search for several, which their caller runs further.
    search_tol: float = 1e-3
    search_inner_max_iter: int = 20
    search_inner_max_iter_of_several: int = 10
    # Their proximal schedule, as for `ProximalSchedule`: entropy falls fast, because few steps compare candidates.
    search_first_proximal_share: float = 0.1
    search_last_proximal_share: float = 0.01
    search_proximal_factor: float = 0.5
    # Numbers of points for which the random numbers of a compiled search are kept; a few MB at most.
    max_cached_draws: int = 32
    # Plans of the search from which init="best" solves, beside the product plan.
    n_best_candidates: int = 3
    # Two plans of mass 1 are different candidates if they are this far apart in L1.
    min_candidate_distance: float = 0.1
    # Objectives of candidates closer than this, in units of the objective scale, are equal, and the first candidate is
    # the better one: rounding must not decide between two that have nearly converged to one plan.
    candidate_tie: float = 1e-9
    # Max entries of all plans of a batch of candidates that run together, by device: on a CPU they stay in a cache.
    max_batch_entries: dict[str, int] = field(default_factory=lambda: {"cpu": 1 << 20, "cuda": 1 << 26})

    # -- conic problems ------------------------------------------------------------------------------------------------
    # Steps of UGW (the surrogate) from a candidate before CGW takes it.
    n_surrogate_steps: int = 15
    # Steps of CGW with products in TF32, on CUDA, before those in float32.
    n_tf32_steps: int = 10
    # Coarse plans of UGW among the candidates: the best plan for UGW need not be the best for CGW.
    # They are not yet compared by steps; with 6 of them values of 40 mixed problems are 5e-4 higher on average.
    n_conic_coarse: int = 9
    # Rounds of steps of CGW from all candidates: steps of each, and how many candidates survive it. The best candidate
    # after few steps is rarely the best one at the end: with 3 steps and 16 survivors first, values are up to 4e-3
    # higher in some problems.
    conic_search_rounds: tuple[tuple[int, int], ...] = ((8, 12),)
    # Different candidates that remain after these rounds.
    n_conic_survivors: int = 8
    # Rounds of sharper steps from these: steps of each, and how many survive.
    conic_comparison_rounds: tuple[tuple[int, int], ...] = ((6, 4), (6, 2), (13, 1))
    # Steps with the entropy that a caller asked for: they lead close to a solution, not to it.
    n_entropic_steps: int = 50

    # -- problems solved by linear programs ----------------------------------------------------------------------------
    # Candidates from random anchor pairs, and vertices of the transport polytope: linear programs end near their start.
    n_random_starts: int = 24
    n_vertex_starts: int = 16

    # Steps of alternating minimization from each candidate of balanced GW without entropy, before Frank–Wolfe leads to
    # a vertex: the alternation hardly ever converges, and with 100 of them the plans are no better.
    n_alternating_steps_before_vertex: int = 30

    # Vertices from which swaps start in balanced GW without entropy between few points.
    n_swapped_vertices: int = 32
    # Different plans of these that are improved by a linear step and swaps, the best again and again.
    swapped_survivors: tuple[int, ...] = (8, 4, 2)

    # -- partial problems ----------------------------------------------------------------------------------------------
    # Steps of UGW on the same spaces (the surrogate) from each candidate.
    n_partial_surrogate_steps: int = 30
    # Steps of the same UGW problem without entropy, which converges slowly.
    n_unregularized_steps: int = 100
    # Steps of Frank–Wolfe at each raised penalty: most plans are at a vertex by then.
    n_penalty_steps: int = 50
    # Max powers of ten by which the penalty is raised.
    max_penalty_levels: int = 12

    # -- multistart ----------------------------------------------------------------------------------------------------
    # Objectives of solutions closer than this share are equal: the first start wins.
    solution_tie: float = 1e-9
    # Seed of the random starts of a Multistart: others than those of init="random", whose seed is 0.
    multistart_seed: int = 1

    # -- streaming problems --------------------------------------------------------------------------------------------
    # eps of a start is at least this share of the mean distortion: no start need be sharper.
    min_streaming_eps_share: float = 1e-2
    # Residual and iterations at which the linear problem of such a start is left: a pass over all pairs is expensive,
    # and few steps follow.
    streaming_transport_tol: float = 1e-3
    streaming_transport_max_iter: int = 40
    # Tolerance and steps on a level before its plan is prolongated to the next.
    level_tol: float = 1e-4
    n_level_steps: int = 30


INITIALIZER_CONFIG = InitializerConfig()
