"""Matrices row_i + col_j + left_i · core · right_j, represented by their factors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .._utils.pytree import BatchRecord


@dataclass(frozen=True, eq=False)
class BilinearMatrix(BatchRecord):
    """The matrices row ⊕ col + left core rightᵀ, (B, n, m), stored as their factors in O((n + m)·r) memory.

    row: (B, n), col: (B, m) and core: (B, r, s), in float64; left: (B, n, r) and right: (B, m, s), in the dtype of the
    spaces. Sums and multiples change row, col and core only: both matrices of a sum must have the same left and right.
    """

    row: Tensor
    col: Tensor
    core: Tensor
    left: Tensor
    right: Tensor

    @property
    def shape(self) -> torch.Size:
        """The shape (B, n, m)."""
        return torch.Size((*self.row.shape, self.col.shape[1]))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of `left`, `right` and the computed entries, float32 or float64."""
        return self.left.dtype

    @property
    def device(self) -> torch.device:
        """The device of the stored factors."""
        return self.left.device

    @property
    def mT(self) -> BilinearMatrix:
        """The transposed matrices (B, m, n)."""
        return BilinearMatrix(self.col, self.row, self.core.mT, self.right, self.left)

    def __add__(self, other: BilinearMatrix | Tensor) -> BilinearMatrix:
        """Return self + other, where other has equal `left` and `right`, or is one number per item, (B, 1, 1)."""
        if isinstance(other, BilinearMatrix):
            return replace(self, row=self.row + other.row, col=self.col + other.col, core=self.core + other.core)
        return replace(self, row=self.row + other[:, :, 0].double())

    def __sub__(self, other: BilinearMatrix | Tensor) -> BilinearMatrix:
        """Return self − other, where other has equal `left` and `right`, or is one number per item, (B, 1, 1)."""
        return self + -1.0 * other

    def __mul__(self, factor: Tensor | float) -> BilinearMatrix:
        """Return the matrices times a number, or times one number per item, (B, 1, 1)."""
        factor = torch.as_tensor(factor, dtype=torch.float64, device=self.device)
        vector_factor = factor if factor.ndim == 0 else factor[:, :, 0]
        return replace(self, row=vector_factor * self.row, col=vector_factor * self.col, core=factor * self.core)

    __rmul__ = __mul__

    def core_factors(self) -> tuple[Tensor, Tensor]:
        """Return L (B, n, k) and R (B, m, k) with L Rᵀ = left core rightᵀ: the entries without the terms row_i + col_j.

        The wider one of left (B, n, r) and right (B, m, s) is multiplied by the core (B, r, s), so k = min(r, s).
        """
        if self.core.shape[1] < self.core.shape[2]:
            right, left = self.mT.core_factors()
            return left, right
        return (self.left.double() @ self.core).to(self.dtype), self.right

    def rows(self, index: Tensor) -> Tensor:
        """Return the entries (B, k, m) of the rows `index`, (k,)."""
        left, right = self.core_factors()
        entries = left[:, index] @ right.mT
        return entries + self.row[:, index, None].to(self.dtype) + self.col[:, None, :].to(self.dtype)

    def dense(self) -> Tensor:
        """Return all entries, (B, n, m)."""
        return self.rows(torch.arange(self.shape[1], device=self.device))
