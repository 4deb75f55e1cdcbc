"""Positive-unlabeled learning on Office-Caltech10 (the paper's table): transport of the start, PGW and UGW.

Each task is learned on 20 folds; rho1 and rho2 are chosen on 20 others. Finished tasks are kept, one file each, so
that an interrupted run goes on where it was.
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
import warnings
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
from .._utils.checks import check_whole_number
from ..datasets import office
from ..datasets.labeled import Domain
from ..datasets.measured import office_caltech10
from ..errors import InputError
from ..estimators import PUClassifier
from ..estimators.pu import label_top_scores, partial_transport_plan
from ..geometry.space import Space
from .pu_table import figure, lines, selected
from .pu_tasks import Fold, Task, chosen, draw, file_of

# Solved in float32. At small rhos two plans alternate: whether the limit is even decides which one counts (docs/pu.md).
SOLVER = ugw.AlternateMin(tol=2e-5, max_iter=100, inner=ugw.Sinkhorn(max_iter=20))
# log2 of the rho of the transport between eccentricities whose accuracy is that of the start.
FLB_RHO = -6


@dataclass(frozen=True)
class Protocol:
    """What the results depend on besides the task: points of a fold, test folds, log2 of eps and of each rho.

    Seeds 0, 1, ... are test folds, and as many after them are for validation.

    >>> len(Protocol().pairs), list(QUICK.seeds)
    (36, [0, 1, 2, 3, 4, 5, 6, 7])
    """

    size: int = 100
    folds: int = 20
    log_eps: int = -9
    log_rhos: tuple[int, ...] = (-5, -6, -7, -8, -9, -10)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """All (log2 rho1, log2 rho2)."""
        return [(one, two) for one in self.log_rhos for two in self.log_rhos]

    @property
    def seeds(self) -> range:
        """Those of the test folds, then those of the validation folds."""
        return range(2 * self.folds)

    @property
    def fingerprint(self) -> str:
        """Changes with anything that changes the numbers, the data included."""
        said = [asdict(self), repr(SOLVER), FLB_RHO, sorted(office.SHA256.items()), ugw.__version__]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


QUICK = Protocol(folds=4, log_rhos=(-5, -7, -9))
# What runs a task: task, domains, protocol, tick → its results.
Learn = Callable[[Task, Mapping[str, Domain], Protocol, Callable[[], Any]], dict[str, Any]]


# -- one task ----------------------------------------------------------------------------------------------


def run(
    task: Task, domains: Mapping[str, Domain], protocol: Protocol, tick: Callable[[], Any], *, device: str = "cpu"
) -> dict[str, Any]:
    """Accuracies in percent, fold by fold: of the start and PGW on test folds, of UGW for each pair on all folds.

    tick: called after each pair. device: where UGW is solved; starts and PGW, exact programs, are solved by the CPU.
    """
    began = time.process_time()
    x, y, truth, start = spaces(task, domains, protocol, protocol.seeds)
    some = slice(0, protocol.folds)
    init, _ = label_top_scores(start.plans(2.0**FLB_RHO, 2.0**FLB_RHO)[some].sum(axis=1), task.prior)
    made: dict[str, Any] = {"task": task.name, "pairs": protocol.pairs, "init": accuracy(init, truth[some])}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ugw.ConvergenceWarning)  # the results say how many converged
        pgw = _partial(x, y, start.for_partial, task.prior, protocol.folds)
        made |= {"pgw": accuracy(pgw, truth[some]), "ugw": [], "mass": [], "converged": []}
        counts, light = (
            {*init.sum(axis=1).tolist(), *pgw.sum(axis=1).tolist()},
            [s.to("float32").to(device) for s in (x, y)],
        )
        for pair in protocol.pairs:
            rho = 2.0 ** pair[0], 2.0 ** pair[1]
            plans = torch.as_tensor(start.plans(*rho), dtype=torch.float32, device=device)
            pu = PUClassifier(
                task.prior, rho=rho, eps=2.0**protocol.log_eps, init=plans, scale=None, solver=SOLVER
            ).fit_spaces(*light)
            made["ugw"].append(accuracy(pu.labels_ == 1, truth))
            made["mass"].append(float(torch.as_tensor(pu.result_.mass).mean()))
            made["converged"].append(float(torch.as_tensor(pu.result_.converged).double().mean()))
            counts.update(pu.labels_.sum(axis=1).tolist())
            tick()
    return made | {"positives": sorted(counts), "seconds": time.process_time() - began}


def spaces(
    task: Task, domains: Mapping[str, Domain], protocol: Protocol, seeds: Sequence[int]
) -> tuple[Space, Space, np.ndarray, _Given | _Eccentric]:
    """The folds of some seeds as two batches of spaces, which of the unlabeled are positive, and the paper's start."""
    folds = [draw(task, domains, size=protocol.size, seed=seed) for seed in seeds]
    x = Space.from_points(np.stack([fold.positives for fold in folds]))
    y = Space.from_points(np.stack([fold.unlabeled for fold in folds]))
    start = _Given(folds, task.prior) if task.one_space else _Eccentric(x, y, 2.0**protocol.log_eps)
    return x, y, np.stack([fold.truth for fold in folds]), start


