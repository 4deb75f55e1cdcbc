"""Incremental update of the local cost for the loss t²: the previous cost plus that of the change of the plan."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..._utils.precision import tf32_products
from ...kernels.dispatch import l1_distance
from .config import DISTORTION_CONFIG
from .squares import SquaredDistortion


@dataclass(frozen=True, eq=False)
class IncrementalDistortion(SquaredDistortion):
    """A `SquaredDistortion` whose `update` multiplies only the change of the plan, in TF32 on CUDA.

    The distortion sum is linear in the plan, so cost(p) = cost(q) + apply(p − q). TF32 makes this product about eight
    times faster than in float32, and its error is proportional to |p − q|. The errors of successive updates add up, in
    proportion to the drift: the sum of |p − q| over the updates since the last product with a whole plan. A problem
    keeps cost and drift in its state and asks for both at every step:

        local_cost, drift = distortion.update(unit_plan, state.unit_plan, state.local_cost, state.drift)

    A first state has drift None, or zeros if its cost comes from a full product.
    """

    @classmethod
    def of(cls, distortion: SquaredDistortion) -> IncrementalDistortion:
        """Return a distortion sum for the same metrics whose `update` multiplies only the change of the plan."""
        return cls(distortion.dx, distortion.dy)

    is_incremental = True

    def update(
        self, unit_plan: Tensor, previous_plan: Tensor, previous_cost: Tensor | None, drift: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the local cost Σ (Dx_ii' − Dy_jj')² unit_plan_i'j', (B, n, m), and its drift (B,).

        The drift is the sum of L1 changes of the plan since its cost was computed in full. This is done, and the drift
        0, if it would exceed 0.0025 in any item, or the previous cost or drift is None. unit_plan, previous_plan:
        (B, n, m) of mass 1; previous_cost: (B, n, m), the cost of previous_plan; drift: (B,), the drift of that cost.
        """
        step = l1_distance(unit_plan, previous_plan)
        drift = None if drift is None else drift + step
        if drift is None or previous_cost is None or bool((drift > DISTORTION_CONFIG.max_drift).any()):
            return self.apply(unit_plan), torch.zeros_like(step)
        with tf32_products():
            return previous_cost + self.apply(unit_plan - previous_plan), drift
