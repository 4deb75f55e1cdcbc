"""First plans that are never stored: from a few points to all of them, level by level.

The cost of a plan is known from a few moments of it, so what was found on a sample of the points says what each
of all the points costs, and one sum over the sample gives the potentials. Few steps are left on the finest level.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .._utils.size_class import size_class
from ..geometry.bilinear_matrix import BilinearMatrix
from ..geometry.implicit_plan import ImplicitPlan, StreamingKernel
from ..geometry.space import Space
from ..problems.linear import LinearProblem
from ..problems.ugw import UGW
from ..problems.ugw_streamed import Moments, StreamingUGW
from ..solvers.alternating import AlternateMin
from ..solvers.sinkhorn import Sinkhorn
from . import plans as starts
from .coarse import start as coarse_start
from .representatives import eccentricity, quantiles

# What is solved on a level before the next.
LEVEL = AlternateMin(tol=1e-4, max_iter=30)
# A start need not be sharper than this share of the cost's size.
BLUR = 1e-2


def start(problem: StreamingUGW, name: str) -> ImplicitPlan:
    """The plan to start from, by its name."""
    return STARTS[name](problem)


def product(problem: StreamingUGW) -> ImplicitPlan:
    """a⊗b."""
    return problem.product


def flb(problem: StreamingUGW) -> ImplicitPlan:
    """First lower bound: transport between eccentricities."""
    sides = (problem.dx, problem.log_a), (problem.dy, problem.log_b)
    gaps = _gaps(*(eccentricity(metric, log_weights.exp())[:, :, None] for metric, log_weights in sides))
    return _rebased(problem, _transported(problem, _centered(problem, gaps)))


def linear(problem: StreamingUGW) -> ImplicitPlan:
    """Transport of the points themselves, cost |x_i − y_j|²."""
    x, y = problem.x.point_tensor, problem.y.point_tensor
    if x is None or y is None:
        raise RuntimeError("linear starts need points: checked at the border")
    gaps = _gaps(*(p.detach().expand(problem.batch, *p.shape[-2:]) for p in (x, y)))
    return _rebased(problem, _transported(problem, _centered(problem, gaps)))


def random(problem: StreamingUGW) -> ImplicitPlan:
    """exp(−Σ_k (Dx[:, i_k] − Dy[:, j_k])² / width) for a few anchor pairs, then transport for its cost."""
    near_x, near_y, width = starts.anchors(problem, 1)
    kernel = StreamingKernel.from_cost(_gaps(near_x, near_y), problem.log_a, problem.log_b, width)
    # Potentials of 0 on one side; on the other those that give each row its weight.
    _, plan, _ = kernel.plan(torch.zeros_like(problem.log_b), torch.ones_like(problem.log_b[:, :1]))
    return _rebased(problem, plan)


def coarse(problem: StreamingUGW) -> ImplicitPlan:
    """The plan found on a sample of the points, carried to all of them."""
    sizes = size_class(*problem.largest).streaming_sample
    if sizes is None:
        twin = stored(problem)
        return given(problem, LEVEL(twin, coarse_start(twin)).tensors.plan)
    sample = _sample(problem, *sizes)
    first = coarse(sample)
    found = first if size_class(*sizes).streaming_sample is None else LEVEL(sample, first).tensors.plan
    return _carried(found, sample, problem)


STARTS = {"product": product, "flb": flb, "linear": linear, "random": random} | dict.fromkeys(
    ("auto", "best", "coarse"), coarse
)


def given(problem: StreamingUGW, plan: Any) -> ImplicitPlan:
    """A plan (B, n, m) of any mass: itself if it is streamed over the same bases, else one linear step from it."""
    if isinstance(plan, ImplicitPlan):
        bases = (plan.log_plan.left, problem.left), (plan.log_plan.right, problem.right)
        same = all(one.shape == own.shape and torch.equal(one, own) for one, own in bases)
        return plan if same else _rebased(problem, problem.unit(plan))
    return lifted(problem, plan / plan.sum(dim=(1, 2), dtype=torch.float64)[:, None, None])


def lifted(problem: StreamingUGW, plan: Any, inner: Tensor | None = None) -> ImplicitPlan:
    """The plan of the linear problem that a plan of unit mass leads to.

    inner: left basisᵀ · plan · right basis, for a plan that is not stored.
    """
    if inner is None:
        inner = problem.left.double().mT @ plan.double() @ problem.right.double()
    cost = Moments.of(problem, plan, inner).cost(problem)
    return _transported(problem, cost - _under(cost, plan.sum(2).double(), plan.sum(1).double(), inner))


def stored(problem: StreamingUGW) -> UGW:
    """The same problem with stored plans."""
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


def _carried(plan: ImplicitPlan, sample: StreamingUGW, problem: StreamingUGW) -> ImplicitPlan:
    """A plan between samples, on all points: its cost there, and sums over the sample of the other side.

    Its marginals and products are those sums: no pass over all pairs is made.
    """
    plan = sample.unit(plan)
    moments, entropy = Moments.of(sample, plan), _entropy(problem)
    # Potentials depend on a constant in the cost: that of a step, see `UGW.linearize`.
    constant = _under(moments.cost(sample), plan.sum(2).double(), plan.sum(1).double(), plan.basis_product)
    damping_a, damping_b = (d.damping(entropy).to(plan.dtype)[:, None] for d in (problem.div_a, problem.div_b))
    eps = entropy.to(plan.dtype)[:, None]

    def kernel(between: StreamingUGW) -> StreamingKernel:
        return StreamingKernel.from_cost(moments.cost(between) - constant, between.log_a, between.log_b, eps[:, 0])

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


def _transported(problem: StreamingUGW, cost: BilinearMatrix) -> ImplicitPlan:
    """The plan of entropic transport for a cost, over the bases of the cost."""
    sides = problem.log_a, problem.log_b, problem.div_a, problem.div_b
    return Sinkhorn(tol=1e-3, max_iter=40)(LinearProblem(cost, *sides, _entropy(problem))).unit_plan


def _centered(problem: StreamingUGW, cost: BilinearMatrix) -> BilinearMatrix:
    """A cost without its mean under the product plan."""
    a, b = problem.log_a.exp().double(), problem.log_b.exp().double()
    inner = (a[:, None, :] @ cost.left.double()).mT @ (b[:, None, :] @ cost.right.double())
    return cost - _under(cost, a, b, inner)


def _rebased(problem: StreamingUGW, plan: ImplicitPlan) -> ImplicitPlan:
    """One linear step from a plan over other bases."""
    moved = (plan @ problem.right.to(plan.dtype)).double()
    return lifted(problem, plan, problem.left.double().mT @ moved)


def _entropy(problem: StreamingUGW) -> Tensor:
    return torch.maximum(problem.eps, BLUR * problem.scale())


def _under(cost: BilinearMatrix, p1: Tensor, p2: Tensor, inner: Tensor) -> Tensor:
    """The mean (B, 1, 1) of a cost under a plan of unit mass with these marginals and leftᵀ · plan · right."""
    both = (cost.row * p1).sum(1) + (cost.col * p2).sum(1) + (cost.core * inner).sum(dim=(1, 2))
    return both[:, None, None]


def _gaps(x: Tensor, y: Tensor) -> BilinearMatrix:
    """Σ_k (x_ik − y_jk)² as a bilinear matrix. x: (B, n, k), y: (B, m, k)."""
    core = -2.0 * torch.eye(x.shape[2], dtype=torch.float64, device=x.device).expand(len(x), -1, -1)
    return BilinearMatrix(x.double().square().sum(2), y.double().square().sum(2), core, x, y)


def _sample(problem: StreamingUGW, n: int, m: int) -> StreamingUGW:
    """The problem on n and m points, each drawn in proportion to its weight and given an equal one."""
    x = _drawn(problem.x, problem.log_a, problem.log_mass_a, n)
    y = _drawn(problem.y, problem.log_b, problem.log_mass_b, m)
    return replace(problem, x=x, y=y, distortion_sum=None)


def _drawn(space: Space, log_weights: Tensor, log_mass: Tensor, k: int) -> Space:
    """k points at even steps of the weight, with equal weights."""
    batch = len(log_weights)
    metric: Any = space.metric
    index = quantiles(metric, log_weights.exp(), k)
    own = replace(metric, points=metric.points.expand(batch, *metric.points.shape[-2:]))
    features, points = (None if r is None else _gathered(r, index) for r in (space.feature_tensor, space.point_tensor))
    weights = (log_mass.exp() / k).to(space.dtype)[:, None].expand(batch, k)
    return Space(own.subset(index), weights, features, points, (k,) * batch, space.numpy)


def _gathered(rows: Tensor, index: Tensor) -> Tensor:
    """Some rows of (n, d) or (B, n, d). index: (B, k). Returns (B, k, d)."""
    return torch.take_along_dim(rows.expand(len(index), *rows.shape[-2:]), index[:, :, None], dim=1)