def lifted(plans: np.ndarray) -> np.ndarray:
    """Plans (folds, n, m) of a mass near 1: at small rhos float32 would lose them. By powers of two, so no bit changes.

    >>> lifted(np.array([[[3e-60]], [[0.5]]])).ravel() < 2
    array([ True,  True])
    """
    return np.ldexp(plans, 1 - np.frexp(plans.sum(axis=(1, 2), keepdims=True))[1])


def accuracy(labels: np.ndarray, truth: np.ndarray) -> list[float]:
    """The share of right labels of each fold, in percent. labels, truth: (folds, m)."""
    return (100.0 * (labels == truth).mean(axis=1)).tolist()


class _Given:
    """The start in one feature space: exact partial transport of the points, whatever rho is."""

    def __init__(self, folds: Sequence[Fold], prior: float) -> None:
        pairs = ((Space.from_points(fold.positives), Space.from_points(fold.unlabeled)) for fold in folds)
        self.for_partial = np.stack([partial_transport_plan(x, y, prior) for x, y in pairs])

    def plans(self, *_: float) -> np.ndarray:
        """(folds, n, m)."""
        return self.for_partial


class _Eccentric:
    """The start across feature spaces: entropic unbalanced transport between eccentricities, for each rho."""

    for_partial = "auto"

    def __init__(self, x: Space, y: Space, eps: float) -> None:
        one, two = (space.metric.dense().mean(2).numpy() for space in (x, y))
        self.cost, self.eps = (one[:, :, None] - two[:, None, :]) ** 2, eps

    def plans(self, *rho: float) -> np.ndarray:
        """(folds, n, m), of a mass near 1."""
        return lifted(ugw.solve_linear(None, None, cost=self.cost, rho=rho, eps=self.eps).plan)


def _partial(x: Space, y: Space, init: Any, prior: float, folds: int) -> np.ndarray:
    """Labels by partial GW of all positives, of mass `prior` together, on the first folds. Returns bools (folds, m)."""
    some = torch.arange(folds)
    light = x.take(some)
    light = replace(light, weight_tensor=prior * light.weight_tensor)
    first = init if isinstance(init, str) else init[:folds]
    pu = PUClassifier(prior, rho=ugw.Mass(prior), eps=0.0, init=first, scale=None)
    return pu.fit_spaces(light, y.take(some)).labels_ == 1


# -- all tasks, kept as they finish ------------------------------------------------------------------------


def run_all(
    tasks: Sequence[Task],
    protocol: Protocol,
    kept: Path,
    *,
    domains: Mapping[str, Domain] | None = None,
    jobs: int | None = None,
    learn: Learn | None = None,
    steps: int | None = None,
) -> dict[str, dict[str, Any]]:
    """Results by the names of the tasks: those that `kept` has, and the others, run and kept one by one.

    jobs: tasks that run at a time, in processes of their own if more than one; None: as many as there are cores.
    learn: what runs a task, with `steps` ticks: `run`, with one for each pair, if None.
    """
    from joblib import cpu_count
    from tqdm.auto import tqdm

    jobs = cpu_count() if jobs is None else jobs
    check_whole_number("jobs", jobs)
    done = {task.name: found for task in tasks if (found := _kept(kept / task.file, protocol)) is not None}
    todo = [task for task in tasks if task.name not in done]
    if todo:
        if domains is None:
            domains = office_caltech10(keys=dict.fromkeys(key for task in todo for key in task.keys))
        kept.mkdir(parents=True, exist_ok=True)
        learn, steps = learn or run, steps or len(protocol.pairs)
        jobs = min(jobs, len(todo))
        pool = partial(_in_turn, learn) if jobs == 1 else partial(_at_once, learn, jobs)
        with tqdm(total=len(todo) * steps, unit="batch", desc="pu", disable=None) as bar:
            for result in pool(todo, domains, protocol, bar):
                _keep(kept, result, protocol)
                done[result["task"]] = result
                if bar.disable:  # nobody looks at a bar: a line for a log
                    sys.stderr.write(f"pu: {result['task']} done, {len(done)} of {len(tasks)}\n")
                    sys.stderr.flush()
    return {task.name: done[task.name] for task in tasks}


