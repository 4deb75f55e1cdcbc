"""Matrices row_i + col_j + left_i · core · right_j, known by their parts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .._utils.pytree import BatchRecord


@dataclass(frozen=True, eq=False)
class BilinearMatrix(BatchRecord):
    """row ⊕ col + left core rightᵀ, (B, n, m), never stored: O((n + m)·r) memory.

    row: (B, n), col: (B, m) and core: (B, r, s) in float64; left: (B, n, r) and right: (B, m, s), the bases, in the
    dtype of the spaces. Sums and multiples of matrices over the same bases are made of sums of their small parts.
    """

    row: Tensor
    col: Tensor
    core: Tensor
    left: Tensor
    right: Tensor

    @property
    def shape(self) -> torch.Size:
        """(B, n, m)."""
        return torch.Size((*self.row.shape, self.col.shape[1]))

    @property
    def dtype(self) -> torch.dtype:
        """That of the bases."""
        return self.left.dtype

    @property
    def device(self) -> torch.device:
        """Where the parts are."""
        return self.left.device

    @property
    def mT(self) -> BilinearMatrix:
        """The transposed matrices."""
        return BilinearMatrix(self.col, self.row, self.core.mT, self.right, self.left)

    def __add__(self, other: BilinearMatrix | Tensor) -> BilinearMatrix:
        if isinstance(other, BilinearMatrix):
            return replace(self, row=self.row + other.row, col=self.col + other.col, core=self.core + other.core)
        return replace(self, row=self.row + other[:, :, 0].double())  # (B, 1, 1), one number for an item

    def __sub__(self, other: BilinearMatrix | Tensor) -> BilinearMatrix:
        return self + -1.0 * other

    def __mul__(self, factor: Tensor | float) -> BilinearMatrix:
        """A multiple. factor: a number, or (B, 1, 1)."""
        factor = torch.as_tensor(factor, dtype=torch.float64, device=self.device)
        flat = factor if factor.ndim == 0 else factor[:, :, 0]
        return replace(self, row=flat * self.row, col=flat * self.col, core=factor * self.core)

    __rmul__ = __mul__

    def core_factors(self) -> tuple[Tensor, Tensor]:
        """(L, R), (B, n, k) and (B, m, k), with left core rightᵀ = L Rᵀ and the smaller of both ranks."""
        if self.core.shape[1] < self.core.shape[2]:
            right, left = self.mT.core_factors()
            return left, right
        return (self.left.double() @ self.core).to(self.dtype), self.right

    def rows(self, index: Tensor) -> Tensor:
        """Some rows as they are. index: (k,). Returns (B, k, m)."""
        left, right = self.core_factors()
        entries = left[:, index] @ right.mT
        return entries + self.row[:, index, None].to(self.dtype) + self.col[:, None, :].to(self.dtype)

    def dense(self) -> Tensor:
        """The matrices, (B, n, m)."""
        return self.rows(torch.arange(self.shape[1], device=self.device))
