"""Losses for torch: UGW, its debiased form and CGW, as a function and as modules."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._utils.checks import as_parameter, check_bool
from ..geometry.space import Space
from ..measures.cones import parse_loss
from ..measures.divergences import divergence_pair, partial_divergences
from ..problems.build import Fused, Relative, check_finite_rho, check_fused, check_spaces, resolve_eps
from ..results.conic_result import ConicResult
from ..results.result import Result
from .debiased import Debiased, debiased
from .value_and_grad import SolveArguments, as_space, loss_to_user, solve_conic_with_gradient


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
    """Return the value of `ugw.solve` as a tensor, () or (B,), in the dtype of x, that can be differentiated once.

    x, y: spaces, or points (n, d) or (B, n, d) for Euclidean distances and weights of 1/n. Gradients go to whatever
    the spaces were made of that requires them: points ("euclidean", "sqeuclidean"), distance matrices, weights and
    features, also to `fused.cost`, and to rho, eps and alpha given as tensors. The plan is held fixed, which is right
    at a stationary plan and wrong elsewhere: a solve that did not converge warns (ConvergenceWarning). With rho = inf
    on both sides the gradient of the weights is for changes that keep m(a) = m(b). rho may be `ugw.TV` or `ugw.Mass`.
    Other arguments: as for `ugw.solve`. "auto" and `ugw.relative(share)` are resolved for the spaces as they are at the
    call, and the gradient holds eps fixed: in a training loop give a number, so that the loss stays the same function.

    >>> import torch, ugw
    >>> points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], requires_grad=True)
    >>> ugw.ugw_loss(points, torch.tensor([[0.0], [1.0], [3.0]])).backward()
    >>> points.grad.shape
    torch.Size([3, 2])
    """
    x, y = as_space("x", x), as_space("y", y)
    arguments = SolveArguments(rho=rho, eps=eps, loss=loss, fused=fused, solver=solver)
    return loss_to_user(*arguments.solve_with_gradient(x, y, init), x.dtype)


class UGWLoss(torch.nn.Module):
    """`ugw_loss` as a module, called with two spaces or clouds of points.

    init: as for `ugw.solve`, or "last": the plan of the previous call if it fits, which is far cheaper while points
    move little; it follows one local minimum, and the first call starts from "auto".
    debiased: `ugw.debiased` instead, which is 0 for isometric spaces and does not shrink what it fits.
    A rho, eps or alpha that is learned is a Parameter of the module if it is given by itself, rho=Parameter(...); one
    inside a tuple, a KL or a Fused has its gradient too, but must be given to the optimizer.
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
        """Store the options, and `result` as None. rho, eps, fused and debiased are checked here, others by calls."""
        super().__init__()
        if partial_divergences(rho) is None:
            divergence_pair(rho)
        if not isinstance(resolve_eps(eps, rho), Relative):
            as_parameter("eps", resolve_eps(eps, rho), allow_zero=True)
        check_fused(fused)
        check_bool("debiased", debiased)
        self.rho, self.eps, self.loss, self.fused, self.init, self.solver = rho, eps, loss, fused, init, solver
        self.debiased, self.result = debiased, None

    def forward(self, x: Any, y: Any) -> Tensor:
        """Return the UGW value, or the debiased one, () or (B,), in the dtype of x, with gradients; set `result`.

        x, y: spaces or clouds of points. `result` is the Result, or the Debiased, of this call, without a graph.
        """
        x, y = as_space("x", x), as_space("y", y)
        options = {"rho": self.rho, "eps": self.eps, "loss": self.loss, "fused": self.fused, "solver": self.solver}
        init = resolve_last_init(self.init, self.result, x, y)
        if self.debiased:
            result = debiased(x, y, init=init, **options)
            self.result = result.detach()
            return result.value_tensor.to(x.dtype)
        value, self.result = SolveArguments(**options).solve_with_gradient(x, y, init)
        return loss_to_user(value, self.result, x.dtype)

    def extra_repr(self) -> str:
        """Return the text of rho, eps, init and debiased for the repr of the module."""
        return f"rho={self.rho}, eps={self.eps}, init={_describe_init(self.init)}" + ", debiased=True" * self.debiased


class CGWLoss(torch.nn.Module):
    """The value of the conic distance CGW as a module, with gradients for points, distances and weights.

    rho: finite; cone: one over KL; init, solver: as for `ugw.solve_conic`; init="last" and `result`: as for `UGWLoss`.
    It is solved in float64, whatever the points are: without entropy, float32 does not converge to a stationary plan.

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
        """Store the options, and `result` as None. rho and the name of the cone are checked here, others by calls."""
        super().__init__()
        check_finite_rho(rho)
        if isinstance(cone, str):
            parse_loss(cone, 1.0, name="cone")
        self.rho, self.cone, self.init, self.solver = rho, cone, init, solver
        self.result = None

    def forward(self, x: Any, y: Any) -> Tensor:
        """Return CGW, not its root, () or (B,), in the dtype of x, with gradients; set `result`, a ConicResult."""
        x, y = as_space("x", x), as_space("y", y)
        check_spaces(x, y)
        dtype, x, y = x.dtype, x.to(torch.float64), y.to(torch.float64)
        init = resolve_last_init(self.init, self.result, x, y)
        options = {"rho": self.rho, "cone": self.cone, "solver": self.solver}
        value, self.result = solve_conic_with_gradient(x, y, init=init, **options)
        return loss_to_user(value, self.result, dtype)

    def extra_repr(self) -> str:
        """Return the text of rho, cone and init for the repr of the module."""
        return f"rho={self.rho}, cone={self.cone!r}, init={_describe_init(self.init)}"


def _describe_init(init: Any) -> str:
    """Return the text for an initial plan in a repr: a name in quotes, "a plan" for anything else."""
    return repr(init) if isinstance(init, str) else "a plan"


def resolve_last_init(init: Any, last: Any, x: Space, y: Space) -> Any:
    """Return `init`; for "last" the previous result `last`, or "auto" if there is none that fits the spaces x and y.

    A result fits if all its items converged and its plans have the shape, dtype and device of plans between x and y.
    """
    if not (isinstance(init, str) and init == "last"):
        return init
    if last is None or not last.all_converged:
        return "auto"
    plans = last.cross.tensors.plan if isinstance(last, Debiased) else last.tensors.plan
    batch = next((len(space) for space in (x, y) if space.batched), 1)
    fits = plans.shape == (batch, x.n, y.n) and plans.dtype == x.dtype and plans.device == x.device
    return last if fits else "auto"
