"""Memory and work of a solve, estimated before it runs, and the number of batch items that are solved at a time."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Any

import torch

from .._utils.deprecation import renamed_attribute
from .._utils.device_memory import available_bytes
from .._utils.size_class import THRESHOLDS, size_class
from ..geometry.low_rank import LowRankMetric
from ..geometry.space import Space
from ..initializers.coarse import fine_rounds
from ..initializers.config import INITIALIZER_CONFIG
from ..initializers.multistart import Multistart, base_solver, check_solver
from ..initializers.select import n_solved_candidates
from ..kernels.cpu import native
from ..problems.build import Fused, check_fused, check_spaces, common_batch_size, loss_distortion, uses_streaming
from ..problems.distortion.base import Distortion
from ..problems.distortion.config import DISTORTION_CONFIG
from ..problems.distortion.squares import SquaredDistortion
from ..problems.distortion.term_by_term import TermByTermDistortion
from ..problems.ugw import UGW
from ..problems.ugw_streamed import StreamingUGW
from ..solvers.alternating import DEFAULT_SOLVER, AlternateMin
from .config import API_CONFIG

GIB = 2**30
# Names of the starts that are chosen among candidates on a coarse problem.
COARSE_STARTS = ("auto", "best", "coarse")


@dataclass(frozen=True)
class Estimate:
    """The memory and work that a solve will take.

    path: "stored", or "streaming" if plans are not stored; bytes: the peak, on top of what the spaces hold already;
    work: multiply-adds of one outer step of all items with all its inner iterations; chunk_size: items solved at a
    time; available: bytes that the device has left, None if unknown; advice: what would fit, "" if this does.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.zeros((50_000, 3)), metric="sqeuclidean")
    >>> e = ugw.estimate(x, x)
    >>> e.path, e.bytes < 8 * 50_000**2  # less than one plan
    ('streaming', True)
    """

    path: str
    bytes: int
    work: float
    chunk_size: int
    available: int | None
    advice: str

    together = renamed_attribute("Estimate", "together", "chunk_size")

    @property
    def fits(self) -> bool:
        """Whether `bytes` is at most `available`; True if that is unknown."""
        return self.available is None or self.bytes <= self.available

    @property
    def message(self) -> str:
        """What is needed and what there is; if it does not fit, what would."""
        return f"fits: {self._needs}" if self.fits else self.error_message

    @property
    def error_message(self) -> str:
        """The message of an OutOfMemory error, which an allocation may cause although the estimate fits."""
        advice = self.advice or "what would fit: smaller problems, float32, or fewer items in a call"
        return f"out of memory: {self._needs}; {advice}"

    @property
    def _needs(self) -> str:
        """The memory that is needed and that is available, in words."""
        needed, available = self._amounts
        return f"{self.path} plans need about {needed}, {available or 'an unknown amount'} available"

    @property
    def _amounts(self) -> tuple[str, str | None]:
        """The memory needed and available, in GiB to 3 digits, or more if the two differ only there; None: unknown."""
        if self.available is None:
            return f"{self.bytes / GIB:.3g} GiB", None
        needed, available = self.bytes / GIB, self.available / GIB
        n_digits = next((k for k in range(3, 17) if f"{needed:.{k}g}" != f"{available:.{k}g}"), 3)
        return f"{needed:.{n_digits}g} GiB", f"{available:.{n_digits}g} GiB"

    def __repr__(self) -> str:
        """Return one line: path, memory, work, and whether it fits."""
        needed, available = self._amounts
        fits = "fits" if self.fits else f"does not fit: {self.advice}"
        return (
            f"Estimate({self.path}, {needed} of {available or 'unknown'} available, about {self.work:.1e} "
            f"multiply-adds an outer step, {fits})"
        )


def estimate(
    x: Space, y: Space, *, fused: Fused | None = None, loss: Any = None, solver: AlternateMin | Multistart | None = None
) -> Estimate:
    """Return the memory and work that `solve` with the same arguments and its default start will need.

    The memory is between one and two times the measured peak, apart from freed blocks that the allocator keeps. rho and
    eps count as numbers: arrays of them make a batch, which unbatched spaces do not show.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.random.default_rng(0).random((2000, 3)))
    >>> e = ugw.estimate(x, x)
    >>> e.path, 0.5 < e.bytes / 2**30 < 2
    ('stored', True)
    """
    solver = check_solver(solver, DEFAULT_SOLVER)
    check_spaces(x, y)
    check_fused(fused)
    batch = common_batch_size({"the first space": x.weight_tensor[..., 0], "the second space": y.weight_tensor[..., 0]})
    inner = base_solver(solver).inner
    is_streaming = uses_streaming(x, y, fused=fused, loss=loss, method=inner.method)
    distortion_sum = None if loss is None else loss_distortion(x, y, loss)
    model = _model(x, y, distortion_sum, is_streaming=is_streaming, is_fused=fused is not None)
    return replace(model, batch=batch or 1, n_plans=n_candidates("auto", solver)).estimate(inner.max_iter)


def n_candidates(start: str, solver: Any) -> int:
    """Return how many plans (n, m) are solved for together for one item: candidates of the start and of Multistart."""
    return n_solved_candidates(start) + (solver.n - 1 if isinstance(solver, Multistart) else 0)


@dataclass(frozen=True, kw_only=True)
class MemoryModel:
    """The sizes of a problem, from which its peak memory, chunk size and work are estimated.

    itemsize: bytes of a number; path: how costs are computed, "dense", "streaming", "term-by-term", "factorized" or
    "conic"; n_terms: terms of a factorized loss or kernel, else 1; ranks: columns of the bases of two low-rank spaces,
    else None; batch: number of items; n_plans: plans solved for together for each item; has_coarse_start: whether the
    start is chosen among candidates on a coarse problem.
    """

    n: int
    m: int
    itemsize: int
    device: torch.device
    path: str
    n_terms: int
    ranks: tuple[int, int] | None
    batch: int = 1
    n_plans: int = 1
    has_coarse_start: bool = True

    def peak_bytes(self, items: int) -> int:
        """Return the estimated peak, in bytes, while `items` items are solved together."""
        factors = API_CONFIG.memory
        if self.path == "streaming":
            n, m = (min(size, THRESHOLDS.max_stored_sample) for size in (self.n, self.m))
            return int(items * self._points_bytes() + replace(self, path="dense", n=n, m=m).peak_bytes(items))
        plans = items * self.n_plans * self.n * self.m
        allocated = factors.dense * (factors.batch if items > 1 and not self._is_compiled else 1.0) * plans
        needed = max(allocated * self.itemsize, self._search_bytes(items)) + self._loss_bytes(items)
        return int(factors.base_bytes + needed)

    def total_bytes(self, chunk_size: int) -> int:
        """Return the estimated peak, in bytes, if the batch is solved `chunk_size` items at a time.

        It includes the last two plans of all items, which the result holds.
        """
        results = 2 * self.batch * self._plan_bytes() if chunk_size < self.batch else 0
        return int(max(self.peak_bytes(chunk_size) + results, 2 * results))

    def _plan_bytes(self) -> float:
        """Return the bytes of the plan of one item: of a stored matrix, or of potentials and low-rank factors."""
        return self.n * self.m * self.itemsize if self.path != "streaming" else self._points_bytes() / 4

    def _points_bytes(self) -> float:
        """Return the bytes of all vectors (n,) and (m,) that a streaming problem holds for one item."""
        return API_CONFIG.memory.streaming * 8 * (self.n + self.m) * (max(self._ranks()) + 3)

    def _ranks(self) -> tuple[int, int]:
        """Return `ranks`, or `suggested_rank` for both spaces if it is None."""
        return self.ranks or (API_CONFIG.suggested_rank,) * 2

    @property
    def _has_compiled_search(self) -> bool:
        """Whether the compiled CPU library searches the initial plans."""
        return self.path == "dense" and self.device.type == "cpu" and native.is_available()

    @property
    def _is_compiled(self) -> bool:
        """Whether the compiled CPU library also makes the steps from there."""
        return self._has_compiled_search and self._has_compiled_sums

    @property
    def _has_compiled_sums(self) -> bool:
        """Whether the compiled CPU library sums a factorized loss, one term after the other."""
        is_small = self.itemsize == 8 and size_class(self.n, self.m).uses_compiled_steps
        return is_small and self.device.type == "cpu" and native.is_available()

    def _search_levels(self, items: int) -> list[tuple[int, int]]:
        """Return the plan entries of one candidate of `items` items and the number of candidates, by level.

        The levels are those of the search for a start: clusters, then all points or the middle level. The list is empty
        without a coarse start.
        """
        if not self.has_coarse_start:
            return []
        fine_side = size_class(self.n, self.m).n_middle_clusters or max(self.n, self.m)
        n_coarse, n_fine = INITIALIZER_CONFIG.n_random_candidates + 2, INITIALIZER_CONFIG.coarse_rounds[-1][1] + 1
        levels = ((THRESHOLDS.n_coarse_clusters, n_coarse), (fine_side, n_fine))
        return [(items * min(self.n, side) * min(self.m, side), count) for side, count in levels]

    def _running_entries(self, entries: int, count: int) -> int:
        """Return how many of the plan entries of `count` candidates are in one batch. entries: of one candidate."""
        limits = INITIALIZER_CONFIG.max_batch_entries
        limit = limits.get(self.device.type, limits["cpu"])
        return min(count, max(1, limit // max(1, entries))) * entries

    def _search_bytes(self, items: int) -> float:
        """Return the bytes that the search for a start of `items` items takes, before their plans are solved."""
        levels, factors = self._search_levels(items), API_CONFIG.memory
        if not levels:
            return 0.0
        fine_entries, n_fine = levels[1]
        if self._has_compiled_search:
            running = min(items, torch.get_num_threads()) / items
            return 8 * fine_entries * (factors.searched_items + factors.compiled_search * running)
        coarse_entries, n_coarse = levels[0]
        # A first round that only evaluates plans takes less memory than steps of those that survive it.
        rounds = fine_rounds(self.n, self.m)
        n_compared = rounds[0][1] if rounds[0][0] == 0 else n_fine
        n_continued = INITIALIZER_CONFIG.coarse_rounds[0][1]  # all others make one step
        coarse = max(
            factors.candidate_first_step * self._running_entries(coarse_entries, n_coarse),
            factors.candidate_steps * self._running_entries(coarse_entries, n_continued),
        )
        fine = max(
            factors.candidate_values * self._running_entries(fine_entries, n_fine),
            factors.candidate_steps * self._running_entries(fine_entries, n_compared),
        )
        stored = [factors.stored_candidates * count * entries for entries, count in levels]
        itemsize = 4 if size_class(self.n, self.m).has_low_precision_phase else self.itemsize
        return itemsize * max(stored[0] + coarse, stored[1] + fine)

    def _loss_bytes(self, items: int) -> float:
        """Return the bytes of the terms of a loss or conic kernel, and of the construction of their factors."""
        factors = API_CONFIG.memory
        fit_bytes = factors.fit_bytes if self.n * self.m > DISTORTION_CONFIG.max_exact_plan else 0
        if self.path == "term-by-term":
            terms = min(DISTORTION_CONFIG.block_terms, items * (self.n * self.m) ** 2)
            return fit_bytes + factors.terms * terms * self.itemsize
        if self.path not in ("factorized", "conic"):
            return 0.0
        running = [self._running_entries(*level) for level in self._search_levels(items)]
        running.append(items * self.n_plans * self.n * self.m)
        if self.path == "factorized" and self._has_compiled_sums:
            running = [0]
        if self.path == "conic":
            n_noise = size_class(self.n, self.m).n_noise_candidates
            running.append(items * n_noise * self.n * self.m)
        entries = factors.factorized * max(running) + factors.factorized_metrics * items * (self.n**2 + self.m**2)
        return fit_bytes + min(self.n_terms * entries * self.itemsize, DISTORTION_CONFIG.max_cached_bytes)

    @property
    def chunk_size(self) -> int:
        """Number of items to solve at a time: as many as the limits of `API_CONFIG` on bytes and entries allow."""
        is_cuda = self.device.type == "cuda"
        most = API_CONFIG.max_chunk_entries_cuda if is_cuda else API_CONFIG.max_chunk_entries_cpu
        fitting = self.batch if self.path == "streaming" else most // (self.n_plans * self.n * self.m)
        if not is_cuda:
            counts = range(1, self.batch + 1)
            fitting = min(fitting, bisect_right(counts, API_CONFIG.max_chunk_bytes, key=self.peak_bytes))
        # Chunks of equal size, so that the last one is not left with a few items.
        return -(-self.batch // -(-self.batch // max(1, min(self.batch, fitting))))

    def work(self, n_inner: int) -> float:
        """Return the multiply-adds of one outer step of all items with `n_inner` inner iterations."""
        entries = float(self.batch * self.n_plans * self.n * self.m)
        if self.path == "streaming":
            # Each pass computes every entry again, and the last one multiplies the plan by the basis.
            return entries * ((2 * n_inner + 2) * (min(self._ranks()) + 2) + max(self._ranks()) + 1)
        products = self.n + self.m if self.ranks is None or self.n_terms > 1 else 2 * sum(self.ranks)
        return entries * (self.n_terms * products + 2 * n_inner)

    def estimate(self, n_inner: int) -> Estimate:
        """Return the memory, work and advice for the whole batch; n_inner: inner iterations of an outer step."""
        available, needed = available_bytes(self.device), self.total_bytes(self.chunk_size)
        advice = "" if available is None or needed <= available else self._advice(available)
        path = "streaming" if self.path == "streaming" else "stored"
        return Estimate(path, needed, self.work(n_inner), self.chunk_size, available, advice)

    def _advice(self, available: int) -> str:
        """Return the part of an error message that names changes with which the problem would fit.

        Each change is given with the memory it needs, in GiB. If no change is enough, numbers of points are given.
        available: bytes.
        """
        options = {}
        if self.path == "dense":
            low_rank = 'Space.from_points with metric="sqeuclidean" or tol=, or Space.compressed(tol)'
            name = f'low-rank spaces ({low_rank}) with inner=Sinkhorn(method="streaming")'
            options[name] = replace(self, path="streaming", ranks=self._ranks(), n_plans=1)
        if self.itemsize == 8:
            options["float32, Space.to(torch.float32)"] = replace(self, itemsize=4)
        if self.n_plans > 1 or self.has_coarse_start:
            name = 'one start, without Multistart and with init="product"'
            options[name] = replace(self, n_plans=1, has_coarse_start=False)
        if self.batch > 1:
            count = max(1, int(available / self.total_bytes(1) * self.batch))
            options[f"{count} items in a call instead of {self.batch}"] = replace(self, batch=count)
        needs = {name: model.total_bytes(model.chunk_size) for name, model in options.items()}
        fitting = [f"{name} ({need / GIB:.3g} GiB)" for name, need in needs.items() if need <= available]
        if fitting:
            return "what would fit: " + ", or ".join(fitting)
        share = (available / self.total_bytes(1)) ** (1.0 if self.path == "streaming" else 0.5)
        return f"what would fit: about {int(share * self.n)} × {int(share * self.m)} points, as a sample of them"


def model_of(problem: UGW, n_plans: int, start: str) -> MemoryModel:
    """Return the memory model of a problem. n_plans: plans solved for per item; start: the name of the start."""
    is_streaming, is_fused = isinstance(problem, StreamingUGW), problem.cost is not None
    model = _model(problem.x, problem.y, problem.distortion_sum, is_streaming=is_streaming, is_fused=is_fused)
    return replace(model, batch=problem.batch, n_plans=n_plans, has_coarse_start=start in COARSE_STARTS)


def _model(x: Space, y: Space, distortion_sum: Distortion | None, *, is_streaming: bool, is_fused: bool) -> MemoryModel:
    """Return the memory model of one item between two spaces; distortion_sum: that of the loss, None for t²."""
    width = x.feature_tensor.shape[-1] if is_fused and x.feature_tensor is not None else 0
    ranks = [s.metric.points.shape[-1] + 1 + width for s in (x, y) if isinstance(s.metric, LowRankMetric)]
    path, n_terms = "streaming" if is_streaming else "dense", 1
    if distortion_sum is not None and not isinstance(distortion_sum, SquaredDistortion):
        path = "term-by-term" if isinstance(distortion_sum, TermByTermDistortion) else "factorized"
        n_terms = max(1, int(distortion_sum.rank.max()))
    itemsize = x.weight_tensor.element_size()
    if not is_streaming and x.device.type == "cpu" and size_class(x.n, y.n).uses_compiled_steps:
        itemsize = 8  # small problems are solved in float64
    return MemoryModel(
        n=x.n,
        m=y.n,
        itemsize=itemsize,
        device=x.device,
        path=path,
        n_terms=n_terms,
        ranks=(ranks[0], ranks[1]) if len(ranks) == 2 else None,
    )
