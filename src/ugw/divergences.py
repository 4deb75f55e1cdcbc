"""How a marginal of the plan may differ from its weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._check import positive
from .errors import InputError


def kl(p: Tensor, log_a: Tensor) -> Tensor:
    """KL(p | a) = Σ p log(p/a) − m(p) + m(a) over the last dimension, 0 log 0 = 0. p, log_a: (..., n).

    Each term is a·((1 + x) log(1 + x) − x) ≥ 0 with x = (p − a)/a, which keeps the digits of a small divergence
    even when a large rho multiplies it. +inf where p > 0 = a.
    """
    a = log_a.exp()
    x = (p - a) / torch.where(a > 0, a, 1.0)
    terms = a * (torch.special.xlog1py(1.0 + x, x) - x)
    return torch.where(a > 0, terms, torch.where(p > 0, torch.inf, 0.0)).sum(-1)


class KL:
    """rho · KL(p | a); rho = inf makes the marginal a constraint.

    rho: a number in (0, inf], or an array (B,) with one for each item of a batch.

    >>> KL(2.0)
    KL(rho=2)
    >>> KL(torch.tensor([1.0, float("inf")])).hard.tolist()
    [False, True]
    """

    def __init__(self, rho: Any) -> None:
        self.rho: Tensor = positive("rho", rho)
        self.hard: Tensor = torch.isinf(self.rho)
        # A constraint adds no penalty to the value and no scalar to the cost.
        self.penalty: Tensor = torch.where(self.hard, 0.0, self.rho)

    def damping(self, eps: Tensor) -> Tensor:
        """The proximal step of Sinkhorn: f = −damping · eps · LSE(...). 1 where hard. eps: (B,)."""
        return 1.0 / (1.0 + eps / self.rho)

    def expand(self, batch: int, device: torch.device) -> KL:
        """One rho for each of `batch` items, on the device."""
        return self._with(self.rho.to(device).expand(batch))

    def take(self, index: Tensor) -> KL:
        """The divergences of some items."""
        return self._with(self.rho[index])

    def _with(self, rho: Tensor) -> KL:
        """Other values of a rho that was checked before; they stay on their device."""
        other = object.__new__(KL)
        other.rho, other.hard = rho, torch.isinf(rho)
        other.penalty = torch.where(other.hard, 0.0, rho)
        return other

    def __repr__(self) -> str:
        values = self.rho.flatten().tolist()
        return f"KL(rho={values[0]:g})" if len(values) == 1 else f"KL(rho of {len(values)} items)"


def Balanced() -> KL:
    """The marginal is a constraint: KL(inf)."""
    return KL(float("inf"))


def divergence_pair(rho: Any) -> tuple[KL, KL]:
    """Read `rho`: a number, an array per item, a divergence, or a *tuple* with one of these for each side.

    >>> divergence_pair((1.0, float("inf")))
    (KL(rho=1), KL(rho=inf))
    """
    if isinstance(rho, tuple):
        if len(rho) != 2:
            raise InputError(f"rho as a tuple must be (first side, second side), got {len(rho)} entries")
        first, second = rho
    elif isinstance(rho, list):
        raise InputError(
            f"rho must be a number, a tuple (first side, second side) or an array (B,), one for each item, got a list "
            f"of {len(rho)}: write tuple(rho) or np.array(rho)"
        )
    else:
        first = second = rho
    return _divergence(first), _divergence(second)


def _divergence(rho: Any) -> KL:
    return rho if isinstance(rho, KL) else KL(positive("rho", rho))
