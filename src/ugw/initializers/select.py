"""The plans that a solve starts from: given by the caller, or made by the start that a name stands for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._utils.checks import as_tensor, check_choice, check_finite, check_nonnegative
from .._utils.size_class import size_class
from ..errors import InputError
from ..problems.base import SpacePair
from ..problems.ugw import UGW
from ..results.lazy_plan import LazyPlan
from . import coarse
from . import plans as starts

STARTS = ("auto", "best", "product", "flb", "linear", "random", "coarse")
# Tiny plans are solved for from so many coarse plans and the product plan, all to the end.
FEW = 2


def first_plans(problem: UGW, init: Any) -> Tensor:
    """The plans (B, S, n, m) to start from: a name's, or the given one."""
    if not isinstance(init, str):
        plan = given_plan(problem, init, "init")
        if not bool((plan.amax(dim=(1, 2)) > 0).all()):
            raise InputError("init must have positive mass, got a plan of zeros")
        return plan[:, None]
    check_choice("init", init, STARTS)
    if init == "linear":
        check_points(problem)
    if init == "random":
        return starts.random(problem, 1)
    if init not in ("auto", "best"):
        make = coarse.start if init == "coarse" else getattr(starts, init)
        return make(problem)[:, None]
    sizes = size_class(*problem.largest)
    plans = coarse.several(problem, FEW if sizes.is_tiny else 1)
    if init == "best" or sizes.has_product_candidate:
        plans = torch.cat([starts.product(problem)[:, None], plans], dim=1)
    return starts.stirred(problem, plans)


def chosen_plans(problem: UGW, plans: Tensor, init: Any) -> Tensor:
    """Those of the first plans (B, S, n, m) to solve from to the end: of those of "auto" one, unless it is tiny."""
    if not isinstance(init, str) or init != "auto" or plans.shape[1] == 1 or size_class(*problem.largest).is_tiny:
        return plans
    return coarse.ahead(problem, plans)[:, None]


def given_plan(problem: SpacePair, plan: Any, name: str) -> Tensor:
    """A plan given as an array, of any precision, or as a LazyPlan, checked. Returns (B, n, m)."""
    weights, plan = problem.x.weight_tensor, plan.dense() if isinstance(plan, LazyPlan) else plan
    tensor = as_tensor(name, plan).detach().to(weights.dtype)
    tensor = as_tensor(name, tensor if isinstance(plan, Tensor) else tensor.to(weights.device), like=weights)
    n, m = problem.x.n, problem.y.n
    if tensor.shape not in ((n, m), (problem.batch, n, m)):
        expected = f"({n}, {m})" + (f" or ({problem.batch}, {n}, {m})" if problem.batched else "")
        raise InputError(f"{name} must be a plan of shape {expected}, got {tuple(tensor.shape)}")
    check_finite(name, tensor)
    check_nonnegative(name, tensor)
    tensor = tensor.expand(problem.batch, n, m)
    allowed = (problem.log_a > -torch.inf)[:, :, None] & (problem.log_b > -torch.inf)[:, None, :]
    if bool(((tensor > 0) & ~allowed).any()):
        raise InputError(f"{name} must be 0 at points of weight 0, got mass in their rows or columns")
    return tensor


def check_points(problem: SpacePair) -> None:
    """Raise unless both spaces have points of one dimension."""
    x, y = problem.x.point_tensor, problem.y.point_tensor
    if x is None or y is None:
        raise InputError('init="linear" needs spaces made by Space.from_points, got one without points')
    if x.shape[-1] != y.shape[-1]:
        raise InputError(f'init="linear" needs points of one dimension, got R^{x.shape[-1]} and R^{y.shape[-1]}')
