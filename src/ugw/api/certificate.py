"""UGW beside CGW on the same spaces: how tight the bound CGW ≤ UGW is, and proof that it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..geometry.space import Space
from ..measures.cones import Cone, GaussianHellinger, PartialTransport
from ..problems.build import check_finite_rho, is_finite_loss, max_distance_difference, parse_cone, relative
from ..results.conic_result import ConicResult
from ..results.result import Result
from .conic import solve_conic
from .objective import objective
from .solve import solve

# Values below this share of those of all mass apart are 0, up to the tolerance of a solver; or so many units of
# rounding, where that is more.
NOTHING, ROUNDING = 1e-9, 100.0


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
        """CGW / UGW, from 0 to 1; 1 where both are 0 up to rounding, as for isometric spaces at eps = 0."""
        cgw, ugw = torch.as_tensor(self.cgw).clamp(min=0.0), torch.as_tensor(self.ugw)
        nothing = torch.maximum(cgw, ugw.abs()) <= max(NOTHING, self._rounding) * torch.as_tensor(
            self.conic.terms.apart
        )
        ratio = torch.where(nothing, 1.0, cgw / torch.where(nothing, 1.0, ugw))
        if not self.conic.numpy:
            return ratio
        return ratio.numpy() if ratio.ndim else float(ratio)

    @property
    def holds(self) -> bool:
        """The certificate: is the conic value, with all that the kernel's error may add, below that of the UGW plan?"""
        bound, ugw = torch.as_tensor(self.conic.value_bound), torch.as_tensor(self.ugw)
        return bool((bound <= ugw + self._rounding * torch.as_tensor(self.conic.terms.apart)).all())

    @property
    def _rounding(self) -> float:
        return ROUNDING * torch.finfo(self.conic.tensors.plan.dtype).eps

    def __repr__(self) -> str:
        if self.conic.batched:
            ratios = torch.as_tensor(self.ratio)
            return (
                f"Tightness(batch of {len(self.conic)}, CGW/UGW from {float(ratios.min()):.4f} to "
                f"{float(ratios.max()):.4f}, {'certified' if self.holds else 'NOT certified'})"
            )
        verdict = "certified" if self.holds else "NOT certified: try another eps, or a cone with a larger max_rank"
        return (
            f"CGW        {float(self.cgw):.8g}\n"
            f"UGW        {float(self.ugw):.8g}\n"
            f"CGW / UGW  {float(self.ratio):.6f}\n"
            f"CGW ≤ UGW  {verdict}"
        )


def tightness(x: Space, y: Space, *, rho: Any = 1.0, cone: Any = "gaussian-hellinger", eps: Any = None) -> Tightness:
    """CGW and UGW of two spaces with the same cone, their ratio, and a certificate that CGW ≤ UGW.

    UGW is solved with a small eps, `relative(1e-3)` if None, and its plan is then valued without entropy. Each is
    solved from its own starts and from the plan of the other, so CGW is never above UGW. Where λ is infinite somewhere,
    UGW starts from the part of the conic plan that pays it nowhere, and from nothing else.

    >>> import numpy as np, ugw
    >>> rng = np.random.default_rng(0)
    >>> x, y = ugw.Space.from_points(rng.random((6, 2))), ugw.Space.from_points(rng.random((7, 2)))
    >>> t = ugw.tightness(x, y, rho=0.5)
    >>> t.holds, bool(0.5 < t.ratio <= 1.0)
    (True, True)
    """
    read = parse_cone(x, y, cone)
    check_finite_rho(rho)
    if isinstance(read, PartialTransport):
        raise InputError(
            "tightness compares with UGW, which is over KL: cone must be one over KL, got PartialTransport"
        )
    loss = None if isinstance(read, GaussianHellinger) else read
    own = solve_conic(x, y, rho=rho, cone=read)
    finite, entropy = is_finite_loss(read, max_distance_difference(x, y)), relative(1e-3) if eps is None else eps
    start = own.plan if finite else _affordable(own, x, y, read)
    unbalanced = solve(x, y, rho=rho, eps=entropy, loss=loss, init=start)
    if finite:
        unbalanced = solve(x, y, rho=rho, eps=entropy, loss=loss).better(unbalanced)
    value = objective(unbalanced.plan, x, y, rho=rho, loss=loss).total
    conic = own.better(solve_conic(x, y, rho=rho, cone=read, init=unbalanced))
    return Tightness(conic, unbalanced, value)


def _affordable(conic: ConicResult, x: Space, y: Space, loss: Cone) -> Tensor:
    """The conic plan where no two pairs of points cost infinitely much: from its largest entries on, greedily."""
    made = []
    for i, plan in enumerate(conic.tensors.plan):
        dx, dy = (space.metric.item(i, space.n).dense() for space in (x, y))
        paid = torch.isfinite(loss((dx.diagonal()[:, None] - dy.diagonal()).abs()))
        left, kept = torch.where(paid, plan, 0.0), torch.zeros_like(plan)
        while bool((left > 0).any()):
            k, o = divmod(int(left.argmax()), y.n)
            kept[k, o] = plan[k, o]
            left[k, o] = 0.0
            left = torch.where(torch.isfinite(loss((dx[k][:, None] - dy[o]).abs())), left, 0.0)
        if not bool(kept.any()):
            raise InputError(
                "cone must have a finite λ at some pair of points, else UGW has no plan: "
                "got distances that all differ by more than its cutoff"
            )
        made.append(kept)
    return torch.stack(made) if conic.batched else made[0]
