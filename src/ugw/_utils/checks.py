"""Checks of user input: array-likes become tensors, and invalid input raises a one-line `InputError`.

Every message names the argument, what was expected and what was given. Only the public API calls these functions;
inner code trusts its inputs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from numbers import Integral, Number, Real
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from .config import UTILS_CONFIG

_FLOATS = (torch.float32, torch.float64)
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
_EXPECTED_DTYPE = "real numbers (float32, float64 or integers)"


def as_tensor(name: str, value: Any, *, like: Tensor | None = None) -> Tensor:
    """Return `value`, a tensor, an array or nested lists, as a float32 or float64 tensor of the same shape.

    Floats keep their dtype and integers become float64. Tensors keep their device and autograd graph. Arrays are
    copied only if torch cannot share their memory. With `like`, floats must have its dtype and tensors its device;
    integers and plain lists, which have no float dtype of their own, take its dtype, and arrays move to its device.
    Anything else raises InputError, whose message begins with `name`.

    >>> as_tensor("points", [[0, 1], [2, 3]]).dtype
    torch.float64
    """
    if isinstance(value, Tensor):
        tensor, keeps_dtype = value, value.dtype.is_floating_point
    else:
        array = _as_array(name, value)
        dtype = np.float32 if array.dtype.char == "f" else np.float64
        # Copied only if torch requires it: it needs native byte order, and contiguous, aligned, writable memory.
        tensor = torch.from_numpy(np.require(array, dtype, ["C", "A", "W", "E"]))
        keeps_dtype = hasattr(value, "dtype") and array.dtype.kind == "f"  # a list has no dtype
    if tensor.dtype == torch.bool or tensor.dtype.is_complex or tensor.layout != torch.strided:
        raise InputError(f"{name} must hold {_EXPECTED_DTYPE}, got {_describe_tensor(tensor)}")
    if not keeps_dtype:
        tensor = tensor.to(torch.float64 if like is None else like.dtype)
    if tensor.dtype not in _FLOATS:
        raise InputError(f"{name} must be float32 or float64, got {_describe_tensor(tensor)}")
    if like is None:
        return tensor
    if tensor.dtype != like.dtype:
        raise InputError(f"{name} must be {dtype_name(like.dtype)} like the rest, got {dtype_name(tensor.dtype)}")
    if not isinstance(value, Tensor):
        return tensor.to(like.device)
    if tensor.device != like.device:
        raise InputError(f"{name} must be on {like.device} like the rest, got {tensor.device}")
    return tensor


def is_array_like(value: Any) -> bool:
    """Return whether a value is a number, an array, a tensor, a list or anything else that NumPy reads as an array.

    >>> is_array_like([1, 2]), is_array_like(None)
    (True, False)
    """
    if isinstance(value, Number | list | tuple) or hasattr(value, "__array__"):
        return True
    return np.asarray(value).dtype != object


def check_ndim(name: str, tensor: Tensor, ndims: tuple[int, ...], expected: str) -> None:
    """Raise InputError, naming the `expected` shapes, unless the tensor has entries and its ndim is in `ndims`."""
    if tensor.ndim not in ndims:
        raise InputError(f"{name} must have shape {expected}, got {tuple(tensor.shape)}")
    if tensor.numel() == 0:
        raise InputError(f"{name} must not be empty, got shape {tuple(tensor.shape)}, expected {expected}")


def check_finite(name: str, tensor: Tensor) -> None:
    """Raise InputError, with `name` in its message, if an entry is NaN or infinite."""
    # Minimum and maximum propagate NaN: one pass without the n×n temporaries of `isfinite`.
    low, high = torch.aminmax(tensor.detach())
    if not (torch.isfinite(low) and torch.isfinite(high)):
        _raise_for_first(name, tensor, ~torch.isfinite(tensor), "finite")


def check_nonnegative(name: str, tensor: Tensor) -> None:
    """Raise InputError, with `name` in its message, if an entry is negative; NaN is not negative."""
    if tensor.detach().amin() >= 0:  # one pass; False also where a NaN, which the minimum propagates, may hide an entry
        return
    is_negative = tensor < 0
    if is_negative.any():
        _raise_for_first(name, tensor, is_negative, "nonnegative")


def check_symmetric(name: str, matrix: Tensor) -> None:
    """Raise InputError if |D_ij − D_ji| exceeds `rounding_tolerance`(D) somewhere, D: `matrix`, (n, n) or (B, n, n)."""
    matrix = matrix.detach()
    tolerance = rounding_tolerance(matrix)
    rows = max(1, UTILS_CONFIG.max_block_entries * matrix.shape[-1] // matrix.numel())
    blocks = zip(matrix.split(rows, dim=-2), matrix.mT.split(rows, dim=-2), strict=True)
    for start, (block, transposed) in enumerate(blocks):
        bad = (block - transposed).abs() > tolerance
        if bad.any():
            *batch, i, j = bad.nonzero()[0].tolist()
            upper, lower = (*batch, start * rows + i, j), (*batch, j, start * rows + i)
            raise InputError(
                f"{name} must be symmetric, got {matrix[upper].item():.6g} at {_format_index(upper)}"
                f" but {matrix[lower].item():.6g} at {_format_index(lower)}"
            )


def check_zero_diagonal(name: str, matrix: Tensor) -> None:
    """Raise InputError if |D_ii| exceeds `rounding_tolerance`(D) somewhere, D: `matrix`, (n, n) or (B, n, n)."""
    diagonal = torch.diagonal(matrix.detach(), dim1=-2, dim2=-1)
    bad = diagonal.abs() > rounding_tolerance(matrix.detach())[..., 0]
    if bad.any():
        index = bad.nonzero()[0].tolist()
        entry = diagonal[tuple(index)].item()
        raise InputError(f"{name} must have a zero diagonal, got {entry:.6g} at {_format_index((*index, index[-1]))}")


def rounding_tolerance(matrix: Tensor) -> Tensor:
    """Return 64 machine epsilons times the largest |entry| of each matrix (..., n, n), as a tensor (..., 1, 1)."""
    largest = torch.maximum(matrix.amax((-2, -1), keepdim=True), -matrix.amin((-2, -1), keepdim=True))
    return UTILS_CONFIG.rounding_units * torch.finfo(matrix.dtype).eps * largest


def as_parameter(name: str, value: Any, *, allow_zero: bool = False, allow_inf: bool = False) -> Tensor:
    """Return a parameter in (0, inf) as a float64 tensor, () or (B,), on the CPU, or raise InputError.

    value: a number or an array (B,), no list, whose autograd graph is kept; allow_zero, allow_inf: are 0 and inf valid?

    >>> as_parameter("rho", np.array([0.5, np.inf]), allow_inf=True)
    tensor([0.5000,    inf], dtype=torch.float64)
    """
    if isinstance(value, (list, tuple)):
        # Two numbers are ambiguous: one per side or one per batch item.
        raise InputError(f"{name} must be a number or an array (B,), one for each item, got a {type(value).__name__}")
    if isinstance(value, str):
        hint = ': infinity is float("inf")' if "inf" in value.lower() else ""
        raise InputError(f"{name} must be a number or an array (B,), got the string {describe_value(value)}{hint}")
    if type(value) is float and 0.0 < value < math.inf:  # what is most often given, and valid everywhere
        return torch.tensor(value, dtype=torch.float64)
    if not is_array_like(value):
        raise InputError(f"{name} must be a number or an array (B,), got {describe_value(value)}")
    parameter = as_tensor(name, value)
    check_ndim(name, parameter, (0, 1), "() or (B,)")
    parameter = parameter.to("cpu", torch.float64)
    is_allowed = parameter >= 0 if allow_zero else parameter > 0  # False for NaN
    if not allow_inf:
        is_allowed &= torch.isfinite(parameter)
    if not is_allowed.all():
        expected = f"{'nonnegative' if allow_zero else 'positive'} {'(inf is allowed)' if allow_inf else 'and finite'}"
        _raise_for_first(name, parameter, ~is_allowed, expected)
    return parameter


def check_whole_number(name: str, value: Any, *, minimum: int = 1, maximum: int | None = None) -> int:
    """Return an integer of any type as an int; raise InputError unless it is ≥ `minimum`, and ≤ `maximum` if given.

    >>> check_whole_number("n", np.int8(100)) + 100
    200
    """
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_integer or int(value) < minimum or (maximum is not None and int(value) > maximum):
        bounds = f"≥ {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise InputError(f"{name} must be a whole number {bounds}, got {describe_value(value)}")
    return int(value)


def check_tolerance(name: str, value: Any) -> float:
    """Return a number of any real type as a float; raise InputError unless it is in (0, 1), as a float too.

    >>> check_tolerance("tol", np.float32(0.5))
    0.5
    """
    # Not float(value) at once, which overflows for large integers; afterwards, because it may be 0 or 1.
    is_inside = isinstance(value, Real) and not isinstance(value, bool) and 0 < value < 1  # type: ignore[operator]
    if not is_inside or not 0.0 < float(value) < 1.0:
        raise InputError(f"{name} must be a number between 0 and 1, got {describe_value(value)}")
    return float(value)


def check_bool(name: str, value: Any) -> None:
    """Raise InputError unless `value` is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} must be True or False, got {describe_value(value)}")


