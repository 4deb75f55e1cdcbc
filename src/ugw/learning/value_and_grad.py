"""Solved values with their gradients, and what goes with them: for losses, divergences and barycenters."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..api import solve as api
from ..api.arguments import check_solver
from ..api.conic import solve_conic
from ..errors import ConvergenceWarning, InputError
from ..geometry.space import Space
from ..initializers.multistart import base_solver
from ..measures.cones import PartialTransport
from ..measures.divergences import partial_divergences
from ..problems.build import Relative, build, build_conic, build_partial, parse_cone, resolve_eps
from ..results.conic_result import ConicResult
from ..results.result import Result
from ..solvers.alternating import AlternateMin
from .envelope import attached, attached_capped, attached_conic


def solved(x: Space, y: Space, **given: Any) -> tuple[Tensor, Result]:
    """The value (B,) in float64 with its gradient, and the result that it is of, which no warning is given for yet.

    given: the arguments of `ugw.solve`, all of them.
    """
    plain = x.detach(), y.detach()
    rest = {name: given[name] for name in ("rho", "loss", "fused")}
    rest["eps"] = settled(*plain, given)
    with torch.no_grad(), quiet():
        result = api.solve(*plain, **rest, init=given["init"], solver=given["solver"])
    found = result.tensors
    if not torch.is_grad_enabled():
        return found.terms.total, result
    sides = partial_divergences(rest["rho"])
    if sides is not None:
        partial, _ = build_partial(*plain, sides=sides, eps=0.0, fused=rest["fused"], loss=rest["loss"])
        return attached_capped(partial, x, y, rest["fused"], found), result
    method = "streaming" if result.path == "streaming" else "stabilized"
    return attached(build(*plain, **rest, method=method), x, y, rest["fused"], found), result


def solved_conic(x: Space, y: Space, *, rho: Any, cone: Any, init: Any, solver: Any) -> tuple[Tensor, ConicResult]:
    """The conic value (B,) in float64 with its gradient, and the result that it is of."""
    plain = x.detach(), y.detach()
    if isinstance(parse_cone(*plain, cone), PartialTransport):
        raise InputError("gradients of the conic distance need a cone over KL, got partial transport")
    with torch.no_grad(), quiet():
        result = solve_conic(*plain, rho=rho, cone=cone, init=init, solver=solver)
    value = result.tensors.terms.total
    if torch.is_grad_enabled():
        problem, _ = build_conic(*plain, rho=rho, cone=cone, eps=0.0)
        value = attached_conic(problem, x, y, result.tensors)
    return value, result


def shown(value: Tensor, result: Any, dtype: torch.dtype) -> Tensor:
    """A value (B,) as users see it, () without a batch; what did not converge is told."""
    tell(result, gradient=value.requires_grad)
    value = value.to(dtype)
    return value if result.batched else value[0]


def as_space(name: str, value: Any) -> Space:
    """A space as it is; points become one with Euclidean distances and weights of 1/n."""
    if isinstance(value, Space):
        return value
    try:
        return Space.from_points(value)
    except InputError as error:
        several = isinstance(value, list | tuple) and any(hasattr(part, "shape") for part in value)
        cure = "; clouds of several sizes are a batch, Space.stack([Space.from_points(p) for p in clouds])" * several
        raise InputError(f"{name} must be a ugw.Space or points (n, d) or (B, n, d): {error}{cure}") from error


def settled(x: Space, y: Space, given: dict[str, Any]) -> Any:
    """eps as numbers: an eps relative to the spaces is that of the spaces as they are, and stays while a value is
    differentiated, and in all terms of a divergence.
    """
    eps = resolve_eps(given["eps"], given["rho"])
    if not isinstance(eps, Relative):
        return eps
    method = base_solver(check_solver(given["solver"], AlternateMin())).inner.method
    problem = build(x, y, rho=given["rho"], eps=eps, loss=given["loss"], fused=given["fused"], method=method)
    return problem.eps if problem.batched else problem.eps[0]


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back the warning of a solve: what it means for the gradient is said afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def tell(result: Any, *, gradient: bool) -> None:
    """Warn of a result that is not converged, and that its gradient is then not that of the value."""
    if bool(torch.as_tensor(result.converged).all()):
        return
    what = "the gradient is that of a plan which is not stationary, so not that of the value: " if gradient else ""
    warnings.warn(what + result.message, ConvergenceWarning, stacklevel=_outside())


def _outside() -> int:
    """How far up the caller is who is neither this library nor torch, which calls a module's `forward`."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("ugw", "torch"):
        frame, level = frame.f_back, level + 1
    return level
