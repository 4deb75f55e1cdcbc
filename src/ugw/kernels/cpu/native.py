"""The compiled library as Python calls it: where it is, the layout of its records, and its functions."""

from __future__ import annotations

import ctypes
import os
from ctypes import c_double, c_int64, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor

SWITCH = "UGW_COMPILED"  # environment variable; "0" makes every step in torch


class _Strided(ctypes.Structure):
    """The address of an array and its strides over items, rows and columns, in numbers; a stride may be 0."""

    _fields_ = [("data", c_void_p), ("item", c_int64), ("row", c_int64), ("col", c_int64)]


class ConicKernel(ctypes.Structure):
    """The factors of the conic kernel of one item, with the fields of the C++ record `ConicKernel` in common.hpp."""

    _fields_ = [
        ("left", c_void_p),
        ("right", c_void_p),
        ("right_rows", c_void_p),
        ("right_stride", c_int64),
        ("rank", c_int64),
    ]


class ProductRun(ctypes.Structure):
    """The arguments of `Library.multiply`, with the fields of the C++ record `ProductRun` in common.hpp."""

    _fields_ = [
        ("batch", c_int64),
        ("n_threads", c_int64),
        ("n", c_int64),
        ("m", c_int64),
        ("kernel", ConicKernel),
        ("plans", _Strided),
        ("products", c_void_p),
    ]


class ConicRun(ctypes.Structure):
    """The arguments of `Library.run` for conic problems, with the fields of the C++ record `ConicRun` in common.hpp."""

    _fields_ = [
        ("parameters", c_void_p),
        ("kernels", ctypes.POINTER(ConicKernel)),
        ("overlaps", c_void_p),
        ("best_plans", c_void_p),
        ("n_overlaps", c_int64),
    ]


class Run(ctypes.Structure):
    """The arguments of `Library.run`, with the fields of the C++ record `Run` in common.hpp."""

    _fields_ = [
        ("batch", c_int64),
        ("n_threads", c_int64),
        ("last_step", c_int64),
        ("history_capacity", c_int64),
        ("seconds", c_double),
        ("config", c_void_p),
        ("sizes", c_void_p),
        ("parameters", c_void_p),
        ("dx", _Strided),
        ("dy", _Strided),
        ("cost", _Strided),
        ("log_a", _Strided),
        ("log_b", _Strided),
        ("iterates", c_void_p),
        ("status", c_void_p),
        ("n_iter", c_void_p),
        ("history", c_void_p),
        ("f", c_void_p),
        ("g", c_void_p),
        ("f_size", c_int64),
        ("g_size", c_int64),
        ("plans", c_void_p),
        ("outputs", c_void_p),
        ("inputs", c_void_p),
        ("rows", c_int64),
        ("stride", c_int64),
        ("values", c_void_p),
        ("conic", ctypes.POINTER(ConicRun)),
    ]


class LinearRun(ctypes.Structure):
    """The arguments of `Library.solve_linear`, with the fields of the C++ record `LinearRun` in common.hpp."""

    _fields_ = [
        ("batch", c_int64),
        ("n_threads", c_int64),
        ("n", c_int64),
        ("m", c_int64),
        ("config", c_void_p),
        ("parameters", c_void_p),
        ("cost", _Strided),
        ("log_a", _Strided),
        ("log_b", _Strided),
        ("f", c_void_p),
        ("g", c_void_p),
        ("plan", c_void_p),
        ("log_mass", c_void_p),
        ("residual", c_void_p),
    ]


class SearchRun(ctypes.Structure):
    """The arguments of `Library.search`, with the fields of the C++ record `SearchRun` in common.hpp."""

    _fields_ = [
        ("batch", c_int64),
        ("n_threads", c_int64),
        ("count", c_int64),
        ("n_coarse_rounds", c_int64),
        ("n_fine_rounds", c_int64),
        ("config", c_void_p),
        ("search", c_void_p),
        ("rounds", c_void_p),
        ("sizes", c_void_p),
        ("parameters", c_void_p),
        ("dx", _Strided),
        ("dy", _Strided),
        ("cost", _Strided),
        ("log_a", _Strided),
        ("log_b", _Strided),
        ("uniforms", c_void_p),
        ("normals", c_void_p),
        ("max_points", c_int64),
        ("plans", c_void_p),
        ("rows", c_int64),
        ("cols", c_int64),
        ("values", c_void_p),
        ("n_steps", c_void_p),
    ]


class Rows(ctypes.Structure):
    """The address of matrices with padded contiguous rows, and their strides over items and rows, in numbers."""

    _fields_ = [("data", c_void_p), ("item", c_int64), ("row", c_int64)]


