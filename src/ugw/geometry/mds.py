"""Classical multidimensional scaling (MDS): points whose distances are close to given ones."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from .._utils.config import UTILS_CONFIG


class DistanceSource(Protocol):
    """A symmetric matrix (n, n) of distances, of which submatrices can be computed."""

    @property
    def n(self) -> int:
        """The number of points."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the distances, float32 or float64."""

    @property
    def device(self) -> torch.device:
        """The device of the distances."""

    def submatrix(self, rows: Tensor, cols: Tensor) -> Tensor:
        """Return the distances D[rows][:, cols], (k, l). rows: (k,), cols: (l,), indices."""


def double_center(matrix: Tensor) -> Tensor:
    """Return −½ J M J, J = I − 11ᵀ/n, for a symmetric matrix M (n, n): rows and columns have mean 0.

    >>> double_center(torch.tensor([[0.0, 4.0], [4.0, 0.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    mean = matrix.mean(0)
    return -0.5 * (matrix - mean - mean[:, None] + mean.mean())


def classical_mds(distances: Tensor, dim: int) -> Tensor:
    """Return points (n, dim), float64, with Euclidean distances close to the given ones (n, n): classical scaling.

    Coordinates have mean 0 and decreasing variance; those that the distances do not need are 0.

    >>> places = classical_mds(torch.tensor([[0.0, 3.0], [3.0, 0.0]]), 2)
    >>> round(torch.cdist(places, places)[0, 1].item(), 9)
    3.0
    """
    values, vectors = torch.linalg.eigh(double_center(distances.double().square()))
    values, vectors = values.flip(0)[:dim], vectors.flip(1)[:, :dim]
    points = vectors * values.clamp(min=0.0).sqrt()
    return torch.nn.functional.pad(points, (0, dim - points.shape[1]))


def landmark_mds(distances: DistanceSource, landmarks: Tensor, dim: int) -> Tensor:
    """Return points (n, dim), float64, with Euclidean distances close to the given ones, found from k landmarks.

    landmarks: (k,), distinct indices; they get their classical MDS. All other points are placed by their distances to
    the landmarks (landmark MDS, de Silva and Tenenbaum), block by block, in O(n·k·dim) time after the
    eigendecomposition of a matrix (k, k). Coordinates that the distances of the landmarks do not need are 0.
    """
    anchors = classical_mds(distances.submatrix(landmarks, landmarks), dim)
    if len(landmarks) == distances.n:
        return anchors[landmarks.argsort()]
    # A point with squared distances s to the landmarks P is at −½ P⁺ s plus a vector that all points share. The
    # columns of P are orthogonal, so that P⁺ only needs their squared norms.
    norms = anchors.square().sum(0)
    inverse = torch.where(norms > 0, anchors / torch.where(norms > 0, norms, 1.0), 0.0)
    rows_per_block = max(1, UTILS_CONFIG.max_block_entries // len(landmarks))
    blocks = torch.arange(distances.n, device=landmarks.device).split(rows_per_block)
    return torch.cat([-0.5 * distances.submatrix(rows, landmarks).double().square() @ inverse for rows in blocks])
