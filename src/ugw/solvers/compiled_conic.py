"""The states of conic problems in the arrays of the compiled loop."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..kernels.cpu import native
from ..problems.base import CompiledConicInputs


class CompiledConicStates:
    """The additional arrays of a compiled run of conic problems: kernels, overlaps and best plans."""

    def __init__(self, inputs: CompiledConicInputs, state: Any, library: native.Library) -> None:
        """Copy constants, overlaps and best plan before the first step into arrays. state: a `LiftedState`."""
        batch, n, m = state.unit_plan.shape
        self._initial = state
        self._kernels = inputs.kernels * (batch // len(inputs.kernels))
        columns = [inputs.constants[name] for name in library.conic_fields]
        self._parameters = torch.stack(columns, dim=1)
        self._overlaps = torch.cat([state.overlap[:, None], state.last_overlap[:, None], state.best_overlaps], dim=1)
        self._best_plans = state.best_plan.new_zeros(batch, n, native.padded_size(m))
        self._best_plans[:, :, :m] = state.best_plan

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """The numbers of points (n, m) of each item, without padding."""
        return [(kernel.n, kernel.m) for kernel in self._kernels]

    def arguments(self) -> Any:
        """Return a pointer to a C++ record `ConicRun` with the addresses of kernels, overlaps and best plans."""
        kernels = (native.ConicKernel * len(self._kernels))(*map(native.kernel_addresses, self._kernels))
        return ctypes.pointer(
            native.ConicRun(
                parameters=self._parameters.data_ptr(),
                kernels=kernels,
                overlaps=self._overlaps.data_ptr(),
                best_plans=self._best_plans.data_ptr(),
                n_overlaps=self._overlaps.shape[1],
            )
        )

    def states(
        self,
        problem: Any,
        last: tuple[Tensor, Tensor],
        plan: Tensor,
        local_cost: Tensor,
        log_masses: Iterable[Tensor],
        *,
        with_previous: bool,
    ) -> tuple[Any, Any]:
        """Return the `LiftedState` of the plan after the last step, and that of the plan before, without local cost.

        last: unit plan and local cost before the last step, plan, local_cost: after it, (B, n, m) each; log_masses:
        (B,) each, after the last step and before it; with_previous: if False, the second state is None.
        """
        log_mass, last_log_mass = log_masses
        state = replace(
            self._initial,
            unit_plan=plan,
            w=problem.lift_plan(plan),
            local_cost=local_cost,
            log_mass=log_mass,
            overlap=self._overlaps[:, 0],
            last_plan=last[0],
            last_cost=last[1],
            last_overlap=self._overlaps[:, 1],
            best_plan=self._best_plans[:, :, : plan.shape[2]],
            best_overlaps=self._overlaps[:, 2:],
        )
        if not with_previous:
            return state, None
        lift = problem.lift_plan(last[0])
        return state, replace(self._initial, unit_plan=last[0], w=lift, local_cost=None, log_mass=last_log_mass)


def conic_parameters(problem: Any) -> dict[str, Tensor]:
    """Return by name eps, rho_a, rho_b, is_hard_a = is_hard_b = 0, and NaN for fields of UGW like alpha, (B,) each."""
    unset = torch.full_like(problem.eps, torch.nan)
    names = ("penalty_a", "penalty_b", "penalty_total", "log_mass_a", "log_mass_b", "alpha", "collapsed_log_mass")
    hard = {"is_hard_a": torch.zeros_like(unset), "is_hard_b": torch.zeros_like(unset)}
    sides = {"rho_a": problem.div_a.rho, "rho_b": problem.div_b.rho}
    return {"eps": problem.eps, **sides, **hard, **dict.fromkeys(names, unset)}


def conic_plan_numbers(state: Any) -> dict[str, Tensor]:
    """Return log_mass, is_collapsed (1 or 0) of a `LiftedState`, and 0 for fields of UGW, (B,) each, by name."""
    none = torch.zeros_like(state.log_mass)
    names = ("distortion", "kl_a", "kl_b", "kl_plan", "linear")
    masses = {"log_mass": state.log_mass, "reported_log_mass": state.log_mass}
    return {**dict.fromkeys(names, none), **masses, "is_collapsed": state.is_collapsed.double()}
