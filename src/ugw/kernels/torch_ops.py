"""Sums of exponentials over a linear cost, in plain torch: the specification of every other backend.

Shapes: cost (B, n, m), entries may be +inf; log_a (B, n) and log_b (B, m), -inf at zero weights; eps (B,).
Potentials are dimensionless here, phi = f / eps: (B, n) and gamma = g / eps: (B, m).
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
from torch import Tensor


class Kernel(Protocol):
    """What Sinkhorn asks of a cost: two reductions and the plan they lead to.

    The value at a point of weight 0 is arbitrary but finite: nobody reads it.
    """

    log_a: Tensor
    log_b: Tensor

    def rows(self, gamma: Tensor) -> Tensor:
        """log Σ_j b_j exp(gamma_j − cost_ij / eps). gamma: (B, m). Returns (B, n)."""
        ...

    def cols(self, phi: Tensor) -> Tensor:
        """log Σ_i a_i exp(phi_i − cost_ij / eps). phi: (B, n). Returns (B, m)."""
        ...

    def plan(self, gamma: Tensor, damping: Tensor) -> tuple[Tensor, Any, Tensor]:
        """phi = −damping · rows(gamma), and the plan a_i b_j exp(phi_i + gamma_j − cost_ij / eps) of both.

        Eq. (4.2). damping: (B, 1). Returns phi (B, n), the plan (B, n, m) at unit mass, and its log mass (B,).
        """
        ...

    def near(self, gamma: Tensor) -> Kernel:
        """A kernel fit for potentials around `gamma`; itself if it is."""
        ...

    def exact(self) -> Kernel:
        """A kernel that is right for any potentials, however slow."""
        ...

    def take(self, index: Tensor) -> Kernel:
        """The same for some items of the batch."""
        ...


class LogKernel:
    """Log-sum-exp in every call: slow, and right whatever the range of the cost."""

    def __init__(self, scaled: Tensor, log_a: Tensor, log_b: Tensor) -> None:
        self.log_a, self.log_b = log_a, log_b
        self.scaled = scaled  # −cost / eps

    def rows(self, gamma: Tensor) -> Tensor:
        """See `Kernel.rows`."""
        return torch.logsumexp(self.scaled + (self.log_b + gamma)[:, None, :], dim=2)

    def cols(self, phi: Tensor) -> Tensor:
        """See `Kernel.cols`."""
        return torch.logsumexp(self.scaled + (self.log_a + phi)[:, :, None], dim=1)

    def plan(self, gamma: Tensor, damping: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See `Kernel.plan`."""
        phi = free_as_zero(-damping * self.rows(gamma))
        log_plan = self.scaled + (self.log_a + phi)[:, :, None]
        log_plan += (self.log_b + gamma)[:, None, :]
        log_mass = torch.logsumexp(log_plan, dim=(1, 2))
        log_plan -= log_mass[:, None, None]
        return phi, log_plan.exp_(), log_mass

    def near(self, gamma: Tensor) -> LogKernel:
        """See `Kernel.near`."""
        return self

    def exact(self) -> LogKernel:
        """See `Kernel.exact`."""
        return self

    def take(self, index: Tensor) -> LogKernel:
        """See `Kernel.take`."""
        return LogKernel(self.scaled[index], self.log_a[index], self.log_b[index])


