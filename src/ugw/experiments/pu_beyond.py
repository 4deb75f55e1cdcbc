"""Beyond the paper's table: do better minima, conic plans or a rho without a grid make better labels?

All without a choice on validation folds, so that nothing but the plan differs.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import ugw

from ..datasets.labeled import Domain
from ..estimators.pu import label_top_scores
from ..geometry.space import Space
from .pu import QUICK, SOLVER, Protocol, accuracy, run_all, spaces
from .pu_table import LARGEST
from .pu_tasks import Task, chosen

# Random starts beside the paper's one and those of init="auto".
RANDOM = 7
TITLES = {"ugw": "UGW (2)", "minima": "best of starts", "cgw": "CGW", "mass": "mass rule"}


def run(task: Task, domains: Mapping[str, Domain], protocol: Protocol, tick: Callable[[], Any]) -> dict[str, Any]:
    """For each way: accuracies of the test folds in percent, the mean mass, and what else there is to say."""
    began = time.process_time()
    x, y, truth, start = spaces(task, domains, protocol, range(protocol.folds))
    rho, eps = (2.0 ** LARGEST[0], 2.0 ** LARGEST[1]), 2.0**protocol.log_eps
    made: dict[str, Any] = {"task": task.name}

    def keep(way: str, result: Any, **more: Any) -> None:
        plans = np.asarray(result.plan)
        labels, _ = label_top_scores(plans.sum(axis=1), task.prior)
        masses = plans.sum(axis=(1, 2))
        made[way] = {"accuracy": accuracy(labels, truth), "mass": float(masses.mean()), **more}
        made[way]["converged"] = float(np.mean(result.converged))
        tick()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ugw.ConvergenceWarning)  # the results say how many converged
        light = [space.to("float32") for space in (x, y)]
        plans = start.plans(*rho).astype(np.float32)
        one = ugw.solve(*light, rho=rho, eps=eps, init=plans, solver=SOLVER)
        keep("ugw", one, value=one.value.tolist())
        many = _lowest(light, rho, eps, plans)
        keep("minima", many, value=many.value.tolist())
        keep("cgw", ugw.solve_conic(x, y, rho=rho, init=one.plan.astype(float)))
        found = ugw.rho_for_mass(x, y, kept=task.prior, eps=eps)
        keep("mass", ugw.solve(x, y, rho=found, eps=eps), log2_rho=np.log2(found).tolist())
    return made | {"seconds": time.process_time() - began}


class _Chosen:
    """For each item the one of two batches of results that has the lower objective."""

    def __init__(self, one: Any, two: Any) -> None:
        first = one.value <= two.value
        self.value = np.where(first, one.value, two.value)
        self.plan = np.where(first[:, None, None], one.plan, two.plan)
        self.converged = np.where(first, one.converged, two.converged)


def _lowest(pair: Sequence[Space], rho: Any, eps: float, plans: np.ndarray) -> _Chosen:
    """The lowest objectives found from the given plans, random ones and those of init="auto"."""
    many = ugw.Multistart(solver=SOLVER, n=1 + RANDOM)
    return _Chosen(
        ugw.solve(*pair, rho=rho, eps=eps, init=plans, solver=many), ugw.solve(*pair, rho=rho, eps=eps, solver=SOLVER)
    )


def rows(tasks: Sequence[Task], results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each task: mean accuracy and deviation of each way, and how much lower the better minima are."""
    made = []
    for task in tasks:
        found = results[task.name]
        row: dict[str, Any] = {"task": task.name}
        for way in TITLES:
            values = np.array(found[way]["accuracy"])
            row[way] = {"accuracy": float(values.mean()), "std": float(values.std(ddof=1))}
        one, many = (np.array(found[way]["value"]) for way in ("ugw", "minima"))
        row["lower"] = {"folds": int((many < one - 1e-5 * np.abs(one)).sum()), "mean": float(np.mean(1.0 - many / one))}
        row["log2_rho"] = float(np.mean(found["mass"]["log2_rho"]))
        made.append(row)
    return made


def lines(table: Sequence[Mapping[str, Any]], folds: int) -> list[str]:
    """The table as text."""
    made = [f"test accuracy in %, rho = 2^{LARGEST[0]} but for the mass rule, whose mean log2 rho is given"]
    head = "".join(f"{title:<16}" for title in TITLES.values())
    made.append(f"{'task':<22}{head}{'lower objective':<22}log2 rho")
    for row in table:
        cells = "".join(f"{_cell(row[way]):<16}" for way in TITLES)
        lower = f"{row['lower']['folds']} of {folds}, by {100 * row['lower']['mean']:.2g} %"
        made.append(f"{row['task']:<22}{cells}{lower:<22}{row['log2_rho']:.1f}")
    gains = {way: np.mean([row[way]["accuracy"] - row["ugw"]["accuracy"] for row in table]) for way in TITLES}
    said = ", ".join(f"{TITLES[way]} {gain:+.1f}" for way, gain in gains.items() if way != "ugw")
    return [*made, f"mean gain over UGW (2): {said}"]


def _cell(found: Mapping[str, float]) -> str:
    return f"{found['accuracy']:.1f} ± {found['std']:.1f}"


def reproduce(
    folder: Path, echo: Callable[[str], None], *, tasks: str | None, quick: bool, kept: Path, jobs: int | None
) -> None:
    """Run, print the table, and write pu-beyond.json. kept: where finished tasks are."""
    protocol = QUICK if quick else Protocol()
    asked = chosen(tasks)
    results = run_all(asked, protocol, kept, jobs=jobs, learn=run, steps=len(TITLES))
    table = rows(asked, results)
    for line in lines(table, protocol.folds):
        echo(line)
    numbers = {"protocol": asdict(protocol), "version": ugw.__version__, "rows": table, "tasks": results}
    (folder / "pu-beyond.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
