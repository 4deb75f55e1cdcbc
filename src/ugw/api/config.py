"""Thresholds of the user-level functions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryFactors:
    """Measured peaks of the process, in units of the tensors of a problem, times a margin.

    The margin, about 1.4 to 1.7, is for memory that the allocator keeps for later tensors: it varies from run to run.
    tests/api/test_estimate.py compares the estimates with peaks.
    """

    # Bytes that a first solve adds to the process, whatever its size: mostly code (17 to 20 MiB).
    base_bytes: int = 24 * 2**20
    # Plans (n, m) held for each plan that is solved for (17).
    dense: float = 30.0
    # Multiple of these in a batch: the allocator keeps tensors of batches that were compacted.
    batch: float = 1.4
    # Plans held for each candidate of a level of the search for a start, throughout (1.2) ...
    stored_candidates: float = 1.7
    # ... and for each candidate of a batch that is evaluated (6), or makes steps (20). One step keeps nothing to
    # extrapolate from and takes less.
    candidate_values: float = 9.0
    candidate_first_step: float = 20.0
    candidate_steps: float = 28.0
    # Plans in float64 held for each item that the compiled library searches (31), one per thread ...
    compiled_search: float = 36.0
    # ... and for each item of its batch: spaces in float64 and plans found.
    searched_items: float = 6.0
    # Vectors of the width of the basis, in float64, held for each point of a streaming problem.
    streaming: float = 14.0
    # Bytes that it takes to fit the factors of a loss, also where they are then found too coarse.
    fit_bytes: int = 64 * 2**20
    # Copies of the terms of a block that are held while a loss is summed term by term (2).
    terms: float = 3.0
    # Copies of the plans that run together, for each term of a factorized loss or kernel (2).
    factorized: float = 2.6
    # Copies of both metrics that are held for each term of a factorized loss or kernel (1).
    factorized_metrics: float = 1.4


@dataclass(frozen=True)
class ApiConfig:
    """Limits on memory and on the search for rho, and the default eps of `tightness`."""

    memory: MemoryFactors = MemoryFactors()
    # Bytes that one chunk of a batch may take on a CPU.
    max_chunk_bytes: int = 2**30
    # Entries of all plans of a chunk on a CPU: what a step reads again should still be in a cache.
    max_chunk_entries_cpu: int = 2**19
    # The same on CUDA, where a chunk that does not fit is halved.
    max_chunk_entries_cuda: int = 2**28
    # A CPU solve is refused if its estimate exceeds the available memory by this factor: the estimate has a margin.
    max_overcommit: float = 1.2
    # Entries of all plans of a batch below which the items are one chunk, without an estimate: in float64 the 62
    # candidates of each item take some 100 MiB, and a chunk of that size is still fast.
    max_unmodeled_entries: int = 2**14
    # Bytes below which a CPU solve starts without asking for the available memory, which takes a while.
    max_unchecked_bytes: int = 2**27
    # Rank assumed for low-rank spaces in the advice to use them.
    suggested_rank: int = 10

    # eps of the UGW problem of `tightness`, as a share of the mean distortion: small, for a value close to eps = 0.
    tightness_eps_share: float = 1e-3
    # Values below this share of the value of unmatched spaces count as 0 in a ratio: the tolerance of a solver.
    min_relative_value: float = 1e-9
    # Rounding errors of a value, in units of the dtype's eps.
    rounding_units: float = 100.0

    # Share of the mean distortion from which on eps leaves one local minimum, so that the product plan is as good a
    # start as any (measured: no other start ended lower on 414 problems of clouds, curves, graphs and trees; at 0.5 on
    # 11 of them one did).
    single_minimum_eps_share: float = 0.7
    # A rho below this share of the mean distortion is named as the cause of a solve that did not converge: hardly any
    # pair of points is matched, and a larger eps only leads to the product plan.
    min_rho_share: float = 1e-3
    # |share − kept| at which `rho_for_mass` stops.
    mass_share_tol: float = 1e-3
    # Tolerance and steps of a solve of `rho_for_mass`: enough for three digits of the mass.
    mass_solve_tol: float = 1e-5
    mass_solve_max_iter: int = 300
    # Most solves of `rho_for_mass`, on the coarse problem and on all points each.
    max_mass_solves: int = 30
    # Difference of log rho below which the share is taken to jump between two values of rho.
    min_log_rho_gap: float = 1e-3
    # Largest share of the mass that the search for rho tells from all of it, so that −log(share) is positive.
    max_partial_share: float = 1.0 - 1e-12
    # Largest change of log rho between two solves: a factor of 10.
    max_log_rho_step: float = 2.302585092994046
    # Range of slopes of log(−log(share)) against log rho that an extrapolation may use.
    min_mass_slope: float = -4.0
    max_mass_slope: float = -0.2


API_CONFIG = ApiConfig()
