"""Sinkhorn for relaxed or hard marginals, with the translation step: eqs. (4.1) and (4.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from .._utils.checks import check_choice, check_tolerance, check_whole_number
from .._utils.deprecation import warn_renamed
from .._utils.pytree import BatchRecord, where
from ..kernels.config import KERNEL_CONFIG
from ..kernels.dispatch import GibbsKernel, sinkhorn_iterations
from ..problems.config import PROBLEM_CONFIG
from ..problems.linear import LinearProblem, LinearSolution
from ..results.records import Status
from . import loop
from .compiled_sinkhorn import has_compiled_solver, solve_compiled
from .config import SOLVER_CONFIG


@dataclass(frozen=True, kw_only=True)
class Sinkhorn:
    """Solver of linear problems: alternates f = −l1·eps·LSE_j(log b + (g − cost)/eps) and its mirror image.

    tol: share of the plan's mass that the next iteration may still move in the last linear problems; earlier ones,
    whose cost still changes, are solved less accurately. None: a tenth of the outer tolerance, 1 % for conic
    problems, and 1e-7 for a direct call. An outer solver converges only where the last linear problem is solved to the
    outer tolerance (1 % for conic problems; a smaller share for a rho far above the cost; a larger one if rounding
    allows no less): a larger `tol` acts as that share, since steps with less accurate plans hardly ever converge;
    max_iter: iterations per linear problem, None for the default of the problem (50, conic problems 200, linear
    problems 500). The first problem takes up to four times as many, and where only the linear problems have not
    converged their number is doubled from step to step, up to 3200. All of these are rounded up to a multiple of 5, the
    iterations between two checks of the residual, or of 2 if plans are not stored;
    method: "stabilized" (matrix-vector products with a stored kernel), "log" (log-sum-exp throughout), "streaming"
    (low-rank spaces only: neither plan nor kernel is stored), or "auto": streaming for large plans, else stabilized.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.random.default_rng(0).random((30, 2)))
    >>> inner = ugw.Sinkhorn(method="log", max_iter=100)
    >>> ugw.solve(x, x, solver=ugw.AlternateMin(inner=inner)).converged
    True
    """

    tol: float | None = None
    max_iter: int | None = None
    method: Literal["auto", "stabilized", "log", "streaming"] = "auto"

    def __post_init__(self) -> None:
        """Check the fields (InputError), limit max_iter to 2^53, replace an old spelling of method, with a warning."""
        if isinstance(self.method, str) and self.method == "stabilised":
            warn_renamed("Sinkhorn method='stabilised'", "Sinkhorn method='stabilized'")
            object.__setattr__(self, "method", "stabilized")  # the record is frozen
        if self.tol is not None:
            object.__setattr__(self, "tol", check_tolerance("Sinkhorn tol", self.tol))
        if self.max_iter is not None:
            max_iter = check_whole_number("Sinkhorn max_iter", self.max_iter)
            object.__setattr__(self, "max_iter", min(max_iter, SOLVER_CONFIG.max_countable_iter))
        check_choice("Sinkhorn method", self.method, ("auto", "stabilized", "log", "streaming"))

    def __call__(
        self,
        problem: LinearProblem,
        potentials: tuple[Tensor, Tensor] | None = None,
        tol: Tensor | None = None,
        iteration_multiplier: Tensor | None = None,
        n_rounds: int | None = None,
    ) -> LinearSolution:
        """Return the solution of a linear problem: plan of mass 1, log of its mass, f (B, n), g (B, m), residual (B,).

        f and g are in units of the cost; the residual is the share of the mass that the last iteration moved.
        potentials: f (B, n) and g (B, m) to start from, zero if None; tol: (B,), replaces the tolerance of the solver;
        iteration_multiplier: (B,) ≥ 1, multiplies `max_iter`; n_rounds: if given, make this number of rounds of
        `iterations_per_check` iterations instead, without synchronizing.
        """
        max_iter = self.max_iter or SOLVER_CONFIG.default_inner_max_iter
        own_tol = self.tol or SOLVER_CONFIG.default_inner_tol
        if n_rounds is None and has_compiled_solver(problem):
            one = torch.ones_like(problem.eps)
            multiplier = one if iteration_multiplier is None else iteration_multiplier
            max_rounds = (max_iter / KERNEL_CONFIG.iterations_per_check * multiplier).ceil()
            tolerance = own_tol * one if tol is None else tol
            return solve_compiled(problem, potentials, tolerance, max_rounds, in_log_domain=self.method == "log")
        dtype = problem.cost.dtype
        eps = problem.eps.to(dtype)
        # An iteration computes f from g: only g is a start.
        gamma = torch.zeros_like(problem.log_b) if potentials is None else potentials[1] / eps[:, None]
        slopes = problem.eps[:, None] / torch.stack([problem.div_a.rho, problem.div_b.rho], dim=1)
        slope = slopes.sum(1, keepdim=True).to(dtype)
        min_slope = PROBLEM_CONFIG.hard_side_rounding * torch.finfo(dtype).eps
        context = _Iteration(
            kernel=problem.kernel(None if self.method == "log" else gamma),
            dampings=(1.0 / (1.0 + slopes)).to(dtype).split(1, dim=1),
            share=slope.clamp(min=min_slope).reciprocal_().masked_fill_(slope <= min_slope, 0.0),
        )
        state = _Potential(gamma, gamma)
        if n_rounds is None:
            one = torch.ones_like(eps)
            context.tol = torch.full_like(eps, own_tol) if tol is None else tol.to(dtype)
            multiplier = one if iteration_multiplier is None else iteration_multiplier
            context.max_rounds = (max_iter / context.kernel.iterations_per_check * multiplier).ceil()
            compact_at = SOLVER_CONFIG.inner_compaction_share
            rules = loop.Rules(max_iter=int(context.max_rounds.max()), compact_at=compact_at, keeps_history=False)
            first = replace(state, residual=one, max_residual=torch.inf * one, n_rounds=0.0 * one)
            state = loop.iterate(_iterate_and_check, context, first, rules).state
        else:
            factors = context.dampings, context.share, SOLVER_CONFIG.max_aitken_rate
            for _ in range(n_rounds):
                state = _update(state, sinkhorn_iterations(state.next_gamma, context.kernel, *factors))
        phi, unit_plan, log_mass = context.kernel.plan(state.gamma, context.dampings[0])
        return LinearSolution(unit_plan, log_mass, phi * eps[:, None], state.gamma * eps[:, None], state.residual)

    def with_defaults(self, defaults: Sinkhorn | None = None) -> Sinkhorn:
        """Return the options with None replaced by those of `defaults`, or by 50 for max_iter; tol may stay None."""
        given = defaults or Sinkhorn()
        return replace(
            self,
            tol=self.tol or given.tol,
            max_iter=self.max_iter or given.max_iter or SOLVER_CONFIG.default_inner_max_iter,
        )

    @property
    def rounds_per_solve(self) -> float:
        """The rounds of iterations of one linear problem with a stored kernel: `max_iter` / `iterations_per_check`."""
        return (self.with_defaults().max_iter or 0) / KERNEL_CONFIG.iterations_per_check

    def solve_with_few_checks(
        self, problem: LinearProblem, potentials: tuple[Tensor, Tensor] | None = None, n_rounds: int = 1
    ) -> LinearSolution:
        """Return the solution of a linear problem: plan of mass 1, log of its mass, f (B, n), g (B, m), residual (B,).

        On a CPU it iterates to the tolerance; on CUDA it makes `n_rounds` rounds of `iterations_per_check` iterations,
        without synchronizing. Unless a CUDA graph is being captured, items that are not finite then are solved again,
        to the tolerance. potentials: f (B, n) and g (B, m) to start from, zero if None.
        """
        if not problem.log_a.is_cuda:
            return self(problem, potentials)
        solution = self(problem, potentials, n_rounds=n_rounds)
        if torch.cuda.is_current_stream_capturing():
            return solution
        is_finite = solution.log_mass.isfinite()
        return solution if bool(is_finite.all()) else where(is_finite, solution, self(problem, potentials))


@dataclass(frozen=True, eq=False)
class _Potential(BatchRecord):
    """The potential gamma = g/eps (B, m) after the last Sinkhorn iteration, its extrapolation and its residual.

    next_gamma: gamma extrapolated, where the next iterations start; residual: (B,), of the last iteration;
    max_residual: (B,), a residual above it rejects the last extrapolation; n_rounds: (B,), made so far, None if not
    counted. residual and max_residual are None before the first iteration.
    """

    gamma: Tensor
    next_gamma: Tensor
    residual: Any = None
    max_residual: Any = None
    n_rounds: Any = None


@dataclass(eq=False)
class _Iteration(BatchRecord):
    """The constants of the iterations, (B, 1) each: dampings 1/(1 + eps/rho), share = 1/(eps/rho1 + eps/rho2).

    The plan depends on f + g alone, the dual value on how the sum is split: the best split, eq. (4.3), is

        t/eps = share · [LSE(log a − f/rho1) − LSE(log b − g/rho2)].

    Right after an update a·exp(−f/rho1) is the marginal of the plan, and likewise for g. The share is 0 where it is
    lost in rounding: the marginals are then as good as hard. tol, max_rounds: (B,), None if nothing is checked.
    """

    kernel: GibbsKernel
    dampings: tuple[Tensor, ...]
    share: Tensor
    tol: Any = None
    max_rounds: Any = None


def _iterate_and_check(context: _Iteration, state: _Potential) -> tuple[_Potential, loop.Report]:
    """Return gamma = g/eps and its residual after a round of Sinkhorn iterations, and the report: status and residual.

    Items whose exponents overflow repeat the round in the log domain.
    """
    context.kernel = context.kernel.recenter(state.next_gamma)
    factors = context.dampings, context.share, SOLVER_CONFIG.max_aitken_rate
    iterate: tuple[Tensor, ...] = sinkhorn_iterations(state.next_gamma, context.kernel, *factors)
    is_nonfinite = ~torch.isfinite(iterate[-1])
    if bool(is_nonfinite.any()):
        iterate = where(
            is_nonfinite, sinkhorn_iterations(state.next_gamma, context.kernel.log_domain(), *factors), iterate
        )
    new = _update(state, iterate)
    status = torch.where(new.n_rounds >= context.max_rounds, int(Status.MAX_ITER), int(Status.RUNNING))
    status = torch.where(new.residual <= context.tol, int(Status.CONVERGED), status)
    return new, loop.Report(status, {"residual": new.residual})


def _update(state: _Potential, iterate: tuple[Tensor, ...]) -> _Potential:
    """Return gamma = g/eps and its residual after a round of iterations, or before it where an extrapolation failed.

    iterate: the fields of the `SinkhornIterate` of the round, `iterations_per_check` Sinkhorn iterations.
    """
    gamma, next_gamma, residual = iterate
    n_rounds = None if state.n_rounds is None else state.n_rounds + 1.0
    if state.max_residual is None:
        return _Potential(gamma, next_gamma, residual, residual, n_rounds)
    # A rejected extrapolation is undone; the next iterations start from the potential before it.
    is_rejected = residual > state.max_residual
    reject = is_rejected[:, None]
    return _Potential(
        gamma=torch.where(reject, state.gamma, gamma),
        next_gamma=torch.where(reject, state.gamma, next_gamma),
        residual=torch.where(is_rejected, state.residual, residual),
        max_residual=residual.masked_fill(is_rejected, torch.inf),
        n_rounds=n_rounds,
    )
