"""The parameters that a result was solved with, as plain dictionaries: numbers, strings, lists and None."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import Any

import numpy as np
from torch import Tensor

from ..measures.divergences import Divergence, Mass
from .config import RESULTS_CONFIG

# Solver options that do not change the result, and may not be plain values.
_OMITTED_FIELDS = ("callback", "progress")
# How the text begins that stands for a matrix.
_MATRIX_TEXT = "array of shape"


def to_plain(value: Any) -> Any:
    """Return a value as numbers, strings, lists and dictionaries, which JSON can hold.

    Numbers and vectors become numbers and lists; of a matrix only the shape is kept, as text; a record becomes a
    dictionary with its class under "name", without callback and progress; an Enum or a function becomes its name;
    anything else becomes its repr.

    >>> import ugw
    >>> to_plain(ugw.Multistart(n=3))["solver"]["name"]
    'AlternateMin'
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Tensor | np.ndarray) and value.ndim > 1:
        return f"{_MATRIX_TEXT} {tuple(value.shape)}"  # the cost of Fused has as many entries as the plan
    if isinstance(value, Tensor):
        return value.detach().cpu().tolist()
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [to_plain(part) for part in value]
    if isinstance(value, dict):
        return {str(name): to_plain(part) for name, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        options = {name: to_plain(getattr(value, name)) for name in _option_names(type(value))}
        return {"name": type(value).__name__, **options}
    if callable(value) and hasattr(value, "__qualname__"):
        return value.__qualname__
    return repr(value)


@cache
def _option_names(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass that `to_plain` keeps: all but callback and progress."""
    return tuple(f.name for f in fields(kind) if f.name not in _OMITTED_FIELDS)


def are_equal(first: Any, second: Any) -> bool:
    """Return whether two plain values are equal: floats up to a relative difference of 1e-5, all others exactly.

    Plain values are None, bools, numbers, strings, and lists and dictionaries of these.

    >>> are_equal({"eps": [0.1, 1.0]}, {"eps": [0.1 + 1e-17, 1.0]}), are_equal(0.1, 0.2)
    (True, False)
    """
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        return all(map(are_equal, first, second))
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        return all(are_equal(value, second[name]) for name, value in first.items())
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=RESULTS_CONFIG.parameter_rounding)
    return bool(first == second)


def penalty_parameters(sides: tuple[Divergence, Divergence], eps: Any) -> dict[str, Any]:
    """Return the entries "divergence", the name of its class, "eps", and "rho", or "mass" for Mass, as plain values.

    sides: the divergences of both marginals. rho is a list of two, for both sides. Tensors (B,) become lists.

    >>> from ugw import KL
    >>> penalty_parameters((KL(1.0), KL(0.5)), 0.1)
    {'divergence': 'KL', 'eps': 0.1, 'rho': [1.0, 0.5]}
    """
    parameters = {"divergence": type(sides[0]).__name__, "eps": to_plain(eps)}
    if isinstance(sides[0], Mass):
        return parameters | {"mass": to_plain(sides[0].m)}
    return parameters | {"rho": [to_plain(side.rho) for side in sides]}  # type: ignore[attr-defined]


def with_parameters(
    result: Any, sides: tuple[Divergence, Divergence], eps: Tensor, solver: Any, init: Any, **others: Any
) -> Any:
    """Return a copy of `result` whose dict `parameters` holds rho or mass, eps, divergence, solver, init and `others`.

    sides: the divergences of both marginals, (B,) each; eps: (B,); solver: with all options, or a list of B of them;
    init: a name, or a plan, for which "plan" is stored; others: further arguments of the solve, left out if None. In a
    batch eps and rho or mass, and "solver" if it is a list, are lists (B,) and named in the entry "per_item"; otherwise
    they are numbers.
    """
    parameters = penalty_parameters(sides, eps)
    per_item = [name for name in parameters if name != "divergence"] + ["solver"] * isinstance(solver, list)
    parameters |= {"solver": to_plain(solver), "init": init if isinstance(init, str) else "plan"}
    parameters |= {name: to_plain(value) for name, value in others.items() if value is not None}
    parameters["per_item"] = per_item
    if not result.batched:
        parameters = item_parameters(parameters, 0, result.tensors.plan.shape[1:])
    return replace(result, parameters=parameters)


def item_parameters(parameters: dict[str, Any], index: int, size: tuple[int, int]) -> dict[str, Any]:
    """Return the parameters of item `index` of a batch, as its own solve has them, without the entry "per_item".

    Lists (B,) of the parameters named in "per_item" and of a fused alpha are replaced by the item's value, pairs of
    such lists (one for each side) by a list of two values, and the shape of a linear cost by `size`, the item's (n, m).
    """
    item = {name: value for name, value in parameters.items() if name != "per_item"}
    for name in parameters.get("per_item", ()):
        value = item[name]
        item[name] = [side[index] for side in value] if isinstance(value[0], list) else value[index]
    shape_text = f"{_MATRIX_TEXT} {tuple(size)}"
    if str(item.get("cost")).startswith(_MATRIX_TEXT):
        item["cost"] = shape_text
    if "fused" in item:
        alpha, cost = item["fused"]["alpha"], item["fused"]["cost"]
        own_alpha = alpha[index] if isinstance(alpha, list) else alpha
        item["fused"] = item["fused"] | {"alpha": own_alpha, "cost": None if cost is None else shape_text}
    return item
