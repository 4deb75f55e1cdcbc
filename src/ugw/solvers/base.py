"""The options that all outer solvers share, and how a solver is called."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from .._utils.checks import check_bool, check_tolerance, check_whole_number, describe_value
from ..errors import InputError
from ..results.result import Result
from .config import SOLVER_CONFIG
from .monitor import Callback, Monitor, open_monitor


@dataclass(frozen=True, kw_only=True)
class Solver(ABC):
    """Options of a solver.

    tol: when to stop, None for the default of the problem where a solver has one; max_iter: maximum number of steps;
    progress: show a bar; callback: called after each step, True stops the run.
    """

    tol: float | None
    max_iter: int
    progress: bool = False
    callback: Callback | None = None

    # Whether `tol` may be None, for the default of the problem.
    may_omit_tol: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the fields, which raises InputError for invalid ones; limit max_iter to 2^53."""
        name = type(self).__name__
        if self.tol is not None or not self.may_omit_tol:
            object.__setattr__(self, "tol", check_tolerance(f"{name} tol", self.tol))  # the record is frozen
        max_iter = check_whole_number(f"{name} max_iter", self.max_iter)
        object.__setattr__(self, "max_iter", min(max_iter, SOLVER_CONFIG.max_countable_iter))
        check_bool(f"{name} progress", self.progress)
        if self.callback is not None and not callable(self.callback):
            raise InputError(f"{name} callback must be a function of one step, got {describe_value(self.callback)}")

    def __call__(self, problem: Any, init: Any) -> Result:
        """Return the result (plan, value, status, history, ...) of a solve from a plan (B, n, m) of any mass."""
        with self.monitoring(numpy=getattr(problem, "numpy", False)) as monitor:
            return self.run(problem, init, monitor)

    def with_defaults(self, defaults: Self) -> Self:
        """Return the solver with options that are None taken from `defaults`, a solver of the same class.

        Only AlternateMin has such options; other solvers return themselves.
        """
        return self

    def monitoring(self, n_runs: int = 1, *, numpy: bool = False) -> AbstractContextManager[Monitor | None]:
        """Return a context manager that yields the progress bar and callback of `n_runs` runs as one `Monitor`.

        It yields None if the solver has neither. numpy: does the callback receive NumPy arrays?
        """
        if not self.progress and self.callback is None:
            return nullcontext()
        max_iter = n_runs * self.max_iter
        return open_monitor(progress=self.progress, callback=self.callback, max_iter=max_iter, numpy=numpy)

    @abstractmethod
    def run(self, problem: Any, init: Any, monitor: Monitor | None) -> Result:
        """Return the result (plan, value, status, history, ...) of a solve from a plan (B, n, m) of any mass.

        monitor: called after each step, None for none; it may have observed earlier runs.
        """
