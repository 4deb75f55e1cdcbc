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
from .sinkhorn import Kernel, LogKernel, StabilisedKernel, Sweeping

__all__ = [
    "Kernel",
    "LogKernel",
    "StabilisedKernel",
    "Sweeping",
    "apart",
    "coefficients",
    "dot",
    "entropy",
    "extrapolated",
    "fused_sweeps",
    "log_sums",
    "make",
    "steps_gram",
    "weighted_sums",
]


def make(cost: Tensor, log_a: Tensor, log_b: Tensor, eps: Tensor, gamma: Tensor | None) -> Kernel:
    """The kernel of a stored cost: stabilized around the potential `gamma` (B, m), or log-sum-exp if that is None."""
    log_kernel = LogKernel(cost / -eps[:, None, None], log_a, log_b)
    return log_kernel if gamma is None else StabilisedKernel(log_kernel, gamma)


def log_sums(left: Tensor, right: Tensor, bias: Tensor, guess: Tensor | None = None) -> Tensor:
    """See `streaming.log_sums`."""
    with _on(left):
        return _backend(left).log_sums(left, right, bias, guess)


def weighted_sums(left: Tensor, right: Tensor, bias: Tensor, shift: Tensor, values: Tensor) -> Tensor:
    """See `streaming.weighted_sums`."""
    with _on(left):
        return _backend(left).weighted_sums(left, right, bias, shift, values)


def fused_sweeps(
    kernel: Kernel, potentials: tuple[Tensor, Tensor], of_item: tuple[Tensor, ...], count: int, slowest: float
) -> tuple[Tensor, ...] | None:
    """See `triton_small.sweeps`; None where none serves: elsewhere than on CUDA, in float64, for large plans.

    of_item: dampings of both sides and the share of the translation, (B, 1) each.
    """
    if not isinstance(kernel, StabilisedKernel) or not kernel.log_a.is_cuda or not _triton():
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


def apart(u: Tensor, v: Tensor) -> Tensor:
    """See `entries.apart`."""
    with _on(v):
        return _of_entries(u, v).apart(u, v)


def entropy(p: Tensor) -> Tensor:
    """See `entries.entropy`."""
    with _on(p):
        return _of_entries(p).entropy(p)


def steps_gram(a: Tensor, b: Tensor, given: Sequence[Tensor], found: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """See `entries.steps_gram`."""
    with _on(a):
        return _of_entries(*given, *found).steps_gram(a, b, given, found)


def extrapolated(given: Any, found: Sequence[Any], factors: Sequence[Tensor]) -> Any:
    """See `entries.extrapolated`; for matrices that are not stored as well."""
    with _on(factors[0]):
        return _of_entries(given, *found).extrapolated(given, found, factors)


def coefficients(gram: Tensor, size: Tensor, barred: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See `trail.coefficients`."""
    if not gram.is_cuda or gram.dtype != torch.float64 or not _triton():
        return trail.coefficients(gram, size, barred)
    from .triton import anderson as triton_trail

    with _on(gram):
        return triton_trail.coefficients(gram, size, barred)


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
