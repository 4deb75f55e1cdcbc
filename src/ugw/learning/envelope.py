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
from ..geometry.implicit_plan import ImplicitPlan
from ..geometry.metric import Metric
from ..geometry.space import Space
from ..kernels.dispatch import dot
from ..measures.divergences import KL, Mass
from ..problems.build import Fused
from ..problems.cgw import CGW
from ..problems.distortion.squares import SquaredDistortion
from ..problems.partial.gw import PartialGW
from ..problems.plan_operations import normalize
from ..problems.ugw import UGW
from ..problems.ugw_state import PlanState
from ..results.lazy_plan import product
from ..results.records import SolverOutput
from .config import LEARNING_CONFIG
from .weight_gradients import partial_weight_gradients, weight_gradients


def value_with_gradient(problem: UGW, x: Space, y: Space, fused: Fused | None, output: SolverOutput) -> Tensor:
    """Return the value (B,) of a solver output, with the gradient that it has at a stationary plan.

    problem: built without graphs, but for rho, eps and alpha; x, y, fused: as the caller gave them.
    """
    with torch.no_grad():
        state = _state_of_plan(problem, output.plan)
    total = distortion_term(problem, x.metric, y.metric, output.plan)
    if fused is not None:
        total = total + problem.alpha.detach() * linear_term(x, y, fused, output.plan)
    if x.weight_tensor.requires_grad or y.weight_tensor.requires_grad:
        with torch.no_grad():
            gradients = weight_gradients(problem, state, output.potentials)
        for gradient, space in zip(gradients, (x, y), strict=True):
            total = total + (gradient * space.weight_tensor).sum(-1)
    return differentiable_once(total + _parameter_terms(problem, state), output.terms.total)


def _state_of_plan(problem: UGW, plan: Any) -> PlanState:
    """Return the state of a plan (B, n, m), stored or implicit, at its own mass."""
    mass = plan.sum((1, 2), dtype=torch.float64)
    unit_plan = normalize(plan)
    if not isinstance(plan, ImplicitPlan):
        # A plan of zeros cannot be divided by its mass: the product plan stands in, with a mass of 0.
        unit_plan = torch.where(mass[:, None, None] > 0, unit_plan, problem.product)
    return problem.state_of_plan(unit_plan).with_log_mass(
        torch.where(mass > 0, mass.log(), LEARNING_CONFIG.log_zero_mass)
    )


def partial_value_with_gradient(
    problem: PartialGW, x: Space, y: Space, fused: Fused | None, output: SolverOutput
) -> Tensor:
    """Return the value (B,) of a partial problem, differentiable in x, y and fused; see `value_with_gradient`."""
    total = distortion_term(problem, x.metric, y.metric, output.plan)
    with torch.no_grad():
        state = problem.state_of_plan(output.plan / problem.mass_unit.to(output.plan.dtype)[:, None, None])
        of_a, of_b, of_mass = partial_weight_gradients(problem, state)
        masses = [(2.0 * log).exp() for log in (problem.log_mass_a, problem.log_mass_b)]
        left = [mass - (problem.mass_unit * state.mass).square() for mass in masses]
    if fused is not None:
        total = total + problem.alpha.detach() * linear_term(x, y, fused, output.plan)
        total = total + problem.alpha * (problem.mass_unit * state.linear)
    for gradient, space in ((of_a, x), (of_b, y)):
        total = total + (gradient * space.weight_tensor).sum(-1)
    if isinstance(problem.div_a, Mass):
        total = total + problem.div_a.m * of_mass
    else:
        total = total + problem.div_a.penalty * left[0] + problem.div_b.penalty * left[1]
    return differentiable_once(total, output.terms.total)


def conic_value_with_gradient(problem: CGW, x: Space, y: Space, output: SolverOutput) -> Tensor:
    """Return the conic value (B,) of a solver output, with the gradient that it has at a stationary lift.

    The multipliers of P 1 = a are 2·rho1/R · (k∘w)1 / a: eq. (9.3).
    """
    lift = output.lift
    if lift is None:
        raise RuntimeError("a conic problem has a lift")
    distortion_sum = problem.distortion_sum.with_metrics(x.metric, y.metric)
    local = distortion_sum.apply(lift.w)
    total = -(problem.rho_a + problem.rho_b) * dot(local, lift.w)
    with torch.no_grad():
        k = local.detach().double()
        gradients = _conic_weight_gradients(problem, k, lift.w.double())
    for gradient, space in zip(gradients, (x, y), strict=True):
        total = total + (gradient * space.weight_tensor).sum(-1)
    return differentiable_once(total, output.terms.total)


