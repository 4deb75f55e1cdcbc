"""Warnings of solves that did not converge, and code that silences them."""

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

import ugw
from ugw._utils.caller import convergence_warnings_ignored, warn_at_caller


def test_only_convergence_warnings_are_silenced_and_only_inside_the_block():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ZeroDivisionError), convergence_warnings_ignored():
            warn_at_caller("first", ugw.ConvergenceWarning)
            warn_at_caller("second", DeprecationWarning)
            raise ZeroDivisionError
        warn_at_caller("third", ugw.ConvergenceWarning)
    assert [str(warning.message) for warning in caught] == ["second", "third"]


def test_threads_that_silence_warnings_leave_the_filters_and_other_threads_alone():
    n_threads, all_inside, may_leave = 4, threading.Barrier(5), threading.Event()

    def silence(_: int) -> None:
        with convergence_warnings_ignored():
            all_inside.wait(timeout=60)
            warn_at_caller("silent", ugw.ConvergenceWarning)
            may_leave.wait(timeout=60)

    with warnings.catch_warnings(record=True) as caught, ThreadPoolExecutor(n_threads) as pool:
        warnings.simplefilter("always")
        filters = list(warnings.filters)
        done = pool.map(silence, range(n_threads))
        all_inside.wait(timeout=60)
        assert warnings.filters == filters
        warn_at_caller("heard", ugw.ConvergenceWarning)
        may_leave.set()
        assert len(list(done)) == n_threads
        assert warnings.filters == filters
    assert [str(warning.message) for warning in caught] == ["heard"]
