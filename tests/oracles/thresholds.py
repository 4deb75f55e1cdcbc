"""Changed thresholds inside a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from ugw._utils.size_class import size_class
from ugw.initializers import coarse, compiled_search
from ugw.solvers import compiled_sinkhorn, compiled_steps

# Functions that remember what they computed from thresholds.
CACHED: tuple[Any, ...] = (
    size_class,
    coarse.search_solver,
    coarse._schedule,
    compiled_search.random_numbers,
    compiled_search.search_tables,
    compiled_sinkhorn.read_thresholds,
    compiled_steps.config_tensor,
    compiled_steps.thresholds,
)


@contextmanager
def changed_thresholds(record: Any, **values: Any) -> Iterator[None]:
    """Give fields of a record of thresholds, such as `SOLVER_CONFIG`, other values inside this context.

    Thresholds are sizes from which another way to compute is cheaper, and limits of memory: a problem that reaches them
    takes too long for a test. Lowered, they let a small problem take the path of a large one; raised, they keep it off
    that path, to compare the two. Where sizes or arguments that reach a threshold are cheap, choose those instead.

    The record itself is changed, so that every module sees the values. Also a decorator of tests.
    """
    assert values.keys() <= vars(record).keys()
    try:
        with mock.patch.dict(vars(record), values):
            _clear_caches()
            yield
    finally:
        _clear_caches()


def _clear_caches() -> None:
    for function in CACHED:
        function.cache_clear()
