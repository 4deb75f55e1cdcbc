"""Values of solved problems with their gradients, for losses, debiased values and barycenters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..api.conic import solve_conic_problem
from ..api.solve import solve_partial_problem, solve_problem
from ..errors import InputError
from ..geometry.space import Space
from ..initializers.multistart import base_solver, check_solver
from ..measures.cones import PartialTransport
from ..measures.divergences import TV, Mass, partial_divergences
from ..problems.build import Fused, build_conic, build_partial, build_ugw, parse_cone, resolve_eps
from ..problems.ugw import UGW
from ..results.base import ResultBase, warn_if_not_converged
from ..results.conic_result import ConicResult
from ..results.result import Result
from ..solvers.alternating import DEFAULT_SOLVER
from ..solvers.frank_wolfe import FrankWolfe
from .envelope import conic_value_with_gradient, partial_value_with_gradient, value_with_gradient


@dataclass(frozen=True, kw_only=True, eq=False)
class SolveArguments:
    """The arguments of `ugw.solve` except the spaces and the start: objective and solver, as a caller gave them.

    Gradients hold eps fixed: a relative eps and "auto" are resolved for the spaces as they are. No method warns about a
    solve that did not converge: callers do.
    """

    rho: Any
    eps: Any
    loss: Any
    fused: Fused | None
    solver: Any

    @property
    def partial_sides(self) -> tuple[TV | Mass, TV | Mass] | None:
        """The divergences of both sides of a partial problem, or None if rho neither is nor contains TV or Mass.

        One TV or Mass stands for both sides, so the pair has it twice; rho may be a tuple of two TV. Any other tuple
        that contains TV or Mass raises InputError.
        """
        return partial_divergences(self.rho)

    def build_problem(self, x: Space, y: Space) -> UGW:
        """Return the UGW problem that `ugw.solve` solves for these arguments, between detached copies of x and y."""
        method = base_solver(check_solver(self.solver, DEFAULT_SOLVER)).inner.method
        eps = resolve_eps(self.eps, self.rho)
        return build_ugw(x.detach(), y.detach(), rho=self.rho, eps=eps, loss=self.loss, fused=self.fused, method=method)

    def solve(self, problem: UGW, init: Any) -> Result:
        """Return the Result of a problem that `build_problem` returned, without a warning if it did not converge.

        init: the name of an initial plan, or a plan.
        """
        solver = check_solver(self.solver, DEFAULT_SOLVER)
        return solve_problem(problem, solver, init, loss=self.loss, fused=self.fused)

    def value(self, problem: UGW, x: Space, y: Space, result: Result) -> Tensor:
        """Return the value (B,) of the result of a problem between x and y, float64.

        It is differentiable in x, y and the arguments with gradients, if gradients are enabled.
        """
        if not torch.is_grad_enabled():
            return result.tensors.terms.total
        return value_with_gradient(problem, x, y, self.fused, result.tensors)

    def solve_with_gradient(self, x: Space, y: Space, init: Any) -> tuple[Tensor, Result]:
        """Return (value, Result) of `ugw.solve`: the value (B,), float64, differentiable if gradients are enabled.

        init: the name of an initial plan, a plan or a Result. A solve that did not converge gives no warning.
        """
        sides, terms = self.partial_sides, {"loss": self.loss, "fused": self.fused}
        if sides is None:
            problem = self.build_problem(x, y)
            result = self.solve(problem, init)
            return self.value(problem, x, y, result), result
        partial, surrogate = build_partial(x.detach(), y.detach(), sides=sides, eps=self.eps, **terms)
        result = solve_partial_problem(partial, surrogate, check_solver(self.solver, FrankWolfe()), init, **terms)
        if not torch.is_grad_enabled():
            return result.tensors.terms.total, result
        return partial_value_with_gradient(partial, x, y, self.fused, result.tensors), result


def solve_conic_with_gradient(
    x: Space, y: Space, *, rho: Any, cone: Any, init: Any, solver: Any
) -> tuple[Tensor, ConicResult]:
    """Return the conic value (B,), float64, differentiable in the spaces if gradients are enabled, and the ConicResult.

    rho: finite marginal penalty; cone: by name or object; init: an initial plan or its name. A solve that did not
    converge gives no warning: callers warn.
    """
    detached = x.detach(), y.detach()
    parsed_cone = parse_cone(*detached, cone)
    if isinstance(parsed_cone, PartialTransport):
        raise InputError("gradients of the conic distance need a cone over KL, got partial transport")
    problem, surrogate = build_conic(*detached, rho=rho, cone=parsed_cone, eps=0.0)
    result = solve_conic_problem(problem, surrogate, parsed_cone, solver, init)
    if not torch.is_grad_enabled():
        return result.tensors.terms.total, result
    return conic_value_with_gradient(problem, x, y, result.tensors), result


def loss_to_user(value: Tensor, result: Result, dtype: torch.dtype) -> Tensor:
    """Return a value (B,) in this dtype, its one entry () if the result is no batch; warn if it did not converge."""
    warn_about_gradient(result, has_gradient=value.requires_grad)
    value = value.to(dtype)
    return value if result.batched else value[0]


def warn_about_gradient(result: ResultBase, *, has_gradient: bool) -> None:
    """Issue a ConvergenceWarning if an item did not converge. has_gradient: say that its gradient is wrong too."""
    consequence = "the gradient is that of a plan which is not stationary, so not that of the value: "
    warn_if_not_converged(result, consequence=consequence if has_gradient else "")


def as_space(name: str, value: Any) -> Space:
    """Return a Space as it is; points (n, d) or (B, n, d) as a Space with Euclidean distances and weights 1/n.

    name: what the error calls the argument.
    """
    if isinstance(value, Space):
        return value
    try:
        return Space.from_points(value)
    except InputError as error:
        is_list_of_clouds = isinstance(value, list | tuple) and any(hasattr(part, "shape") for part in value)
        advice = "; clouds of several sizes are a batch, Space.stack([Space.from_points(p) for p in clouds])"
        raise InputError(
            f"{name} must be a ugw.Space or points (n, d) or (B, n, d): {error}{advice if is_list_of_clouds else ''}"
        ) from error
