"""Losses λ(t) of the difference t of two distances, and the cones they span."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from .._utils.checks import check_tolerance, check_whole_number, dtype_name
from ..errors import InputError


@dataclass(frozen=True, kw_only=True)
class KLCone:
    """Cones over KL: masses are squares of radii, and the distance is the square root of the value.

    Large problems sum over pairs of pairs by factors of the kernel, or of λ: `tol`, 1e-8 if None, or 1e-3 where it
    has a kink, is their error as a share of its range, and `max_rank`, no limit if None, or 64 where it has a kink,
    the most of them. Without a `max_rank`, factors that are too coarse are not used up to n·m = 2500.
    """

    solver_kind: ClassVar[str] = "transport"  # how a step of a solver is made: by unbalanced transport
    mass_exponent: ClassVar[float] = 2.0
    distance_exponent: ClassVar[float] = 2.0

    tol: float | None = None
    max_rank: int | None = None

    def __post_init__(self) -> None:
        if self.tol is not None:
            check_tolerance("tol of a cone", self.tol)
        if self.max_rank is not None:
            check_whole_number("max_rank of a cone", self.max_rank)


@dataclass(frozen=True)
class GaussianHellinger(KLCone):
    """λ(t) = t²: the conic distance is a metric for every rho.

    >>> import ugw
    >>> x, y = ugw.Space.from_points([[0.0], [1.0]]), ugw.Space.from_points([[0.0], [2.0]])
    >>> coarse = ugw.solve_conic(x, y, cone=ugw.GaussianHellinger(tol=1e-4))
    >>> abs(coarse.value - ugw.solve_conic(x, y).value) < 1e-3  # the default cone
    True
    """

    def __call__(self, t: Tensor) -> Tensor:
        """λ at t ≥ 0, elementwise."""
        return t.square()

    def is_metric(self, rho: Tensor) -> Tensor:
        """(B,) bool: does the conic distance obey the triangle inequality? rho: (B,)."""
        return torch.ones_like(rho, dtype=torch.bool)


@dataclass(frozen=True)
class HellingerKantorovich(KLCone):
    """λ(t) = −log cos²(π t / 2 cutoff), infinite from the cutoff on (Wasserstein–Fisher–Rao): a metric for rho ≤ 1.

    >>> import ugw
    >>> x, y = ugw.Space.from_points([[0.0], [1.0]]), ugw.Space.from_points([[0.0], [9.0]])
    >>> c = ugw.solve_conic(x, y, rho=1.0, cone=ugw.HellingerKantorovich(cutoff=2.0))  # 8 apart: never matched
    >>> c.is_metric, c.value > 0.4
    (True, True)
    """

    cutoff: float = 0.5 * math.pi

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.cutoff, Real) or isinstance(self.cutoff, bool) or not 0.0 < self.cutoff < math.inf:
            raise InputError(f"cutoff must be a number > 0, got {self.cutoff!r}")
        object.__setattr__(self, "cutoff", float(self.cutoff))

    def __call__(self, t: Tensor) -> Tensor:
        """λ at t ≥ 0, elementwise; +inf from the cutoff on."""
        near = -2.0 * torch.cos((t * (0.5 * math.pi / self.cutoff)).clamp(max=0.5 * math.pi)).log()
        return torch.where(t < self.cutoff, near, torch.inf)

    def is_metric(self, rho: Tensor) -> Tensor:
        """(B,) bool: does the conic distance obey the triangle inequality? rho: (B,)."""
        return rho <= 1.0


@dataclass(frozen=True, eq=False)
class Loss(KLCone):
    """λ given as a function of tensors: λ(0) = 0, λ ≥ 0, +inf allowed. Whether its cone is a metric is not known.

    >>> import ugw
    >>> x, y = ugw.Space.from_points([[0.0], [1.0]]), ugw.Space.from_points([[0.0], [1.5], [9.0]])
    >>> far = ugw.Loss(lambda t: t.clamp(max=1.0) ** 2)  # beyond 1 it does not matter how far
    >>> ugw.solve(x, y, loss=far).mass > ugw.solve(x, y).mass
    True
    """

    function: Callable[[Tensor], Tensor]

    def __call__(self, t: Tensor) -> Tensor:
        """λ at t ≥ 0, elementwise, in the precision of t."""
        return self.function(t).to(t.dtype)

    def is_metric(self, rho: Tensor) -> Tensor:
        """(B,) bool: False, since nothing is known."""
        return torch.zeros_like(rho, dtype=torch.bool)


@dataclass(frozen=True)
class PartialTransport:
    """λ(t) = t^q, q ≥ 1, with TV instead of KL: value^(1/q) is a metric for every rho and all masses.

    A point of mass r over u and one of mass s over v cost rho(r + s) − min(r, s)·(2 rho − |u − v|^q)_+: what is too
    far apart is not matched at all. By default q = 2, the loss of `solve` and of the Gaussian–Hellinger cone.

    >>> import ugw
    >>> x = ugw.Space.from_points([[0.0], [1.0]], weights=[0.5, 0.5])
    >>> y = ugw.Space.from_points([[0.0], [1.0], [9.0]], weights=[0.5, 0.5, 0.5])
    >>> c = ugw.solve_conic(x, y, rho=1.0, cone=ugw.PartialTransport(q=2))
    >>> round(c.value, 9), c.is_metric  # 1.5² − 1²: the third point is left out
    (1.25, True)
    """

    q: float = 2.0

    solver_kind: ClassVar[str] = "programs"  # a step of a solver is a linear program
    tol: ClassVar[float | None] = None
    max_rank: ClassVar[int | None] = None
    mass_exponent: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.q, Real) or isinstance(self.q, bool) or not 1.0 <= self.q < math.inf:
            raise InputError(f"q must be a finite number ≥ 1, got {self.q!r}")
        object.__setattr__(self, "q", float(self.q))

    @property
    def distance_exponent(self) -> float:
        """The distance is the value to the power of 1 over this."""
        return self.q

    def __call__(self, t: Tensor) -> Tensor:
        """λ at t ≥ 0, elementwise."""
        return t**self.q

    def matching_gain(self, t: np.ndarray, rho: float) -> np.ndarray:
        """What matching a unit of mass saves, (2 rho − t^q)_+, elementwise."""
        return np.maximum(2.0 * rho - t**self.q, 0.0)

    def is_metric(self, rho: Tensor) -> Tensor:
        """(B,) bool: True. The cone cost is the q-th power of a Wasserstein distance with the apex at rho^(1/q)."""
        return torch.ones_like(rho, dtype=torch.bool)


Cone = GaussianHellinger | HellingerKantorovich | Loss | PartialTransport
NAMED: dict[str, type[GaussianHellinger | HellingerKantorovich | PartialTransport]] = {
    "gaussian-hellinger": GaussianHellinger,
    "hellinger-kantorovich": HellingerKantorovich,
    "partial-transport": PartialTransport,
}
# Points at which a given function is tried.
TRIED = 2000


def parse_loss(loss: Any, longest: float, *, name: str = "loss", dtype: torch.dtype = torch.float64) -> Cone:
    """A cone given by name, as an object, or as a function of tensors, which is tried on [0, longest].

    dtype: that of the distances, in which a function is tried too.
    """
    if isinstance(loss, str):
        if loss not in NAMED:
            raise InputError(f"{name} must be one of {', '.join(map(repr, NAMED))} or a function, got {loss!r}")
        return NAMED[loss]()
    if isinstance(loss, GaussianHellinger | HellingerKantorovich | PartialTransport):
        return loss
    if isinstance(loss, type) and issubclass(loss, KLCone | PartialTransport):
        raise InputError(f"{name} must be a cone, got the class {loss.__name__} itself: call it, {loss.__name__}(...)")
    given = loss.function if isinstance(loss, Loss) else loss
    if not callable(given):
        raise InputError(f"{name} must be a name, a cone or a function of tensors, got {type(loss).__name__}")
    t = torch.linspace(0.0, longest, TRIED, dtype=torch.float64)
    _check_values(name, t, _tried(name, given, t))
    _check_elementwise(name, given, t.to(dtype))
    return loss if isinstance(loss, Loss) else Loss(given)


def _tried(name: str, given: Any, t: Tensor) -> Tensor:
    """What a function says to a tensor of distances, if that is a tensor of numbers of the same shape."""
    try:
        with torch.no_grad():
            values = given(t.clone())
    except Exception as error:  # whatever a user's function raises
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{name} must be a function of tensors of any shape, failed on one of {dtype_name(t.dtype)} distances: "
            f"{said}"
        ) from error
    if not isinstance(values, Tensor) or values.shape != t.shape:
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise InputError(f"{name} must map a tensor of shape {tuple(t.shape)} to one of the same shape, got {got}")
    if not values.is_floating_point():
        raise InputError(
            f"{name} must map {dtype_name(t.dtype)} to real numbers, float32 or float64, got {dtype_name(values.dtype)}"
        )
    return values


def _check_elementwise(name: str, given: Any, t: Tensor) -> None:
    """Raise unless half of the distances, in another order and shape, have the values they have among all."""
    half = t[: len(t) // 2].flip(0)
    among, alone = _tried(name, given, t)[: len(half)].flip(0), _tried(name, given, half.reshape(-1, 40)).flatten()
    off = ~torch.isclose(alone, among, rtol=1e3 * torch.finfo(t.dtype).eps, atol=1e-30)
    if bool(off.any()):
        values = ", ".join(f"{float(v[off][0]):.6g}" for v in (alone, among))
        raise InputError(f"{name} must be elementwise, got two values at t = {float(half[off][0]):.6g}: {values}")


def _check_values(name: str, t: Tensor, values: Tensor) -> None:
    if bool(torch.isnan(values).any()):
        raise InputError(f"{name} must not be NaN, got NaN at t = {float(t[torch.isnan(values)][0]):.6g}")
    if bool((values < 0).any()):
        where = values < 0
        raise InputError(f"{name} must be ≥ 0, got {float(values[where][0]):.6g} at t = {float(t[where][0]):.6g}")
    if float(values[0]) != 0.0:
        raise InputError(f"{name} must be 0 at t = 0, got {float(values[0]):.6g}")
