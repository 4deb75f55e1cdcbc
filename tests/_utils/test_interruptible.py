"""Calls in another thread: the same result or error, and Ctrl-C takes effect before the call ends."""

import signal
import threading
import time

import pytest

from ugw._utils.interruptible import call_interruptibly


def test_the_result_and_the_errors_are_those_of_the_function():
    assert call_interruptibly(divmod, 7, 2) == (3, 1)
    assert call_interruptibly(int, "11", base=2) == 3
    with pytest.raises(ZeroDivisionError):
        call_interruptibly(divmod, 7, 0)


def test_ctrl_c_takes_effect_before_the_end_of_the_call():
    is_released = threading.Event()
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    start = time.perf_counter()
    try:
        with pytest.raises(KeyboardInterrupt):
            call_interruptibly(is_released.wait, 20)
    finally:
        signal.signal(signal.SIGALRM, before)
        is_released.set()
    assert time.perf_counter() - start < 10


def test_another_thread_calls_directly():
    threads = []
    thread = threading.Thread(target=lambda: threads.append(call_interruptibly(threading.current_thread)))
    thread.start()
    thread.join()
    assert threads == [thread]
