"""Debiased UGW: the bias of entropy is removed by subtracting self terms, eq. (9.5).

    S(X, Y) = UGW(X, Y) − ½ UGW(X, X) − ½ UGW(Y, Y) + (eps/2)(m(a)² − m(b)²)²        with one rho for both sides

The entropic value of a space with itself is not 0, and is lower for smaller spaces: a loss with this bias shrinks what
it fits. S is 0 for isometric spaces. It was never observed to be negative for exact solutions, but this is not proved;
a negative value means that a self term ended in a local minimum, and has the status NEGATIVE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..api.arguments import check_solver
from ..api.solve import solve_problem
from ..errors import InputError
from ..initializers import multilevel
from ..measures.divergences import partial_divergences
from ..problems.build import Fused
from ..problems.ugw import UGW
from ..problems.ugw_streamed import StreamingUGW
from ..results.base import ResultBase
from ..results.io import Arrays, to_array, with_prefix, without_prefix
from ..results.lazy_plan import LazyPlan
from ..results.records import Status
from ..results.result import Result
from ..solvers.alternating import AlternateMin
from .config import LEARNING_CONFIG
from .value_and_grad import as_space, build_detached, solve_problem_with_gradient, warn_about_gradient, with_gradient

_PARTS = ("cross", "self_x", "self_y")


@dataclass(frozen=True, eq=False, repr=False)
class Debiased(ResultBase):
    """A debiased value, and the three results it is computed from.

    value_tensor: the value as a tensor, () or (B,), with its gradient; cross: the result of X and Y; self_x, self_y: of
    each space with itself; codes: (B,) statuses.

    >>> import numpy as np, ugw
    >>> points = np.random.default_rng(0).random((8, 2))
    >>> x, y = ugw.Space.from_points(points), ugw.Space.from_points(2 * points)
    >>> d = ugw.debiased(x, y, rho=1.0, eps=0.05)
    >>> parts = d.cross.value - (d.self_x.value + d.self_y.value) / 2  # equal masses: no further term
    >>> abs(d.value - parts) < 1e-9, d.status.name
    (True, 'CONVERGED')
    """

    value_tensor: Tensor
    cross: Result
    self_x: Result
    self_y: Result
    codes: Tensor

    @property
    def value(self) -> Any:
        """The debiased value: a number or an array (B,), or a tensor with its gradient if a space has tensors."""
        if not self.cross.numpy or self.value_tensor.requires_grad:
            return self.value_tensor
        value = to_array(self.value_tensor)
        return value.copy() if value.ndim else value.item()

    @property
    def parameters(self) -> dict[str, Any]:
        """The rho, eps and solver options of the three solves, as a plain dict."""
        return self.cross.parameters

    @property
    def batched(self) -> bool:
        """Whether the value has shape (B,), also for B = 1; otherwise it is a scalar."""
        return self.value_tensor.ndim > 0

    @property
    def status(self) -> Any:
        """A Status, or a list of them: that of the first solve that did not converge, else NEGATIVE or CONVERGED."""
        codes = [Status(code) for code in self.codes.tolist()]
        return codes if self.batched else codes[0]

    @property
    def converged(self) -> Any:
        """Whether the status is CONVERGED: a bool, or an array or tensor (B,) of bools."""
        converged = self.codes == int(Status.CONVERGED)
        if not self.batched:
            return bool(converged[0])
        return to_array(converged) if self.cross.numpy else converged

    @property
    def message(self) -> str:
        """How the first of the three solves that did not converge ended, and what to change.

        If all converged: that the value is negative, for the first such item, or "converged".
        """
        for part, result in (("", self.cross), ("first self term: ", self.self_x), ("second self term: ", self.self_y)):
            if not result.all_converged:
                return part + result.message
        failed = torch.nonzero(self.codes != int(Status.CONVERGED)).flatten().tolist()
        if not failed:
            return Status.CONVERGED.message
        worst = self.value_tensor.detach().reshape(-1)[failed[0]].item()
        where = f"item {failed[0]}: " if self.batched else ""
        return f"{where}{Status(int(self.codes[failed[0]])).message} (got {worst:.3g})"

    def detach(self) -> Debiased:
        """Return this result with a value that is detached from its autograd graph."""
        return replace(self, value_tensor=self.value_tensor.detach())

    def rows(self) -> list[tuple[str, str]]:
        """Return the name and the text of each line of the HTML table."""
        values = ", ".join(f"{value:.6g}" for value in np.atleast_1d(to_array(self.value_tensor))[:5])
        return [("debiased", values), *((name, repr(getattr(self, name))) for name in _PARTS), ("status", self.message)]

    def to_arrays(self) -> Arrays:
        """Return the value, the statuses and the arrays of the three results."""
        arrays = {"value": to_array(self.value_tensor), "codes": to_array(self.codes)}
        for name in _PARTS:
            arrays |= with_prefix(name, getattr(self, name).to_arrays())
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Return the debiased value that `to_arrays` described."""
        parts = {name: Result.from_arrays(without_prefix(name, arrays)) for name in _PARTS}
        value, codes = torch.from_numpy(arrays["value"]), torch.from_numpy(arrays["codes"])
        if value.ndim > 1 or codes.shape != (max(1, value.numel()),):
            raise ValueError("arrays of the wrong shape")
        return cls(value, parts["cross"], parts["self_x"], parts["self_y"], codes)

    def __repr__(self) -> str:
        """Return one line: the value and status, or how many items of a batch converged."""
        if self.batched:
            n_converged = int((self.codes == int(Status.CONVERGED)).sum())
            return f"Debiased(batch of {len(self.value_tensor)}, {n_converged} converged)"
        return f"Debiased(value={self.value_tensor.item():.6g}, {self.status.name.lower()})"


