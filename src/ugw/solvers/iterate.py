"""The iterate of alternating minimization: the last plan, how the last step went, and the controls of the next step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.pytree import BatchRecord
from ..geometry.implicit_plan import ImplicitPlan
from .config import SOLVER_CONFIG
from .extrapolation import CostHistory
from .stopping import RunSettings


@dataclass(frozen=True, eq=False)
class Controls(BatchRecord):
    """What the schedules have decided about the next step, (B,) each unless stated otherwise.

    cost: the local cost at which the step is linearized, that of the last plan or an extrapolated one, None if it is
    never extrapolated; is_extrapolated: bool; eps: of the problem, above its own while annealing; entropy: of the
    linear problem, its part above eps is proximal; leaves_zeros: 1 where the proximal reference contains some product
    plan; iteration_multiplier: of the inner iterations.
    """

    cost: Any
    is_extrapolated: Tensor
    eps: Tensor
    entropy: Tensor
    leaves_zeros: Tensor
    iteration_multiplier: Tensor


@dataclass(frozen=True, eq=False)
class Iterate(BatchRecord):
    """The last plan of a run, how the last step went, and the controls of the next step. (B,) each unless stated.

    state: the last plan with its quantities; previous_state: the one before, without its local cost, None in runs
    without monitoring; f: (B, n), g: (B, m), potentials of the last linear problem; solution_log_mass: log mass of its
    solution before rescaling; last_entropy: its entropy; objective, change, residual: objective of the plan, relative
    L1 change of the last step, inner residual; n_returns: consecutive steps after which the plan was that of two steps
    before; converged_objective: objective of the last plan that converged by proximal steps; history: local costs of
    the last steps, None if nothing is extrapolated.
    """

    state: Any
    previous_state: Any
    f: Tensor
    g: Tensor
    solution_log_mass: Tensor
    last_entropy: Tensor
    objective: Tensor
    change: Tensor
    residual: Tensor
    n_returns: Tensor
    converged_objective: Tensor
    controls: Controls
    history: CostHistory | None

    @classmethod
    def initial(cls, state: Any, settings: RunSettings, previous: Iterate | None = None) -> Iterate:
        """Return the iterate before the first step.

        previous: the last iterate of a low-precision phase, if there was one.
        """
        problem, entropy = settings.problem, settings.first_entropy
        one, zero, dtype = torch.ones_like(entropy), torch.zeros_like(entropy), state.unit_plan.dtype
        extrapolates = settings.may_extrapolate is not None
        if previous is None:
            eps = problem.eps
            if settings.options.anneal is not None:
                eps = torch.maximum(eps, settings.max_entropy)
            if isinstance(state.unit_plan, ImplicitPlan):
                potentials, change = (state.unit_plan.f, state.unit_plan.g), SOLVER_CONFIG.assumed_first_change * one
            else:
                # Without potentials the first linear problem is solved well: the initial plan may be a solution.
                potentials, change = (torch.zeros_like(problem.log_a), torch.zeros_like(problem.log_b)), zero
        else:
            eps, change, potentials = previous.controls.eps, previous.change, (previous.f, previous.g)
        first_entropy = torch.maximum(entropy, eps)
        return cls(
            state=state,
            previous_state=replace(state, local_cost=None) if settings.is_monitored else None,
            f=potentials[0].to(dtype),
            g=potentials[1].to(dtype),
            solution_log_mass=one,
            last_entropy=first_entropy,
            objective=torch.inf * one,
            change=change,
            residual=one,
            n_returns=zero,
            converged_objective=torch.inf * one,
            controls=Controls(
                cost=state.local_cost if extrapolates else None,
                is_extrapolated=zero > 0,
                eps=eps,
                entropy=first_entropy,
                leaves_zeros=one,  # an initial plan may have zeros
                iteration_multiplier=one,
            ),
            history=CostHistory.empty(state.local_cost, entropy) if extrapolates else None,
        )
