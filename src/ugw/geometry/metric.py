"""Metrics: the contract that solvers rely on, and the dense metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from .._utils.config import UTILS_CONFIG


class Metric(Protocol):
    """A symmetric matrix D, (n, n) or (B, n, n), known by what it does. Nobody asks what kind it is."""

    @property
    def shape(self) -> torch.Size:
        """(n, n), or (B, n, n) for one matrix per batch item."""

    @property
    def n(self) -> int:
        """The number of points."""

    @property
    def batched(self) -> bool:
        """Whether each batch item has its own matrix; otherwise all share one."""

    @property
    def dtype(self) -> torch.dtype:
        """float32 or float64."""

    @property
    def device(self) -> torch.device:
        """Where the entries are."""

    def apply(self, v: Tensor) -> Tensor:
        """D v. v: (..., n, k). Returns (..., n, k)."""

    def apply_squared(self, v: Tensor) -> Tensor:
        """(D∘D) v, with entries squared. v: (..., n, k). Returns (..., n, k)."""

    def columns(self, index: Tensor) -> Tensor:
        """D[:, index]. index: (k,) the same for all items, or (B, k). Returns (..., n, k)."""

    def submatrix(self, rows: Tensor, cols: Tensor) -> Tensor:
        """D[rows][:, cols]. rows: (k,), cols: (l,). Returns (..., k, l)."""

    def factors(self) -> tuple[Tensor, Tensor] | None:
        """(left, right) with D = left rightᵀ, both (..., n, r), or None where no such form is at hand."""

    def dense(self) -> Tensor:
        """D itself, (n, n) or (B, n, n)."""

    def extremes(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest entry, () or (B,) each."""

    def take(self, index: Tensor) -> Metric:
        """The matrices of some batch items. index: (k,). A shared metric is itself for any items."""

    def item(self, i: int, n: int) -> Metric:
        """The matrix of batch item i on its first n points, (n, n)."""

    def scale(self, factor: Tensor | float) -> Metric:
        """D times a factor. factor: () or (B,)."""

    def to(self, target: torch.device | torch.dtype) -> Metric:
        """The same matrix on another device or in another dtype."""

    def detach(self) -> Metric:
        """The same matrix without its autograd graph."""


@dataclass(frozen=True, eq=False)
class DenseMetric:
    """A metric that stores its matrix, (n, n) or (B, n, n), and keeps the autograd graph of it.

    >>> DenseMetric(torch.tensor([[0.0, 2.0], [2.0, 0.0]])).apply(torch.tensor([[1.0], [3.0]])).flatten()
    tensor([6., 2.])
    """

    matrix: Tensor

    @property
    def shape(self) -> torch.Size:
        """(n, n) or (B, n, n)."""
        return self.matrix.shape

    @property
    def n(self) -> int:
        """The number of points."""
        return self.matrix.shape[-1]

    @property
    def batched(self) -> bool:
        """Whether each batch item has its own matrix."""
        return self.matrix.ndim == 3

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the matrix."""
        return self.matrix.dtype

    @property
    def device(self) -> torch.device:
        """The device of the matrix."""
        return self.matrix.device

    def apply(self, v: Tensor) -> Tensor:
        """D v. v: (..., n, k). Returns (..., n, k)."""
        # D is symmetric, so D v = (vᵀ D)ᵀ. In this form batch dimensions that D lacks fold into the rows
        # without a copy when k = 1, and Dx q Dy, two products with transposes between, comes out contiguous.
        return _multiply_rows(v.mT, self.matrix).mT

    def apply_squared(self, v: Tensor) -> Tensor:
        """(D∘D) v, with entries squared. v: (..., n, k). Returns (..., n, k)."""
        # D∘D is not kept: it would double the memory, and to square again costs O(n²) beside the O(n²m)
        # product D q that every outer step makes anyway. Slices keep the temporary small.
        rows = max(1, UTILS_CONFIG.max_block_entries * self.n // self.matrix.numel())
        products = [_multiply_rows(v.mT, block.square().mT) for block in self.matrix.split(rows, dim=-2)]
        return torch.cat(products, dim=-1).mT if len(products) > 1 else products[0].mT

    def columns(self, index: Tensor) -> Tensor:
        """D[:, index]. index: (k,) or (B, k). Returns (..., n, k)."""
        if self.batched and index.ndim == 2:
            return torch.take_along_dim(self.matrix, index[:, None, :], dim=-1)
        if self.batched:
            return self.matrix[..., index]
        return self.matrix[index].mT  # rows are columns, and (B, k) gathers (B, k, n)

    def submatrix(self, rows: Tensor, cols: Tensor) -> Tensor:
        """D[rows][:, cols]. rows: (k,), cols: (l,). Returns (..., k, l)."""
        return self.matrix[..., rows[:, None], cols]

    def factors(self) -> None:
        """None: a stored matrix has no low-rank form at hand."""
        return None

    def dense(self) -> Tensor:
        """The matrix."""
        return self.matrix

    def extremes(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest entry, () or (B,) each."""
        return self.matrix.amin((-2, -1)), self.matrix.amax((-2, -1))

    def take(self, index: Tensor) -> DenseMetric:
        """The matrices of some batch items; a shared metric is itself for any items."""
        return DenseMetric(self.matrix[index]) if self.batched else self

    def item(self, i: int, n: int) -> DenseMetric:
        """The matrix of batch item i on its first n points, (n, n)."""
        matrix = self.matrix[i] if self.batched else self.matrix
        return DenseMetric(matrix[:n, :n])

    def scale(self, factor: Tensor | float) -> DenseMetric:
        """D times a factor. factor: () or (B,); a (B,) factor gives a shared matrix one copy per item."""
        factor = torch.as_tensor(factor, dtype=self.dtype, device=self.device)
        return DenseMetric(self.matrix * factor[..., None, None])

    def to(self, target: torch.device | torch.dtype) -> DenseMetric:
        """The same matrix on another device or in another dtype."""
        return DenseMetric(self.matrix.to(target))

    def detach(self) -> DenseMetric:
        """The same matrix without its autograd graph."""
        return DenseMetric(self.matrix.detach())


def _multiply_rows(rows: Tensor, matrix: Tensor) -> Tensor:
    """The product rows @ matrix, one product per matrix. rows: (..., k, n), matrix: (n, l) or (B, n, l).

    A broadcast would copy the matrix for each of the S leading items; one product with S·k rows does not.
    """
    extra = rows.ndim - matrix.ndim
    if extra <= 0:
        return rows @ matrix
    if matrix.ndim == 2:
        return (rows.reshape(-1, rows.shape[-1]) @ matrix).reshape(*rows.shape[:-1], matrix.shape[-1])
    batch_first = rows.movedim(extra, 0)  # (B, ..., k, n)
    product = batch_first.flatten(1, -2) @ matrix
    return product.reshape(*batch_first.shape[:-1], matrix.shape[-1]).movedim(0, extra)
