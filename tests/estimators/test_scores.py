"""Scores of alignments by their definitions."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import ugw
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
    with pytest.raises(ugw.InputError, match=r"k must be at most .* got 5, expected at most 3"):
        label_transfer_accuracy(P, np.arange(9), T[:3], np.arange(3))
