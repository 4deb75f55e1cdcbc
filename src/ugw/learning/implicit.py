"""Plans with gradients, by implicit differentiation of the fixed point.

A plan is stationary where Φ(p, θ) = ½ ∂F(p, p)/∂p vanishes, up to multipliers of hard marginals. So dp solves a
linear system with the symmetric matrix ∂Φ/∂p. Backward, the gradient v of something with respect to p goes through
the same system once, H u = v, eq. (9.4), and −u is the gradient with respect to Φ, whose graph leads on to the data.
The steps of the solver are not recorded, whatever their number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.caller import warn_at_caller
from .._utils.checks import describe_value
from ..errors import ConvergenceWarning, InputError
from ..geometry.space import Space
from ..kernels.dispatch import dot
from ..problems.build import Fused
from ..problems.ugw import UGW
from ..results.records import Terms
from ..results.result import Result
from .config import LEARNING_CONFIG
from .envelope import attach_gradient, distortion_term, linear_term
from .value_and_grad import SolveArguments, as_space, warn_about_gradient


def solve_differentiable(
    x: Any,
    y: Any,
    *,
    rho: Any = 1.0,
    eps: Any = "auto",
    loss: Any = None,
    fused: Fused | None = None,
    init: Any = "auto",
    solver: Any = None,
) -> Result:
    """Return the Result of `ugw.solve` with gradients for plan, mass, marginals, `transport(...)`, value and each term.

    The fixed point is differentiated implicitly: a backward pass solves one linear system with as many unknowns as the
    plan has entries, by conjugate gradients, which costs about as much as a few outer steps. It needs
    eps > 0, a stored plan and a solve that converged well: a plan off by δ has a gradient off by about δ/eps. Entries
    of points without weight count as constants. For the value alone `ugw.ugw_loss` is cheaper and does not have these
    limits.
    Arguments: as for `ugw.ugw_loss`. A result with gradients has tensors, also for spaces made of NumPy arrays, where
    rho, eps, alpha or the cost of `Fused` requires them.

    >>> import torch, ugw
    >>> points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], dtype=torch.float64, requires_grad=True)
    >>> r = ugw.solve_differentiable(points, points.detach() * 1.5, rho=1.0, eps=0.1)
    >>> r.plan[0, 0].backward()
    >>> bool(points.grad.isfinite().all())
    True
    """
    x, y = as_space("x", x), as_space("y", y)
    arguments = SolveArguments(rho=rho, eps=eps, loss=loss, fused=fused, solver=solver)
    if arguments.partial_sides is not None:
        got = describe_value(arguments.partial_sides[0])
        raise InputError(f"a plan has gradients for a rho of KL, got {got}: its plan jumps; ugw.ugw_loss has gradients")
    problem = arguments.build_problem(x, y)
    if not bool((problem.eps > 0).all()):
        raise InputError("a plan has gradients where eps > 0, got eps = 0: there it jumps; ugw.ugw_loss has them")
    result = arguments.solve(problem, init)
    warn_about_gradient(result, has_gradient=torch.is_grad_enabled())
    if not torch.is_grad_enabled():
        return result
    if result.path == "streaming":
        raise InputError(
            "a plan that is not stored has no implicit gradient: its `apply` is differentiable in the matrix, "
            'ugw.ugw_loss in the data; or take solver=ugw.AlternateMin(inner=ugw.Sinkhorn(method="stabilized"))'
        )
    return _with_implicit_gradient(problem, _Data(x.to(torch.float64), y.to(torch.float64), fused), result)


@dataclass(frozen=True, eq=False)
class _Data:
    """Two spaces and a cost of features, on which the stationarity condition depends: float64, with autograd graphs."""

    x: Space
    y: Space
    fused: Fused | None

    def detach(self) -> _Data:
        """Return a copy without autograd graphs of the two spaces and the cost."""
        fused = self.fused
        if fused is not None and isinstance(fused.cost, Tensor):
            fused = replace(fused, cost=fused.cost.detach())
        return _Data(self.x.detach(), self.y.detach(), fused)


def _with_implicit_gradient(problem: UGW, data: _Data, result: Result) -> Result:
    """Return the result with plan and terms that are differentiable in `data` and in rho, eps and alpha of the problem.

    Returns it unchanged if none of these requires a gradient.
    """
    plan = result.tensors.plan.double()
    residual = _stationarity(problem, data, plan)
    weights = [space.weight_tensor.expand(problem.batch, -1) for space in (data.x, data.y)]
    if not any(t.requires_grad for t in (residual, *weights)):
        return result
    output, adjoint = result.tensors, _Adjoint(problem, data.detach(), plan)
    plan_with_gradient = _ImplicitFunction.apply(residual, *weights, plan, adjoint)
    graphs = _objective_terms(problem, data, plan_with_gradient)
    terms = {name: attach_gradient(getattr(output.terms, name), graph) for name, graph in graphs.items()}
    tensors = replace(output, plan=plan_with_gradient.to(output.plan.dtype), terms=Terms(**terms))
    return replace(result, tensors=tensors, numpy=False)  # NumPy arrays have no graph


def _safe_log_ratio(p: Tensor, weights: Tensor) -> Tensor:
    """Return log(p / weights), 0 where p or weights is 0. Shapes: any that broadcast."""
    usable = (p > 0) & (weights > 0)
    return torch.where(usable, torch.where(usable, p, 1.0).log() - torch.where(usable, weights, 1.0).log(), 0.0)


def _stationarity(problem: UGW, data: _Data, p: Tensor) -> Tensor:
    """Return Φ = ½ ∂F(p, p)/∂p, (B, n, m), at a plan p (B, n, m), F the UGW objective; Φ_ij = 0 where p_ij = 0.

    Φ = D(p) + m(p)·(eps log(p/a⊗b) + rho1 log(p1/a) ⊕ rho2 log(p2/b)) + ½ alpha M + a scalar from each divergence.
    m(p): the mass of p; D(p)_ij = Σ λ(|Dx_ii' − Dy_jj'|) p_i'j'; M: the linear cost. A hard marginal adds nothing.
    """
    mass = p.sum(dim=(1, 2), keepdim=True)
    total = problem.distortion_sum.with_metrics(data.x.metric, data.y.metric).apply(p)
    a, b = data.x.weight_tensor[..., :, None], data.y.weight_tensor[..., None, :]
    rho_a, rho_b, eps = (v[:, None, None] for v in (problem.div_a.penalty, problem.div_b.penalty, problem.eps))
    rows, cols = p.sum(2, keepdim=True), p.sum(1, keepdim=True)
    for rho, part, reference in ((rho_a, rows, a), (rho_b, cols, b), (eps, p, a * b)):
        ratio = _safe_log_ratio(part, reference)
        total = total + rho * (mass * ratio + (part * ratio).sum(dim=(1, 2), keepdim=True))
    if data.fused is not None:
        fixed = p.detach().requires_grad_()
        linear = linear_term(data.x, data.y, data.fused, fixed).sum()
        (cost,) = torch.autograd.grad(linear, fixed, create_graph=True)  # the gradient of <M, p> is M
        total = total + 0.5 * problem.alpha[:, None, None] * cost
    return torch.where(p > 0, total, 0.0)


def _objective_terms(problem: UGW, data: _Data, p: Tensor) -> dict[str, Tensor]:
    """Return the terms distortion, linear, marginal_a, marginal_b and entropy of the UGW objective of p, (B,) each.

    They are multiplied by 1, alpha, rho1, rho2 and eps, and differentiable in these, in p, (B, n, m), and in the data.
    The term of a hard marginal is 0, and so is linear without a fused cost.
    """
    a, b = data.x.weight_tensor.expand(problem.batch, -1), data.y.weight_tensor.expand(problem.batch, -1)
    mass = p.sum(dim=(1, 2))
    terms = {"distortion": distortion_term(problem, data.x.metric, data.y.metric, p), "linear": torch.zeros_like(mass)}
    if data.fused is not None:
        terms["linear"] = problem.alpha * linear_term(data.x, data.y, data.fused, p)
    for name, rho, part, reference in (
        ("marginal_a", problem.div_a.penalty, p.sum(2), a),
        ("marginal_b", problem.div_b.penalty, p.sum(1), b),
        ("entropy", problem.eps, p.flatten(1), (a[:, :, None] * b[:, None, :]).flatten(1)),
    ):
        entropy = (part * _safe_log_ratio(part, reference)).sum(1)
        terms[name] = rho * (2.0 * mass * entropy - mass.square() + reference.sum(1).square())
    return terms


class _ImplicitFunction(torch.autograd.Function):
    """The plan as a function of the residual Φ of the stationarity condition and of the weights of hard sides."""

    @staticmethod
    def forward(ctx: Any, residual: Tensor, a: Tensor, b: Tensor, plan: Tensor, adjoint: _Adjoint) -> Tensor:
        """Return a copy of the plan (B, n, m). Backward, `adjoint` turns its gradient into those of residual, a and b.

        residual: ½ ∂F(p, p)/∂p at the plan p, (B, n, m), F the UGW objective; a: (B, n), b: (B, m), weights. The values
        of these three are not used.
        """
        ctx.adjoint = adjoint
        return plan.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """Return (gradient of residual (B, n, m), of a (B, n), of b (B, m), None for plan, None for adjoint).

        gradient: (B, n, m), that of the plan. Raises InputError for create_graph=True.
        """
        if torch.is_grad_enabled():
            raise InputError("a plan can be differentiated once, got create_graph=True")
        return (*ctx.adjoint(gradient), None, None)


@dataclass(frozen=True, eq=False)
class _Adjoint:
    """The map v ↦ (−u, μ, ν) with H u + μ ⊕ ν = v, where H = ∂Φ/∂p at the plan and u changes no hard marginal.

    v is the gradient of a value with respect to the plan; −u, μ and ν are those with respect to Φ, a and b. The system
    is scaled by the root of the plan on both sides.
    """

    problem: UGW
    data: _Data
    plan: Tensor

    def __call__(self, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (−u (B, n, m), μ (B, n), ν (B, m)): gradients in Φ, a and b of a value with gradient v in the plan.

        Φ = ½ ∂F(p, p)/∂p, F the UGW objective; H u + μ ⊕ ν = v with H = ∂Φ/∂p; u has row or column sums 0 on a hard
        side; μ or ν of a soft side is 0. Warns if the system is not solved to 1e-6. v: (B, n, m).
        """
        root = self.plan.sqrt()
        with torch.enable_grad():
            p = self.plan.detach().clone().requires_grad_()
            phi = _stationarity(self.problem, self.data, p)
        multipliers = self._multipliers()

        def apply(u: Tensor) -> Tensor:
            """Return H u, (B, n, m), for H = ∂Φ/∂p, symmetric, with Φ = ½ ∂F(p, p)/∂p of the UGW objective F."""
            return torch.autograd.grad(phi, p, u, retain_graph=True)[0]

        def project(z: Tensor) -> Tensor:
            """Return the projection of z (B, n, m) onto the z for which √plan ∘ z has sums 0 along hard marginals."""
            mu, nu = multipliers(root * z)
            return z - root * (mu[:, :, None] + nu[:, None, :])

        y, residual = _conjugate_gradients(lambda y: project(root * apply(root * project(y))), project(root * v))
        if bool((residual > LEARNING_CONFIG.max_trusted_residual).any()):
            warn_at_caller(
                "the gradient of the plan is not exact: its linear system was solved to a residual of "
                f"{float(residual.max()):.1e}. The plan is no isolated minimum, or eps is small: raise it",
                ConvergenceWarning,
            )
        u = root * project(y)
        mu, nu = multipliers(self.plan * (v - apply(u)))
        return -u, mu, nu

    def _multipliers(self) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """Return the map r ↦ (μ, ν), (B, n, m) to (B, n) and (B, m), for the plan p.

        p∘(μ ⊕ ν) has the row sums of r if the first marginal is hard, its column sums if the second is; μ or ν of a
        soft marginal is 0.
        """
        n, p = self.plan.shape[1], self.plan
        hard_a, hard_b = (div.is_hard.to(p.dtype)[:, None] for div in (self.problem.div_a, self.problem.div_b))
        if not bool((hard_a + hard_b > 0).any()):
            zero_a, zero_b = torch.zeros_like(p[:, :, 0]), torch.zeros_like(p[:, 0, :])
            return lambda r: (zero_a, zero_b)
        across = (hard_a * hard_b)[:, :, None] * p
        top = torch.cat([torch.diag_embed(hard_a * p.sum(2)), across], dim=2)
        bottom = torch.cat([across.mT, torch.diag_embed(hard_b * p.sum(1))], dim=2)
        inverse = torch.linalg.pinv(torch.cat([top, bottom], dim=1), hermitian=True)

        def solve(r: Tensor) -> tuple[Tensor, Tensor]:
            """Return the multipliers μ (B, n) and ν (B, m) of `_multipliers` for r (B, n, m)."""
            sums = torch.cat([hard_a * r.sum(2), hard_b * r.sum(1)], dim=1)
            multipliers = (inverse @ sums[:, :, None])[:, :, 0]
            return multipliers[:, :n], multipliers[:, n:]

        return solve


