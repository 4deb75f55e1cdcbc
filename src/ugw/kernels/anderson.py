"""Anderson extrapolation of a fixed-point iteration on local costs, in plain torch: the reference.

An iteration maps a local cost, its input, to the local cost of the next plan, its output; residual = output − input.
Where the map contracts, Anderson's method over the last three iterations extrapolates to its fixed point. Near a saddle
point the Jacobian on the last differences has an eigenvalue above 1, and Anderson's method would converge to the
saddle: there the last step is prolonged instead (over-relaxation).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .config import KERNEL_CONFIG


class AndersonStep(NamedTuple):
    """The extrapolation chosen for each item.

    factors: (B, 3), the factors c0, c1 and c2 of `extrapolate`, 0 where nothing is extrapolated; is_extrapolated: (B,)
    bool; is_overrelaxed: (B,) bool, is the last step prolonged (over-relaxation)?
    """

    factors: Tensor
    is_extrapolated: Tensor
    is_overrelaxed: Tensor


def anderson_differences(inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return x1 − x0, x2 − x1, r1 − r0, r2 − r1 and r2, where r_k = y_k − x_k, (B, n, m) each.

    inputs: x0, x1, x2, the costs at which three consecutive steps were linearized, oldest first, (B, n, m); outputs:
    y0, y1, y2, the costs of the plans after these steps; all as tensors or `BilinearMatrix`.
    """
    input_steps = inputs[1] - inputs[0], inputs[2] - inputs[1]
    output_steps = outputs[1] - outputs[0], outputs[2] - outputs[1]
    # Where the map contracts slowly, residual differences are small beside both steps: subtract before any product.
    residual_steps = (o - i for o, i in zip(output_steps, input_steps, strict=True))
    return *input_steps, *residual_steps, outputs[2] - inputs[2]


