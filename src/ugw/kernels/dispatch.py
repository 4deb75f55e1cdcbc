"""The numerical primitives as other packages call them; one table selects the backend by device, dtype and size."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from . import anderson, reductions, sinkhorn
from . import streaming_logsumexp as streaming
from .anderson import AndersonStep
from .sinkhorn import (
    GibbsKernel,
    LogDomainIterations,
    LogKernel,
    SinkhornIterate,
    StabilizedKernel,
    make_gibbs_kernel,
)
from .triton.config import TRITON_CONFIG, padded_size

__all__ = [
    "GibbsKernel",
    "LogDomainIterations",
    "LogKernel",
    "StabilizedKernel",
    "anderson_coefficients",
    "anderson_moments",
    "dot",
    "extrapolate",
    "l1_distance",
    "make_gibbs_kernel",
    "neg_entropy",
    "sinkhorn_iterations",
    "streaming_logsumexp",
    "streaming_weighted_sum",
]


@dataclass(frozen=True)
class Backend:
    """A module of this package that implements primitives under their own names.

    supports: whether it accepts the operands on which the choice depends, see `BACKENDS`.
    """

    module: str
    supports: Callable[..., bool]

    @property
    def is_available(self) -> bool:
        """Whether the packages that the module imports are installed: Triton, or none; devices are not checked."""
        return not self.module.startswith("triton.") or _has_triton()

    def implementation(self, primitive: str) -> Callable[..., Any]:
        """Return the function of the module that implements a primitive."""
        return _load(self.module, primitive)


def _always(*operands: Any) -> bool:
    """True: the torch references accept all operands."""
    return True


def _are_cuda_float32(*operands: Any) -> bool:
    """Are the operands stored float32 tensors (B, n, m) of one shape on CUDA that need no gradient?"""
    first = operands[0]
    for operand in operands:
        if not isinstance(operand, Tensor) or operand.shape != first.shape or operand.dtype != torch.float32:
            return False
    if not first.is_cuda or first.ndim != 3 or not first.numel():
        return False
    return not (torch.is_grad_enabled() and any(operand.requires_grad for operand in operands))


def _is_cuda_float32(tensor: Tensor) -> bool:
    """Is the tensor in float32 on CUDA?"""
    return tensor.is_cuda and tensor.dtype == torch.float32


def _is_cuda_float64(tensor: Tensor) -> bool:
    """Is the tensor in float64 on CUDA?"""
    return tensor.is_cuda and tensor.dtype == torch.float64


def _fits_registers(kernel: GibbsKernel) -> bool:
    """Is the kernel a stored float32 matrix on CUDA that, padded to powers of two, fits into registers?"""
    if not isinstance(kernel, StabilizedKernel) or not _is_cuda_float32(kernel.matrix):
        return False
    n, m = kernel.matrix.shape[1:]
    return padded_size(n) * padded_size(m) <= TRITON_CONFIG.max_register_entries


def _fits_cache(kernel: GibbsKernel) -> bool:
    """Is the kernel a stored float32 matrix on CUDA that fits into its cache?"""
    if not isinstance(kernel, StabilizedKernel) or not _is_cuda_float32(kernel.matrix):
        return False
    return kernel.matrix[0].numel() <= TRITON_CONFIG.max_cache_entries


_REDUCTIONS = (Backend("triton.reductions", _are_cuda_float32), Backend("reductions", _always))
_ANDERSON = (Backend("triton.anderson", _are_cuda_float32), Backend("anderson", _always))
_STREAMING = (Backend("triton.streaming", _is_cuda_float32), Backend("streaming_logsumexp", _always))

# The backends of each primitive in order of preference; the last one is the torch reference. The choice depends on:
# all tensors of size (B, n, m); for streaming sums the left factor; for coefficients the Gram matrix; for Sinkhorn
# iterations the Gibbs kernel.
BACKENDS: dict[str, tuple[Backend, ...]] = {
    "dot": _REDUCTIONS,
    "l1_distance": _REDUCTIONS,
    "neg_entropy": _REDUCTIONS,
    "anderson_moments": _ANDERSON,
    "extrapolate": _ANDERSON,
    "anderson_coefficients": (Backend("triton.anderson", _is_cuda_float64), Backend("anderson", _always)),
    "streaming_logsumexp": _STREAMING,
    "streaming_weighted_sum": _STREAMING,
    "sinkhorn_iterations": (
        Backend("triton.sinkhorn_registers", _fits_registers),
        Backend("triton.sinkhorn_cache", _fits_cache),
        Backend("sinkhorn", _always),
    ),
}


def select_backend(primitive: str, *operands: Any) -> Backend:
    """Return the first backend of a primitive that is installed and supports the operands, see `BACKENDS`."""
    for backend in BACKENDS[primitive]:
        if backend.supports(*operands) and backend.is_available:
            return backend
    raise RuntimeError(f"no backend of {primitive} supports these operands")


def dot(u: Tensor, v: Tensor) -> Tensor:
    """Inner product Σ u·v of each item. u: (B, n, m) or (n, m); v: (B, n, m). Returns (B,), float64."""
    if not v.is_cuda:
        return reductions.dot(u, v)
    return _call_on_cuda("dot", (u, v), u, v)


def l1_distance(u: Tensor, v: Tensor) -> Tensor:
    """L1 distance Σ |u − v| of each item. u, v: (B, n, m). Returns (B,), float64."""
    if not v.is_cuda:
        return reductions.l1_distance(u, v)
    return _call_on_cuda("l1_distance", (u, v), u, v)


def neg_entropy(p: Tensor) -> Tensor:
    """Negative entropy Σ p log p of each item. p: (B, n, m). Returns (B,), float64."""
    if not p.is_cuda:
        return reductions.neg_entropy(p)
    return _call_on_cuda("neg_entropy", (p,), p)


def anderson_moments(
    a: Tensor, b: Tensor, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Means (B, 5, 1) and mean products (B, 5, 5) of the `anderson_differences` under a⊗b, float64.

    a: (B, n); b: (B, m); inputs, outputs: three costs (B, n, m) each, oldest first.
    """
    if not a.is_cuda:
        return anderson.anderson_moments(a, b, inputs, outputs)
    return _call_on_cuda("anderson_moments", (*inputs, *outputs), a, b, inputs, outputs)


