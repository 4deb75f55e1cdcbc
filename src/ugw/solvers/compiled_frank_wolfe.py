"""Steps of Frank–Wolfe for small stored problems on a CPU: two compiled calls per step for a whole batch.

The first writes the costs of the linear programs, POT solves these one by one, and the second makes the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from .._utils.size_class import size_class
from ..geometry.metric import Metric
from ..kernels.config import KERNEL_CONFIG
from ..kernels.cpu import native
from ..kernels.exact_ot import ProgramBatch
from ..problems.config import PROBLEM_CONFIG
from ..problems.partial.base import PartialCompiledInputs, PartialPlanState
from ..results.records import Status


def has_compiled_steps(problem: Any) -> bool:
    """Return whether compiled steps are built and fit: a small stored problem, float64, on a CPU, with the loss t²."""
    if problem.x.dtype != torch.float64 or problem.eps.is_cuda:
        return False
    if not size_class(*problem.largest).uses_compiled_steps or not native.is_available():
        return False
    return problem.compiled_inputs() is not None


@dataclass(frozen=True)
class Step:
    """The states of a batch after a step, and L1 change, relative duality gap, objective and status code, (B,) each."""

    state: PartialPlanState
    change: Tensor
    gap: Tensor
    objective: Tensor
    status: Tensor


class CompiledSteps:
    """The steps of one run in the C++ library.

    It holds the problems of the whole run; `items`, (B,), has the index of the problem of each plan in the batch.
    """

    def __init__(self, problem: Any, gap_scale: Tensor, tol: Tensor) -> None:
        """Copy the data of a problem into arrays for the library.

        gap_scale, tol: (B,), the unit of duality gaps, and the gap in that unit at which to stop.
        """
        inputs = problem.compiled_inputs()
        if inputs is None:
            raise RuntimeError("the problem has no compiled steps")
        self._library = native.load()
        self._weights = [weights.contiguous() for weights in problem.unit_weights]
        self._programs = ProgramBatch(self._weights[0], self._weights[1], problem.fixed_mass)
        n, m = problem.x.n, problem.y.n
        sizes = torch.tensor(problem.sizes or ((n, m),))
        parameters = _parameters(problem, inputs, self._programs.masses, gap_scale, tol)
        # Kept here, because the library holds only their addresses.
        self._arrays = {
            "parameters": torch.stack([parameters[name] for name in self._library.frank_wolfe_fields], dim=1),
            "programs": torch.cat([sizes, self._programs.layout], dim=1),
            "supports": self._programs.supports,
            "costs": self._programs.costs,
            "vertices": self._programs.vertices,
        }
        self._matrices = {
            "dx": _with_padded_rows(_entries(inputs.dx)),
            "dy": _with_padded_rows(_entries(inputs.dy)),
            "cost": None if inputs.cost is None else _with_padded_rows(inputs.cost.detach()),
        }
        self.items = torch.arange(problem.batch)

    def take(self, index: Tensor) -> Self:
        """Return a copy for the plans `index`, (k,), of the batch; the arrays of the problems are shared."""
        taken = object.__new__(type(self))
        vars(taken).update(vars(self), items=self.items[index])
        return taken

    def advance(self, state: PartialPlanState) -> Step:
        """Return the states after one Frank–Wolfe step, and L1 change, relative gap before it, objective, status codes.

        Plans and L1 changes are in units of sqrt(m(a) m(b)), objectives in those of the problem; (B,) each.
        """
        batch, n, m = state.unit_plan.shape
        inputs = {
            "plan": state.unit_plan.contiguous(),
            "local_cost": state.local_cost.contiguous(),
            "mass": state.mass.contiguous(),
            "linear": state.linear.contiguous(),
        }
        outputs = {
            "new_plan": torch.empty(batch, n, m, dtype=torch.float64),
            "new_local_cost": torch.empty(batch, n, m, dtype=torch.float64),
            "numbers": torch.empty(6, batch, dtype=torch.float64),
            "status": torch.empty(batch, dtype=torch.int64),
        }
        arguments = self._arguments(n, m, {**inputs, **outputs})
        self._library.frank_wolfe(arguments)
        self._programs.solve(self.items.tolist())
        arguments.task = native.FrankWolfeTask.MAKE_STEP
        self._library.frank_wolfe(arguments)
        mass, distortion, linear, change, gap, objective = outputs["numbers"].unbind(0)
        new = replace(
            state,
            unit_plan=outputs["new_plan"],
            local_cost=outputs["new_local_cost"],
            mass=mass,
            distortion=distortion,
            linear=linear,
        )
        return Step(new, change, gap, objective, outputs["status"])

    def swap_from_vertices(self, rows: Tensor, cols: Tensor) -> tuple[Tensor, Tensor]:
        """Return plans (B, n, m), made by the north-west corner rule and improved by swaps, and their objectives (B,).

        Plans are in units of sqrt(m(a) m(b)), objectives in those of the problem. rows: (B, n), cols: (B, m), indices
        of the points in the order of the rule.
        """
        a, b = self._weights
        orders = {"row_orders": rows.contiguous(), "col_orders": cols.contiguous(), "a": a, "b": b}
        return self._swap((len(rows), rows.shape[1], cols.shape[1]), orders)

    def swap_from_plans(self, plans: Tensor) -> tuple[Tensor, Tensor]:
        """Return plans (B, n, m) improved by swaps, in units of sqrt(m(a) m(b)) like `plans`, and objectives (B,)."""
        return self._swap(plans.shape, {"plan": plans.contiguous()})

    def _swap(self, shape: Sequence[int], starts: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return plans (B, n, m) improved by swaps, and objectives (B,); starts: plans, or weights and point orders."""
        outputs = {
            "new_plan": torch.empty(*shape, dtype=torch.float64),
            "numbers": torch.empty(6, shape[0], dtype=torch.float64),
        }
        arguments = self._arguments(shape[1], shape[2], {**starts, **outputs})
        arguments.task = native.FrankWolfeTask.SWAP
        self._library.frank_wolfe(arguments)
        return outputs["new_plan"], outputs["numbers"][5]

    def _arguments(self, n: int, m: int, tensors: dict[str, Tensor]) -> native.FrankWolfeRun:
        """Return the C++ record of arguments for WRITE_COSTS with plans (B, n, m); tensors: of this call, by field."""
        tensors = {**self._arrays, **tensors, "items": self.items}
        return native.FrankWolfeRun(
            batch=len(self.items),
            n_threads=torch.get_num_threads(),
            n=n,
            m=m,
            running=int(Status.RUNNING),
            converged=int(Status.CONVERGED),
            collapsed=int(Status.COLLAPSED),
            swap_levels=PROBLEM_CONFIG.swap_levels,
            max_swaps=PROBLEM_CONFIG.max_swaps,
            min_share=PROBLEM_CONFIG.min_vertex_share,
            cost_steps=10.0**KERNEL_CONFIG.cost_decimals,
            **{name: native.rows_of_matrices(matrices) for name, matrices in self._matrices.items()},
            **{name: tensor.data_ptr() for name, tensor in tensors.items()},
        )


