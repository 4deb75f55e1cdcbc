"""The search for initial plans of small stored problems on a CPU: one compiled call for a whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._utils.cuda_graphs.capture_state import cached_constant
from .._utils.size_class import THRESHOLDS
from ..kernels.cpu import native
from ..problems.distortion.config import DISTORTION_CONFIG
from ..problems.ugw import UGW
from ..solvers.alternating import AlternateMin
from ..solvers.compiled_steps import config_values, problem_parameters, thresholds
from .config import INITIALIZER_CONFIG
from .plans import normal_draws, uniform_draws
from .successive_halving import Round


def has_compiled_search(problem: UGW) -> bool:
    """Return whether the compiled library searches initial plans of a problem: stored, not too large, CPU, loss t²."""
    n, m = problem.largest
    is_small = n * m <= THRESHOLDS.max_middle_clusters**2
    return is_small and not problem.eps.is_cuda and native.is_available() and problem.compiled_inputs() is not None


def search_compiled(
    problem: UGW, count: int, solver: AlternateMin, coarse_rounds: Sequence[Round], fine_rounds: Sequence[Round]
) -> tuple[Tensor, Tensor]:
    """Return the best plans that differ, (B, count, n, m), best first, and their objectives (B, count).

    It does in float64 what `coarse.search` does in torch. An item with fewer different plans repeats its first one with
    the objective inf. solver: the options of all steps.
    """
    library, inputs = native.load(), problem.compiled_inputs()
    if inputs is None:
        raise RuntimeError("the problem has no compiled search")
    batch, n, m = problem.batch, problem.x.n, problem.y.n
    options = solver.with_defaults()
    metrics = [metric.dense().detach().double() for metric in (inputs.dx, inputs.dy)]
    cost = None if inputs.cost is None else inputs.cost.detach().double()
    log_weights = problem.log_a.double(), problem.log_b.double()
    sizes = torch.tensor(problem.sizes or ((n, m),))
    of_steps = config_values(library.config_fields, options, samples_rows=True, is_monitored=False, max_iter=0)
    config = torch.tensor(of_steps, dtype=torch.float64)
    search = torch.tensor(_search_values(library.search_fields, options), dtype=torch.float64)
    rounds = [(r.n_steps, r.n_survivors or 0) for r in (*coarse_rounds, *fine_rounds)]
    schedule = torch.tensor(rounds, dtype=torch.float64)
    of_problem = problem_parameters(problem, inputs.mass_rule)
    unset = torch.full((batch,), torch.nan, dtype=torch.float64)
    parameters = torch.stack([of_problem.get(name, unset) for name in library.parameter_fields], dim=1)
    n_anchors = INITIALIZER_CONFIG.n_random_candidates * INITIALIZER_CONFIG.n_anchor_pairs
    cpu = torch.device("cpu")
    uniforms = cached_constant(uniform_draws, 0, (n_anchors, 2), torch.float64, cpu)
    normals_size = (max(n, m), 1, INITIALIZER_CONFIG.n_noise_factors)
    normals = cached_constant(normal_draws, 0, normals_size, torch.float64, cpu)
    plans = torch.zeros(batch, count, n, m, dtype=torch.float64)
    values = torch.empty(batch, count, dtype=torch.float64)
    library.search(
        native.SearchRun(
            batch=batch,
            n_threads=torch.get_num_threads(),
            count=count,
            n_coarse_rounds=len(coarse_rounds),
            n_fine_rounds=len(fine_rounds),
            config=config.data_ptr(),
            search=search.data_ptr(),
            rounds=schedule.data_ptr(),
            sizes=sizes.data_ptr(),
            parameters=parameters.data_ptr(),
            dx=native.strided_matrices(metrics[0]),
            dy=native.strided_matrices(metrics[1]),
            cost=native.strided_matrices(cost),
            log_a=native.strided_vectors(log_weights[0]),
            log_b=native.strided_vectors(log_weights[1]),
            uniforms=uniforms.data_ptr(),
            normals=normals.data_ptr(),
            max_points=max(n, m),
            plans=plans.data_ptr(),
            rows=n,
            cols=m,
            values=values.data_ptr(),
        )
    )
    return plans, values


def _search_values(names: tuple[str, ...], options: AlternateMin) -> list[float]:
    """Return the thresholds and options of a search in the order of `names`."""
    proximal = options.proximal
    of_search: dict[str, Any] = {
        **thresholds(),
        **vars(INITIALIZER_CONFIG),
        "eccentricity_step": INITIALIZER_CONFIG.eccentricity_step["float64"],
        "min_relative_mean": DISTORTION_CONFIG.min_relative_mean,
        "tol": options.tol,
        "inner_tol": options.inner.tol,
        "proximal_first": proximal.first if proximal else None,
        "proximal_last": proximal.last if proximal else None,
    }
    return [float(of_search[name]) for name in names]