def extrapolate(last_input: Any, outputs: Sequence[Any], factors: Sequence[Tensor]) -> Any:
    """The last output plus multiples of the two output differences and of the last residual, (B, n, m).

    last_input, outputs (three, oldest first): (B, n, m), stored or not; factors: three (B,).
    """
    if not factors[0].is_cuda:
        return anderson.extrapolate(last_input, outputs, factors)
    return _call_on_cuda("extrapolate", (last_input, *outputs), last_input, outputs, factors)


def anderson_coefficients(gram: Tensor, relative_change: Tensor, was_rejected: Tensor) -> AndersonStep:
    """Choose the extrapolation of each item and compute its factors; see `anderson.anderson_coefficients`.

    gram: (B, 5, 5), covariances of the `anderson_differences`; relative_change: (B,); was_rejected: (B,) bool.
    """
    if not gram.is_cuda:
        return anderson.anderson_coefficients(gram, relative_change, was_rejected)
    return _call_on_cuda("anderson_coefficients", (gram,), gram, relative_change, was_rejected)


def streaming_logsumexp(left: Tensor, right: Tensor, bias: Tensor, guess: Tensor | None = None) -> Tensor:
    """Compute log Σ_j exp(left_i · right_j + bias_j) without storing the matrix. Returns (B, n).

    left: (B, n, r); right: (B, m, r); bias: (B, m), -inf where j is ignored; guess: (B, n), near the result.
    """
    if not left.is_cuda:
        return streaming.streaming_logsumexp(left, right, bias, guess)
    return _call_on_cuda("streaming_logsumexp", (left,), left, right, bias, guess)


def streaming_weighted_sum(left: Tensor, right: Tensor, bias: Tensor, shift: Tensor, values: Tensor) -> Tensor:
    """Compute Σ_j exp(left_i · right_j + bias_j − shift_i) values_jk without storing the matrix. Returns (B, n, k).

    left: (B, n, r); right: (B, m, r); bias: (B, m); shift: (B, n); values: (B, m, k).
    """
    if not left.is_cuda:
        return streaming.streaming_weighted_sum(left, right, bias, shift, values)
    return _call_on_cuda("streaming_weighted_sum", (left,), left, right, bias, shift, values)


def sinkhorn_iterations(
    gamma: Tensor, kernel: GibbsKernel, dampings: tuple[Tensor, ...], translation_share: Tensor, max_rate: float
) -> SinkhornIterate:
    """Return the iterate after `kernel.iterations_per_check` Sinkhorn iterations, with gamma extrapolated by Aitken.

    gamma: (B, m); dampings: two (B, 1); translation_share: (B, 1); see `sinkhorn.sinkhorn_iterations`.
    """
    if not gamma.is_cuda:
        return sinkhorn.sinkhorn_iterations(gamma, kernel, dampings, translation_share, max_rate)
    return _call_on_cuda("sinkhorn_iterations", (kernel,), gamma, kernel, dampings, translation_share, max_rate)


def _call_on_cuda(primitive: str, operands: tuple[Any, ...], *arguments: Any) -> Any:
    """Return the result of a primitive for `arguments`, by the first available backend that supports `operands`.

    operands: the arguments on which the choice of the backend depends; all are on CUDA. Triton launches kernels on the
    current device, so the device of the first tensor is made current.
    """
    device = next(_iterate_tensors(arguments)).device
    with torch.cuda.device(device):
        return select_backend(primitive, *operands).implementation(primitive)(*arguments)


def _iterate_tensors(arguments: Sequence[Any]) -> Iterator[Tensor]:
    """Yield the tensors among arguments and in tuples and lists of any depth; for a Gibbs kernel only its `log_a`.

    The caller needs only the device, which is that of all tensors of a kernel.
    """
    for argument in arguments:
        if isinstance(argument, Tensor):
            yield argument
        elif isinstance(argument, (tuple, list)):
            yield from _iterate_tensors(argument)
        elif hasattr(argument, "log_a"):
            yield argument.log_a


@cache
def _load(module: str, name: str) -> Callable[..., Any]:
    """Return the function `name` of a module of this package, which is imported at the first call."""
    return getattr(importlib.import_module(f"{__package__}.{module}"), name)


@cache
def _has_triton() -> bool:
    """Is Triton installed?"""
    return importlib.util.find_spec("triton") is not None
