"""Operations on `ImplicitPlan` and `BilinearMatrix`; sums over all pairs are estimated from evenly spaced rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..geometry.bilinear_matrix import BilinearMatrix
from ..geometry.implicit_plan import ImplicitPlan
from .config import PROBLEM_CONFIG


def mix_with_product_plan(plan: ImplicitPlan, share: Tensor, log_a: Tensor, log_b: Tensor) -> ImplicitPlan:
    """Return the `ImplicitPlan` whose logarithm is (1 − share)·log plan + share·log a⊗b, not normalized.

    share: (B,) in [0, 1]. Only its logarithm is valid: `row_sums`, `col_sums` and `right_product` are those of `plan`.
    """
    scaled = plan.log_ratio(log_a, log_b) * (1.0 - share)[:, None, None]
    return replace(plan, log_plan=replace(scaled, row=scaled.row + log_a, col=scaled.col + log_b))


def l1_distance(plan: ImplicitPlan, other: ImplicitPlan) -> Tensor:
    """Return the L1 distance (B,) of two plans of mass 1, estimated from evenly spaced rows."""
    total = torch.zeros(plan.shape[0], dtype=torch.float64, device=plan.device)
    mass = torch.zeros_like(total)
    for index in sample_row_blocks(plan.shape, plan.device):
        total += (plan.rows(index) - other.rows(index)).abs().sum(dim=(1, 2), dtype=torch.float64)
        mass += plan.sum(2)[:, index].sum(1, dtype=torch.float64)
    return total / mass.clamp(min=torch.finfo(torch.float64).tiny)


def max_log_growth(before: ImplicitPlan, after: ImplicitPlan, log_a: Tensor, log_b: Tensor) -> Tensor:
    """Return the largest log(after_ij / before_ij), (B,), over evenly spaced rows i and all j, of two plans (B, n, m).

    log_a: (B, n), log_b: (B, m), log weights; points of weight 0 are left out.
    """
    ratio = after.log_ratio(log_a, log_b) - before.log_ratio(log_a, log_b)
    row, col = (torch.where(log > -torch.inf, 0.0, -torch.inf) for log in (log_a, log_b))
    ratio = replace(ratio, row=ratio.row + row, col=ratio.col + col)
    blocks = sample_row_blocks(after.shape, after.device)
    return torch.stack([ratio.rows(index).amax(dim=(1, 2)).double() for index in blocks]).amax(0)


def cost_rms(cost: BilinearMatrix, log_a: Tensor, log_b: Tensor) -> Tensor:
    """Return the root mean square (B,) of a cost, weighted by a⊗b, estimated from evenly spaced rows."""
    a, b = log_a.exp().double(), log_b.exp().double()
    total = torch.zeros(len(a), dtype=torch.float64, device=a.device)
    mass = torch.zeros_like(total)
    for index in sample_row_blocks(cost.shape, cost.device):
        total += (a[:, index, None] * b[:, None, :] * cost.rows(index).double().square()).sum(dim=(1, 2))
        mass += a[:, index].sum(1)
    return (total / mass.clamp(min=torch.finfo(torch.float64).tiny)).sqrt()


def cost_covariances(costs: Sequence[BilinearMatrix], log_a: Tensor, log_b: Tensor) -> Tensor:
    """Return covariances (B, k, k), float64, of the entries of k costs with the same bases under the weights a⊗b."""
    a, b = log_a.exp().double()[:, :, None], log_b.exp().double()[:, :, None]
    left, right = costs[0].left.double(), costs[0].right.double()
    mean_x, mean_y = (a * left).sum(1, keepdim=True), (b * right).sum(1, keepdim=True)
    left, right = left - mean_x, right - mean_y
    # A matrix is the sum of a part that depends on i alone, one on j alone, and one on both; these are orthogonal.
    cores = torch.stack([c.core for c in costs], dim=1)  # (B, k, r, s)
    rows = torch.stack([c.row[:, :, None] + left @ c.core @ mean_y.mT for c in costs], dim=1)[..., 0]
    cols = torch.stack([c.col[:, :, None] + right @ (mean_x @ c.core).mT for c in costs], dim=1)[..., 0]
    total = torch.zeros_like(cores[:, :, 0, :1] @ cores[:, :, 0, :1].mT)
    for part, weight in ((rows, a.mT), (cols, b.mT)):
        part = part - (part * weight).sum(2, keepdim=True)
        total = total + (part * weight) @ part.mT
    covariance_x, covariance_y = left.mT @ (a * left), right.mT @ (b * right)
    weighted_cores = covariance_x[:, None] @ cores @ covariance_y[:, None]
    return total + weighted_cores.flatten(2) @ cores.flatten(2).mT


def sample_row_blocks(shape: Sequence[int], device: torch.device) -> list[Tensor]:
    """Return blocks (k,) of the indices of evenly spaced rows, at least 256 or all n, of matrices of this shape."""
    batch, n, m = shape
    count = min(n, max(PROBLEM_CONFIG.min_sampled_rows, PROBLEM_CONFIG.sampled_entries // (m * batch)))
    index = torch.arange(count, device=device) * n // count
    return list(index.split(max(1, PROBLEM_CONFIG.row_block_entries // (m * batch))))
