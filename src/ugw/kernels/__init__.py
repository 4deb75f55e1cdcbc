"""Reductions over a linear cost: the one seam between the algorithms and how a cost is stored."""

from __future__ import annotations

from torch import Tensor

from .torch_ops import Kernel, LogKernel, StabilisedKernel

__all__ = ["Kernel", "LogKernel", "StabilisedKernel", "make"]


def make(cost: Tensor, log_a: Tensor, log_b: Tensor, eps: Tensor, gamma: Tensor | None) -> Kernel:
    """The kernel of a cost: stabilised around the potential `gamma` (B, m), or log-sum-exp if that is None."""
    log_kernel = LogKernel(cost / -eps[:, None, None], log_a, log_b)
    return log_kernel if gamma is None else StabilisedKernel(log_kernel, gamma)
