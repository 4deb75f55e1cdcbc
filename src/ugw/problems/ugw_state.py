"""The state of a plan of UGW: the plan, its local cost, its mass and its divergences from the weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from .._utils.pytree import BatchRecord
from .plan_operations import relative_change


@dataclass(frozen=True, eq=False)
class PlanState(BatchRecord):
    """A plan of a UGW problem with the quantities computed from it: the state that solvers iterate on.

    unit_plan: (B, n, m), the plan divided by its mass; local_cost: (B, n, m), Σ (Dx_ii' − Dy_jj')² unit_plan_i'j';
    log_mass: (B,), log of the optimal mass; distortion: (B,), <local_cost, unit_plan>; kls: (B, 3), divergences of both
    marginals and of the plan from the weights, all at unit mass; linear: (B,), <M, unit_plan>; reported_log_mass: (B,),
    log of the mass shown to users, next to no mass where the linear cost exceeds the gain of any plan; min_log_mass:
    (B,), below which a plan has collapsed; drift: (B,), L1 length of the path since the local cost was last computed
    from a whole plan, None where it always is.
    """

    unit_plan: Any  # Tensor or ImplicitPlan
    local_cost: Any  # Tensor or BilinearMatrix, None where only the plan is stored
    log_mass: Tensor
    distortion: Tensor
    kls: Tensor
    linear: Tensor
    reported_log_mass: Tensor
    min_log_mass: Tensor
    drift: Tensor | None = None

    @property
    def plan(self) -> Any:
        """The plan with its mass, (B, n, m)."""
        return self.unit_plan * self.log_mass.exp().to(self.unit_plan.dtype)[:, None, None]

    @property
    def is_collapsed(self) -> Tensor:
        """(B,) bool: is the mass shown to users 0, or too small to call the plan a matching?"""
        return self.reported_log_mass < self.min_log_mass

    def change_since(self, last: PlanState) -> Tensor:
        """Return the relative L1 change (B,) of the plan since the last state."""
        return relative_change(self, last)

    def reported(self) -> PlanState:
        """Return the state with the mass that is shown to users."""
        if self.reported_log_mass is self.log_mass:
            return self
        return replace(self, log_mass=self.reported_log_mass)

    def with_log_mass(self, log_mass: Tensor) -> PlanState:
        """Return the state of the same unit plan with a given log mass (B,)."""
        return replace(self, log_mass=log_mass, reported_log_mass=log_mass)
