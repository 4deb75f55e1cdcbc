"""The initial plans of a solve: by the name of a start and the size class, or a plan given by the caller."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from .._utils.checks import as_tensor, check_choice, check_finite, check_nonnegative, is_array_like
from .._utils.size_class import size_class
from ..errors import InputError
from ..problems.base import SpacePair
from ..problems.ugw import UGW
from ..problems.ugw_streamed import StreamingUGW
from ..results.lazy_plan import LazyPlan
from ..results.result import Result
from .coarse import coarse_plan, coarse_plans
from .config import INITIALIZER_CONFIG
from .multistart import Multistart
from .names import INIT_NAMES
from .plans import first_lower_bound_plan, linear_transport_plan, random_anchor_plans

# The starts that are one plan (B, n, m) of the problem.
SINGLE_PLANS: dict[str, Callable[[UGW], Tensor]] = {
    "product": attrgetter("product"),  # close to a saddle point: safe, and slow to leave
    "flb": first_lower_bound_plan,
    "linear": linear_transport_plan,
    "random": lambda problem: random_anchor_plans(problem, 1)[:, 0],
    "coarse": coarse_plan,
    "auto": coarse_plan,
}


def candidate_plans(problem: UGW, init: Any) -> Tensor:
    """Return the initial plans (B, S, n, m) that `init` stands for: S ≤ 4 for "best", S = 1 otherwise.

    Those of "best" are different plans of the search, then the product plan; an item with fewer repeats its first, and
    an item of one plan has no product plan. init: a name, whose plans have mass 1, or plans (B, n, m) as `read_start`
    returns them, which keep their mass.
    """
    if not isinstance(init, str):
        return init[:, None]
    if init in SINGLE_PLANS:
        return SINGLE_PLANS[init](problem)[:, None]
    plans, values = coarse_plans(problem, INITIALIZER_CONFIG.n_best_candidates)
    if plans.shape[1] == 1:  # all candidates have led to one plan, the product plan among them
        return plans
    # The same for an item of a batch, whose others have more plans.
    has_one_plan = torch.isinf(values[:, 1])[:, None, None]
    last = torch.where(has_one_plan, plans[:, 0], problem.product)
    return torch.cat([plans, last[:, None]], dim=1)


def n_candidate_plans(init: str, n: int, m: int) -> int:
    """Return how many initial plans of n × m points `candidate_plans` returns at most, for the name of a start."""
    is_one = init != "best" or size_class(n, m).n_middle_clusters
    return 1 if is_one else 1 + INITIALIZER_CONFIG.n_best_candidates


def read_start(problem: UGW, solver: Any, init: Any) -> Any:
    """Return `init` after checks: a name unchanged, or plans as a tensor (B, n, m).

    A LazyPlan becomes an ImplicitPlan if the problem is streaming. init: a name, a plan, a LazyPlan, or a Result or
    ConicResult, whose plan is taken. Raises InputError for starts and solvers that do not fit the problem.
    """
    init = init.plan if isinstance(init, Result) else init
    is_streaming = isinstance(problem, StreamingUGW)
    if is_streaming and isinstance(solver, Multistart):
        raise InputError(
            "a Multistart stores its plans, got a problem too large for that: the default start tries many"
        )
    if is_streaming and bool(problem.has_vertex_solutions.any()):
        raise InputError(
            'eps = 0 with both marginals hard needs a stored plan: take eps > 0, or inner=Sinkhorn(method="stabilized")'
        )
    if not isinstance(init, str):
        is_lazy, shape = is_streaming and isinstance(init, LazyPlan), (problem.batch, problem.x.n, problem.y.n)
        plan = init.implicit_plan(shape) if is_lazy else read_plan(problem, init, "init")
        if not bool((plan.sum((1, 2)) > 0).all()):
            raise InputError("init must have positive mass, got a plan of zeros")
        return plan
    check_choice("init", init, INIT_NAMES)
    if init == "linear":
        check_common_dimension(problem)
    return init


def read_plan(problem: SpacePair, plan: Any, name: str) -> Tensor:
    """Return the caller's plan as a tensor (B, n, m), detached, in the dtype and on the device of the problem.

    plan: an array or a LazyPlan, (n, m) for all items or (B, n, m). Raises InputError, which calls the plan `name`, for
    other shapes, entries that are negative or not finite, and mass at points of weight 0.
    """
    plan = plan.dense() if isinstance(plan, LazyPlan) else plan
    if not is_array_like(plan):
        start = 'the name of an initial plan such as "auto", ' if name == "init" else ""
        got = "None" if plan is None else type(plan).__name__
        raise InputError(f"{name} must be {start}an array, a LazyPlan, a Result or a ConicResult, got {got}")
    weights = problem.x.weight_tensor
    tensor = as_tensor(name, plan).detach().to(weights.dtype)
    tensor = as_tensor(name, tensor if isinstance(plan, Tensor) else tensor.to(weights.device), like=weights)
    n, m = problem.x.n, problem.y.n
    if tensor.shape not in ((n, m), (problem.batch, n, m)):
        expected = f"({n}, {m})" + (f" or ({problem.batch}, {n}, {m})" if problem.batched else "")
        raise InputError(f"{name} must be a plan of shape {expected}, got {tuple(tensor.shape)}")
    check_finite(name, tensor)
    check_nonnegative(name, tensor)
    is_shared = tensor.ndim == 2 and problem.batched
    tensor = tensor.expand(problem.batch, n, m)
    allowed = (problem.log_a > -torch.inf)[:, :, None] & (problem.log_b > -torch.inf)[:, None, :]
    if bool(((tensor > 0) & ~allowed).any()):
        hint = f"; one plan was given for all {problem.batch} items, some padded with such points" if is_shared else ""
        raise InputError(f"{name} must be 0 at points of weight 0, got mass in their rows or columns{hint}")
    return tensor


def check_common_dimension(problem: SpacePair) -> None:
    """Raise InputError unless both spaces have points in the same R^d, as init="linear" requires."""
    x, y = problem.x.point_tensor, problem.y.point_tensor
    if x is None or y is None:
        raise InputError('init="linear" needs spaces made by Space.from_points, got one without points')
    if x.shape[-1] != y.shape[-1]:
        raise InputError(f'init="linear" needs points of one dimension, got R^{x.shape[-1]} and R^{y.shape[-1]}')
