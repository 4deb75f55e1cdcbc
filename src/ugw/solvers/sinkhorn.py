"""Sinkhorn for relaxed or hard marginals, with the translation step: eqs. (4.1) and (4.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from .._utils.checks import check_choice, check_tolerance, check_whole_number
from .._utils.cuda_graphs.mode import looking
from .._utils.pytree import take_fields, where
from ..kernels import dispatch as kernels
from ..measures.divergences import damping
from ..problems.linear import LinearProblem, LinearSolution
from ..results.records import Status
from . import loop

# The largest rate of convergence an extrapolation assumes.
SLOWEST = 1.0 - 1e-6


@dataclass(frozen=True, kw_only=True)
class Sinkhorn:
    """Alternate f = −l1·eps·LSE_j(log b + (g − cost)/eps) and its mirror image, translate, extrapolate.

    tol: share of the plan's mass that the next iteration may still move; max_iter: per linear problem;
    method: "stabilized" (matrix-vector products with a stored kernel), "log" (log-sum-exp throughout), "streaming"
    (low-rank spaces only: neither plan nor kernel is stored), or "auto": streaming for large plans, else stabilized.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.random.default_rng(0).random((30, 2)))
    >>> inner = ugw.Sinkhorn(method="log", max_iter=100)
    >>> ugw.solve(x, x, solver=ugw.AlternateMin(inner=inner)).converged
    True
    """

    tol: float = 1e-7
    max_iter: int = 50
    method: Literal["auto", "stabilized", "log", "streaming"] = "auto"

    def __post_init__(self) -> None:
        check_tolerance("Sinkhorn tol", self.tol)
        check_whole_number("Sinkhorn max_iter", self.max_iter)
        check_choice("Sinkhorn method", self.method, ("auto", "stabilized", "log", "streaming"))

    def __call__(
        self,
        problem: LinearProblem,
        start: tuple[Tensor, Tensor] | None = None,
        tol: Tensor | None = None,
        patience: Tensor | None = None,
        rounds: int | None = None,
    ) -> LinearSolution:
        """Solve from the potentials `start` = (f, g), or zero.

        Per item, (B,) each: `tol` loosens the tolerance, `patience` ≥ 1 multiplies the iterations allowed.
        rounds: make so many rounds of `iterations_per_check` iterations instead, without a look at any number.
        """
        dtype = problem.cost.dtype
        eps = problem.eps.to(dtype)
        f, g = start if start is not None else (torch.zeros_like(problem.log_a), torch.zeros_like(problem.log_b))
        gamma = g / eps[:, None]
        slopes = problem.eps[:, None] / torch.stack([problem.div_a.rho, problem.div_b.rho], dim=1)
        slope = slopes.sum(1, keepdim=True).to(dtype)
        least = 10.0 * torch.finfo(dtype).eps
        step = _Step(
            kernel=problem.kernel(None if self.method == "log" else gamma),
            damping=damping(slopes).to(dtype).split(1, dim=1),
            share=slope.clamp(min=least).reciprocal_().masked_fill_(slope <= least, 0.0),
        )
        end = _Potentials(f / eps[:, None], gamma, gamma)
        if rounds is None:
            one = torch.ones_like(eps)
            step.tol = torch.full_like(eps, self.tol) if tol is None else tol.to(dtype)
            step.rounds = (
                self.max_iter / step.kernel.iterations_per_check * (one if patience is None else patience)
            ).ceil()
            rules = loop.Rules(max_iter=int(step.rounds.max()), compact_at=0.5, history=False)
            first = replace(end, residual=one, bar=torch.inf * one, rounds=0.0 * one)
            end = loop.iterate(_iterate, step, first, rules).state
        else:
            for _ in range(rounds):
                end = _advanced(end, _sweeps(step, step.kernel, end))
        phi, shape, log_mass = step.kernel.log_domain().plan(end.gamma, step.damping[0])
        return LinearSolution(shape, log_mass, phi * eps[:, None], end.gamma * eps[:, None], end.residual)

    def at_once(
        self, problem: LinearProblem, start: tuple[Tensor, Tensor] | None = None, rounds: int = 1
    ) -> LinearSolution:
        """Solve; on CUDA so many rounds and then one look at them, as the GPU waits for every look."""
        if not problem.log_a.is_cuda:
            return self(problem, start)
        found = self(problem, start, rounds=rounds)
        if not looking():
            return found
        fine = found.log_mass.isfinite()
        return found if bool(fine.all()) else where(fine, found, self(problem, start))


@dataclass(frozen=True, eq=False)
class _Potentials:
    """The state: phi = f/eps (B, n) and gamma = g/eps (B, m) as the last iteration left them.

    ahead: gamma extrapolated, where the next iterations start; residual (B,) of the last iteration; bar (B,):
    a residual above it means that the extrapolation before did not pay; rounds (B,) made so far, if anybody counts.
    """

    phi: Tensor
    gamma: Tensor
    ahead: Tensor
    residual: Any = None  # None before the first iteration, as bar
    bar: Any = None
    rounds: Any = None

    @property
    def batch(self) -> int:
        return self.phi.shape[0]

    @property
    def device(self) -> torch.device:
        return self.phi.device

    def take(self, index: Tensor) -> _Potentials:
        return take_fields(self, index)


@dataclass(eq=False)
class _Step:
    """What an iteration needs, (B, 1) each: damping = 1/(1 + eps/rho), share = 1/(eps/rho1 + eps/rho2).

    The plan depends on f + g alone, the dual value on how the sum is split: the best split, eq. (4.3), is

        t/eps = share · [LSE(log a − f/rho1) − LSE(log b − g/rho2)].

    Right after an update a·exp(−f/rho1) is the marginal that it made, and so for g. The share is 0 where it is lost in
    rounding: the marginals are then as good as hard.
    """

    kernel: kernels.GibbsKernel
    damping: tuple[Tensor, ...]
    share: Tensor
    tol: Any = None  # (B,), if anybody looks
    rounds: Any = None  # (B,), so many are allowed then

    def take(self, index: Tensor) -> _Step:
        return take_fields(self, index)


def _iterate(step: _Step, state: _Potentials) -> tuple[_Potentials, loop.Report]:
    """Some iterations, in the log domain where they leave the exponent range, and an extrapolation."""
    step.kernel = step.kernel.recenter(state.ahead)
    found = _sweeps(step, step.kernel, state)
    lost = ~torch.isfinite(found[-1])
    if bool(lost.any()):
        again = _sweeps(step, step.kernel.log_domain(), state)
        found = tuple(torch.where(_as(lost, a), a, b) for a, b in zip(again, found, strict=True))
    new = _advanced(state, found)
    status = torch.where(new.rounds >= step.rounds, int(Status.MAX_ITER), int(Status.RUNNING))
    status = torch.where(new.residual <= step.tol, int(Status.CONVERGED), status)
    return new, loop.Report(status, {"residual": new.residual})


def _advanced(state: _Potentials, found: tuple[Tensor, ...]) -> _Potentials:
    """The state after some iterations."""
    phi, gamma, ahead, residual = found
    rounds = None if state.rounds is None else state.rounds + 1.0
    if state.bar is None:
        return _Potentials(phi, gamma, ahead, residual, residual, rounds)
    # An extrapolation that did not pay is taken back; the next iterations start where it did.
    failed = residual > state.bar
    back = failed[:, None]
    return _Potentials(
        phi=torch.where(back, state.phi, phi),
        gamma=torch.where(back, state.gamma, gamma),
        ahead=torch.where(back, state.gamma, ahead),
        residual=torch.where(failed, state.residual, residual),
        bar=residual.masked_fill(failed, torch.inf),
        rounds=rounds,
    )


def _sweeps(step: _Step, kernel: kernels.GibbsKernel, state: _Potentials) -> tuple[Tensor, ...]:
    """Iterate from `state.ahead`: phi, gamma, gamma extrapolated, and the residual of the last iteration."""
    potentials = state.phi, state.ahead
    return kernels.sinkhorn_iterations(kernel, potentials, step.damping, step.share, SLOWEST)


def _as(mask: Tensor, like: Tensor) -> Tensor:
    """A mask (B,) with the dimensions of `like`."""
    return mask.view(-1, *[1] * (like.ndim - 1))
