"""Steps on CUDA: captured as CUDA graphs, several between two synchronizations in runs without a monitor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from torch import Tensor

from .._utils.cuda_graphs.captured_step import CapturedStep, CaptureProperties
from .._utils.cuda_graphs.config import CAPTURE_CONFIG
from ..kernels.dispatch import select_backend
from ..results.records import StepBackend
from . import loop
from .config import SOLVER_CONFIG
from .monitor import Monitor

Advance = Callable[..., tuple[Any, Any]]


def iterate_on_cuda(
    functions: tuple[Advance, Callable[..., Tensor]],
    settings: Any,
    iterate: Any,
    rules: loop.Rules,
    monitor: Monitor | None,
) -> loop.Outcome:
    """Return the outcome of a run on CUDA by steps captured as CUDA graphs: final iterate, status, n_iter, history.

    functions: `alternating.advance` and `alternating.requested_rounds`; settings: of the run; iterate: before the first
    step; rules: those on a CPU; here one step of the loop may be several, and batches have only a few sizes.
    """
    advance, requested_rounds = functions
    n_steps = _steps_per_check(settings, iterate, rules)
    step = CapturedStep(_repeat(advance, n_steps), requested_rounds, capture_properties)
    items_to_keep = step.batch_sizes(settings, iterate)
    rules = replace(rules, max_iter=rules.max_iter // n_steps, items_to_keep=items_to_keep)
    outcome = loop.iterate(step, settings, iterate, rules, monitor)
    backend = outcome.backend
    if step.has_replayed_graph:
        backend |= StepBackend.CUDA_GRAPHS
    if uses_triton(iterate.state.unit_plan):
        backend |= StepBackend.TRITON
    return replace(outcome, state=step.release(outcome.state), n_iter=n_steps * outcome.n_iter, backend=backend)


def uses_triton(plan: Any) -> bool:
    """Return whether Triton, not torch, computes sums over the entries of `plan`, stored or implicit, (B, n, m)."""
    if isinstance(plan, Tensor):
        return select_backend("dot", plan, plan).module.startswith("triton.")
    return select_backend("streaming_logsumexp", plan.log_plan.left).module.startswith("triton.")


def capture_properties(settings: Any, iterate: Any) -> CaptureProperties:
    """Return whether a step can be captured and run without synchronizing, and the plan entries of batch and item."""
    plan = iterate.state.unit_plan
    is_sync_free = settings.problem.has_stored_squares and isinstance(plan, Tensor) and plan.is_cuda
    # An incremental update of the local cost synchronizes to read how far the plan has moved.
    is_capturable = is_sync_free and iterate.state.drift is None
    return CaptureProperties(is_capturable, is_sync_free, plan.shape.numel(), plan.shape[1:].numel())


def _steps_per_check(settings: Any, iterate: Any, rules: loop.Rules) -> int:
    """Return the number of steps between two checks of convergence: above 1 for a small unmonitored problem only.

    Then it is the largest divisor of `rules.max_iter` up to `max_unchecked_steps`. A batch that keeps the GPU busy
    synchronizes after each step. Items that converge early may therefore end at a slightly different plan than alone.
    """
    plan = iterate.state.unit_plan
    is_small = isinstance(plan, Tensor) and plan.numel() <= CAPTURE_CONFIG.busy_entries
    if settings.is_monitored or not is_small or rules.max_iter_per_item is not None:
        return 1
    return max(count for count in range(1, SOLVER_CONFIG.max_unchecked_steps + 1) if rules.max_iter % count == 0)


@cache
def _repeat(advance: Advance, n_steps: int) -> Advance:
    """Return a function that makes `n_steps` steps by `advance` and returns the last iterate and its report.

    advance: makes one step, (settings, iterate, n_rounds) → (iterate, report); the function has the same arguments. A
    report has status and numbers (objective, ...). Captured graphs are found by their function, so results are cached:
    equal arguments give the same object.
    """
    if n_steps == 1:
        return advance

    def advance_repeatedly(settings: Any, iterate: Any, n_rounds: int | None = None) -> tuple[Any, Any]:
        """Return the iterate, and status and numbers, after `n_steps` steps, of which only the last is checked."""
        report = None
        for n_left in reversed(range(n_steps)):
            iterate, report = advance(settings, iterate, n_rounds, is_checked=n_left == 0)
        return iterate, report

    return advance_repeatedly
