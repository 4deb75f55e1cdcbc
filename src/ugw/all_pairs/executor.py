"""Tasks handed out and their outcomes collected: in this process, or through joblib on other processes and machines."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from itertools import islice
from queue import Empty, Queue
from threading import Thread
from typing import Any

from ..errors import InputError
from .worker import Errand, Outcome, Task, run

# Blocks of a worker that died are run again, unless workers die so many times without one block done between.
LIVES = 3
# A backend that gives nothing back before all is done gets so many blocks for each worker at a time.
WAVE = 2
# Seconds between two looks at tasks that Dask may have given up on.
LOOK = 5.0

Key = int
Make = Callable[[Key], Task]


def outcomes(keys: list[Key], make: Make, n_jobs: int | None) -> Iterator[tuple[Key, Outcome]]:
    """What became of each task, in the order in which they end. make: the task of a key, asked when its turn comes.

    n_jobs: processes on this machine, or None for what `joblib.parallel_config` says, one process if it says nothing.
    """
    workers = _workers(n_jobs)
    if workers == 1:
        yield from ((key, run(make(key))) for key in keys)
        return
    left, lives = dict.fromkeys(keys), LIVES
    while left:
        try:
            for key, outcome in _through_joblib(list(left), make, workers):
                del left[key]
                lives = LIVES
                yield key, outcome
        except Exception as error:
            lives -= 1
            if not _died(error):
                raise
            if not lives:
                raise WorkersDied(f"workers died {LIVES} times in a row: {_line(error)}; too little memory?") from error


def _given_up(backend: Any) -> Callable[[], BaseException | None] | None:
    """For Dask, a function that says why it gave up on a task, if it did; None for others, which tell by themselves."""
    client = getattr(backend, "client", None)
    if client is None:
        return None

    def look() -> BaseException | None:
        states = [state for key, state in list(client.futures.items()) if "loads" in str(key)]
        return next((state.exception for state in states if state.status == "error"), None)

    return look


def _watched(found: Iterator[Any], given_up: Callable[[], BaseException | None] | None) -> Iterator[Any]:
    """What an iterator yields, unless its workers are given up on: joblib waits for a task of Dask's that has failed.

    A thread of its own waits then, so that this one can look.
    """
    if given_up is None:
        yield from found
        return
    box: Queue[tuple[str, Any]] = Queue()

    def collect() -> None:
        try:
            for each in found:
                box.put(("found", each))
            box.put(("end", None))
        except BaseException as error:  # told to the thread that asked
            box.put(("error", error))

    Thread(target=collect, daemon=True).start()
    while True:
        try:
            what, value = box.get(timeout=LOOK)
        except Empty:
            error = given_up()
            if error is not None:
                raise WorkersDied(f"Dask gave up on a block of pairs: {_line(error)}; too little memory?") from error
            continue
        if what == "end":
            return
        if what == "error":
            raise value
        yield value


class WorkersDied(RuntimeError):
    """Whatever is tried, the processes that do the work end."""


def _died(error: BaseException) -> bool:
    """Did a worker end before its task did?"""
    kind = type(error)
    ray = kind.__module__.partition(".")[0] == "ray" and any(w in kind.__name__ for w in ("Actor", "Worker", "Node"))
    return isinstance(error, BrokenExecutor) or ray


def missing_package(error: BaseException) -> bool:
    """Does a worker lack this package, or a part of it?"""
    return isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in ("ugw", "torch")


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _workers(n_jobs: int | None) -> int:
    """How many jobs joblib is asked for; 1 if there is no need to ask."""
    if n_jobs is not None and (not isinstance(n_jobs, int) or isinstance(n_jobs, bool) or n_jobs == 0):
        raise InputError(f"n_jobs must be a whole number, -1 for all cores, or None, got {n_jobs!r}")
    try:
        from joblib.parallel import get_active_backend
    except ImportError:
        if n_jobs in (None, 1):
            return 1
        raise InputError(f"n_jobs={n_jobs} needs joblib: pip install joblib") from None
    backend, configured = get_active_backend()
    local = type(backend).__module__.startswith("joblib._parallel")
    asked = n_jobs if n_jobs is not None else configured
    if asked is None:
        return 1 if local else -1  # a cluster is there to be used
    return asked if local or asked != 1 else -1


def _written(errand: Errand) -> bytes:
    """Its bytes. A loss that was typed in is known to cloudpickle, which joblib brings, and to pickle not at all."""
    try:
        import cloudpickle
    except ImportError:  # an older joblib has it inside
        from joblib.externals import cloudpickle
    return cloudpickle.dumps(errand)


def _through_joblib(keys: list[Key], make: Make, workers: int) -> Iterator[tuple[Key, Outcome]]:
    import joblib

    def jobs(some: list[Key]) -> Iterator[Any]:
        return (joblib.delayed(pickle.loads)(_written(Errand(key, make(key)))) for key in some)

    # Blocks are long: each is a batch of joblib's, and few wait, since each holds its spaces.
    options: dict[str, Any] = {"n_jobs": workers, "batch_size": 1, "pre_dispatch": "2*n_jobs", "max_nbytes": None}
    try:
        parallel = joblib.Parallel(return_as="generator_unordered", **options)
    except ValueError:
        parallel = None
    if parallel is not None:
        yield from _watched(parallel(jobs(keys)), _given_up(joblib.parallel.get_active_backend()[0]))
        return
    remaining = iter(keys)
    size = WAVE * max(1, joblib.effective_n_jobs(workers))
    with joblib.Parallel(**options) as parallel:  # the same workers for all waves
        while wave := list(islice(remaining, size)):
            yield from parallel(jobs(wave))
