"""Gradients of solved values by the envelope theorem: those of the objective with the plan held fixed, eq. (9.1).

The plan is solved for without an autograd graph; then the terms of the objective that depend on the data are computed
once more at this plan, with a graph.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..geometry.metric import Metric
from ..geometry.space import Space
from ..kernels.dispatch import dot
from ..measures.divergences import KL, Mass
from ..problems.build import Fused
from ..problems.cgw import CGW
from ..problems.distortion.squares import SquaredDistortion
from ..problems.partial.gw import PartialGW
from ..problems.ugw import UGW
from ..problems.ugw_state import PlanState
from ..results.lazy_plan import product
from ..results.records import SolverOutput
from .weight_gradients import partial_weight_gradients, weight_gradients


def value_with_gradient(problem: UGW, x: Space, y: Space, fused: Fused | None, output: SolverOutput) -> Tensor:
    """Return the value (B,), float64, of a solve, differentiable in x, y, fused, rho, eps and alpha, the plan fixed.

    problem: between detached copies of x and y, with rho, eps and alpha as given; output: what the solver returned.
    """
    with torch.no_grad():
        state = problem.state_of_any_plan(output.plan)
    total = _data_terms(problem, x, y, fused, output.plan)
    if x.weight_tensor.requires_grad or y.weight_tensor.requires_grad:
        with torch.no_grad():
            gradients = weight_gradients(problem, state, output.potentials)
        total = total + _weight_term(gradients, x, y)
    return attach_gradient(output.terms.total, total + _parameter_terms(problem, state))


def partial_value_with_gradient(
    problem: PartialGW, x: Space, y: Space, fused: Fused | None, output: SolverOutput
) -> Tensor:
    """Return the value (B,) of a partial solve, differentiable in x, y, fused and the parameters rho, m and alpha.

    Gradients are those of the objective with the plan held fixed; for the weights and m they contain the multipliers of
    the constraints. problem: between detached copies of x and y; output: what the solver returned.
    """
    with torch.no_grad():
        state = problem.state_of_plan(output.plan / problem.mass_unit.to(output.plan.dtype)[:, None, None])
        gradient_a, gradient_b, mass_gradient = partial_weight_gradients(problem, state)
        squared_masses = [(2.0 * log).exp() for log in (problem.log_mass_a, problem.log_mass_b)]
        unmatched = [square - (problem.mass_unit * state.mass).square() for square in squared_masses]
    total = _data_terms(problem, x, y, fused, output.plan) + _weight_term((gradient_a, gradient_b), x, y)
    if fused is not None:
        total = total + problem.alpha * (problem.mass_unit * state.linear)
    if isinstance(problem.div_a, Mass):
        total = total + problem.div_a.m * mass_gradient
    else:
        total = total + problem.div_a.penalty * unmatched[0] + problem.div_b.penalty * unmatched[1]
    return attach_gradient(output.terms.total, total)


def conic_value_with_gradient(problem: CGW, x: Space, y: Space, output: SolverOutput) -> Tensor:
    """Return CGW (B,) of a solve, differentiable in x and y with the plan between cones (P, Q, w) fixed, eq. (9.3).

    problem: between detached copies of x and y; output: what the solver returned, with this plan as `lift`.
    """
    lift = output.lift
    if lift is None:
        raise RuntimeError("a conic problem has a lift")
    distortion_sum = problem.distortion_sum.with_metrics(x.metric, y.metric)
    local = distortion_sum.apply(lift.w)
    total = -(problem.rho_a + problem.rho_b) * dot(local, lift.w)
    with torch.no_grad():
        gradients = _conic_weight_gradients(problem, local.detach().double(), lift.w.double())
    return attach_gradient(output.terms.total, total + _weight_term(gradients, x, y))


def _data_terms(problem: UGW | PartialGW, x: Space, y: Space, fused: Fused | None, plan: Any) -> Tensor:
    """Return distortion + alpha <M, plan>, (B,), differentiable in distances, features and cost, not in alpha.

    M: the linear cost; without `fused` the distortion alone. plan: (B, n, m), a tensor or an `ImplicitPlan`.
    """
    total = distortion_term(problem, x.metric, y.metric, plan)
    return total if fused is None else total + problem.alpha.detach() * linear_term(x, y, fused, plan)


def _weight_term(gradients: tuple[Tensor, Tensor], x: Space, y: Space) -> Tensor:
    """Return <dV/da, a> + <dV/db, b>, (B,), for gradients (dV/da, dV/db), (B, n) and (B, m), and weights a, b of x, y.

    V: the value of a solve. The given gradients are constants, so that they are the gradients of the sum in a and b.
    """
    return (gradients[0] * x.weight_tensor).sum(-1) + (gradients[1] * y.weight_tensor).sum(-1)


def distortion_term(problem: UGW | PartialGW, dx: Metric, dy: Metric, plan: Any) -> Tensor:
    """Return Σ λ(|Dx_ii' − Dy_jj'|) p_ij p_i'j', (B,), differentiable in the distances dx and dy.

    plan: p, (B, n, m), a tensor or an `ImplicitPlan`; the loss λ is that of the problem.
    """
    distortion_sum = problem.distortion_sum
    if not isinstance(distortion_sum, SquaredDistortion):
        return dot(distortion_sum.with_metrics(dx, dy).apply(plan), plan)
    squares = torch.zeros_like(problem.eps)
    for metric, marginal in ((dx, plan.sum(2)), (dy, plan.sum(1))):
        squares = squares + dot(marginal[:, :, None], metric.apply_squared(marginal[:, :, None]))
    # <p, Dx p Dy> with Dy = left rightᵀ, or Dy itself and no right.
    left, right = dy.factors() or (dy.dense(), None)
    across = plan if right is None else product(plan, right)
    return squares - 2.0 * dot(across, dx.apply(product(plan, left)))


def linear_term(x: Space, y: Space, fused: Fused, plan: Any) -> Tensor:
    """Return <M, p>, (B,), for a plan p (B, n, m), differentiable in the features of x and y or in `fused.cost`.

    It is not multiplied by alpha. M is `fused.cost`, or else the squared distances between features.
    """
    if fused.cost is not None:
        return dot(torch.as_tensor(fused.cost).to(plan.sum(2)), plan)
    if x.feature_tensor is None or y.feature_tensor is None:
        raise RuntimeError("a fused problem has features or a cost")
    total = -2.0 * dot(x.feature_tensor, product(plan, y.feature_tensor))
    for features, marginal in ((x.feature_tensor, plan.sum(2)), (y.feature_tensor, plan.sum(1))):
        total = total + (marginal * features.square().sum(-1)).sum(1, dtype=torch.float64)
    return total


def _parameter_terms(problem: UGW, state: PlanState) -> Tensor:
    """Return rho1 KL(p1⊗p1 | a⊗a) + rho2 KL(p2⊗p2 | b⊗b) + eps KL(p⊗p | (a⊗b)⊗²) + alpha <M, p>, (B,).

    It is differentiable in rho, eps and alpha; the plan p, in `state`, is held fixed. A hard side adds nothing. Returns
    zeros (B,) if none of the parameters requires a gradient.
    """
    total = torch.zeros_like(problem.eps)
    # The rho of a hard side is inf and adds nothing.
    rhos = (torch.where(side.is_hard, 0.0, side.rho) for side in (problem.div_a, problem.div_b))
    parameters = (*rhos, problem.eps, problem.alpha)
    if not any(parameter.requires_grad for parameter in parameters):
        return total
    with torch.no_grad():
        one = torch.ones_like(problem.eps)
        terms = replace(problem, div_a=KL(one), div_b=KL(one), eps=one, alpha=one).objective(state)
    slopes = (terms.marginal_a, terms.marginal_b, terms.entropy, terms.linear)
    for parameter, slope in zip(parameters, slopes, strict=True):
        total = total + parameter * slope
    return total


def _conic_weight_gradients(problem: CGW, k: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Return dCGW/da = 2 rho1 (m(a) − u), (B, n), with u = (k∘w)1 / a, and in the same way dCGW/db (B, m).

    k: G w, (B, n, m), with the conic kernel G = exp(−λ/R), R = rho1 + rho2; w: (B, n, m), the mass that each pair of
    points matches. Points of weight 0 get the limit for small weights.
    """
    matched, share = k * w, (problem.rho_a / (problem.rho_a + problem.rho_b))[:, None, None]
    log_a, log_b, mass_a, mass_b = problem.log_a, problem.log_b, problem.log_mass_a.exp(), problem.log_mass_b.exp()
    u = matched.sum(2) / torch.where(log_a > -torch.inf, log_a.exp() * mass_a[:, None], 1.0)
    v = matched.sum(1) / torch.where(log_b > -torch.inf, log_b.exp() * mass_b[:, None], 1.0)
    u_all = torch.where(log_a > -torch.inf, u, _ratio_of_weightless(k, v, log_b, share))
    v_all = torch.where(log_b > -torch.inf, v, _ratio_of_weightless(k.mT, u, log_a, 1.0 - share))
    gradient_a = 2.0 * problem.rho_a[:, None] * (mass_a[:, None] - u_all)
    return gradient_a, 2.0 * problem.rho_b[:, None] * (mass_b[:, None] - v_all)


