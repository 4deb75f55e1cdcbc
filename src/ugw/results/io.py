"""Files of results: `.npz` archives of plain arrays and JSON text, never pickled objects."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._utils.atomic_files import atomic_folder
from ..geometry.bilinear_matrix import BilinearMatrix
from ..geometry.implicit_plan import ImplicitPlan
from .records import ConicTerms, History, Lift, SolverOutput, Status, Terms

Arrays = dict[str, np.ndarray]

# An array that only the files of one class of results have, and that class; a ConicResult has those of a Result too.
_KINDS_BY_ARRAY = {
    "facts": "PairwiseResult",
    "cross.status": "Debiased",
    "shares": "Barycenter",
    "conic.status": "Tightness",
    "lift_P": "ConicResult",
    "batched": "Result",
}

# Fields of SolverOutput that are records themselves, those that are plans (stored or implicit), and those that files of
# earlier versions lack.
_RECORD_FIELDS = ("terms", "potentials", "lift")
_PLAN_FIELDS = ("plan", "previous_plan")
_NEW_FIELDS = ("n_iter_search", "backend")

# Names of arrays in files of earlier versions, and their names now. There `other` was the previous plan.
_OLD_LIFT_NAMES = {
    "lift_error": "lift_kernel_error",
    "lift_wanted": "lift_kernel_tolerance",
    "lift_slack": "lift_value_slack",
    "lift_rank": "lift_kernel_rank",
    "lift_metric": "lift_is_metric",
    "lift_exponent": "lift_distance_exponent",
    "lift_power": "lift_radius_power",
}
_OLD_PLAN_PARTS = {"rows_sum": "row_sums", "cols_sum": "col_sums", "moved": "right_product"}


def write_npz(target: Path, arrays: Arrays) -> None:
    """Write arrays to a compressed `.npz` file, which appears complete or not at all; an old file is replaced."""
    with atomic_folder(target.parent) as stage, (stage / target.name).open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def read_npz(path: str | os.PathLike[str]) -> Arrays:
    """Return the arrays of an `.npz` file by name; raise ValueError if it has pickled objects."""
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def saved_kind(arrays: Arrays) -> str | None:
    """Return the name of the class of results whose `save` writes arrays of these names; None if unknown.

    >>> saved_kind({"facts": np.zeros(1)}), saved_kind({"points": np.zeros(1)})
    ('PairwiseResult', None)
    """
    return next((kind for name, kind in _KINDS_BY_ARRAY.items() if name in arrays), None)


def with_current_names(arrays: Arrays) -> Arrays:
    """Return the arrays by their current names; files of an earlier version have other names.

    >>> list(with_current_names({"other": np.zeros(1), "lift_rank": np.zeros(1)}))
    ['previous_plan', 'lift_kernel_rank']
    """
    if "terms_apart" in arrays:
        arrays = {"terms_unmatched" if name == "terms_apart" else name: array for name, array in arrays.items()}
    is_old = any(name == "other" or name.startswith("other_") for name in arrays)
    return {_current_name(name): array for name, array in arrays.items()} if is_old else arrays


def _current_name(old: str) -> str:
    """Return the current name of an array that is called `old` in files of an earlier version."""
    if old in _OLD_LIFT_NAMES:
        return _OLD_LIFT_NAMES[old]
    plan, _, part = old.partition("_")
    if plan not in ("plan", "other"):
        return old
    plan = "previous_plan" if plan == "other" else plan
    if part.startswith("log_"):
        part = f"log_plan_{part.removeprefix('log_')}"
    return f"{plan}_{_OLD_PLAN_PARTS.get(part, part)}" if part else plan


def to_array(tensor: Tensor) -> np.ndarray:
    """Return a tensor as a NumPy array on the CPU, without its autograd graph."""
    return tensor.detach().cpu().numpy()


def json_array(value: Any) -> np.ndarray:
    """Return the JSON text of a value as a string array of shape (), which `.npz` files can hold."""
    return np.array(json.dumps(value))


def from_json_array(array: np.ndarray) -> Any:
    """Return the value whose JSON text `json_array` stored in an array."""
    return json.loads(str(array))


def with_prefix(prefix: str, arrays: Arrays) -> Arrays:
    """Return the arrays with `prefix.` put before each name."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def without_prefix(prefix: str, arrays: Arrays) -> Arrays:
    """Return the arrays whose names begin with `prefix.`, with this removed from their names."""
    return {name[len(prefix) + 1 :]: array for name, array in arrays.items() if name.startswith(f"{prefix}.")}


