"""Extrapolated steps: Anderson's method over the last steps where these contract, a leap where they do not.

A step is a map from one local cost to the next. Its Jacobian on the differences of the last costs has an eigenvalue
above 1 near a saddle point, which plain steps leave slowly and Anderson's method would run into; there the next step
is made farther along the last one instead. Either may fail: then the solver goes back to the plan before, on with
plain steps, and the trail starts anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._batch import take_fields
from ..kernels import extrapolated
from ..problems.problem import Problem

# Steps are extrapolated once they change less than this share of the plan: before, they choose a valley.
BEGIN = 0.1
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


@dataclass(frozen=True, eq=False)
class Trail:
    """The local costs at which the last two steps were made, and what they led to, older first.

    count: (B,), of steps in a row without a failure, up to now; leapt: (B,) bool, does the next step start from a leap?
    barred: (B,) bool, did one fail? What looks like growth is believed from then on only where the change itself grows.
    """

    given: tuple[Any, Any]
    found: tuple[Any, Any]
    count: Tensor
    leapt: Tensor
    barred: Tensor

    @classmethod
    def start(cls, local: Any, like: Tensor) -> Trail:
        """No steps yet. like: (B,)."""
        none = torch.zeros_like(like, dtype=torch.bool)
        return cls((local, local), (local, local), torch.zeros_like(like), none, none)

    def take(self, index: Tensor) -> Trail:
        """Some items of the batch."""
        return take_fields(self, index)

    def extended(self, given: Any, found: Any, failed: Tensor, leap: Tensor) -> Trail:
        """With one more step, after which items that failed begin again, and some leap. failed, leap: (B,) bool."""
        count = torch.where(failed, 0.0, self.count + 1.0)
        return Trail((self.given[1], given), (self.found[1], found), count, leap, self.barred | (failed & self.leapt))

    def next(self, problem: Problem, given: Any, found: Any, size: Tensor, *, look: bool) -> tuple[Any, Tensor, Tensor]:
        """The local cost for the step after one from `given` to `found`; (B,) is it another than `found`, is it a leap?

        size: (B,), the change of the plan in that step in units of its limit, 0 where nothing may be extrapolated;
        look: may one look whether there is anything?
        """
        ready = (size > 0.0) & (self.count >= 2.0)
        if look and not bool(ready.any()):
            return found, ready, ready
        # With E = out − in, the change of a step from one to the next: least squares for e + E c. Where steps contract
        # slowly E is small beside both, so it is formed before any product.
        gram = problem.steps_gram((*self.given, given), (*self.found, found))
        between, errors, side = gram[:, :2, :2], gram[:, 2:4, 2:4], -gram[:, 2:4, 4]
        across = between + gram[:, :2, 2:4]
        one, two = _solved(errors, side)
        trusted = one.abs() + two.abs() <= LARGEST
        one, two = torch.where(trusted, one, 0.0), torch.where(trusted, two, _along(errors, side))
        one, two = (GRAIN * (c / GRAIN).round() for c in (one, two))
        grows = _growth(between, 0.5 * (across + across.mT)) >= 1.0
        # The change of the step before is e − E of the last difference.
        before = gram[:, 4, 4] + errors[:, 1, 1] + 2.0 * side[:, 1]
        leap = ready & grows & (size >= SURE) & (~self.barred | (gram[:, 4, 4] >= before))
        mix = ready & ~grows & torch.isfinite(one + two)
        steps = (torch.where(mix, one, 0.0), torch.where(mix, two, 0.0), torch.where(leap, LEAP, 0.0))
        return extrapolated(given, (*self.found, found), steps), leap | mix, leap


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


def _growth(between: Tensor, across: Tensor) -> Tensor:
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
