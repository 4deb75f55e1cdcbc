"""Records that make up a result: status, terms of the objective, history, lift, and the output of a solver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from .._utils.deprecation import renamed_attribute
from .._utils.pytree import BatchRecord, join
from ..geometry.implicit_plan import ImplicitPlan
from .lazy_plan import LazyPlan


class Status(IntEnum):
    """How a solve ended. Each member has a `message` that says what happened and what to change.

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
        """One sentence: what happened and, if the solve failed, what to change."""
        return _MESSAGES[self]

    def __str__(self) -> str:
        """Return the name of the member."""
        return self.name


_MESSAGES = {
    Status.RUNNING: "the solve has not ended",
    Status.CONVERGED: "converged",
    Status.MAX_ITER: "the iteration limit was reached: raise max_iter or eps, loosen tol, or set anneal; "
    "if it is the inner residual that is large, raise inner=Sinkhorn(max_iter=...)",
    Status.ALTERNATING: "two plans alternate without converging; `plan` is the better of them, `plan_pair` has both: "
    "raise rho if it is far below the mean distortion, otherwise raise eps or try another init",
    Status.PRECISION: "eps is too small against the cost for this dtype, rounding alone moves the plan: "
    "use float64 or raise eps",
    Status.COLLAPSED: "the best plan found has next to no mass: rho is too small against the distances, or no start "
    "fits; raise rho, rescale with Space.scaled(), or give another init",
    Status.STOPPED: "the callback stopped the run: solve again with init=result.plan to go on",
    Status.NEGATIVE: "a debiased value is below 0: a part of it ended in a local minimum, most often a self term; "
    'try init="best" or solver=Multistart(...)',
    Status.NON_FINITE: "a step gave non-finite numbers and was undone: raise eps, use float64 or rescale the spaces",
}


class StepBackend(IntFlag):
    """What computed the outer steps of a solve; a solve with several of them has the sum of their codes.

    >>> (StepBackend.TORCH | StepBackend.TRITON).label
    'torch + triton'
    """

    COMPILED = 1
    TORCH = 2
    COMPILED_SINKHORN = 4
    TRITON = 8
    CUDA_GRAPHS = 16
    POT = 32
    SCIPY = 64

    @property
    def label(self) -> str:
        """The names of all backends in this combination, joined by " + "."""
        return " + ".join(_BACKEND_LABELS[part] for part in StepBackend if part in self)


_BACKEND_LABELS = {
    StepBackend.COMPILED: "compiled",
    StepBackend.TORCH: "torch",
    StepBackend.COMPILED_SINKHORN: "compiled Sinkhorn",
    StepBackend.TRITON: "triton",
    StepBackend.CUDA_GRAPHS: "CUDA graphs",
    StepBackend.POT: "POT",
    StepBackend.SCIPY: "SciPy",
}


# Advice for MAX_ITER of the solvers by linear programs, which have neither entropy nor inner iterations.
LINEAR_PROGRAM_LIMIT_MESSAGE = "the iteration limit was reached: raise max_iter or loosen tol"


def to_user(value: Tensor | ImplicitPlan, *, batched: bool, numpy: bool) -> Any:
    """Return a copy of a tensor (B, ...) in the form that users see, without the batch dimension unless `batched`.

    If `numpy`, it is a NumPy array, or a Python number instead of an array (). An ImplicitPlan becomes a LazyPlan.
    """
    if isinstance(value, ImplicitPlan):
        return LazyPlan(value, batched=batched, numpy=numpy)
    if not batched:
        value = value[0]
    if not numpy:
        return value.clone()
    array = value.cpu().numpy().copy()  # what a user writes into it does not change the result
    return array if array.ndim else array.item()


class ObjectiveTerms(BatchRecord):
    """Named weighted terms of an objective, as tensors (B,) or numbers; each field of the dataclass is one term."""

    @property
    def total(self) -> Any:
        """The sum of the terms, (B,) or a number as they are: the value of the objective."""
        return reduce(add, vars(self).values())  # not `sum`, which from Python 3.12 on rounds floats otherwise

    def to_user(self, *, batched: bool, numpy: bool) -> Self:
        """Return the terms for users: (B,) if `batched`, else without that dimension; if `numpy` arrays or numbers."""
        return type(self)(**{k: to_user(v, batched=batched, numpy=numpy) for k, v in self.as_dict().items()})

    def as_dict(self) -> dict[str, Any]:
        """Return the terms by name, in the order in which results print them."""
        return dict(vars(self))


@dataclass(frozen=True, eq=False)
class Terms(ObjectiveTerms):
    """The weighted terms of the UGW objective; `linear` is that of `Fused`, and a hard marginal contributes 0."""

    distortion: Any
    linear: Any
    marginal_a: Any
    marginal_b: Any
    entropy: Any