def _ratio_of_weightless(k: Tensor, v: Tensor, log_b: Tensor, share: Tensor) -> Tensor:
    """Return u of `_conic_weight_gradients`, (B, n), for points without weight, as the limit for small weights.

    u is (k∘w)1 / a and v is (k∘w)ᵀ1 / b. Where a is 0, u is the least one with k_ij ≤ u_i^share v_j^(1 − share) for
    all j with weight and v_j > 0. Callers ignore u where a > 0. k: (B, n, m); v, log_b: (B, m); share: (B, 1, 1),
    rho1/(rho1 + rho2), with rho2 above if the sides are exchanged.
    """
    log_u = (k.log() - (1.0 - share) * v.log()[:, None, :]) / share
    usable = (log_b > -torch.inf)[:, None, :] & torch.isfinite(log_u)
    return torch.where(usable, log_u, -torch.inf).amax(2).exp()


def attach_gradient(value: Tensor, graph: Tensor) -> Tensor:
    """Return a tensor with the numbers of `value` and the gradient of `graph`, which has the same shape.

    It is `value` itself if `graph` requires no gradient. Second derivatives raise InputError: with the plan held fixed
    they would be wrong.
    """
    return _AttachGradient.apply(graph, value) if graph.requires_grad else value


class _AttachGradient(torch.autograd.Function):
    """The identity on `value`, with the gradient of `graph`; raises for second derivatives."""

    @staticmethod
    def forward(ctx: Any, graph: Tensor, value: Tensor) -> Tensor:
        """Return a copy of `value`; `graph` is there for its gradient."""
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return (gradient, None): that of `graph`, unchanged, none for `value`; InputError for create_graph=True."""
        if torch.is_grad_enabled():
            raise InputError(
                "a solved value can be differentiated once, got create_graph=True: with the plan held fixed its second "
                "derivatives would be wrong"
            )
        return gradient, None
