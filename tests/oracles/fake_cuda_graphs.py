"""CUDA graphs emulated on a CPU: operations are recorded in a capture and repeated in a replay, at the same addresses.

Like a graph on a GPU, an emulated graph reads and writes the tensors of its capture, whatever they contain by then:
it holds its own results but not the tensors it reads, it must not read a value on the host, and its results have no
values before its first replay.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from ugw._utils.cuda_graphs import cache
from ugw._utils.cuda_graphs.captured_call import capture_call

# Operations that need a value on the host, or whose results have a size that depends on values.
HOST_READS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "lift_fresh")


class FakeCuda:
    """The emulated device: counts captures and replays. stream: the address of the current stream."""

    def __init__(self) -> None:
        self.n_captures = 0
        self.n_replays = 0
        self.stream = 0
        self.reserved_bytes = 0
        self.capturing: FakeGraph | None = None
        self.is_paused = False
        self._replays_until_failure = 0

    @contextmanager
    def pause_capture(self) -> Iterator[None]:
        """Let tensors be on the CPU in the body."""
        self.is_paused = True
        try:
            yield
        finally:
            self.is_paused = False

    def fail_replay(self, number: int) -> None:
        """Let the check for finite numbers fail in the replay of this number, from 1, among those with a check."""
        self._replays_until_failure = number

    @property
    def has_failed(self) -> bool:
        """Has the failing replay been made?"""
        return self._replays_until_failure == 0

    def count_replay(self, *, has_check: bool) -> bool:
        """Count a replay, and return whether its check for finite numbers is to fail."""
        self.n_replays += 1
        if not has_check or self._replays_until_failure == 0:
            return False
        self._replays_until_failure -= 1
        return self._replays_until_failure == 0


class FakeGraph:
    """A list of operations with the tensors that they read and write, in place of `torch.cuda.CUDAGraph`."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self._operations: list[Operation] = []
        self._results: dict[int, Tensor] = {}

    def pool(self) -> None:
        """Return the memory pool of the graph: there is none."""
        return

    def add(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Make an operation, record it, and return its result."""
        result = function(*args, **kwargs)
        inputs, structure = tree_flatten((args, kwargs))
        self._operations.append(Operation(function, [self._reference(leaf) for leaf in inputs], structure, result))
        storages = {_address(leaf) for leaf in inputs if isinstance(leaf, Tensor)}
        for tensor in _tensors(result):
            if _address(tensor) not in storages:
                self._operations[-1].targets.append(tensor)
                self._cuda.reserved_bytes += tensor.nbytes
            if id(tensor) not in {id(leaf) for leaf in inputs}:
                self._results[id(tensor)] = tensor
        return result

    def _reference(self, leaf: Any) -> Callable[[], Any]:
        """Return a function that returns an argument: a tensor of the graph or a number, or another tensor if alive."""
        if not isinstance(leaf, Tensor) or leaf.ndim == 0 or id(leaf) in self._results:
            return lambda: leaf
        return weakref.ref(leaf)

    def end_capture(self) -> None:
        """Make the results unknown: a capture does not compute them."""
        for operation in self._operations:
            for tensor in operation.targets:
                tensor.fill_(torch.nan if tensor.is_floating_point() else 0)

    def replay(self) -> None:
        """Repeat all operations."""
        has_check = any(operation.is_check for operation in self._operations)
        fails = self._cuda.count_replay(has_check=has_check)
        for operation in self._operations:
            operation.repeat()
            if fails and operation.is_check:
                for tensor in operation.targets:
                    tensor.fill_(False)


class Operation:
    """One recorded operation; targets: the tensors of its result that are not views of its arguments."""

    def __init__(self, function: Any, references: list[Callable[[], Any]], structure: Any, result: Any) -> None:
        self._function, self._references, self._structure = function, references, structure
        self._outputs = _tensors(result)
        self.targets: list[Tensor] = []

    @property
    def is_check(self) -> bool:
        """Is this the check whether all numbers are finite?"""
        return self._function is torch.ops.aten.all.default

    def repeat(self) -> None:
        """Make the operation again and write its result to where it was."""
        leaves = [reference() for reference in self._references]
        for leaf, reference in zip(leaves, self._references, strict=True):
            assert leaf is not None or not isinstance(reference, weakref.ref), "a graph reads a tensor that was freed"
        args, kwargs = tree_unflatten(leaves, self._structure)
        new = _tensors(self._function(*args, **kwargs))
        for tensor, value in zip(self._outputs, new, strict=True):
            if any(tensor is target for target in self.targets):
                tensor.copy_(value)


class _Recorder(TorchDispatchMode):
    """Records every operation in a graph."""

    def __init__(self, graph: FakeGraph) -> None:
        super().__init__()
        self._graph = graph

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record one operation; raise the error of CUDA if it needs a value on the host."""
        name = func.overloadpacket.__name__
        has_mask = name == "index" and any(i is not None and i.dtype == torch.bool for i in args[1])
        if name in HOST_READS or has_mask:
            raise RuntimeError(f"operation not permitted when stream is capturing: {name}")
        return self._graph.add(func, args, kwargs or {})


@contextmanager
def _capture(cuda: FakeCuda, graph: FakeGraph, pool: Any = None) -> Iterator[None]:
    """Record the operations of the body in a graph, in place of `torch.cuda.graph`."""
    cuda.capturing = graph
    try:
        with _Recorder(graph):
            yield
        cuda.n_captures += 1
    finally:
        cuda.capturing = None
    graph.end_capture()


@contextmanager
def fake_cuda_graphs() -> Iterator[FakeCuda]:
    """Let all tensors pretend to be on CUDA and emulate the capture and replay of graphs.

    Their `device` is still the CPU, so that primitives are computed by the torch references, not by Triton. The cache of graphs is empty before and after.
    """
    cuda = FakeCuda()
    replacements = {
        "CUDAGraph": lambda: FakeGraph(cuda),
        "graph": lambda graph, pool=None: _capture(cuda, graph, pool),
        "device": lambda device: nullcontext(),
        "current_stream": lambda device: SimpleNamespace(cuda_stream=cuda.stream),
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "memory_reserved": lambda: cuda.reserved_bytes,
        "is_initialized": lambda: True,
        "is_current_stream_capturing": lambda: cuda.capturing is not None,
    }
    tolist = torch.Tensor.tolist

    def checked_tolist(tensor: Tensor) -> Any:
        """Return the values of a tensor, which no graph may read."""
        if cuda.capturing is not None:
            raise RuntimeError("operation not permitted when stream is capturing: tolist")
        return tolist(tensor)

    cache.clear()
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        for name, replacement in replacements.items():
            patch.setattr(torch.cuda, name, replacement)
        patch.setattr(torch.Tensor, "tolist", checked_tolist)
        patch.setattr(torch.nn.functional, "one_hot", _one_hot)
        patch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: not cuda.is_paused), raising=False)
        yield cuda
    cache.clear()


def assert_captured_like_plain(function: Any, *calls: Any) -> None:
    """Compare calls by `capture_call` with plain calls."""
    for arguments in calls:
        torch.testing.assert_close(capture_call(function, *arguments), function(*arguments), equal_nan=True)


def _one_hot(labels: Tensor, count: int) -> Tensor:
    """Return what `torch.nn.functional.one_hot` returns; as on CUDA, no label is read on the host to check it."""
    return labels.new_zeros(*labels.shape, count).scatter_(-1, labels[..., None], 1)


def _tensors(value: Any) -> list[Tensor]:
    """Return the tensors of a result."""
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, Tensor)]


def _address(tensor: Tensor) -> int:
    """Return the address of the memory of a tensor."""
    return tensor.untyped_storage().data_ptr()
