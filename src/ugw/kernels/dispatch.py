"""The numerical primitives as other packages call them; one table selects the backend by device, dtype and size."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from . import anderson, reductions, sinkhorn
from . import streaming_logsumexp as streaming
from .sinkhorn import GibbsKernel, LogDomainIterations, LogKernel, StabilizedKernel
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
    "neg_entropy",
    "sinkhorn_iterations",
    "streaming_logsumexp",
    "streaming_weighted_sum",
]

Primitive = TypeVar("Primitive", bound=Callable[..., Any])


@dataclass(frozen=True)
class Backend:
    """A module of this package that implements primitives under their own names.

    module: its name in this package; supports: does it accept these operands, on which the choice depends?
    """

    module: str
    supports: Callable[..., bool]

    @property
    def is_available(self) -> bool:
        """Whether the packages that the module imports are installed: Triton, or none; devices are not checked."""
        return not self.module.startswith("triton.") or _has_triton()

    def implementation(self, primitive: str) -> Callable[..., Any]:
        """Return the function of the backend's module that is named `primitive`."""
        return _load_function(self.module, primitive)


def _always(*operands: Any) -> bool:
    """Return True: the torch references accept all operands."""
    return True


def _are_cuda_float32(*operands: Any) -> bool:
    """Are the operands stored float32 tensors (B, n, m) of one shape, not empty, on CUDA, that need no gradient?"""
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
    """Is it a `StabilizedKernel` in float32 on CUDA with a matrix that, padded, fits into a GPU's registers?"""
    if not isinstance(kernel, StabilizedKernel) or not _is_cuda_float32(kernel.matrix):
        return False
    n, m = kernel.matrix.shape[1:]
    return padded_size(n) * padded_size(m) <= TRITON_CONFIG.max_register_entries


def _fits_cache(kernel: GibbsKernel) -> bool:
    """Is it a `StabilizedKernel` in float32 on CUDA with a matrix that fits into a GPU's cache?"""
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
    """Return the first backend in `BACKENDS[primitive]` that supports the operands and whose packages are installed."""
    for backend in BACKENDS[primitive]:
        if backend.supports(*operands) and backend.is_available:
            return backend
    raise RuntimeError(f"no backend of {primitive} supports these operands")


def make_primitive(
    reference: Primitive, operands: Callable[..., tuple[Any, ...]] = lambda first, *_, **__: (first,)
) -> Primitive:
    """Return a function with the signature of `reference`, a torch function, that calls the best implementation of it.

    On CUDA that is the one of the backend that `select_backend` returns, on other devices `reference`. operands: maps
    the arguments to those on which the choice of the backend depends, by default the first one.
    """
    name = reference.__name__

    @wraps(reference)
    def primitive(first: Any, *others: Any, **options: Any) -> Any:
        if first.device.type != "cuda":
            return reference(first, *others, **options)
        implementation = select_backend(name, *operands(first, *others, **options)).implementation(name)
        with torch.cuda.device(first.device):  # Triton launches kernels on the current device
            return implementation(first, *others, **options)

    return cast(Primitive, primitive)


dot = make_primitive(reductions.dot, lambda u, v: (u, v))
l1_distance = make_primitive(reductions.l1_distance, lambda u, v: (u, v))
neg_entropy = make_primitive(reductions.neg_entropy)
anderson_moments = make_primitive(anderson.anderson_moments, lambda a, b, inputs, outputs: (*inputs, *outputs))
extrapolate = make_primitive(anderson.extrapolate, lambda last_input, outputs, factors: (last_input, *outputs))
anderson_coefficients = make_primitive(anderson.anderson_coefficients)
streaming_logsumexp = make_primitive(streaming.streaming_logsumexp)
streaming_weighted_sum = make_primitive(streaming.streaming_weighted_sum)
sinkhorn_iterations = make_primitive(sinkhorn.sinkhorn_iterations, lambda gamma, kernel, *_, **__: (kernel,))


@cache
def _load_function(module: str, name: str) -> Callable[..., Any]:
    """Return the function `name` of a module of this package; the module is imported at the first call."""
    return getattr(importlib.import_module(f"{__package__}.{module}"), name)


@cache
def _has_triton() -> bool:
    """Is Triton installed?"""
    return importlib.util.find_spec("triton") is not None
