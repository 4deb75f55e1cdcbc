"""UGW beside CGW on the same spaces: how tight the bound CGW ≤ UGW is, and proof that it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .api import objective, solve, solve_conic
from .cones import GaussianHellinger, PartialTransport, read_loss
from .conic_result import ConicResult
from .errors import InputError
from .parameters import longest_distance, relative
from .result import Result
from .spaces import Space


@dataclass(frozen=True, eq=False, repr=False)
class Tightness:
    """CGW and UGW of two spaces: their values without entropy, and the results they come from."""

    conic: ConicResult
    unbalanced: Result
    ugw: Any

    @property
    def cgw(self) -> Any:
        """The conic value."""
        return self.conic.value

    @property
    def ratio(self) -> Any:
        """CGW / UGW, at most 1; 1 where both are 0 up to rounding, as for isometric spaces."""
        cgw, ugw = torch.as_tensor(self.cgw), torch.as_tensor(self.ugw)
        size = torch.as_tensor(self.conic.terms.apart)
        nothing = ugw.abs() <= 1e-12 * size
        ratio = torch.where(nothing, 1.0, cgw / torch.where(nothing, 1.0, ugw))
        if not self.conic.numpy:
            return ratio
        return ratio.numpy() if ratio.ndim else float(ratio)

    @property
    def holds(self) -> bool:
        """The certificate: is the conic value, with all that the kernel's error may add, below that of the UGW plan?"""
        bound, ugw = torch.as_tensor(self.conic.value_bound), torch.as_tensor(self.ugw)
        rounding = 100.0 * torch.finfo(torch.as_tensor(self.conic.plan).dtype).eps
        return bool((bound <= ugw + rounding * torch.as_tensor(self.conic.terms.apart)).all())

    def __repr__(self) -> str:
        if self.conic.batched:
            ratios = torch.as_tensor(self.ratio)
            return (
                f"Tightness(batch of {len(self.conic)}, CGW/UGW from {float(ratios.min()):.4f} to "
                f"{float(ratios.max()):.4f}, {'certified' if self.holds else 'NOT certified'})"
            )
        return (
            f"CGW        {float(self.cgw):.8g}\n"
            f"UGW        {float(self.ugw):.8g}\n"
            f"CGW / UGW  {float(self.ratio):.6f}\n"
            f"CGW ≤ UGW  {'certified' if self.holds else 'NOT certified: solve with another init or a smaller tol'}"
        )


def tightness(x: Space, y: Space, *, rho: Any = 1.0, cone: Any = "gaussian-hellinger", eps: Any = None) -> Tightness:
    """CGW and UGW of two spaces with the same cone, their ratio, and a certificate that CGW ≤ UGW.

    UGW is solved with a small eps, `relative(1e-3)` if None, and its plan is then valued without entropy. CGW is
    solved from that plan and from its own starts, so it is never above it.

    >>> import numpy as np, ugw
    >>> rng = np.random.default_rng(0)
    >>> x, y = ugw.Space.from_points(rng.random((6, 2))), ugw.Space.from_points(rng.random((7, 2)))
    >>> t = ugw.tightness(x, y, rho=0.5)
    >>> t.holds, bool(0.5 < t.ratio <= 1.0)
    (True, True)
    """
    read = read_loss(cone, longest_distance(x, y), name="cone")
    if isinstance(read, PartialTransport):
        raise InputError(
            "tightness compares with UGW, which is over KL: cone must be one over KL, got PartialTransport"
        )
    loss = None if isinstance(read, GaussianHellinger) else read
    unbalanced = solve(x, y, rho=rho, eps=relative(1e-3) if eps is None else eps, loss=loss)
    value = objective(unbalanced.plan, x, y, rho=rho, loss=loss).total
    own = solve_conic(x, y, rho=rho, cone=cone)
    conic = own.better(solve_conic(x, y, rho=rho, cone=cone, init=unbalanced))
    return Tightness(conic, unbalanced, value)
