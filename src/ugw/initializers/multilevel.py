"""Initial plans of streaming problems, as `ImplicitPlan`: solved on samples of the points, level by level.

The cost of a plan depends on a few moments of it. So the plan between samples gives the cost between all points, and
one sum over the sample gives the potentials there. Few steps are left on the finest level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from .._utils.size_class import size_class
from ..geometry.bilinear_matrix import BilinearMatrix
from ..geometry.implicit_plan import ImplicitPlan, StreamingKernel
from ..geometry.space import Space
from ..problems.linear import LinearProblem
from ..problems.plan_operations import normalize
from ..problems.ugw import UGW
from ..problems.ugw_streamed import PlanMoments, StreamingUGW
from ..solvers.alternating import AlternateMin
from ..solvers.sinkhorn import Sinkhorn
from .centers import eccentricities, quantile_centers
from .coarse import coarse_plan
from .config import INITIALIZER_CONFIG
from .plans import anchor_distances
from .search_steps import report_search_steps

# Solves a level before the next.
LEVEL_SOLVER = AlternateMin(tol=INITIALIZER_CONFIG.level_tol, max_iter=INITIALIZER_CONFIG.n_level_steps)


def named_plan(problem: StreamingUGW, name: str) -> ImplicitPlan:
    """Return the initial plan (B, n, m) of mass 1, as `ImplicitPlan`, for the name of a start such as "auto"."""
    return PLANS_BY_NAME[name](problem)


def first_lower_bound_plan(problem: StreamingUGW) -> ImplicitPlan:
    """Return the plan (B, n, m), of mass 1, one linear step from the plan that transports mean distances to all points.

    A linear step solves the transport problem for the UGW cost linearized at a plan.
    """
    sides = (problem.dx, problem.log_a), (problem.dy, problem.log_b)
    return _step_from_transport_plan(problem, *(eccentricities(d, log_w.exp())[:, :, None] for d, log_w in sides))


def linear_transport_plan(problem: StreamingUGW) -> ImplicitPlan:
    """Return the plan (B, n, m), of mass 1, one linear step from the transport plan for the cost |x_i − y_j|².

    A linear step solves the transport problem for the UGW cost linearized at a plan.
    """
    x, y = problem.x.point_tensor, problem.y.point_tensor
    if x is None or y is None:
        raise RuntimeError("linear starts need points: checked by check_common_dimension")
    return _step_from_transport_plan(problem, *(p.detach().expand(problem.batch, *p.shape[-2:]) for p in (x, y)))


def random_anchor_plan(problem: StreamingUGW) -> ImplicitPlan:
    """Return the plan (B, n, m), of mass 1, one linear step from a random plan.

    A linear step solves the transport problem for the UGW cost linearized at a plan. The random plan is proportional to
    a⊗b·exp(−Σ_k (Dx[:, i_k] − Dy[:, j_k])² / width) for a few anchor pairs (i_k, j_k).
    """
    near_x, near_y, width = anchor_distances(problem, 1)
    kernel = StreamingKernel.from_cost(_squared_differences(near_x, near_y), problem.log_a, problem.log_b, width)
    # Potentials of 0 on one side; on the other those that give each row its weight.
    _, plan, _ = kernel.plan(torch.zeros_like(problem.log_b), torch.ones_like(problem.log_b[:, :1]))
    return _step_from_implicit_plan(problem, plan)


def multilevel_plan(problem: StreamingUGW) -> ImplicitPlan:
    """Return an initial plan (B, n, m) of mass 1: a solution on a sample of the points, prolongated to all points.

    Small problems are solved with stored plans, from the plan of `coarse_plan`, without a sample. A sample's problem is
    solved from what this function returns for it. The items are of one `SizeClass`.
    """
    sizes = size_class(*problem.largest).streaming_sample
    if sizes is None:
        stored = stored_problem(problem)
        return to_implicit_plan(problem, _solve_level(stored, coarse_plan(stored)))
    sample = sample_problem(problem, *sizes)
    plan = multilevel_plan(sample)
    if size_class(*sizes).streaming_sample is not None:
        plan = _solve_level(sample, plan)
    return _prolongate(plan, sample, problem)


def _solve_level(problem: UGW, init: Any) -> Any:
    """Return the plan (B, n, m) after at most 30 solver steps from the plan `init`, scaled to mass 1.

    The mass of a plan that matches nothing may underflow. The steps are reported as search steps.
    """
    state, n_iter = LEVEL_SOLVER.final_state(problem, init)
    report_search_steps(n_iter)
    return state.unit_plan


PLANS_BY_NAME: dict[str, Callable[[StreamingUGW], ImplicitPlan]] = {
    "product": attrgetter("product"),
    "flb": first_lower_bound_plan,
    "linear": linear_transport_plan,
    "random": random_anchor_plan,
    "coarse": multilevel_plan,
    "auto": multilevel_plan,
    "best": multilevel_plan,
}


def to_implicit_plan(problem: StreamingUGW, plan: Any) -> ImplicitPlan:
    """Return `plan` itself if it has the bases left and right of the problem, else the plan one linear step from it.

    A linear step solves the transport problem for the UGW cost linearized at a plan. plan: (B, n, m), a tensor or an
    `ImplicitPlan`, of any mass, which only `plan` itself keeps.
    """
    if isinstance(plan, ImplicitPlan):
        bases = (plan.log_plan.left, problem.left), (plan.log_plan.right, problem.right)
        same = all(one.shape == own.shape and torch.equal(one, own) for one, own in bases)
        return plan if same else _step_from_implicit_plan(problem, normalize(plan))
    return linear_step_plan(problem, plan / plan.sum(dim=(1, 2), dtype=torch.float64)[:, None, None])


def linear_step_plan(problem: StreamingUGW, plan: Any, basis_product: Tensor | None = None) -> ImplicitPlan:
    """Return the transport plan (B, n, m), of mass 1, for the UGW cost linearized at a plan (B, n, m) of mass 1.

    basis_product: leftᵀ·plan·right, (B, r, s), with the factors `left` and `right` of the problem; None for a plan that
    is stored or has these factors.
    """
    moments = PlanMoments.from_plan(problem, plan, basis_product)
    cost, marginals = moments.local_cost(problem), (plan.sum(2).double(), plan.sum(1).double())
    return _transport_plan(problem, cost - _mean_cost(cost, *marginals, moments.basis_product))


def stored_problem(problem: StreamingUGW) -> UGW:
    """Return the UGW problem of the same spaces and parameters, whose plans are stored matrices (B, n, m)."""
    cost = None if problem.cost is None else problem.cost.dense()
    return UGW(
        problem.x,
        problem.y,
        problem.div_a,
        problem.div_b,
        problem.eps,
        problem.alpha,
        cost,
        batched=problem.batched,
    )


def _prolongate(plan: ImplicitPlan, sample: StreamingUGW, problem: StreamingUGW) -> ImplicitPlan:
    """Return a plan (B, n, m) of `problem` from a plan of `sample`, the same problem on a sample of the points.

    It is the result of one Sinkhorn update at all points, for the local cost of the given plan there, from the given
    potentials. Sums over the points of the other side (marginals, plan times factors of the cost) take the points of
    the sample only, so that no pass over all pairs is made.
    """
    plan = normalize(plan)
    moments, entropy = PlanMoments.from_plan(sample, plan), _start_eps(problem)
    # Potentials depend on a constant in the cost: the same as in a step, see `UGW.linearize`.
    constant = _mean_cost(moments.local_cost(sample), plan.sum(2).double(), plan.sum(1).double(), plan.basis_product)
    damping_a, damping_b = (d.damping(entropy).to(plan.dtype)[:, None] for d in (problem.div_a, problem.div_b))
    eps = entropy.to(plan.dtype)[:, None]

    def kernel(between: StreamingUGW) -> StreamingKernel:
        """Return exp(−cost/eps), cost linearized at the given plan, between the points of the problem `between`."""
        return StreamingKernel.from_cost(
            moments.local_cost(between) - constant, between.log_a, between.log_b, eps[:, 0]
        )

    cols = kernel(replace(problem, x=sample.x)).col_logsumexp(plan.f / eps)
    gamma = -damping_b * cols
    log_p2 = problem.log_b + gamma + cols
    phi, half, _ = kernel(replace(problem, y=sample.y)).plan(plan.g / eps, damping_a)
    scaled = kernel(problem).log_kernel
    return ImplicitPlan(
        log_plan=replace(
            scaled,
            row=problem.log_a + phi + scaled.row - torch.logsumexp(log_p2, 1, keepdim=True),
            col=problem.log_b + gamma + scaled.col,
        ),
        row_sums=half.row_sums,
        col_sums=torch.softmax(log_p2, 1),
        right_product=half.right_product,
        f=phi * eps,
        g=gamma * eps,
    )


def _transport_plan(problem: StreamingUGW, cost: BilinearMatrix) -> ImplicitPlan:
    """Return the entropic transport plan (B, n, m), of mass 1, for a cost, the rhos and at least the problem's eps."""
    sides = problem.log_a, problem.log_b, problem.div_a, problem.div_b
    config = INITIALIZER_CONFIG
    sinkhorn = Sinkhorn(tol=config.streaming_transport_tol, max_iter=config.streaming_transport_max_iter)
    return sinkhorn(LinearProblem(cost, *sides, _start_eps(problem))).unit_plan


