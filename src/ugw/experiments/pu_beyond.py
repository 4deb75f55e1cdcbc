"""Beyond the paper's table: accuracy of labels from lower objectives, conic plans, and a rho chosen without a grid.

Nothing is selected on validation folds, so that only the plans differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import ugw

from .._utils.caller import convergence_warnings_ignored
from ..datasets.labeled import Domain
from ..estimators.pu import label_top_scores
from ..geometry.space import Space
from ._shared import write_numbers
from .pu import QUICK, SOLVER, Protocol, accuracy, make_spaces, run_all
from .pu_table import LARGEST_LOG_RHOS
from .pu_tasks import Task, parse_tasks

# Random initial plans besides the paper's one and those of init="auto".
N_RANDOM_PLANS = 7
TITLES = {"ugw": "UGW (2)", "minima": "best of starts", "cgw": "CGW", "mass": "mass rule"}


def run(task: Task, domains: Mapping[str, Domain], protocol: Protocol, advance: Callable[[], Any]) -> dict[str, Any]:
    """Return results as a dict: "task", its name, "seconds" of the processor, and a dict for each of four methods.

    "ugw": one solve, rho = 2⁻⁵; "minima": the best of several starts; "cgw": conic plans; "mass": rho from
    `ugw.rho_for_mass`. Their dicts have "accuracy", a list of those of the test folds in percent, "mass", the mean mass
    of the plans, "converged", a fraction, and a list by fold: "value" for the first two, "log2_rho" for "mass".
    domains: by key, as from `office_caltech10`; advance: called after each method, for a progress bar.
    """
    start_time = time.process_time()
    x, y, truth, initial = make_spaces(task, domains, protocol, range(protocol.folds))
    rho, eps = (2.0 ** LARGEST_LOG_RHOS[0], 2.0 ** LARGEST_LOG_RHOS[1]), 2.0**protocol.log_eps
    results: dict[str, Any] = {"task": task.name}

    def store(method: str, plans: np.ndarray, converged: np.ndarray, **extra: Any) -> None:
        """Set results[method] to a dict: "accuracy" of each fold, mean "mass", fraction "converged", and `extra` as is.

        Also calls `advance`. plans: (folds, n, m), which give accuracies and mass; converged: (folds,) bool.
        """
        labels, _ = label_top_scores(plans.sum(axis=1), task.prior)
        numbers = {"mass": float(plans.sum(axis=(1, 2)).mean()), "converged": float(np.mean(converged))}
        results[method] = {"accuracy": accuracy(labels, truth), **numbers, **extra}
        advance()

    with convergence_warnings_ignored():  # the results contain the fraction that converged
        float32_spaces = [space.to("float32") for space in (x, y)]
        plans = initial.plans(*rho).astype(np.float32)
        single = ugw.solve(*float32_spaces, rho=rho, eps=eps, init=plans, solver=SOLVER)
        store("ugw", single.plan, single.converged, value=single.value.tolist())
        value, *best = _best_of_starts(float32_spaces, rho, eps, plans)
        store("minima", *best, value=value.tolist())
        conic = ugw.solve_conic(x, y, rho=rho, init=single.plan.astype(float))
        store("cgw", conic.plan, conic.converged)
        matched_rho = ugw.rho_for_mass(x, y, kept=task.prior, eps=eps)
        matched = ugw.solve(x, y, rho=matched_rho, eps=eps)
        store("mass", matched.plan, matched.converged, log2_rho=np.log2(matched_rho).tolist())
    return results | {"seconds": time.process_time() - start_time}


def _best_of_starts(pair: Sequence[Space], rho: Any, eps: float, plans: np.ndarray) -> list[np.ndarray]:
    """Return value (B,), plan (B, n, m) and convergence (B,) of the solve with the lowest objective for each item.

    An item is solved from `plans` (B, n, m), from `N_RANDOM_PLANS` random plans, and from the plan of init="auto". A
    solve that did not converge counts too. pair: both batches of spaces; rho: penalty of both marginals; eps: entropy.
    """
    multistart = ugw.Multistart(solver=SOLVER, n=1 + N_RANDOM_PLANS)
    first = ugw.solve(*pair, rho=rho, eps=eps, init=plans, solver=multistart)
    second = ugw.solve(*pair, rho=rho, eps=eps, solver=SOLVER)
    index = np.where(first.value <= second.value, 0, 1), np.arange(len(plans))
    return [np.stack([getattr(r, name) for r in (first, second)])[index] for name in ("value", "plan", "converged")]


def table_rows(tasks: Sequence[Task], results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a dict for each task, from the results of `run` by task name.

    It has the name as "task"; by method "accuracy" and "std", mean and standard deviation (ddof 1) in percent; under
    "lower" the number "folds" in which the best of several starts has a lower objective than one start, and "mean", the
    mean of 1 − best value / value of one start over all folds; and "log2_rho", the mean of method "mass", whose rho
    `ugw.rho_for_mass` chose.
    """
    table = []
    for task in tasks:
        result = results[task.name]
        row: dict[str, Any] = {"task": task.name}
        for method in TITLES:
            values = np.array(result[method]["accuracy"])
            row[method] = {"accuracy": float(values.mean()), "std": float(values.std(ddof=1))}
        single, best = (np.array(result[method]["value"]) for method in ("ugw", "minima"))
        is_lower = best < single - 1e-5 * np.abs(single)
        row["lower"] = {"folds": int(is_lower.sum()), "mean": float(np.mean(1.0 - best / single))}
        row["log2_rho"] = float(np.mean(result["mass"]["log2_rho"]))
        table.append(row)
    return table


