"""Reductions over a linear cost: the one seam between the algorithms and how a cost is stored."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from . import anderson as trail
from . import reductions as entries
from . import streaming_logsumexp as streaming
from .sinkhorn import GibbsKernel, LogDomainIterations, LogKernel, StabilizedKernel

__all__ = [
    "GibbsKernel",
    "LogDomainIterations",
    "LogKernel",
    "StabilizedKernel",
    "anderson_coefficients",
    "anderson_moments",
    "dot",
    "extrapolate",
    "fused_sweeps",
    "l1_distance",
    "make_gibbs_kernel",
    "neg_entropy",
    "streaming_logsumexp",
    "streaming_weighted_sum",
]


def make_gibbs_kernel(cost: Tensor, log_a: Tensor, log_b: Tensor, eps: Tensor, gamma: Tensor | None) -> GibbsKernel:
    """The kernel of a stored cost: stabilized around the potential `gamma` (B, m), or log-sum-exp if that is None."""
    log_kernel = LogKernel(cost / -eps[:, None, None], log_a, log_b)
    return log_kernel if gamma is None else StabilizedKernel(log_kernel, gamma)


def streaming_logsumexp(left: Tensor, right: Tensor, bias: Tensor, guess: Tensor | None = None) -> Tensor:
    """See `streaming.streaming_logsumexp`."""
    with _on(left):
        return _backend(left).streaming_logsumexp(left, right, bias, guess)


def streaming_weighted_sum(left: Tensor, right: Tensor, bias: Tensor, shift: Tensor, values: Tensor) -> Tensor:
    """See `streaming.streaming_weighted_sum`."""
    with _on(left):
        return _backend(left).streaming_weighted_sum(left, right, bias, shift, values)


def fused_sweeps(
    kernel: GibbsKernel, potentials: tuple[Tensor, Tensor], of_item: tuple[Tensor, ...], count: int, slowest: float
) -> tuple[Tensor, ...] | None:
    """See `triton_small.sweeps`; None where none serves: elsewhere than on CUDA, in float64, for large plans.

    of_item: dampings of both sides and the share of the translation, (B, 1) each.
    """
    if not isinstance(kernel, StabilizedKernel) or not kernel.log_a.is_cuda or not _triton():
        return None
    from .triton import sinkhorn_cache as triton_medium
    from .triton import sinkhorn_registers as triton_small

    k, sides = kernel.stored()
    serving = next((backend for backend in (triton_small, triton_medium) if backend.fits(k)), None)
    if serving is None:
        return None
    with _on(k):
        return serving.sweeps(k, sides, potentials, torch.cat(of_item, dim=1), count, slowest)


def dot(u: Tensor, v: Tensor) -> Tensor:
    """See `entries.dot`."""
    with _on(v):
        return _of_entries(u, v).dot(u, v)


def l1_distance(u: Tensor, v: Tensor) -> Tensor:
    """See `entries.l1_distance`."""
    with _on(v):
        return _of_entries(u, v).l1_distance(u, v)


def neg_entropy(p: Tensor) -> Tensor:
    """See `entries.neg_entropy`."""
    with _on(p):
        return _of_entries(p).neg_entropy(p)


def anderson_moments(a: Tensor, b: Tensor, given: Sequence[Tensor], found: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """See `entries.anderson_moments`."""
    with _on(a):
        return _of_entries(*given, *found).anderson_moments(a, b, given, found)


def extrapolate(given: Any, found: Sequence[Any], factors: Sequence[Tensor]) -> Any:
    """See `entries.extrapolate`; for matrices that are not stored as well."""
    with _on(factors[0]):
        return _of_entries(given, *found).extrapolate(given, found, factors)


def anderson_coefficients(gram: Tensor, size: Tensor, barred: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See `trail.anderson_coefficients`."""
    if not gram.is_cuda or gram.dtype != torch.float64 or not _triton():
        return trail.anderson_coefficients(gram, size, barred)
    from .triton import anderson as triton_trail

    with _on(gram):
        return triton_trail.anderson_coefficients(gram, size, barred)


def _of_entries(*parts: Any) -> ModuleType:
    """Triton for float32 on CUDA without gradients, plain torch for all else."""
    one = parts[0]
    stored = all(isinstance(part, Tensor) and part.shape == one.shape and part.dtype == torch.float32 for part in parts)
    if not stored or not one.is_cuda or one.ndim != 3 or not one.numel() or not _triton():
        return entries
    if torch.is_grad_enabled() and any(part.requires_grad for part in parts):
        return entries
    from .triton import reductions as triton_entries

    return triton_entries


def _on(like: Tensor) -> AbstractContextManager[object]:
    """Triton starts its kernels on the current device, wherever their arguments are."""
    return torch.cuda.device(like.device) if like.is_cuda else nullcontext()


def _backend(like: Tensor) -> ModuleType:
    """Triton for float32 on CUDA, where it comes with torch; plain torch for all else."""
    return _fastest() if like.is_cuda and like.dtype == torch.float32 else streaming


@cache
def _fastest() -> ModuleType:
    """Asked in every inner iteration, looked up once."""
    if not _triton():
        return streaming
    from .triton import streaming as triton_ops

    return triton_ops


@cache
def _triton() -> bool:
    return importlib.util.find_spec("triton") is not None
