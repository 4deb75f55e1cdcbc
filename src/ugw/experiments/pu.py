"""Positive-unlabeled learning on Office-Caltech10 (the table of the paper): initial plans, PGW and UGW.

Each task has 20 test folds, random draws of positives and unlabeled points; rho1 and rho2 are selected on 20 validation
folds. Each finished task is written to a file, so that an interrupted run can be continued.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ugw

from .._utils.atomic_files import atomic_folder
from .._utils.caller import convergence_warnings_ignored
from .._utils.checks import check_whole_number
from ..datasets import office
from ..datasets.labeled import Domain
from ..datasets.office import office_caltech10
from ..errors import InputError
from ..estimators import PUClassifier
from ..estimators.pu import label_top_scores, partial_transport_plan
from ..geometry.space import Space
from ._shared import write_numbers
from .pu_table import figure, format_table, table_rows
from .pu_tasks import Task, draw_fold, parse_tasks

# Solved in float32. At small rhos two plans alternate: the parity of max_iter determines which one is returned
# (docs/pu.md).
SOLVER = ugw.AlternateMin(tol=2e-5, max_iter=100, inner=ugw.Sinkhorn(max_iter=20))
# log2 of rho of the transport between eccentricities whose accuracy is reported as that of the initial plan.
FLB_RHO = -6


@dataclass(frozen=True)
class Protocol:
    """The parameters of all tasks: points per side of a fold, number of test folds, log2 of eps and of the rhos tried.

    There are as many validation folds as test folds.

    >>> len(Protocol().pairs), list(QUICK.seeds)
    (36, [0, 1, 2, 3, 4, 5, 6, 7])
    """

    size: int = 100
    folds: int = 20
    log_eps: int = -9
    log_rhos: tuple[int, ...] = (-5, -6, -7, -8, -9, -10)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """All pairs (log2 rho1, log2 rho2) of the rhos tried, rho1 of the positives, rho2 of the unlabeled points."""
        return [(first, second) for first in self.log_rhos for second in self.log_rhos]

    @property
    def seeds(self) -> range:
        """The seeds, for `draw_fold`, of the test folds (random draws), then those of the validation folds."""
        return range(2 * self.folds)

    @property
    def fingerprint(self) -> str:
        """Hash (16 hex digits) of what determines results: protocol, solver options, ugw's version, data checksums."""
        parameters = [asdict(self), repr(SOLVER), FLB_RHO, sorted(office.SHA256.items()), ugw.__version__]
        return hashlib.sha256(json.dumps(parameters).encode()).hexdigest()[:16]

    @property
    def numbers(self) -> dict[str, Any]:
        """The dict {"protocol": dict of this protocol's fields, "version": version of ugw}, for a JSON file."""
        return {"protocol": asdict(self), "version": ugw.__version__}


QUICK = Protocol(folds=4, log_rhos=(-5, -7, -9))
# Function that runs a task: (task, domains, protocol, advance) → its results; and its arguments without the last one,
# a function without arguments that is called after each part of the task, for a progress bar.
RunTask = Callable[[Task, Mapping[str, Domain], Protocol, Callable[[], Any]], dict[str, Any]]
Call = tuple[Task, Mapping[str, Domain], Protocol]


# -- one task ----------------------------------------------------------------------------------------------


