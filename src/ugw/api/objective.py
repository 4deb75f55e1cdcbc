"""`objective`: the terms of the UGW objective of any plan."""

from __future__ import annotations

from typing import Any

import torch

from ..geometry.space import Space
from ..initializers.select import read_plan
from ..measures.divergences import partial_divergences
from ..problems.build import Fused, build_partial, build_ugw, resolve_eps
from ..results.records import Terms
from ..results.result import Result


def objective(
    plan: Any,
    x: Space,
    y: Space,
    *,
    rho: Any = 1.0,
    eps: Any = 0.0,
    loss: Any = None,
    fused: Fused | None = None,
) -> Terms:
    """Return the terms of the objective F(plan, plan) of any plan (n, m) or (B, n, m), as `Terms`.

    They are distortion, linear, marginal_a, marginal_b and entropy, numbers or (B,), multiplied by 1, alpha, rho1, rho2
    and eps; `.total` is their sum, the objective at the plan's own mass.
    plan: an array, a tensor, a LazyPlan, or a Result, whose plan is taken. Other arguments: as for `solve`, but eps is
    0 by default. A hard side contributes 0, whether or not the plan keeps it. With `ugw.TV` these are the terms of the
    paper's TV⊗ functional, for plans below the weights or not.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.eye(3))
    >>> round(ugw.objective(np.eye(3) / 3, x, x, rho=1.0).total, 12)
    0.0
    """
    plan = plan.plan if isinstance(plan, Result) else plan
    sides = partial_divergences(rho)
    if sides is not None:
        partial, surrogate = build_partial(x, y, sides=sides, eps=eps, fused=fused, loss=loss)
        terms = partial.unrestricted_objective(read_plan(surrogate, plan, "plan"))
        return terms.to_user(batched=surrogate.batched, numpy=surrogate.numpy)
    problem = build_ugw(x, y, rho=rho, eps=resolve_eps(eps, rho), fused=fused, loss=loss)
    with torch.no_grad():
        terms = problem.objective(problem.state_of_any_plan(read_plan(problem, plan, "plan")))
    return terms.to_user(batched=problem.batched, numpy=problem.numpy)
