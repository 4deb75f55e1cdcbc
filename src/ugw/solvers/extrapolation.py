"""Extrapolated steps: Anderson's method over the last steps where these contract, a leap where they do not.

`kernels.anderson` says how. Either may fail: then the solver goes back to the plan before, on with plain steps, and the
trail starts anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._utils.pytree import take_fields
from ..kernels.dispatch import anderson_coefficients, extrapolate
from ..problems.base import Problem

# Steps are extrapolated once they change less than this share of the plan: before, they choose a valley.
BEGIN = 0.1


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
        count = (self.count + 1.0).masked_fill_(failed, 0.0)
        return Trail((self.given[1], given), (self.found[1], found), count, leap, self.barred | (failed & self.leapt))

    def next(self, problem: Problem, given: Any, found: Any, size: Tensor, *, look: bool) -> tuple[Any, Tensor, Tensor]:
        """The local cost for the step after one from `given` to `found`; (B,) is it another than `found`, is it a leap?

        size: (B,), the change of the plan in that step in units of its limit, 0 where nothing may be extrapolated;
        look: may one look whether there is anything?
        """
        size = size.masked_fill(self.count < 2.0, 0.0)
        if look and not bool((size > 0.0).any()):
            none = torch.zeros_like(self.leapt)
            return found, none, none
        gram = problem.steps_gram((*self.given, given), (*self.found, found))
        factors, guessed, leap = anderson_coefficients(gram, size, self.barred)
        return extrapolate(given, (*self.found, found), factors.unbind(1)), guessed, leap
