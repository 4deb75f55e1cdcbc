"""The memory model: the peak memory of a solve, estimated from the sizes of its problem."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Any

import torch

from .._utils.size_class import THRESHOLDS, size_class
from ..geometry.low_rank import LowRankMetric
from ..geometry.space import Space
from ..initializers.coarse import fine_rounds
from ..initializers.config import INITIALIZER_CONFIG
from ..initializers.conic import n_conic_candidates
from ..initializers.multistart import Multistart
from ..initializers.partial import n_balanced_candidates, n_partial_candidates, n_vertices_that_step
from ..initializers.select import n_candidate_plans
from ..kernels.cpu import native
from ..problems.cgw import CGW
from ..problems.distortion.base import Distortion
from ..problems.distortion.config import DISTORTION_CONFIG
from ..problems.distortion.squares import SquaredDistortion
from ..problems.partial.cgw import PartialCGW
from ..problems.partial.gw import PartialGW
from ..problems.ugw import UGW
from ..problems.ugw_streamed import StreamingUGW
from .config import API_CONFIG

# Names of the starts that are chosen among candidates on a coarse problem.
COARSE_STARTS = ("auto", "best", "coarse")


@dataclass(frozen=True, kw_only=True)
class MemoryModel:
    """The sizes of a problem, from which its peak memory, chunk size and work are estimated.

    itemsize: bytes of a number; path: "compiled", "stored" (steps in torch or linear programs) or "streaming"; loss:
    how the distortion is summed, "squares", "term-by-term" or "factorized"; n_terms: terms of a factorized loss or
    kernel, else 1; ranks: columns of the bases of two low-rank spaces, else None; batch: number of items; n_plans:
    plans solved for together for each item; n_candidates: initial plans of an item that are compared by steps on all
    points; has_coarse_start: whether the start is chosen among candidates on a coarse problem; has_swaps: whether swaps
    of two pairs improve its plans.
    """

    n: int
    m: int
    itemsize: int
    device: torch.device
    path: str
    loss: str = "squares"
    n_terms: int = 1
    ranks: tuple[int, int] | None = None
    batch: int = 1
    n_plans: int = 1
    n_candidates: int = 1
    has_coarse_start: bool = True
    has_swaps: bool = False

    def peak_bytes(self, items: int) -> int:
        """Return the estimated peak, in bytes, on top of what the spaces hold, of solving `items` items together."""
        factors = API_CONFIG.memory
        if self.path == "streaming":
            n, m = (min(size, THRESHOLDS.max_stored_sample) for size in (self.n, self.m))
            return int(items * self._points_bytes() + replace(self, path="stored", n=n, m=m).peak_bytes(items))
        plans = items * max(self.n_plans, self.n_candidates) * self.n * self.m * self.itemsize
        metrics = self.n**2 + self.m**2 if self.ranks is None else self.n * self.ranks[0] + self.m * self.ranks[1]
        if self.path == "compiled":
            running = min(items, torch.get_num_threads()) * plans / items if self.has_coarse_start else 0.0
            needed = max(factors.compiled * plans, factors.compiled_search * running)
        else:
            needed = factors.stored * max(plans, self._search_bytes(items))
        needed += items * metrics * self.itemsize
        if self.has_swaps and self.has_compiled_steps:  # three matrices in float64 between 2 (n + m) entries
            needed += 3 * 8 * min(items, torch.get_num_threads()) * (2 * (self.n + self.m)) ** 2
        if self.loss == "term-by-term":
            n_values = min(DISTORTION_CONFIG.block_terms, items * (self.n * self.m) ** 2)
            needed += factors.term_by_term * n_values * self.itemsize
        elif self.loss == "factorized":  # products are made item by item, with all plans of an item
            # A search on all points in torch is in float64 and holds two copies more (measured).
            is_small = not size_class(self.n, self.m).n_middle_clusters
            n_copies = 4 if is_small and not self.has_compiled_steps else 1
            multiplied = max(n_copies * self._search_bytes(1), 0 if self.has_compiled_steps else plans / items)
            kept = min(self.n_terms * items * metrics * self.itemsize, DISTORTION_CONFIG.max_cached_bytes)
            needed += factors.factorized * (kept + self.n_terms * multiplied)
        return int(factors.base_bytes + needed)

    def total_bytes(self, chunk_size: int) -> int:
        """Return the estimated peak, in bytes, if the batch is solved `chunk_size` items at a time.

        It includes the last two plans of all items, which the result holds.
        """
        plan = self.n * self.m * self.itemsize if self.path != "streaming" else self._points_bytes() / 4
        results = 2 * self.batch * plan if chunk_size < self.batch else 0
        return int(max(self.peak_bytes(chunk_size) + results, 2 * results))

    def _points_bytes(self) -> float:
        """Return the bytes of all vectors (n,) and (m,) that a streaming problem holds for one item."""
        return API_CONFIG.memory.streaming * 8 * (self.n + self.m) * (max(self.streaming_ranks) + 3)

    @property
    def streaming_ranks(self) -> tuple[int, int]:
        """Columns of the bases of both spaces: `ranks`, or 10 each, the rank that advice assumes, if that is None."""
        return self.ranks or (API_CONFIG.suggested_rank,) * 2

    @property
    def has_compiled_steps(self) -> bool:
        """Whether the compiled CPU library, if built, makes the steps: in float64 on a CPU, up to n·m = 100 000."""
        is_small = self.itemsize == 8 and size_class(self.n, self.m).uses_compiled_steps
        return is_small and self.device.type == "cpu" and native.is_available()

    def _search_bytes(self, items: int) -> int:
        """Return the bytes of the candidates that make steps together in the search for a start of `items` items.

        It is the most of two levels, 40 clusters per side, and all points or the middle level. It is 0 for small
        problems, which the compiled library searches, one per thread.
        """
        size = size_class(self.n, self.m)
        is_compiled = self.loss == "squares" and self.has_compiled_steps
        if not self.has_coarse_start or is_compiled:
            return 0
        n_random, n_best = INITIALIZER_CONFIG.n_random_candidates, fine_rounds(self.n, self.m)[0][1]
        # The clusters' product and first lower bound beside random plans; all points' product beside the survivors.
        levels = (THRESHOLDS.n_coarse_clusters, n_random + 2), (size.n_middle_clusters or self.n + self.m, n_best + 1)
        limits = INITIALIZER_CONFIG.max_batch_entries
        max_entries = 2 * limits.get(self.device.type, limits["cpu"])  # those that wait for their batch are held too
        entries = [(items * min(self.n, side) * min(self.m, side), count) for side, count in levels]
        running = max(max(one, min(count * one, max_entries)) for one, count in entries)
        return running * (4 if size.has_low_precision_phase else self.itemsize)

    @property
    def chunk_size(self) -> int:
        """Number of items to solve at a time, from 1 to the batch: the number of chunks is the least that limits allow.

        The chunks have nearly equal sizes. Limits: on bytes on a CPU, and on plan entries unless plans are not stored.
        """
        is_cuda = self.device.type == "cuda"
        most = API_CONFIG.max_chunk_entries_cuda if is_cuda else API_CONFIG.max_chunk_entries_cpu
        fitting = self.batch if self.path == "streaming" else most // (self.n_plans * self.n * self.m)
        if not is_cuda:
            counts = range(1, self.batch + 1)
            fitting = min(fitting, bisect_right(counts, API_CONFIG.max_chunk_bytes, key=self.peak_bytes))
        # Chunks of equal size, so that the last one is not left with a few items.
        return -(-self.batch // -(-self.batch // max(1, min(self.batch, fitting))))


def model_of_spaces(
    x: Space, y: Space, distortion_sum: Distortion | None, *, is_streaming: bool, is_fused: bool
) -> MemoryModel:
    """Return the `MemoryModel` (sizes, dtype, path) of one item between two spaces.

    distortion_sum: that of the loss, None for t²; is_streaming: are plans not stored? is_fused: do features count?
    """
    width = x.feature_tensor.shape[-1] if is_fused and x.feature_tensor is not None else 0
    ranks = [s.metric.points.shape[-1] + 1 + width for s in (x, y) if isinstance(s.metric, LowRankMetric)]
    loss, n_terms = "squares", 1
    if distortion_sum is not None and not isinstance(distortion_sum, SquaredDistortion):
        rank = int(distortion_sum.rank.max())
        loss, n_terms = ("factorized", rank) if rank else ("term-by-term", 1)
    model = MemoryModel(
        n=x.n,
        m=y.n,
        itemsize=x.weight_tensor.element_size(),
        device=x.device,
        path="streaming" if is_streaming else "stored",
        loss=loss,
        n_terms=n_terms,
        ranks=(ranks[0], ranks[1]) if len(ranks) == 2 else None,
    )
    if is_streaming or x.device.type != "cpu" or not size_class(x.n, y.n).uses_compiled_steps:
        return model
    model = replace(model, itemsize=8)  # small problems are solved in float64
    return replace(model, path="compiled") if loss == "squares" and model.has_compiled_steps else model


def model_of(problem: UGW | PartialGW, solver: Any, start: str) -> MemoryModel:
    """Return the `MemoryModel` (sizes, dtype, path) of a problem with all its items.

    solver: one that `check_solver` returned; start: the name of a start.
    """
    is_streaming, is_fused = isinstance(problem, StreamingUGW), problem.cost is not None
    model = model_of_spaces(problem.x, problem.y, problem.distortion_sum, is_streaming=is_streaming, is_fused=is_fused)
    n_plans = n_candidates = n_candidate_plans(start, model.n, model.m)
    if isinstance(problem, PartialGW):
        model = replace(model, path="stored", itemsize=problem.x.weight_tensor.element_size())
        n_plans = n_candidate_plans("best" if start == "auto" else start, model.n, model.m)
        n_candidates = n_partial_candidates(problem, start)
        model = replace(model, has_swaps=problem.has_swaps)
    elif bool(problem.has_vertex_solutions.any()):
        model, size = replace(model, path="stored", has_swaps=model.loss == "squares"), (model.n, model.m)
        n_candidates = max(n_balanced_candidates(start, *size), n_vertices_that_step(start, *size))
    n_random = solver.n - 1 if isinstance(solver, Multistart) else 0
    model = replace(model, n_plans=n_plans + n_random, n_candidates=n_candidates + n_random)
    return replace(model, batch=problem.batch, has_coarse_start=start in COARSE_STARTS)


def conic_model(problem: CGW | PartialCGW, surrogate: UGW, init: Any) -> MemoryModel:
    """Return the `MemoryModel` (sizes, dtype, path) of a conic problem with all its items.

    surrogate: the UGW problem of the same spaces; init: name of the initial plans, or a plan.
    """
    distortion_sum = problem.distortion_sum if isinstance(problem, CGW) else None
    model = model_of_spaces(surrogate.x, surrogate.y, distortion_sum, is_streaming=False, is_fused=False)
    return replace(
        model,
        path="stored",
        loss=model.loss if isinstance(problem, CGW) else "term-by-term",
        itemsize=surrogate.x.weight_tensor.element_size(),
        batch=problem.batch,
        n_candidates=n_conic_candidates(init, model.n, model.m),
        has_coarse_start=False,
    )