def _step_from_transport_plan(problem: StreamingUGW, x: Tensor, y: Tensor) -> ImplicitPlan:
    """Return the plan (B, n, m) one linearized UGW step from the transport plan for |x_i − y_j|².

    x: (B, n, k), y: (B, m, k).
    """
    cost = _squared_differences(x, y)
    a, b = problem.log_a.exp().double(), problem.log_b.exp().double()
    basis_product = (a[:, None, :] @ cost.left.double()).mT @ (b[:, None, :] @ cost.right.double())
    return _step_from_implicit_plan(problem, _transport_plan(problem, cost - _mean_cost(cost, a, b, basis_product)))


def _step_from_implicit_plan(problem: StreamingUGW, plan: ImplicitPlan) -> ImplicitPlan:
    """Return the plan (B, n, m) one linearized UGW step from a plan whose bases are not those of the problem."""
    right_product = (plan @ problem.right.to(plan.dtype)).double()
    return linear_step_plan(problem, plan, problem.left.double().mT @ right_product)


def _start_eps(problem: StreamingUGW) -> Tensor:
    """Return the eps (B,) of initial transport plans: the problem's, or 0.01 of the mean distortion if larger."""
    return torch.maximum(problem.eps, INITIALIZER_CONFIG.min_streaming_eps_share * problem.scale())


