"""Values of solved problems with their gradients, for losses, debiased values and barycenters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..api.arguments import check_solver
from ..api.conic import solve_conic_problem
from ..api.solve import solve_partial_problem, solve_problem
from ..errors import InputError
from ..geometry.space import Space
from ..initializers.multistart import base_solver
from ..measures.cones import PartialTransport
from ..measures.divergences import partial_divergences
from ..problems.build import Fused, build_conic, build_partial, build_ugw, parse_cone, resolve_eps
from ..problems.ugw import UGW
from ..results.base import ResultBase
from ..results.conic_result import ConicResult
from ..results.convergence import warn_if_not_converged
from ..results.result import Result
from ..solvers.alternating import AlternateMin
from ..solvers.frank_wolfe import FrankWolfe
from .envelope import conic_value_with_gradient, partial_value_with_gradient, value_with_gradient


def build_detached(x: Space, y: Space, *, rho: Any, eps: Any, loss: Any, fused: Fused | None, solver: Any) -> UGW:
    """Return the problem that `ugw.solve` with these arguments solves, on the spaces without their autograd graphs.

    A relative eps and "auto" are resolved for the spaces as they are; gradients hold eps fixed.
    """
    method = base_solver(check_solver(solver, AlternateMin())).inner.method
    eps = resolve_eps(eps, rho)
    return build_ugw(x.detach(), y.detach(), rho=rho, eps=eps, loss=loss, fused=fused, method=method)


def solve_with_gradient(
    x: Space, y: Space, *, rho: Any, eps: Any, loss: Any, fused: Fused | None, init: Any, solver: Any
) -> tuple[Tensor, Result]:
    """Return the value (B,) of `ugw.solve`, float64, as a differentiable function of its arguments, and the Result.

    The value is attached to the autograd graph unless gradients are disabled. A solve that did not converge gives no
    warning here: the caller warns. Arguments as for `ugw.solve`.
    """
    sides = partial_divergences(rho)
    if sides is None:
        problem = build_detached(x, y, rho=rho, eps=eps, loss=loss, fused=fused, solver=solver)
        return solve_problem_with_gradient(problem, x, y, fused=fused, loss=loss, init=init, solver=solver)
    partial, surrogate = build_partial(x.detach(), y.detach(), sides=sides, eps=eps, fused=fused, loss=loss)
    chosen = check_solver(solver, FrankWolfe())
    result = solve_partial_problem(partial, surrogate, chosen, init, loss=loss, fused=fused)
    if not torch.is_grad_enabled():
        return result.tensors.terms.total, result
    return partial_value_with_gradient(partial, x, y, fused, result.tensors), result


def solve_problem_with_gradient(
    problem: UGW, x: Space, y: Space, *, fused: Fused | None, loss: Any, init: Any, solver: Any
) -> tuple[Tensor, Result]:
    """Solve a problem built by `build_detached`; return its value (B,), differentiable in the spaces, and the Result.

    x, y, fused: as the caller gave them, with their autograd graphs. No warning, as in `solve_with_gradient`.
    """
    result = solve_problem(problem, check_solver(solver, AlternateMin()), init, loss=loss, fused=fused)
    return with_gradient(problem, x, y, fused, result), result


def with_gradient(problem: UGW, x: Space, y: Space, fused: Fused | None, result: Result) -> Tensor:
    """Return the value (B,) of a result, differentiable in x, y and fused unless gradients are disabled."""
    if not torch.is_grad_enabled():
        return result.tensors.terms.total
    return value_with_gradient(problem, x, y, fused, result.tensors)


def solve_conic_with_gradient(
    x: Space, y: Space, *, rho: Any, cone: Any, init: Any, solver: Any
) -> tuple[Tensor, ConicResult]:
    """Return the conic value (B,), float64, as a differentiable function of the spaces, and the ConicResult.

    The value is attached to the autograd graph unless gradients are disabled. A solve that did not converge gives no
    warning here: the caller warns. rho, cone, init, solver: as for `ugw.solve_conic`.
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
    """Return a value (B,) in the dtype of the spaces, () without a batch; warn if the solve did not converge."""
    warn_about_gradient(result, has_gradient=value.requires_grad)
    value = value.to(dtype)
    return value if result.batched else value[0]


def warn_about_gradient(result: ResultBase, *, has_gradient: bool) -> None:
    """Warn if a result did not converge; has_gradient: say also that its gradient is not that of the value."""
    consequence = "the gradient is that of a plan which is not stationary, so not that of the value: "
    warn_if_not_converged(result, consequence=consequence if has_gradient else "")


def as_space(name: str, value: Any) -> Space:
    """Return a space as it is; points (n, d) or (B, n, d) as a space with Euclidean distances and weights 1/n."""
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
