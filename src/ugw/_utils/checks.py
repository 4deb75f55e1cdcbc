"""Border checks: array-likes become tensors, and bad input becomes a one-line `InputError`.

Every message says what, what it got and what it expected. Inner code trusts its inputs and checks nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError

# Work on n×n matrices goes through slices of at most this many entries (32 MiB in float64), so that a check
# or a product never doubles the memory of a large space.
BLOCK_ENTRIES = 1 << 22

# Entries may differ by this many units of rounding of the largest one and still count as equal: enough for a
# distance computed in a different order of summation, far below any difference that means something.
ROUNDING_UNITS = 64

_FLOATS = (torch.float32, torch.float64)
_EXPECTED_DTYPE = "real numbers (float32, float64 or integers)"


def as_tensor(name: str, value: Any, *, like: Tensor | None = None) -> Tensor:
    """A float32 or float64 tensor of the shape of `value`, which may be a tensor, an array or nested lists.

    Floats keep their dtype, integers become float64, tensors keep their device and autograd graph, arrays are
    not copied unless they must be. With `like`, floats must have its dtype and tensors its device; integers
    and plain lists, which have no float dtype of their own, take its dtype, and arrays move to its device.

    >>> as_tensor("points", [[0, 1], [2, 3]]).dtype
    torch.float64
    """
    if isinstance(value, Tensor):
        tensor, fixed = value, value.dtype.is_floating_point
    else:
        array = _as_array(name, value)
        tensor = torch.from_numpy(_shareable(array))
        fixed = hasattr(value, "dtype") and array.dtype.kind == "f"  # a list has no dtype to keep
    if tensor.dtype == torch.bool or tensor.dtype.is_complex or tensor.layout != torch.strided:
        raise InputError(f"{name} must hold {_EXPECTED_DTYPE}, got {_describe(tensor)}")
    if not fixed:
        tensor = tensor.to(torch.float64 if like is None else like.dtype)
    if tensor.dtype not in _FLOATS:
        raise InputError(f"{name} must be float32 or float64, got {_describe(tensor)}")
    if like is None:
        return tensor
    if tensor.dtype != like.dtype:
        raise InputError(f"{name} must be {short(like.dtype)} like the rest, got {short(tensor.dtype)}")
    if not isinstance(value, Tensor):
        return tensor.to(like.device)
    if tensor.device != like.device:
        raise InputError(f"{name} must be on {like.device} like the rest, got {tensor.device}")
    return tensor


def check_ndim(name: str, tensor: Tensor, ndims: tuple[int, ...], expected: str) -> None:
    """Refuse a tensor without entries, or with a number of dimensions not in `ndims`."""
    if tensor.ndim not in ndims:
        raise InputError(f"{name} must have shape {expected}, got {tuple(tensor.shape)}")
    if tensor.numel() == 0:
        raise InputError(f"{name} must not be empty, got shape {tuple(tensor.shape)}, expected {expected}")


def check_square(name: str, matrix: Tensor) -> None:
    """Refuse what is not (n, n) or (B, n, n) with n ≥ 1."""
    check_ndim(name, matrix, (2, 3), "(n, n) or (B, n, n)")
    if matrix.shape[-1] != matrix.shape[-2]:
        raise InputError(f"{name} must be square, (n, n) or (B, n, n), got {tuple(matrix.shape)}")


def check_finite(name: str, tensor: Tensor) -> None:
    """Refuse NaN and infinite entries."""
    # The extremes carry NaN along: one pass and no temporary, where isfinite would make several n×n ones.
    low, high = torch.aminmax(tensor.detach())
    if not (torch.isfinite(low) and torch.isfinite(high)):
        _refuse(name, tensor, ~torch.isfinite(tensor), "finite")


def check_nonnegative(name: str, tensor: Tensor) -> None:
    """Refuse negative entries."""
    if tensor.detach().amin() < 0:
        _refuse(name, tensor, tensor < 0, "nonnegative")


def check_symmetric(name: str, matrix: Tensor) -> None:
    """Refuse |D_ij - D_ji| beyond rounding, relative to the largest entry. matrix: (n, n) or (B, n, n)."""
    matrix = matrix.detach()
    allowed = rounding(matrix)
    rows = max(1, BLOCK_ENTRIES * matrix.shape[-1] // matrix.numel())
    blocks = zip(matrix.split(rows, dim=-2), matrix.mT.split(rows, dim=-2), strict=True)
    for start, (block, mirrored) in enumerate(blocks):
        bad = (block - mirrored).abs() > allowed
        if bad.any():
            *batch, i, j = bad.nonzero()[0].tolist()
            here, there = (*batch, start * rows + i, j), (*batch, j, start * rows + i)
            raise InputError(
                f"{name} must be symmetric, got {matrix[here].item():.6g} at {_index(here)}"
                f" but {matrix[there].item():.6g} at {_index(there)}"
            )


def check_zero_diagonal(name: str, matrix: Tensor) -> None:
    """Refuse a diagonal that is not zero up to rounding. matrix: (n, n) or (B, n, n)."""
    diagonal = torch.diagonal(matrix.detach(), dim1=-2, dim2=-1)
    bad = diagonal.abs() > rounding(matrix.detach())[..., 0]
    if bad.any():
        where = bad.nonzero()[0].tolist()
        got = diagonal[tuple(where)].item()
        raise InputError(f"{name} must have a zero diagonal, got {got:.6g} at {_index((*where, where[-1]))}")


def rounding(matrix: Tensor) -> Tensor:
    """The difference that counts as rounding, per item. matrix: (..., n, n). Returns (..., 1, 1)."""
    largest = torch.maximum(matrix.amax((-2, -1), keepdim=True), -matrix.amin((-2, -1), keepdim=True))
    return ROUNDING_UNITS * torch.finfo(matrix.dtype).eps * largest


def positive(name: str, value: Any, *, allow_inf: bool = True) -> Tensor:
    """A parameter in (0, inf], or (0, inf) without `allow_inf`, as a float64 tensor of shape () or (B,).

    The result is on the CPU and keeps the graph of a tensor that requires gradients.

    >>> positive("rho", np.array([0.5, np.inf]))
    tensor([0.5000,    inf], dtype=torch.float64)
    """
    parameter = _parameter(name, value)
    bad = ~(parameter > 0)  # true for NaN as well, as `parameter <= 0` would not be
    if not allow_inf:
        bad |= torch.isinf(parameter)
    _refuse(name, parameter, bad, "positive (inf is allowed)" if allow_inf else "positive and finite")
    return parameter


def nonnegative(name: str, value: Any) -> Tensor:
    """A parameter in [0, inf) as a float64 tensor of shape () or (B,), as `positive` gives it.

    >>> nonnegative("eps", 0).item()
    0.0
    """
    parameter = _parameter(name, value)
    _refuse(name, parameter, ~((parameter >= 0) & torch.isfinite(parameter)), "nonnegative and finite")
    return parameter


def short(dtype: torch.dtype) -> str:
    """The name of a dtype without its package: `float32`."""
    return str(dtype).removeprefix("torch.")


def _parameter(name: str, value: Any) -> Tensor:
    if isinstance(value, (list, tuple)):
        # Two numbers may be meant for two sides as well as for two items.
        raise InputError(f"{name} must be a number or an array (B,), one for each item, got a {type(value).__name__}")
    tensor = as_tensor(name, value)
    check_ndim(name, tensor, (0, 1), "() or (B,)")
    return tensor.to("cpu", torch.float64)


def _refuse(name: str, tensor: Tensor, bad: Tensor, expected: str) -> None:
    """Raise for the first entry of `tensor` where `bad` is true, if there is one."""
    if not bad.any():
        return
    where = tuple(bad.nonzero()[0].tolist())
    place = f" at {_index(where)}" if where else ""
    raise InputError(f"{name} must be {expected}, got {tensor.detach()[where].item():.6g}{place}")


def _as_array(name: str, value: Any) -> np.ndarray:
    """A NumPy array of real numbers: floats of 4 or 8 bytes, or integers."""
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"{name} must have no mask, got a masked array, expected filled or dropped entries")
    if isinstance(value, (list, tuple)) and any(isinstance(item, Tensor) for item in value):
        raise InputError(f"{name} must be one tensor or array, got a list of tensors, expected torch.stack")
    try:
        array = np.asarray(value)
        if array.dtype == object and not hasattr(value, "dtype") and all(type(v) is int for v in array.flat):
            array = array.astype(np.float64)  # Python integers beyond 64 bits
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        kind = type(value).__name__
        raise InputError(f"{name} must be a rectangular array of numbers, got {kind} ({error})") from error
    if array.dtype.kind not in "iuf" or (array.dtype.kind == "f" and array.dtype.itemsize not in (4, 8)):
        kind = type(value).__name__
        raise InputError(f"{name} must hold {_EXPECTED_DTYPE}, got {kind} of dtype {array.dtype}")
    return array


def _shareable(array: np.ndarray) -> np.ndarray:
    """The array itself, or a copy where torch needs one: floats, native byte order, writable, contiguous."""
    single = array.dtype.kind == "f" and array.dtype.itemsize == 4
    return np.require(array, np.float32 if single else np.float64, ["C", "A", "W", "E"])


def _describe(tensor: Tensor) -> str:
    sparse = "" if tensor.layout == torch.strided else "sparse "
    return f"a {sparse}tensor of dtype {short(tensor.dtype)}"


def _index(where: tuple[int, ...]) -> str:
    return f"index {where[0]}" if len(where) == 1 else f"index {where}"