class FrankWolfeTask(IntEnum):
    """The task of one call of `Library.frank_wolfe`, with the values of the C++ enumeration in common.hpp."""

    WRITE_COSTS = 0
    MAKE_STEP = 1
    SWAP = 2


class FrankWolfeRun(ctypes.Structure):
    """The arguments of `Library.frank_wolfe`, with the fields of the C++ record `FrankWolfeRun` in common.hpp."""

    _fields_ = [
        ("batch", c_int64),
        ("n_threads", c_int64),
        ("n", c_int64),
        ("m", c_int64),
        ("task", c_int64),
        ("running", c_int64),
        ("converged", c_int64),
        ("collapsed", c_int64),
        ("swap_levels", c_double),
        ("cost_steps", c_double),
        ("parameters", c_void_p),
        ("programs", c_void_p),
        ("dx", Rows),
        ("dy", Rows),
        ("cost", Rows),
        ("supports", c_void_p),
        ("costs", c_void_p),
        ("vertices", c_void_p),
        ("items", c_void_p),
        ("plan", c_void_p),
        ("local_cost", c_void_p),
        ("mass", c_void_p),
        ("linear", c_void_p),
        ("new_plan", c_void_p),
        ("new_local_cost", c_void_p),
        ("numbers", c_void_p),
        ("status", c_void_p),
        ("max_swaps", c_int64),
        ("min_share", c_double),
        ("a", c_void_p),
        ("b", c_void_p),
        ("row_orders", c_void_p),
        ("col_orders", c_void_p),
    ]


@dataclass(frozen=True)
class Library:
    """The loaded library: names of the fields of its C++ records, in order, and the instruction set that it uses."""

    handle: ctypes.CDLL
    config_fields: tuple[str, ...]
    parameter_fields: tuple[str, ...]
    plan_fields: tuple[str, ...]
    iterate_fields: tuple[str, ...]
    linear_fields: tuple[str, ...]
    search_fields: tuple[str, ...]
    conic_fields: tuple[str, ...]
    frank_wolfe_fields: tuple[str, ...]
    instruction_set: str

    def run(self, arguments: Run) -> int:
        """Make steps of alternating minimization; return how many items still run and have steps left.

        Iterates, plans, status, n_iter and history in the arrays of `arguments` are updated in place. The steps end
        with number `arguments.last_step`, which is made, or after `arguments.seconds`.
        """
        return self._call(self.handle.ugw_run, arguments)

    def prepare(self, arguments: Run) -> None:
        """Compute settings and iterates of runs before the first step from `arguments.plans`, of mass 1.

        They are written to the arrays `parameters`, `iterates`, `outputs` (local costs) and `inputs` of `arguments`.
        """
        self._call(self.handle.ugw_prepare, arguments)

    def solve_linear(self, arguments: LinearRun) -> None:
        """Solve linear problems by Sinkhorn from f, g; write f, g, plan (mass 1), log_mass, residual of `arguments`."""
        self._call(self.handle.ugw_solve_linear, arguments)

    def multiply(self, arguments: ProductRun) -> None:
        """Write the sums Σ_i'j' G_iji'j' p_i'j', (B, n, m), of a kernel G and plans p to `arguments.products`."""
        self._call(self.handle.ugw_multiply, arguments)

    def search(self, arguments: SearchRun) -> None:
        """Search initial plans; write results to the arrays `plans`, `values` and `n_steps` of `arguments`.

        They are the `count` best plans of each item, of mass 1, their penalized objectives (+inf for a repeated plan),
        and the steps of all candidates of an item together.
        """
        self._call(self.handle.ugw_search, arguments)

    def frank_wolfe(self, arguments: FrankWolfeRun) -> None:
        """Do `arguments.task` for plans of a batch, in the arrays of `arguments`.

        WRITE_COSTS writes the costs of their linear programs; MAKE_STEP makes the Frank–Wolfe steps to the solutions of
        these; SWAP improves plans, given ones or those of the north-west corner rule, by swaps of two pairs. Plans are
        in units of sqrt(m(a) m(b)).
        """
        self._call(self.handle.ugw_frank_wolfe, arguments)

    def _call(self, function: Any, arguments: ctypes.Structure) -> int:
        """Return what a function of the library returns; raise MemoryError for a negative number."""
        result = function(ctypes.byref(arguments))
        if result < 0:
            raise MemoryError("no memory for the work arrays of the compiled library")
        return result