def anderson_moments(
    a: Tensor, b: Tensor, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return Σ_ij a_i b_j d_k, (B, 5, 1), and Σ_ij a_i b_j d_k d_l, (B, 5, 5), float64, of five differences d of costs.

    d: x1 − x0, x2 − x1, r1 − r0, r2 − r1 and r2 with r_k = y_k − x_k; inputs: x0, x1, x2, outputs: y0, y1, y2, costs
    (B, n, m), oldest first; a: (B, n); b: (B, m).
    """
    block_entries = KERNEL_CONFIG.moment_block_cuda if a.is_cuda else KERNEL_CONFIG.moment_block_cpu
    batch, n, m = inputs[0].shape
    # The rows of a block do not depend on the batch, so that an item has the sums that it has alone.
    n_rows = min(n, max(1, block_entries // m))
    n_items = max(1, block_entries // (n_rows * m))
    means, products = (a.new_zeros((batch, 5, k), dtype=torch.float64) for k in (1, 5))
    # Differences and weighted differences of all entries at once would be the memory peak of a solve.
    for first, start in product(range(0, batch, n_items), range(0, n, n_rows)):
        items, rows = slice(first, first + n_items), slice(start, start + n_rows)
        block = anderson_differences(*([cost[items, rows] for cost in costs] for costs in (inputs, outputs)))
        differences = torch.stack(block, dim=1)
        weighted = (differences * (a[items, rows, None] * b[items, None, :])[:, None]).flatten(2)
        means[items] += weighted.sum(2, keepdim=True)
        products[items] += weighted @ differences.flatten(2).mT
    return means, products


def extrapolate(last_input: Any, outputs: Sequence[Any], factors: Sequence[Tensor]) -> Any:
    """Return the cost f2 + c0 (f1 − f0) + c1 (f2 − f1) + c2 (f2 − last_input), (B, n, m), where the next step starts.

    last_input: (B, n, m), the cost at which the last step started; outputs: f0, f1, f2, the costs (B, n, m) of the last
    three plans, oldest first; all as tensors or as `BilinearMatrix`; factors: c0, c1, c2, (B,) each.
    """
    result = outputs[2]
    directions = (outputs[1] - outputs[0], outputs[2] - outputs[1], outputs[2] - last_input)
    for factor, direction in zip(factors, directions, strict=True):
        scale = factor.to(direction.dtype)[:, None, None]
        is_stored = isinstance(direction, Tensor)
        result = torch.addcmul(result, direction, scale) if is_stored else result + direction * scale
    return result


def anderson_coefficients(gram: Tensor, relative_change: Tensor, was_rejected: Tensor) -> AndersonStep:
    """Return factors (B, 3), and (B,) bool twice: is the item extrapolated at all, and if so by over-relaxation?

    The factors c0, c1, c2 give the next cost f2 + c0 (f1 − f0) + c1 (f2 − f1) + c2 (f2 − last input), see
    `extrapolate`. Anderson's extrapolation has c2 = 0. Over-relaxation, which prolongs the last step, has c0 = c1 = 0
    and a fixed c2. All are 0 where nothing is extrapolated. gram: (B, 5, 5), covariances of x1 − x0, x2 − x1, r1 − r0,
    r2 − r1 and r2, inputs x and residuals r of three steps; relative_change: (B,), the last change of the plan in units
    of its tolerance, 0 where nothing may be extrapolated; was_rejected: (B,) bool, was an over-relaxed step of this
    item rejected before? Then it is over-relaxed again only if the residual itself grows.
    """
    may_extrapolate = relative_change > 0.0
    input_gram, residual_gram, side = gram[:, :2, :2], gram[:, 2:4, 2:4], -gram[:, 2:4, 4]
    cross_gram = input_gram + gram[:, :2, 2:4]
    coefficients = _mixing_coefficients(residual_gram, side)
    expands = largest_growth(input_gram, 0.5 * (cross_gram + cross_gram.mT)) >= 1.0
    # The previous residual is e minus the last residual difference.
    previous_square = gram[:, 4, 4] + residual_gram[:, 1, 1] + 2.0 * side[:, 1]
    is_large = relative_change >= KERNEL_CONFIG.min_overrelaxed_change
    is_overrelaxed = may_extrapolate & expands & is_large & (~was_rejected | (gram[:, 4, 4] >= previous_square))
    is_mixed = may_extrapolate & ~expands & torch.isfinite(coefficients.sum(1))
    prolongation = KERNEL_CONFIG.overrelaxation * is_overrelaxed.to(gram.dtype)[:, None]
    factors = torch.cat([torch.where(is_mixed[:, None], coefficients, 0.0), prolongation], dim=1)
    return AndersonStep(factors, is_overrelaxed | is_mixed, is_overrelaxed)


def largest_growth(input_gram: Tensor, cross_gram: Tensor) -> Tensor:
    """Return the largest eigenvalue λ of cross_gram v = λ input_gram v, (B,).

    It is about the largest factor by which a step multiplies a combination of the last two input differences.
    input_gram: (B, 2, 2), inner products of the input differences; cross_gram: (B, 2, 2), those of input with output
    differences, symmetrized. Nearly parallel differences count as one.
    """
    independence = KERNEL_CONFIG.min_independence
    lengths = input_gram.diagonal(dim1=1, dim2=2).sqrt()
    scale = 1.0 / (lengths[:, :, None] * lengths[:, None, :])
    cosine, k = (input_gram * scale)[:, 0, 1].clamp(-1.0, 1.0), cross_gram * scale
    # The eigenvectors of [[1, c], [c, 1]] are the sum and the difference of both directions.
    half, off = 0.5 * (k[:, 0, 0] + k[:, 1, 1]), k[:, 0, 1]
    plus, minus = (1.0 + cosine).clamp(min=independence), (1.0 - cosine).clamp(min=independence)
    upper, lower = (half + off) / plus, (half - off) / minus
    mixed = 0.5 * (k[:, 0, 0] - k[:, 1, 1]) / (plus * minus).sqrt()
    both = 0.5 * (upper + lower) + (0.25 * (upper - lower).square() + mixed.square()).sqrt()
    single = torch.where(cosine > 0.0, upper, lower)  # if nearly parallel
    return torch.where(torch.minimum(plus, minus) <= 2.0 * independence, single, both)


def _mixing_coefficients(residual_gram: Tensor, side: Tensor) -> Tensor:
    """Return Anderson's coefficients c (B, 2), which minimize |e + E c| for residual differences E and the residual e.

    residual_gram: (B, 2, 2), EᵀE, the second column of E is the last difference; side: (B, 2), −Eᵀe. Where |c1| + |c2|
    is too large, c1 = 0 and c2 is that of the last difference alone, bounded, and NaN unless it is positive. Both are
    rounded to multiples of `coefficient_grain`.
    """
    cross, damping = residual_gram[:, 0, 1], 1.0 + KERNEL_CONFIG.least_squares_damping
    first_square, last_square = residual_gram[:, 0, 0] * damping, residual_gram[:, 1, 1] * damping
    determinant = first_square * last_square - cross.square()  # Cramer's rule does not synchronize a GPU
    first = (last_square * side[:, 0] - cross * side[:, 1]) / determinant
    last = (first_square * side[:, 1] - cross * side[:, 0]) / determinant
    is_trusted = first.abs() + last.abs() <= KERNEL_CONFIG.max_two_coefficients
    is_forward = (side[:, 1] > 0.0) & (residual_gram[:, 1, 1] > 0.0)
    single = (side[:, 1] / residual_gram[:, 1, 1]).clamp(max=KERNEL_CONFIG.max_one_coefficient)
    single = torch.where(is_forward, single, torch.nan)
    both = torch.stack([torch.where(is_trusted, first, 0.0), torch.where(is_trusted, last, single)], dim=1)
    grain = KERNEL_CONFIG.coefficient_grain
    return grain * (both / grain + 0.5).floor()