def run(
    task: Task, domains: Mapping[str, Domain], protocol: Protocol, advance: Callable[[], Any], *, device: str = "cpu"
) -> dict[str, Any]:
    """Return the results of a task of positive-unlabeled learning by name, for a JSON file.

    "task": its name; "pairs": the pairs (log2 rho1, log2 rho2); "init", "pgw": accuracies in percent of the initial
    plan and of partial GW, one for each test fold; "ugw": for each pair a list of those of UGW, test folds first, then
    validation folds; "mass", "converged": for each pair the mean mass of UGW's plans and the fraction of its solves
    that converged, over all folds; "positives": all different numbers of predicted positives, sorted; "seconds": of the
    processor. domains: by key, as from `office_caltech10`; advance: called after each pair, for a progress bar; device:
    where UGW is solved; initial plans and PGW are solved on the CPU.
    """
    start_time = time.process_time()
    x, y, truth, initial = make_spaces(task, domains, protocol, protocol.seeds)
    test = slice(0, protocol.folds)
    init, _ = label_top_scores(initial.plans(2.0**FLB_RHO, 2.0**FLB_RHO)[test].sum(axis=1), task.prior)
    results: dict[str, Any] = {"task": task.name, "pairs": protocol.pairs, "init": accuracy(init, truth[test])}
    with convergence_warnings_ignored():  # the results contain the fraction that converged
        pgw = _partial_gw_labels(x, y, initial.fixed, task.prior, protocol.folds)
        results |= {"pgw": accuracy(pgw, truth[test]), "ugw": [], "mass": [], "converged": []}
        counts = {*init.sum(axis=1).tolist(), *pgw.sum(axis=1).tolist()}
        float32_spaces = [s.to("float32").to(device) for s in (x, y)]
        for pair in protocol.pairs:
            rho = 2.0 ** pair[0], 2.0 ** pair[1]
            plans = torch.as_tensor(initial.plans(*rho), dtype=torch.float32, device=device)
            pu = PUClassifier(
                task.prior, rho=rho, eps=2.0**protocol.log_eps, init=plans, scale=None, solver=SOLVER
            ).fit_spaces(*float32_spaces)
            results["ugw"].append(accuracy(pu.labels_ == 1, truth))
            results["mass"].append(float(torch.as_tensor(pu.result_.mass).mean()))
            results["converged"].append(float(torch.as_tensor(pu.result_.converged).double().mean()))
            counts.update(pu.labels_.sum(axis=1).tolist())
            advance()
    return results | {"positives": sorted(counts), "seconds": time.process_time() - start_time}


def make_spaces(
    task: Task, domains: Mapping[str, Domain], protocol: Protocol, seeds: Sequence[int]
) -> tuple[Space, Space, np.ndarray, InitialPlans]:
    """Return the batches of positives and of unlabeled points, labels and initial plans of the folds of these seeds.

    A fold is a random draw; its spaces have Euclidean distances and weights 1/n, 1/m. The labels, bool (folds, m), say
    which unlabeled points are positive; the last entry is an object whose method `plans(rho1, rho2)` returns the
    initial plans (folds, n, m).
    """
    folds = [draw_fold(task, domains, size=protocol.size, seed=seed) for seed in seeds]
    x = Space.from_points(np.stack([fold.positives for fold in folds]))
    y = Space.from_points(np.stack([fold.unlabeled for fold in folds]))
    truth = np.stack([fold.truth for fold in folds])
    return x, y, truth, InitialPlans(x, y, task, 2.0**protocol.log_eps)


def rescale_masses(plans: np.ndarray) -> np.ndarray:
    """Return each of the plans (k, n, m), multiplied by a power of two that gives it a mass in [1, 2).

    At small rhos the masses are so small that they underflow in float32.

    >>> rescale_masses(np.array([[[3e-60]], [[0.5]]])).ravel() < 2
    array([ True,  True])
    """
    return np.ldexp(plans, 1 - np.frexp(plans.sum(axis=(1, 2), keepdims=True))[1])


def accuracy(labels: np.ndarray, truth: np.ndarray) -> list[float]:
    """Return the percentage of correct labels in each row, a list (folds,). labels, truth: bool (folds, m)."""
    return (100.0 * (labels == truth).mean(axis=1)).tolist()