def _mean_cost(cost: BilinearMatrix, p1: Tensor, p2: Tensor, basis_product: Tensor) -> Tensor:
    """Return <cost, plan>, (B, 1, 1), for a plan of marginals p1 (B, n) and p2 (B, m).

    basis_product: leftᵀ·plan·right, (B, r, s), with the factors of the cost.
    """
    mean = (cost.row * p1).sum(1) + (cost.col * p2).sum(1) + (cost.core * basis_product).sum(dim=(1, 2))
    return mean[:, None, None]


def _squared_differences(x: Tensor, y: Tensor) -> BilinearMatrix:
    """Return Σ_k (x_ik − y_jk)², (B, n, m), as a BilinearMatrix with bases x and y. x: (B, n, k), y: (B, m, k)."""
    core = -2.0 * torch.eye(x.shape[2], dtype=torch.float64, device=x.device).expand(len(x), -1, -1)
    return BilinearMatrix(x.double().square().sum(2), y.double().square().sum(2), core, x, y)


def sample_problem(problem: StreamingUGW, n: int, m: int) -> StreamingUGW:
    """Return the problem on samples of n and m points, at even weight quantiles by mean distance, of equal weight."""
    x = _sample_space(problem.x, problem.log_a, problem.log_mass_a, n)
    y = _sample_space(problem.y, problem.log_b, problem.log_mass_b, m)
    return replace(problem, x=x, y=y, distortion_sum=None)


def _sample_space(space: Space, log_weights: Tensor, log_mass: Tensor, k: int) -> Space:
    """Return the batch of spaces of k points each, at even quantiles of the weights, with equal weights and all mass.

    Points are sorted by mean distance to all others. log_weights: (B, n); log_mass: (B,), log of the total mass.
    """
    batch = len(log_weights)
    metric: Any = space.metric
    index = quantile_centers(metric, log_weights.exp(), (k,) * batch)
    metric_of_items = replace(metric, points=metric.points.expand(batch, *metric.points.shape[-2:]))
    features, points = (None if r is None else _take_rows(r, index) for r in (space.feature_tensor, space.point_tensor))
    weights = (log_mass.exp() / k).to(space.dtype)[:, None].expand(batch, k)
    return Space(metric_of_items.subset(index), weights, features, points, (k,) * batch, space.numpy)


def _take_rows(rows: Tensor, index: Tensor) -> Tensor:
    """Return the rows (B, k, d) at the indices (B, k) of a matrix (n, d) or (B, n, d)."""
    return torch.take_along_dim(rows.expand(len(index), *rows.shape[-2:]), index[:, :, None], dim=1)
