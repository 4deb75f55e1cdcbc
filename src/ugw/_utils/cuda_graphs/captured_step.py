"""Steps as CUDA graphs: on small problems a GPU waits for launches of kernels, and a graph is one launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..pytree import clone, flatten, leaves, tree_map, without_cached_properties
from . import cache
from .cache import Signature
from .config import CAPTURE_CONFIG

Step = Callable[[Any, Any, int | None], tuple[Any, Any]]
RequestedRounds = Callable[[Any, Any], Tensor]


@dataclass(frozen=True)
class CaptureProperties:
    """Facts about a step that decide whether it is captured.

    is_capturable: do its operations not depend on values? is_sync_free: can it run without reading a value on the host?
    n_entries: plan entries of the batch; n_item_entries: of one item.
    """

    is_capturable: bool
    is_sync_free: bool
    n_entries: int
    n_item_entries: int


class CapturedStep:
    """A step of an iteration on CUDA: captured as a graph once, then replayed; a large step runs uncaptured.

    step(settings, state, n_rounds) → (next state, report): a state is a record of tensors, a report has the status
    and the `diagnostics` of the step, tensors (B,) by name. With a number n_rounds the inner solver makes that number
    of rounds of a few iterations, and the step has tensor operations alone; with None it iterates to its tolerance.
    requested_rounds(settings, state) → (B,): the rounds that the items need in the next step, 0 where
    `CAPTURE_CONFIG.usual_rounds` are enough. If few items need more, all get more in some of the steps only. A step
    with non-finite numbers is repeated with n_rounds = None, and so are all later ones. Replaying a step gives the same
    result as running it. properties(settings, state): the `CaptureProperties` of the step. has_replayed_graph: whether
    some step so far was a graph.
    """

    def __init__(
        self, step: Step, requested_rounds: RequestedRounds, properties: Callable[[Any, Any], CaptureProperties]
    ) -> None:
        """Store three functions; nothing is captured before the first step.

        step(settings, state, n_rounds) returns the next state and a report (status and diagnostics);
        requested_rounds(settings, state) the rounds of inner iterations that each item needs next, (B,), 0 where the
        usual number is enough; properties(settings, state) the facts that decide whether to capture.
        """
        self._step, self._requested_rounds, self._properties_of = step, requested_rounds, properties
        self._settings: Any = None
        self._graphs: dict[int, StepGraph] = {}
        self._n_warmup, self._n_waiting = 0, 0
        self._is_off, self._is_large, self._was_seen_before = False, False, False
        self._signature: Signature | None = None  # under which graphs are kept, None if they are not
        self.has_replayed_graph = False
        self._last_state: Any = None  # and the rounds it needs:
        self._requested = 0.0, 0.0

    def __call__(self, settings: Any, state: Any) -> tuple[Any, Any]:
        """Return the state after one step, and the report of the step: its status and diagnostics, (B,) each.

        The next call may overwrite the tensors of both. New settings begin with new graphs, or stored ones.
        """
        if settings is not self._settings:
            self._begin(settings, state)
        n_rounds = None if self._is_off else self._choose_rounds(state)
        if n_rounds is None:
            return self._step_without_graph(state)
        is_warming_up = not self._graphs and not self._was_seen_before and self._n_warmup < CAPTURE_CONFIG.warmup_steps
        if self._is_large or is_warming_up:
            self._n_warmup += 1
            new, report = self._step(settings, state, n_rounds)
            signals = _signals(self._requested_rounds, settings, new, report)
        else:
            if n_rounds not in self._graphs:
                functions, is_kept = (self._step, self._requested_rounds), self._signature is not None
                self._graphs[n_rounds] = StepGraph(functions, settings, state, n_rounds, is_kept=is_kept)
            new, report, signals = self._graphs[n_rounds].next(state)
            self.has_replayed_graph = True
        is_finite, *requested = signals.tolist()  # the only synchronization of the step
        if is_finite:
            self._last_state, self._requested = new, (requested[0], requested[1])
            if self._signature is not None:
                self._signature.n_calls += 1
            return new, report
        self._is_off = True
        graph = self._graph_of(state)
        if graph is not None and graph is self._graphs.get(n_rounds):  # it has overwritten the state that it returned
            graph.undo()
        return self._step_without_graph(state)

    def batch_sizes(self, settings: Any, state: Any) -> Callable[[int], int]:
        """Return a function that maps the number of running items to the number of items to keep in the batch.

        That is the least power of two that is not smaller, so that graphs are captured for few batch sizes, but at
        least as many items as have 2^20 plan entries together; for a step that cannot be captured it is the number of
        running items.
        """
        properties = self._properties_of(settings, state)
        if not properties.is_capturable:
            return int
        smallest = max(1, CAPTURE_CONFIG.busy_entries // max(1, properties.n_item_entries))
        return lambda n_running: max(smallest, 1 << (n_running - 1).bit_length())

    def release(self, state: Any) -> Any:
        """Return `state`, copied if a graph would overwrite it, and store the graphs of this run for later runs."""
        released = state if self._graph_of(state) is None else clone(state)
        self._store_graphs()
        return released

    def _begin(self, settings: Any, state: Any) -> None:
        """Prepare for steps with new settings: store the graphs of the old ones, and decide whether to use graphs.

        Steps that read values on the host, cannot be captured or are too large run without graphs. Other steps reuse
        the stored graphs of their signature with the new settings; beyond a byte limit no graph is stored.
        """
        self._store_graphs()
        properties = self._properties_of(settings, state)
        self._settings, self._n_warmup, self._is_off = settings, 0, not properties.is_sync_free
        fits = properties.is_capturable and properties.n_entries <= CAPTURE_CONFIG.max_step_entries
        self._is_large, self._was_seen_before, self._signature = not fits, False, None
        if self._is_off or self._is_large:
            return
        structure, tensors = flatten(state)  # which tensors are identical does not matter: the state is cloned
        signature, setting_tensors = cache.find_signature(self._step, settings, structure)
        if cache.bytes_of(setting_tensors) + cache.bytes_of(tensors) > CAPTURE_CONFIG.max_cached_step_bytes:
            return
        self._signature = signature
        for n_rounds in (CAPTURE_CONFIG.usual_rounds, CAPTURE_CONFIG.many_rounds):
            graph = cache.pop_graph(signature, n_rounds)
            if graph is not None:
                graph.write_settings(setting_tensors)
                self._graphs[n_rounds] = graph
        # A known signature recurs and its kernels are compiled, so that its first step is captured too.
        self._was_seen_before = signature.n_calls > 0

    def _store_graphs(self) -> None:
        """Move the graphs captured for the current settings to the cache, for later runs."""
        if self._signature is not None:
            for n_rounds, graph in self._graphs.items():
                cache.store_graph(self._signature, n_rounds, graph)
        self._graphs, self._last_state = {}, None

    def _graph_of(self, state: Any) -> StepGraph | None:
        """Return the graph whose output `state` is, so that its next replay overwrites it; None if there is none."""
        return next((graph for graph in self._graphs.values() if state is graph.new), None)

    def _step_without_graph(self, state: Any) -> tuple[Any, Any]:
        """Return the state after a step without a graph, and the report of the step: status and diagnostics, (B,) each.

        The argument `state` is copied before the step if it is the output of a graph, whose next replay overwrites it.
        """
        return self._step(self._settings, state if self._graph_of(state) is None else clone(state), None)

    def _choose_rounds(self, state: Any) -> int | None:
        """Return how many rounds of inner iterations the next step makes; None: it iterates to the tolerance.

        It is 2 while fewer than a quarter of the items need more, except in every 8th step in which some do. Otherwise
        it is 40, or None if an item needs more than 40 or no earlier run made such steps.
        """
        if state is not self._last_state:
            self._requested = tuple(_summary(self._requested_rounds(self._settings, state)).tolist())
        share, largest = self._requested
        self._n_waiting += share > 0.0
        is_their_turn = share > 0.0 and self._n_waiting % CAPTURE_CONFIG.patience_steps == 0
        if share < CAPTURE_CONFIG.min_share_of_waiting and not is_their_turn:
            return CAPTURE_CONFIG.usual_rounds
        many = CAPTURE_CONFIG.many_rounds
        return many if self._was_seen_before and largest <= many else None


class StepGraph:
    """The captured graph of a step; its input state, its settings and its output state `new` have fixed addresses.

    is_kept: will the graph be stored for later runs? Then it has its own copy of the settings, into which their values
    are written, without cached properties, because these grow from step to step. functions: step, requested_rounds.
    """

    def __init__(
        self, functions: tuple[Step, RequestedRounds], settings: Any, state: Any, n_rounds: int, *, is_kept: bool
    ) -> None:
        """Capture the step from `state` with n_rounds rounds of inner iterations. functions: step, requested_rounds.

        Sets `new`, the output state, and `bytes`, the device memory that the graph holds with its inputs.
        """
        step, requested_rounds = functions
        self._settings = cache.copy_record(without_cached_properties(settings)) if is_kept else settings
        self._settings_tensors, self._first = list(leaves(self._settings)), clone(state)
        self._inputs = list(leaves(self._first))
        self._device = self._inputs[0].device
        read = cache.bytes_of(self._settings_tensors) + cache.bytes_of(self._inputs)

        def make_step() -> tuple[Any, Any]:
            """Return the state after `self._first`, the graph's input state, and the report (status, diagnostics)."""
            return step(without_cached_properties(self._settings), self._first, n_rounds)

        self.bytes = read + self._measure(make_step, requested_rounds)

    def _measure(self, make_step: Callable[[], tuple[Any, Any]], requested_rounds: RequestedRounds) -> int:
        """Capture the step by `_capture`, which sets its outputs; return the bytes of device memory its graphs hold."""
        return cache.measure_capture(self._device, lambda: self._capture(make_step, requested_rounds))

    def _capture(self, make_step: Callable[[], tuple[Any, Any]], requested_rounds: RequestedRounds) -> None:
        """Capture one graph of the step, one that copies the new state to the step's input; set the step's outputs.

        These are `new`, the new state, `_report` and the tensor (3,) `_signals`. make_step: returns state and report;
        requested_rounds: returns the rounds of inner iterations that the next step needs, for the signals.
        """
        self._step_graph, self._copy_graph = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._step_graph):
            new, self._report = make_step()
            inputs = {_storage(tensor) for tensor in self._inputs}
            # Parts of the state that the step passes on unchanged would be overwritten: clone them.
            self.new = tree_map(new, lambda tensor: tensor.clone() if _storage(tensor) in inputs else tensor)
            self._signals = _signals(requested_rounds, self._settings, self.new, self._report)
        with torch.cuda.graph(self._copy_graph, pool=self._step_graph.pool()):
            cache.write_tensors(self._inputs, leaves(self.new))

    def write_settings(self, tensors: list[Tensor]) -> None:
        """Copy tensors into the settings of the graph, in place, so that the next replay reads their values.

        tensors: those of the settings of another run, in the order of `flatten`, with the same shapes and dtypes.
        """
        cache.write_tensors(self._settings_tensors, tensors)

    def next(self, state: Any) -> tuple[Any, Any, Tensor]:
        """Return the state after `state`, the step's report (status, diagnostics), and the tensor (3,) of `_signals`.

        That is whether the report is finite (1 or 0), the share of items whose next step needs more than the usual
        number of inner iterations, and the most rounds one needs. The next call overwrites the tensors of all three.
        """
        with torch.cuda.device(self._device):
            if state is self.new:
                self._copy_graph.replay()
            else:
                cache.write_tensors(self._inputs, leaves(state))
            self._step_graph.replay()
        return self.new, self._report, self._signals

    def undo(self) -> None:
        """Copy the state before the last step into the state that `next` returned; a second call changes nothing."""
        cache.write_tensors(leaves(self.new), self._inputs)


def _signals(requested_rounds: RequestedRounds, settings: Any, new: Any, report: Any) -> Tensor:
    """Return (3,), float64: finite, share, rounds. finite: 1 if all diagnostics of the report are, else 0.

    share: of the items that need more inner iterations than usual in the step after the state `new`; rounds: the most
    that one of them needs, 0 if none does.
    """
    is_finite = torch.stack(list(report.diagnostics.values())).isfinite().all()
    return torch.cat([is_finite.double()[None], _summary(requested_rounds(settings, new))])


def _summary(requested: Tensor) -> Tensor:
    """Return (2,), float64: the share of items with requested > 0, from 0 to 1, and the largest entry.

    requested: (B,), rounds of inner iterations, 0 where the usual number is enough.
    """
    return torch.stack([(requested > 0).double().mean(), requested.max().double()])


def _storage(tensor: Tensor) -> int:
    """Return the address of the storage of a tensor, which its views share."""
    return tensor.untyped_storage().data_ptr()
