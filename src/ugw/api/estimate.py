"""How much memory and work a solve takes, told before it runs, and how many items of a batch run at a time.

The numbers of plans below are measured peaks of the process, not a count of the tensors in the code: what an
allocator keeps for the next tensor is part of them. docs/performance.md, "Memory", has the measurements.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from .._utils.config import UTILS_CONFIG
from .._utils.cuda_graphs.cache import forget
from .._utils.size_class import THRESHOLDS, size_class
from ..errors import OutOfMemory
from ..geometry.low_rank import LowRankMetric
from ..geometry.space import Space
from ..initializers.config import INITIALIZER_CONFIG
from ..problems.build import Fused, loss_distortion
from ..problems.distortion.base import Distortion
from ..problems.distortion.config import DISTORTION_CONFIG
from ..problems.distortion.squares import SquaredDistortion
from ..problems.ugw import UGW
from ..problems.ugw_streamed import BLOCK, SAMPLED_ENTRIES, StreamingUGW

GIB = 2**30
# Plans in hand while a stored problem is solved: in the dtype of the spaces, and in float64 whatever that is.
PLANS, DOUBLES = 28.0, 3.0
# The former while starts race, which remember less.
RACING = 18.0
# Plans in hand beside these while starts race: those lifted, stacked and picked.
LIFTED = 3 * INITIALIZER_CONFIG.n_prolongated
# Rows of numbers that a streamed problem holds for each point, in float64, and those as wide as its basis.
COLUMNS, BASES = 40.0, 14.0
# Blocks of sampled rows in hand at a time.
BLOCKS = 4.0
# What the process takes for the first solve, however small.
BASE = 8 * 2**20
# The coarse starts of a batch are made with it.
COARSE = ("auto", "best", "coarse")
# A batch that takes more than this is solved in chunks; on CUDA than this share of the free memory.
BUDGET, SHARE = GIB, 0.5
# Chunks have at most so many entries: on a CPU what a step reads again should still be in a cache.
ENTRIES = {"cpu": 2**19, "cuda": 2**28}
# A problem that takes more than so many times the memory there is does not begin.
HOPELESS = 1.2
# One that takes no more bytes than this of a CPU's begins without a look at what there is, which takes a while.
MODEST = 2**27
# The rank of a space that has none yet, where one is suggested.
RANK = 10


@dataclass(frozen=True)
class Estimate:
    """What a solve will take.

    path: "stored", or "streaming" where plans are not kept; bytes: the peak, above what the spaces hold already;
    work: multiply-adds of an outer step of all items with all its inner iterations; together: items solved at a
    time; available: bytes that the device has left, None if unknown; advice: what would fit, "" where it does.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.zeros((50_000, 3)), metric="sqeuclidean")
    >>> e = ugw.estimate(x, x)
    >>> e.path, e.bytes < 8 * 50_000**2  # less than one plan
    ('streaming', True)
    """

    path: str
    bytes: int
    work: float
    together: int
    available: int | None
    advice: str

    @property
    def fits(self) -> bool:
        """Does it, as far as one knows?"""
        return self.available is None or self.bytes <= self.available

    def __repr__(self) -> str:
        room = "unknown" if self.available is None else f"{self.available / GIB:.3g} GiB"
        fits = "fits" if self.fits else f"does not fit: {self.advice}"
        return (
            f"Estimate({self.path}, {self.bytes / GIB:.3g} GiB of {room} available, about {self.work:.1e} "
            f"multiply-adds an outer step, {fits})"
        )


@dataclass(frozen=True, kw_only=True)
class Task:
    """The sizes of a problem that say what it takes.

    starts: plans solved for at a time for each item; start: the name of what makes them; number: bytes of one;
    ranks: of the bases of low-rank spaces, else None; own: does each item have spaces of its own? terms: products
    with the metrics for each plan; fused: is there a linear cost?
    """

    n: int
    m: int
    batch: int
    number: int
    device: torch.device
    streaming: bool
    ranks: tuple[int, int] | None
    own: bool
    terms: int
    fused: bool
    starts: int = 1
    start: str = "auto"

    @classmethod
    def of(cls, problem: UGW, count: int, start: str) -> Task:
        """Of a problem that is solved from so many starts an item."""
        streaming = isinstance(problem, StreamingUGW)
        made = cls._made(
            problem.x, problem.y, problem.distortion_sum, streaming=streaming, fused=problem.cost is not None
        )
        return replace(made, batch=problem.batch, starts=count, start=start)

    @classmethod
    def between(cls, x: Space, y: Space, *, fused: Fused | None, loss: Any, streaming: bool, count: int) -> Task:
        """Of the problem between two spaces, from its default start."""
        distortion_sum = None if loss is None else loss_distortion(x, y, loss)
        made = cls._made(x, y, distortion_sum, streaming=streaming, fused=fused is not None)
        batches = [len(space.weight_tensor) for space in (x, y) if space.batched]
        return replace(made, batch=max(batches, default=1), starts=count)

    @classmethod
    def _made(cls, x: Space, y: Space, distortion_sum: Distortion | None, *, streaming: bool, fused: bool) -> Task:
        width = x.feature_tensor.shape[-1] if fused and x.feature_tensor is not None else 0
        ranks = [s.metric.points.shape[-1] + 1 + width for s in (x, y) if isinstance(s.metric, LowRankMetric)]
        return cls(
            n=x.n,
            m=y.n,
            batch=1,
            number=x.weight_tensor.element_size(),
            device=x.device,
            streaming=streaming,
            ranks=(ranks[0], ranks[1]) if len(ranks) == 2 else None,
            own=x.batched or y.batched,
            terms=1
            if distortion_sum is None or isinstance(distortion_sum, SquaredDistortion)
            else max(1, int(distortion_sum.rank.max())),
            fused=fused,
        )

    # -- memory --------------------------------------------------------------------------------------------

    @property
    def together(self) -> int:
        """Items of a chunk: as many as the budget and the caches allow, but one."""
        if self.batch == 1:
            return 1
        cuda = self.device.type == "cuda"
        room = available(self.device) if cuda else None
        budget = BUDGET if room is None else int(SHARE * room)
        limit = ENTRIES["cuda" if cuda else "cpu"] // (self.starts * self.n * self.m)
        most = self.batch if self.streaming else max(1, min(self.batch, limit))
        fitting = bisect_right(range(1, most + 1), budget, key=self.peak)
        # Chunks of one size: the last is not left with a few items.
        return -(-self.batch // -(-self.batch // max(1, fitting)))

    def total(self, together: int) -> int:
        """The peak of the whole batch in chunks of so many items: their results are kept, then put together."""
        peak = self.peak(together)
        if together >= self.batch:
            return peak
        kept = 2 * self.batch * self._plan
        return max(peak + kept, 2 * kept)

    @property
    def _plan(self) -> int:
        """Bytes of a plan of one item."""
        if not self.streaming:
            return self.n * self.m * self.number
        return int((self.n + self.m) * (3 * 8 + 2 * self.number * max(self.ranks or (RANK,))))

    def peak(self, items: int) -> int:
        """The peak while so many items are solved together."""
        own = (self.n**2 + self.m**2) * self.number if self.ranks is None else 0
        if self.streaming:
            return int(BASE + self._streamed(items))
        spaces = items * own * self.starts if self.own and (self.starts > 1 or items < self.batch) else 0
        squares = min(UTILS_CONFIG.max_block_entries * self.number, max(1, items if self.own else 1) * own // 2)
        terms = (
            min(DISTORTION_CONFIG.max_cached_bytes, self.terms * own) * (items if self.own else 1)
            if self.terms > 1
            else 0
        )
        solve = self._stored(items * self.starts, self.n, self.m) + 2 * self.starts * items * self._plan + spaces
        fixed = BASE + squares + terms + (items * self._plan if self.fused else 0)
        race = 0.0
        if self.start in COARSE:  # in float32 where that is worth it, of copies of the spaces
            shorter = self.number == 8 and self.terms == 1 and size_class(self.n, self.m).has_low_precision_phase
            copies = (items if self.own else 1) * own / 2 if shorter else 0
            race = (replace(self, number=4) if shorter else self)._raced(items, self.n, self.m) + copies
        return int(fixed + max(solve, race))

    def _stored(self, plans: int, n: int, m: int, in_hand: float = PLANS) -> float:
        """While so many plans are solved for, each with so many in hand."""
        return plans * n * m * (in_hand * self.number + 8 * DOUBLES)

    def _raced(self, items: int, n: int, m: int) -> float:
        """While coarse starts are made for so many items."""
        cells = size_class(n, m).n_middle_clusters
        if cells:
            return self._searched(items, min(n, cells), min(m, cells)) + 4 * items * n * m * self.number
        return self._searched(items, n, m)

    def _searched(self, items: int, n: int, m: int) -> float:
        """The same where they are made without cells between."""
        reps = min(n, THRESHOLDS.n_coarse_clusters), min(m, THRESHOLDS.n_coarse_clusters)
        limit = INITIALIZER_CONFIG.max_batch_entries["cuda" if self.device.type == "cuda" else "cpu"]
        peaks = []
        for (rows, cols), count in (
            (reps, INITIALIZER_CONFIG.n_random_candidates + 2),
            ((n, m), INITIALIZER_CONFIG.n_prolongated),
        ):
            plans = min(items * count, max(items, limit // (rows * cols)))
            spaces = plans * (rows**2 + cols**2) * self.number if self.own else 0
            peaks.append(self._stored(plans, rows, cols, RACING) + spaces)
        # Those that wait for their turn, those put together and those that are done.
        waiting = 3 * items * (INITIALIZER_CONFIG.n_random_candidates + 2) * reps[0] * reps[1] * self.number
        return max(peaks[0] + waiting, peaks[1] + LIFTED * items * n * m * self.number)

    def _streamed(self, items: int) -> float:
        """While so many plans that are not stored are solved for."""
        rank = max(self.ranks or (RANK,))
        points = items * (self.n + self.m) * (COLUMNS * 8 + BASES * (8 + self.number) * rank / 2)
        sampled = BLOCKS * self.number * min(BLOCK, SAMPLED_ENTRIES, items * self.n * self.m)
        if self.start not in COARSE:
            return points + sampled
        few = min(self.n, THRESHOLDS.max_stored_sample), min(self.m, THRESHOLDS.max_stored_sample)
        sample = max(self._stored(items, *few), self._raced(items, *few)) + items * sum(k**2 for k in few) * self.number
        return max(points + sampled, points / 2 + sample)

    # -- work ----------------------------------------------------------------------------------------------

    def work(self, inner: int) -> float:
        """Multiply-adds of an outer step with so many inner iterations."""
        pairs = float(self.batch * self.starts * self.n * self.m)
        if self.streaming:
            # Each pass makes every entry again, and the last one multiplies the plan by the basis.
            return pairs * ((2 * inner + 2) * (min(self.ranks or (RANK,)) + 2) + max(self.ranks or (RANK,)) + 1)
        products = self.n + self.m if self.ranks is None or self.terms > 1 else 2 * sum(self.ranks)
        return pairs * (self.terms * products + 2 * inner)

    # -- what it comes to ----------------------------------------------------------------------------------

    def estimate(self, inner: int) -> Estimate:
        """Everything at once, for so many inner iterations an outer step."""
        room, together = available(self.device), self.together
        if self.device.type == "cuda" and room is not None and self.total(together) > room // 2:
            forget()  # what is kept there for others makes way
            room, together = available(self.device), self.together
        needed = self.total(together)
        advice = "" if room is None or needed <= room else self._advice(room)
        path = "streaming" if self.streaming else "stored"
        return Estimate(path, needed, self.work(inner), together, room, advice)

    def _advice(self, room: int) -> str:
        """The options that would fit into so many bytes, with what they need."""
        options = {}
        if not self.streaming and self.terms == 1:
            rank = self.ranks or (RANK, RANK)
            options['low-rank spaces (metric="sqeuclidean") with inner=Sinkhorn(method="streaming")'] = replace(
                self, streaming=True, ranks=rank, starts=1
            )
        if self.number == 8:
            options["float32, Space.to(torch.float32)"] = replace(self, number=4)
        if self.starts > 1 or self.start in COARSE:
            options['one start, without Multistart and with init="product"'] = replace(self, starts=1, start="product")
        if self.batch > 1:
            fewer = bisect_right(range(1, self.batch + 1), room, key=lambda k: replace(self, batch=k).total(1))
            options[f"{fewer} items in a call instead of {self.batch}"] = replace(self, batch=max(1, fewer))
        needs = {name: task.total(task.together) for name, task in options.items()}
        fitting = [f"{name} ({need / GIB:.3g} GiB)" for name, need in needs.items() if need <= room]
        if fitting:
            return "what would fit: " + ", or ".join(fitting)
        share = (room / self.total(1)) ** (1.0 if self.streaming else 0.5)
        return f"what would fit: about {int(share * self.n)} × {int(share * self.m)} points, as a sample of them"


def available(device: torch.device) -> int | None:
    """Bytes that a device has left, None if unknown."""
    if device.type == "cuda":
        stats = torch.cuda.memory_stats_as_nested_dict(device)  # `memory_reserved` would sort all of them, each time
        held, used = (stats.get(f"{name}_bytes", {}).get("all", {}) for name in ("reserved", "allocated"))
        return torch.cuda.mem_get_info(device)[0] + held.get("current", 0) - used.get("current", 0)
    if device.type != "cpu":
        return None
    known = [left for left in (_system(), _container()) if left is not None]
    return min(known, default=None)


def _system() -> int | None:
    """What the machine has left: what Linux says is available, elsewhere what is free."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass  # another system
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def _container() -> int | None:
    """What the limit of a container leaves, None without one."""
    try:
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text("ascii")) for name in ("max", "current"))
    except (OSError, ValueError):  # no such limit
        return None
    return max(0, limit - used)