def debiased(
    x: Any,
    y: Any,
    *,
    rho: Any = 1.0,
    eps: Any = "auto",
    loss: Any = None,
    fused: Fused | None = None,
    init: Any = "auto",
    solver: Any = None,
) -> Debiased:
    """Compute UGW(X, Y) − ½ UGW(X, X) − ½ UGW(Y, Y) + (eps/2)(m(a)² − m(b)²)², with gradients: 0 for isometric spaces.

    x, y, eps, and what has gradients: as for `ugw.ugw_loss`; "auto" or a relative eps is resolved for X and Y and used
    in all three terms. rho: one for both sides; `fused` by features, not by a cost.
    init: a name; a plan or a Result for the first term; or a Debiased, from which all three continue. The self terms
    start from the identity too and keep the better result: five solves for one value, three from a Debiased.

    >>> import torch, ugw
    >>> points = torch.rand(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> d = ugw.debiased(points, points.flip(0) + 1.0, rho=1.0, eps=0.05)
    >>> abs(d.value.item()) < 1e-8, d.converged, d.cross.value > 0.1
    (True, True, tensor(True))
    """
    x, y = as_space("x", x), as_space("y", y)
    if partial_divergences(rho) is not None:
        raise InputError(f"a debiased value takes off what entropy adds, got rho={rho!r}, which has none: see ugw_loss")
    if fused is not None and fused.cost is not None:
        raise InputError("a debiased value needs features on the spaces, got Fused(cost=...), which has no self terms")
    terms = {"rho": rho, "loss": loss, "fused": fused, "solver": solver}
    problem = build_detached(x, y, eps=eps, **terms)
    check_one_rho(problem)
    previous = init if isinstance(init, Debiased) else None
    options = {"fused": fused, "loss": loss, "solver": solver}
    cross_value, cross = solve_problem_with_gradient(
        problem, x, y, init=previous.cross if previous else init, **options
    )
    name = init if isinstance(init, str) else "auto"
    shared_eps = problem.eps if problem.batched else problem.eps[0]
    self_values, self_results = [], []
    for space, start in ((x, previous.self_x if previous else name), (y, previous.self_y if previous else name)):
        own = build_detached(space, space, eps=shared_eps, **terms)
        own_result = solve_self_term(own, start, **options)
        self_values.append(with_gradient(own, space, space, fused, own_result))
        self_results.append(own_result)
    squares = [space.weight_tensor.double().sum(-1).square() for space in (x, y)]
    mass_term = 0.5 * problem.eps * (squares[0] - squares[1]).square()
    value = cross_value - 0.5 * self_values[0] - 0.5 * self_values[1] + mass_term
    statuses = [part.tensors.status.expand(problem.batch) for part in (cross, *self_results)]
    codes = debiased_codes(value.detach(), product_plan_value(problem), statuses)
    user_value = (value if cross.batched else value[0]).to(x.dtype)
    result = Debiased(user_value, cross, self_results[0], self_results[1], codes)
    has_solve_failure = bool((codes != int(Status.NEGATIVE)).any())
    warn_about_gradient(result, has_gradient=value.requires_grad and has_solve_failure)
    return result


def solve_self_term(problem: UGW, init: Any, *, fused: Fused | None, loss: Any, solver: Any) -> Result:
    """Return the result of the problem of a space with itself, the better of two starts, without a warning.

    init: a name, with the identity as the second start; or a previous Result, from which alone the solve continues.
    """
    chosen = check_solver(solver, AlternateMin())
    starts = [init] if isinstance(init, Result) else [_identity_plan(problem), init]
    results = [solve_problem(problem, chosen, start, loss=loss, fused=fused) for start in starts]
    return results[0] if len(results) == 1 else results[0].better(results[1])


@torch.no_grad()
def _identity_plan(problem: UGW) -> Any:
    """Return the plan diag(a) of a space with itself; for a streaming problem the plan one step after it."""
    if not isinstance(problem, StreamingUGW):
        return torch.diag_embed(problem.x.weight_tensor)
    a = problem.log_a.exp().double()[:, :, None]
    # The marginals of the identity are those of the product plan.
    inner = problem.left.double().mT @ (a * problem.right.double())
    plan = multilevel.linear_step_plan(problem, problem.product, inner)
    return LazyPlan(plan, batched=problem.batched, numpy=False)


def check_one_rho(problem: UGW) -> None:
    """Raise InputError if the two sides have different rho."""
    rho_a, rho_b = problem.div_a.rho, problem.div_b.rho
    if bool((rho_a != rho_b).any()):
        i = int(torch.nonzero(rho_a != rho_b)[0])
        raise InputError(
            f"a debiased value needs one rho for both sides, got {float(rho_a[i]):g} and {float(rho_b[i]):g}: "
            "with two it may be negative"
        )


def product_plan_value(problem: UGW) -> Tensor:
    """Return the distortion of the product plan, (B,): the scale against which a value counts as negative."""
    return problem.scale() * (problem.log_mass_a + problem.log_mass_b).exp()


def debiased_codes(value: Tensor, scale: Tensor, statuses: Sequence[Tensor]) -> Tensor:
    """Return the status codes of debiased values: of the first part that failed, else NEGATIVE or CONVERGED.

    value, scale and all statuses have one shape; scale: see `product_plan_value`.
    """
    converged = int(Status.CONVERGED)
    codes = torch.where(value < -LEARNING_CONFIG.negative_share * scale, int(Status.NEGATIVE), converged)
    for status in reversed(statuses):
        codes = torch.where(status != converged, status, codes)
    return codes
