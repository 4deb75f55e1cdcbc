"""Sums of exponentials over a linear cost, in plain torch: the specification of every other backend.

Shapes: cost (B, n, m), entries may be +inf; log_a (B, n) and log_b (B, m), -inf at zero weights; eps (B,).
Potentials are dimensionless here, phi = f / eps: (B, n) and gamma = g / eps: (B, m).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from .config import KERNEL_CONFIG


class IterationResult(NamedTuple):
    """Where some iterations led to, and what the last of them did, (B, n) and (B, m) for pairs.

    potentials: phi and gamma; updates: how far each went in the last iteration, before the translation, which leaves
    the plan as it is; marginals: of unit mass, those that the updates corrected; newer, older: the last two changes of
    gamma.
    """

    potentials: tuple[Tensor, Tensor]
    updates: tuple[Tensor, Tensor]
    marginals: tuple[Tensor, Tensor]
    newer: Tensor
    older: Tensor


class GibbsKernel(Protocol):
    """What Sinkhorn asks of a cost: two reductions and the plan they lead to.

    The value at a point of weight 0 is arbitrary but finite: nobody reads it.
    """

    log_a: Tensor
    log_b: Tensor
    iterations_per_check: ClassVar[int]  # iterations between two looks at how far they went, 2 at least

    def row_logsumexp(self, gamma: Tensor) -> Tensor:
        """log Σ_j b_j exp(gamma_j − cost_ij / eps). gamma: (B, m). Returns (B, n)."""
        ...

    def col_logsumexp(self, phi: Tensor) -> Tensor:
        """log Σ_i a_i exp(phi_i − cost_ij / eps). phi: (B, n). Returns (B, m)."""
        ...

    def iterate(self, gamma: Tensor, damping: tuple[Tensor, ...], share: Tensor) -> IterationResult:
        """Some iterations of Sinkhorn from gamma, as many as `iterations_per_check` says: eqs. (4.1) and (4.3),

        phi = −damping1 · rows(gamma), gamma = −damping2 · cols(phi), and the translation. damping, share: (B, 1) each.
        What is lost by underflow is NaN.
        """
        ...

    def plan(self, gamma: Tensor, damping: Tensor) -> tuple[Tensor, Any, Tensor]:
        """phi = −damping · rows(gamma), and the plan a_i b_j exp(phi_i + gamma_j − cost_ij / eps) of both.

        Eq. (4.2). damping: (B, 1). Returns phi (B, n), the plan (B, n, m) at unit mass, and its log mass (B,).
        """
        ...

    def recenter(self, gamma: Tensor) -> GibbsKernel:
        """A kernel fit for potentials around `gamma`; itself if it is."""
        ...

    def log_domain(self) -> GibbsKernel:
        """A kernel that is right for any potentials, however slow."""
        ...

    def take(self, index: Tensor) -> GibbsKernel:
        """The same for some items of the batch."""
        ...


class LogDomainIterations:
    """Iterations from the two reductions of a kernel."""

    def iterate(self: GibbsKernel, gamma: Tensor, damping: tuple[Tensor, ...], share: Tensor) -> IterationResult:
        """See `GibbsKernel.iterate`. Nothing is lost."""
        phi = last = gamma
        for _ in range(self.iterations_per_check):
            before, last, last_phi = last, gamma, phi
            row_lse = self.row_logsumexp(gamma)
            new_phi = _free_as_zero(-damping[0] * row_lse)
            col_lse = self.col_logsumexp(new_phi)
            new = _free_as_zero(-damping[1] * col_lse)
            log_p1, log_p2 = self.log_a + new_phi + row_lse, self.log_b + new + col_lse
            shift = share * (torch.logsumexp(log_p1, 1, keepdim=True) - torch.logsumexp(log_p2, 1, keepdim=True))
            phi, gamma = new_phi + shift, new - shift
        updates = new_phi - last_phi, new - last
        marginals = torch.softmax(log_p1 - updates[0], 1), torch.softmax(log_p2, 1)
        return IterationResult((phi, gamma), updates, marginals, gamma - last, last - before)


class LogKernel(LogDomainIterations):
    """Log-sum-exp in every call: slow, and right whatever the range of the cost."""

    iterations_per_check: ClassVar[int] = KERNEL_CONFIG.iterations_per_check

    def __init__(self, scaled: Tensor, log_a: Tensor, log_b: Tensor) -> None:
        self.log_a, self.log_b = log_a, log_b
        self.scaled = scaled  # −cost / eps

    def row_logsumexp(self, gamma: Tensor) -> Tensor:
        """See `GibbsKernel.row_logsumexp`."""
        return torch.logsumexp(self.scaled + (self.log_b + gamma)[:, None, :], dim=2)

    def col_logsumexp(self, phi: Tensor) -> Tensor:
        """See `GibbsKernel.col_logsumexp`."""
        return torch.logsumexp(self.scaled + (self.log_a + phi)[:, :, None], dim=1)

    def plan(self, gamma: Tensor, damping: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See `GibbsKernel.plan`."""
        plan = self.scaled + (self.log_b + gamma)[:, None, :]
        largest = _finite_or_zero(plan.amax(dim=2))
        plan.sub_(largest[:, :, None]).exp_()
        rows = largest + plan.sum(dim=2).log()
        phi = _free_as_zero(-damping * rows)
        log_mass = torch.logsumexp(self.log_a + phi + rows, dim=1)
        # Each row has its largest entry at 1, or no mass at all: the factor is at most 1, and NaN if no row has mass.
        nowhere = (log_mass == -math.inf)[:, None]
        factor = (self.log_a + phi + largest - log_mass[:, None]).masked_fill_(rows == -math.inf, -math.inf)
        return phi, plan.mul_(factor.masked_fill_(nowhere, torch.nan).exp_()[:, :, None]), log_mass

    def recenter(self, gamma: Tensor) -> LogKernel:
        """See `GibbsKernel.recenter`."""
        return self

    def log_domain(self) -> LogKernel:
        """See `GibbsKernel.log_domain`."""
        return self

    def take(self, index: Tensor) -> LogKernel:
        """See `GibbsKernel.take`."""
        return LogKernel(self.scaled[index], self.log_a[index], self.log_b[index])


