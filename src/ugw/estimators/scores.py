"""Scores of an alignment whose true matches or labels are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .._utils.checks import as_tensor, check_finite, check_ndim, check_whole_number
from ..errors import InputError
from ..geometry.point_distances import cross_distances


def foscttm(projected: Any, target: Any) -> float:
    """Return FOSCTTM, the fraction of the n − 1 other samples closer than the true match, averaged over all rows.

    It is averaged over both directions, from projected to target rows and back; distances are Euclidean. Row i of
    `projected` matches row i of `target`. 0 is perfect, 0.5 is chance. A row that was not projected (NaN) counts as 1,
    the worst value. projected, target: (n, d) each.

    >>> foscttm([[0.0], [1.0], [2.0]], [[0.1], [1.1], [2.1]])
    0.0
    >>> round(foscttm([[2.0], [1.0], [0.0]], [[0.1], [1.1], [2.1]]), 3)
    0.667
    """
    rows, matches = as_tensor("projected", projected), as_tensor("target", target)
    if rows.ndim != 2 or rows.shape != matches.shape:
        raise InputError(f"rows must belong to each other, got shapes {tuple(rows.shape)} and {tuple(matches.shape)}")
    if len(rows) < 2:
        raise InputError(f"FOSCTTM compares a row with others, got {len(rows)}, expected at least 2")
    is_missing = rows.isnan().any(1)
    distances = cross_distances(rows.double().masked_fill(is_missing[:, None], 0.0), matches.double(), "euclidean")
    distances[is_missing] = float("inf")
    true_distance = distances.diagonal()
    fractions = []
    for closer in (distances < true_distance[:, None], distances.mT < true_distance[:, None]):
        fraction = closer.double().sum(1) / (len(rows) - 1)
        fraction[is_missing] = 1.0
        fractions.append(fraction)
    return float((fractions[0] + fractions[1]).mean() / 2.0)


def label_transfer_accuracy(projected: Any, labels: Any, target: Any, target_labels: Any, *, k: int = 5) -> float:
    """Return the fraction of all n projected rows whose label is the most frequent one of their k nearest target rows.

    projected: (n, d); target: (m, d); labels: (n,), (m,). NaN rows count as wrong. k = 5 as SCOT reports it.

    >>> label_transfer_accuracy([[0.1], [5.1]], ["a", "b"], [[0.0], [5.0]], ["a", "b"], k=1)
    1.0
    """
    from sklearn.neighbors import KNeighborsClassifier

    rows, row_labels = _read_labeled_rows("projected", projected, "labels", labels)
    target_rows, names = _read_labeled_rows("target", target, "target_labels", target_labels)
    check_finite("target", torch.from_numpy(target_rows))
    if rows.shape[1] != target_rows.shape[1]:
        raise InputError(f"rows must be of one width, got {rows.shape[1]} and {target_rows.shape[1]}")
    k = check_whole_number("k", k, maximum=len(target_rows))
    is_projected = ~np.isnan(rows).any(1)
    classifier = KNeighborsClassifier(n_neighbors=k).fit(target_rows, names)
    if not is_projected.any():
        return 0.0
    return float((classifier.predict(rows[is_projected]) == row_labels[is_projected]).sum() / len(row_labels))


def _read_labeled_rows(name: str, rows: Any, label_name: str, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (n, d) and labels (n,) as arrays; raise InputError, with the names given, for other shapes."""
    tensor, label_array = as_tensor(name, rows).detach().cpu(), np.asarray(labels)
    check_ndim(name, tensor, (2,), "(n, d)")
    if label_array.shape != (len(tensor),):
        raise InputError(f"{label_name} must have shape ({len(tensor)},), got {label_array.shape}")
    return tensor.numpy(), label_array