def format_table(table: Sequence[Mapping[str, Any]], folds: int) -> list[str]:
    """Return the rows of `table_rows` as lines of text: two titles, a line for each task, last mean gains over UGW.

    A gain is the accuracy of a method minus that of "ugw", in percentage points; folds: number of test folds.
    """
    lines = [f"test accuracy in %, rho = 2^{LARGEST_LOG_RHOS[0]} but for the mass rule, whose mean log2 rho is given"]
    head = "".join(f"{title:<16}" for title in TITLES.values())
    lines.append(f"{'task':<22}{head}{'lower objective':<22}log2 rho")
    for row in table:
        texts = [f"{row[method]['accuracy']:.1f} ± {row[method]['std']:.1f}" for method in TITLES]
        cells = "".join(f"{text:<16}" for text in texts)
        lower = f"{row['lower']['folds']} of {folds}, by {100 * row['lower']['mean']:.2g} %"
        lines.append(f"{row['task']:<22}{cells}{lower:<22}{row['log2_rho']:.1f}")
    gains = {name: np.mean([row[name]["accuracy"] - row["ugw"]["accuracy"] for row in table]) for name in TITLES}
    gain_text = ", ".join(f"{TITLES[name]} {gain:+.1f}" for name, gain in gains.items() if name != "ugw")
    return [*lines, f"mean gain over UGW (2): {gain_text}"]


def reproduce(
    folder: Path, echo: Callable[[str], None], *, tasks: str | None, quick: bool, task_folder: Path, jobs: int | None
) -> None:
    """Run the tasks with four methods, print a table of accuracies with `echo`, and write pu-beyond.json into `folder`.

    tasks: names separated by commas, None for all of the paper; quick: 4 folds instead of 20; task_folder: where
    finished tasks are stored and read; jobs: tasks at a time, None for the number of cores.
    """
    protocol = QUICK if quick else Protocol()
    selected = parse_tasks(tasks)
    results = run_all(selected, protocol, task_folder, jobs=jobs, run_task=run, steps=len(TITLES))
    table = table_rows(selected, results)
    echo("\n".join(format_table(table, protocol.folds)))
    write_numbers(folder, "pu-beyond", protocol.numbers | {"rows": table, "tasks": results})
