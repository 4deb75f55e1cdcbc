"""Constants on the device, and the graphs that read them."""

import torch

from oracles.fake_cuda_graphs import assert_captured_like_plain
from ugw._utils.cuda_graphs import cache, capture_state
from ugw._utils.cuda_graphs.capture_state import cached_constant
from ugw._utils.cuda_graphs.captured_call import capture_call
from ugw._utils.cuda_graphs.config import CAPTURE_CONFIG

# Calls of one signature before it is captured.
N_PLAIN = CAPTURE_CONFIG.calls_before_capture


def ramp(count):
    return torch.arange(float(count))


def add_ramp(numbers):
    return numbers + cached_constant(ramp, len(numbers))


def test_a_graph_holds_the_constants_that_it_reads(cuda):
    """Even if they have been dropped from the cache of constants."""
    for _ in range(N_PLAIN + 1):
        assert_captured_like_plain(add_ramp, (torch.ones(4),))
    constant = cached_constant(ramp, 4)
    assert cached_constant(ramp, 4) is constant
    for count in range(5, 6 + CAPTURE_CONFIG.max_constants):
        cached_constant(ramp, count)
    assert cached_constant(ramp, 4) is not constant
    del constant
    cached_constant(ramp, 4)
    assert_captured_like_plain(add_ramp, (torch.zeros(4),))  # the graph would fail if the constant were freed
    assert (cuda.n_captures, cuda.n_replays) == (1, 2)


def test_constants_of_one_capture_are_not_held_by_the_next(cuda):
    for _ in range(N_PLAIN + 1):
        capture_call(add_ramp, torch.ones(4))
    assert capture_state.pop_captured_constants() == []


def test_a_constant_is_computed_once_outside_of_captures():
    cache.clear()
    first = cached_constant(ramp, 3)
    assert cached_constant(ramp, 3) is first
    assert capture_state.pop_captured_constants() == []
    cache.clear()
    assert cached_constant(ramp, 3) is not first
    cache.clear()
