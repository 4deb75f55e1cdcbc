"""Looking on while a solve runs: the progress bar and the user's callback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .loop import Watcher


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


@contextmanager
def watcher(*, progress: bool, callback: Callback | None, max_iter: int) -> Iterator[Watcher | None]:
    """A watcher for the loop, with its progress bar closed at the end, also after Ctrl-C."""
    if not progress and callback is None:
        yield None
        return
    bar = _bar(max_iter) if progress else None

    def watch(iteration: int, numbers: dict[str, Tensor], live: int) -> bool:
        step = Step(iteration=iteration, live=live, **numbers)
        if bar is not None:
            bar.update()
            running = f", {live} running" if live > 1 else ""
            lowest, furthest = (float(v.max()) if len(v) else float("nan") for v in (-step.objective, step.change))
            bar.set_postfix_str(f"objective {-lowest:.6g}, change {furthest:.1e}{running}")
        return bool(callback(step)) if callback is not None else False

    try:
        yield watch
    finally:
        if bar is not None:
            bar.close()


def _bar(max_iter: int) -> Any:
    from tqdm.auto import tqdm

    return tqdm(total=max_iter, desc="ugw", unit="step", leave=True)
