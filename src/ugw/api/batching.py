"""Batches: items grouped by the way they are solved, groups divided into chunks that fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from .._utils.device_memory import is_allocation_error, release_cached_memory
from .._utils.pytree import take
from .._utils.size_class import UGW_CHOICES, group_by_size
from ..errors import OutOfMemory
from ..initializers.multistart import Multistart, base_solver
from ..problems.base import SpacePair
from ..problems.partial.gw import PartialGW
from ..problems.ugw import UGW
from ..results.records import SolverOutput
from ..solvers.monitor import Monitor
from .config import API_CONFIG
from .estimate import estimate_of
from .memory import COARSE_STARTS, MemoryModel, model_of

# The indices (k,) of items that are solved in one way, and their start: a name, or plans (B, n, m) of the whole batch.
Group = tuple[Tensor, Any]
# Solves the items `index` (None: all of them) from a start, reporting to a monitor, if there is one, that may have seen
# steps before.
SolveItems = Callable[[Tensor | None, Any, Monitor | None], SolverOutput]


def group_items(problem: SpacePair, start: Any, choices: Sequence[str]) -> list[Group]:
    """Return groups (indices (k,) of batch items, `start`), each item in one; those of a group are solved in one way.

    `start` is the argument, unchanged, in all of them. An item is grouped by its size without padding, so that it gets
    the result that it would get in a call of its own. choices: the fields of `SizeClass` in which the items of a group
    must agree.
    """
    if problem.batch == 1:
        return [(torch.zeros(1, dtype=torch.long, device=problem.eps.device), start)]
    groups = group_by_size(problem.sizes or ((problem.x.n, problem.y.n),), choices)
    return [(torch.tensor(items, device=problem.eps.device), start) for items in groups]


def group_ugw_items(problem: UGW, start: Any) -> list[Group]:
    """Return groups (indices (k,) of items, start) of a UGW problem with stored plans, each solved in one way.

    These are the groups of `group_items`, divided further. Where the start is "auto", items whose eps is at
    least 0.7 of the mean distortion, so that they have one local minimum, start from "product". Items that end at a
    vertex are solved apart, because they alternate for fewer steps, and so are those whose loss may be infinite,
    because their plans keep zeros.
    """
    groups = group_items(problem, start, UGW_CHOICES)
    if isinstance(start, str) and start == "auto":
        is_easy = problem.eps >= API_CONFIG.single_minimum_eps_share * problem.scale()
        groups = divide_groups(groups, is_easy, "product")
    groups = divide_groups(groups, problem.has_vertex_solutions)
    if problem.keeps_zeros:
        groups = divide_groups(
            groups, problem.distortion_sum.infinite_items.to(problem.eps.device).expand(problem.batch)
        )
    return groups


def divide_groups(groups: list[Group], condition: Tensor, start: Any = None) -> list[Group]:
    """Return the groups (item indices, start), each split into the items where `condition` (B,) is false and true.

    The part where it is false comes first; empty parts are left out. start: the initial plans (B, n, m) or their name
    for the items where it is true, None for that of their group.
    """
    if not bool(condition.any()):
        return groups
    parts = []
    for items, own_start in groups:
        holds = condition[items]
        parts += [(items[~holds], own_start), (items[holds], own_start if start is None else start)]
    return [part for part in parts if len(part[0])]


def checked_chunk_size(problem: UGW | PartialGW, starts: Sequence[Any], solver: Any) -> int:
    """Return the number of batch items to solve at a time, so that they fit into memory; may raise OutOfMemory.

    starts: names of starts or initial plans, one for each group of items; solver: one that `check_solver` returned.
    """
    entries = problem.batch * problem.x.n * problem.y.n
    if entries <= API_CONFIG.max_unmodeled_entries and not isinstance(solver, Multistart):
        return problem.batch
    # The start that takes the most memory; a plan given by the caller takes as much as the product plan.
    names = (start for start in starts if isinstance(start, str))
    name = max(names, key=COARSE_STARTS.__contains__, default="product")
    return check_memory(model_of(problem, solver, name))


def check_memory(model: MemoryModel) -> int:
    """Return the number of batch items to solve at a time, from a model of the memory that a problem needs.

    Raises OutOfMemory for a CPU solve whose estimate exceeds the available memory; a CUDA solve may always try.
    """
    if model.device.type == "cpu" and model.total_bytes(model.chunk_size) > API_CONFIG.max_unchecked_bytes:
        needed = estimate_of(model, n_inner=1)
        if needed.available is not None and needed.bytes > API_CONFIG.max_overcommit * needed.available:
            raise OutOfMemory(needed.error_message)
    return model.chunk_size


def solve_in_chunks(
    problem: SpacePair, solver: Any, groups: list[Group], chunk_size: int, solve_items: SolveItems
) -> SolverOutput:
    """Return the `SolverOutput` (plans, terms, status, ...) of all items in order, solved in chunks of the groups.

    A chunk has at most `chunk_size` items of a group and is halved if it does not fit on a CUDA device. One monitor
    sees all chunks, so that steps are counted across them. True from a callback stops the whole run: the items of
    chunks that had not begun take one step from their given plan, or from the product plan, the cheapest start, in
    place of one with a name, and are STOPPED too.
    """
    chunks = [(chunk, start) for items, start in groups for chunk in _split_items(items, chunk_size)]
    parts, order = [], []
    with base_solver(solver).monitoring(len(chunks), numpy=problem.numpy) as monitor:
        while chunks:
            index, start = chunks.pop(0)
            is_whole = len(index) == problem.batch  # nothing is copied then
            # A given plan stays: it is as cheap, and where the loss is infinite the product plan has no finite value.
            is_stopped = monitor is not None and monitor.stopped and isinstance(start, str)
            init = "product" if is_stopped else start if is_whole else take(start, index)
            try:
                parts.append(solve_items(None if is_whole else index, init, monitor))
                order.append(index)
                continue
            except torch.OutOfMemoryError:
                if len(index) == 1:
                    raise
            release_cached_memory()
            chunks = [(half, start) for half in index.split(-(-len(index) // 2))] + chunks
    return parts[0] if len(parts) == 1 else take(SolverOutput.concatenate(parts), torch.cat(order).argsort())


def _split_items(items: Tensor, chunk_size: int) -> tuple[Tensor, ...]:
    """Return the indices `items` (k,), in order, split into parts of at most `chunk_size`."""
    return (items,) if len(items) <= chunk_size else items.split(chunk_size)


@contextmanager
def explain_allocation_errors(describe: Callable[[], str]) -> Iterator[None]:
    """Raise OutOfMemory with the message `describe()` in place of an allocation error inside the `with` block.

    Captured CUDA graphs and cached device memory are freed first.
    """
    try:
        yield
    except OutOfMemory:
        raise
    except (MemoryError, RuntimeError) as error:
        if not is_allocation_error(error):
            raise
        release_cached_memory()  # for the next attempt
        raise OutOfMemory(describe()) from error
