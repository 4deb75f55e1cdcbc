"""Plans that are not stored: entries, products and marginals are computed on demand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._utils.checks import as_index, as_tensor, check_finite, check_whole_number, dtype_name
from ..errors import InputError
from ..geometry.implicit_plan import ImplicitPlan
from .config import RESULTS_CONFIG


class LazyPlan:
    """A plan (n, m), or (B, n, m) for a batch, whose entries are computed from potentials when they are needed.

    Methods return NumPy arrays if the spaces were made of arrays, else tensors; a batch adds a leading dimension B.
    """

    def __init__(self, implicit: ImplicitPlan, *, batched: bool, numpy: bool) -> None:
        """Store an `ImplicitPlan` (B, n, m); batched: do shapes include B? numpy: do methods return NumPy arrays?"""
        self._implicit, self._batched, self._numpy = implicit, batched, numpy

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the plan, (n, m) or (B, n, m)."""
        return tuple(self._implicit.shape if self._batched else self._implicit.shape[1:])

    @property
    def dtype(self) -> Any:
        """The dtype of the plan: of NumPy if methods return NumPy arrays, else of torch."""
        return np.dtype(dtype_name(self._implicit.dtype)) if self._numpy else self._implicit.dtype

    @property
    def mass(self) -> Any:
        """The total mass of the plan, a number or (B,)."""
        return self._to_user(self._implicit.sum((1, 2), dtype=torch.float64))

    @property
    def marginals(self) -> tuple[Any, Any]:
        """The row sums of the plan, (n,) or (B, n), and its column sums, (m,) or (B, m)."""
        return self._to_user(self._implicit.sum(2)), self._to_user(self._implicit.sum(1))

    @property
    def T(self) -> LazyPlan:
        """The transposed plan, (m, n) or (B, m, n)."""
        return LazyPlan(self._implicit.mT, batched=self._batched, numpy=self._numpy)

    def apply(self, matrix: Any) -> Any:
        """Return plan @ matrix, (n,) or (n, k), for a matrix (m,) or (m, k); in a batch (B, n, k) for (B, m, k).

        If the plan has tensors, it is differentiable in the matrix, with the plan fixed.
        """
        values = as_tensor("matrix", matrix, like=self._implicit.row_sums)
        m, is_vector = self.shape[-1], not self._batched and values.ndim == 1
        values = values[:, None] if is_vector else values
        if values.ndim != len(self.shape) or values.shape[-2] != m:
            expected = f"({m},) or ({m}, k)" if not self._batched else f"(B, {m}, k)"
            raise InputError(f"matrix must have shape {expected}, got {tuple(values.shape)}")
        check_finite("matrix", values)
        image = product(self._implicit, values if self._batched else values[None])
        return self._to_user(image[:, :, 0] if is_vector else image)

    def rows(self, index: Any) -> Any:
        """Return one row of the plan, (m,), or k rows, (k, m); in a batch those of all items, (B, m) or (B, k, m).

        index: a whole number or an array (k,) of these, from −n to n − 1.
        """
        chosen = as_index("index", index, self.shape[-2], self._implicit.device)
        rows = self._implicit.rows(chosen.reshape(-1))
        return self._to_user(rows[:, 0] if chosen.ndim == 0 else rows)

    def argmax(self) -> Any:
        """Return the index of the column of the largest entry of each row of the plan, (n,) or (B, n)."""
        return self._to_user(torch.cat([block.argmax(2) for block in self._blocks()], dim=1))

    def top(self, k: int) -> tuple[Any, Any]:
        """Return (entries, columns), (n, k) or (B, n, k) each: the k largest entries of each row, largest first.

        columns: their indices; k: from 1 to m.
        """
        k = check_whole_number("k", k, maximum=self.shape[-1])
        largest = [block.topk(k, dim=2) for block in self._blocks()]
        values = torch.cat([block.values for block in largest], dim=1)
        columns = torch.cat([block.indices for block in largest], dim=1)
        return self._to_user(values.exp()), self._to_user(columns)

    def dense(self, *, force: bool = False) -> Any:
        """Return the whole plan, (n, m) or (B, n, m); raise InputError for more than 10⁸ entries, unless `force`."""
        count = self._implicit.shape.numel()
        if count > RESULTS_CONFIG.max_dense_entries and not force:
            gigabytes = count * torch.finfo(self._implicit.dtype).bits / 8 / 2**30
            raise InputError(f"the plan has {count:.3g} entries, {gigabytes:.3g} GiB: dense(force=True) makes them")
        return self._to_user(torch.cat([block.exp() for block in self._blocks()], dim=1))

    def _blocks(self) -> Iterator[Tensor]:
        """Yield the logarithms of the entries of the plan in blocks of consecutive rows, (B, rows, m) each."""
        batch, n, m = self._implicit.shape
        index = torch.arange(n, device=self._implicit.device)
        return (
            self._implicit.log_plan.rows(part)
            for part in index.split(max(1, RESULTS_CONFIG.block_entries // (batch * m)))
        )

    def implicit_plan(self, shape: tuple[int, int, int]) -> ImplicitPlan:
        """Return the `ImplicitPlan` (potentials and factors) of shape (B, n, m); raise InputError for another shape.

        A plan (n, m) without a batch dimension is repeated for all B items.
        """
        batch, n, m = shape
        if self.shape not in ((n, m), shape):
            expected = f"({n}, {m})" + (f" or {shape}" if batch > 1 else "")
            raise InputError(f"init must be a plan of shape {expected}, got {self.shape}")
        if len(self._implicit.row_sums) == batch:
            return self._implicit
        return self._implicit.take(torch.zeros(batch, dtype=torch.long, device=self._implicit.device))

    def _to_user(self, value: Tensor) -> Any:
        """Return a tensor (B, ...) as a number, an array or a tensor, without the batch dimension for a single plan."""
        value = value if self._batched else value[0]
        if not self._numpy:
            return value
        array = value.detach().cpu().numpy()
        return array if array.ndim else array.item()

    def __repr__(self) -> str:
        """Return one line: the shape, and the names of the methods."""
        size = " × ".join(map(str, self.shape))
        return f"LazyPlan({size}, not stored: apply, marginals, rows, argmax, top, dense)"


def product(plan: Tensor | ImplicitPlan, matrix: Tensor) -> Tensor:
    """Return plan @ matrix, (B, n, k). plan: (B, n, m), a tensor or an `ImplicitPlan`; matrix: (B, m, k) or (m, k).

    It is differentiable in the matrix, and in a plan that is a tensor; an `ImplicitPlan` is held fixed.
    """
    if isinstance(plan, ImplicitPlan):
        return _Product.apply(matrix.expand(plan.shape[0], *matrix.shape[-2:]), plan)
    return plan @ matrix


class _Product(torch.autograd.Function):
    """Product of a fixed `ImplicitPlan` and a matrix; backward multiplies by the transposed plan."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, plan: ImplicitPlan) -> Tensor:
        """Return the matrix product plan @ matrix, (B, n, k). matrix: (B, m, k), the only input with a gradient."""
        ctx.plan = plan
        return plan @ matrix

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return (gradient of the matrix (B, m, k), None for the plan). gradient: (B, n, k), that of the product."""
        return ctx.plan.mT @ gradient, None
