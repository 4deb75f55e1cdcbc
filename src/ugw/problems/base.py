"""The interface between problems and solvers: what every problem between two spaces provides."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from .._utils.pytree import take
from ..geometry.metric import Metric
from ..geometry.space import Space
from ..measures.divergences import KL, Divergence
from ..results.records import Lift, ObjectiveTerms, SolverOutput
from ..results.result import Result
from .distortion.base import StoredKernel
from .linear import LinearProblem, LinearSolution
from .mass import MassRule


class SpacePair(ABC):
    """Two spaces with weights and divergences for B batch items; dataclasses derived from it call `set_weights`."""

    x: Space
    y: Space
    div_a: Divergence
    div_b: Divergence
    eps: Tensor  # (B,)
    batched: bool  # False: the one item of a problem without a batch
    log_a: Tensor  # (B, n), log of the first weights scaled to mass 1
    log_b: Tensor  # (B, m), log of the second weights scaled to mass 1
    log_weights: Tensor  # (B, n + m), both in float64
    log_mass_a: Tensor  # (B,), log of the first total mass, float64
    log_mass_b: Tensor  # (B,), log of the second total mass, float64

    def set_weights(self) -> None:
        """Set log_a (B, n) and log_b (B, m), logs of the weights scaled to mass 1, and log_mass_a, log_mass_b (B,).

        The latter are logs of the total masses. Also sets log_weights (B, n + m): log_a, then log_b, in float64.
        """
        exact = []
        for side, space in (("a", self.x), ("b", self.y)):
            weights = space.weight_tensor.detach().double()
            mass = weights.sum(-1)
            exact.append((weights / mass[..., None]).log().expand(self.batch, -1))
            object.__setattr__(self, f"log_{side}", exact[-1].to(space.dtype))
            object.__setattr__(self, f"log_mass_{side}", mass.log().expand(self.batch))
        object.__setattr__(self, "log_weights", torch.cat(exact, dim=1))

    @property
    def batch(self) -> int:
        """Number of batch items."""
        return self.eps.shape[0]

    @property
    def sizes(self) -> tuple[tuple[int, int], ...] | None:
        """(n, m) of each item, padded points not counted; None for a problem without a batch."""
        if not self.batched:
            return None
        rows = self.x.sizes or (self.x.n,) * self.batch
        cols = self.y.sizes or (self.y.n,) * self.batch
        return tuple(zip(rows, cols, strict=True))

    @property
    def largest(self) -> tuple[int, int]:
        """(n, m), padded points not counted, of the item with the largest n·m."""
        return max(self.sizes or ((self.x.n, self.y.n),), key=math.prod)

    @property
    def numpy(self) -> bool:
        """Whether results hold NumPy arrays: if both spaces were made of arrays, else they hold tensors."""
        return self.x.numpy and self.y.numpy

    @property
    def product(self) -> Any:
        """The product plan a⊗b scaled to mass 1, (B, n, m): a tensor, or an `ImplicitPlan` if plans are not stored."""
        return self.log_a.exp()[:, :, None] * self.log_b.exp()[:, None, :]

    @abstractmethod
    def take(self, index: Tensor) -> Self:
        """Return the problem of the batch items `index`, (k,); an item may appear more than once."""

    def take_common_fields(self, index: Tensor, **others: Any) -> Self:
        """Return the problem of the items `index`, (k,), of spaces, divergences and eps; `others` are set as given."""
        spaces = {"x": self.x.select_items(index), "y": self.y.select_items(index)}
        divergences = {"div_a": self.div_a.take(index), "div_b": self.div_b.take(index)}
        return replace(self, **spaces, **divergences, eps=self.eps[index], batched=True, **others)  # type: ignore

    def result(self, tensors: SolverOutput) -> Result:
        """Return the `Result` (plan, terms, status, ...) of a solver's output; its `parameters` are empty."""
        return Result(tensors, self.sizes, self.numpy)


def take_cost(cost: Any, index: Tensor) -> Any:
    """Return the costs of the batch items `index`, (k,); a cost (n, m), shared by all items, or None, unchanged."""
    return cost if isinstance(cost, Tensor) and cost.ndim == 2 else take(cost, index)


@dataclass(frozen=True)
class CompiledInputs:
    """Input of the compiled (C++) steps for a problem with stored plans and the loss t².

    dx, dy: metrics of both spaces; cost: (n, m) or (B, n, m), the linear cost of a fused problem, or None; mass_rule:
    computes the optimal mass of a plan, and has the factors of the divergences.
    """

    dx: Metric
    dy: Metric
    cost: Tensor | None
    mass_rule: MassRule


