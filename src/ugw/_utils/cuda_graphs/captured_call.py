"""Functions as CUDA graphs: preparing a solve takes hundreds of small operations, and a graph is one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..constants import record_constants
from ..pytree import leaves, without_cached_properties
from . import cache
from .config import CAPTURE_CONFIG

Output = TypeVar("Output")
# The variant of the one graph that a signature of a call has.
CALL = "call"


def capture_call(function: Callable[..., Output], *arguments: Any) -> Output:
    """Return function(*arguments); on CUDA, from the third call of one signature on, by a captured graph.

    Calls of one signature differ in the values of tensors only. function: a module-level function of tensor operations
    that do not depend on values. It is called directly with gradients enabled, for large arguments, if it cannot be
    captured, and again if the last tensor of the output is not finite.
    """
    if not next(leaves(arguments)).is_cuda or torch.is_grad_enabled():
        return function(*arguments)
    signature, tensors = cache.find_signature(function, *arguments)
    signature.n_calls += 1
    is_rare = signature.n_calls <= CAPTURE_CONFIG.calls_before_capture
    if signature.cannot_capture or is_rare or cache.bytes_of(tensors) > CAPTURE_CONFIG.max_call_bytes:
        return function(*arguments)
    graph, output = cache.pop_graph(signature, CALL), None
    try:
        graph = graph or CapturedCall(function, arguments)
        output = graph(tensors)
    except RuntimeError:
        signature.cannot_capture = True
    else:
        cache.store_graph(signature, CALL, graph)
    return function(*arguments) if output is None else output


class CapturedCall:
    """The CUDA graph of one call of a function; later calls write the values of their arguments into those captured."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Capture function(*arguments), with copies of the arguments; `bytes`: device memory of both, in bytes."""
        # Each argument is copied by itself: which tensors two arguments share depends on the caller.
        held = tuple(cache.copy_record(without_cached_properties(argument)) for argument in arguments)
        self._inputs = list(leaves(held))
        self._device = self._inputs[0].device

        def call() -> None:
            """Call the function on the copied arguments, and store the output and whether its last tensor is finite."""
            self._output = function(*without_cached_properties(held))
            self._is_finite = list(leaves(self._output))[-1].isfinite().all()

        with record_constants() as self._constants:
            self.bytes = cache.bytes_of(self._inputs) + self._capture(call)

    def _capture(self, call: Callable[[], None]) -> int:
        """Capture `call()` as a CUDA graph for `_replay`; return the bytes of device memory that it holds."""

        def capture() -> None:
            """Capture the call in a new graph."""
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                call()

        return cache.measure_capture(self._device, capture)

    def _replay(self) -> None:
        """Run the captured graph on its device; it writes the output in place."""
        with torch.cuda.device(self._device):
            self._graph.replay()

    def __call__(self, tensors: list[Tensor]) -> Any | None:
        """Return a copy of the function's output for these argument tensors; None if its last tensor is not finite."""
        cache.write_tensors(self._inputs, tensors)
        self._replay()
        return cache.copy_record(self._output) if bool(self._is_finite) else None
