"""A plan that is not stored, as users see it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .._utils.checks import as_tensor, check_finite
from ..errors import InputError
from ..geometry.implicit_plan import ImplicitPlan

# `dense` makes no more entries than this unless it is forced to.
DENSE_ENTRIES = 10**8
# Entries in hand at a time.
BLOCK = 2**24


class LazyPlan:
    """A plan (n, m), or (B, n, m) for a batch, known by what it does: its entries are made when they are asked for.

    Arrays go in and come out as NumPy arrays if the spaces were made of them, else as tensors.
    """

    def __init__(self, streamed: ImplicitPlan, *, batched: bool, numpy: bool) -> None:
        self._streamed, self._batched, self._numpy = streamed, batched, numpy

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, m) or (B, n, m)."""
        return tuple(self._streamed.shape if self._batched else self._streamed.shape[1:])

    @property
    def dtype(self) -> torch.dtype:
        """That of its entries."""
        return self._streamed.dtype

    @property
    def mass(self) -> Any:
        """The sum of all entries."""
        return self._out(self._streamed.sum((1, 2), dtype=torch.float64))

    @property
    def marginals(self) -> tuple[Any, Any]:
        """The sums of the rows, (n,), and of the columns, (m,)."""
        return self._out(self._streamed.sum(2)), self._out(self._streamed.sum(1))

    @property
    def T(self) -> LazyPlan:
        """The transposed plan."""
        return LazyPlan(self._streamed.mT, batched=self._batched, numpy=self._numpy)

    def apply(self, matrix: Any) -> Any:
        """The plan times `matrix` (m,) or (m, k); with a batch (B, m, k). Differentiable in the matrix."""
        values = as_tensor("matrix", matrix, like=self._streamed.row_sums)
        m, flat = self.shape[-1], not self._batched and values.ndim == 1
        values = values[:, None] if flat else values
        if values.ndim != len(self.shape) or values.shape[-2] != m:
            expected = f"({m},) or ({m}, k)" if not self._batched else f"(B, {m}, k)"
            raise InputError(f"matrix must have shape {expected}, got {tuple(values.shape)}")
        check_finite("matrix", values)
        made = product(self._streamed, values if self._batched else values[None])
        return self._out(made[:, :, 0] if flat else made)

    def rows(self, index: Any) -> Any:
        """The rows of one point, (m,), or of several, (k, m)."""
        chosen = torch.as_tensor(index, device=self._streamed.device)
        n = self.shape[-2]
        if chosen.dtype in (torch.bool, torch.float32, torch.float64) or bool(((chosen < -n) | (chosen >= n)).any()):
            raise InputError(f"index must be whole numbers from 0 to {n - 1}, got {index!r}")
        made = self._streamed.rows(chosen.reshape(-1) % n)
        return self._out(made[:, 0] if chosen.ndim == 0 else made)

    def argmax(self) -> Any:
        """For each row the column of its largest entry, (n,)."""
        return self._out(torch.cat([block.argmax(2) for block in self._blocks()], dim=1))

    def top(self, k: int) -> tuple[Any, Any]:
        """For each row its k largest entries and their columns, (n, k) each, largest first."""
        if not 1 <= k <= self.shape[-1]:
            raise InputError(f"k must be from 1 to {self.shape[-1]}, got {k!r}")
        found = [block.topk(k, dim=2) for block in self._blocks()]
        values, places = torch.cat([f.values for f in found], dim=1), torch.cat([f.indices for f in found], dim=1)
        return self._out(values.exp()), self._out(places)

    def dense(self, *, force: bool = False) -> Any:
        """All entries, (n, m). Refused beyond 10⁸ of them unless forced."""
        count = self._streamed.shape.numel()
        if count > DENSE_ENTRIES and not force:
            gigabytes = count * torch.finfo(self._streamed.dtype).bits / 8 / 2**30
            raise InputError(f"the plan has {count:.3g} entries, {gigabytes:.3g} GiB: dense(force=True) makes them")
        return self._out(torch.cat([block.exp() for block in self._blocks()], dim=1))

    def _blocks(self) -> Iterator[Tensor]:
        """The logarithms of the entries, some rows at a time."""
        batch, n, m = self._streamed.shape
        index = torch.arange(n, device=self._streamed.device)
        return (self._streamed.log_plan.rows(part) for part in index.split(max(1, BLOCK // (batch * m))))

    def streamed_for(self, shape: tuple[int, int, int]) -> ImplicitPlan:
        """What is behind it, for a problem of the given shape (B, n, m)."""
        if tuple(self._streamed.shape) != shape:
            raise InputError(f"init must be a plan of shape {shape[1:]}, got {tuple(self._streamed.shape[1:])}")
        return self._streamed

    def _out(self, value: Tensor) -> Any:
        value = value if self._batched else value[0]
        if not self._numpy:
            return value
        array = value.detach().cpu().numpy()
        return array if array.ndim else array.item()

    def __repr__(self) -> str:
        size = " × ".join(map(str, self.shape))
        return f"LazyPlan({size}, not stored: apply, marginals, rows, argmax, top, dense)"


def product(plan: Tensor | ImplicitPlan, matrix: Tensor) -> Tensor:
    """A plan (B, n, m), stored or not, times a matrix (B, m, k) or (m, k), differentiable in the matrix. (B, n, k)."""
    if isinstance(plan, ImplicitPlan):
        return _Product.apply(matrix.expand(plan.shape[0], *matrix.shape[-2:]), plan)
    return plan @ matrix


class _Product(torch.autograd.Function):
    """The plan, held fixed, times a matrix; backward is the transposed plan times the gradient."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, plan: ImplicitPlan) -> Tensor:
        ctx.plan = plan
        return plan @ matrix

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.plan.mT @ gradient, None
