"""The gradient of a solved value: by the envelope theorem that of the objective with the plan held fixed.

At a stationary plan the value changes with distances, features and parameters as if the plan did not, to first order:
eq. (9.1). So a plan is solved for without a graph, and the terms that depend on the data are written down once more,
with it.
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
from .weight_gradients import cap_gradients, weight_gradients

# Stands for the logarithm of a mass of 0.
LOG_ZERO = -700.0


def attached(problem: UGW, x: Space, y: Space, fused: Fused | None, found: SolverOutput) -> Tensor:
    """The value of what was found, (B,), with the gradient that it has at a stationary plan.

    problem: built without graphs, but for rho, eps and alpha; x, y, fused: as the caller gave them.
    """
    with torch.no_grad():
        state = _state(problem, found.plan)
    total = distortion(problem, x.metric, y.metric, found.plan)
    if fused is not None:
        total = total + problem.alpha.detach() * linear(x, y, fused, found.plan)
    if x.weight_tensor.requires_grad or y.weight_tensor.requires_grad:
        with torch.no_grad():
            worth = weight_gradients(problem, state, found.potentials)
        for gradient, space in zip(worth, (x, y), strict=True):
            total = total + (gradient * space.weight_tensor).sum(-1)
    return once(total + _parameters(problem, state), found.terms.total)


def _state(problem: UGW, plan: Any) -> PlanState:
    """What the problem knows of a plan, at the mass that it has."""
    mass = plan.sum((1, 2), dtype=torch.float64)
    shape = normalize(plan)
    if not isinstance(plan, ImplicitPlan):  # a plan of zeros has no shape; any will do for a mass of 0
        shape = torch.where(mass[:, None, None] > 0, shape, problem.product)
    return problem.state_of_plan(shape).with_log_mass(torch.where(mass > 0, mass.log(), LOG_ZERO))


def attached_capped(problem: PartialGW, x: Space, y: Space, fused: Fused | None, found: SolverOutput) -> Tensor:
    """The value of a partial problem, (B,), with its gradient; arguments as for `attached`."""
    total = distortion(problem, x.metric, y.metric, found.plan)
    with torch.no_grad():
        state = problem.state_of_plan(found.plan / problem.mass_unit.to(found.plan.dtype)[:, None, None])
        of_a, of_b, of_mass = cap_gradients(problem, state)
        masses = [(2.0 * log).exp() for log in (problem.log_mass_a, problem.log_mass_b)]
        left = [mass - (problem.mass_unit * state.mass).square() for mass in masses]
    if fused is not None:
        total = total + problem.alpha.detach() * linear(x, y, fused, found.plan)
        total = total + problem.alpha * (problem.mass_unit * state.linear)
    for gradient, space in ((of_a, x), (of_b, y)):
        total = total + (gradient * space.weight_tensor).sum(-1)
    if isinstance(problem.div_a, Mass):
        total = total + problem.div_a.m * of_mass
    else:
        total = total + problem.div_a.penalty * left[0] + problem.div_b.penalty * left[1]
    return once(total, found.terms.total)


def attached_conic(problem: CGW, x: Space, y: Space, found: SolverOutput) -> Tensor:
    """The conic value of what was found, (B,), with the gradient that it has at a stationary lift.

    The multipliers of P 1 = a are 2·rho1/R · (k∘w)1 / a: eq. (9.3).
    """
    lift = found.lift
    if lift is None:
        raise RuntimeError("a conic problem has a lift")
    distortion_sum = problem.distortion_sum.with_metrics(x.metric, y.metric)
    local = distortion_sum.apply(lift.w)
    total = -(problem.rho_a + problem.rho_b) * dot(local, lift.w)
    with torch.no_grad():
        k = local.detach().double()
        worth = _conic_worth(problem, k, lift.w.double())
    for gradient, space in zip(worth, (x, y), strict=True):
        total = total + (gradient * space.weight_tensor).sum(-1)
    return once(total, found.terms.total)


def distortion(problem: UGW | PartialGW, dx: Metric, dy: Metric, plan: Any) -> Tensor:
    """Σ λ(|Dx_ii' − Dy_jj'|) p_ij p_i'j', (B,), differentiable in the distances. plan: stored, or not."""
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


def linear(x: Space, y: Space, fused: Fused, plan: Any) -> Tensor:
    """<M, p> of a fused problem, (B,), differentiable in the features or in the cost."""
    if fused.cost is not None:
        return dot(torch.as_tensor(fused.cost).to(plan.sum(2)), plan)
    if x.feature_tensor is None or y.feature_tensor is None:
        raise RuntimeError("a fused problem has features or a cost")
    total = -2.0 * dot(x.feature_tensor, product(plan, y.feature_tensor))
    for features, marginal in ((x.feature_tensor, plan.sum(2)), (y.feature_tensor, plan.sum(1))):
        total = total + (marginal * features.square().sum(-1)).sum(1, dtype=torch.float64)
    return total


def _parameters(problem: UGW, state: PlanState) -> Tensor:
    """What the value owes to rho, eps and alpha, where they carry gradients: linear in each, the plan fixed."""
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


def _conic_worth(problem: CGW, k: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """dCGW/da (B, n) and dCGW/db (B, m): 2 rho1 (m(a) − u), u = (k∘w)1 / a, and its mirror image."""
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
    """u of points without weight, (B, n): where mass is matched k = u^share v^(1 − share), elsewhere k is below."""
    log_u = (k.log() - (1.0 - share) * v.log()[:, None, :]) / share
    usable = (log_b > -torch.inf)[:, None, :] & torch.isfinite(log_u)
    return torch.where(usable, log_u, -torch.inf).amax(2).exp()


def once(graph: Tensor, value: Tensor) -> Tensor:
    """The value with the gradient of `graph`, once: held fixed, the plan knows nothing of second derivatives."""
    return _Once.apply(graph, value) if graph.requires_grad else value


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, graph: Tensor, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        if torch.is_grad_enabled():
            raise InputError(
                "a solved value can be differentiated once, got create_graph=True: with the plan held fixed its second "
                "derivatives would be wrong"
            )
        return gradient, None