# -- when it does not fit ----------------------------------------------------------------------------------


def check(task: Task, inner: int) -> None:
    """Raise at once what would run out of memory for certain, with so many inner iterations an outer step."""
    if task.device.type == "cpu" and task.total(task.together) <= MODEST:
        return
    needed = task.estimate(inner)
    if needed.available is not None and needed.bytes > HOPELESS * needed.available:
        raise OutOfMemory(_told(needed))


@contextmanager
def guard(describe: Callable[[], Estimate]) -> Iterator[None]:
    """Turn an allocation that failed inside into one error that says what would fit."""
    try:
        yield
    except OutOfMemory:
        raise
    except (MemoryError, RuntimeError) as error:
        if not _is_allocation(error):
            raise
        forget()  # for the next try
        raise OutOfMemory(_told(describe())) from error


def _is_allocation(error: Exception) -> bool:
    # torch has a class for CUDA alone; on a CPU there is but a text.
    known = MemoryError, torch.OutOfMemoryError
    return isinstance(error, known) or "DefaultCPUAllocator" in str(error) or "_ALLOC_FAILED" in str(error)


def _told(needed: Estimate) -> str:
    room = "an unknown amount" if needed.available is None else f"{needed.available / GIB:.3g} GiB"
    advice = needed.advice or "what would fit: smaller problems, float32, or fewer items in a call"
    return f"out of memory: {needed.path} plans need about {needed.bytes / GIB:.3g} GiB, {room} available; {advice}"