def _parameters(
    problem: Any, inputs: PartialCompiledInputs, program_mass: Tensor, gap_scale: Tensor, tol: Tensor
) -> dict[str, Tensor]:
    """Return masses, penalties and tolerances of a problem, (B,) each, by field of the C++ `FrankWolfeParameters`."""
    masses = (problem.log_mass_a, problem.log_mass_b)
    sides = zip((problem.div_a, problem.div_b), masses, strict=True)
    has_mass = problem.fixed_mass is not None
    return {
        "mass_unit": problem.mass_unit,
        "alpha": inputs.alpha,
        "total_penalty": problem.total_penalty.expand(problem.batch),
        "marginal_constant": sum(side.penalty * (2.0 * log_mass).exp() for side, log_mass in sides),
        "gap_scale": gap_scale,
        "tol": tol,
        "min_mass": problem.min_mass,
        "program_mass": program_mass,
        "has_mass": torch.full_like(gap_scale, float(has_mass)),
    }


def _entries(metric: Metric) -> Tensor:
    """Return the distances of a metric, (n, n) or (B, n, n), without an autograd graph."""
    return metric.dense().detach()


def _with_padded_rows(matrices: Tensor) -> Tensor:
    """Return a copy of matrices (..., n, m) with zero columns added, (..., n, k): k is the next multiple of 8 ≥ m."""
    padded = matrices.new_zeros(*matrices.shape[:-1], native.padded_size(matrices.shape[-1]))
    padded[..., : matrices.shape[-1]] = matrices
    return padded
