"""Sinkhorn for relaxed or hard marginals, with the translation step. MATH: section "The inner solver"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .. import kernels
from .._batch import take_fields
from .._options import choice, tolerance, whole_number
from ..problems.linear import LinearProblem, LinearSolution
from ..result import Status
from . import loop


@dataclass(frozen=True, kw_only=True)
class Sinkhorn:
    """Alternate f = −l1·eps·LSE_j(log b + (g − cost)/eps) and its mirror image, then translate.

    tol: share of the plan's mass that the next iteration may still move; max_iter: per linear problem;
    method: "stabilised" (matrix-vector products with a stored kernel) or "log" (log-sum-exp throughout).
    """

    tol: float = 1e-7
    max_iter: int = 50
    method: Literal["stabilised", "log"] = "stabilised"

    def __post_init__(self) -> None:
        tolerance("Sinkhorn tol", self.tol)
        whole_number("Sinkhorn max_iter", self.max_iter)
        choice("Sinkhorn method", self.method, ("stabilised", "log"))

    def __call__(
        self, problem: LinearProblem, start: tuple[Tensor, Tensor] | None = None, tol: Tensor | None = None
    ) -> LinearSolution:
        """Solve from the potentials `start` = (f, g), or zero; `tol` (B,) loosens the tolerance per item."""
        dtype = problem.cost.dtype
        eps = problem.eps.to(dtype)
        f, g = start if start is not None else (torch.zeros_like(problem.log_a), torch.zeros_like(problem.log_b))
        phi, gamma = f / eps[:, None], g / eps[:, None]
        step = _Step(
            kernel=kernels.make(
                problem.cost, problem.log_a, problem.log_b, eps, gamma if self.method == "stabilised" else None
            ),
            damping=(_column(problem.div_a.damping(problem.eps), dtype), _column(problem.div_b.damping(problem.eps), dtype)),
            slope=(_column(problem.eps / problem.div_a.rho, dtype), _column(problem.eps / problem.div_b.rho, dtype)),
            tol=torch.full_like(eps, self.tol) if tol is None else tol.to(dtype),
        )
        first = _Potentials(phi, gamma, torch.ones_like(eps))
        rules = loop.Rules(max_iter=self.max_iter, compact_at=0.5)
        end = loop.iterate(_iterate, step, first, rules).state
        shape, log_mass = step.kernel.plan(end.phi, end.gamma)
        return LinearSolution(shape, log_mass, end.phi * eps[:, None], end.gamma * eps[:, None], end.residual)


def _column(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype)[:, None]


@dataclass(frozen=True, eq=False)
class _Potentials:
    """The state: phi = f/eps (B, n), gamma = g/eps (B, m), and the residual (B,) of the last iteration."""

    phi: Tensor
    gamma: Tensor
    residual: Tensor

    @property
    def batch(self) -> int:
        return self.phi.shape[0]

    @property
    def device(self) -> torch.device:
        return self.phi.device

    def take(self, index: Tensor) -> _Potentials:
        return take_fields(self, index)


@dataclass(frozen=True, eq=False)
class _Step:
    """What an iteration needs; slope = eps/rho, 0 where hard; damping = 1/(1 + slope); (B, 1) each."""

    kernel: kernels.Kernel
    damping: tuple[Tensor, Tensor]
    slope: tuple[Tensor, Tensor]
    tol: Tensor

    def take(self, index: Tensor) -> _Step:
        return take_fields(self, index)


def _iterate(step: _Step, state: _Potentials) -> tuple[_Potentials, loop.Report]:
    kernel = step.kernel
    row_lse = kernel.rows(state.gamma)
    phi = _finite(-step.damping[0] * row_lse)
    col_lse = kernel.cols(phi)
    gamma = _finite(-step.damping[1] * col_lse)
    # How much mass would move: each side's update, weighted by the marginal it corrects.
    moved = _moved(kernel.log_a + state.phi + row_lse, phi - state.phi) + _moved(
        kernel.log_b + gamma + col_lse, gamma - state.gamma
    )
    shift = _translation(step, phi, gamma)
    new = _Potentials(phi + shift, gamma - shift, moved)
    status = torch.where(moved <= step.tol, int(Status.CONVERGED), int(Status.RUNNING))
    return new, loop.Report(status, {"residual": moved})


def _finite(potential: Tensor) -> Tensor:
    """A point all of whose pairs are forbidden has no mass to move: its potential is free, say 0."""
    return torch.where(torch.isfinite(potential), potential, 0.0)


def _moved(log_marginal: Tensor, change: Tensor) -> Tensor:
    """Σ marginal · min(|change|, 1) / Σ marginal. log_marginal, change: (B, n). Returns (B,)."""
    return (torch.softmax(log_marginal, dim=1) * change.abs().clamp(max=1.0)).sum(1)


def _translation(step: _Step, phi: Tensor, gamma: Tensor) -> Tensor:
    """t/eps = [LSE(log a − f/rho1) − LSE(log b − g/rho2)] / (eps/rho1 + eps/rho2); 0 if both sides are hard.

    The plan depends on f + g alone, the dual value on how the sum is split: this is the best split.
    """
    slope_a, slope_b = step.slope
    gain = torch.logsumexp(step.kernel.log_a - slope_a * phi, 1, keepdim=True) - torch.logsumexp(
        step.kernel.log_b - slope_b * gamma, 1, keepdim=True
    )
    total = slope_a + slope_b
    return torch.where(total > 0, gain / total.clamp(min=torch.finfo(phi.dtype).tiny), 0.0)
