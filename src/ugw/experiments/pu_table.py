"""The table of the positive-unlabeled experiment: selection of rho on validation folds, comparison with the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..plots.style import STYLE
from .pu_tasks import METHODS, Task

# log2 of both rhos in the paper's column with two parameters: the largest ones.
LARGEST_LOG_RHOS = (-5, -5)
# Argument ddof of the standard deviations, as in the paper.
DDOF = {"init": 0, "pgw": 0, "ugw": 1, "ugw-2": 1, "ugw-8": 1}
TITLES = {"init": "Init", "pgw": "PGW", "ugw": "UGW", "ugw-2": "UGW (2)", "ugw-8": "UGW (8)"}


def table_rows(tasks: Sequence[Task], results: Mapping[str, Any], *, folds: int) -> list[dict[str, Any]]:
    """Return a row for each task and each method of `METHODS`: a dict with its numbers, in percent, on the test folds.

    A row has task, method, accuracy (mean) and std; for UGW log2_rho of the selected rhos, mass and converged, no
    percentages; and if the paper has the task, paper, paper_std and difference, accuracy − paper. results: as `pu.run`
    returns them, by task name; folds: number of test folds, the first ones, before the validation folds. Methods: init,
    initial plans; pgw, partial GW; ugw: with the pair of rhos of the best accuracy on the task's validation folds;
    ugw-2: both rhos 2⁻⁵, as in the paper's table; ugw-8: one pair for all tasks with the same two kinds of features.
    Ties: the larger rhos.
    """
    rows = []
    shared = {key: _best_shared_pair(tasks, results, key, folds) for key in {(t.source, t.target) for t in tasks}}
    for task in tasks:
        result = results[task.name]
        grid, pairs = np.array(result["ugw"]), [tuple(pair) for pair in result["pairs"]]
        best = {
            "ugw": _best_index(grid[:, folds:].mean(axis=1)),
            "ugw-2": pairs.index(LARGEST_LOG_RHOS),
            "ugw-8": shared[task.source, task.target],
        }
        for method in METHODS:
            values = grid[best[method], :folds] if method in best else np.array(result[method])
            row: dict[str, Any] = {"task": task.name, "method": method, "accuracy": float(values.mean())}
            row["std"] = float(values.std(ddof=DDOF[method]))
            if method in best:
                index = best[method]
                row |= {
                    "log2_rho": list(pairs[index]),
                    "mass": result["mass"][index],
                    "converged": result["converged"][index],
                }
            if method in task.published:
                row["paper"], row["paper_std"] = task.published[method]
                row["difference"] = row["accuracy"] - row["paper"]
            rows.append(row)
    return rows


def _best_shared_pair(tasks: Sequence[Task], results: Mapping[str, Any], kind: tuple[str, str], folds: int) -> int:
    """Return the index of the pair of rhos that is best for all tasks between the two kinds of features.

    It has the largest mean over these tasks of (validation accuracy − accuracy if all predicted positives are wrong) /
    prior. kind: (source, target) features; results: of each task, by name; folds: number of test folds.
    """
    gains = []
    for task in tasks:
        if (task.source, task.target) == kind:
            lowest = 100.0 * (1.0 - 2.0 * task.prior)  # if all predicted positives are wrong
            gains.append((np.array(results[task.name]["ugw"])[:, folds:].mean(axis=1) - lowest) / task.prior)
    return _best_index(np.mean(gains, axis=0))


def _best_index(scores: np.ndarray) -> int:
    """Return the index of the highest score, the first one of scores that are equal up to rounding."""
    return int(np.flatnonzero(scores >= scores.max() - 1e-9)[0])


def format_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the table as lines of text: two titles, then for each task the accuracies in percent of all methods.

    An accuracy is followed by ± deviation and, if the paper has the task, by [the paper's accuracy] and the difference.
    Last is the accuracy of random labels, and before it the largest absolute difference of "ugw-2" from the paper, if
    there is one. rows: of `table_rows`.
    """
    width, first = 25, 2 + max(len(row["task"]) for row in rows)
    lines = ["test accuracy in %: ours ± std, [the paper's], difference"]
    lines.append(f"{'task':<{first}}" + "".join(f"{TITLES[method]:^{width}}" for method in METHODS).rstrip())
    for start in range(0, len(rows), len(METHODS)):
        task_rows = rows[start : start + len(METHODS)]
        lines.append(
            f"{task_rows[0]['task']:<{first}}" + "".join(f"{_format_cell(row):<{width}}" for row in task_rows).rstrip()
        )
    compared = [row for row in rows if "difference" in row and row["method"] == "ugw-2"]
    if compared:
        largest = max(abs(row["difference"]) for row in compared)
        lines.append(f"UGW (2), one pair of rho for all tasks: at most {largest:.1f} from the paper's")
    priors = sorted({_prior(row["task"]) for row in rows})
    chances = (f"{_chance_accuracy(prior):.0f} at prior {prior:g}" for prior in priors)
    lines.append(f"labels at random: {', '.join(chances)}")
    return lines