@dataclass(frozen=True, eq=False)
class ConicTerms(ObjectiveTerms):
    """The terms of CGW: `unmatched`, the value if no mass is matched, and `overlap` ≤ 0, the change by matching."""

    unmatched: Any
    overlap: Any

    apart = renamed_attribute("ConicTerms", "apart", "unmatched")


@dataclass(frozen=True, eq=False)
class History:
    """NumPy arrays (steps,), one value per outer step, for the plan p after the step and the plan q before it.

    F is the objective of the problem. objective: F(p, p); relaxed: F(p, q); change: what the tolerance bounds, the
    relative L1 change of the plan, for CGW at most the estimated relative decrease of the value that is still to come;
    residual: the share of mass that the next inner iteration would move, for linear programs the relative duality gap;
    mass: of p.
    """

    objective: np.ndarray
    relaxed: np.ndarray
    change: np.ndarray
    residual: np.ndarray
    mass: np.ndarray

    def __len__(self) -> int:
        """Return the number of outer steps."""
        return len(self.objective)


@dataclass(frozen=True, eq=False)
class Lift(BatchRecord):
    """A plan between cones, the lift (P, Q, w), (B, n, m) each, of a conic problem, and facts about it, (B,) each.

    P, Q: the weights a and b divided among pairs ij, P 1 = a and Qᵀ 1 = b; w: mass of the atom that matches P_ij with
    Q_ij, 0 ≤ w ≤ P^(rho1/R) Q^(rho2/R), R = rho1 + rho2. kernel_error: bound on the error of the kernel;
    kernel_tolerance: the error that was asked for; value_slack: what the kernel error may add to CGW; kernel_rank:
    terms of the factorized kernel, 0 if exact; is_metric: whether the conic distance CGW^(1/distance_exponent) is a
    metric; radius_power: mass = radius^radius_power.
    """

    P: Tensor
    Q: Tensor
    w: Tensor
    kernel_error: Tensor
    kernel_tolerance: Tensor
    value_slack: Tensor
    kernel_rank: Tensor
    is_metric: Tensor
    distance_exponent: Tensor
    radius_power: Tensor


@dataclass(frozen=True, eq=False)
class SolverOutput(BatchRecord):
    """The output of a solver: tensors with a leading batch dimension B, on the device of the solve.

    plan, previous_plan: (B, n, m), the last two plans p and q, tensors or `ImplicitPlan`; potentials: f (B, n) and g
    (B, m), or None; terms: of F(p, p); relaxed_value: F(p, q); marginal_error: relative violation of constraints on the
    marginals; change, residual: of the last step, plan change and inner residual; status: a `Status`; n_iter: number of
    outer steps; n_iter_search: number of all other outer steps, those of candidates for the initial plan; backend:
    codes of `StepBackend`; both are None in a file of an earlier version; trace: (B, steps, 5), the columns of History,
    NaN after an item ended; lift: of conic problems; (B,) if not stated.
    """

    plan: Any
    previous_plan: Any
    potentials: tuple[Tensor, Tensor] | None
    terms: ObjectiveTerms
    relaxed_value: Tensor
    marginal_error: Tensor
    change: Tensor
    residual: Tensor
    status: Tensor
    n_iter: Tensor
    trace: Tensor
    n_iter_search: Any
    backend: Any
    lift: Lift | None = None

    def to(self, dtype: torch.dtype) -> SolverOutput:
        """Return a copy with plans and potentials converted to `dtype`, all else unchanged; plans must be tensors."""
        pair = None if self.potentials is None else (self.potentials[0].to(dtype), self.potentials[1].to(dtype))
        return replace(self, plan=self.plan.to(dtype), previous_plan=self.previous_plan.to(dtype), potentials=pair)

    @classmethod
    def concatenate(cls, parts: Sequence[SolverOutput]) -> SolverOutput:
        """Return one `SolverOutput` with the batch items of all `parts`, in this order."""
        return join(cls.with_common_shapes(*parts))

    @staticmethod
    def with_common_shapes(*parts: SolverOutput) -> list[SolverOutput]:
        """Return the outputs with traces (B, steps, 5) of equal length, and potentials in all of them if one has any.

        Steps and potentials that are added are NaN. `n_iter_search` and `backend` are None in all of them if one lacks
        them.
        """
        names = (name for name in ("n_iter_search", "backend") if any(getattr(part, name) is None for part in parts))
        missing: dict[str, Any] = dict.fromkeys(names)
        n_steps = max(part.trace.shape[1] for part in parts)
        has_potentials = any(part.potentials is not None for part in parts)
        outputs = []
        for part in parts:
            n_missing = n_steps - part.trace.shape[1]
            trace = torch.nn.functional.pad(part.trace, (0, 0, 0, n_missing), value=torch.nan)
            potentials = part.potentials
            if has_potentials and potentials is None:
                p1, p2 = part.plan.sum(2), part.plan.sum(1)
                potentials = torch.full_like(p1, torch.nan), torch.full_like(p2, torch.nan)
            outputs.append(replace(part, trace=trace, potentials=potentials, **missing))
        return outputs
