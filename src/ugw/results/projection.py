"""Products and barycentric projections with plans, stored or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._utils.checks import as_tensor, dtype_name
from ..geometry.implicit_plan import ImplicitPlan
from .lazy_plan import LazyPlan, product


def weighted_means(plan: Tensor | ImplicitPlan, values: Tensor) -> Tensor:
    """Return for each row of a plan (B, n, m) the mean of values (B, m, k) weighted by that row, (B, n, k).

    Rows without mass are NaN. Differentiable in the values, and in a plan that is a tensor.
    """
    if isinstance(plan, ImplicitPlan):
        return product(plan, values) / plan.sum(2)[:, :, None]
    # Rows are divided by their maximum, because tiny masses would underflow in the product.
    weights = plan / plan.amax(2, keepdim=True)
    return weights @ values / weights.sum(2, keepdim=True)


def barycentric_projection(plan: Any, values: np.ndarray) -> np.ndarray:
    """Return the barycentric projection (n, k), float64: the mean of values weighted by each row of a plan.

    plan: (n, m), an array or a LazyPlan; values: (m, k). Rows without mass are NaN.

    >>> barycentric_projection(np.array([[0.1, 0.3], [0.0, 0.0]]), np.array([[0.0], [4.0]]))
    array([[ 3.],
           [nan]])
    """
    if isinstance(plan, LazyPlan):
        unbatched = plan.implicit_plan((1, plan.shape[0], plan.shape[1]))
        return to_numpy(weighted_means(unbatched, torch.tensor(values).to(unbatched.row_sums)[None]).double()[0])
    return weighted_means(as_tensor("plan", plan).double()[None], torch.tensor(values).double()[None])[0].numpy()


def divide_by_weights(marginal: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return marginal / weights, the fraction of its weight that each point keeps, 0 for weight 0; (n,) or (B, n)."""
    return np.divide(marginal, weights, out=np.zeros_like(weights), where=weights > 0)


def apply_plan(plan: Any, matrix: np.ndarray) -> np.ndarray:
    """Return plan @ matrix, (n, k), as an array. plan: (n, m), an array or a LazyPlan; matrix: (m, k), float64."""
    if not isinstance(plan, LazyPlan):
        return plan @ matrix
    return to_numpy(plan.apply(matrix.astype(dtype_name(plan.dtype)))).astype(np.float64)


def to_numpy(values: Any) -> Any:
    """Return a tensor (on any device, with or without an autograd graph) as an array, and anything else unchanged."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values
