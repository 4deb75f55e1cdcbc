"""Operations on plans and costs that are stored as tensors or implicit: normalize, mix, compare, measure.

A plan is a tensor (B, n, m) or an `ImplicitPlan` (potentials and low-rank factors, no stored matrix), a cost a tensor
(B, n, m) or a `BilinearMatrix`. log_a: (B, n) and log_b: (B, m) are logarithms of weights of mass 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._utils.size_class import THRESHOLDS
from ..geometry.implicit_plan import ImplicitPlan
from ..kernels import dispatch, reductions
from ..kernels.anderson import anderson_differences
from . import implicit_operations
from .config import PROBLEM_CONFIG


def normalize(plan: Any) -> Any:
    """Return the plan (B, n, m) divided by its mass, so that its mass is 1."""
    if isinstance(plan, ImplicitPlan):
        return plan / plan.sum((1, 2), dtype=torch.float64)[:, None, None]
    plan = plan / plan.amax(dim=(1, 2), keepdim=True)  # first, because the sum could overflow
    return plan / plan.sum(dim=(1, 2), keepdim=True)


def find_product_plans(plan: Any) -> Tensor | None:
    """Return (B,) bool: is a plan (B, n, m) the product of its marginals up to rounding? None for an `ImplicitPlan`."""
    if not isinstance(plan, Tensor):
        return None
    p1, p2 = plan.sum(2), plan.sum(1)
    deviation = torch.baddbmm(plan, p1[:, :, None], p2[:, None, :], alpha=-1.0).abs_()
    rounding = PROBLEM_CONFIG.product_plan_rounding * torch.finfo(plan.dtype).eps
    return deviation.sub_(plan, alpha=rounding).amax(dim=(1, 2)) <= 0


def mix_with_product_plan(plan: Any, share: Tensor, log_a: Tensor, log_b: Tensor) -> Any:
    """Return the mixture (1 − share)·plan + share·a⊗b, (B, n, m), of plans of mass 1; share: (B,) in [0, 1].

    For an `ImplicitPlan` the logarithms are mixed instead, (1 − share)·log plan + share·log a⊗b, without normalization
    and with the stored sums of `plan`: the result is for proximal terms, which use its logarithm only.
    """
    if isinstance(plan, ImplicitPlan):
        return implicit_operations.mix_with_product_plan(plan, share, log_a, log_b)
    product = log_a.exp()[:, :, None] * log_b.exp()[:, None, :]
    return torch.lerp(plan, product, share.to(plan.dtype)[:, None, None])


def l1_distance(plan: Any, other: Any) -> Tensor:
    """Return the L1 distance (B,) of two plans of mass 1, of `ImplicitPlan` estimated from evenly spaced rows."""
    if isinstance(plan, ImplicitPlan):
        return implicit_operations.l1_distance(plan, other)
    return dispatch.l1_distance(plan, other)


def relative_change(state: Any, other: Any) -> Tensor:
    """Return the L1 distance (B,) of the unit plans of two states plus the absolute difference of their log masses.

    The difference counts as at most 1, and as 0 where the plan of `state` has next to no mass.
    """
    # A mass far below any weight counts as 0; differences of its logarithm have no meaning.
    masses = (state.log_mass - other.log_mass).abs().clamp(max=1.0)
    has_no_mass = state.log_mass <= PROBLEM_CONFIG.min_log_mass
    return l1_distance(state.unit_plan, other.unit_plan) + masses.masked_fill_(has_no_mass, 0.0)


def max_log_growth(before: Any, after: Any, log_a: Tensor, log_b: Tensor) -> Tensor:
    """Return the largest log(after_ij / before_ij), (B,), of two plans (B, n, m); entries that are 0 in one count as 0.

    Of an `ImplicitPlan` only evenly spaced rows are compared. log_a: (B, n), log_b: (B, m), log weights.
    """
    if isinstance(before, ImplicitPlan):
        return implicit_operations.max_log_growth(before, after, log_a, log_b)
    growth = after.log() - before.log()  # NaN where both are 0; no entry grows from 0 in one proximal step
    return torch.where(torch.isfinite(growth), growth, 0.0).amax(dim=(1, 2)).double()


def cost_rms(cost: Any, log_a: Tensor, log_b: Tensor) -> Tensor:
    """Return the root mean square (B,), float64, of a cost under a⊗b, inf as 0; estimated for a `BilinearMatrix`."""
    if not isinstance(cost, Tensor):
        return implicit_operations.cost_rms(cost, log_a, log_b)
    largest = cost.abs().amax(dim=(1, 2), keepdim=True)
    if cost.is_cuda or not bool(torch.isfinite(largest).all()):  # on CUDA the host does not wait for the answer
        cost = torch.where(torch.isinf(cost), 0.0, cost)
        largest = cost.abs().amax(dim=(1, 2), keepdim=True)
    largest = torch.where(largest > 0, largest, 1.0)  # its square may be out of range
    square = (cost / largest).square_() @ log_b.exp()[:, :, None]
    mean = (square[:, :, 0] * log_a.exp()).sum(1, dtype=torch.float64)
    return largest[:, 0, 0].double() * mean.sqrt()


def anderson_covariances(
    inputs: Sequence[Any], outputs: Sequence[Any], log_a: Tensor, log_b: Tensor, *, sample_rows: bool
) -> Tensor:
    """Return covariances (B, 5, 5), float64, of five differences of local costs under the weights a⊗b.

    inputs, outputs: costs x0, x1, x2 at which the last three steps were linearized, and y0, y1, y2 of the resulting
    plans; differences: x1 − x0, x2 − x1, r1 − r0, r2 − r1, r2 with r = y − x. sample_rows: on a CPU use a sample of
    rows, which is enough to extrapolate; all rows would take a quarter of a step.
    """
    if not isinstance(inputs[0], Tensor):
        return implicit_operations.cost_covariances(anderson_differences(inputs, outputs), log_a, log_b)
    a, b = log_a.exp(), log_b.exp()
    n_rows = THRESHOLDS.max_rows_without_sampling
    if sample_rows and a.shape[1] > n_rows and not a.is_cuda:
        a, rows = reductions.sample_rows(a, (*inputs, *outputs), n_rows)
        inputs, outputs = rows[:3], rows[3:]
    mean, products = dispatch.anderson_moments(a, b, inputs, outputs)
    return products - mean @ mean.mT