def _conjugate_gradients(apply: Callable[[Tensor], Tensor], b: Tensor) -> tuple[Tensor, Tensor]:
    """Return (y, residuals): y (B, n, m) with apply(y) = b, by conjugate gradients, and |apply(y) − b| / |b|, (B,).

    apply: a symmetric linear map of tensors (B, n, m); b: (B, n, m). y is the iterate with the smallest residual, after
    residuals of 1e-12 or 5000 products.
    """
    size = dot(b, b).sqrt().clamp(min=torch.finfo(b.dtype).tiny)
    y, r = torch.zeros_like(b), b
    direction, square = r, dot(r, r)
    best, least = y, square
    for _ in range(LEARNING_CONFIG.max_cg_products):
        if bool((least.sqrt() <= LEARNING_CONFIG.max_cg_residual * size).all()):
            break
        image = apply(direction)
        curvature = dot(direction, image)
        # An item that is solved, or whose direction has no curvature, stays where it is.
        moving = (square > 0) & (curvature != 0)
        step = torch.where(moving, square / torch.where(moving, curvature, 1.0), 0.0)[:, None, None]
        y, r = y + step * direction, r - step * image
        new = dot(r, r)
        better = new < least
        best, least = torch.where(better[:, None, None], y, best), torch.minimum(new, least)
        direction = r + (new / torch.where(square > 0, square, 1.0))[:, None, None] * direction
        square = new
    return best, least.sqrt() / size
