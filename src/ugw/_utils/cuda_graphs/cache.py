"""The cache of captured CUDA graphs: signatures of calls, and the graphs captured for them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ..constants import clear_constants
from ..pytree import flatten, tree_map
from .config import CAPTURE_CONFIG


class Signature:
    """The key of all calls of one function that differ only in the values of tensors; compared by identity.

    name: of the function; n_calls: the number of such calls so far; cannot_capture: did a capture fail?
    """

    def __init__(self, name: str) -> None:
        """Store the name of the function, with n_calls 0 and cannot_capture False."""
        self.name = name
        self.n_calls = 0
        self.cannot_capture = False


_signatures: OrderedDict[Any, Signature] = OrderedDict()  # the most recently used last
stored_graphs: OrderedDict[tuple[Signature, Any], Any] = OrderedDict()  # by signature and variant
_graph_bytes = 0


def find_signature(function: Callable[..., Any], *arguments: Any) -> tuple[Signature, list[Tensor]]:
    """Return (signature, tensors) of a call of a module-level function: a cache key, and all tensors of the arguments.

    The `Signature` also has the number of calls, which is not changed here. Calls have the same one if their arguments
    differ in the values of tensors only, not in shapes, dtypes, devices, other values or which tensors are repeated,
    and if the settings of torch are the same. tensors: in the order of the arguments, repeated ones repeatedly.
    """
    structures, tensors = zip(*map(flatten, arguments), strict=True)
    flat = [tensor for some in tensors for tensor in some]
    key = function, structures, tuple(map(_identity_pattern, tensors)), *_torch_settings(flat[0])
    signature = _signatures.setdefault(key, Signature(function.__name__))
    _signatures.move_to_end(key)
    while len(_signatures) > CAPTURE_CONFIG.max_signatures:
        _, dropped = _signatures.popitem(last=False)
        for owner, variant in list(stored_graphs):  # graphs that can no longer be found
            if owner is dropped:
                pop_graph(owner, variant)
    return signature, flat


def _identity_pattern(tensors: list[Tensor]) -> tuple[int, ...]:
    """Return one number per tensor: 0, 1, ... for new tensors, and the earlier number for a tensor that is repeated."""
    places: dict[int, int] = {}
    return tuple([places.setdefault(id(tensor), len(places)) for tensor in tensors])


def _torch_settings(tensor: Tensor) -> tuple[Any, ...]:
    """Return (CUDA stream or None, is TF32 allowed, are algorithms deterministic, is inference mode on)."""
    # On another stream, a replay could overwrite the output of a graph while it is copied.
    stream = torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else None
    modes = torch.are_deterministic_algorithms_enabled(), torch.is_inference_mode_enabled()
    return stream, torch.backends.cuda.matmul.allow_tf32, *modes


def store_graph(signature: Signature, variant: Any, graph: Any) -> None:
    """Store a captured graph for later calls, and drop the least recently used ones beyond the limits.

    variant: distinguishes graphs of one signature; graph: its attribute `bytes` is the device memory that it holds.
    """
    global _graph_bytes
    pop_graph(signature, variant)
    stored_graphs[signature, variant] = graph
    _graph_bytes += graph.bytes
    limits = CAPTURE_CONFIG
    while stored_graphs and (len(stored_graphs) > limits.max_graphs or _graph_bytes > limits.max_graph_bytes):
        pop_graph(*next(iter(stored_graphs)))


def pop_graph(signature: Signature, variant: Any) -> Any:
    """Remove the graph of a signature and variant from the cache and return it; None if there is none."""
    global _graph_bytes
    graph = stored_graphs.pop((signature, variant), None)
    _graph_bytes -= 0 if graph is None else graph.bytes
    return graph


def clear() -> None:
    """Drop all stored graphs and constants, which hold device memory, and the signatures of calls."""
    global _graph_bytes
    stored_graphs.clear()
    _signatures.clear()
    _graph_bytes = 0
    clear_constants()


def measure_capture(device: torch.device, capture: Callable[[], None]) -> int:
    """Call `capture`, which captures CUDA graphs, and return the bytes by which the reserved device memory grew."""
    with torch.cuda.device(device):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # a capture does this too, which would hide what it takes
        before = torch.cuda.memory_reserved()
        capture()
        return max(0, torch.cuda.memory_reserved() - before)


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of all tensors together; a tensor that appears twice is counted once."""
    return sum({id(tensor): tensor.nbytes for tensor in tensors}.values())


def copy_record(record: Any) -> Any:
    """Return a copy of a record with copies of its tensors; a tensor that appears twice is copied once."""
    copies: dict[int, tuple[Tensor, Tensor]] = {}

    def empty_copy(tensor: Tensor) -> Tensor:
        """Return an empty tensor like `tensor`, the same object at every call with that tensor."""
        if id(tensor) not in copies:
            copies[id(tensor)] = torch.empty_like(tensor), tensor
        return copies[id(tensor)][0]

    copied = tree_map(record, empty_copy)
    write_tensors((copy for copy, _ in copies.values()), (source for _, source in copies.values()))
    return copied


def write_tensors(targets: Iterable[Tensor], sources: Iterable[Tensor]) -> None:
    """Copy the k-th source into the k-th target, in place, for all k; a target that appears twice is written once."""
    by_dtype: dict[torch.dtype, dict[int, tuple[Tensor, Tensor]]] = {}
    for pair in zip(targets, sources, strict=True):
        by_dtype.setdefault(pair[0].dtype, {})[id(pair[0])] = pair
    for pairs in by_dtype.values():  # tensors of one dtype in one operation
        destinations, values = map(list, zip(*pairs.values(), strict=True))
        torch._foreach_copy_(destinations, values)
