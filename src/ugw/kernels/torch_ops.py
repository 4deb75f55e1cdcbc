"""Sums of exponentials over a linear cost, in plain torch: the specification of every other backend.

Shapes: cost (B, n, m), entries may be +inf; log_a (B, n) and log_b (B, m), -inf at zero weights; eps (B,).
Potentials are dimensionless here, phi = f / eps: (B, n) and gamma = g / eps: (B, m).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class Kernel(Protocol):
    """What Sinkhorn asks of a cost: two reductions and the plan they lead to."""

    def rows(self, gamma: Tensor) -> Tensor:
        """log Σ_j b_j exp(gamma_j − cost_ij / eps). gamma: (B, m). Returns (B, n)."""
        ...

    def cols(self, phi: Tensor) -> Tensor:
        """log Σ_i a_i exp(phi_i − cost_ij / eps). phi: (B, n). Returns (B, m)."""
        ...

    def plan(self, phi: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
        """Shape (B, n, m) of unit mass, and log mass (B,), of a_i b_j exp(phi_i + gamma_j − cost_ij / eps)."""
        ...

    def take(self, index: Tensor) -> Kernel:
        """The same for some items of the batch."""
        ...


class LogKernel:
    """Log-sum-exp in every call: slow, and right whatever the range of the cost."""

    def __init__(self, cost: Tensor, log_a: Tensor, log_b: Tensor, eps: Tensor) -> None:
        self.log_a, self.log_b = log_a, log_b
        self._scaled = cost / -eps[:, None, None]

    def rows(self, gamma: Tensor) -> Tensor:
        """See `Kernel.rows`."""
        return torch.logsumexp(self._scaled + (self.log_b + gamma)[:, None, :], dim=2)

    def cols(self, phi: Tensor) -> Tensor:
        """See `Kernel.cols`."""
        return torch.logsumexp(self._scaled + (self.log_a + phi)[:, :, None], dim=1)

    def plan(self, phi: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
        """See `Kernel.plan`."""
        log_plan = self._scaled + (self.log_a + phi)[:, :, None] + (self.log_b + gamma)[:, None, :]
        log_mass = torch.logsumexp(log_plan, dim=(1, 2))
        return (log_plan - log_mass[:, None, None]).exp_(), log_mass

    def take(self, index: Tensor) -> LogKernel:
        """See `Kernel.take`."""
        part = object.__new__(LogKernel)
        part.log_a, part.log_b, part._scaled = self.log_a[index], self.log_b[index], self._scaled[index]
        return part


class StabilisedKernel:
    """K = exp(log a ⊕ log b − cost/eps + alpha ⊕ beta), stored: two matrix-vector products an iteration.

    `alpha` and `beta` make the largest entry of every row and column 1, so a sum underflows only if the
    potentials differ from them by more than the exponent range. Then, and when `gamma` has drifted far from
    where K was made, the log-sum-exp takes over: same numbers, never an infinity.
    """

    def __init__(self, log_kernel: LogKernel, gamma: Tensor) -> None:
        self._log = log_kernel
        self.log_a, self.log_b = log_kernel.log_a, log_kernel.log_b
        # A tenth of the exponent range for the drift of the potentials leaves nine for the spread of K.
        self._limit = 0.1 * math.log(torch.finfo(gamma.dtype).max)
        self._absorb(gamma)

    def _absorb(self, gamma: Tensor) -> None:
        self._anchor = gamma
        log_k = self._log._scaled + self.log_a[:, :, None]
        log_k += (self.log_b + gamma)[:, None, :]
        self._alpha = _finite_or_zero(-log_k.amax(dim=2))
        log_k += self._alpha[:, :, None]
        shift = _finite_or_zero(-log_k.amax(dim=1))
        self._beta = gamma + shift
        log_k += shift[:, None, :]
        self._k = log_k.exp_()

    def rows(self, gamma: Tensor) -> Tensor:
        """See `Kernel.rows`."""
        if (gamma - self._anchor).abs().amax() > self._limit:
            self._absorb(gamma)
        sums = torch.matmul(self._k, (gamma - self._beta).exp()[:, :, None]).squeeze(2)
        value = sums.log() - self._alpha - self.log_a
        return self._repair(value, self.log_a, lambda: self._log.rows(gamma))

    def cols(self, phi: Tensor) -> Tensor:
        """See `Kernel.cols`."""
        sums = torch.matmul((phi - self._alpha).exp()[:, None, :], self._k).squeeze(1)
        value = sums.log() - self._beta - self.log_b
        return self._repair(value, self.log_b, lambda: self._log.cols(phi))

    @staticmethod
    def _repair(value: Tensor, log_weights: Tensor, exact: Callable[[], Tensor]) -> Tensor:
        """Replace what under- or overflowed; zero-weight points, whose value nobody reads, get 0."""
        value = torch.where(log_weights > -math.inf, value, 0.0)
        lost = ~torch.isfinite(value)
        return torch.where(lost, exact(), value) if bool(lost.any()) else value

    def plan(self, phi: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
        """See `Kernel.plan`."""
        return self._log.plan(phi, gamma)

    def take(self, index: Tensor) -> StabilisedKernel:
        """See `Kernel.take`."""
        part = object.__new__(StabilisedKernel)
        part._log, part._limit = self._log.take(index), self._limit
        part.log_a, part.log_b = part._log.log_a, part._log.log_b
        part._anchor, part._alpha, part._beta = self._anchor[index], self._alpha[index], self._beta[index]
        part._k = self._k[index]
        return part


def _finite_or_zero(value: Tensor) -> Tensor:
    return torch.where(torch.isfinite(value), value, 0.0)
