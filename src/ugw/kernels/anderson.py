"""How a step is to be extrapolated, from covariances of the last ones, in plain torch: the specification of Triton's.

A step is a map from one local cost to the next. Where it contracts, Anderson's method over the last steps finds its
fixed point sooner. Near a saddle point its Jacobian on the differences of the last costs has an eigenvalue above 1, and
Anderson's method would run into it: there the next step is made farther along the last one instead, a leap.
"""

from __future__ import annotations

import torch
from torch import Tensor

# How many times farther a step goes that grows. That it does is hard to tell from rounding and from inner solves that
# are not exact: the change must be so many times above its limit.
LEAP, SURE = 10.0, 10.0
# Two coefficients whose sum is larger are not trusted, as steps along a valley are nearly parallel; one is, up to this.
LARGEST, FARTHEST = 50.0, 200.0
# Coefficients are multiples of this: what differs by rounding alone, as an item of a batch and the item itself, is
# extrapolated alike.
GRAIN = 2.0**-10
# Two differences as parallel as that count as one; least squares are damped by this share.
PARALLEL, DAMPING = 1e-6, 1e-8


def anderson_coefficients(gram: Tensor, size: Tensor, barred: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The multiples (B, 3) for `entries.extrapolate`, and (B,) bool each: is that a guess, is it a leap?

    gram: (B, 5, 5), covariances of `entries.anderson_differences`; size: (B,), the last change of the plan in
    units of its limit, 0 where nothing may be extrapolated; barred: (B,) bool, is growth believed only where the
    change grew?
    """
    ready = size > 0.0
    # With E = out − in, the change of a step from one to the next: least squares for e + E c. Where steps contract
    # slowly E is small beside both, so it is formed before any product.
    between, errors, side = gram[:, :2, :2], gram[:, 2:4, 2:4], -gram[:, 2:4, 4]
    across = between + gram[:, :2, 2:4]
    one, two = _solved(errors, side)
    trusted = one.abs() + two.abs() <= LARGEST
    one, two = torch.where(trusted, one, 0.0), torch.where(trusted, two, _along(errors, side))
    both = GRAIN * (torch.stack([one, two], dim=1) / GRAIN + 0.5).floor()
    grows = largest_growth(between, 0.5 * (across + across.mT)) >= 1.0
    # The change of the step before is e − E of the last difference.
    before = gram[:, 4, 4] + errors[:, 1, 1] + 2.0 * side[:, 1]
    leap = ready & grows & (size >= SURE) & (~barred | (gram[:, 4, 4] >= before))
    mix = ready & ~grows & torch.isfinite(both.sum(1))
    factors = torch.cat([torch.where(mix[:, None], both, 0.0), LEAP * leap.to(gram.dtype)[:, None]], dim=1)
    return factors, leap | mix, leap


def _solved(matrix: Tensor, side: Tensor) -> tuple[Tensor, Tensor]:
    """c of the damped system for symmetric (B, 2, 2) and (B, 2), entry by entry: a GPU need not wait for it."""
    first, second = matrix[:, 0, 0] * (1.0 + DAMPING), matrix[:, 1, 1] * (1.0 + DAMPING)
    cross = matrix[:, 0, 1]
    determinant = first * second - cross.square()
    return (
        (second * side[:, 0] - cross * side[:, 1]) / determinant,
        (first * side[:, 1] - cross * side[:, 0]) / determinant,
    )


def _along(matrix: Tensor, side: Tensor) -> Tensor:
    """The second coefficient (B,) if it is the only one, for symmetric (B, 2, 2) and (B, 2); NaN if it leads back."""
    forward = (side[:, 1] > 0.0) & (matrix[:, 1, 1] > 0.0)
    return torch.where(forward, (side[:, 1] / matrix[:, 1, 1]).clamp(max=FARTHEST), torch.nan)


def largest_growth(between: Tensor, across: Tensor) -> Tensor:
    """The largest eigenvalue (B,) of `across` against `between`, symmetric (B, 2, 2) both."""
    lengths = between.diagonal(dim1=1, dim2=2).sqrt()
    scale = 1.0 / (lengths[:, :, None] * lengths[:, None, :])
    cosine, k = (between * scale)[:, 0, 1].clamp(-1.0, 1.0), across * scale
    # The eigenvectors of [[1, c], [c, 1]] are the sum and the difference of both directions.
    half, off = 0.5 * (k[:, 0, 0] + k[:, 1, 1]), k[:, 0, 1]
    plus, minus = (1.0 + cosine).clamp(min=PARALLEL), (1.0 - cosine).clamp(min=PARALLEL)
    upper, lower = (half + off) / plus, (half - off) / minus
    mixed = 0.5 * (k[:, 0, 0] - k[:, 1, 1]) / (plus * minus).sqrt()
    both = 0.5 * (upper + lower) + (0.25 * (upper - lower).square() + mixed.square()).sqrt()
    single = torch.where(cosine > 0.0, upper, lower)  # nearly parallel: one direction is left
    return torch.where(torch.minimum(plus, minus) <= 2.0 * PARALLEL, single, both)
