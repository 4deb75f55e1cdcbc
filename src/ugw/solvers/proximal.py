"""Proximal steps: additional entropy relative to the last plan where eps is too small for the inner solver.

A step with entropy above eps minimizes F(·, q) + (entropy − eps)·KL(p | q), so its fixed points are those of the
problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._utils.checks import check_tolerance
from .._utils.deprecation import warn_renamed
from ..errors import InputError
from ..problems.plan_operations import max_log_growth, mix_with_product_plan
from .config import SOLVER_CONFIG


@dataclass(frozen=True, kw_only=True)
class ProximalSchedule:
    """The entropy of proximal steps as shares of the cost scale: from `first`, times `factor` per step, down to `last`.

    Problems with eps above the share `last` of the cost scale need no proximal steps.

    >>> ProximalSchedule(first=0.3, last=0.01, factor=0.95)
    ProximalSchedule(first=0.3, last=0.01, factor=0.95)
    """

    first: float = 0.3
    last: float = 0.01
    factor: float = 0.95

    def __post_init__(self) -> None:
        """Raise InputError unless first, last and factor are numbers in (0, 1) and first ≥ last."""
        for name in ("first", "last", "factor"):
            share = check_tolerance(f"ProximalSchedule, {name},", getattr(self, name))
            object.__setattr__(self, name, share)  # the record is frozen
        if self.first < self.last:
            raise InputError(f"ProximalSchedule first must be at least last, got {self.first} < {self.last}")

    @classmethod
    def from_old_option(cls, value: Any) -> ProximalSchedule:
        """Return the schedule for a tuple (first, last, factor), with a deprecation warning; else raise InputError."""
        if not isinstance(value, tuple) or len(value) != 3:
            raise InputError(
                f"AlternateMin proximal must be a ProximalSchedule(first=, last=, factor=), got {type(value).__name__}"
            )
        first, last, factor = value
        schedule = cls(first=first, last=last, factor=factor)
        warn_renamed(f"AlternateMin(proximal={value})", f"proximal=ugw.{schedule}")
        return schedule

    def bounds(self, eps: Tensor, scale: Tensor, min_entropy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the entropy of the first step, that of the last steps, and the limit of later increases, (B,) each.

        The eps of the problem is included; where it is large, first and last entropy are eps, without a proximal term.
        eps: (B,); scale: (B,), of the problem's cost; min_entropy: (B,), below which rounding dominates.
        """
        largest = SOLVER_CONFIG.max_proximal_share * scale
        # An eps that was given as exactly this share is not below it, however both are rounded.
        last_share = self.last * (1.0 - SOLVER_CONFIG.proximal_rounding)
        last = torch.maximum(eps, torch.maximum(last_share * scale, min_entropy.minimum(largest)))
        first = torch.where(eps < last, torch.maximum(last, self.first * scale), eps)
        return first, last, torch.maximum(last, largest)

    def next_entropy(self, entropy: Tensor, bounds: tuple[Tensor, Tensor], is_solved: Tensor) -> Tensor:
        """Return the entropy (B,) of the next step: lower, or higher again where the inner solver does not keep up.

        Lower is `factor` · entropy, at least last; higher is entropy / `factor`, at most largest. entropy: (B,), of the
        last step; bounds: (last, largest), (B,) each; is_solved: (B,) bool, is the last linear problem
        solved well enough?
        """
        last, largest = bounds
        lower = torch.maximum(last, self.factor * entropy)
        higher = torch.minimum(largest, entropy / self.factor)
        return torch.where(is_solved, lower, higher)


def reference_plan(unit_plan: Any, adds_product: Tensor, log_a: Tensor, log_b: Tensor) -> Any:
    """Return the reference plan q (B, n, m), of mass 1, of a proximal term KL(p | q): unit_plan, or mixed with a⊗b.

    A proximal step keeps zeros, and entries close to zero take long to grow: where adds_product, (B,) in {0, 1}, is 1,
    the share `product_share` of q is a⊗b.
    """
    if not adds_product.is_cuda and not bool((adds_product > 0).any()):
        return unit_plan
    return mix_with_product_plan(unit_plan, SOLVER_CONFIG.product_share * adds_product, log_a, log_b)


def has_growing_entries(before: Any, after: Any, allowed: Tensor, log_a: Tensor, log_b: Tensor) -> Tensor:
    """Return (B,) bool: is the largest log(after_ij / before_ij) of two plans (B, n, m) above `allowed`?

    Entries that are 0 in a plan do not count. The log of the growth times the entropy of the step is minus the gradient
    of the problem there. allowed: (B,), the largest log growth of a converged plan.
    """
    return max_log_growth(before, after, log_a, log_b) > allowed
