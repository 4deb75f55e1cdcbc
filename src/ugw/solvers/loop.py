"""The only loop: stopping, retired items, history, progress and the device synchronizations live here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from .._utils.pytree import clone, put_, take, where
from ..results.records import Status


@dataclass(frozen=True)
class Report:
    """What one step says of each item. status: (B,) codes of `Status`, RUNNING to go on; numbers: (B,) each."""

    status: Tensor
    numbers: dict[str, Tensor] = field(default_factory=dict)


class Watcher(Protocol):
    """Looks on after each check: a progress bar, a user's callback."""

    def __call__(self, numbers: dict[str, Tensor], live: int) -> bool:
        """True stops the run."""
        ...


@dataclass(frozen=True)
class Outcome:
    """Where the loop ended: the state, status (B,), number of steps (B,) and the numbers of every step."""

    state: Any
    status: Tensor
    n_iter: Tensor
    trace: list[tuple[Tensor, Tensor]]

    def then(self, second: Outcome) -> Outcome:
        """One run of two; an item that was stopped in the first stays so."""
        halted = self.status == Status.STOPPED
        return replace(
            second,
            status=torch.where(halted, int(Status.STOPPED), second.status),
            n_iter=self.n_iter + second.n_iter,
            trace=self.trace + second.trace,
        )

    def table(self) -> Tensor:
        """The numbers as (B, steps, columns), NaN after an item ended."""
        batch = len(self.status)
        if all(len(items) == batch for items, _ in self.trace):  # always of the same items
            return torch.stack([numbers for _, numbers in self.trace], dim=1)
        shape = (batch, len(self.trace), self.trace[0][1].shape[1])
        table = torch.full(shape, torch.nan, dtype=torch.float64, device=self.status.device)
        for step, (items, numbers) in enumerate(self.trace):
            table[items, step] = numbers
        return table


@dataclass(frozen=True, kw_only=True)
class Rules:
    """When to stop and how often to look; whether to keep the numbers of every step.

    held: how many items to hold where so many are live, retired ones among them; the others are dropped once that is
    below the share `compact_at` of those held now.
    """

    max_iter: int
    check_every: int = 1
    compact_at: float = 1.0
    held: Callable[[int], int] = int
    history: bool = True


def iterate(
    step: Callable[[Any, Any], tuple[Any, Report]],
    context: Any,
    state: Any,
    rules: Rules,
    watch: Watcher | None = None,
) -> Outcome:
    """Repeat `state, report = step(context, state)` until every item's status says stop.

    An item's state is frozen at the step that ended it, so its result does not depend on its neighbors in
    the batch; it stops costing time when the batch is compacted. A step that turns non-finite is undone.
    `context` (the problem) and `state` answer to `take`.
    """
    held = torch.arange(state.batch, device=state.device)  # which items the tensors now hold
    live = torch.ones_like(held, dtype=torch.bool)  # which of those are not retired
    status, n_iter = torch.full_like(held, int(Status.RUNNING)), torch.zeros_like(held)
    final, trace = None, []
    for iteration in range(1, rules.max_iter + 1):
        new, report = step(context, state)
        if iteration % rules.check_every and iteration < rules.max_iter:
            state = new
            continue
        rows = torch.stack(list(report.numbers.values()), dim=1)
        code = _judge(report.status, rows, last=iteration == rules.max_iter)
        told = live & (code != Status.NON_FINITE)  # a step that is undone has no history
        if rules.history:
            trace.append((held, torch.where(told[:, None], rows.double(), torch.nan)))
        if watch is not None and watch({k: v[told] for k, v in report.numbers.items()}, int(live.sum())):
            code = torch.where(code == Status.RUNNING, int(Status.STOPPED), code)
        ended = live & (code != Status.RUNNING)
        if not bool(ended.any()):
            state = new
            continue
        broken = code == Status.NON_FINITE
        lost = bool((ended & broken).any())
        kept = where(broken, state, new) if lost else new
        done = ended.nonzero()[:, 0]  # once: a GPU would wait for every use of a mask
        status[held[done]] = code[done]
        n_iter[held[done]] = iteration - broken[done].to(n_iter.dtype)
        live = live & ~ended
        if final is None and not bool(live.any()) and len(held) == len(status):
            return Outcome(kept, status, n_iter, trace)
        final = clone(state) if final is None else final
        put_(final, held[done], take(kept, done))
        state = new
        if not bool(live.any()):
            break
        wanted = rules.held(int(live.sum()))
        if lost or wanted < rules.compact_at * len(held):
            # An item that is broken is not held: it would break every step to come.
            order = (2 * live.to(torch.int8) - broken.to(torch.int8)).argsort(descending=True, stable=True)
            some = order[: min(wanted, int((~broken).sum()))]
            context, state = take(context, some), take(state, some)
            held, live = held[some], live[some]
    return Outcome(final, status, n_iter, trace)


def _judge(code: Tensor, rows: Tensor, *, last: bool) -> Tensor:
    """The step's own verdict, overruled by numbers (B, k) that are not finite and by the iteration limit."""
    if last:
        code = torch.where(code == Status.RUNNING, int(Status.MAX_ITER), code)
    return torch.where(rows.isfinite().all(1), code, int(Status.NON_FINITE))