def check_choice(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Raise InputError unless `value` is one of the strings in `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {describe_value(value)}")


def as_path(name: str, value: Any, *, kind: str = "file") -> Path:
    """Return a string or an object such as `pathlib.Path` as a Path; raise InputError for anything else and for "".

    kind: what the path is of, "file" or "folder", for the message of the error.
    """
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise InputError(f"{name} must be the path of a {kind}, got {describe_value(value)}")
    return Path(value)


def as_list(name: str, values: Any, expected: str) -> list[Any]:
    """Return the entries of a list or of anything else that can be iterated, except a string, as a new list.

    expected: what `values` must be, for the message of the InputError that is raised for other values.
    """
    try:
        if not isinstance(values, str):
            return list(values)
    except TypeError:  # an array () and a sparse matrix have __iter__, but cannot be iterated
        pass
    raise InputError(f"{name} must be {expected}, got {type(values).__name__}")


def as_index(name: str, index: Any, n: int, device: torch.device, *, allow_mask: bool = False) -> Tensor:
    """Return indices of n items, () or (k,), as an int64 tensor on `device` with values from 0 to n − 1.

    index: a whole number from −n to n − 1, where −1 is the last item, or a list, an array or a tensor (k,) of them.
    With `allow_mask` also booleans (n,), which become the indices of the true ones. Others raise InputError.

    >>> as_index("index", [0, -1], 3, torch.device("cpu"))
    tensor([0, 2])
    """
    expected = f"{name} must be whole numbers from 0 to {n - 1}" + f" or ({n},) booleans" * allow_mask
    try:
        array = index if isinstance(index, Tensor) else np.array(index)
        if isinstance(array, np.ndarray) and array.dtype.kind == "u":  # torch indexes with few unsigned types
            array = array.astype(np.int64)
        given = array if isinstance(array, Tensor) else torch.from_numpy(array)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(f"{expected}, got {describe_value(index)}") from error
    if given.layout == torch.strided and given.dtype == torch.bool and allow_mask and given.shape == (n,):
        return given.nonzero()[:, 0].to(device)
    is_integer = given.dtype in _INTEGERS and given.layout == torch.strided and given.ndim <= 1
    integers = given.long() if is_integer else None
    if integers is None or bool(((integers < -n) | (integers >= n)).any()):
        raise InputError(f"{expected}, got {describe_value(index)}")
    return integers.to(device) % n


def describe_value(value: Any) -> str:
    """Return a value as one line for an error message: an array by its shape, others by 100 characters of their repr.

    "..." marks a cut repr; a NumPy array or tensor of shape () has its repr too.

    >>> describe_value(torch.ones(2, 3)), describe_value([1, "a"]), len(describe_value("long" * 1000)) < 110
    ('a tensor of shape (2, 3)', "[1, 'a']", True)
    """
    if isinstance(value, Tensor | np.ndarray) and value.ndim:
        return f"{'a tensor' if isinstance(value, Tensor) else 'an array'} of shape {tuple(value.shape)}"
    text, limit = " ".join(repr(value).split()), UTILS_CONFIG.max_described_length
    return text if len(text) <= limit else f"{text[:limit]}..."


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype without `torch.`, for example `float32`."""
    return str(dtype).removeprefix("torch.")


def _raise_for_first(name: str, tensor: Tensor, bad: Tensor, expected: str) -> NoReturn:
    """Raise InputError, "`name` must be `expected`, got ...", for the first entry where `bad`, bool, is true."""
    index = tuple(bad.nonzero()[0].tolist())
    place = f" at {_format_index(index)}" if index else ""
    raise InputError(f"{name} must be {expected}, got {tensor.detach()[index].item():.6g}{place}")


def _as_array(name: str, value: Any) -> np.ndarray:
    """Return `value` as a NumPy array of float32, float64 or integers, or raise InputError, which calls it `name`."""
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


def _describe_tensor(tensor: Tensor) -> str:
    """Return the layout and dtype of a tensor for an error message, for example `a sparse tensor of dtype float32`."""
    sparse = "" if tensor.layout == torch.strided else "sparse "
    return f"a {sparse}tensor of dtype {dtype_name(tensor.dtype)}"


def _format_index(index: tuple[int, ...]) -> str:
    """Return `index 3` for one dimension and `index (3, 4)` for several."""
    return f"index {index[0]}" if len(index) == 1 else f"index {index}"
