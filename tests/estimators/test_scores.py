"""Scores of alignments by their definitions."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import ugw
from oracles.errors import assert_refused
from ugw.estimators import foscttm, label_transfer_accuracy


def test_foscttm_is_the_double_sum():
    rng = np.random.default_rng(0)
    P, T = rng.normal(size=(9, 3)), rng.normal(size=(9, 3))
    D = cdist(P, T)
    shares = [(D[i] < D[i, i]).sum() / 8 for i in range(9)] + [(D[:, i] < D[i, i]).sum() / 8 for i in range(9)]
    assert foscttm(P, T) == pytest.approx(np.mean(shares), rel=1e-12)
    assert foscttm(T, T) == 0.0
    assert foscttm(np.full((9, 3), np.nan), T) == 1.0
    for bad in (T[:4], T[:, :2]):
        with pytest.raises(ugw.InputError, match="belong to each other"):
            foscttm(P, bad)
    with pytest.raises(ugw.InputError, match="k must be a whole number from 1 to 3, got 5"):
        label_transfer_accuracy(P, np.arange(9), T[:3], np.arange(3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.arange(3)}, r"labels must have shape \(9,\), got \(3,\)"),
        ({"target_labels": np.arange(9)[:, None]}, r"target_labels must have shape \(9,\), got \(9, 1\)"),
        ({"target": np.ones((9, 2))}, "rows must be of one width, got 3 and 2"),
        ({"target": np.full((9, 3), np.nan)}, "target must be finite"),
        ({"projected": np.ones(9)}, r"projected must have shape \(n, d\)"),
        ({"projected": "abc"}, "projected must hold real numbers"),
    ],
)
def test_label_transfer_needs_a_label_for_each_row(change, message):
    given = {
        "projected": np.ones((9, 3)),
        "labels": np.arange(9),
        "target": np.ones((9, 3)),
        "target_labels": np.arange(9),
    }
    assert_refused(label_transfer_accuracy, **(given | change), match=message)
