"""Dx · plan · Dy where a few combinations of the plan's columns span all of them.

Under much entropy a plan is a smooth function of the points: 500 of its columns differ from combinations of ten by
rounding alone. Products with those combinations take O(n m r) operations instead of O(n² m).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ...geometry.metric import Metric

# Combinations that are tried first, and what may be left of the plan then, as a share of its size: entries that are
# rounded are of full rank, so in float32 no less, and in float64 a millionth of what a default tolerance leaves.
FIRST = {torch.float32: 24, torch.float64: 60}
LEFT = {torch.float32: 2e-6, torch.float64: 1e-12}
# So many combinations more say what is left.
PROBES = 4
# As many combinations as this share of the points are as dear as all columns, which of fewer points are cheap anyway.
DEAR, FEW = 6, 240
# The digits that combinations span grow with their number: so many times what they say is tried next.
MARGIN = 1.25
# The first plan of a problem may be anybody's: that it is not smooth says nothing of those to come.
PATIENCE = 2


class Spans:
    """How many combinations the plans of a problem needed so far, and how many plans could not be spanned."""

    def __init__(self) -> None:
        self.count, self.failed = 0, 0
        self._draws: Tensor | None = None

    def draws(self, size: int, count: int, like: Tensor) -> Tensor:
        """Normal numbers (size, count) to combine columns by; those of the last call are kept."""
        if self._draws is None or self._draws.shape != (size, count) or self._draws.dtype != like.dtype:
            self._draws = _normal(size, count, like.dtype)
        return self._draws


def sandwich(dx: Metric, plan: Tensor, dy: Metric, spans: Spans) -> Tensor | None:
    """Dx · plan · Dy for symmetric distances, None where that is not faster so. plan: (B, n, m).

    On a CPU, without gradients. As many combinations for all items: what is LEFT of one may depend on the others.
    """
    fewest, points = max(spans.count, FIRST[plan.dtype]), min(plan.shape[1:])
    most = points // DEAR if points >= FEW else 0
    if fewest > most or spans.failed >= PATIENCE or plan.is_cuda or torch.is_grad_enabled():
        return None
    if dx.factors() is not None or dy.factors() is not None:
        return None
    p1, p2 = plan.sum(2, keepdim=True), plan.sum(1, keepdim=True).mT
    # Without the product of its marginals: what a basis is rounded by would show in the value of the plan.
    rest, size, count = torch.baddbmm(plan, p1, p2.mT, alpha=-1.0), plan.square().sum(dim=(1, 2)), fewest
    while count <= most:
        basis, digits = _spanned(rest, size, spans.draws(rest.shape[2], count + PROBES, rest))
        if digits >= 1.0:
            spans.count = count
            return torch.baddbmm(dx.apply(p1) @ dy.apply(p2).mT, dx.apply(basis), dy.apply(rest.mT @ basis).mT)
        count = math.ceil(count * MARGIN / digits) if digits > 0.0 else most + 1
    spans.failed += 1
    return None


def _spanned(rest: Tensor, size: Tensor, draws: Tensor) -> tuple[Tensor, float]:
    """Orthonormal combinations of columns, (B, n, draws but PROBES), and which share of the digits they span.

    rest: (B, n, m), of plans of this size (B,), a sum of squares. NaN where there is nothing to span.
    """
    products = rest @ draws
    found, probes = products[:, :, PROBES:], products[:, :, :PROBES]
    basis = torch.linalg.qr(found).Q
    left = (probes - basis @ (basis.mT @ probes)).square().sum(dim=(1, 2)) / PROBES
    share = (left / size).sqrt().max()
    return basis, math.log(max(float(share), torch.finfo(rest.dtype).tiny)) / math.log(LEFT[rest.dtype])


def _normal(size: int, count: int, dtype: torch.dtype) -> Tensor:
    """Normal numbers (size, count), the same for the first rows whatever the size."""
    return torch.as_tensor(np.random.default_rng(0).standard_normal((size, count)), dtype=dtype)
