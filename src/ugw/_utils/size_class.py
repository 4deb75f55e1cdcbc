"""Every choice that depends on the size of a problem, made from the sizes n and m of an item without its padding.

Items of a batch are solved together only if their size classes agree, so that each gets the result it would get alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache


@dataclass(frozen=True)
class SizeThresholds:
    """The sizes at which a choice changes. Entries are those of a plan, n·m."""

    # Max entries for which the candidates for a start make many steps: which of them ends lowest shows only then, and
    # beyond, these steps would take longer than the solve.
    max_entries_with_long_search: int = 10_000
    # Max entries for which candidates for a start run on all points; beyond, they run on the clusters of the middle
    # level (measured: cheaper, and as good, above this).
    max_entries_without_middle_level: int = 100_000
    # Clusters of a side on the coarsest level: with fewer, plans are less often those of the best local minimum.
    n_coarse_clusters: int = 40
    # The middle level has this many clusters per side ...
    middle_clusters_step: int = 100
    # ... for this many points each, rounded up ...
    points_per_middle_step: int = 167
    # ... and at most this many (more take longer than they improve the choice).
    max_middle_clusters: int = 400
    # Max entries for which the compiled loop makes the steps on a CPU (measured on one thread: faster below this).
    max_compiled_entries: int = 100_000
    # Min entries that pay for a low-precision phase, in float32 instead of float64.
    min_low_precision_entries: int = 5_000
    # Min entries that pay for a phase in TF32 instead of float32, on CUDA.
    min_tf32_entries: int = 4_000_000
    # Rows of a cost that suffice to extrapolate it, on a CPU; a problem of more rows is sampled.
    max_rows_without_sampling: int = 64
    # Max noise candidates of a conic problem.
    max_noise_candidates: int = 256
    # Max entries of all noise candidates of an item together: they run for a few steps each.
    max_noise_entries: int = 200_000
    # Max entries for which a partial problem also starts from random plans and from vertices of its polytope: a linear
    # program for each of 40 candidates takes seconds beyond.
    max_entries_with_many_vertices: int = 2_500
    # Max entries for which balanced GW without entropy compares vertices after swaps instead of plans after entropic
    # steps (measured on clouds of points: closer to the best known value below this, up to 14 points also faster;
    # beyond 24 points a search as good takes longer).
    max_entries_with_swapped_vertices: int = 600
    # Max entries for a loss that is infinite somewhere: it has no factors, and its sum is made term by term.
    max_entries_of_infinite_loss: int = 2_500
    # Max entries for steps by linear programs over pairs of entries: larger ones take more than ten minutes.
    max_entries_of_linear_programs: int = 3_600
    # Max entries of stored plans, by device, where they need not be stored: to compute a cost of low rank again is
    # faster than to read it from the memory of a GPU.
    max_stored_entries: dict[str, float] = field(default_factory=lambda: {"cpu": 2.5e7, "cuda": 1e7})
    # Points per side of the coarsest sample of a streaming problem: its plan is stored.
    max_stored_sample: int = 1_000
    # A streaming level has up to this many times the points of its sample ...
    max_level_ratio: int = 100
    # ... or, beyond max_points_of_cheap_level points, this many: its own steps are then far more expensive.
    max_level_ratio_of_large: int = 10
    max_points_of_cheap_level: int = 300_000


THRESHOLDS = SizeThresholds()


@dataclass(frozen=True)
class SizeClass:
    """The choices for a problem of n × m points.

    has_long_search: do the candidates for a start make many steps, until little changes? uses_compiled_steps: does the
    compiled loop make the steps, where it is built?
    has_low_precision_phase, has_tf32_phase: do first steps in float32, or on CUDA in TF32, pay? samples_rows: does a
    CPU compute the factors of an extrapolation from a sample of the rows of the costs? n_middle_clusters: clusters per
    side of the middle level, between the coarsest level and all points, 0 if there is none; n_noise_candidates: random
    initial plans of a conic problem; tries_many_vertices: does a partial problem start from random plans and vertices?
    compares_swapped_vertices: do the initial plans of balanced GW without entropy come from vertices and swaps?
    streaming_sample: numbers of points (n, m) of the sample on which a streaming problem is solved first, None if it is
    solved on all points.
    """

    has_long_search: bool
    uses_compiled_steps: bool
    has_low_precision_phase: bool
    has_tf32_phase: bool
    samples_rows: bool
    n_middle_clusters: int
    n_noise_candidates: int
    tries_many_vertices: bool
    compares_swapped_vertices: bool
    streaming_sample: tuple[int, int] | None


# The choices that matter for UGW with stored plans, and so for every problem that takes its candidates from UGW.
UGW_CHOICES = (
    "has_long_search",
    "uses_compiled_steps",
    "has_low_precision_phase",
    "has_tf32_phase",
    "samples_rows",
    "n_middle_clusters",
    "compares_swapped_vertices",
)
CONIC_CHOICES = (*UGW_CHOICES, "n_noise_candidates")
PARTIAL_CHOICES = (*UGW_CHOICES, "tries_many_vertices")
STREAMING_CHOICES = (*UGW_CHOICES, "streaming_sample")


@lru_cache(maxsize=4096)  # a solve asks many times for the same sizes
def size_class(n: int, m: int) -> SizeClass:
    """Return the `SizeClass`, the record of all choices that depend on size, for n × m points without padding.

    >>> size_class(64, 20).samples_rows, size_class(65, 20).samples_rows
    (False, True)
    >>> size_class(1000, 1000).n_middle_clusters
    400
    """
    limits, entries = THRESHOLDS, n * m
    return SizeClass(
        has_long_search=entries <= limits.max_entries_with_long_search,
        uses_compiled_steps=entries <= limits.max_compiled_entries,
        has_low_precision_phase=entries >= limits.min_low_precision_entries,
        has_tf32_phase=entries >= limits.min_tf32_entries,
        samples_rows=n > limits.max_rows_without_sampling,
        n_middle_clusters=_n_middle_clusters(n, m),
        n_noise_candidates=_n_noise_candidates(entries),
        tries_many_vertices=entries <= limits.max_entries_with_many_vertices,
        compares_swapped_vertices=entries <= limits.max_entries_with_swapped_vertices,
        streaming_sample=_streaming_sample(n, m),
    )


def group_by_size(sizes: Sequence[tuple[int, int]], choices: Sequence[str]) -> list[list[int]]:
    """Return lists of the indices of the items whose size classes agree on the named choices, in order of appearance.

    sizes: (n, m) of each item without its padding; choices: names of fields of `SizeClass`.

    >>> group_by_size([(5, 5), (90, 90), (6, 4)], UGW_CHOICES)
    [[0, 2], [1]]
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, (n, m) in enumerate(sizes):
        own = size_class(n, m)
        groups.setdefault(tuple(getattr(own, name) for name in choices), []).append(i)
    return list(groups.values())


