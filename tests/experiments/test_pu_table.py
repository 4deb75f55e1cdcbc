"""The table of the positive-unlabeled experiment."""

import pytest

from oracles.pu import SAME
from ugw.experiments import pu_table
from ugw.experiments.pu_tasks import Task, parse_tasks


def results(**scores):
    """Results of one task: validation and test accuracy, two folds each, of three pairs."""
    grid = [[test, test, val, val] for test, val in scores["ugw"]]
    fields = {"ugw": grid, "pairs": [(-5, -5), (-5, -8), (-8, -8)], "init": [70.0, 90.0], "pgw": [80.0, 80.0]}
    return fields | {"mass": [1.0, 0.5, 0.1], "converged": [1.0, 1.0, 0.5]}


def test_parameters_are_chosen_on_validation_folds():
    tasks = [SAME, Task("surf", "surf", "A", 0.2)]
    by_task = {
        tasks[0].name: results(ugw=[(99.0, 82.0), (81.0, 86.0), (82.0, 86.0)]),
        tasks[1].name: results(ugw=[(98.0, 60.0), (71.0, 61.0), (72.0, 65.0)]),
    }
    rows = {(row["task"], row["method"]): row for row in pu_table.table_rows(tasks, by_task, folds=2)}
    one, two = (task.name for task in tasks)
    assert rows[one, "ugw"]["accuracy"] == 81.0  # a tie, which the larger rho wins, whatever the test folds say
    assert rows[one, "ugw"]["log2_rho"] == [-5, -8]
    assert rows[two, "ugw"]["accuracy"] == 72.0
    assert [rows[name, "ugw-2"]["accuracy"] for name in (one, two)] == [99.0, 98.0]
    assert [rows[name, "ugw-8"]["accuracy"] for name in (one, two)] == [82.0, 72.0]  # one pair for both
    assert rows[one, "init"]["std"] == 10.0
    assert rows[one, "ugw"]["difference"] == pytest.approx(81.0 - 83.5)
    text = pu_table.format_table(list(rows.values()))
    assert len(text) == 6  # a title, names, two tasks, how far from the paper, and chance
    assert "81.0 ± 0.0 [83.5] -2.5" in text[2]


def test_tasks_without_a_published_number_are_not_compared():
    task = parse_tasks("mobilenet-C:surf-A:0.1")[0]
    rows = pu_table.table_rows([task], {task.name: results(ugw=[(80.0, 80.0)] * 3)}, folds=2)
    assert not any("paper" in row for row in rows)
    assert "[" not in pu_table.format_table(rows)[2]
