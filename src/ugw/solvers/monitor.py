"""Looking on while a solve runs: the progress bar and the user's callback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Step:
    """What a callback is told after an outer step: the numbers of the items still running, (live,) each."""

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
    """A open_monitor for the loops of one run: it counts their steps together and remembers if it stopped them.

    Once it has, it stops every loop after it too, at the first step and without asking again.
    """

    bar: Any
    callback: Callback | None
    steps: int = 0
    stopped: bool = False

    def __call__(self, numbers: dict[str, Tensor], live: int) -> bool:
        """True stops the run."""
        if self.stopped:
            return True
        self.steps += 1
        step = Step(iteration=self.steps, live=live, **numbers)
        if self.bar is not None:
            self.bar.update()
            running = f", {live} running" if live > 1 else ""
            lowest, furthest = (float(v.max()) if len(v) else float("nan") for v in (-step.objective, step.change))
            self.bar.set_postfix_str(f"objective {-lowest:.6g}, change {furthest:.1e}{running}")
        self.stopped = self.callback is not None and bool(self.callback(step))
        return self.stopped


@contextmanager
def open_monitor(*, progress: bool, callback: Callback | None, max_iter: int) -> Iterator[Monitor | None]:
    """A open_monitor for one run, with its progress bar closed at the end, also after Ctrl-C. None if nobody looks."""
    if not progress and callback is None:
        yield None
        return
    bar = _bar(max_iter) if progress else None
    try:
        yield Monitor(bar, callback)
    finally:
        if bar is not None:
            bar.close()


def _bar(max_iter: int) -> Any:
    from tqdm.auto import tqdm

    return tqdm(total=max_iter, desc="ugw", unit="step", leave=True)
