"""Mixed precision: a solve of the same problem in float32, or on CUDA with TF32 products, before the exact one."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from .._utils.precision import tf32_products
from .._utils.size_class import size_class
from ..problems.distortion.incremental import IncrementalDistortion
from .config import SOLVER_CONFIG


@dataclass(frozen=True)
class LowPrecisionPhase:
    """A solve in lower precision before the exact one.

    problem: the problem in lower precision; tol, max_iter: when to stop; context: entered during the phase;
    next_problem: the problem that is solved afterwards.
    """

    problem: Any
    tol: float
    max_iter: int
    context: Callable[[], AbstractContextManager[None]]
    next_problem: Any


def low_precision_phase(problem: Any) -> LowPrecisionPhase | None:
    """Return the problem in low precision, tol and max_iter to solve it first, and the problem to solve afterwards.

    The phase also has the context manager, TF32 products or none, to solve it in. None if that would not save time.
    Float32 for a float64 problem, TF32 for a large float32 problem on CUDA.
    """
    choice = size_class(*problem.largest)
    if not choice.has_low_precision_phase or not problem.has_stored_squares:
        return None
    if problem.x.dtype == torch.float64:
        single = problem.to(torch.float32)
        return LowPrecisionPhase(
            single, SOLVER_CONFIG.float32_tol, SOLVER_CONFIG.float32_max_iter, nullcontext, next_problem=problem
        )
    if problem.x.device.type == "cuda" and choice.has_tf32_phase:
        exact = problem
        if math.prod(problem.largest) * problem.batch >= SOLVER_CONFIG.min_incremental_entries:
            exact = replace(problem, distortion_sum=IncrementalDistortion.of(problem.distortion_sum))
        return LowPrecisionPhase(
            problem, SOLVER_CONFIG.tf32_tol, SOLVER_CONFIG.tf32_max_iter, tf32_products, next_problem=exact
        )
    return None


def low_precision_problem(problem: Any) -> Any:
    """Return a float64 problem in float32 if it is so large that this saves time, any other problem unchanged."""
    phase = low_precision_phase(problem)
    return problem if phase is None else phase.problem
