"""Calls of functions that prepare a solve: directly on a CPU, as captured CUDA graphs on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Output = TypeVar("Output")


def call_on_device(function: Callable[..., Output], problem: Any, *others: Any) -> Output:
    """Return function(problem, *others); on CUDA, repeated calls replay a captured graph if the problem allows one.

    It allows one if its plans are stored, the loss is t² and all items have equal sizes. function: a module-level
    function of tensor operations; if its last output tensor is not finite, it is called again without the graph.
    """
    if not problem.eps.is_cuda:
        return function(problem, *others)
    from .cuda_graphs.captured_call import capture_call

    if problem.has_stored_squares and problem.x.has_equal_sizes and problem.y.has_equal_sizes:
        return capture_call(function, problem, *others)
    return function(problem, *others)
