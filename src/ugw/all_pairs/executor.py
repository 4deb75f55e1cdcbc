"""Distribution of tasks and collection of their results, in this process or through joblib on other machines."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from itertools import islice
from queue import Empty, Queue
from threading import Thread
from typing import Any

from .._utils.checks import describe_value
from ..errors import InputError
from .config import PAIRWISE_CONFIG
from .worker import SelfSolvingTask, Task, TaskResult, run_task

Key = int
MakeTask = Callable[[Key], Task]


class WorkersDied(RuntimeError):
    """Worker processes ended before their tasks did, several times in a row."""


def run_tasks(keys: list[Key], make_task: MakeTask, n_jobs: int | None) -> Iterator[tuple[Key, TaskResult]]:
    """Yield (key, (results, failures)) of the task of each key, in the order in which the tasks end.

    results: arrays by name of the pairs that were solved; failures: (position in the task, error message) of others.
    make_task: returns the task of a key; it is called when the task is sent, to save memory. n_jobs: processes on this
    machine, −1 for one per core; None for the setting of `joblib.parallel_config`, or this process without it.
    Raises WorkersDied if worker processes end before their tasks three times in a row.
    """
    n_workers = resolve_n_workers(n_jobs)
    if n_workers == 1:
        yield from ((key, run_task(make_task(key))) for key in keys)
        return
    remaining, deaths = dict.fromkeys(keys), 0
    while remaining:
        try:
            for key, result in _run_with_joblib(list(remaining), make_task, n_workers):
                del remaining[key]
                deaths = 0
                yield key, result
        except Exception as error:
            if not _is_worker_death(error):
                raise
            deaths += 1
            if deaths == PAIRWISE_CONFIG.max_worker_deaths:
                raise WorkersDied(
                    f"workers died {deaths} times in a row: {_one_line(error)}; too little memory?"
                ) from error


def resolve_n_workers(n_jobs: int | None) -> int:
    """Return the number of processes to request from joblib, -1 for all cores or workers; 1: solve in this process.

    n_jobs: number of processes asked for, None for the setting of joblib. Raises InputError if it is 0 or no whole
    number, or if joblib is needed and missing.
    """
    if n_jobs is not None and (not isinstance(n_jobs, int) or isinstance(n_jobs, bool) or n_jobs == 0):
        raise InputError(f"n_jobs must be a whole number, -1 for all cores, or None, got {describe_value(n_jobs)}")
    try:
        from joblib.parallel import get_active_backend
    except ImportError:
        if n_jobs in (None, 1):
            return 1
        raise InputError(f"n_jobs={n_jobs} needs joblib: pip install joblib") from None
    backend, configured = get_active_backend()
    is_local = type(backend).__module__.startswith("joblib._parallel")
    requested = n_jobs if n_jobs is not None else configured
    if requested is None:
        return 1 if is_local else -1  # a configured cluster is meant to be used
    return requested if is_local or requested != 1 else -1


def is_missing_package(error: BaseException) -> bool:
    """Return whether the error says that a worker cannot import ugw or torch, or a module of them."""
    return isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in ("ugw", "torch")


def _run_with_joblib(keys: list[Key], make_task: MakeTask, n_workers: int) -> Iterator[tuple[Key, TaskResult]]:
    """Yield what `run_tasks` yields, (key, (results, failures)) of each task, run by the active joblib backend."""
    import joblib

    def jobs(job_keys: list[Key]) -> Iterator[Any]:
        """Return an iterator over the joblib calls that solve the tasks of these keys and return (key, result)."""
        return (joblib.delayed(pickle.loads)(_pickle(SelfSolvingTask(key, make_task(key)))) for key in job_keys)

    # Blocks are long: one per joblib batch is enough. Few wait in the queue, because each holds its spaces.
    options: dict[str, Any] = {"n_jobs": n_workers, "batch_size": 1, "pre_dispatch": "2*n_jobs", "max_nbytes": None}
    try:
        parallel = joblib.Parallel(return_as="generator_unordered", **options)
    except ValueError:  # a backend that returns nothing before all tasks have ended
        parallel = None
    if parallel is not None:
        find_failure = _dask_failure_finder(joblib.parallel.get_active_backend()[0])
        results = parallel(jobs(keys))
        yield from (results if find_failure is None else _iterate_until_failure(results, find_failure))
        return
    remaining = iter(keys)
    size = PAIRWISE_CONFIG.blocks_per_worker * max(1, joblib.effective_n_jobs(n_workers))
    with joblib.Parallel(**options) as parallel:  # one pool of workers for all rounds
        while round_keys := list(islice(remaining, size)):
            yield from parallel(jobs(round_keys))


def _dask_failure_finder(backend: Any) -> Callable[[], BaseException | None] | None:
    """Return a function that returns the error of a task on which Dask gave up, or None if there is no such task.

    For a backend other than Dask there is no function: None. joblib waits without end for a task on which Dask gave up;
    other backends raise.
    """
    client = getattr(backend, "client", None)
    if client is None:
        return None

    def find_failure() -> BaseException | None:
        """Return the error of the first task that failed in Dask, or None."""
        states = [state for key, state in list(client.futures.items()) if "loads" in str(key)]
        return next((state.exception for state in states if state.status == "error"), None)

    return find_failure


def _iterate_until_failure(results: Iterator[Any], find_failure: Callable[[], BaseException | None]) -> Iterator[Any]:
    """Yield the results; raise WorkersDied from the error that `find_failure` returns, if it returns one.

    Another thread waits for the results, so that this one can call `find_failure` after every `dask_poll_seconds`
    without a result. An error that `results` raises is raised here too.
    """
    queue: Queue[tuple[str, Any]] = Queue()

    def collect() -> None:
        """Put ("result", result) into the queue for each, then ("end", None) or ("error", what `results` raised)."""
        try:
            for result in results:
                queue.put(("result", result))
            queue.put(("end", None))
        except BaseException as error:  # raised again in the thread that consumes the queue
            queue.put(("error", error))

    Thread(target=collect, daemon=True).start()
    while True:
        try:
            kind, value = queue.get(timeout=PAIRWISE_CONFIG.dask_poll_seconds)
        except Empty:
            error = find_failure()
            if error is not None:
                message = f"Dask gave up on a block of pairs: {_one_line(error)}; too little memory?"
                raise WorkersDied(message) from error
            continue
        if kind == "end":
            return
        if kind == "error":
            raise value
        yield value


def _is_worker_death(error: BaseException) -> bool:
    """Return whether the error says that a worker ended before its task did."""
    error_class = type(error)
    is_ray = error_class.__module__.partition(".")[0] == "ray"
    names_worker = any(word in error_class.__name__ for word in ("Actor", "Worker", "Node"))
    return isinstance(error, BrokenExecutor) or (is_ray and names_worker)


def _one_line(error: BaseException) -> str:
    """Return the class and the first 200 characters of the message of an error, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _pickle(task: SelfSolvingTask) -> bytes:
    """Return the bytes of a task, written by cloudpickle, which also supports functions defined interactively."""
    try:
        import cloudpickle
    except ImportError:  # older versions of joblib contain it
        from joblib.externals import cloudpickle
    return cloudpickle.dumps(task)
