"""Losses for torch: UGW, its debiased form, and CGW, as a function and as modules."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._utils.checks import as_nonnegative
from ..geometry.space import Space
from ..measures.cones import parse_loss
from ..measures.divergences import divergence_pair, partial_divergences
from ..problems.build import Fused, Relative, check_finite_rho, check_spaces, resolve_eps
from ..results.conic_result import ConicResult
from ..results.result import Result
from .debiased import Debiased, debiased
from .value_and_grad import as_space, shown, solved, solved_conic


def ugw_loss(
    x: Any,
    y: Any,
    *,
    rho: Any = 1.0,
    eps: Any = "auto",
    loss: Any = None,
    fused: Fused | None = None,
    init: Any = "auto",
    solver: Any = None,
) -> Tensor:
    """The value of `ugw.solve` as a tensor, () or (B,), that can be differentiated once.

    x, y: spaces, or points (n, d) or (B, n, d) for Euclidean distances and weights of 1/n. Gradients go to whatever
    the spaces were made of that requires them: points ("euclidean", "sqeuclidean"), distance matrices, weights and
    features, also to `fused.cost`, and to rho, eps and alpha given as tensors. The plan is held fixed, which is right
    at a stationary plan and wrong elsewhere: a solve that did not converge warns (ConvergenceWarning). With rho = inf
    on both sides the gradient of the weights is for changes that keep m(a) = m(b). rho may be `ugw.TV` or `ugw.Mass`.
    Other arguments: as for `ugw.solve`. `eps=ugw.relative(share)` is taken from the spaces as they are at the call,
    and the gradient holds it fixed: in a loop the loss then changes from step to step, which a number does not.

    >>> import torch, ugw
    >>> points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], requires_grad=True)
    >>> ugw.ugw_loss(points, torch.tensor([[0.0], [1.0], [3.0]])).backward()
    >>> points.grad.shape
    torch.Size([3, 2])
    """
    x, y = as_space("x", x), as_space("y", y)
    return shown(*solved(x, y, rho=rho, eps=eps, loss=loss, fused=fused, init=init, solver=solver), x.dtype)


class UGWLoss(torch.nn.Module):
    """`ugw_loss` as a module: what it is given once, and two spaces or clouds of points at each call.

    init: as for `ugw.solve`, or "last": the plan of the call before where it fits, which is far cheaper while points
    move little; it follows one valley, and the first call starts from "auto".
    debiased: `ugw.debiased` instead, which is 0 for isometric spaces and does not shrink what it fits.
    A rho, eps or alpha that is learned is a Parameter of the module if it is given by itself, rho=Parameter(...); one
    inside a tuple, a KL or a Fused has its gradient too, but the optimizer must be told of it.
    `result` is the Result of the last call, without a graph; None before it.

    >>> import torch, ugw
    >>> criterion = ugw.UGWLoss(rho=1.0, eps=1e-2)
    >>> cloud = torch.rand(6, 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
    >>> criterion(cloud, torch.eye(3)).backward()
    >>> bool(cloud.grad.isfinite().all()), criterion.result.converged
    (True, True)
    """

    result: Result | Debiased | None

    def __init__(
        self,
        *,
        rho: Any = 1.0,
        eps: Any = "auto",
        loss: Any = None,
        fused: Fused | None = None,
        init: Any = "auto",
        solver: Any = None,
        debiased: bool = False,
    ) -> None:
        super().__init__()
        if partial_divergences(rho) is None:
            divergence_pair(rho)
        if not isinstance(resolve_eps(eps, rho), Relative):
            as_nonnegative("eps", resolve_eps(eps, rho))
        self.rho, self.eps, self.loss, self.fused, self.init, self.solver = rho, eps, loss, fused, init, solver
        self.debiased = debiased
        self.result = None

    def forward(self, x: Any, y: Any) -> Tensor:
        """The loss between two spaces or clouds of points, () or (B,)."""
        x, y = as_space("x", x), as_space("y", y)
        given = {"rho": self.rho, "eps": self.eps, "loss": self.loss, "fused": self.fused, "solver": self.solver}
        if self.debiased:
            found = debiased(x, y, **given, init=first_plan(self.init, self.result, x, y))
            self.result = found.detach()
            return found.value
        value, self.result = solved(x, y, **given, init=first_plan(self.init, self.result, x, y))
        return shown(value, self.result, x.dtype)

    def extra_repr(self) -> str:
        """What the module says of itself."""
        return f"rho={self.rho}, eps={self.eps}, init={_short(self.init)}" + ", debiased=True" * self.debiased


class CGWLoss(torch.nn.Module):
    """The value of the conic distance CGW as a module, with gradients for points, distances and weights.

    rho: finite; cone: one over KL; init, solver: as for `ugw.solve_conic`; init="last" and `result`: as for `UGWLoss`.
    It is solved in float64, whatever the points are: without entropy, float32 does not settle to a stationary plan.

    >>> import torch, ugw
    >>> cloud = torch.rand(4, 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
    >>> ugw.CGWLoss(rho=1.0)(cloud, torch.eye(3)).backward()
    >>> bool(cloud.grad.isfinite().all())
    True
    """

    result: ConicResult | None

    def __init__(
        self, *, rho: Any = 1.0, cone: Any = "gaussian-hellinger", init: Any = "auto", solver: Any = None
    ) -> None:
        super().__init__()
        check_finite_rho(rho)
        if isinstance(cone, str):
            parse_loss(cone, 1.0, name="cone")
        self.rho, self.cone, self.init, self.solver = rho, cone, init, solver
        self.result = None

    def forward(self, x: Any, y: Any) -> Tensor:
        """The conic value between two spaces or clouds of points, () or (B,)."""
        x, y = as_space("x", x), as_space("y", y)
        check_spaces(x, y)
        dtype, x, y = x.dtype, x.to(torch.float64), y.to(torch.float64)
        init = first_plan(self.init, self.result, x, y)
        value, self.result = solved_conic(x, y, rho=self.rho, cone=self.cone, init=init, solver=self.solver)
        return shown(value, self.result, dtype)

    def extra_repr(self) -> str:
        """What the module says of itself."""
        return f"rho={self.rho}, cone={self.cone!r}, init={_short(self.init)}"


def _short(init: Any) -> str:
    return repr(init) if isinstance(init, str) else "a plan"


def first_plan(init: Any, last: Any, x: Space, y: Space) -> Any:
    """What `init` means: "last" is where the last result, if it fits these spaces, left off, else "auto"."""
    if not (isinstance(init, str) and init == "last"):
        return init
    if last is None or not bool(torch.as_tensor(last.converged).all()):
        return "auto"
    plans = last.cross.tensors.plan if isinstance(last, Debiased) else last.tensors.plan
    fits = plans.shape[1:] == (x.n, y.n) and plans.dtype == x.dtype and plans.device == x.device
    count = len(x if x.batched else y) if x.batched or y.batched else 1
    if not fits or len(plans) != count:
        return "auto"
    return last if isinstance(last, Debiased) else last.plan