def _prior(name: str) -> float:
    """Return the prior of the task with this name, the number after the last colon."""
    return float(name.split(":")[-1])


def _chance_accuracy(prior: float) -> float:
    """Return the expected accuracy in percent if a random fraction `prior` of the points is labeled positive.

    prior: also the fraction of true positives.

    >>> _chance_accuracy(0.1)
    82.0
    """
    return 100.0 * (1.0 - 2.0 * prior * (1.0 - prior))


def _format_cell(row: Mapping[str, Any]) -> str:
    """Return a row of `table_rows` as text: accuracy ± deviation, then if known [paper's accuracy] ours − paper's."""
    text = f"{row['accuracy']:.1f} ± {row['std']:.1f}"
    return f"{text:<10} [{row['paper']:.1f}] {row['difference']:+.1f}" if "paper" in row else text


def figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Return a bar chart of the test accuracies of initial plans, PGW and UGW by task, from rows of `table_rows`.

    Marks show the paper's accuracies, and dotted lines those of random labels.
    """
    methods, colors = ("init", "pgw", "ugw"), STYLE.palette
    names = list(dict.fromkeys(row["task"] for row in rows))
    canvas = Figure(figsize=(max(5.0, 2.0 + 1.15 * len(names)), 4.4), layout="constrained")
    ax = canvas.subplots()
    row_of = {(row["task"], row["method"]): row for row in rows}
    for k, method in enumerate(methods):
        place = np.arange(len(names)) + 0.27 * (k - 1)
        method_rows = [row_of[name, method] for name in names]
        heights, spreads = ([r[column] for r in method_rows] for column in ("accuracy", "std"))
        bars = {"yerr": spreads, "error_kw": {"ecolor": "0.45", "elinewidth": 1.0}}
        ax.bar(place, heights, width=0.25, color=colors[k], label=TITLES[method], **bars)
        marks = [(p, r["paper"]) for p, r in zip(place, method_rows, strict=True) if "paper" in r]
        if marks:
            last = method == methods[-1]
            ax.plot(*zip(*marks, strict=True), "_", color=STYLE.ink, ms=13, mew=2.2, label="paper" if last else None)
    for k, name in enumerate(names):
        chance = _chance_accuracy(_prior(name))
        ax.hlines(chance, k - 0.45, k + 0.45, color=STYLE.ink, linestyle=":", label=None if k else "labels at random")
    ax.set_xticks(range(len(names)), ["{} →\n{}\nprior {}".format(*name.split(":")) for name in names], fontsize=9)
    ax.set_xlim(-0.6, len(names) - 0.4)
    ax.set_ylim(np.floor(min(row["accuracy"] for row in rows) / 5) * 5 - 5, 100)
    ax.set_ylabel("test accuracy, %", color=STYLE.ink, fontsize=11)
    ax.grid(axis="y", linewidth=0.5, alpha=0.4)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(colors=STYLE.ink)
    ax.legend(ncols=5 if len(names) > 3 else 2, frameon=False, loc="upper left", labelcolor=STYLE.ink, fontsize=11)
    return canvas
