"""Solved values with their gradients, and what goes with them: for losses, divergences and barycentres."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from . import api
from .cones import PartialTransport
from .conic_result import ConicResult
from .envelope import attached, attached_conic
from .errors import ConvergenceWarning, InputError
from .parameters import Relative, build, build_conic, read_cone
from .result import Result
from .spaces import Space


def solved(x: Space, y: Space, **given: Any) -> tuple[Tensor, Result]:
    """The value (B,) in float64 with its gradient, and the result that it is of, which no warning is given for yet.

    given: the arguments of `ugw.solve`, all of them.
    """
    refuse_relative(x, y, given)
    rest = {name: given[name] for name in ("rho", "eps", "loss", "fused")}
    with torch.no_grad(), quiet():
        result = api.solve(x.detach(), y.detach(), **rest, init=given["init"], solver=given["solver"])
    found = result.tensors
    value = found.terms.total
    if torch.is_grad_enabled():
        method = "streaming" if result.path == "streaming" else "stabilised"
        problem = build(x.detach(), y.detach(), **rest, method=method)
        value = attached(problem, x, y, rest["fused"], found)
    return value, result


def solved_conic(x: Space, y: Space, *, rho: Any, cone: Any, init: Any, solver: Any) -> tuple[Tensor, ConicResult]:
    """The conic value (B,) in float64 with its gradient, and the result that it is of."""
    plain = x.detach(), y.detach()
    if isinstance(read_cone(*plain, cone), PartialTransport):
        raise InputError("gradients of the conic distance need a cone over KL, got partial transport")
    with torch.no_grad(), quiet():
        result = api.solve_conic(*plain, rho=rho, cone=cone, init=init, solver=solver)
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
        raise InputError(f"{name} must be a ugw.Space or points (n, d) or (B, n, d): {error}") from error


def refuse_relative(x: Space, y: Space, given: dict[str, Any]) -> None:
    """An eps that moves with the data has a gradient of its own, and terms that are compared need the same one."""
    if isinstance(given["eps"], Relative):
        with torch.no_grad():
            found = build(x.detach(), y.detach(), **{k: given[k] for k in ("rho", "eps", "loss", "fused")}).eps
        raise InputError(
            f"eps of a loss must be a number or an array (B,), got ugw.relative(...), here {float(found[0]):.3g}: "
            "take that number, so that it stays while the data move"
        )


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
