"""Products and barycentric projections with plans that are NumPy arrays or LazyPlans, as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from .._utils.checks import dtype_name
from .lazy_plan import LazyPlan


def barycentric_projection(plan: Any, values: np.ndarray) -> np.ndarray:
    """Return the barycentric projection (n, k): for each row of a plan (n, m) the weighted mean of values (m, k).

    plan: an array or a LazyPlan. Rows without mass are NaN.

    >>> barycentric_projection(np.array([[0.1, 0.3], [0.0, 0.0]]), np.array([[0.0], [4.0]]))
    array([[ 3.],
           [nan]])
    """
    if isinstance(plan, LazyPlan):
        with np.errstate(invalid="ignore"):
            return apply_plan(plan, values) / apply_plan(plan, np.ones((len(values), 1)))
    largest = plan.max(axis=1, keepdims=True)
    # Rows are divided by their maximum, because tiny masses would underflow in the product.
    weights = np.divide(plan, largest, out=np.full_like(plan, np.nan), where=largest > 0)
    return weights @ values / weights.sum(axis=1, keepdims=True)


def divide_by_weights(marginal: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return marginal / weights, the fraction of its weight that each point keeps, 0 for weight 0; (n,) or (B, n)."""
    return np.divide(marginal, weights, out=np.zeros_like(weights), where=weights > 0)


def apply_plan(plan: Any, matrix: np.ndarray) -> np.ndarray:
    """Return plan @ matrix, (n, k), as a NumPy array. plan: (n, m), an array or a LazyPlan; matrix: (m, k)."""
    if not isinstance(plan, LazyPlan):
        return plan @ matrix
    return to_numpy(plan.apply(matrix.astype(dtype_name(plan.dtype)))).astype(np.float64)


def to_numpy(values: Any) -> Any:
    """Return a tensor (on any device, with or without an autograd graph) as an array, and anything else unchanged."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values
