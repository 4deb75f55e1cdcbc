"""What every outer solver is: options, checked once, and a run that can be looked on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from .._utils.checks import check_progress_and_callback, check_tolerance, check_whole_number
from ..results.result import Result
from .monitor import Callback, Monitor, open_monitor


@dataclass(frozen=True, kw_only=True)
class Solver(ABC):
    """tol: when to stop; max_iter: when to give up; progress: show a bar; callback: called after each step.

    A callback that returns True stops the run.
    """

    tol: float
    max_iter: int
    progress: bool = False
    callback: Callback | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_tolerance(f"{name} tol", self.tol)
        check_whole_number(f"{name} max_iter", self.max_iter)
        check_progress_and_callback(name, progress=self.progress, callback=self.callback)

    def __call__(self, problem: Any, init: Any) -> Result:
        """Solve from the plan `init` (B, n, m), of any mass."""
        with self.monitoring() as watch:
            return self.run(problem, init, watch)

    def monitoring(self, runs: int = 1) -> AbstractContextManager[Monitor | None]:
        """Who looks on, for as long as so many runs last."""
        return open_monitor(progress=self.progress, callback=self.callback, max_iter=runs * self.max_iter)

    @abstractmethod
    def run(self, problem: Any, init: Any, watch: Monitor | None) -> Result:
        """Solve from the plan `init` (B, n, m), under the eyes of a open_monitor that may have seen steps before."""
