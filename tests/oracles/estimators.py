"""Data for the tests of estimators."""

import numpy as np


def mirrored_pair(n=24, seed=0):
    """Return a cloud (n, 3) with three axes and its mirrored copy in other coordinates, row by row."""
    X = np.random.default_rng(seed).normal(size=(n, 3)) * [3.0, 2.0, 1.0]
    return X, X @ np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, -1]]) + 1.0


def pu_data(n=30, hidden=10, seed=0):
    """Return points (2n, 2) and labels: n tight positives, of which some are unlabeled, among n wide negatives."""
    rng = np.random.default_rng(seed)
    X = np.vstack([0.3 * rng.normal(size=(n, 2)), 2.0 * rng.normal(size=(n, 2))])
    return X, np.r_[np.ones(n - hidden, int), np.zeros(n + hidden, int)]
