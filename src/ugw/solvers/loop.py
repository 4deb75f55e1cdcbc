"""The loop of all iterative solvers: stopping, history, progress, non-finite steps, synchronization, compaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from .._utils.pytree import clone, put_, take, where
from ..results.records import Status, StepBackend


@dataclass(frozen=True)
class Report:
    """Status and diagnostics (objective, plan change, residual, mass) of a step.

    status: (B,), codes of `Status`, RUNNING to go on; diagnostics: by name, (B,) each.
    """

    status: Tensor
    diagnostics: dict[str, Tensor] = field(default_factory=dict)


class StepObserver(Protocol):
    """A function called after each checked step, for a progress bar or a user's callback."""

    def __call__(self, numbers: dict[str, Tensor], n_running: int) -> bool:
        """Return True to stop the run. numbers: objective, change, ... by name, (n_running,), less non-finite items."""
        ...


@dataclass(frozen=True)
class Outcome:
    """The end of a loop: final state, status codes (B,), number of steps (B,), and the monitored numbers of every step.

    trace: for every step the indices (k,) of the items in the batch at that step, and their numbers (k, columns);
    backend: the `StepBackend` code of what computed the steps; values: the terms of the objective of the final plan and
    its relaxed value, F(p, q) with the plan q before, (B,) each; None if they were not computed.
    """

    state: Any
    status: Tensor
    n_iter: Tensor
    trace: list[tuple[Tensor, Tensor]]
    backend: int = StepBackend.TORCH
    values: tuple[Any, Tensor] | None = None

    def continued_by(self, second: Outcome) -> Outcome:
        """Return the joint outcome of this run and a second one that continued it: state of the second, steps of both.

        Numbers of steps are added and traces joined. Items with the status STOPPED in this run keep it.
        """
        was_stopped = self.status == Status.STOPPED
        return replace(
            second,
            status=torch.where(was_stopped, int(Status.STOPPED), second.status),
            n_iter=self.n_iter + second.n_iter,
            trace=self.trace + second.trace,
            backend=self.backend | second.backend,
        )

    def expand_to_batch(self, index: Tensor, initial: Any) -> Outcome:
        """Return the outcome for a whole batch if this is the outcome of its items `index`, (k,), run alone.

        initial: the state of the whole batch before. All other items keep it, with the status RUNNING and 0 steps.
        """
        state, n_iter = clone(initial), torch.zeros_like(initial.residual, dtype=self.n_iter.dtype)
        put_(state, index, self.state)
        return Outcome(
            state=state,
            status=torch.full_like(n_iter, int(Status.RUNNING)).index_copy(0, index, self.status),
            n_iter=n_iter.index_copy(0, index, self.n_iter),
            trace=[(index[items], numbers) for items, numbers in self.trace],
            backend=self.backend,
        )

    def table(self) -> Tensor:
        """Return the numbers that every step reported, (B, steps, columns), NaN after the end of an item.

        The columns of all outer solvers are objective, relaxed objective, change, residual and mass.
        """
        batch = len(self.status)
        if all(len(items) == batch for items, _ in self.trace):  # the batch was never compacted
            return torch.stack([numbers for _, numbers in self.trace], dim=1)
        shape = (batch, len(self.trace), self.trace[0][1].shape[1])
        table = torch.full(shape, torch.nan, dtype=torch.float64, device=self.status.device)
        for step, (items, numbers) in enumerate(self.trace):
            table[items, step] = numbers
        return table


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules of a loop: when to stop, how often to check, and when to compact the batch.

    max_iter_per_item: (B,), the most steps of each item if they differ, from 1 to `max_iter`; `check_every` is 1 then;
    items_to_keep: function from the number of running items to the number of items to keep, ended ones among them; the
    others are dropped once that number is below the share `compact_at` of the items in the batch; keeps_history: are
    the numbers of every step kept?
    """

    max_iter: int
    max_iter_per_item: Tensor | None = None
    check_every: int = 1
    compact_at: float = 1.0
    items_to_keep: Callable[[int], int] = int
    keeps_history: bool = True


def iterate(
    step: Callable[[Any, Any], tuple[Any, Any]],
    context: Any,
    state: Any,
    rules: Rules,
    observer: StepObserver | None = None,
) -> Outcome:
    """Repeat `state, report = step(context, state)` until no item is RUNNING; return state, status, n_iter and trace.

    report: a `Report`, the status and the diagnostics (such as the objective) of the step, by name. The state of an
    item is fixed at the step that ended it, so its result does not depend on the other items of the batch; it costs no
    more time once the batch is compacted. A step with non-finite numbers is undone. `context` (the problem) and `state`
    have a method `take`, and `state` a tensor `residual` (B,), for batch size and device.
    """
    items = torch.arange(len(state.residual), device=state.residual.device)  # the items that the tensors hold now
    is_running = torch.ones_like(items, dtype=torch.bool)
    status, n_iter = torch.full_like(items, int(Status.RUNNING)), torch.zeros_like(items)
    final, trace = None, []
    for iteration in range(1, rules.max_iter + 1):
        new, report = step(context, state)
        if iteration % rules.check_every and iteration < rules.max_iter:
            state = new
            continue
        rows = torch.stack(list(report.diagnostics.values()), dim=1)
        is_last = iteration >= (rules.max_iter if rules.max_iter_per_item is None else rules.max_iter_per_item[items])
        code = _final_codes(report.status, rows, is_last=is_last)
        is_valid = is_running & (code != Status.NON_FINITE)  # a step that is undone has no history
        if rules.keeps_history:
            trace.append((items, torch.where(is_valid[:, None], rows.double(), torch.nan)))
        if observer is not None:
            numbers = {name: values[is_valid] for name, values in report.diagnostics.items()}
            if observer(numbers, int(is_running.sum())):
                code = torch.where(code == Status.RUNNING, int(Status.STOPPED), code)
        has_ended = is_running & (code != Status.RUNNING)
        if not bool(has_ended.any()):
            state = new
            continue
        is_non_finite = code == Status.NON_FINITE
        any_non_finite = bool((has_ended & is_non_finite).any())
        last_finite = where(is_non_finite, state, new) if any_non_finite else new
        ended = has_ended.nonzero()[:, 0]  # once, because a GPU would synchronize for every use of a mask
        status[items[ended]] = code[ended]
        n_iter[items[ended]] = iteration - is_non_finite[ended].to(n_iter.dtype)
        is_running = is_running & ~has_ended
        if final is None and not bool(is_running.any()) and len(items) == len(status):
            return Outcome(last_finite, status, n_iter, trace)
        final = clone(state) if final is None else final
        put_(final, items[ended], take(last_finite, ended))
        state = new
        if not bool(is_running.any()):
            break
        n_kept = rules.items_to_keep(int(is_running.sum()))
        if any_non_finite or n_kept < rules.compact_at * len(items):
            # A non-finite item is not kept: each of its next steps would be non-finite too.
            order = (2 * is_running.to(torch.int8) - is_non_finite.to(torch.int8)).argsort(descending=True, stable=True)
            chosen = order[: min(n_kept, int((~is_non_finite).sum()))]
            context, state = take(context, chosen), take(state, chosen)
            items, is_running = items[chosen], is_running[chosen]
    return Outcome(final, status, n_iter, trace)


def _final_codes(code: Tensor, rows: Tensor, *, is_last: bool | Tensor) -> Tensor:
    """Return the status codes (B,) of a step, with NON_FINITE where a number is not finite, MAX_ITER at the last step.

    code: (B,), codes that the step reported; rows: (B, k), its numbers; is_last: is it the last step allowed? (B,) or
    one for all items.
    """
    if is_last is not False:
        code = torch.where((code == Status.RUNNING) & is_last, int(Status.MAX_ITER), code)
    return torch.where(rows.isfinite().all(1), code, int(Status.NON_FINITE))
