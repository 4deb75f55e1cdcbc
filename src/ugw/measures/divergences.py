"""Divergences between a marginal of the plan and the weights of its space."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from .._utils.checks import as_parameter, describe_value
from ..errors import InputError


def kl(p: Tensor, log_a: Tensor) -> Tensor:
    """Return KL(p | a) = Σ p log(p/a) − m(p) + m(a), eq. (1.1), (...), +inf if p > 0 = a somewhere.

    p: (..., n); log_a: (..., n), log a. m(·) is the sum over the last dimension. Each term is computed as
    a·((1 + x) log(1 + x) − x) ≥ 0 with x = (p − a)/a, which keeps the digits of a small divergence even when a large
    rho multiplies it.
    """
    return kl_terms(p, log_a.exp()).sum(-1)


def kl_terms(p: Tensor, a: Tensor) -> Tensor:
    """Return p log(p/a) − p + a elementwise, (..., n) ≥ 0, a where p = 0, +inf where p > 0 = a. p, a: (..., n)."""
    x = (p - a) / a.clamp(min=torch.finfo(a.dtype).tiny)
    terms = a * (torch.special.xlog1py(1.0 + x, x) - x)
    return terms.masked_fill((a == 0) & (p > 0), torch.inf)


class Divergence:
    """A divergence with one parameter, rho or m: a number, or an array (B,) with one value per batch item.

    A subclass checks its parameter and sets tensors () or (B,), and no other attributes: the parameter under its name;
    is_hard, whether the marginal must equal the weights; penalty, the factor of the divergence in the objective.
    """

    is_hard: Tensor
    penalty: Tensor
    _parameter_name = "rho"

    @property
    def _parameter(self) -> Tensor:
        """The parameter as a tensor, () or (B,): the factor rho of KL and TV, or the mass m of a plan for `Mass`."""
        return getattr(self, self._parameter_name)

    def expand(self, batch: int, device: torch.device) -> Self:
        """Return the divergence with tensors (batch,) on `device`, whether they were () or (batch,) before."""
        return self._with_tensors({name: tensor.to(device).expand(batch) for name, tensor in vars(self).items()})

    def take(self, index: Tensor) -> Self:
        """Return the divergence of the batch items `index`, (k,) integers or (B,) bools."""
        return self._with_tensors({name: tensor[index] for name, tensor in vars(self).items()})

    def _with_tensors(self, tensors: dict[str, Tensor]) -> Self:
        """Return a divergence of this class with just the attributes `tensors`, unchecked; checks would await a GPU."""
        divergence = object.__new__(type(self))
        vars(divergence).update(tensors)
        return divergence

    def __repr__(self) -> str:
        """Return the class name with the value of the parameter, or with the number of values if there are several."""
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

    def __init__(self, rho: Any) -> None:
        """Set rho, is_hard (rho = inf) and penalty (rho, 0 if inf), tensors () or (B,); InputError unless rho > 0."""
        self.rho = as_parameter("rho", rho, allow_inf=True)
        self.is_hard = torch.isinf(self.rho)
        # A constraint adds no penalty to the objective and no scalar to the cost.
        self.penalty = torch.where(self.is_hard, 0.0, self.rho)

    def damping(self, eps: Tensor) -> Tensor:
        """Return 1/(1 + eps/rho), (B,), 1 where hard: the factor in Sinkhorn's update f = −damping·eps·LSE(...)."""
        return 1.0 / (1.0 + eps / self.rho)


class TV(Divergence):
    """The penalty rho · |p − a|, total variation, of partial matching: each unit of unmatched mass costs rho.

    rho: a number in (0, inf), or an array (B,) with one value per batch item. Both sides must be TV, or none.

    >>> TV(0.5)
    TV(rho=0.5)
    """

    def __init__(self, rho: Any) -> None:
        """Set rho, is_hard (False) and penalty (rho), tensors () or (B,); raise InputError unless 0 < rho < inf."""
        self.rho = self.penalty = as_parameter("rho of TV", rho)
        self.is_hard = torch.zeros_like(self.rho, dtype=torch.bool)


class Mass(Divergence):
    """The constraints p1 ≤ a, p2 ≤ b and total mass m of partial matching with a given mass.

    m: a number in (0, min(m(a), m(b))], or an array (B,) with one value per batch item. One Mass is for both sides.

    >>> Mass(0.7)
    Mass(m=0.7)
    """

    _parameter_name = "m"

    def __init__(self, m: Any) -> None:
        """Set m, is_hard (False) and penalty (0: no term in F), tensors () or (B,); InputError unless 0 < m < inf."""
        self.m = as_parameter("m of Mass", m)
        self.penalty = torch.zeros_like(self.m)
        self.is_hard = torch.zeros_like(self.m, dtype=torch.bool)


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
    """Return the KL of the first and of the second side for `rho`, a number, array (B,), KL or *tuple* of two of these.

    If `rho` is no tuple, both are one object. Others, TV and Mass among them, raise InputError.

    >>> divergence_pair((1.0, float("inf")))
    (KL(rho=1), KL(rho=inf))
    """
    sides = _split_sides(rho)
    for side in sides:
        if isinstance(side, TV | Mass):
            raise InputError(
                f"rho must be a number or a KL here, got {describe_value(side)}: TV and Mass are for solve, "
                "solve_linear, objective, ugw_loss and pairwise"
            )
    first = sides[0] if isinstance(sides[0], KL) else KL(sides[0])
    if sides[1] is sides[0]:
        return first, first
    return first, sides[1] if isinstance(sides[1], KL) else KL(sides[1])


def partial_divergences(rho: Any) -> tuple[TV | Mass, TV | Mass] | None:
    """Return the divergences of both sides of a partial problem, given `rho` as a TV, a tuple of two, or one Mass.

    Returns None if `rho` is or contains neither TV nor Mass; raises InputError for other mixtures of them.

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
            f"TV must be on both sides, and one Mass applies to both sides, got "
            f"rho=({describe_value(first)}, {describe_value(second)})"
        )
    return first, second


def _split_sides(rho: Any) -> tuple[Any, Any]:
    """Return rho of the first and of the second side: the entries of a tuple of two, else `rho` twice; no lists."""
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
