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

from .._utils.checks import describe_value
from ..errors import InputError
from ..initializers import multilevel
from ..problems.build import Fused, check_fused
from ..problems.ugw import UGW
from ..problems.ugw_streamed import StreamingUGW
from ..results.base import BatchedResultBase
from ..results.io import Arrays, to_array, with_prefix, without_prefix
from ..results.lazy_plan import LazyPlan
from ..results.records import Status, to_user
from ..results.result import Result
from .config import LEARNING_CONFIG
from .value_and_grad import SolveArguments, as_space, warn_about_gradient

# The results of which a debiased value is computed, and what precedes their messages.
_PARTS = {"cross": "", "self_x": "first self term: ", "self_y": "second self term: "}


@dataclass(frozen=True, eq=False, repr=False)
class Debiased(BatchedResultBase):
    """A debiased value, and the three results from which it is computed.

    value_tensor: the value as a float64 tensor, () or (B,), with its gradient; cross: the result between X and Y;
    self_x, self_y: between each space and itself; code_tensor: (B,), `Status` codes as a tensor. `d[i]` is item i of a
    batch.

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
    code_tensor: Tensor

    @property
    def value(self) -> Any:
        """UGW(X, Y) − ½ UGW(X, X) − ½ UGW(Y, Y) + (eps/2)(m(a)² − m(b)²)²: a number, an array (B,) or a tensor.

        It is a tensor if a space has tensors, or if it was computed with a gradient, for example of rho.
        """
        if not self.cross.numpy:
            return self.value_tensor
        return to_user(self.value_tensor[None], batched=False, numpy=True)

    @property
    def codes(self) -> Any:
        """The `Status` codes, integers (B,), (1,) if not batched: a tensor if `value` is one, else an array."""
        return to_user(self.code_tensor, batched=True, numpy=self.cross.numpy)

    @property
    def parameters(self) -> dict[str, Any]:
        """The rho, eps and solver options of the solve between X and Y, which the self terms share, as a plain dict."""
        return self.cross.parameters

    @property
    def batched(self) -> bool:
        """Whether the value has shape (B,), also for B = 1; otherwise it is a scalar."""
        return self.value_tensor.ndim > 0

    @property
    def _n_items(self) -> int:
        """The number of items; 1 for a single value."""
        return len(self.code_tensor)

    def _item(self, index: int) -> Self:
        """Return item `index`, from 0 to B − 1, of a batch as a single result, without padding."""
        cross, self_x, self_y = (getattr(self, name)[index] for name in _PARTS)
        return type(self)(self.value_tensor[index], cross, self_x, self_y, self.code_tensor[index : index + 1])

    @property
    def status(self) -> Any:
        """A Status, or a list of B: that of the first solve that failed, of cross, self_x, self_y in this order.

        If all converged: NEGATIVE for a value below 0 by more than rounding, else CONVERGED.
        """
        statuses = [Status(code) for code in self.code_tensor.tolist()]
        return statuses if self.batched else statuses[0]

    @property
    def converged(self) -> Any:
        """Whether all three solves converged and the value is not NEGATIVE (see `status`): a bool, or (B,) bools."""
        converged = self.code_tensor == int(Status.CONVERGED)
        if not self.batched:
            return bool(converged[0])
        return to_array(converged) if self.cross.numpy else converged

    @property
    def message(self) -> str:
        """How the first of the three solves that did not converge ended, and what to change.

        If all converged: that the value is negative, for the first such item, or "converged".
        """
        for name, label in _PARTS.items():
            if not (part := getattr(self, name)).all_converged:
                return label + part.message
        failed = torch.nonzero(self.code_tensor != int(Status.CONVERGED)).flatten().tolist()
        if not failed:
            return Status.CONVERGED.message
        worst = self.value_tensor.detach().reshape(-1)[failed[0]].item()
        where = f"item {failed[0]}: " if self.batched else ""
        return f"{where}{Status(int(self.code_tensor[failed[0]])).message} (got {worst:.3g})"

    def detach(self) -> Debiased:
        """Return a copy of this result, whose value is detached from its autograd graph."""
        return replace(self, value_tensor=self.value_tensor.detach())

    def rows(self) -> list[tuple[str, str]]:
        """Return (name, text) of the table's lines: value (the first 5 of a batch), cross, self_x, self_y, status."""
        values = ", ".join(f"{value:.6g}" for value in np.atleast_1d(to_array(self.value_tensor))[:5])
        return [("debiased", values), *((name, repr(getattr(self, name))) for name in _PARTS), ("status", self.message)]

    def to_arrays(self) -> Arrays:
        """Return "value", status "codes" and the arrays of `cross`, `self_x`, `self_y` ("cross.plan", ...), by name."""
        arrays = {"value": to_array(self.value_tensor), "codes": to_array(self.code_tensor)}
        for name in _PARTS:
            arrays |= with_prefix(name, getattr(self, name).to_arrays())
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """Return the `Debiased` stored in arrays that `to_arrays` made; raise if arrays are missing or do not fit."""
        parts = [Result.from_arrays(without_prefix(name, arrays)) for name in _PARTS]
        value, codes = torch.from_numpy(arrays["value"]), torch.from_numpy(arrays["codes"])
        if value.ndim > 1 or codes.shape != (max(1, value.numel()),):
            raise ValueError("arrays of the wrong shape")
        cross, self_x, self_y = parts
        return cls(value, cross, self_x, self_y, codes)

    def __repr__(self) -> str:
        """Return one line: value and status, or for a batch how many items converged."""
        if self.batched:
            n_converged = int((self.code_tensor == int(Status.CONVERGED)).sum())
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
    """Return UGW(X, Y) − ½ UGW(X, X) − ½ UGW(Y, Y) + (eps/2)(m(a)² − m(b)²)², 0 for isometric spaces, as a `Debiased`.

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
    arguments = SolveArguments(rho=rho, eps=eps, loss=loss, fused=fused, solver=solver)
    if arguments.partial_sides is not None:
        raise InputError(
            f"a debiased value takes off what entropy adds, got rho={describe_value(rho)}, which has none: see ugw_loss"
        )
    check_fused(fused)
    if fused is not None and fused.cost is not None:
        raise InputError("a debiased value needs features on the spaces, got Fused(cost=...), which has no self terms")
    problem = arguments.build_problem(x, y)
    check_one_rho(problem)
    previous = init if isinstance(init, Debiased) else None
    cross = arguments.solve(problem, previous.cross if previous else init)
    values, results = [arguments.value(problem, x, y, cross)], [cross]
    name = init if isinstance(init, str) else "auto"
    self_starts = (previous.self_x, previous.self_y) if previous else (name, name)
    self_arguments = replace(arguments, eps=problem.eps if problem.batched else problem.eps[0])
    for space, start in zip((x, y), self_starts, strict=True):
        self_problem = self_arguments.build_problem(space, space)
        results.append(solve_self_term(self_arguments, self_problem, start))
        values.append(self_arguments.value(self_problem, space, space, results[-1]))
    masses = [space.weight_tensor.double().sum(-1) for space in (x, y)]
    value = debiased_value(*values, masses_x=masses[0], masses_y=masses[1], eps=problem.eps)
    statuses = [part.tensors.status.expand(problem.batch) for part in results]
    codes = debiased_codes(value.detach(), product_plan_distortion(problem), statuses)
    numpy = cross.numpy and not value.requires_grad  # NumPy arrays have no graph
    cross, self_x, self_y = (replace(part, numpy=numpy) for part in results)
    result = Debiased(value if cross.batched else value[0], cross, self_x, self_y, codes)
    has_solve_failure = bool((codes != int(Status.NEGATIVE)).any())
    warn_about_gradient(result, has_gradient=value.requires_grad and has_solve_failure)
    return result


def solve_self_term(arguments: SolveArguments, problem: UGW, init: Any) -> Result:
    """Return the result of a problem between a space and itself, without a warning if it did not converge.

    init: name of an initial plan: the solves from it and from the identity plan are compared, and each item has the
    better result; or a previous Result, from which alone the solve continues.
    """
    if isinstance(init, Result):
        return arguments.solve(problem, init)
    return arguments.solve(problem, _identity_plan(problem)).better(arguments.solve(problem, init))


@torch.no_grad()
def _identity_plan(problem: UGW) -> Tensor | LazyPlan:
    """Return the identity plan diag(a), (n, n) or (B, n, n), of a problem between a space with weights a and itself.

    A streaming problem cannot store it. For such a problem, return as a LazyPlan the plan after one step from it, the
    transport plan for the cost linearized at diag(a).
    """
    if not isinstance(problem, StreamingUGW):
        return torch.diag_embed(problem.x.weight_tensor)
    a = problem.log_a.exp().double()[:, :, None]
    # The marginals of the identity are those of the product plan.
    basis_product = problem.left.double().mT @ (a * problem.right.double())
    plan = multilevel.linear_step_plan(problem, problem.product, basis_product)
    return LazyPlan(plan, batched=problem.batched, numpy=False)


def check_one_rho(problem: UGW) -> None:
    """Raise InputError if the rho of both sides differ for some item of the problem."""
    rho_a, rho_b = problem.div_a.rho, problem.div_b.rho
    if bool((rho_a != rho_b).any()):
        i = int(torch.nonzero(rho_a != rho_b)[0])
        got = f"{float(rho_a[i]):g} and {float(rho_b[i]):g}"
        raise InputError(f"a debiased value needs one rho for both sides, got {got}: with two it may be negative")


def product_plan_distortion(problem: UGW) -> Tensor:
    """Return Σ λ(|Dx_ii' − Dy_jj'|) p_ij p_i'j', (B,), for p = a⊗b / sqrt(m(a) m(b)), of mass sqrt(m(a) m(b)).

    Where the sum is 0 or infinite, another positive unit of distortion takes its place.
    """
    return problem.scale() * (problem.log_mass_a + problem.log_mass_b).exp()


def debiased_value(cross: Any, self_x: Any, self_y: Any, *, masses_x: Any, masses_y: Any, eps: Any) -> Any:
    """Return UGW(X, Y) − ½ UGW(X, X) − ½ UGW(Y, Y) + (eps/2)(m(a)² − m(b)²)²; tensors or arrays, which broadcast.

    cross, self_x, self_y: the three values of UGW in this order; masses_x, masses_y: m(a) and m(b).
    """
    return cross - 0.5 * self_x - 0.5 * self_y + 0.5 * eps * (masses_x**2 - masses_y**2) ** 2


def debiased_codes(value: Tensor, scale: Tensor, statuses: Sequence[Tensor]) -> Tensor:
    """Return `Status` codes of debiased values: that of the first solve that failed; else NEGATIVE or CONVERGED.

    value: debiased values, NEGATIVE if below −1e-6·scale; scale: > 0, the distortion of the product plan; statuses:
    codes of the solves, in the order cross, self_x, self_y. All have one shape (B,).
    """
    converged = int(Status.CONVERGED)
    codes = torch.where(value < -LEARNING_CONFIG.negative_share * scale, int(Status.NEGATIVE), converged)
    for status in reversed(statuses):
        codes = torch.where(status != converged, status, codes)
    return codes
