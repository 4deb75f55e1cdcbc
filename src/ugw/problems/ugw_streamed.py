"""Unbalanced Gromov–Wasserstein between low-rank spaces, with plans and costs that are never stored.

With Ψ = (1, h, φ), φ the points of an embedded metric and h their norms, D = Ψ J Ψᵀ for a sparse J. So the cost of
a plan depends on it through a few moments alone, Dx P Dy = Ψx (Jx ΨxᵀPΨy Jy) Ψyᵀ, and it is bilinear over the bases
(h, φ): eq. (6.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..geometry.bilinear_matrix import BilinearMatrix
from ..geometry.implicit_plan import ImplicitPlan
from ..geometry.low_rank import LowRankMetric, WeightMoments
from ..kernels.anderson import anderson_differences
from .ugw import UGW
from .ugw_state import mean_log

# What is not worth a pass over all pairs is measured on evenly spaced rows: this many entries, at least so many rows.
SAMPLED_ENTRIES, SAMPLED_ROWS = 2**24, 256
# Entries in hand at a time: several such blocks are held at once.
BLOCK = 2**20


@dataclass(frozen=True, eq=False)
class Moments:
    """All that the cost of a plan of unit mass depends on: a handful of numbers, float64.

    x, y: of its marginals; cross: (B, 1 + r, 1 + s), ΨxᵀPΨy.
    """

    x: WeightMoments
    y: WeightMoments
    cross: Tensor

    @classmethod
    def of(cls, problem: StreamingUGW, plan: Any, inner: Tensor | None = None) -> Moments:
        """The moments of a plan (B, n, m), stored, or streamed over the same bases, or with leftᵀ·plan·right given."""
        p1, p2 = plan.sum(2).double(), plan.sum(1).double()
        left, right = problem.left.double(), problem.right.double()
        if inner is None:
            inner = plan.basis_product if isinstance(plan, ImplicitPlan) else left.mT @ plan.double() @ right
        mean_x, mean_y = (p1[:, None, :] @ left), (p2[:, None, :] @ right)
        top = torch.cat([p1.sum(1)[:, None, None], mean_y], dim=2)
        cross = torch.cat([top, torch.cat([mean_x.mT, inner], dim=2)], dim=1)
        return cls(problem.dx.moments(p1), problem.dy.moments(p2), cross)

    def cost(self, problem: StreamingUGW) -> BilinearMatrix:
        """Σ (Dx_ii' − Dy_jj')² P_i'j' at the points of a problem, of the same spaces or finer samples of them."""
        c = problem.hook(problem.dx) @ self.cross @ problem.hook(problem.dy)
        left, right = problem.left, problem.right
        across = c[:, :1, 0] + (left.double() @ c[:, 1:, :1])[:, :, 0]
        row = problem.dx.apply_squared_to_moments(self.x) - 2.0 * across
        col = problem.dy.apply_squared_to_moments(self.y) - 2.0 * (right.double() @ c[:, :1, 1:].mT)[:, :, 0]
        return BilinearMatrix(row, col, -2.0 * c[:, 1:, 1:], left, right)


@dataclass(frozen=True, eq=False)
class StreamingUGW(UGW):
    """UGW whose plans are `ImplicitPlan` and costs `BilinearMatrix`; both metrics are `LowRankMetric`, both centered.

    cost: anything but None for a fused problem; it is made of the features, which are then part of the bases.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cost is not None:
            object.__setattr__(self, "cost", self._feature_cost())

    def _feature_cost(self) -> BilinearMatrix:
        """|feature_i − feature_j|² over the bases, whose last columns the features are."""
        width = 0 if self.x.feature_tensor is None else self.x.feature_tensor.shape[-1]
        core = self.eps.new_zeros(self.batch, self.left.shape[2], self.right.shape[2])
        core[:, -width:, -width:] = -2.0 * torch.eye(width, dtype=core.dtype, device=core.device)
        row, col = (basis[:, :, -width:].double().square().sum(2) for basis in (self.left, self.right))
        return BilinearMatrix(row, col, core, self.left, self.right)

    # A start has potentials, and a pass over all pairs is dear.
    first_change = 1e-2

    def cheaper(self) -> None:
        """None: every sum is made anew anyway."""
        return None

    @property
    def dx(self) -> LowRankMetric:
        """The first metric."""
        return _embedded(self.x.metric)

    @property
    def dy(self) -> LowRankMetric:
        """The second metric."""
        return _embedded(self.y.metric)

    @cached_property
    def left(self) -> Tensor:
        """The first basis (h, φ) and, in a fused problem, features: (B, n, r)."""
        return self._basis(self.dx, self.x.feature_tensor)

    @cached_property
    def right(self) -> Tensor:
        """The second basis, (B, m, s)."""
        return self._basis(self.dy, self.y.feature_tensor)

    def _basis(self, metric: LowRankMetric, features: Tensor | None) -> Tensor:
        parts = [metric.squared_norms[..., None], metric.points]
        if self.cost is not None and features is not None:
            parts.append(features)
        return torch.cat([p.detach().expand(self.batch, *p.shape[-2:]) for p in parts], dim=2)

    def hook(self, metric: LowRankMetric) -> Tensor:
        """J with D = Ψ J Ψᵀ, Ψ = (1, h, φ, features), float64: (r + 1, r + 1)."""
        width, rank = 1 + (self.left if metric is self.dx else self.right).shape[2], metric.points.shape[-1]
        diagonal = torch.zeros(width, dtype=torch.float64, device=metric.device)
        diagonal[2 : 2 + rank] = -2.0 * metric.signs.double()
        hook = torch.diag(diagonal)
        hook[0, 1] = hook[1, 0] = 1.0
        return hook

    def state_of_plan(self, shape: ImplicitPlan) -> Any:
        """The state of a plan of unit mass."""
        return self.coupled(shape, Moments.of(self, shape).cost(self))

    @property
    def product(self) -> ImplicitPlan:
        """a⊗b at unit mass."""
        a, b = self.log_a.exp(), self.log_b.exp()
        zero = torch.zeros(self.batch, self.left.shape[2], self.right.shape[2], dtype=torch.float64, device=a.device)
        log = BilinearMatrix(self.log_a.double(), self.log_b.double(), zero, self.left, self.right)
        moved = a[:, :, None] * (b[:, None, :] @ self.right)
        return ImplicitPlan(log, a, b, moved, torch.zeros_like(a), torch.zeros_like(b))

    def cost_size(self) -> Tensor:
        """The mean distortion, and the mean of the linear cost beside it. Returns (B,)."""
        if self.cost is None:
            return self.scale()
        return self.scale() + 0.5 * self.alpha * (-self._log_unit).exp() * self._paid(self.cost, self.product)

    def unit(self, plan: ImplicitPlan) -> ImplicitPlan:
        """A plan divided by its mass."""
        return plan / plan.sum((1, 2), dtype=torch.float64)[:, None, None]

    def first_potentials(self, plan: ImplicitPlan) -> tuple[Tensor, Tensor]:
        """Those that the plan was made of."""
        return plan.f, plan.g

    def mixed(self, shape: ImplicitPlan, share: Tensor) -> ImplicitPlan:
        """Its logarithm mixed with that of the product plan: a proximal step reads no more of it."""
        pull = shape.log_ratio(self.log_a, self.log_b) * (1.0 - share)[:, None, None]
        log = replace(pull, row=pull.row + self.log_a, col=pull.col + self.log_b)
        return replace(shape, log_plan=log)

    def apart(self, one: ImplicitPlan, other: ImplicitPlan) -> Tensor:
        """Their L1 distance (B,), measured on sampled rows."""
        total, mass = torch.zeros_like(self.eps), torch.zeros_like(self.eps)
        for index in self._sample():
            total += (one.rows(index) - other.rows(index)).abs().sum(dim=(1, 2), dtype=torch.float64)
            mass += one.sum(2)[:, index].sum(1, dtype=torch.float64)
        return total / mass.clamp(min=torch.finfo(torch.float64).tiny)

    def growth(self, before: ImplicitPlan, after: ImplicitPlan) -> Tensor:
        """The largest logarithm (B,) by which an entry of the sampled rows has grown."""
        ratio = after.log_ratio(self.log_a, self.log_b) - before.log_ratio(self.log_a, self.log_b)
        # A point without weight has no entries that could grow.
        nowhere = [torch.where(log > -torch.inf, 0.0, -torch.inf) for log in (self.log_a, self.log_b)]
        ratio = replace(ratio, row=ratio.row + nowhere[0], col=ratio.col + nowhere[1])
        return torch.stack([ratio.rows(index).amax(dim=(1, 2)).double() for index in self._sample()]).amax(0)

    def steps_gram(self, given: Sequence[Any], found: Sequence[Any]) -> Tensor:
        """See `Problem.steps_gram`, of costs over the bases."""
        return self._gram(anderson_differences(given, found))

    def _gram(self, costs: tuple[BilinearMatrix, ...]) -> Tensor:
        """Covariances (B, k, k) of k costs over the bases under the product plan, in float64."""
        a, b = self.log_a.exp().double()[:, :, None], self.log_b.exp().double()[:, :, None]
        left, right = self.left.double(), self.right.double()
        mean_x, mean_y = (a * left).sum(1, keepdim=True), (b * right).sum(1, keepdim=True)
        left, right = left - mean_x, right - mean_y
        # A matrix is the sum of what depends on i alone, on j alone, and on both: these three are orthogonal.
        cores = torch.stack([c.core for c in costs], dim=1)  # (B, k, r, s)
        rows = torch.stack([c.row[:, :, None] + left @ c.core @ mean_y.mT for c in costs], dim=1)[..., 0]
        cols = torch.stack([c.col[:, :, None] + right @ (mean_x @ c.core).mT for c in costs], dim=1)[..., 0]
        total = torch.zeros_like(cores[:, :, 0, :1] @ cores[:, :, 0, :1].mT)
        for part, weight in ((rows, a.mT), (cols, b.mT)):
            part = part - (part * weight).sum(2, keepdim=True)
            total = total + (part * weight) @ part.mT
        spread_x, spread_y = left.mT @ (a * left), right.mT @ (b * right)
        moved = spread_x[:, None] @ cores @ spread_y[:, None]
        return total + moved.flatten(2) @ cores.flatten(2).mT

    def spread_of(self, cost: BilinearMatrix) -> Tensor:
        """The root mean square (B,) of a cost under the product plan, on sampled rows."""
        a, b = self.log_a.exp().double(), self.log_b.exp().double()
        total, mass = torch.zeros_like(self.eps), torch.zeros_like(self.eps)
        for index in self._sample():
            total += (a[:, index, None] * b[:, None, :] * cost.rows(index).double().square()).sum(dim=(1, 2))
            mass += a[:, index].sum(1)
        return (total / mass.clamp(min=torch.finfo(torch.float64).tiny)).sqrt()

    def _sample(self) -> list[Tensor]:
        """Evenly spaced rows, in blocks."""
        n, m = self.x.n, self.y.n
        count = min(n, max(SAMPLED_ROWS, SAMPLED_ENTRIES // (m * self.batch)))
        index = torch.arange(count, device=self.eps.device) * n // count
        return list(index.split(max(1, BLOCK // (m * self.batch))))

    def _kl_plan(self, shape: ImplicitPlan, mass: Tensor, marginals: Tensor) -> Tensor:
        """Σ p log(p / a⊗b) for p = shape / mass, eq. (6.4). Returns (B,)."""
        own = shape.dot(shape.log_ratio(self.log_a, self.log_b)) / mass - mass.log()
        # What the weights of the plan's own logarithm are rounded by.
        return own + mean_log(marginals, torch.cat([self.log_a, self.log_b], dim=1).double() - self.logs)

    def _paid(self, local: BilinearMatrix, shape: ImplicitPlan) -> Tensor:
        """<local, shape>. Returns (B,)."""
        return shape.dot(local)


def _embedded(metric: Any) -> LowRankMetric:
    if not isinstance(metric, LowRankMetric):
        raise RuntimeError("streamed problems need embedded metrics: checked at the border")
    return metric
