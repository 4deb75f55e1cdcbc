"""Progress bar and user callback of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Step:
    """The argument of a callback after an outer step: numbers of the items still running, (live,) each.

    iteration: the number of outer steps so far, from 1, those of all chunks of a batch counted together and without
    the search for an initial plan; live: the number of items still running, 1 for a single problem. The other fields
    are float64 NumPy arrays if the spaces were made of arrays, else tensors on the device of the solve: objective: of
    the plan p after the step; relaxed: F(p, q) with the plan q before it; change, residual, mass: as in `History`.
    """

    iteration: int
    live: int
    objective: Any
    relaxed: Any
    change: Any
    residual: Any
    mass: Any


Callback = Callable[[Step], bool | None]


@dataclass
class Monitor:
    """The observer of all loops of one run: it shows the bar and calls the callback after each step, counted together.

    Once the callback has returned True, every further loop stops at its first step without another call. The bar also
    shows the search for an initial plan, during which the callback is not called. numpy: are the numbers of a `Step`
    NumPy arrays?
    """

    bar: Any
    callback: Callback | None
    numpy: bool = False
    steps: int = 0
    stopped: bool = False

    def __call__(self, numbers: dict[str, Tensor], n_running: int) -> bool:
        """Update the bar, call the callback, and return True once it has returned True. numbers: (n_running,) each."""
        if self.stopped:
            return True
        self.steps += 1
        if self.bar is not None:
            self.bar.update()
            running = f", {n_running} running" if n_running > 1 else ""
            names = -numbers["objective"], numbers["change"]
            objective, change = (float(v.max()) if len(v) else float("nan") for v in names)
            self.bar.set_postfix_str(f"objective {-objective:.6g}, change {change:.1e}{running}")
        if self.callback is not None:
            values = {k: v.cpu().numpy().copy() for k, v in numbers.items()} if self.numpy else numbers
            self.stopped = bool(self.callback(Step(iteration=self.steps, live=n_running, **values)))
        return self.stopped

    def show_search(self, n_steps: Tensor) -> None:
        """Show in the progress bar how many steps the search for initial plans has made, the sum of n_steps, (B,)."""
        if self.bar is not None:
            self.bar.set_postfix_str(f"search for a start, {int(n_steps.sum())} steps of candidates")


@contextmanager
def open_monitor(*, progress: bool, callback: Callback | None, max_iter: int, numpy: bool = False) -> Iterator[Monitor]:
    """Yield the `Monitor` of one run of at most `max_iter` steps; its progress bar is closed at the end.

    numpy: does the callback receive NumPy arrays?
    """
    bar = _progress_bar(max_iter) if progress else None
    try:
        yield Monitor(bar, callback, numpy)
    finally:
        if bar is not None:
            bar.close()


def _progress_bar(max_iter: int) -> Any:
    """Return a tqdm progress bar for at most `max_iter` steps."""
    from tqdm.auto import tqdm

    return tqdm(total=max_iter, desc="ugw", unit="step", leave=True)
