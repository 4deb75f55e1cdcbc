"""Anderson extrapolation of the local cost over the last steps, and longer steps where plain steps diverge.

A step maps the local cost at which it is linearized to the local cost of its plan. `kernels.anderson` computes the
coefficients. An extrapolation may fail; the solver then returns to the plan before, and the history starts anew.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..kernels.dispatch import anderson_coefficients, extrapolate
from ..problems.base import Problem
from ..problems.plan_operations import anderson_covariances
from .run_state import CostHistory


def next_cost(
    history: CostHistory,
    problem: Problem,
    step_input: Any,
    step_output: Any,
    relative_change: Tensor,
    *,
    sample_rows: bool,
) -> tuple[Any, Tensor, Tensor]:
    """Return the cost (B, n, m) at which to linearize next, and (B,) bool twice: extrapolated? A longer step?

    A longer step prolongs the last one (over-relaxation); Anderson's extrapolation is not one. Items that are not
    extrapolated get `step_output`.
    step_input, step_output: local costs of the last step, which is not yet in the history; relative_change: (B,),
    change of the plan in the last step over its tolerance, 0 where nothing may be extrapolated; sample_rows: on a CPU
    compute covariances of the costs from a sample of rows.
    """
    relative_change = relative_change.masked_fill(history.n_steps < 2.0, 0.0)
    if not relative_change.is_cuda and not bool((relative_change > 0.0).any()):
        none = torch.zeros_like(history.is_long_step)
        return step_output, none, none
    inputs, outputs = (*history.inputs, step_input), (*history.outputs, step_output)
    covariances = anderson_covariances(inputs, outputs, problem.log_a, problem.log_b, sample_rows=sample_rows)
    coefficients, is_extrapolated, is_long_step = anderson_coefficients(
        covariances, relative_change, history.had_rejected_long_step
    )
    return extrapolate(step_input, outputs, coefficients.unbind(1)), is_extrapolated, is_long_step
