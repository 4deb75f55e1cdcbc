"""The numbers of a solve: how it ended, its terms, its history, and the tensors behind a result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from .._utils.pytree import BatchRecord, join
from ..geometry.implicit_plan import ImplicitPlan
from .lazy_plan import LazyPlan


class Status(IntEnum):
    """How a solve ended. Each member's `message` says what happened and what to do.

    >>> import ugw
    >>> x = ugw.Space.from_points([[0.0], [1.0], [3.0]])
    >>> ugw.solve(x, x).status is ugw.Status.CONVERGED
    True
    >>> ugw.Status.STOPPED.message
    'the callback stopped the run: solve again with init=result.plan to go on'
    """

    RUNNING = 0
    CONVERGED = 1
    MAX_ITER = 2
    ALTERNATING = 3
    PRECISION = 4
    COLLAPSED = 5
    STOPPED = 6
    NON_FINITE = 7
    NEGATIVE = 8

    @property
    def message(self) -> str:
        """One sentence with the cure."""
        return _MESSAGES[self]

    def __str__(self) -> str:
        return self.name


_MESSAGES = {
    Status.RUNNING: "the solve has not ended",
    Status.CONVERGED: "converged",
    Status.MAX_ITER: "the iteration limit came first: raise max_iter or eps, loosen tol, or set anneal; "
    "if it is the inner residual that is large, raise inner=Sinkhorn(max_iter=...)",
    Status.ALTERNATING: "two plans alternate without meeting; `plan` is the better of them, `plan_pair` has both: "
    "raise eps or try another init",
    Status.PRECISION: "eps is too small against the cost for this dtype, rounding alone moves the plan: "
    "use float64 or raise eps",
    Status.COLLAPSED: "the best plan found has next to no mass: rho is too small against the distances, or no start "
    "fits; raise rho, rescale with Space.scaled(), or give another init",
    Status.STOPPED: "the callback stopped the run: solve again with init=result.plan to go on",
    Status.NEGATIVE: "a debiased value is below 0: a part of it ended in a local minimum, most often a self term; "
    'try init="best" or solver=Multistart(...)',
    Status.NON_FINITE: "a step gave non-finite numbers and was undone: raise eps, use float64 or rescale the spaces",
}


def present(value: Tensor | ImplicitPlan, *, batched: bool, numpy: bool) -> Any:
    """A tensor (B, ...) as users see it: without the batch dimension they did not ask for, NumPy if they use that."""
    if isinstance(value, ImplicitPlan):
        return LazyPlan(value, batched=batched, numpy=numpy)
    if not batched:
        value = value[0]
    if not numpy:
        return value.clone()
    array = value.cpu().numpy().copy()  # what a user writes into it does not change the result
    return array if array.ndim else array.item()


class ObjectiveTerms(BatchRecord):
    """Named weighted terms that add up to an objective, (B,) tensors or numbers: the fields of a dataclass."""

    @property
    def total(self) -> Any:
        """Their sum, the objective."""
        return reduce(add, self.as_dict().values())  # not `sum`, which from Python 3.12 on rounds floats otherwise

    def present(self, *, batched: bool, numpy: bool) -> Self:
        """As users see them: plain numbers or arrays."""
        return type(self)(**{k: present(v, batched=batched, numpy=numpy) for k, v in self.as_dict().items()})

    def as_dict(self) -> dict[str, Any]:
        """Name → value, in the order in which they are printed."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Terms(ObjectiveTerms):
    """The weighted terms of the UGW objective; a hard marginal contributes 0."""

    distortion: Any
    linear: Any
    marginal_a: Any
    marginal_b: Any
    entropy: Any


@dataclass(frozen=True, eq=False)
class ConicTerms(ObjectiveTerms):
    """The terms of CGW: `apart`, its value if nothing is matched, and what matching saves, `overlap` ≤ 0."""

    apart: Any
    overlap: Any


@dataclass(frozen=True, eq=False)
class History:
    """One entry per outer step: F(p, p), F(p, q) with the plan before, plan change, inner residual, mass of p."""

    objective: np.ndarray
    relaxed: np.ndarray
    change: np.ndarray
    residual: np.ndarray
    mass: np.ndarray

    def __len__(self) -> int:
        return len(self.objective)


@dataclass(frozen=True, eq=False)
class Lift(BatchRecord):
    """A plan between cones: P 1 = a, Qᵀ 1 = b, 0 ≤ w ≤ sqrt(P∘Q), (B, n, m) each, and (B,) what is known of it.

    error: bound on the error of the kernel; wanted: the tolerance of that; slack: what it may add to the value;
    rank: of the kernel, 0 if exact; metric: is `distance` one? exponent: it is the value to the power of
    1 over this; power: masses are radii to this.
    """

    P: Tensor
    Q: Tensor
    w: Tensor
    error: Tensor
    wanted: Tensor
    slack: Tensor
    rank: Tensor
    metric: Tensor
    exponent: Tensor
    power: Tensor


@dataclass(frozen=True, eq=False)
class SolverOutput(BatchRecord):
    """The numbers behind a Result, each with a leading batch dimension B, on the device of the solve.

    plan, other: (B, n, m), the last two plans, stored or streamed; potentials f (B, n), g (B, m) or None; scalars (B,);
    trace: (B, steps, 5), the columns of History, NaN after an item ended; lift: for conic problems.
    """

    plan: Any
    other: Any
    potentials: tuple[Tensor, Tensor] | None
    terms: ObjectiveTerms
    relaxed_value: Tensor
    marginal_error: Tensor
    change: Tensor
    residual: Tensor
    status: Tensor
    n_iter: Tensor
    trace: Tensor
    lift: Lift | None = None

    @classmethod
    def joined(cls, parts: Sequence[SolverOutput]) -> SolverOutput:
        """The items of several runs, one after the other."""
        return join(cls.alike(*parts))

    @staticmethod
    def alike(*parts: SolverOutput) -> list[SolverOutput]:
        """With traces of one length, and potentials in all of them if in one: what may differ among runs."""
        steps = max(part.trace.shape[1] for part in parts)
        some = any(part.potentials is not None for part in parts)
        return [part._alike(steps, potentials=some) for part in parts]

    def _alike(self, steps: int, *, potentials: bool) -> SolverOutput:
        """With a trace of so many steps, and potentials of NaN where others have some: what may differ among runs."""
        missing = self.trace.new_full((len(self.trace), steps - self.trace.shape[1], self.trace.shape[2]), torch.nan)
        f_g = self.potentials
        if potentials and f_g is None:
            p1, p2 = self.plan.sum(2), self.plan.sum(1)
            f_g = torch.full_like(p1, torch.nan), torch.full_like(p2, torch.nan)
        return replace(self, trace=torch.cat([self.trace, missing], dim=1), potentials=f_g)
