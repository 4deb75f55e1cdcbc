"""The search for initial plans of small stored problems on a CPU: one compiled call for a whole batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from .._utils.size_class import THRESHOLDS
from ..kernels.cpu import native
from ..problems.ugw import UGW
from ..solvers.alternating import AlternateMin
from ..solvers.compiled_steps import config_values, problem_parameters, thresholds
from ..solvers.config import SOLVER_CONFIG
from .config import INITIALIZER_CONFIG
from .plans import normal_draws, uniform_draws
from .search_steps import report_search_steps
from .successive_halving import Round


def has_compiled_search(problem: UGW) -> bool:
    """Return whether `search_compiled` can be used: plans stored and not too large, on a CPU, with the loss t²."""
    n, m = problem.largest
    is_small = n * m <= THRESHOLDS.max_middle_clusters**2
    return is_small and not problem.eps.is_cuda and native.is_available() and problem.compiled_inputs() is not None


def search_compiled(
    problem: UGW, count: int, solver: AlternateMin, coarse_rounds: Sequence[Round], fine_rounds: Sequence[Round]
) -> tuple[Tensor, Tensor]:
    """Return the best plans found by the C++ search, (B, count, n, m), best first, and their objectives (B, count).

    It does in float64 what `coarse.search` does in torch. The plans, of mass 1, differ; an item with fewer repeats its
    first one with the objective inf. Objectives are at the optimal mass, plus a penalty for missed hard marginals.
    solver: the options of all steps; coarse_rounds, fine_rounds: of successive halving between clusters, and on all
    points.
    """
    library, inputs = native.load(), problem.compiled_inputs()
    if inputs is None:
        raise RuntimeError("the problem has no compiled search")
    batch, n, m = problem.batch, problem.x.n, problem.y.n
    tables = search_tables(library.config_fields, library.search_fields, solver, (*coarse_rounds, *fine_rounds))
    of_problem = problem_parameters(problem, inputs.mass_rule)
    unset = torch.full((batch,), torch.nan, dtype=torch.float64)
    uniforms, normals = random_numbers(max(n, m))
    arrays = _SearchArrays(
        count=count,
        n_rounds=(len(coarse_rounds), len(fine_rounds)),
        config=tables[0],
        search=tables[1],
        rounds=tables[2],
        uniforms=uniforms,
        normals=normals,
        sizes=torch.tensor(problem.sizes or ((n, m),)),
        parameters=torch.stack([of_problem.get(name, unset) for name in library.parameter_fields], dim=1),
        metrics=tuple(metric.dense().detach().double() for metric in (inputs.dx, inputs.dy)),
        cost=None if inputs.cost is None else inputs.cost.detach().double(),
        log_weights=(problem.log_a.double(), problem.log_b.double()),
        plans=torch.zeros(batch, count, n, m, dtype=torch.float64),
        values=torch.empty(batch, count, dtype=torch.float64),
        n_steps=torch.zeros(batch, dtype=torch.int64),
    )
    _search_items(library, arrays)
    return arrays.plans, arrays.values


def _search_items(library: native.Library, arrays: _SearchArrays) -> None:
    """Fill `plans`, `values` and `n_steps` of `arrays`, a few items per call, so that Ctrl-C works between calls.

    The first call has one item per thread. The number is doubled while a call takes less than half of
    `compiled_call_seconds`, because threads wait for each other at the end of a call.
    """
    batch, n_threads = len(arrays.values), torch.get_num_threads()
    first, n_items = 0, n_threads
    while first < batch:
        start = time.perf_counter()
        end = min(first + n_items, batch)
        library.search(arrays.run_of_items(first, end, n_threads))
        report_search_steps(arrays.steps_of_items(first, end))
        first = end
        if time.perf_counter() - start < 0.5 * SOLVER_CONFIG.compiled_call_seconds:
            n_items *= 2


@dataclass(frozen=True, eq=False)
class _SearchArrays:
    """The arrays of a search, in the layout of `SearchRun` in common.hpp.

    The fields from `sizes` on have one entry per item in dimension 0, except metrics and a cost shared by all items.
    """

    count: int
    n_rounds: tuple[int, int]
    config: Tensor
    search: Tensor
    rounds: Tensor
    uniforms: Tensor
    normals: Tensor
    sizes: Tensor
    parameters: Tensor
    metrics: tuple[Tensor, ...]
    cost: Tensor | None
    log_weights: tuple[Tensor, Tensor]
    plans: Tensor
    values: Tensor
    n_steps: Tensor

    def steps_of_items(self, first: int, end: int) -> Tensor:
        """Return the steps of all candidates of an item together, (B,), 0 for items outside `first`, ..., `end` − 1."""
        steps = torch.zeros_like(self.n_steps)
        steps[first:end] = self.n_steps[first:end]
        return steps

    def run_of_items(self, first: int, end: int, n_threads: int) -> native.SearchRun:
        """Return the arguments of the C++ call that searches plans for the items `first`, ..., `end` − 1."""
        n, m = self.plans.shape[2:]
        matrices = [
            tensor if tensor is None or tensor.ndim == 2 else tensor[first:end] for tensor in (*self.metrics, self.cost)
        ]
        log_a, log_b = (weights[first:end] for weights in self.log_weights)
        return native.SearchRun(
            batch=end - first,
            n_threads=n_threads,
            count=self.count,
            n_coarse_rounds=self.n_rounds[0],
            n_fine_rounds=self.n_rounds[1],
            config=self.config.data_ptr(),
            search=self.search.data_ptr(),
            rounds=self.rounds.data_ptr(),
            sizes=self.sizes[first:end].data_ptr(),
            parameters=self.parameters[first:end].data_ptr(),
            dx=native.strided_matrices(matrices[0]),
            dy=native.strided_matrices(matrices[1]),
            cost=native.strided_matrices(matrices[2]),
            log_a=native.strided_vectors(log_a),
            log_b=native.strided_vectors(log_b),
            uniforms=self.uniforms.data_ptr(),
            normals=self.normals.data_ptr(),
            max_points=max(n, m),
            plans=self.plans[first:end].data_ptr(),
            rows=n,
            cols=m,
            values=self.values[first:end].data_ptr(),
            n_steps=self.n_steps[first:end].data_ptr(),
        )


@lru_cache(maxsize=INITIALIZER_CONFIG.max_cached_draws)
def random_numbers(n_points: int) -> tuple[Tensor, Tensor]:
    """Return uniform (anchors, 2) and normal (2, n_points, 1, factors) random numbers, float64, for a compiled search.

    They are those of `matching_anchor_plans`, for the anchors of all proposals, and `low_rank_noise`. n_points: of the
    larger space.
    """
    config, cpu = INITIALIZER_CONFIG, torch.device("cpu")
    n_anchors = config.n_random_candidates * config.n_anchor_proposals * config.n_anchor_pairs
    uniforms = uniform_draws(0, (n_anchors, 2), torch.float64, cpu)
    return uniforms, normal_draws(0, (n_points, 1, config.n_noise_factors), torch.float64, cpu)


@lru_cache(maxsize=INITIALIZER_CONFIG.max_cached_draws)
def search_tables(
    config_fields: tuple[str, ...], search_fields: tuple[str, ...], solver: AlternateMin, rounds: tuple[Round, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return options and thresholds of a compiled search as three float64 tensors in the layout of the C++ library.

    They are the values of `config_fields` and of `search_fields`, fields of the C++ records `Config` and
    `SearchConfig`, and (rounds, 3): steps, survivors (0 for all) and largest gap of each round. solver: the options of
    all steps.
    """
    options = solver.with_defaults()
    of_steps = config_values(config_fields, options, samples_rows=True, is_monitored=False, max_iter=0)
    of_rounds = [(stage.n_steps, stage.n_survivors or 0, stage.max_gap) for stage in rounds]
    of_search = _search_values(search_fields)
    config, search, stages = (
        torch.tensor(numbers, dtype=torch.float64) for numbers in (of_steps, of_search, of_rounds)
    )
    return config, search, stages


def _search_values(names: tuple[str, ...]) -> list[float]:
    """Return thresholds of a search for initial plans in the order of `names`, the fields of the C++ `SearchConfig`."""
    of_search: dict[str, Any] = {
        **thresholds(),
        **vars(INITIALIZER_CONFIG),
        "eccentricity_step": INITIALIZER_CONFIG.eccentricity_step["float64"],
    }
    return [float(of_search[name]) for name in names]
