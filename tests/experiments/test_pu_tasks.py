"""Folds and names of the tasks of the positive-unlabeled experiment."""

from dataclasses import replace

import numpy as np
import pytest

import ugw
from oracles.pu import CROSS, SAME
from ugw.experiments import pu_tasks
from ugw.experiments.pu_tasks import Task, draw_fold, parse_tasks


def rows_of(domain, points):
    """The rows of these points in a domain, by their first coordinate, which is 0, 1, ..., 124 over 124."""
    place = np.argsort(domain.reduced[:, 0])
    return place[np.rint(points[:, 0] * 124).astype(int)]


@pytest.mark.parametrize("task", [SAME, CROSS, Task("surf", "surf", "C", 0.2)])
def test_a_fold_has_prior_times_size_positives_and_no_image_twice(domains, task):
    source, target = (domains[key] for key in task.keys)
    fold = draw_fold(task, domains, size=20, seed=3)
    assert fold.positives.min() >= 0
    assert fold.positives.max() <= 1
    assert fold.truth.sum() == round(task.prior * 20)
    positive_rows, unlabeled_rows = rows_of(source, fold.positives), rows_of(target, fold.unlabeled)
    assert (source.labels[positive_rows] == 0).all()
    np.testing.assert_array_equal(target.labels[unlabeled_rows] == 0, fold.truth)
    assert len(set(positive_rows)) == len(set(unlabeled_rows)) == 20
    if source is target:
        assert not set(positive_rows) & set(unlabeled_rows)
    again = draw_fold(task, domains, size=20, seed=3)
    np.testing.assert_array_equal(again.unlabeled, fold.unlabeled)
    assert not np.array_equal(draw_fold(task, domains, size=20, seed=4).unlabeled, fold.unlabeled)


def test_positives_do_not_come_first(domains):
    # The order of the points must not depend on the classes, for any rule for ties.
    first = [draw_fold(replace(SAME, prior=0.2), domains, size=20, seed=seed).truth[:4].mean() for seed in range(30)]
    assert 0.1 < np.mean(first) < 0.3


def test_tasks_by_name():
    assert len(parse_tasks(None)) == len(pu_tasks.PUBLISHED) == 10
    assert len(parse_tasks("substitute")) == 21
    assert [task.name for task in parse_tasks(" surf-C:surf-A:0.2 ,surf-C:surf-A:0.2")] == ["surf-C:surf-A:0.2"]
    with pytest.raises(ugw.InputError, match="got the task 'decaf-C:surf-A"):
        parse_tasks("decaf-C:surf-A:0.1")
