"""Constant tensors that are computed once."""

import sys
from concurrent.futures import ThreadPoolExecutor

import torch

from ugw._utils.config import UTILS_CONFIG
from ugw._utils.constants import cached_constant, clear_constants, record_constants


def ramp(count):
    return torch.arange(float(count))


def test_constants_are_recorded_inside_the_context_only():
    cached_constant(ramp, 2)
    with record_constants() as outer:
        first = cached_constant(ramp, 3)
        with record_constants() as inner:
            second = cached_constant(ramp, 4)
    cached_constant(ramp, 5)
    assert [id(tensor) for tensor in outer] == [id(first), id(second)]
    assert [id(tensor) for tensor in inner] == [id(second)]


def test_a_constant_is_computed_once():
    clear_constants()
    first = cached_constant(ramp, 3)
    assert cached_constant(ramp, 3) is first
    clear_constants()
    assert cached_constant(ramp, 3) is not first
    clear_constants()


def test_the_least_recently_used_constant_is_dropped():
    first, second = cached_constant(ramp, 1), cached_constant(ramp, 2)
    for count in range(3, 2 + UTILS_CONFIG.max_constants):
        cached_constant(ramp, count)
        assert cached_constant(ramp, 1) is first
    cached_constant(ramp, 0)
    assert cached_constant(ramp, 1) is first
    assert cached_constant(ramp, 2) is not second
    clear_constants()


def test_threads_do_not_lose_constants_or_recordings():
    """Without a lock, a thread finds that another one has dropped its constant, or removes the recording of another."""

    def record_all(start):
        for k in range(4000):
            count = (start + k) % (2 * UTILS_CONFIG.max_constants)
            with record_constants() as recording:
                constant = cached_constant(ramp, count)
            assert len(constant) == count
            assert any(tensor is constant for tensor in recording)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(record_all, range(0, 40, 10)))
    finally:
        sys.setswitchinterval(interval)
        clear_constants()
