"""Numbers that say how candidates for a first plan are made, and how many of them survive."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class InitializerConfig:
    """Limits and counts of the initializers; what depends on the size of a problem is in `_utils.size_class`."""

    # -- plans by formulas ---------------------------------------------------------------------------------------------
    # Anchor pairs of a random plan: three points and their images fix a rigid motion of the plane.
    n_anchor_pairs: int = 3
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
    # Random candidates on the coarsest level, beside the product plan and the first lower bound.
    n_random_candidates: int = 40
    # eps on the coarsest level is at least this share of its mean distortion: a smaller eps takes more steps and does
    # not give better initial plans.
    min_coarse_eps_share: float = 5e-3
    # Rounds on the coarsest level: steps of each, and how many candidates that differ survive it. Few steps suffice to
    # detect candidates that lead to the same plan; more steps are needed to compare their values.
    coarse_rounds: tuple[tuple[int, int], ...] = ((2, 42), (6, 16))
    # Rounds on all points; without steps, plans are only evaluated. Most plans are in the order of their final
    # values after two steps, nearly all after eight.
    fine_rounds: tuple[tuple[int, int], ...] = ((0, 3), (2, 2), (8, 1))
    # Tolerance and inner iterations of all these steps.
    search_tol: float = 1e-3
    search_inner_max_iter: int = 10
    # Numbers of points for which the random numbers of a compiled search are kept; a few MB at most.
    max_cached_draws: int = 32
    # Plans of the search from which init="best" solves, beside the product plan.
    n_best_candidates: int = 3
    # Two plans of mass 1 are different candidates if they are this far apart in L1.
    min_candidate_distance: float = 0.1
    # Max entries of all plans of a batch of candidates that run together, by device: on a CPU they stay in a cache.
    max_batch_entries: dict[str, int] = field(default_factory=lambda: {"cpu": 1 << 20, "cuda": 1 << 26})

    # -- conic problems ------------------------------------------------------------------------------------------------
    # Steps of UGW from a candidate before CGW takes it.
    n_surrogate_steps: int = 15
    # Steps of CGW with products in TF32, on CUDA, before those in float32.
    n_tf32_steps: int = 10
    # Coarse plans of UGW among the candidates: the best plan for UGW need not be the best for CGW.
    # They are not yet compared by steps; with 3 of them values are up to 2e-3 higher.
    n_conic_coarse: int = 6
    # Different candidates that remain after a few rough steps of CGW.
    n_conic_survivors: int = 3
    # Steps of CGW from each of these, before the best one is solved to convergence: with 25 values are up to 2e-4
    # higher for 100 to 170 points, with 50 as low as if all of them are solved to convergence.
    n_final_conic_steps: int = 50
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
    # Plans of these, different in their objectives, from which Frank–Wolfe solves to convergence: with 12 of them a
    # solve takes a tenth more time, and values of molecules of 10 to 28 atoms are 5e-5 lower on average.
    n_swapped_survivors: int = 8
    # Swaps from one vertex: most descents of up to 24 points need fewer.
    max_swaps: int = 100

    # -- partial problems ----------------------------------------------------------------------------------------------
    # Steps of the surrogate from each candidate.
    n_partial_surrogate_steps: int = 30
    # Steps of the surrogate without entropy, which converges slowly.
    n_sharp_steps: int = 100
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
    # Steps on a level before its plan is prolongated to the next.
    n_level_steps: int = 30


INITIALIZER_CONFIG = InitializerConfig()