class StabilizedKernel:
    """K = exp(log a ⊕ log b − cost/eps + alpha ⊕ beta), stored: two matrix-vector products an iteration.

    `alpha` and `beta` make the largest entry of every row and column 1, so a sum under- or overflows only if
    the potentials leave them by more than the exponent range. The result is then not finite: the caller
    takes `log_domain()` instead.
    """

    iterations_per_check: ClassVar[int] = KERNEL_CONFIG.iterations_per_check

    def __init__(self, log_kernel: LogKernel, gamma: Tensor) -> None:
        self._log, self._anchor = log_kernel, gamma
        self.log_a, self.log_b = log_kernel.log_a, log_kernel.log_b
        log_k = log_kernel.scaled + (self.log_b + gamma)[:, None, :]
        # A row without weight is 0, any other has 1 as its largest entry; then the same for columns.
        present = self.log_a > -math.inf
        up = torch.where(present, _finite_or_zero(-log_k.amax(dim=2)), -math.inf)
        self._alpha = torch.where(present, up - self.log_a, 0.0)
        log_k += up[:, :, None]
        shift = _finite_or_zero(-log_k.amax(dim=1))
        self._beta = gamma + shift
        log_k += shift[:, None, :]
        self._k = log_k.exp_()
        self._prepare()

    def _prepare(self) -> None:
        self._pad_a, self._pad_b = _padding(self.log_a), _padding(self.log_b)
        self._offset_a = _finite_or_zero(self._alpha + self.log_a)
        self._offset_b = _finite_or_zero(self._beta + self.log_b)
        self._sides: tuple[Tensor, Tensor] | None = None

    def row_logsumexp(self, gamma: Tensor) -> Tensor:
        """See `GibbsKernel.row_logsumexp`."""
        scaling = (gamma - self._beta).exp_()
        sums = _padded(_times(self._k, scaling), self._pad_a)
        return _lost(sums, scaling).log().sub_(self._offset_a)

    def col_logsumexp(self, phi: Tensor) -> Tensor:
        """See `GibbsKernel.col_logsumexp`."""
        scaling = (phi - self._alpha).exp_()
        sums = _padded(_times(self._k.mT, scaling), self._pad_b)
        return _lost(sums, scaling).log().sub_(self._offset_b)

    def iterate(self, gamma: Tensor, damping: tuple[Tensor, ...], share: Tensor) -> IterationResult:
        """See `GibbsKernel.iterate`. In as few operations as it takes: on small plans these are most of the time.

        x = phi − alpha and y = gamma − beta are iterated: their exponentials u, v scale K to the plan, whose marginals
        are then u·(K v) and v·(Kᵀ u).
        """
        minus = -damping[0], -damping[1]
        base_a = torch.addcmul(self._alpha, minus[0], self._offset_a).neg_()
        base_b = torch.addcmul(self._beta, minus[1], self._offset_b).neg_()
        x = y = last = gamma - self._beta
        v = y.exp()
        for left in reversed(range(self.iterations_per_check)):
            before, last, last_x = last, y, x
            sums_a = _times(self._k, v)
            floored = _padded(sums_a, self._pad_a)
            new_x = torch.addcmul(base_a, minus[0], (_lost(floored, v) if left == 0 else floored).log())
            u = new_x.exp()
            sums_b = _times(self._k.mT, u)
            floored = _padded(sums_b, self._pad_b)
            new_y = torch.addcmul(base_b, minus[1], (_lost(floored, u) if left == 0 else floored).log())
            v = new_y.exp()
            p1, p2 = u.mul_(sums_a), sums_b.mul_(v)
            masses = p1.sum(1, keepdim=True), p2.sum(1, keepdim=True)
            shift = share * (masses[0] / masses[1]).log_()
            if left < 3:  # nobody asks for those before
                x, y = new_x + shift, new_y - shift
            v.mul_((-shift).exp_())
        updates = new_x - last_x, new_y - last
        marginals = torch.softmax(p1.log_() - updates[0], 1), p2 / masses[1]
        return IterationResult((x + self._alpha, y + self._beta), updates, marginals, y - last, last - before)

    def stored(self) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """K (B, n, m), and the shift, offset, log weight and padding of each side, (B, 4, n) and (B, 4, m)."""
        if self._sides is None:
            self._sides = (
                torch.stack([self._alpha, self._offset_a, self.log_a, _missing(self.log_a, self._pad_a)], dim=1),
                torch.stack([self._beta, self._offset_b, self.log_b, _missing(self.log_b, self._pad_b)], dim=1),
            )
        return self._k, self._sides

    def plan(self, gamma: Tensor, damping: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See `GibbsKernel.plan`."""
        return self._log.plan(gamma, damping)

    def recenter(self, gamma: Tensor) -> StabilizedKernel:
        """See `GibbsKernel.recenter`. A tenth of the exponent range is for the drift, nine for the spread of K."""
        limit = 0.1 * math.log(torch.finfo(gamma.dtype).max)
        return self if (gamma - self._anchor).abs().amax() <= limit else StabilizedKernel(self._log, gamma)

    def log_domain(self) -> LogKernel:
        """See `GibbsKernel.log_domain`."""
        return self._log

    def take(self, index: Tensor) -> StabilizedKernel:
        """See `GibbsKernel.take`."""
        part = object.__new__(StabilizedKernel)
        part._log, part._anchor = self._log.take(index), self._anchor[index]
        part.log_a, part.log_b = part._log.log_a, part._log.log_b
        part._alpha, part._beta, part._k = self._alpha[index], self._beta[index], self._k[index]
        part._prepare()
        return part


def _times(matrix: Tensor, vector: Tensor) -> Tensor:
    """A product for each item. matrix: (B, n, m), vector: (B, m). Returns (B, n)."""
    if matrix.is_cuda:
        return torch.bmm(matrix, vector[:, :, None])[:, :, 0]
    # On a CPU a batch of products with columns takes four times as long as the same with rows.
    return torch.bmm(vector[:, None, :], matrix.mT)[:, 0]


def _missing(log_weights: Tensor, known: Tensor | None = None) -> Tensor:
    """1 at points of weight 0, else 0; what is known of that already."""
    return (log_weights == -math.inf).to(log_weights.dtype) if known is None else known


def _padding(log_weights: Tensor) -> Tensor | None:
    """What is added to sums at points of weight 0, which are 0, so that they have a logarithm; None if nothing."""
    found = _missing(log_weights)
    return found if found.is_cuda or bool(found.any()) else None


def _padded(sums: Tensor, padding: Tensor | None) -> Tensor:
    return sums if padding is None else sums + padding


def _free_as_zero(potential: Tensor) -> Tensor:
    """A point all of whose pairs are forbidden has no mass to move: its potential is free, say 0."""
    return torch.nan_to_num(potential, torch.nan, 0.0, 0.0)


def _lost(sums: Tensor, scaling: Tensor) -> Tensor:
    """NaN where a sum is so small that entries of K lost to underflow could have mattered. sums: (B, n)."""
    info = torch.finfo(sums.dtype)
    floor = scaling.amax(dim=1, keepdim=True) * (scaling.shape[1] * info.tiny / info.eps)
    return torch.where(sums > floor, sums, torch.nan)


def _finite_or_zero(value: Tensor) -> Tensor:
    return torch.nan_to_num(value, 0.0, 0.0, 0.0)  # where(isfinite(...)) is six operations