def _in_turn(
    learn: Learn, tasks: Sequence[Task], domains: Mapping[str, Domain], protocol: Protocol, bar: Any
) -> Iterator[dict[str, Any]]:
    """Results of the tasks, as they come."""
    for task in tasks:
        bar.set_postfix_str(task.name)
        yield learn(task, domains, protocol, bar.update)


def _at_once(
    learn: Learn,
    jobs: int,
    tasks: Sequence[Task],
    domains: Mapping[str, Domain],
    protocol: Protocol,
    bar: Any,
) -> Iterator[dict[str, Any]]:
    """Results of the tasks, as they come, from processes."""
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    ticks = context.Value("q", 0)
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(ticks,))
    try:
        longest = sorted(tasks, key=lambda task: task.one_space)  # tasks across features take three times as long
        running = {
            pool.submit(learn, task, {key: domains[key] for key in task.keys}, protocol, _tick) for task in longest
        }
        while running:
            done, running = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
            bar.update(ticks.get_obj().value - bar.n)  # without the lock, which a process that was killed may hold
            yield from (future.result() for future in sorted(done, key=lambda future: future.exception() is not None))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_ticks: Any = None


def _begin(ticks: Any) -> None:
    """One thread for each process, which ends at once on Ctrl-C, and with the one that began it, however that ended.

    ticks: counts what all of them have done.
    """
    global _ticks  # a process can be given a shared counter when it begins, not with a task
    _ticks = ticks
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _tick() -> None:
    with _ticks.get_lock():
        _ticks.value += 1


def _keep(kept: Path, result: dict[str, Any], protocol: Protocol) -> None:
    """Write the results of a task, all or nothing."""
    with atomic_folder(kept) as stage:
        text = json.dumps(result | {"fingerprint": protocol.fingerprint}, indent=1)
        (stage / file_of(result["task"])).write_text(text + "\n", encoding="utf-8")


def _kept(file: Path, protocol: Protocol) -> dict[str, Any] | None:
    """The results in a file, None if there is none; those of other options are refused."""
    if not file.exists():
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        same = found.pop("fingerprint") == protocol.fingerprint
    except (ValueError, KeyError, AttributeError) as error:
        raise InputError(f"{file} must have results of a task, got something else: remove it") from error
    if not same:
        raise InputError(f"{file} must have results of these options, got others': take another folder, or remove it")
    return found


def reproduce(
    folder: Path,
    echo: Callable[[str], None],
    *,
    tasks: str | None = None,
    quick: bool = False,
    kept: Path | None = None,
    jobs: int | None = None,
    device: str = "cpu",
) -> None:
    """Run, print the table, and write pu.png and pu.json. kept: where finished tasks are, `folder`/pu-tasks if None."""
    protocol = QUICK if quick else Protocol()
    asked = chosen(tasks)
    jobs = 1 if jobs is None and device != "cpu" else jobs
    results = run_all(asked, protocol, kept or folder / "pu-tasks", jobs=jobs, learn=partial(run, device=device))
    rows = selected(asked, results, folds=protocol.folds)
    for line in lines(rows):
        echo(line)
    if quick:
        echo(f"a quick look: {protocol.folds} folds and {len(protocol.pairs)} pairs of rho, not the paper's 20 and 36")
    figure(rows).savefig(folder / "pu.png", dpi=160)
    numbers = {"protocol": asdict(protocol), "version": ugw.__version__, "rows": rows, "tasks": results}
    (folder / "pu.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