class InitialPlans:
    """Initial plans (folds, n, m) of a task for any rho; a fold is a random draw of positives and unlabeled points.

    If both sides have the same features, the plans, of exact partial transport of the points, do not depend on rho and
    are `fixed`. Otherwise `fixed` is None, and the plans are entropic unbalanced transport between eccentricities (mean
    distances to all points), scaled to a mass near 1.
    """

    def __init__(self, x: Space, y: Space, task: Task, eps: float) -> None:
        """Set `fixed` to exact partial transport plans (folds, n, m), or to None for two different feature spaces.

        For these, `cost` (folds, n, m) is set to the squared differences of eccentricities, and `plans` uses eps.
        x, y: batches of positives and of unlabeled points.
        """
        self.eps, self.fixed = eps, None
        if task.has_one_space:
            self.fixed = np.stack([partial_transport_plan(x[k], y[k], task.prior) for k in range(len(x))])
        else:
            first, second = (space.metric.dense().mean(2).numpy() for space in (x, y))
            self.cost = (first[:, :, None] - second[:, None, :]) ** 2

    def plans(self, *rho: float) -> np.ndarray:
        """Return the initial plans (folds, n, m) for rho = (rho1, rho2), one for each fold, a random draw of the task.

        In one feature space they are exact partial transport of the points, of mass `prior` of the task whatever rho
        is; between two, entropic unbalanced transport between eccentricities, scaled to a mass in [1, 2).
        """
        if self.fixed is not None:
            return self.fixed
        return rescale_masses(ugw.solve_linear(None, None, cost=self.cost, rho=rho, eps=self.eps).plan)


def _partial_gw_labels(x: Space, y: Space, plans: np.ndarray | None, prior: float, folds: int) -> np.ndarray:
    """Return which unlabeled points partial GW predicts positive in the first `folds` items, bool (folds, m).

    These are the round(prior · m) points that receive the largest fraction of their weight when all positives, of total
    mass `prior`, are matched to the unlabeled points, of mass 1. x, y: batches of positives and of unlabeled points;
    plans: initial plans (≥ folds, n, m), None for init="auto".
    """
    index = torch.arange(folds)
    positives = x.take(index)
    positives = replace(positives, weight_tensor=prior * positives.weight_tensor)
    init = "auto" if plans is None else plans[:folds]
    pu = PUClassifier(prior, rho=ugw.Mass(prior), eps=0.0, init=init, scale=None)
    return pu.fit_spaces(positives, y.take(index)).labels_ == 1


# -- all tasks, stored when they finish --------------------------------------------------------------------


def run_all(
    tasks: Sequence[Task],
    protocol: Protocol,
    folder: Path,
    *,
    domains: Mapping[str, Domain] | None = None,
    jobs: int | None = None,
    run_task: RunTask | None = None,
    steps: int | None = None,
) -> dict[str, dict[str, Any]]:
    """Return the results of the tasks by name: those stored in `folder` are read, the others are run and stored there.

    Raises InputError if a stored one was made with another protocol, or is damaged.

    domains: by key, None for those of `office_caltech10` on this machine; jobs: tasks that run at a time, in separate
    processes if more than one; None for the number of cores. run_task: function that runs a task and calls its last
    argument `steps` times, to advance the progress bar; None for `run`, with one step for each pair of rhos.
    """
    from joblib import cpu_count
    from tqdm.auto import tqdm

    jobs = check_whole_number("jobs", cpu_count() if jobs is None else jobs)
    files = {task.name: folder / task.file for task in tasks}
    done = {name: _read_result(file, protocol) for name, file in files.items() if file.exists()}
    remaining = [task for task in tasks if task.name not in done]
    if remaining:
        if domains is None:
            domains = office_caltech10(keys=dict.fromkeys(key for task in remaining for key in task.keys))
        folder.mkdir(parents=True, exist_ok=True)
        run_task, steps = run_task or run, steps or len(protocol.pairs)
        calls = [(task, {key: domains[key] for key in task.keys}, protocol) for task in remaining]
        jobs = min(jobs, len(remaining))
        run_calls = _run_sequentially if jobs == 1 else partial(_run_in_parallel, jobs=jobs)
        with tqdm(total=len(remaining) * steps, unit="batch", desc="pu", disable=None) as bar:
            for result in run_calls(run_task, calls, bar):
                _write_result(files[result["task"]], result, protocol)
                done[result["task"]] = result
                if bar.disable:  # not a terminal: write a line to the log instead
                    sys.stderr.write(f"pu: {result['task']} done, {len(done)} of {len(tasks)}\n")
                    sys.stderr.flush()
    return {task.name: done[task.name] for task in tasks}


