"""Losses λ(t) of the difference t of two distances, and the cone distances that they define."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from .._utils.checks import check_tolerance, check_whole_number, describe_value, dtype_name
from ..errors import InputError
from .config import MEASURES_CONFIG


@dataclass(frozen=True, kw_only=True)
class KLCone:
    """A cone with KL divergences: masses are squares of radii, and the conic distance of two spaces is sqrt(CGW).

    Large problems compute Σ_i'j' g(|Dx_ii' − Dy_jj'|) p_i'j' from a low-rank factorization of g, which is the kernel
    exp(−λ/R) of a conic problem, R = rho1 + rho2, or λ if the cone is the loss of UGW. tol: its error relative to the
    range of g; None is 1e-8, or 1e-3 for a λ with a kink. max_rank: the largest rank; None is no limit, or 64 for a λ
    with a kink. With max_rank=None and n·m ≤ 2500, a factorization that misses its tolerance is not used.
    """

    solver_kind: ClassVar[str] = "transport"  # a solver step is an unbalanced transport problem
    mass_exponent: ClassVar[float] = 2.0  # mass = radius to this power
    distance_exponent: ClassVar[float] = 2.0  # the conic distance is CGW^(1/distance_exponent)

    tol: float | None = None
    max_rank: int | None = None

    def __post_init__(self) -> None:
        """Raise InputError unless tol and max_rank are None or valid: a tolerance, a whole number."""
        if self.tol is not None:
            object.__setattr__(self, "tol", check_tolerance("tol of a cone", self.tol))  # the record is frozen
        if self.max_rank is not None:
            object.__setattr__(self, "max_rank", check_whole_number("max_rank of a cone", self.max_rank))


@dataclass(frozen=True)
class GaussianHellinger(KLCone):
    """The cone of the loss λ(t) = t²: the conic distance is a metric for every rho.

    >>> import ugw
    >>> x, y = ugw.Space.from_points([[0.0], [1.0]]), ugw.Space.from_points([[0.0], [2.0]])
    >>> coarse = ugw.solve_conic(x, y, cone=ugw.GaussianHellinger(tol=1e-4))
    >>> abs(coarse.value - ugw.solve_conic(x, y).value) < 1e-3  # the default cone
    True
    """

    def __call__(self, t: Tensor) -> Tensor:
        """Return the loss λ(t) = t² of differences t ≥ 0 of distances, elementwise."""
        return t.square()

    def is_metric(self, rho: Tensor) -> Tensor:
        """Return whether the conic distance satisfies the triangle inequality, (B,) bool: always. rho: (B,)."""
        return torch.ones_like(rho, dtype=torch.bool)


@dataclass(frozen=True)
class HellingerKantorovich(KLCone):
    """The cone of the loss λ(t) = −log cos²(π t / 2 cutoff), +inf for t ≥ cutoff: Wasserstein–Fisher–Rao.

    The conic distance is a metric for rho ≤ 1.

    >>> import ugw
    >>> x, y = ugw.Space.from_points([[0.0], [1.0]]), ugw.Space.from_points([[0.0], [9.0]])
    >>> c = ugw.solve_conic(x, y, rho=1.0, cone=ugw.HellingerKantorovich(cutoff=2.0))  # 8 > cutoff
    >>> c.is_metric, c.value > 0.4
    (True, True)
    """

    cutoff: float = 0.5 * math.pi

    def __post_init__(self) -> None:
        """Raise InputError unless tol, max_rank and cutoff (a finite number > 0) are valid."""
        super().__post_init__()
        if not isinstance(self.cutoff, Real) or isinstance(self.cutoff, bool) or not 0.0 < self.cutoff < math.inf:
            raise InputError(f"cutoff must be a number > 0, got {describe_value(self.cutoff)}")
        object.__setattr__(self, "cutoff", float(self.cutoff))

    def __call__(self, t: Tensor) -> Tensor:
        """Return the loss λ(t) = −log cos²(π t / 2 cutoff) of differences t ≥ 0, elementwise; +inf for t ≥ cutoff."""
        below_cutoff = -2.0 * torch.cos((t * (0.5 * math.pi / self.cutoff)).clamp(max=0.5 * math.pi)).log()
        return torch.where(t < self.cutoff, below_cutoff, torch.inf)

    def is_metric(self, rho: Tensor) -> Tensor:
        """Return whether the conic distance satisfies the triangle inequality, (B,) bool: if rho ≤ 1. rho: (B,)."""
        return rho <= 1.0


@dataclass(frozen=True, eq=False)
class Loss(KLCone):
    """The cone of a loss λ(t) given as a function of tensors: λ(0) = 0, λ ≥ 0, +inf allowed.

    Whether its conic distance is a metric is not known.

    >>> import ugw
    >>> x, y = ugw.Space.from_points([[0.0], [1.0]]), ugw.Space.from_points([[0.0], [1.5], [9.0]])
    >>> far = ugw.Loss(lambda t: t.clamp(max=1.0) ** 2)  # constant for t ≥ 1
    >>> ugw.solve(x, y, loss=far).mass > ugw.solve(x, y).mass
    True
    """

    function: Callable[[Tensor], Tensor]

    def __call__(self, t: Tensor) -> Tensor:
        """Return the loss λ(t) = function(t) of differences t ≥ 0 of distances, elementwise, in the dtype of t."""
        return self.function(t).to(t.dtype)

    def is_metric(self, rho: Tensor) -> Tensor:
        """Return False for every item, (B,) bool: the triangle inequality is not known to hold. rho: (B,)."""
        return torch.zeros_like(rho, dtype=torch.bool)


@dataclass(frozen=True)
class PartialTransport:
    """The cone of the loss λ(t) = t^q, q ≥ 1, with TV instead of KL: CGW^(1/q) is a metric for all rho and all masses.

    A point u of mass r and a point v of mass s cost rho(r + s) − min(r, s)·(2 rho − |u − v|^q)_+: points that are too
    far apart are not matched. By default q = 2, the loss of `solve` and of the Gaussian–Hellinger cone.

    >>> import ugw
    >>> x = ugw.Space.from_points([[0.0], [1.0]], weights=[0.5, 0.5])
    >>> y = ugw.Space.from_points([[0.0], [1.0], [9.0]], weights=[0.5, 0.5, 0.5])
    >>> c = ugw.solve_conic(x, y, rho=1.0, cone=ugw.PartialTransport(q=2))
    >>> round(c.value, 9), c.is_metric  # 1.5² − 1²: the third point is unmatched
    (1.25, True)
    """

    q: float = 2.0

    solver_kind: ClassVar[str] = "programs"  # a solver step is a linear program
    tol: ClassVar[float | None] = None
    max_rank: ClassVar[int | None] = None
    mass_exponent: ClassVar[float] = 1.0  # mass = radius to this power

    def __post_init__(self) -> None:
        """Raise InputError unless q is a finite number ≥ 1."""
        if not isinstance(self.q, Real) or isinstance(self.q, bool) or not 1.0 <= self.q < math.inf:
            raise InputError(f"q must be a finite number ≥ 1, got {describe_value(self.q)}")
        object.__setattr__(self, "q", float(self.q))

    @property
    def distance_exponent(self) -> float:
        """The exponent q: the conic distance of two spaces is CGW^(1/q), CGW being the `value` of `solve_conic`."""
        return self.q

    def __call__(self, t: Tensor) -> Tensor:
        """Return the loss λ(t) = t^q of differences t ≥ 0 of distances, elementwise."""
        return t**self.q

    def matching_gain(self, t: np.ndarray, rho: float) -> np.ndarray:
        """Return (2 rho − t^q)_+ elementwise: the cost saved by matching a unit of mass at a difference t ≥ 0."""
        return np.maximum(2.0 * rho - t**self.q, 0.0)

    def is_metric(self, rho: Tensor) -> Tensor:
        """Return whether the conic distance satisfies the triangle inequality, (B,) bool: always. rho: (B,)."""
        # The cone cost is the q-th power of a Wasserstein distance whose apex is at distance rho^(1/q).
        return torch.ones_like(rho, dtype=torch.bool)


Cone = GaussianHellinger | HellingerKantorovich | Loss | PartialTransport
CONES_BY_NAME: dict[str, type[GaussianHellinger | HellingerKantorovich | PartialTransport]] = {
    "gaussian-hellinger": GaussianHellinger,
    "hellinger-kantorovich": HellingerKantorovich,
    "partial-transport": PartialTransport,
}


def parse_loss(loss: Any, longest: float, *, name: str = "loss", dtype: torch.dtype = torch.float64) -> Cone:
    """Return the cone of a loss λ given by name, as a cone, or as a function of tensors, which becomes a `Loss`.

    Raises InputError if it is none of these, or a function that is not elementwise, ≥ 0 and 0 at 0. longest: the
    largest t at which a function is checked; name: of the argument, for error messages; dtype: of the distances, in
    which a function is checked as well as in float64.
    """
    if isinstance(loss, str):
        if loss not in CONES_BY_NAME:
            raise InputError(
                f"{name} must be one of {', '.join(map(repr, CONES_BY_NAME))} or a function, got {describe_value(loss)}"
            )
        return CONES_BY_NAME[loss]()
    if isinstance(loss, GaussianHellinger | HellingerKantorovich | PartialTransport):
        return loss
    if isinstance(loss, type) and issubclass(loss, KLCone | PartialTransport):
        raise InputError(f"{name} must be a cone, got the class {loss.__name__} itself: call it, {loss.__name__}(...)")
    function = loss.function if isinstance(loss, Loss) else loss
    if not callable(function):
        raise InputError(f"{name} must be a name, a cone or a function of tensors, got {type(loss).__name__}")
    t = torch.linspace(0.0, longest, MEASURES_CONFIG.n_check_distances, dtype=torch.float64)
    _check_values(name, t, _evaluate(name, function, t))
    _check_elementwise(name, function, t.to(dtype))
    return loss if isinstance(loss, Loss) else Loss(function)


def _evaluate(name: str, function: Any, t: Tensor) -> Tensor:
    """Return function(t), (...), or raise InputError if it fails or is not a real tensor of the shape of t (...).

    name: of the argument that the function comes from, for error messages.
    """
    try:
        with torch.no_grad():
            values = function(t.clone())
    except Exception as error:  # a user's function may raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{name} must be a function of tensors of any shape, failed on one of {dtype_name(t.dtype)} distances: "
            f"{reason}"
        ) from error
    if not isinstance(values, Tensor) or values.shape != t.shape:
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise InputError(f"{name} must map a tensor of shape {tuple(t.shape)} to one of the same shape, got {got}")
    if not values.is_floating_point():
        raise InputError(
            f"{name} must map {dtype_name(t.dtype)} to real numbers, float32 or float64, got {dtype_name(values.dtype)}"
        )
    return values


def _check_elementwise(name: str, function: Any, t: Tensor) -> None:
    """Raise InputError if function(t) at half of the points t (k,) changes when they are reordered and reshaped."""
    half = t[: len(t) // 2].flip(0)
    from_all = _evaluate(name, function, t)[: len(half)].flip(0)
    from_half = _evaluate(name, function, half.reshape(-1, MEASURES_CONFIG.n_check_columns)).flatten()
    rtol = MEASURES_CONFIG.elementwise_rounding_units * torch.finfo(t.dtype).eps
    differs = ~torch.isclose(from_half, from_all, rtol=rtol, atol=MEASURES_CONFIG.elementwise_atol)
    if bool(differs.any()):
        values = ", ".join(f"{float(v[differs][0]):.6g}" for v in (from_half, from_all))
        raise InputError(f"{name} must be elementwise, got two values at t = {float(half[differs][0]):.6g}: {values}")


def _check_values(name: str, t: Tensor, values: Tensor) -> None:
    """Raise InputError unless the values (k,) of a loss at distances t (k,) are ≥ 0, not NaN, and 0 at t = 0."""
    if bool(torch.isnan(values).any()):
        raise InputError(f"{name} must not be NaN, got NaN at t = {float(t[torch.isnan(values)][0]):.6g}")
    if bool((values < 0).any()):
        is_negative = values < 0
        value, distance = float(values[is_negative][0]), float(t[is_negative][0])
        raise InputError(f"{name} must be ≥ 0, got {value:.6g} at t = {distance:.6g}")
    if float(values[0]) != 0.0:
        raise InputError(f"{name} must be 0 at t = 0, got {float(values[0]):.6g}")
