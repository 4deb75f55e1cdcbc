"""Anderson extrapolation of the local cost over the last steps, and longer steps where plain steps diverge.

A step maps the local cost at which it is linearized to the local cost of its plan. `kernels.anderson` computes the
coefficients. An extrapolation may fail; the solver then returns to the plan before, and the history starts anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._utils.pytree import BatchRecord
from ..kernels.dispatch import anderson_coefficients, extrapolate
from ..problems.base import Problem
from ..problems.plan_operations import anderson_covariances


@dataclass(frozen=True, eq=False)
class CostHistory(BatchRecord):
    """The local costs at which the last two steps were linearized (inputs), and of their plans (outputs), older first.

    n_steps: (B,), consecutive steps without a rejected extrapolation; is_long_step: (B,) bool, is the next step a
    longer step along the last one? had_rejected_long_step: (B,) bool, was such a step ever rejected? Then growth is
    believed only where the change itself grows.
    """

    inputs: tuple[Any, Any]
    outputs: tuple[Any, Any]
    n_steps: Tensor
    is_long_step: Tensor
    had_rejected_long_step: Tensor

    @classmethod
    def empty(cls, local_cost: Any, like: Tensor) -> CostHistory:
        """Return the history before the first step. like: (B,), for batch size, dtype and device."""
        none = torch.zeros_like(like, dtype=torch.bool)
        return cls((local_cost, local_cost), (local_cost, local_cost), torch.zeros_like(like), none, none)

    def append(self, step_input: Any, step_output: Any, is_rejected: Tensor, is_long_step: Tensor) -> CostHistory:
        """Return the history after one more step.

        is_rejected: (B,) bool, resets the count; is_long_step: (B,) bool, is the next step a longer one?
        """
        return CostHistory(
            inputs=(self.inputs[1], step_input),
            outputs=(self.outputs[1], step_output),
            n_steps=(self.n_steps + 1.0).masked_fill_(is_rejected, 0.0),
            is_long_step=is_long_step,
            had_rejected_long_step=self.had_rejected_long_step | (is_rejected & self.is_long_step),
        )

    def next_cost(
        self, problem: Problem, step_input: Any, step_output: Any, relative_change: Tensor, *, sample_rows: bool
    ) -> tuple[Any, Tensor, Tensor]:
        """Return the local cost at which to linearize next, and (B,) bool each: is it extrapolated, and a longer step?

        step_input, step_output: local costs of the last step; relative_change: (B,), its change of the plan relative to
        the tolerance, 0 where nothing may be extrapolated; sample_rows: see `anderson_covariances`. The history itself
        does not change: `append` returns the one with this step.
        """
        relative_change = relative_change.masked_fill(self.n_steps < 2.0, 0.0)
        if not relative_change.is_cuda and not bool((relative_change > 0.0).any()):
            none = torch.zeros_like(self.is_long_step)
            return step_output, none, none
        inputs, outputs = (*self.inputs, step_input), (*self.outputs, step_output)
        covariances = anderson_covariances(inputs, outputs, problem.log_a, problem.log_b, sample_rows=sample_rows)
        coefficients, is_extrapolated, is_long_step = anderson_coefficients(
            covariances, relative_change, self.had_rejected_long_step
        )
        return extrapolate(step_input, outputs, coefficients.unbind(1)), is_extrapolated, is_long_step
