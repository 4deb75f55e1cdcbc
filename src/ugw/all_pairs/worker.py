"""Solving one block of pairs, in this or in another process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from .._utils.caller import convergence_warnings_ignored
from .._utils.threads import single_thread
from .._utils.version import version
from ..errors import InputError
from ..geometry.space import Space
from .methods import METHOD_SPECS, Columns, Options, solve_self_pairs
from .serialize import portable_copy

# Columns of the pairs of a block that were solved, and the failures: positions of the others, with one line of text.
TaskResult = tuple[Columns, list[tuple[int, str]]]


@dataclass(frozen=True, eq=False)
class Task:
    """A block of pairs with everything needed to solve it; each space is stored once.

    pairs: positions (i, j) in `rows` and `cols`; is_self: each space of `rows` is paired with itself, and `cols` is
    empty; device: where to solve; version: of ugw in the process that made the task.
    """

    rows: tuple[Space, ...]
    cols: tuple[Space, ...]
    pairs: tuple[tuple[int, int], ...]
    is_self: bool
    method: str
    options: Options
    device: torch.device
    version: str = field(default_factory=version)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields to pickle: spaces copied to the CPU, and the device without an index.

        A worker uses the first device of that type that it sees.
        """
        spaces = {side: tuple(map(portable_copy, getattr(self, side))) for side in ("rows", "cols")}
        return vars(self) | spaces | {"device": torch.device(self.device.type)}


@dataclass(frozen=True, eq=False)
class SelfSolvingTask:
    """A task that unpickling solves: `pickle.loads(pickle.dumps(SelfSolvingTask(key, task)))` is (key, result).

    A worker then needs only pickle before the task begins. A missing package raises inside the task, and the error is
    returned; with some backends, a task that cannot be unpickled would be waited for without end.
    """

    key: int
    task: Task

    def __reduce__(self) -> tuple[Callable[[int, Task], tuple[int, TaskResult]], tuple[int, Task]]:
        """Return the function that unpickling calls, which runs the task, and its arguments."""
        return _run_with_key, (self.key, self.task)


def _run_with_key(key: int, task: Task) -> tuple[int, TaskResult]:
    """Solve the task; return (key, (results, failures)), the key unchanged and the rest as from `run_task`."""
    return key, run_task(task)


def run_task(task: Task) -> TaskResult:
    """Solve the pairs of a task on one thread; return (results, failures).

    The pairs are solved as one batch. If that raises, they are solved one by one, and a pair that raises again is a
    failure (position in the task, error message). results: arrays by name, such as value and status, of the other
    pairs, also of those that did not converge. Raises InputError for a task of another version of ugw.
    """
    if task.version != version():
        raise InputError(f"a worker has ugw {version()}, the call is from ugw {task.version}: install the same on all")
    with single_thread(), torch.no_grad(), convergence_warnings_ignored():
        rows, cols = ([space.to(task.device) for space in side] for side in (task.rows, task.cols))
        try:
            return _solve_pairs(task, rows, cols, range(len(task.pairs))), []
        except Exception:  # solving one by one shows which pair failed
            return _solve_one_by_one(task, rows, cols)


def _solve_pairs(task: Task, rows: list[Space], cols: list[Space], positions: Sequence[int]) -> Columns:
    """Return the results (value, status, ...) of the pairs at P positions in `task.pairs` as arrays (P,) by name.

    They are solved as one batch. rows, cols: the spaces of the task, on its device.
    """
    first, second = (torch.tensor([task.pairs[k][side] for k in positions]) for side in (0, 1))
    x = _stack(rows, first)
    if task.is_self:
        return solve_self_pairs(x, task.options)
    return METHOD_SPECS[task.method].solve_pairs(x, _stack(cols, second), task.options)


def _stack(spaces: list[Space], index: torch.Tensor) -> Space:
    """Return the batch of the spaces at `index` (P,), which may repeat, padded to the largest of them."""
    needed, position = index.unique(return_inverse=True)
    return Space.stack([spaces[i] for i in needed.tolist()]).take(position)


def _solve_one_by_one(task: Task, rows: list[Space], cols: list[Space]) -> TaskResult:
    """Solve each pair of the task alone; return (arrays of the solved pairs by name, [(position, error message)])."""
    solved: list[Columns] = []
    failures = []
    for k in range(len(task.pairs)):
        try:
            solved.append(_solve_pairs(task, rows, cols, [k]))
        except Exception as error:
            message = " ".join(str(error).split()) or "no message"
            failures.append((k, f"{type(error).__name__}: {message}"))
    names = solved[0] if solved else ()
    return {name: np.concatenate([columns[name] for columns in solved]) for name in names}, failures
