"""Linear problems from arrays."""

import numpy as np
import torch

from ugw.measures.divergences import KL
from ugw.problems.linear import LinearProblem


def linear_problem(cost, a, b, rho, eps):
    """Return the linear problem of a cost (n, m), weights (n,), (m,), and rho of both sides, as a batch of one."""
    with np.errstate(divide="ignore"):
        log_a, log_b = (torch.tensor(np.log(w))[None] for w in (a, b))
    sides = [KL(np.array([side])) for side in rho]
    return LinearProblem(torch.tensor(cost)[None], log_a, log_b, *sides, torch.tensor([eps], dtype=torch.float64))


def plan_with_mass(solution):
    """Return the plan (n, m) with its mass of the first item of a solution."""
    return (solution.unit_plan * solution.log_mass.exp()[:, None, None])[0].numpy()
