"""Unbalanced Gromov–Wasserstein between low-rank spaces, with plans and costs that are never stored.

With Ψ = (1, h, φ), φ (n, r) the points of a low-rank metric and h (n,) their signed squared norms, D = Ψ J Ψᵀ for a
sparse J. So the local cost of a plan P depends only on a few moments of P, Dx P Dy = Ψx (Jx ΨxᵀPΨy Jy) Ψyᵀ, and it is a
`BilinearMatrix` with the bases left = (hx, φx) and right = (hy, φy): eq. (6.2). In a fused problem the bases also
contain the features.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from ..geometry.bilinear_matrix import BilinearMatrix
from ..geometry.implicit_plan import ImplicitPlan
from ..geometry.low_rank import LowRankMetric, WeightMoments
from .linear import LinearSolution
from .mass import mean_log
from .ugw import UGW
from .ugw_state import PlanState


@dataclass(frozen=True, eq=False)
class PlanMoments:
    """The moments of a plan P of mass 1 from which its local cost is computed, float64.

    x, y: moments of the row sums and of the column sums; cross: (B, 1 + r, 1 + s), ΨxᵀPΨy with Ψ = (1, basis).
    """

    x: WeightMoments
    y: WeightMoments
    cross: Tensor

    @classmethod
    def from_plan(cls, problem: StreamingUGW, plan: Any, basis_product: Tensor | None = None) -> PlanMoments:
        """Return the moments of a plan P (B, n, m): `WeightMoments` of P 1 and Pᵀ 1, and (1, left)ᵀ·P·(1, right).

        plan: a tensor, or an ImplicitPlan with the bases of the problem; basis_product: (B, r, s), leftᵀ·plan·right
        with the bases `left` and `right`, computed here if None.
        """
        p1, p2 = plan.sum(2).double(), plan.sum(1).double()
        left, right = problem.left.double(), problem.right.double()
        if basis_product is None:
            basis_product = plan.basis_product if isinstance(plan, ImplicitPlan) else left.mT @ plan.double() @ right
        mean_x, mean_y = (p1[:, None, :] @ left), (p2[:, None, :] @ right)
        top = torch.cat([p1.sum(1)[:, None, None], mean_y], dim=2)
        cross = torch.cat([top, torch.cat([mean_x.mT, basis_product], dim=2)], dim=1)
        return cls(problem.dx.moments(p1), problem.dy.moments(p2), cross)

    @property
    def basis_product(self) -> Tensor:
        """leftᵀ·P·right, (B, r, s), for the plan P and the bases `left` and `right` of the costs of its problem."""
        return self.cross[:, 1:, 1:]

    def local_cost(self, problem: StreamingUGW) -> BilinearMatrix:
        """Return Σ_i'j' (Dx_ii' − Dy_jj')² P_i'j' for all points i, j of a problem, (B, n, m), not stored as a matrix.

        P is the plan of these moments. Its points i', j' may be others: those of a sample of the problem's spaces.
        """
        c = problem.distance_coefficients(problem.dx) @ self.cross @ problem.distance_coefficients(problem.dy)
        left, right = problem.left, problem.right
        cross_row = c[:, :1, 0] + (left.double() @ c[:, 1:, :1])[:, :, 0]
        row = problem.dx.apply_squared_to_moments(self.x) - 2.0 * cross_row
        col = problem.dy.apply_squared_to_moments(self.y) - 2.0 * (right.double() @ c[:, :1, 1:].mT)[:, :, 0]
        return BilinearMatrix(row, col, -2.0 * c[:, 1:, 1:], left, right)


@dataclass(frozen=True, eq=False)
class StreamingUGW(UGW):
    """UGW whose plans are `ImplicitPlan` and costs `BilinearMatrix`: potentials and low-rank factors, nothing of n × m.

    Both metrics are centered `LowRankMetric`.

    cost: None, or any other value for a fused problem; it is replaced by the squared distances of the features.
    """

    def __post_init__(self) -> None:
        """Set what UGW sets, and replace a linear cost by the squared distances of the features."""
        super().__post_init__()
        object.__setattr__(self, "has_stored_squares", False)  # neither plans nor costs are stored
        if self.cost is not None:
            object.__setattr__(self, "cost", self._feature_cost())

    def _feature_cost(self) -> BilinearMatrix:
        """Return the squared distances between features, (B, n, m), from the last columns of `left` and `right`."""
        width = 0 if self.x.feature_tensor is None else self.x.feature_tensor.shape[-1]
        core = self.eps.new_zeros(self.batch, self.left.shape[2], self.right.shape[2])
        core[:, -width:, -width:] = -2.0 * torch.eye(width, dtype=core.dtype, device=core.device)
        row, col = (basis[:, :, -width:].double().square().sum(2) for basis in (self.left, self.right))
        return BilinearMatrix(row, col, core, self.left, self.right)

    @property
    def dx(self) -> LowRankMetric:
        """The low-rank metric of the first space."""
        return cast(LowRankMetric, self.x.metric)

    @property
    def dy(self) -> LowRankMetric:
        """The low-rank metric of the second space."""
        return cast(LowRankMetric, self.y.metric)

    @cached_property
    def left(self) -> Tensor:
        """The left basis of costs, (B, n, r): columns h (signed squared norms), points φ of x, its features if fused.

        Costs are row_i + col_j + (left core rightᵀ)_ij. h_i = Σ_k sign_k φ_ik², with the signs of the metric of x.
        """
        return self._basis(self.dx, self.x.feature_tensor)

    @cached_property
    def right(self) -> Tensor:
        """The right basis of costs, (B, m, s): columns h (signed squared norms), points of y, its features if fused.

        Costs are row_i + col_j + (left core rightᵀ)_ij, with `left` of x. h_j = Σ_k sign_k φ_jk², as for x.
        """
        return self._basis(self.dy, self.y.feature_tensor)

    def _basis(self, metric: LowRankMetric, features: Tensor | None) -> Tensor:
        """Return the signed squared norms and points of a metric and, if fused, the features, (B, n, r), detached."""
        parts = [metric.squared_norms[..., None], metric.points]
        if self.cost is not None and features is not None:
            parts.append(features)
        return torch.cat([p.detach().expand(self.batch, *p.shape[-2:]) for p in parts], dim=2)

    def distance_coefficients(self, metric: LowRankMetric) -> Tensor:
        """Return J (k, k), float64: distances D = Ψ J Ψᵀ with Ψ = (1, left) for the metric dx, (1, right) for dy."""
        width, rank = 1 + (self.left if metric is self.dx else self.right).shape[2], metric.points.shape[-1]
        diagonal = torch.zeros(width, dtype=torch.float64, device=metric.device)
        diagonal[2 : 2 + rank] = -2.0 * metric.signs.double()
        coefficients = torch.diag(diagonal)
        coefficients[0, 1] = coefficients[1, 0] = 1.0
        return coefficients

    def state_of_plan(self, unit_plan: ImplicitPlan, *, is_product: Tensor | None = None) -> PlanState:
        """Return the `PlanState` (local cost, KL terms, mass) of a plan (B, n, m) of mass 1; is_product is not used."""
        return self._state(unit_plan, PlanMoments.from_plan(self, unit_plan).local_cost(self))

    def accept(self, state: PlanState, solution: LinearSolution) -> PlanState:
        """Return the `PlanState` (local cost, optimal mass) of the plan of `solution`; `state` is not used."""
        return self.state_of_plan(solution.unit_plan)

    @property
    def product(self) -> ImplicitPlan:
        """The product plan a⊗b scaled to mass 1, (B, n, m)."""
        a, b = self.log_a.exp(), self.log_b.exp()
        zero = torch.zeros(self.batch, self.left.shape[2], self.right.shape[2], dtype=torch.float64, device=a.device)
        log = BilinearMatrix(self.log_a.double(), self.log_b.double(), zero, self.left, self.right)
        right_product = a[:, :, None] * (b[:, None, :] @ self.right)
        return ImplicitPlan(log, a, b, right_product, torch.zeros_like(a), torch.zeros_like(b))

    def _mean_linear_cost(self) -> Tensor:
        """Return the mean (B,) of the linear cost M ≥ 0, without alpha, under a⊗b scaled to mass 1."""
        return self._inner(self.cost, self.product)

    def _plan_kl(self, unit_plan: ImplicitPlan, mass: Tensor, marginals: Tensor) -> Tensor:
        """Return KL(p | a⊗b), (B,), eq. (6.4), for p = unit_plan / mass; mass: (B,), 1 up to rounding.

        marginals: (B, n + m), both marginals of p; a and b are of mass 1.
        """
        kl = unit_plan.dot(unit_plan.log_ratio(self.log_a, self.log_b)) / mass - mass.log()
        # The logarithm of the plan contains the weights in the working precision: add the rounding of these.
        rounding = torch.cat([self.log_a, self.log_b], dim=1).double() - self.log_weights
        return kl + mean_log(marginals, rounding)

    def _inner(self, cost: BilinearMatrix, unit_plan: ImplicitPlan) -> Tensor:
        """Return <cost, unit_plan>, (B,), in float64."""
        return unit_plan.dot(cost)
