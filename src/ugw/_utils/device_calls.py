"""Calls of functions that prepare a solve: directly on a CPU, as captured CUDA graphs on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Output = TypeVar("Output")


def call_on_device(function: Callable[..., Output], problem: Any, *others: Any) -> Output:
    """Return function(problem, *others), on CUDA by a captured CUDA graph if the problem allows one.

    function: a module-level function of tensor operations whose last output tensor is finite.
    """
    if not problem.eps.is_cuda:
        return function(problem, *others)
    from .cuda_graphs.captured_call import capture_call

    is_capturable = problem.compiled_inputs() is not None
    if is_capturable and problem.x.has_equal_sizes and problem.y.has_equal_sizes:
        return capture_call(function, problem, *others)
    return function(problem, *others)