@dataclass(frozen=True)
class CompiledConicInputs:
    """Input of the compiled (C++) steps for a conic problem.

    kernels: matrices of the conic kernel exp(−λ/R), one for each item or one for all; constants: (B,) each, by field of
    the C++ record `ConicParameters`.
    """

    kernels: list[StoredKernel]
    constants: dict[str, Tensor]


class Problem(SpacePair):
    """A problem that is solved by a sequence of linear problems.

    A state is a record of a plan and the quantities computed from it, all with a batch dimension. Solvers read its
    `unit_plan` (B, n, m), the plan divided by its mass, `local_cost` (B, n, m), None in a state that is only kept for
    its plan, `log_mass` (B,), `plan` (B, n, m), the plan with its mass, `is_collapsed` (B,) bool, `reported()`, the
    state with the mass in the result, and `change_since(last)`, (B,), which the tolerance of a solver bounds.
    """

    div_a: KL
    div_b: KL

    # Is the local cost linear in the plan? Then local costs of several plans can be combined (extrapolation).
    has_linear_local_cost: bool = False
    # Does a step count only if its linear problem was solved to the tolerance?
    requires_solved_steps: bool = True
    # Must a plan keep its zeros, because mass there could have infinite cost? Then proximal steps do not leave them.
    keeps_zeros: bool = False
    # Are plans stored, and is the loss t²? Then a step makes the same matrix products whatever the values are.
    has_stored_squares: bool = False

    @abstractmethod
    def state_of_plan(self, unit_plan: Any, *, is_product: Tensor | None = None) -> Any:
        """Return the state of a plan (B, n, m) of mass 1: a record of the plan, its local cost, its optimal mass, etc.

        is_product: (B,) bool, is the plan the product of its marginals? None if that is not known.
        """

    @abstractmethod
    def linearize(self, state: Any) -> LinearProblem:
        """Return the linear problem whose solution is the next plan: this one linearized at the plan of a state."""

    @abstractmethod
    def accept(self, state: Any, solution: LinearSolution) -> Any:
        """Return the next state: the plan of `solution`, which solves `linearize(state)`, with its optimal mass."""

    @abstractmethod
    def objective(self, p: Any, q: Any = None) -> ObjectiveTerms:
        """Return the weighted terms, (B,) each, that sum to the objective F(p, q) of two states; q = p if None.

        The local cost of the state p is not used; it may be None.
        """

    @abstractmethod
    def cost_scale(self) -> Tensor:
        """Return the typical size, (B,) > 0, of an entry of the cost of `linearize`: the unit of the proximal term."""

    def final_state(self, state: Any) -> Any:
        """Return the state that the result of a run is made of: here `state` with its reported log mass."""
        return state.reported()

    @abstractmethod
    def potentials_and_lift(
        self, q: Any, p: Any, linear: tuple[Tensor, Tensor], log_mass: Tensor, entropy: Tensor
    ) -> tuple[tuple[Tensor, Tensor] | None, Lift | None]:
        """Return the dual potentials (f, g), (B, n) and (B, m), of the step from state q to p, and the `Lift` of p.

        None replaces the potentials of a problem that has none, and the `Lift`, the plan (P, Q, w) between the cones
        over both spaces, of all but conic problems. The potentials are those of the problem as users state it. linear:
        potentials of the last linear problem; log_mass: (B,), log mass of its solution; entropy: (B,), its eps.
        """

    def compiled_inputs(self) -> CompiledInputs | CompiledConicInputs | None:
        """Return the matrices and constants that C++ steps read, the second record for a conic problem.

        None for a problem for which there are no C++ steps.
        """
        return None


def hard_marginal_error(problem: SpacePair, unit_plan: Any) -> Tensor:
    """Return max(Σ |p1 − a|, Σ |p2 − b|) over the hard sides, (B,), 0 where none is; plan and weights of mass 1."""
    is_hard = problem.div_a.is_hard, problem.div_b.is_hard
    if not is_hard[0].is_cuda and not bool(torch.logical_or(*is_hard).any()):
        return torch.zeros_like(problem.eps)
    error_a = (unit_plan.sum(2) - problem.log_a.exp()).abs().sum(1).double()
    error_b = (unit_plan.sum(1) - problem.log_b.exp()).abs().sum(1).double()
    return torch.maximum(torch.where(is_hard[0], error_a, 0.0), torch.where(is_hard[1], error_b, 0.0))