def _n_middle_clusters(n: int, m: int) -> int:
    """Return the number of clusters per side on the level between the coarsest and all points, or 0 for no such level.

    It is 0 up to n·m = 100 000, else 100 for every 167 points of the larger side, rounded up, at most 400.
    """
    limits = THRESHOLDS
    if n * m <= limits.max_entries_without_middle_level:
        return 0
    steps = math.ceil(max(n, m) / limits.points_per_middle_step)
    return min(limits.max_middle_clusters, limits.middle_clusters_step * steps)


def _n_noise_candidates(entries: int) -> int:
    """Return how many random plans a conic problem starts from, for plans of this number of entries n·m.

    It is the largest power of 2 up to 256 whose plans have together at most 200 000 entries, or 0. Powers of 2, so that
    few size classes differ in this number alone.
    """
    limits = THRESHOLDS
    count = min(limits.max_noise_candidates, limits.max_noise_entries // entries)
    return 1 << (count.bit_length() - 1) if count else 0


def _streaming_sample(n: int, m: int) -> tuple[int, int] | None:
    """Return the numbers of points (n, m) of the sample that a streaming problem is solved on first.

    None if no side has more than 1000 points: it is solved on all. Otherwise the larger side has a hundredth of its
    points, beyond 300 000 points a tenth, but at least 1000, the smaller side the same share, also at least 1000 or all
    points.
    """
    limits, largest = THRESHOLDS, max(n, m)
    if largest <= limits.max_stored_sample:
        return None
    is_large = largest > limits.max_points_of_cheap_level
    ratio = limits.max_level_ratio_of_large if is_large else limits.max_level_ratio
    share = max(1.0 / ratio, limits.max_stored_sample / largest)
    rows, cols = (max(min(size, limits.max_stored_sample), round(size * share)) for size in (n, m))
    return rows, cols