def distortion_term(problem: UGW | PartialGW, dx: Metric, dy: Metric, plan: Any) -> Tensor:
    """Return Σ λ(|Dx_ii' − Dy_jj'|) p_ij p_i'j', (B,), differentiable in the distances. plan: stored or implicit."""
    distortion_sum = problem.distortion_sum
    if not isinstance(distortion_sum, SquaredDistortion):
        if distortion_sum is None:
            raise RuntimeError("__post_init__ sets the distortion sum")
        return dot(distortion_sum.with_metrics(dx, dy).apply(plan), plan)
    squares = torch.zeros_like(problem.eps)
    for metric, marginal in ((dx, plan.sum(2)), (dy, plan.sum(1))):
        squares = squares + dot(marginal[:, :, None], metric.apply_squared(marginal[:, :, None]))
    # <p, Dx p Dy> with Dy = left rightᵀ, or Dy itself and no right.
    left, right = dy.factors() or (dy.dense(), None)
    across = plan if right is None else product(plan, right)
    return squares - 2.0 * dot(across, dx.apply(product(plan, left)))


def linear_term(x: Space, y: Space, fused: Fused, plan: Any) -> Tensor:
    """Return <M, p> of a fused problem, (B,), differentiable in the features or in the cost."""
    if fused.cost is not None:
        return dot(torch.as_tensor(fused.cost).to(plan.sum(2)), plan)
    if x.feature_tensor is None or y.feature_tensor is None:
        raise RuntimeError("a fused problem has features or a cost")
    total = -2.0 * dot(x.feature_tensor, product(plan, y.feature_tensor))
    for features, marginal in ((x.feature_tensor, plan.sum(2)), (y.feature_tensor, plan.sum(1))):
        total = total + (marginal * features.square().sum(-1)).sum(1, dtype=torch.float64)
    return total


def _parameter_terms(problem: UGW, state: PlanState) -> Tensor:
    """Return the part of the value (B,) linear in rho, eps and alpha at a fixed plan; 0 if none has a gradient."""
    given = (problem.div_a.rho, problem.div_b.rho, problem.eps, problem.alpha)
    if not any(parameter.requires_grad for parameter in given):
        return torch.zeros_like(problem.eps)
    with torch.no_grad():
        one = torch.ones_like(problem.eps)
        unit = replace(problem, div_a=KL(one), div_b=KL(one), eps=one, alpha=one)
        terms = unit.objective(state)
    hard = (problem.div_a.is_hard, problem.div_b.is_hard, torch.zeros_like(one, dtype=torch.bool))
    slopes = (terms.marginal_a, terms.marginal_b, terms.entropy, terms.linear)
    parts = zip(given, slopes, (*hard, hard[2]), strict=True)
    return sum((torch.where(off, 0.0, p) * slope for p, slope, off in parts), torch.zeros_like(one))


def _conic_weight_gradients(problem: CGW, k: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Return dCGW/da (B, n) and dCGW/db (B, m): 2 rho1 (m(a) − u), u = (k∘w)1 / a, and its mirror image."""
    matched, share = k * w, (problem.rho_a / (problem.rho_a + problem.rho_b))[:, None, None]
    first = (matched.sum(2), problem.log_a, problem.log_mass_a)
    second = (matched.sum(1), problem.log_b, problem.log_mass_b)
    u, v = (
        sums / torch.where(log > -torch.inf, (log + mass[:, None]).exp(), 1.0) for sums, log, mass in (first, second)
    )
    u_all = torch.where(problem.log_a > -torch.inf, u, _best_partner(k, v, problem.log_b, share))
    v_all = torch.where(problem.log_b > -torch.inf, v, _best_partner(k.mT, u, problem.log_a, 1.0 - share))
    made_a = 2.0 * problem.rho_a[:, None] * (problem.log_mass_a.exp()[:, None] - u_all)
    made_b = 2.0 * problem.rho_b[:, None] * (problem.log_mass_b.exp()[:, None] - v_all)
    return made_a, made_b


def _best_partner(k: Tensor, v: Tensor, log_b: Tensor, share: Tensor) -> Tensor:
    """Return u (B, n) of points without weight: k ≤ u^share v^(1 − share), with equality where mass is matched."""
    log_u = (k.log() - (1.0 - share) * v.log()[:, None, :]) / share
    usable = (log_b > -torch.inf)[:, None, :] & torch.isfinite(log_u)
    return torch.where(usable, log_u, -torch.inf).amax(2).exp()


def differentiable_once(graph: Tensor, value: Tensor) -> Tensor:
    """Return the value with the gradient of `graph`; a second derivative raises, because the plan is held fixed."""
    return _DifferentiableOnce.apply(graph, value) if graph.requires_grad else value


class _DifferentiableOnce(torch.autograd.Function):
    """The identity on `value`, with the gradient of `graph`; raises for second derivatives."""

    @staticmethod
    def forward(ctx: Any, graph: Tensor, value: Tensor) -> Tensor:
        """Return a copy of the value."""
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of `graph`; `value` has none."""
        if torch.is_grad_enabled():
            raise InputError(
                "a solved value can be differentiated once, got create_graph=True: with the plan held fixed its second "
                "derivatives would be wrong"
            )
        return gradient, None
