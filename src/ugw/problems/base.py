"""What solvers ask of a problem between two spaces; no solver asks which problem it holds."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from .._utils.cuda_graphs.mode import looking
from .._utils.pytree import take
from .._utils.size_class import THRESHOLDS, size_class
from ..geometry.space import Space
from ..kernels import dispatch as kernels
from ..kernels import reductions as entries
from ..measures.divergences import KL, Divergence
from ..results.records import Lift, ObjectiveTerms, SolverOutput
from ..results.result import Result
from .linear import LinearProblem, LinearSolution


class SpacePair(ABC):
    """Spaces `x` and `y` for B items, their weights and divergences; a dataclass that derives from it calls `weigh`."""

    x: Space
    y: Space
    div_a: Divergence
    div_b: Divergence
    eps: Tensor  # (B,)
    batched: bool  # False: the one item of a problem without a batch
    log_a: Tensor  # (B, n), of unit mass, as is log_b
    log_b: Tensor
    logs: Tensor  # (B, n + m), both, in float64
    log_mass_a: Tensor  # (B,) float64
    log_mass_b: Tensor

    def weigh(self) -> None:
        """Set the weights of unit mass and the masses."""
        exact = []
        for side, space in (("a", self.x), ("b", self.y)):
            weights = space.weight_tensor.detach().double()
            mass = weights.sum(-1)
            exact.append((weights / mass[..., None]).log().expand(self.batch, -1))
            object.__setattr__(self, f"log_{side}", exact[-1].to(space.dtype))
            object.__setattr__(self, f"log_mass_{side}", mass.log().expand(self.batch))
        object.__setattr__(self, "logs", torch.cat(exact, dim=1))

    @property
    def batch(self) -> int:
        """Number of items."""
        return self.eps.shape[0]

    @property
    def sizes(self) -> tuple[tuple[int, int], ...] | None:
        """True (n, m) of each item, None for a problem without a batch."""
        if not self.batched:
            return None
        rows = self.x.sizes or (self.x.n,) * self.batch
        cols = self.y.sizes or (self.y.n,) * self.batch
        return tuple(zip(rows, cols, strict=True))

    @property
    def largest(self) -> tuple[int, int]:
        """(n, m) without padding of the item whose plan has the most entries."""
        return max(self.sizes or ((self.x.n, self.y.n),), key=math.prod)

    @property
    def numpy(self) -> bool:
        """Are results given back as NumPy arrays?"""
        return self.x.numpy and self.y.numpy

    @property
    def product(self) -> Any:
        """a⊗b at unit mass, (B, n, m)."""
        return self.log_a.exp()[:, :, None] * self.log_b.exp()[:, None, :]

    @abstractmethod
    def take(self, index: Tensor) -> Self:
        """Some items of the batch; an item may be taken more than once."""

    def taken(self, index: Tensor, **others: Any) -> Self:
        """What every `take` does; others: the fields that a problem has besides, taken already."""
        spaces = {"x": self.x.take(index), "y": self.y.take(index)}
        divergences = {"div_a": self.div_a.take(index), "div_b": self.div_b.take(index)}
        return replace(self, **spaces, **divergences, eps=self.eps[index], batched=True, **others)  # type: ignore

    @abstractmethod
    def result(self, tensors: SolverOutput) -> Result:
        """What a solver found, as users see it."""


def take_cost(cost: Any, index: Tensor) -> Any:
    """Some items of a cost (B, n, m); one (n, m) is shared by all."""
    return cost if isinstance(cost, Tensor) and cost.ndim == 2 else take(cost, index)


@dataclass(frozen=True)
class Cheaper:
    """A problem whose first steps cost less: how far to go with them, what to do meanwhile, what to go on with."""

    problem: Any
    tol: float
    max_iter: int
    meanwhile: Callable[[], AbstractContextManager[None]]
    then: Any


class Problem(SpacePair):
    """A matching that is solved by linear steps.

    A state is what a problem knows of a plan: a record with a batch dimension, of which solvers read `shape`
    (B, n, m), the plan at unit mass, `log_mass` (B,), and `plan`, the plan itself; its `local` may be dropped.
    """

    div_a: KL
    div_b: KL

    # Is a step made of tensor operations alone, without a look at their values? Then it may be a CUDA graph.
    recordable: bool = False
    # Or but for one look, at how far costs are known by changes of the plan?
    unseeing: bool = False
    # Is the local cost of a mixture of plans the mixture of theirs? Then steps may be extrapolated.
    linear_local: bool = False
    # How far from a solution a start is taken to be, for want of a step before it.
    first_change: float = 0.0

    def cheaper(self) -> Cheaper | None:
        """The same problem with less exact numbers, where these are worth it."""
        return None

    def mixed(self, shape: Any, share: Tensor) -> Any:
        """A plan of unit mass with a share (B,) of the product plan. shape: (B, n, m)."""
        return torch.lerp(shape, self.product, share.to(shape.dtype)[:, None, None])

    def unit(self, plan: Any) -> Any:
        """A plan (B, n, m) divided by its mass."""
        plan = plan / plan.amax(dim=(1, 2), keepdim=True)  # first, lest the sum overflow
        return plan / plan.sum(dim=(1, 2), keepdim=True)

    def first_potentials(self, plan: Any) -> tuple[Tensor, Tensor]:
        """(f, g), (B, n) and (B, m), from which the first linear problem after a plan may start."""
        dtype = self.x.dtype
        return torch.zeros_like(self.log_a, dtype=dtype), torch.zeros_like(self.log_b, dtype=dtype)

    def apart(self, one: Any, other: Any) -> Tensor:
        """The L1 distance (B,) of two plans of unit mass."""
        return kernels.l1_distance(one, other)

    def growth(self, before: Any, after: Any) -> Tensor:
        """The largest logarithm (B,) by which an entry of a plan has grown."""
        growth = after.log() - before.log()  # NaN where both are 0, and no entry grows from 0 in the same step
        return torch.where(torch.isfinite(growth), growth, 0.0).amax(dim=(1, 2)).double()

    def steps_gram(self, given: Sequence[Any], found: Sequence[Any]) -> Tensor:
        """Covariances (B, 5, 5) under the product plan, in float64, of the `anderson_differences` of costs.

        On a CPU those of some rows: they say as well how steps go on, and all would take a quarter of a step's time.
        """
        a, b = self.log_a.exp(), self.log_b.exp()
        n_rows = THRESHOLDS.max_rows_without_sampling
        if self.x.n > n_rows and not a.is_cuda and size_class(*self.largest).samples_rows:
            a, rows = entries.sample_rows(a, (*given, *found), n_rows)
            given, found = rows[:3], rows[3:]
        mean, products = kernels.anderson_moments(a, b, given, found)
        return products - mean @ mean.mT

    def spread_of(self, cost: Any) -> Tensor:
        """The root mean square (B,) of a linear cost under the product plan, where it is finite."""
        largest = cost.abs().amax(dim=(1, 2), keepdim=True)
        if not looking() or not bool(torch.isfinite(largest).all()):
            cost = torch.where(torch.isinf(cost), 0.0, cost)
            largest = cost.abs().amax(dim=(1, 2), keepdim=True)
        largest = torch.where(largest > 0, largest, 1.0)  # whose square may be out of range
        square = (cost / largest).square_() @ self.log_b.exp()[:, :, None]
        mean = (square[:, :, 0] * self.log_a.exp()).sum(1, dtype=torch.float64)
        return largest[:, 0, 0].double() * mean.sqrt()

    @abstractmethod
    def cost_size(self) -> Tensor:
        """The size of the linear problem's cost, (B,) > 0."""

    @abstractmethod
    def state_of_plan(self, shape: Any) -> Any:
        """The state of a plan of unit mass (B, n, m)."""

    def begin(self, shape: Any) -> Any:
        """The state of a first plan, of unit mass."""
        return self.state_of_plan(shape)

    @abstractmethod
    def linearize(self, state: Any) -> LinearProblem:
        """The linear problem whose solution is the next plan."""

    @abstractmethod
    def accept(self, state: Any, solution: LinearSolution) -> Any:
        """The state after a linear step."""

    @abstractmethod
    def objective(self, p: Any, q: Any = None) -> ObjectiveTerms:
        """F(p, q), term by term; q = p unless given; one of both may be without its `local`."""

    @abstractmethod
    def reported_state(self, state: Any) -> Any:
        """The state as the history reports it."""

    def final(self, state: Any) -> Any:
        """The state that a run gives back."""
        return self.reported_state(state)

    @abstractmethod
    def lift(self, state: Any) -> Lift | None:
        """The lift to a cone, where there is one."""

    @abstractmethod
    def potentials(
        self, q: Any, p: Any, linear: tuple[Tensor, Tensor], log_mass: Tensor, entropy: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """(f, g) of the last linear step, from q to p, in the units of the problem, or None."""

    def marginal_error(self, state: Any) -> Tensor:
        """Relative L1 violation of the hard marginals, 0 where there are none. Returns (B,)."""
        off_a = (state.unit_plan.sum(2) - self.log_a.exp()).abs().sum(1).double()
        off_b = (state.unit_plan.sum(1) - self.log_b.exp()).abs().sum(1).double()
        return torch.maximum(torch.where(self.div_a.is_hard, off_a, 0.0), torch.where(self.div_b.is_hard, off_b, 0.0))

    @abstractmethod
    def is_collapsed(self, state: Any) -> Tensor:
        """(B,) bool: has the plan next to no mass?"""


def known(local: Tensor | None) -> Tensor:
    """The `local` of a state that was not stored without it."""
    if local is None:
        raise RuntimeError("this state was stored without its local cost")
    return local
