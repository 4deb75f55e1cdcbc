"""How a marginal of the plan may differ from its weights."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from .._utils.checks import as_positive
from ..errors import InputError


def kl(p: Tensor, log_a: Tensor) -> Tensor:
    """KL(p | a) = Σ p log(p/a) − m(p) + m(a) over the last dimension, eq. (1.1). p, log_a: (..., n).

    Each term is a·((1 + x) log(1 + x) − x) ≥ 0 with x = (p − a)/a, which keeps the digits of a small divergence
    even when a large rho multiplies it. +inf where p > 0 = a.
    """
    return kl_terms(p, log_a.exp()).sum(-1)


def kl_terms(p: Tensor, a: Tensor) -> Tensor:
    """The terms of `kl`, for the weights themselves."""
    x = (p - a) / a.clamp(min=torch.finfo(a.dtype).tiny)
    terms = a * (torch.special.xlog1py(1.0 + x, x) - x)
    return terms.masked_fill((a == 0) & (p > 0), torch.inf)


def damping(slope: Tensor) -> Tensor:
    """1 / (1 + eps/rho), by which relaxed marginals damp Sinkhorn. slope: eps/rho."""
    return 1.0 / (1.0 + slope)


class Divergence:
    """A parameter, a number or an array (B,) with one for each item of a batch, and what it says of a marginal.

    is_hard: is the marginal a constraint? penalty: what multiplies the divergence in the value, 0 for a constraint.
    """

    is_hard: Tensor
    penalty: Tensor
    _name = "rho"

    def __init__(self, parameter: Tensor) -> None:
        self._set(parameter)

    def _set(self, parameter: Tensor) -> None:
        self._parameter = parameter
        setattr(self, self._name, parameter)
        self.is_hard, self.penalty = torch.zeros_like(parameter, dtype=torch.bool), parameter

    def expand(self, batch: int, device: torch.device) -> Self:
        """One parameter for each of `batch` items, on the device."""
        return self._with(self._parameter.to(device).expand(batch))

    def take(self, index: Tensor) -> Self:
        """The divergences of some items."""
        return self._with(self._parameter[index])

    def _with(self, parameter: Tensor) -> Self:
        """Other values of a parameter that was checked before; they stay on their device."""
        other = object.__new__(type(self))
        other._set(parameter)
        return other

    def __repr__(self) -> str:
        values, kind = self._parameter.flatten().tolist(), type(self).__name__
        return f"{kind}({self._name}={values[0]:g})" if len(values) == 1 else f"{kind}(rho of {len(values)} items)"


class KL(Divergence):
    """rho · KL(p | a); rho = inf makes the marginal a constraint.

    rho: a number in (0, inf], or an array (B,) with one for each item of a batch.

    >>> KL(2.0)
    KL(rho=2)
    >>> KL(torch.tensor([1.0, float("inf")])).is_hard.tolist()
    [False, True]
    """

    rho: Tensor

    def __init__(self, rho: Any) -> None:
        super().__init__(as_positive("rho", rho))

    def _set(self, parameter: Tensor) -> None:
        super()._set(parameter)
        self.is_hard = torch.isinf(parameter)
        # A constraint adds no penalty to the value and no scalar to the cost.
        self.penalty = torch.where(self.is_hard, 0.0, parameter)

    def damping(self, eps: Tensor) -> Tensor:
        """The proximal step of Sinkhorn: f = −damping · eps · LSE(...). 1 where hard. eps: (B,)."""
        return damping(eps / self.rho)


class TV(Divergence):
    """rho · |p − a|, total variation: partial matching. Mass is matched in full or left behind, at this price.

    rho: a number in (0, inf), or an array (B,) with one for each item of a batch. On both sides or on none.

    >>> TV(0.5)
    TV(rho=0.5)
    """

    rho: Tensor

    def __init__(self, rho: Any) -> None:
        super().__init__(as_positive("rho of TV", rho, allow_inf=False))


class Mass(Divergence):
    """A plan below the weights, p1 ≤ a and p2 ≤ b, of total mass exactly m: partial matching with a given mass.

    m: a number in (0, min(m(a), m(b))], or an array (B,) with one for each item of a batch. It speaks for both sides.

    >>> Mass(0.7)
    Mass(m=0.7)
    """

    m: Tensor
    _name = "m"

    def __init__(self, m: Any) -> None:
        super().__init__(as_positive("m of Mass", m, allow_inf=False))

    def _set(self, parameter: Tensor) -> None:
        super()._set(parameter)
        self.penalty = torch.zeros_like(parameter)


def Balanced() -> KL:
    """The marginal is a constraint: KL(inf).

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.eye(3))
    >>> r = ugw.solve(x, x, rho=(ugw.Balanced(), ugw.KL(0.1)))  # every point of the first space in full
    >>> np.allclose(r.marginals[0], 1 / 3)
    True
    """
    return KL(float("inf"))


def divergence_pair(rho: Any) -> tuple[KL, KL]:
    """Read `rho`: a number, an array per item, a KL, or a *tuple* with one of these for each side.

    >>> divergence_pair((1.0, float("inf")))
    (KL(rho=1), KL(rho=inf))
    """
    first, second = sides(rho)
    return _divergence(first), _divergence(second)


def partial_divergences(rho: Any) -> tuple[TV | Mass, TV | Mass] | None:
    """The divergences of a partial problem: TV, a tuple of two, or one Mass. None for what is not of their kind.

    >>> partial_divergences((TV(1.0), TV(2.0)))
    (TV(rho=1), TV(rho=2))
    >>> partial_divergences(1.0) is None
    True
    """
    if isinstance(rho, Mass):
        return rho, rho
    if not isinstance(rho, TV) and not (isinstance(rho, tuple) and any(isinstance(r, TV | Mass) for r in rho)):
        return None
    first, second = sides(rho)
    if not isinstance(first, TV) or not isinstance(second, TV):
        raise InputError(f"TV must be on both sides, and Mass speaks for both, got rho=({first!r}, {second!r})")
    return first, second


def sides(rho: Any) -> tuple[Any, Any]:
    """One parameter for each side: a tuple has two, anything else stands for both."""
    if isinstance(rho, tuple):
        if len(rho) != 2:
            raise InputError(f"rho as a tuple must be (first side, second side), got {len(rho)} entries")
        return rho
    if isinstance(rho, list):
        raise InputError(
            f"rho must be a number, a tuple (first side, second side) or an array (B,), one for each item, got a list "
            f"of {len(rho)}: write tuple(rho) or np.array(rho)"
        )
    return rho, rho


def _divergence(rho: Any) -> KL:
    if isinstance(rho, TV | Mass):
        raise InputError(f"rho must be a number or a KL here, got {rho!r}: TV and Mass are for solve and objective")
    return rho if isinstance(rho, KL) else KL(as_positive("rho", rho))
