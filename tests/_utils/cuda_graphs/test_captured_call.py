"""Calls by captured graphs return what plain calls return. Graphs are emulated; tests/test_cuda.py uses real ones."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from oracles.captured_graphs import kept_names
from oracles.fake_cuda_graphs import assert_captured_like_plain
from oracles.thresholds import changed_thresholds
from ugw._utils.config import UTILS_CONFIG
from ugw._utils.constants import cached_constant
from ugw._utils.cuda_graphs import cache, captured_call
from ugw._utils.cuda_graphs.captured_call import capture_call
from ugw._utils.cuda_graphs.config import CAPTURE_CONFIG
from ugw._utils.pytree import BatchRecord

# Calls of one signature before it is captured.
N_PLAIN = CAPTURE_CONFIG.calls_before_capture


@dataclass(frozen=True, eq=False)
class Pair(BatchRecord):
    first: Tensor
    second: Tensor

    @cached_property
    def total(self):
        return self.first.sum()


def shift_and_double(numbers, shift):
    return numbers + shift, 2.0 * numbers


def add_total(pair):
    return pair.second + pair.total


def set_and_add(pair, other):
    """Writes to one of its arguments."""
    pair.first.add_(other.first)
    return pair.first + other.second


def positive_root(numbers):
    """Reads a value on the host."""
    return numbers.sqrt() if bool(numbers[0] > 0) else torch.zeros_like(numbers)


def ramp(count):
    return torch.arange(float(count))


def add_ramp(numbers):
    return numbers + cached_constant(ramp, len(numbers))


def test_a_signature_is_captured_at_its_third_call_and_replayed_for_other_values(cuda):
    counts = []
    for value in (1.0, 2.0, 3.0, 4.0, 5.0):
        assert_captured_like_plain(shift_and_double, (torch.tensor([value, -value]), 1.0))
        counts.append((cuda.n_captures, cuda.n_replays))
    assert counts == [(0, 0)] * N_PLAIN + [(1, 1), (1, 2), (1, 3)]


def test_other_shapes_options_and_streams_are_other_signatures(cuda):
    numbers = torch.ones(2)
    for _ in range(N_PLAIN + 1):
        capture_call(shift_and_double, numbers, 1.0)
    assert cuda.n_replays == 1
    assert_captured_like_plain(shift_and_double, (torch.ones(3), 1.0), (numbers, 2.0))
    cuda.stream = 1
    assert_captured_like_plain(shift_and_double, (numbers, 1.0))
    assert cuda.n_replays == 1


def test_an_output_is_not_overwritten_by_later_calls(cuda):
    outputs = [capture_call(shift_and_double, torch.tensor([float(value)]), 0.0) for value in range(6)]
    assert [float(output[1]) for output in outputs] == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]


def test_arguments_are_not_changed_by_a_function_that_writes_to_its_copy(cuda):
    for _ in range(N_PLAIN):
        capture_call(set_and_add, Pair(torch.ones(2), torch.ones(2)), Pair(torch.ones(2), torch.ones(2)))
    first, second = Pair(torch.ones(2), torch.ones(2)), Pair(torch.full((2,), 3.0), torch.full((2,), 5.0))
    for _ in range(2):
        torch.testing.assert_close(capture_call(set_and_add, first, second), torch.full((2,), 9.0))
    assert first.first.tolist() == [1.0, 1.0]


def test_cached_properties_of_arguments_are_not_taken_over(cuda):
    for value in (1.0, 2.0, 3.0, 4.0, 5.0):
        pair = Pair(torch.full((2,), value), torch.ones(3))
        if value % 2.0:
            assert float(pair.total) == 2.0 * value  # is cached before the call
        assert_captured_like_plain(add_total, (pair,))
    assert (cuda.n_captures, cuda.n_replays) == (1, 3)


def test_a_graph_holds_the_constants_that_it_reads(cuda):
    """Even if they have been dropped from the cache of constants."""
    for _ in range(N_PLAIN + 1):
        assert_captured_like_plain(add_ramp, (torch.ones(4),))
    constant = cached_constant(ramp, 4)
    assert cached_constant(ramp, 4) is constant
    for count in range(5, 6 + UTILS_CONFIG.max_constants):
        cached_constant(ramp, count)
    assert cached_constant(ramp, 4) is not constant
    del constant
    cached_constant(ramp, 4)
    assert_captured_like_plain(add_ramp, (torch.zeros(4),))  # the graph would fail if the constant were freed
    assert (cuda.n_captures, cuda.n_replays) == (1, 2)


def test_arguments_may_share_tensors_or_not(cuda):
    ones, twos = torch.ones(2), torch.full((2,), 2.0)
    calls = [(ones, ones), (ones, twos), (twos, ones), (ones, twos), (twos, twos)]
    assert_captured_like_plain(torch.sub, *calls)
    assert cuda.n_replays == len(calls) - N_PLAIN


def test_a_non_finite_output_is_computed_again_without_a_graph(cuda):
    for value in (1.0, 1.0, float("nan"), float("inf"), 2.0):
        assert_captured_like_plain(shift_and_double, (torch.tensor([value]), 0.0))
    assert (cuda.n_captures, cuda.n_replays) == (1, 3)


def test_a_function_of_non_finite_output_is_called_after_every_replay(cuda):
    called_in_capture = []

    def to_infinity(numbers):
        called_in_capture.append(torch.cuda.is_current_stream_capturing())
        return numbers / 0.0

    for _ in range(N_PLAIN + 2):
        capture_call(to_infinity, torch.ones(1))
    assert called_in_capture == [False] * N_PLAIN + [True, False] + [False]
    assert cuda.n_replays == 2


def test_a_function_that_reads_values_is_called_directly_and_not_captured_again(cuda, monkeypatch):
    attempts = []
    original = captured_call.CapturedCall
    monkeypatch.setattr(captured_call, "CapturedCall", lambda *arguments: attempts.append(1) or original(*arguments))
    for value in (4.0, -1.0, 9.0, -1.0, 16.0):
        assert_captured_like_plain(positive_root, (torch.tensor([value]),))
    assert len(attempts) == 1
    assert cuda.n_replays == 0
    assert kept_names() == []


@changed_thresholds(CAPTURE_CONFIG, max_call_bytes=7)
def test_calls_with_large_arguments_are_not_captured(cuda):
    assert_captured_like_plain(shift_and_double, *[(torch.ones(1), 0.0)] * 3)  # 4 bytes
    assert cuda.n_replays == 1
    assert_captured_like_plain(shift_and_double, *[(torch.ones(2), 0.0)] * 3)
    assert cuda.n_replays == 1


def test_calls_with_gradients_are_not_captured(cuda):
    with torch.enable_grad():
        for _ in range(N_PLAIN + 2):
            numbers = torch.ones(2, requires_grad=True)
            capture_call(shift_and_double, numbers, 1.0)[1].sum().backward()
            assert numbers.grad.tolist() == [2.0, 2.0]
    assert cuda.n_captures == 0


def test_calls_on_a_cpu_are_not_captured():
    cache.clear()
    with torch.no_grad():
        assert_captured_like_plain(shift_and_double, *[(torch.ones(2), 1.0)] * (N_PLAIN + 2))
    assert kept_names() == []