def _run_sequentially(run_task: RunTask, calls: Sequence[Call], bar: Any) -> Iterator[dict[str, Any]]:
    """Yield the result of `run_task` for each call, run in this process. bar: progress bar, which the tasks advance."""
    for call in calls:
        bar.set_postfix_str(call[0].name)
        yield run_task(*call, bar.update)


def _run_in_parallel(run_task: RunTask, calls: Sequence[Call], bar: Any, jobs: int) -> Iterator[dict[str, Any]]:
    """Yield the result of `run_task` for each call, run in `jobs` processes, in the order in which they finish.

    bar: progress bar, which is advanced by the number of finished steps of all processes.
    """
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    n_steps = context.Value("q", 0)
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_set_up_worker, initargs=(n_steps,))
    try:
        # Tasks across two feature spaces take three times as long and come first.
        longest_first = sorted(calls, key=lambda call: call[0].has_one_space)
        running = {pool.submit(run_task, *call, _count_step) for call in longest_first}
        while running:
            done, running = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
            bar.update(n_steps.get_obj().value - bar.n)  # without the lock, which a killed process may still hold
            # Results come before errors, so that they are stored.
            yield from (future.result() for future in sorted(done, key=lambda future: future.exception() is not None))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_n_steps: Any = None


def _set_up_worker(n_steps: Any) -> None:
    """Set up a worker process: one thread, end at Ctrl-C, and end with the parent process.

    n_steps: number of finished steps of all processes, an integer in shared memory.
    """
    global _n_steps  # shared memory can be passed to a process only when it begins
    _n_steps = n_steps
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)


def _end_with_parent() -> None:
    """Wait until the parent process has ended, then end this process at once; runs in a thread of each worker."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _count_step() -> None:
    """Add one to the number of finished steps of all processes, an integer in shared memory."""
    with _n_steps.get_lock():
        _n_steps.value += 1


def _write_result(file: Path, result: dict[str, Any], protocol: Protocol) -> None:
    """Write the results of a task as JSON, with the protocol's fingerprint, to `file`, completely or not at all."""
    with atomic_folder(file.parent) as stage:
        text = json.dumps(result | {"fingerprint": protocol.fingerprint}, indent=1)
        (stage / file.name).write_text(text + "\n", encoding="utf-8")


def _read_result(file: Path, protocol: Protocol) -> dict[str, Any]:
    """Return the results of a task stored in `file`; raise InputError if it is damaged or of another protocol."""
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
        is_same = result.pop("fingerprint") == protocol.fingerprint
    except (ValueError, KeyError, AttributeError) as error:
        raise InputError(f"{file} must have results of a task, got something else: remove it") from error
    if not is_same:
        raise InputError(f"{file} must have results of these options, got others': take another folder, or remove it")
    return result


def reproduce(
    folder: Path,
    echo: Callable[[str], None],
    *,
    tasks: str | None = None,
    quick: bool = False,
    task_folder: Path | None = None,
    jobs: int | None = None,
    device: str = "cpu",
) -> None:
    """Run tasks of positive-unlabeled learning, print a table with `echo`, and write pu.png and pu.json into `folder`.

    tasks: names separated by commas, None for all of the paper; quick: 4 folds and 9 pairs of rho, not 20 and 36;
    task_folder: where finished tasks are stored and read, `folder`/pu-tasks for None; jobs: tasks at a time, None for
    the number of cores, 1 on a GPU; device: where UGW is solved.
    """
    protocol = QUICK if quick else Protocol()
    selected = parse_tasks(tasks)
    jobs = 1 if jobs is None and device != "cpu" else jobs
    task_folder = task_folder or folder / "pu-tasks"
    results = run_all(selected, protocol, task_folder, jobs=jobs, run_task=partial(run, device=device))
    rows = table_rows(selected, results, folds=protocol.folds)
    echo("\n".join(format_table(rows)))
    if quick:
        echo(f"a quick look: {protocol.folds} folds and {len(protocol.pairs)} pairs of rho, not the paper's 20 and 36")
    figure(rows).savefig(folder / "pu.png", dpi=160)
    write_numbers(folder, "pu", protocol.numbers | {"rows": rows, "tasks": results})
