"""How good an alignment is, where the truth is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._utils.checks import as_tensor, check_whole_number
from ..errors import InputError
from ..geometry.graph_distances import cross_distances


def foscttm(projected: Any, target: Any) -> float:
    """Fraction of samples closer than the true match, both ways; row i of one belongs to row i of the other.

    0 is perfect, 0.5 is chance. A row that was not projected, NaN, counts as 1, the worst there is.
    projected, target: (n, d) each.

    >>> foscttm([[0.0], [1.0], [2.0]], [[0.1], [1.1], [2.1]])
    0.0
    >>> round(foscttm([[2.0], [1.0], [0.0]], [[0.1], [1.1], [2.1]]), 3)
    0.667
    """
    one, other = as_tensor("projected", projected), as_tensor("target", target)
    if one.ndim != 2 or one.shape != other.shape:
        raise InputError(f"rows must belong to each other, got shapes {tuple(one.shape)} and {tuple(other.shape)}")
    if len(one) < 2:
        raise InputError(f"FOSCTTM compares a row with others, got {len(one)}, expected at least 2")
    lost = one.isnan().any(1)
    distances = cross_distances(one.double().masked_fill(lost[:, None], 0.0), other.double(), "euclidean")
    distances[lost] = float("inf")
    match = distances.diagonal()
    shares = []
    for closer in (distances < match[:, None], distances.mT < match[:, None]):
        share = closer.double().sum(1) / (len(one) - 1)
        share[lost] = 1.0
        shares.append(share)
    return float((shares[0] + shares[1]).mean() / 2.0)


def label_transfer_accuracy(projected: Any, labels: Any, target: Any, target_labels: Any, *, k: int = 5) -> float:
    """The share of projected rows whose label is that of most of their k nearest target rows. NaN rows count as wrong.

    projected: (n, d); target: (m, d); labels: (n,), (m,). With k = 5, as SCOT reports it.

    >>> label_transfer_accuracy([[0.1], [5.1]], ["a", "b"], [[0.0], [5.0]], ["a", "b"], k=1)
    1.0
    """
    from sklearn.neighbors import KNeighborsClassifier

    projected, labels = np.asarray(projected), np.asarray(labels)
    check_whole_number("k", k)
    if k > len(target):
        raise InputError(f"k must be at most the number of target rows, got {k}, expected at most {len(target)}")
    there = ~np.isnan(projected).any(1)
    votes = KNeighborsClassifier(n_neighbors=k).fit(np.asarray(target), np.asarray(target_labels))
    right = votes.predict(projected[there]) == labels[there] if there.any() else np.zeros(0)
    return float(right.sum() / len(labels))
