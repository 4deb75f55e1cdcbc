"""Divergences between a marginal of the plan and the weights of its space."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from .._utils.checks import as_positive
from ..errors import InputError


def kl(p: Tensor, log_a: Tensor) -> Tensor:
    """Return KL(p | a) = Σ p log(p/a) − m(p) + m(a), eq. (1.1), (...); sums run over the last dimension.

    p, log_a: (..., n). Each term is computed as a·((1 + x) log(1 + x) − x) ≥ 0 with x = (p − a)/a, which keeps the
    digits of a small divergence even when a large rho multiplies it. The result is +inf if p > 0 = a somewhere.
    """
    return kl_terms(p, log_a.exp()).sum(-1)


def kl_terms(p: Tensor, a: Tensor) -> Tensor:
    """Return the terms (..., n) whose sum is `kl`. p, a: (..., n), weights instead of their logarithms."""
    x = (p - a) / a.clamp(min=torch.finfo(a.dtype).tiny)
    terms = a * (torch.special.xlog1py(1.0 + x, x) - x)
    return terms.masked_fill((a == 0) & (p > 0), torch.inf)


class Divergence:
    """A divergence with one parameter: a number, or an array (B,) with one value per batch item.

    is_hard: () or (B,) bool, whether the marginal is a constraint; penalty: () or (B,), the factor of the divergence
    in the objective, 0 for a constraint.
    """

    is_hard: Tensor
    penalty: Tensor
    _parameter_name = "rho"

    def __init__(self, parameter: Tensor) -> None:
        """Store a checked parameter."""
        self._set_parameter(parameter)

    def _set_parameter(self, parameter: Tensor) -> None:
        """Set the parameter, () or (B,), under its name (rho or m), `is_hard` to False and `penalty` to the parameter.

        Subclasses change the last two: KL is hard, with penalty 0, where rho is infinite; Mass has penalty 0.
        """
        self._parameter = parameter
        setattr(self, self._parameter_name, parameter)
        self.is_hard, self.penalty = torch.zeros_like(parameter, dtype=torch.bool), parameter

    def expand(self, batch: int, device: torch.device) -> Self:
        """Return the divergence with one parameter for each of `batch` items, on a device."""
        return self._with_parameter(self._parameter.to(device).expand(batch))

    def take(self, index: Tensor) -> Self:
        """Return the divergence of the batch items `index`, (k,) integers or (B,) bools."""
        return self._with_parameter(self._parameter[index])

    def _with_parameter(self, parameter: Tensor) -> Self:
        """Return the divergence with another parameter, which is not checked and stays on its device."""
        divergence = object.__new__(type(self))
        divergence._set_parameter(parameter)
        return divergence

    def __repr__(self) -> str:
        """Return the name with the parameter, or with the number of items."""
        values, kind, name = self._parameter.flatten().tolist(), type(self).__name__, self._parameter_name
        return f"{kind}({name}={values[0]:g})" if len(values) == 1 else f"{kind}({name} of {len(values)} items)"


class KL(Divergence):
    """The penalty rho · KL(p | a); rho = inf makes the marginal a constraint.

    rho: a number in (0, inf], or an array (B,) with one value per batch item.

    >>> KL(2.0)
    KL(rho=2)
    >>> KL(torch.tensor([1.0, float("inf")])).is_hard.tolist()
    [False, True]
    """

    rho: Tensor

    def __init__(self, rho: Any) -> None:
        """Check and store rho."""
        super().__init__(as_positive("rho", rho))

    def _set_parameter(self, parameter: Tensor) -> None:
        """Set rho, `is_hard` and `penalty`; an infinite rho is a constraint, of penalty 0."""
        super()._set_parameter(parameter)
        self.is_hard = torch.isinf(parameter)
        # A constraint adds no penalty to the objective and no scalar to the cost.
        self.penalty = torch.where(self.is_hard, 0.0, parameter)

    def damping(self, eps: Tensor) -> Tensor:
        """Return the factor (B,) in the Sinkhorn update f = −damping · eps · LSE(...), 1 where hard. eps: (B,)."""
        return 1.0 / (1.0 + eps / self.rho)


class TV(Divergence):
    """The penalty rho · |p − a|, total variation, of partial matching: each unit of unmatched mass costs rho.

    rho: a number in (0, inf), or an array (B,) with one value per batch item. Both sides must be TV, or none.

    >>> TV(0.5)
    TV(rho=0.5)
    """

    rho: Tensor

    def __init__(self, rho: Any) -> None:
        """Check and store rho."""
        super().__init__(as_positive("rho of TV", rho, allow_inf=False))


class Mass(Divergence):
    """The constraints p1 ≤ a, p2 ≤ b and total mass m of partial matching with a given mass.

    m: a number in (0, min(m(a), m(b))], or an array (B,) with one value per batch item. One Mass is for both sides.

    >>> Mass(0.7)
    Mass(m=0.7)
    """

    m: Tensor
    _parameter_name = "m"

    def __init__(self, m: Any) -> None:
        """Check and store m."""
        super().__init__(as_positive("m of Mass", m, allow_inf=False))

    def _set_parameter(self, parameter: Tensor) -> None:
        """Set m, `is_hard` (False) and `penalty` (0, because the objective has no term for the marginals)."""
        super()._set_parameter(parameter)
        self.penalty = torch.zeros_like(parameter)


def Balanced() -> KL:
    """Return KL(inf), which makes the marginal a constraint.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.eye(3))
    >>> r = ugw.solve(x, x, rho=(ugw.Balanced(), ugw.KL(0.1)))  # all mass of the first space is matched
    >>> np.allclose(r.marginals[0], 1 / 3)
    True
    """
    return KL(float("inf"))


def divergence_pair(rho: Any) -> tuple[KL, KL]:
    """Return the divergences of both sides from `rho`: a number, an array per item, a KL, or a *tuple* of two of these.

    >>> divergence_pair((1.0, float("inf")))
    (KL(rho=1), KL(rho=inf))
    """
    first, second = _split_sides(rho)
    return _as_kl(first), _as_kl(second)


def partial_divergences(rho: Any) -> tuple[TV | Mass, TV | Mass] | None:
    """Return the divergences of both sides of a partial problem from `rho`: a TV, a tuple of two, or one Mass.

    Returns None if `rho` contains neither TV nor Mass.

    >>> partial_divergences((TV(1.0), TV(2.0)))
    (TV(rho=1), TV(rho=2))
    >>> partial_divergences(1.0) is None
    True
    """
    if isinstance(rho, Mass):
        return rho, rho
    if not isinstance(rho, TV) and not (isinstance(rho, tuple) and any(isinstance(r, TV | Mass) for r in rho)):
        return None
    first, second = _split_sides(rho)
    if not isinstance(first, TV) or not isinstance(second, TV):
        raise InputError(
            f"TV must be on both sides, and one Mass applies to both sides, got rho=({first!r}, {second!r})"
        )
    return first, second


def _split_sides(rho: Any) -> tuple[Any, Any]:
    """Return the parameters of both sides: the two entries of a tuple, or the same object twice."""
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


def _as_kl(rho: Any) -> KL:
    """Return a number, an array or a KL as a KL, or raise InputError."""
    if isinstance(rho, TV | Mass):
        raise InputError(
            f"rho must be a number or a KL here, got {rho!r}: TV and Mass are for solve, solve_linear, objective, "
            "ugw_loss and pairwise"
        )
    return rho if isinstance(rho, KL) else KL(as_positive("rho", rho))
