"""The metric protocol that problems and solvers use, and the dense metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from .._utils.config import UTILS_CONFIG


class Metric(Protocol):
    """A symmetric matrix D, (n, n) or (B, n, n), used through its products and entries only, whatever its storage."""

    @property
    def shape(self) -> torch.Size:
        """The shape (n, n), or (B, n, n) with one matrix per batch item."""

    @property
    def n(self) -> int:
        """The number of points."""

    @property
    def batched(self) -> bool:
        """Whether each batch item has its own matrix; otherwise all share one."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the entries, float32 or float64."""

    @property
    def device(self) -> torch.device:
        """The device of the entries."""

    def apply(self, v: Tensor) -> Tensor:
        """Return the product D v with the matrix D, (..., n, k). v: (..., n, k), or (..., B, n, k) for D (B, n, n)."""

    def apply_squared(self, v: Tensor) -> Tensor:
        """Return the product (D∘D) v of the entrywise squared matrix, (..., n, k). v: (..., n, k)."""

    def columns(self, index: Tensor) -> Tensor:
        """Return D[:, index], (..., n, k). index: (k,) the same for all items, or (B, k)."""

    def submatrix(self, rows: Tensor, cols: Tensor) -> Tensor:
        """Return the entries D[rows][:, cols], (..., k, l). rows: (k,), cols: (l,), indices."""

    def factors(self) -> tuple[Tensor, Tensor] | None:
        """Return (left, right), both (..., n, r), with D = left rightᵀ, or None if no low-rank form is known."""

    def dense(self) -> Tensor:
        """Return all entries, (n, n) or (B, n, n)."""

    def extremes(self) -> tuple[Tensor, Tensor]:
        """Return the smallest and the largest entry, () or (B,) each."""

    def take(self, index: Tensor) -> Metric:
        """Return the matrices of the batch items `index`, (k,); a metric shared by all items is returned unchanged."""

    def item(self, i: int, n: int) -> Metric:
        """Return the metric (n, n) of the first n points of batch item i, or of the one metric that all items share."""

    def scale(self, factor: Tensor | float) -> Metric:
        """Return the metric multiplied by a factor, () or (B,)."""

    def to(self, target: torch.device | torch.dtype) -> Metric:
        """Return the metric on another device or in another dtype."""

    def detach(self) -> Metric:
        """Return the metric without its autograd graph."""


@dataclass(frozen=True, eq=False)
class DenseMetric:
    """A metric that stores its matrix, (n, n) or (B, n, n), with its autograd graph if it has one.

    >>> DenseMetric(torch.tensor([[0.0, 2.0], [2.0, 0.0]])).apply(torch.tensor([[1.0], [3.0]])).flatten()
    tensor([6., 2.])
    """

    matrix: Tensor

    @property
    def shape(self) -> torch.Size:
        """The shape (n, n), or (B, n, n) with one matrix per batch item."""
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
        """Return the product D v with the stored matrix D, (..., n, k). v: (..., n, k)."""
        # D is symmetric, so D v = (vᵀ D)ᵀ. In this form batch dimensions that D lacks fold into the rows
        # without a copy when k = 1, and Dx q Dy, two products with transposes between, comes out contiguous.
        return _multiply_rows(v.mT, self.matrix).mT

    def apply_squared(self, v: Tensor) -> Tensor:
        """Return the product (D∘D) v of the entrywise squared matrix, (..., n, k). v: (..., n, k)."""
        # D∘D is not cached: it would double the memory, and squaring again takes O(n²) time, little beside the O(n²m)
        # product D q of every outer step. Blocks of rows keep the temporary small.
        rows = max(1, UTILS_CONFIG.max_block_entries * self.n // self.matrix.numel())
        products = [_multiply_rows(v.mT, block.square().mT) for block in self.matrix.split(rows, dim=-2)]
        return torch.cat(products, dim=-1).mT if len(products) > 1 else products[0].mT

    def columns(self, index: Tensor) -> Tensor:
        """Return the columns D[:, index]: (n, k) if neither D nor index has a batch dimension, else (B, n, k).

        index: (k,), the same for all items, or (B, k).
        """
        if self.batched and index.ndim == 2:
            return torch.take_along_dim(self.matrix, index[:, None, :], dim=-1)
        if self.batched:
            return self.matrix[..., index]
        return self.matrix[index].mT  # rows are columns, and (B, k) gathers (B, k, n)

    def submatrix(self, rows: Tensor, cols: Tensor) -> Tensor:
        """Return the entries D[rows][:, cols], (..., k, l). rows: (k,), cols: (l,), indices."""
        return self.matrix[..., rows[:, None], cols]

    def factors(self) -> None:
        """Return None: the low-rank form of a stored matrix is not known."""
        return None

    def dense(self) -> Tensor:
        """Return the stored matrix."""
        return self.matrix

    def extremes(self) -> tuple[Tensor, Tensor]:
        """Return the smallest and the largest entry, () or (B,) each."""
        return self.matrix.amin((-2, -1)), self.matrix.amax((-2, -1))

    def take(self, index: Tensor) -> DenseMetric:
        """Return the matrices of the batch items `index`, (k,); a metric shared by all items is returned unchanged."""
        return DenseMetric(self.matrix[index]) if self.batched else self

    def item(self, i: int, n: int) -> DenseMetric:
        """Return the metric (n, n) of the first n points of batch item i, or of the one metric that all items share."""
        matrix = self.matrix[i] if self.batched else self.matrix
        return DenseMetric(matrix[:n, :n])

    def scale(self, factor: Tensor | float) -> DenseMetric:
        """Return the metric multiplied by a factor, () or (B,); with (B,) a shared matrix is copied for each item."""
        factor = torch.as_tensor(factor, dtype=self.dtype, device=self.device)
        return DenseMetric(self.matrix * factor[..., None, None])

    def to(self, target: torch.device | torch.dtype) -> DenseMetric:
        """Return the metric on another device or in another dtype."""
        return DenseMetric(self.matrix.to(target))

    def detach(self) -> DenseMetric:
        """Return the metric without its autograd graph."""
        return DenseMetric(self.matrix.detach())


def _multiply_rows(rows: Tensor, matrix: Tensor) -> Tensor:
    """Return the product rows @ matrix, (..., k, l). rows: (..., k, n), matrix: (n, l) or (B, n, l).

    For a matrix (B, n, l), B is the last leading dimension of rows, (..., B, k, n). Leading dimensions that the matrix
    does not have are folded into the rows: a broadcast would copy the matrix once for each of their items.
    """
    extra = rows.ndim - matrix.ndim
    if extra <= 0:
        return rows @ matrix
    if matrix.ndim == 2:
        return (rows.reshape(-1, rows.shape[-1]) @ matrix).reshape(*rows.shape[:-1], matrix.shape[-1])
    batch_first = rows.movedim(extra, 0)  # (B, ..., k, n)
    product = batch_first.flatten(1, -2) @ matrix
    return product.reshape(*batch_first.shape[:-1], matrix.shape[-1]).movedim(0, extra)
