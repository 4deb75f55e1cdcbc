"""Sinkhorn for small stored linear problems on a CPU: one compiled call for a whole batch."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .._utils.size_class import size_class
from ..kernels.config import KERNEL_CONFIG
from ..kernels.cpu import native
from ..problems.config import PROBLEM_CONFIG
from ..problems.linear import LinearProblem, LinearSolution
from .config import SOLVER_CONFIG


def has_compiled_solver(problem: LinearProblem) -> bool:
    """Return whether `solve_compiled` is built and fits: a small, stored float64 cost on a CPU, gradients disabled."""
    return fits_compiled_solver(problem.cost) and not torch.is_grad_enabled()


def fits_compiled_solver(cost: Any) -> bool:
    """Return whether `cost`, (B, n, m), is a small float64 CPU tensor and the compiled library is available."""
    if not isinstance(cost, Tensor) or cost.dtype != torch.float64 or cost.is_cuda:
        return False
    return size_class(*cost.shape[1:]).uses_compiled_steps and native.is_available()


def solve_compiled(
    problem: LinearProblem,
    potentials: tuple[Tensor, Tensor] | None,
    tol: Tensor,
    max_rounds: Tensor,
    *,
    in_log_domain: bool,
) -> LinearSolution:
    """Return the solution of a linear problem by compiled Sinkhorn iterations.

    It has the plan divided by its mass, the log of that mass, f, g in units of the cost, and the residual.
    potentials: f (B, n) and g (B, m) to start from, zero if None; tol, max_rounds: (B,), residual and rounds of
    `iterations_per_check` iterations at which to stop; in_log_domain: whether to take log-sum-exp throughout.
    """
    library, (batch, n, m) = native.load(), problem.cost.shape
    constants = {
        "eps": problem.eps,
        "rho_a": problem.div_a.rho,
        "rho_b": problem.div_b.rho,
        "tolerance": tol,
        "max_rounds": max_rounds,
    }
    parameters = torch.stack([constants[name] for name in library.linear_fields], dim=1)
    config = read_thresholds(library.config_fields, in_log_domain=in_log_domain)
    f, g = (
        torch.zeros(batch, size, dtype=torch.float64)
        if potentials is None
        else potentials[side].clone(memory_format=torch.contiguous_format)
        for side, size in enumerate((n, m))
    )
    plan, log_mass, residual = (torch.empty(shape, dtype=torch.float64) for shape in ((batch, n, m), batch, batch))
    arguments = native.LinearRun(
        batch=batch,
        n_threads=torch.get_num_threads(),
        n=n,
        m=m,
        config=config.data_ptr(),
        parameters=parameters.data_ptr(),
        cost=native.strided_matrices(problem.cost),
        log_a=native.strided_vectors(problem.log_a),
        log_b=native.strided_vectors(problem.log_b),
        f=f.data_ptr(),
        g=g.data_ptr(),
        plan=plan.data_ptr(),
        log_mass=log_mass.data_ptr(),
        residual=residual.data_ptr(),
    )
    library.solve_linear(arguments)
    return LinearSolution(plan, log_mass, f, g, residual)


@cache
def read_thresholds(names: tuple[str, ...], *, in_log_domain: bool) -> Tensor:
    """Return the values of the config fields `names`, (len(names),), float64; NaN for those Sinkhorn does not read."""
    configs = PROBLEM_CONFIG, KERNEL_CONFIG, SOLVER_CONFIG
    thresholds = {name: value for config in configs for name, value in vars(config).items()}
    thresholds["uses_log_domain"] = in_log_domain
    return torch.tensor([float(thresholds.get(name, math.nan)) for name in names], dtype=torch.float64)
