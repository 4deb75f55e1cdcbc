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

    unit_plan: (B, n, m), the plan divided by its mass; local_cost: (B, n, m), Σ λ(|Dx_ii' − Dy_jj'|) unit_plan_i'j',
    unused in linear problems; log_mass: (B,), log of the mass of the plan, the optimal one unless set; distortion:
    (B,), <local_cost, unit_plan>; kls: (B, 3), KL(p1 | a), KL(p2 | b) and KL(p | a⊗b), with p, a, b scaled to mass 1;
    linear: (B,), <M, unit_plan>; reported_log_mass: (B,), log of the mass in the result: log_mass, or next to no mass
    where the linear cost is so large that no mass is optimal; min_log_mass: (B,), below which a plan has collapsed;
    drift: (B,), sum of the L1 changes of the plan by which the local cost has been updated since it was last computed
    from a whole plan, None if it is never updated.
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
        """Has the plan collapsed, (B,) bool: is the mass in the result below exp(min_log_mass)?"""
        return self.reported_log_mass < self.min_log_mass

    def change_since(self, last: PlanState) -> Tensor:
        """Return the L1 distance (B,) of both unit plans plus the change of log_mass, which counts as at most 1."""
        return relative_change(self, last)

    def reported(self) -> PlanState:
        """Return the state with `reported_log_mass`, the log of the mass in the result, as its log mass."""
        if self.reported_log_mass is self.log_mass:
            return self
        return replace(self, log_mass=self.reported_log_mass)

    def with_log_mass(self, log_mass: Tensor) -> PlanState:
        """Return the state with `log_mass` and `reported_log_mass` both set to log_mass (B,), the rest unchanged."""
        return replace(self, log_mass=log_mass, reported_log_mass=log_mass)