# The functions of the library and the records of their arguments.
_RECORDS: dict[str, type[ctypes.Structure]] = {
    "ugw_run": Run,
    "ugw_prepare": Run,
    "ugw_solve_linear": LinearRun,
    "ugw_multiply": ProductRun,
    "ugw_search": SearchRun,
    "ugw_frank_wolfe": FrankWolfeRun,
}


def padded_size(count: int) -> int:
    """Return `count` rounded up to a multiple of 8, the length of rows in the library (PADDING in common.hpp)."""
    return -(-count // 8) * 8


def is_available() -> bool:
    """Return whether the compiled library is built and not disabled by UGW_COMPILED=0."""
    return not is_switched_off() and _load() is not None


def is_switched_off() -> bool:
    """Return whether the environment variable UGW_COMPILED is 0."""
    return os.environ.get(SWITCH) == "0"


def load() -> Library:
    """Return the compiled library, even if UGW_COMPILED is 0; raise RuntimeError if it is not built."""
    library = _load()
    if library is None:
        raise RuntimeError("the compiled library of ugw is not built: install ugw where there is a C++ compiler")
    return library


@cache
def _load() -> Library | None:
    """Return the compiled library in this folder, None if it is missing, not loadable or built from other sources."""
    for path in sorted(Path(__file__).parent.glob("_alternating*.so")):
        try:
            handle = ctypes.CDLL(str(path))
        except OSError:  # built for another machine
            continue
        handle.ugw_field_names.restype = ctypes.c_char_p
        handle.ugw_field_names.argtypes = [ctypes.c_char_p]
        handle.ugw_instruction_set.restype = ctypes.c_char_p
        handle.ugw_run_size.restype = c_int64
        size = ctypes.sizeof(ConicRun) + sum(map(ctypes.sizeof, set(_RECORDS.values())))
        if handle.ugw_run_size() != size or not all(hasattr(handle, name) for name in _RECORDS):
            continue  # built from other sources
        for name, record in _RECORDS.items():
            function = getattr(handle, name)
            function.restype, function.argtypes = c_int64, [ctypes.POINTER(record)]
        return Library(
            handle,
            config_fields=_field_names(handle, "config"),
            parameter_fields=_field_names(handle, "parameters"),
            plan_fields=_field_names(handle, "plan"),
            iterate_fields=_field_names(handle, "iterate"),
            linear_fields=_field_names(handle, "linear"),
            search_fields=_field_names(handle, "search"),
            conic_fields=_field_names(handle, "conic"),
            frank_wolfe_fields=_field_names(handle, "frank_wolfe"),
            instruction_set=handle.ugw_instruction_set().decode(),
        )
    return None


def _field_names(handle: ctypes.CDLL, record: str) -> tuple[str, ...]:
    """Return the names of the fields of a C++ record, in order, from the library's function `ugw_field_names`."""
    return tuple(handle.ugw_field_names(record.encode()).decode().rstrip(",").split(","))


def strided_matrices(tensor: Tensor | None) -> _Strided:
    """Return address and strides of matrices (B, n, m), or of one (n, m) for all items; a null address for None.

    Strides of items, rows and columns are in numbers, not bytes; that of items is 0 for one matrix.
    """
    if tensor is None:
        return _Strided(None, 0, 0, 0)
    shared = (0,) if tensor.ndim == 2 else ()
    return _Strided(tensor.data_ptr(), *shared, *tensor.stride())


def strided_vectors(tensor: Tensor) -> _Strided:
    """Return address and strides, in numbers, of vectors (B, n): of items, of rows (0), and of entries as columns."""
    item, col = tensor.stride()
    return _Strided(tensor.data_ptr(), item, 0, col)


def kernel_addresses(kernel: Any) -> ConicKernel:
    """Return the record of a `StoredKernel`: addresses of left, right, right_rows, row length of the last, and rank.

    The kernel must be kept alive. Without right factors their addresses are null and the row length is 0.
    """
    if kernel.right is None:
        return ConicKernel(kernel.left.data_ptr(), None, None, 0, kernel.rank)
    rows = kernel.right_rows
    return ConicKernel(kernel.left.data_ptr(), kernel.right.data_ptr(), rows.data_ptr(), rows.shape[1], kernel.rank)


def rows_of_matrices(tensor: Tensor | None) -> Rows:
    """Return address, item stride (0 for one matrix) and row stride, in numbers, of (B, n, stride); null for None."""
    if tensor is None:
        return Rows(None, 0, 0)
    return Rows(tensor.data_ptr(), 0 if tensor.ndim == 2 else tensor.stride(0), tensor.stride(-2))
