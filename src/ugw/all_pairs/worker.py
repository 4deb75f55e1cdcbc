"""The work of a worker: one block of pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from .._utils.threads import single_thread
from .._utils.version import version
from ..errors import InputError
from ..geometry.space import Space
from ..learning.value_and_grad import quiet
from ..results.records import Status
from .methods import RECIPES, Columns, Given
from .serialize import packed, unpacked

# The columns of a block, and what went wrong: the place of a pair in it, and a line of text.
Outcome = tuple[Columns, list[tuple[int, str]]]


@dataclass(frozen=True, eq=False)
class Task:
    """A block of pairs with all that it takes to solve it; every space is there once.

    pairs: (row, column) each, places in `rows` and `cols`; own: each of `rows` with itself; device: where they are.
    """

    rows: tuple[Space, ...]
    cols: tuple[Space, ...]
    pairs: tuple[tuple[int, int], ...]
    own: bool
    method: str
    given: Given
    device: torch.device
    version: str = field(default_factory=version)

    def __getstate__(self) -> dict[str, Any]:
        # As arrays, from whatever device. A worker has its own: the first that it sees.
        plain = {"rows": [packed(s) for s in self.rows], "cols": [packed(s) for s in self.cols]}
        return vars(self) | plain | {"device": torch.device(self.device.type)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        made = {side: tuple(unpacked(space) for space in state[side]) for side in ("rows", "cols")}
        for name, value in (state | made).items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, eq=False)
class Errand:
    """A task that is solved by being read: `pickle.loads(pickle.dumps(Errand(key, task)))` is (key, outcome).

    So a worker asks for nothing but pickle before its task begins. What it lacks, it then misses inside the task, from
    where the error comes back; a task that cannot be read may be waited for in vain.
    """

    key: int
    task: Task

    def __reduce__(self) -> tuple[Callable[[int, Task], tuple[int, Outcome]], tuple[int, Task]]:
        return _answered, (self.key, self.task)


def _answered(key: int, task: Task) -> tuple[int, Outcome]:
    return key, run(task)


def run(task: Task) -> Outcome:
    """Solve a block, on one thread."""
    if task.version != version():
        raise InputError(f"a worker has ugw {version()}, the call is from ugw {task.version}: install the same on all")
    with single_thread(), torch.no_grad(), quiet():
        rows, cols = ([space.to(task.device) for space in side] for side in (task.rows, task.cols))
        try:
            return _solved(task, rows, cols, range(len(task.pairs))), []
        except Exception:  # which pair it was shows one by one
            return _one_by_one(task, rows, cols)


def _solved(task: Task, rows: list[Space], cols: list[Space], which: Any) -> Columns:
    recipe = RECIPES[task.method]
    first, second = (torch.tensor([task.pairs[k][side] for k in which]) for side in (0, 1))
    x = _batch(rows, first)
    return recipe.own(x, task.given) if task.own else recipe.cross(x, _batch(cols, second), task.given)


def _batch(spaces: list[Space], index: torch.Tensor) -> Space:
    """Spaces (P,), some of them again and again, padded to the largest of these."""
    needed, place = index.unique(return_inverse=True)
    return Space.stack([spaces[i] for i in needed.tolist()]).take(place)


def _one_by_one(task: Task, rows: list[Space], cols: list[Space]) -> Outcome:
    found: list[Columns | None] = []
    failed = []
    for k in range(len(task.pairs)):
        try:
            found.append(_solved(task, rows, cols, [k]))
        except Exception as error:
            found.append(None)
            said = " ".join(str(error).split()) or "no message"
            failed.append((k, f"{type(error).__name__}: {said}"))
    blank = {"value": np.full(1, np.nan), "mass": np.full(1, np.nan), "status": np.full(1, int(Status.RUNNING))}
    blank |= {"n_iter": np.zeros(1, dtype=np.int64)}
    names = [columns for columns in found if columns is not None] or [blank]
    blank = {name: np.full(1, np.nan) for name in names[0]} | blank
    return {name: np.concatenate([(columns or blank)[name] for columns in found]) for name in names[0]}, failed
