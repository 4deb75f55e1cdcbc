"""Progress bar and user callback of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Step:
    """The argument of a callback after an outer step: numbers of the items still running, (live,) each."""

    iteration: int
    live: int
    objective: Tensor
    relaxed: Tensor
    change: Tensor
    residual: Tensor
    mass: Tensor


Callback = Callable[[Step], bool | None]


@dataclass
class Monitor:
    """The observer of all loops of one run: it shows the bar and calls the callback after each step, counted together.

    Once the callback has returned True, every further loop stops at its first step without another call.
    """

    bar: Any
    callback: Callback | None
    steps: int = 0
    stopped: bool = False

    def __call__(self, numbers: dict[str, Tensor], n_running: int) -> bool:
        """Show the numbers of a step, call the callback, and return True to stop the run. numbers: of running items."""
        if self.stopped:
            return True
        self.steps += 1
        step = Step(iteration=self.steps, live=n_running, **numbers)
        if self.bar is not None:
            self.bar.update()
            running = f", {n_running} running" if n_running > 1 else ""
            objective, change = (float(v.max()) if len(v) else float("nan") for v in (-step.objective, step.change))
            self.bar.set_postfix_str(f"objective {-objective:.6g}, change {change:.1e}{running}")
        self.stopped = self.callback is not None and bool(self.callback(step))
        return self.stopped


@contextmanager
def open_monitor(*, progress: bool, callback: Callback | None, max_iter: int) -> Iterator[Monitor]:
    """Yield the `Monitor` of one run of at most `max_iter` steps; its progress bar is closed at the end."""
    bar = _progress_bar(max_iter) if progress else None
    try:
        yield Monitor(bar, callback)
    finally:
        if bar is not None:
            bar.close()


def _progress_bar(max_iter: int) -> Any:
    """Return a tqdm progress bar for at most `max_iter` steps."""
    from tqdm.auto import tqdm

    return tqdm(total=max_iter, desc="ugw", unit="step", leave=True)
