"""Debiased UGW: what entropy adds to a value is taken off again, eq. (9.5).

    S(X, Y) = UGW(X, Y) − ½ UGW(X, X) − ½ UGW(Y, Y) + (eps/2)(m(a)² − m(b)²)²        with one rho for both sides

The entropic value of a space against itself is not 0, and lower for spaces smaller than they should be: a loss that has
it shrinks what it fits. S is 0 for isometric spaces. That it is never negative was seen, not proved; a negative value
is that of a self term whose solve ended in a local minimum, and is reported as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..api import solve as api
from ..api.arguments import check_solver
from ..errors import InputError, NotConverged
from ..geometry.space import Space
from ..initializers import multilevel
from ..initializers.multistart import base_solver
from ..measures.divergences import partial_divergences
from ..problems.build import Fused, build
from ..problems.ugw import UGW
from ..problems.ugw_streamed import StreamingUGW
from ..results.lazy_plan import LazyPlan
from ..results.records import Status
from ..results.result import Result
from ..solvers.alternating import AlternateMin
from .value_and_grad import as_space, quiet, settled, solved, tell

# A value is negative if it is so by more than this share of what a blind matching pays.
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Debiased:
    """A debiased value, and the three results that it is made of.

    value: () or (B,), with its gradient; cross: of X and Y; self_x, self_y: of each with itself; codes: (B,) statuses.

    >>> import numpy as np, ugw
    >>> points = np.random.default_rng(0).random((8, 2))
    >>> x, y = ugw.Space.from_points(points), ugw.Space.from_points(2 * points)
    >>> d = ugw.debiased(x, y, rho=1.0, eps=0.05)
    >>> parts = d.cross.value - (d.self_x.value + d.self_y.value) / 2  # equal masses: that is all
    >>> bool(abs(d.value - parts) < 1e-9), d.status.name
    (True, 'CONVERGED')
    """

    value: Tensor
    cross: Result
    self_x: Result
    self_y: Result
    codes: Tensor

    @property
    def batched(self) -> bool:
        """Does it hold a batch?"""
        return self.value.ndim > 0

    @property
    def status(self) -> Any:
        """A Status, or a list with one per item: that of a part which did not converge, or NEGATIVE, or CONVERGED."""
        codes = [Status(code) for code in self.codes.tolist()]
        return codes if self.batched else codes[0]

    @property
    def converged(self) -> Any:
        """True where the status is CONVERGED: a bool, or a tensor of them."""
        good = self.codes == int(Status.CONVERGED)
        return good if self.batched else bool(good[0])

    @property
    def message(self) -> str:
        """What happened, with the cure; for a batch, to the first item that failed."""
        for part, result in (("", self.cross), ("first self term: ", self.self_x), ("second self term: ", self.self_y)):
            if not bool(torch.as_tensor(result.converged).all()):
                return part + result.message
        failed = torch.nonzero(self.codes != int(Status.CONVERGED)).flatten().tolist()
        if not failed:
            return Status.CONVERGED.message
        worst = self.value.detach().reshape(-1)[failed[0]].item()
        where = f"item {failed[0]}: " if self.batched else ""
        return f"{where}{Status(int(self.codes[failed[0]])).message} (got {worst:.3g})"

    def check(self) -> Debiased:
        """Itself if every item converged to a value that is not negative; raises NotConverged otherwise."""
        if bool((self.codes != int(Status.CONVERGED)).any()):
            raise NotConverged(self.message)
        return self

    def detach(self) -> Debiased:
        """The same without the graph of the value."""
        return replace(self, value=self.value.detach())

    def __repr__(self) -> str:
        said = f"batch of {len(self.value)}" if self.batched else f"value={self.value.item():.6g}"
        good = int((self.codes == int(Status.CONVERGED)).sum())
        return f"Debiased({said}, {f'{good} converged' if self.batched else self.status.name.lower()})"


def debiased(
    x: Any,
    y: Any,
    *,
    rho: Any = 1.0,
    eps: Any = 1e-2,
    loss: Any = None,
    fused: Fused | None = None,
    init: Any = "auto",
    solver: Any = None,
) -> Debiased:
    """UGW(X, Y) − ½ UGW(X, X) − ½ UGW(Y, Y) + (eps/2)(m(a)² − m(b)²)², with gradients: 0 for isometric spaces.

    x, y, eps, and what has gradients: as for `ugw.ugw_loss`; a relative eps is that of X and Y in all three terms.
    rho: one for both sides; `fused` by features, not by a cost.
    init: a name; a plan for the first term; or a Debiased, where all three go on. The self terms start from the
    identity too and keep the better end. Three or five solves for one value.

    >>> import torch, ugw
    >>> points = torch.rand(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> d = ugw.debiased(points, points.flip(0) + 1.0, rho=1.0, eps=0.05)
    >>> abs(d.value.item()) < 1e-8, d.converged, d.cross.value > 0.1
    (True, True, tensor(True))
    """
    x, y = as_space("x", x), as_space("y", y)
    if partial_divergences(rho) is not None:
        raise InputError(f"a debiased value takes off what entropy adds, got rho={rho!r}, which has none: see ugw_loss")
    given = {"rho": rho, "eps": eps, "loss": loss, "fused": fused, "solver": solver}
    given["eps"] = settled(x.detach(), y.detach(), given)
    last = init if isinstance(init, Debiased) else None
    first = last.cross.plan if last else init
    problem = _problem(x, y, given)
    _check(problem, fused)
    cross_value, cross = solved(x, y, **given, init=first)
    name = init if isinstance(init, str) else "auto"
    value_x, self_x = _self_term(x, given, last.self_x if last else name)
    value_y, self_y = _self_term(y, given, last.self_y if last else name)
    squares = [space.weight_tensor.double().sum(-1).square() for space in (x, y)]
    masses = 0.5 * problem.eps * (squares[0] - squares[1]).square()
    value = cross_value - 0.5 * value_x - 0.5 * value_y + masses
    statuses = [part.tensors.status.expand(problem.batch) for part in (cross, self_x, self_y)]
    made = Debiased(value, cross, self_x, self_y, codes(value.detach(), stake(problem), statuses))
    made = replace(made, value=value.to(x.dtype) if cross.batched else value[0].to(x.dtype))
    tell(made, gradient=value.requires_grad and bool((made.codes != int(Status.NEGATIVE)).any()))
    return made


def _self_term(x: Space, given: dict[str, Any], start: Any) -> tuple[Tensor, Result]:
    """UGW of a space with itself, from the start and from the identity, the better of them, with its gradient."""
    if not isinstance(start, Result):
        start = self_result(x.detach(), given, start)
    # Once more: one step, which has its gradient.
    return solved(x, x, **given, init=start.plan)


def self_result(x: Space, given: dict[str, Any], start: str) -> Result:
    """A space solved against itself from a start by name and from the identity, the better of them."""
    with torch.no_grad(), quiet():
        found = [api.solve(x, x, **given, init=init) for init in (start, _identity(x, given))]
    return found[1].better(found[0])


def _identity(x: Space, given: dict[str, Any]) -> Any:
    """The plan that leaves every point where it is; where plans are not stored, one step away from it."""
    problem = _problem(x, x, given)
    if not isinstance(problem, StreamingUGW):
        return torch.diag_embed(x.weight_tensor)
    a = problem.log_a.exp().double()[:, :, None]
    inner = problem.left.double().mT @ (a * problem.right.double())  # its marginals are those of the product plan
    return LazyPlan(multilevel.linear_step_plan(problem, problem.product, inner), batched=problem.batched, numpy=False)


def _problem(x: Space, y: Space, given: dict[str, Any]) -> UGW:
    """The problem that `solve` with these arguments solves."""
    method = base_solver(check_solver(given["solver"], AlternateMin())).inner.method
    return build(x.detach(), y.detach(), **{k: given[k] for k in ("rho", "eps", "loss", "fused")}, method=method)


def _check(problem: UGW, fused: Fused | None) -> None:
    if fused is not None and fused.cost is not None:
        raise InputError("a debiased value needs features on the spaces, got Fused(cost=...), which has no self terms")
    check_one_rho(problem)


def check_one_rho(problem: UGW) -> None:
    """Refuse a rho for each side."""
    rho_a, rho_b = problem.div_a.rho, problem.div_b.rho
    if bool((rho_a != rho_b).any()):
        i = int(torch.nonzero(rho_a != rho_b)[0])
        raise InputError(
            f"a debiased value needs one rho for both sides, got {float(rho_a[i]):g} and {float(rho_b[i]):g}: "
            "with two it may be negative"
        )


def stake(problem: UGW) -> Tensor:
    """What a blind matching pays, (B,)."""
    return problem.scale() * (problem.log_mass_a + problem.log_mass_b).exp()


def codes(value: Tensor, stakes: Tensor, statuses: Sequence[Tensor]) -> Tensor:
    """The status of each value: of the first part that did not converge, else whether it is negative.

    All of one shape.
    """
    good = int(Status.CONVERGED)
    found = torch.where(value < -ROUNDING * stakes, int(Status.NEGATIVE), good)
    for status in reversed(statuses):
        found = torch.where(status != good, status, found)
    return found