def output_to_arrays(output: SolverOutput) -> Arrays:
    """Return the tensors of a `SolverOutput` as arrays by name; those that are None are left out.

    Names are those of fields, "f" and "g" for the potentials, and `terms_<name>`, `lift_<name>`, `<plan>_<part>` in
    records.
    """
    tensors = {f"terms_{name}": term for name, term in output.terms.as_dict().items()}
    if output.potentials is not None:
        tensors |= dict(zip(("f", "g"), output.potentials, strict=True))
    if output.lift is not None:
        tensors |= {f"lift_{f.name}": getattr(output.lift, f.name) for f in fields(Lift)}
    for name in _PLAN_FIELDS:
        tensors |= _plan_tensors(name, getattr(output, name))
    plain = (f.name for f in fields(output) if f.name not in (*_RECORD_FIELDS, *_PLAN_FIELDS))
    tensors |= {name: getattr(output, name) for name in plain}
    return {name: to_array(tensor) for name, tensor in tensors.items() if tensor is not None}


def output_from_arrays(arrays: Arrays) -> SolverOutput:
    """Return the `SolverOutput` (plans, terms, status, ...) from the arrays of `output_to_arrays`, on the CPU.

    Other arrays are ignored. KeyError if one is missing; only n_iter_search, backend and those of potentials are then
    None, and without "lift_P" there is no lift.
    """
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items() if array.ndim}
    is_conic = "lift_P" in tensors
    names = [f.name for f in fields(SolverOutput) if f.name not in (*_RECORD_FIELDS, *_PLAN_FIELDS)]
    plain: dict[str, Any] = {name: tensors.get(name) if name in _NEW_FIELDS else tensors[name] for name in names}
    return SolverOutput(
        terms=_record(ConicTerms if is_conic else Terms, "terms", tensors),
        potentials=(tensors["f"], tensors["g"]) if "f" in tensors else None,
        lift=_record(Lift, "lift", tensors) if is_conic else None,
        **{name: _plan(name, tensors) for name in _PLAN_FIELDS},
        **plain,
    )


def check_output(output: SolverOutput, items: int) -> None:
    """Raise ValueError unless all tensors have `items` batch items, shapes fit together and statuses are valid."""
    if (
        len(output.plan.shape) != 3
        or output.plan.shape != output.previous_plan.shape
        or output.trace.ndim != 3
        or output.trace.shape[2] != len(fields(History))
    ):
        raise ValueError("arrays of the wrong shape")
    lengths = {len(array) for array in output_to_arrays(output).values()}
    if lengths != {items}:
        raise ValueError(f"arrays of {sorted(lengths)} items, expected {items}")
    for code in output.status.tolist():
        Status(code)


def _plan_tensors(name: str, plan: Tensor | ImplicitPlan) -> dict[str, Tensor]:
    """Return a plan tensor under its name, or the tensors of an `ImplicitPlan` as `<name>_<part>`."""
    if not isinstance(plan, ImplicitPlan):
        return {name: plan}
    parts = {f"{name}_{f.name}": getattr(plan, f.name) for f in fields(plan) if f.name != "log_plan"}
    return parts | {f"{name}_log_plan_{f.name}": getattr(plan.log_plan, f.name) for f in fields(plan.log_plan)}


def _plan(name: str, tensors: dict[str, Tensor]) -> Any:
    """Return the plan, a tensor or an `ImplicitPlan`, from the tensors of `_plan_tensors` with this name."""
    if name in tensors:
        return tensors[name]
    log = _record(BilinearMatrix, f"{name}_log_plan", tensors)
    parts = {f.name: tensors[f"{name}_{f.name}"] for f in fields(ImplicitPlan) if f.name != "log_plan"}
    return ImplicitPlan(log, **parts)


def _record(kind: Any, prefix: str, tensors: dict[str, Tensor]) -> Any:
    """Return an instance of the dataclass `kind` from the tensors named `<prefix>_<field>`; KeyError if one lacks."""
    return kind(**{f.name: tensors[f"{prefix}_{f.name}"] for f in fields(kind)})