class StabilisedKernel:
    """K = exp(log a ⊕ log b − cost/eps + alpha ⊕ beta), stored: two matrix-vector products an iteration.

    `alpha` and `beta` make the largest entry of every row and column 1, so a sum under- or overflows only if
    the potentials leave them by more than the exponent range. The result is then not finite: the caller
    takes `exact()` instead.
    """

    def __init__(self, log_kernel: LogKernel, gamma: Tensor) -> None:
        self._log, self._anchor = log_kernel, gamma
        self.log_a, self.log_b = log_kernel.log_a, log_kernel.log_b
        log_k = log_kernel.scaled + self.log_a[:, :, None]
        log_k += (self.log_b + gamma)[:, None, :]
        self._alpha = _finite_or_zero(-log_k.amax(dim=2))
        log_k += self._alpha[:, :, None]
        shift = _finite_or_zero(-log_k.amax(dim=1))
        self._beta = gamma + shift
        log_k += shift[:, None, :]
        self._k = log_k.exp_()
        self._prepare()

    def _prepare(self) -> None:
        # Zero weights: their sums are 0; one is added to keep the logarithm finite.
        self._pad_a, self._pad_b = ((w == -math.inf).to(w.dtype) for w in (self.log_a, self.log_b))
        self._offset_a = _finite_or_zero(self._alpha + self.log_a)
        self._offset_b = _finite_or_zero(self._beta + self.log_b)
        self._sides: tuple[Tensor, Tensor] | None = None

    def rows(self, gamma: Tensor) -> Tensor:
        """See `Kernel.rows`."""
        scaling = (gamma - self._beta).exp_()
        sums = torch.bmm(self._k, scaling[:, :, None])[:, :, 0].add_(self._pad_a)
        return _lost(sums, scaling).log_().sub_(self._offset_a)

    def cols(self, phi: Tensor) -> Tensor:
        """See `Kernel.cols`."""
        scaling = (phi - self._alpha).exp_()
        sums = torch.bmm(scaling[:, None, :], self._k)[:, 0].add_(self._pad_b)
        return _lost(sums, scaling).log_().sub_(self._offset_b)

    def sweep(self, gamma: Tensor, damping: tuple[Tensor, ...], share: Tensor, *, last: bool) -> tuple[Tensor, ...]:
        """An iteration of Sinkhorn, in as few operations as it takes: on small plans these are most of the time.

        phi = −damping1 · rows(gamma), gamma = −damping2 · cols(phi), the logarithms of both marginals, and the
        translation share · (log m1 − log m2). What is not finite, or in the last of several iterations lost, is NaN.
        """
        scaling_b = (gamma - self._beta).exp_()
        sums_a = torch.bmm(self._k, scaling_b[:, :, None])[:, :, 0].add_(self._pad_a)
        rows = (_lost(sums_a, scaling_b) if last else sums_a).log().sub_(self._offset_a)
        phi = rows * -damping[0]
        scaling_a = (phi - self._alpha).exp_()
        sums_b = torch.bmm(scaling_a[:, None, :], self._k)[:, 0].add_(self._pad_b)
        cols = (_lost(sums_b, scaling_a) if last else sums_b).log().sub_(self._offset_b)
        new = cols * -damping[1]
        log_p1, log_p2 = rows.add_(phi).add_(self.log_a), cols.add_(new).add_(self.log_b)
        masses = [log_p.exp().sum(1, keepdim=True) for log_p in (log_p1, log_p2)]
        return phi, new, log_p1, log_p2, share * masses[0].div_(masses[1]).log_()

    def stored(self) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """K (B, n, m), and the shift, offset, log weight and padding of each side, (B, 4, n) and (B, 4, m)."""
        if self._sides is None:
            self._sides = (
                torch.stack([self._alpha, self._offset_a, self.log_a, self._pad_a], dim=1),
                torch.stack([self._beta, self._offset_b, self.log_b, self._pad_b], dim=1),
            )
        return self._k, self._sides

    def plan(self, gamma: Tensor, damping: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See `Kernel.plan`."""
        return self._log.plan(gamma, damping)

    def near(self, gamma: Tensor) -> StabilisedKernel:
        """See `Kernel.near`. A tenth of the exponent range is for the drift, nine for the spread of K."""
        limit = 0.1 * math.log(torch.finfo(gamma.dtype).max)
        return self if (gamma - self._anchor).abs().amax() <= limit else StabilisedKernel(self._log, gamma)

    def exact(self) -> LogKernel:
        """See `Kernel.exact`."""
        return self._log

    def take(self, index: Tensor) -> StabilisedKernel:
        """See `Kernel.take`."""
        part = object.__new__(StabilisedKernel)
        part._log, part._anchor = self._log.take(index), self._anchor[index]
        part.log_a, part.log_b = part._log.log_a, part._log.log_b
        part._alpha, part._beta, part._k = self._alpha[index], self._beta[index], self._k[index]
        part._prepare()
        return part


def free_as_zero(potential: Tensor) -> Tensor:
    """A point all of whose pairs are forbidden has no mass to move: its potential is free, say 0."""
    return torch.where(torch.isinf(potential), 0.0, potential)


def _lost(sums: Tensor, scaling: Tensor) -> Tensor:
    """NaN where a sum is so small that entries of K lost to underflow could have mattered. sums: (B, n)."""
    info = torch.finfo(sums.dtype)
    floor = scaling.amax(dim=1, keepdim=True) * (scaling.shape[1] * info.tiny / info.eps)
    return torch.where(sums > floor, sums, torch.nan)


def _finite_or_zero(value: Tensor) -> Tensor:
    return torch.where(torch.isfinite(value), value, 0.0)
