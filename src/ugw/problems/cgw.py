"""The conic distance CGW without a radial grid, eq. (7.2).

    CGW = rho1 m(a)² + rho2 m(b)² − R max <w, G w>,   G = exp(−λ(|Dx − Dy|)/R),   R = rho1 + rho2,
    over w = P^(rho1/R) Q^(rho2/R) with P, Q ≥ 0, P 1 = a, Qᵀ 1 = b.

Every plan p, of any mass, has a lift w(p) = p (a/p1)^(rho1/R) (b/p2)^(rho2/R), eq. (7.3), so the code works with
plans of unit mass and weights of unit mass; the masses only scale the value. Given k = G w, the best w for <k, w> is
the lift of the unbalanced transport plan for the cost −2 log k and divergences 2·rho/R: the linear problem.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .._utils.pytree import take_fields
from ..geometry.space import Space
from ..kernels.dispatch import dot
from ..measures.cones import Cone
from ..measures.divergences import KL
from ..results.conic_result import ConicResult
from ..results.records import ConicTerms, Lift, SolverOutput
from .base import Problem, known
from .distortion.base import Distortion
from .linear import LinearProblem, LinearSolution

# A smaller overlap is none: no pair of pairs is close enough to match.
NOTHING = 1e-50
# Rounding errors of a product with the kernel add up to this many times those of one entry.
ROUNDING = 16.0


@dataclass(frozen=True, eq=False)
class Lifted:
    """A plan of a CGW problem with its lift and their overlap: the state that solvers iterate on.

    unit_plan: (B, n, m), the plan at unit mass; w: (B, n, m), its lift for weights of unit mass; local_cost: k = G w;
    overlap: (B,), <w, k>; last: unit plan before this one; crossed: (B,), <w, G w_last>; best, most: the unit plan with
    the largest overlap so far and that overlap; log_mass: (B,), log of the mass of the plan shown to users.
    """

    unit_plan: Tensor
    w: Tensor
    local_cost: Tensor | None  # None where only the plan is remembered
    overlap: Tensor
    last: Tensor
    crossed: Tensor
    best: Tensor
    most: Tensor
    log_mass: Tensor

    @property
    def plan(self) -> Tensor:
        """(B, n, m), with its mass."""
        return self.unit_plan * self.log_mass.exp().to(self.unit_plan.dtype)[:, None, None]

    def take(self, index: Tensor) -> Lifted:
        """Some items of the batch."""
        return take_fields(self, index)


@dataclass(frozen=True, eq=False)
class CGW(Problem):
    """Two spaces, rho for each (B,), the cone, and the sum over pairs of pairs for its kernel.

    div_a, div_b: divergences of the linear problem, 2·rho/R; eps: (B,), entropy of its steps, in its units.
    """

    x: Space
    y: Space
    rho_a: Tensor
    rho_b: Tensor
    cone: Cone
    distortion_sum: Distortion
    eps: Tensor
    batched: bool = True

    div_a: KL = field(init=False)
    div_b: KL = field(init=False)

    def __post_init__(self) -> None:
        self.weigh()
        total = self.rho_a + self.rho_b
        for side, rho in (("a", self.rho_a), ("b", self.rho_b)):
            object.__setattr__(self, f"div_{side}", KL(2.0 * rho / total).expand(self.batch, rho.device))

    def take(self, index: Tensor) -> CGW:
        """Some items of the batch; an item may be taken more than once."""
        rhos, distortion_sum = (self.rho_a[index], self.rho_b[index]), self.distortion_sum.take(index)
        return CGW(self.x.take(index), self.y.take(index), *rhos, self.cone, distortion_sum, self.eps[index])

    def result(self, tensors: SolverOutput) -> ConicResult:
        """What a solver found, as users see it."""
        return ConicResult(tensors, self.sizes, self.numpy)

    def cost_size(self) -> Tensor:
        """The geometric mean of the cost, −2 log of the mean kernel, and of the divergences' 2. Returns (B,).

        Sinkhorn is slow where its entropy is small against the divergences, however small the cost.
        """
        mean = self.distortion_sum.product_mean(self.log_a, self.log_b).clamp(1e-30, 1.0 - 1e-12)
        return (-4.0 * mean.log()).sqrt()

    # -- the state -----------------------------------------------------------------------------------------

    def state_of_plan(self, shape: Tensor) -> Lifted:
        """The state of a plan of unit mass, as a first one. shape: (B, n, m)."""
        state = self._lifted(shape, shape, None)
        return replace(state, crossed=state.overlap)

    def _lifted(self, shape: Tensor, last: Tensor, crossed: Tensor | None) -> Lifted:
        w = self.lift_of(shape)
        local = self.distortion_sum.apply(w).clamp(min=0.0)
        overlap = dot(w, local)
        log_mass = 0.5 * (self._log_unit + overlap.clamp(min=NOTHING).log())
        return Lifted(shape, w, local, overlap, last, overlap if crossed is None else crossed, shape, overlap, log_mass)

    def lift_of(self, shape: Tensor) -> Tensor:
        """w(p), for weights of unit mass. shape: (B, n, m), of any mass."""
        ratio_a = self.log_a - shape.sum(2).log()
        ratio_b = self.log_b - shape.sum(1).log()
        share = self._share.to(shape.dtype)[:, None]
        factor = _finite(share * ratio_a)[:, :, None] + _finite((1.0 - share) * ratio_b)[:, None, :]
        return shape * factor.exp()

    def linearize(self, state: Lifted) -> LinearProblem:
        """max <k, w> as unbalanced transport with the cost −2 log k, less a constant that only scales its plan."""
        k = known(state.local_cost)
        floor = torch.finfo(k.dtype).eps ** 2 * k.amax(dim=(1, 2), keepdim=True)
        cost = -2.0 * torch.maximum(k, floor.clamp(min=torch.finfo(k.dtype).tiny)).log()
        cost = cost - dot(cost, state.unit_plan).to(cost.dtype)[:, None, None]
        return LinearProblem(cost, self.log_a, self.log_b, self.div_a, self.div_b, self.eps)

    def accept(self, state: Lifted, solution: LinearSolution) -> Lifted:
        """The lift of the solution, or of an unregularized step from the better of the last two plans.

        Both are better than these two for k, so the bilinear value <w, G w_last> never falls.
        """
        k = known(state.local_cost)
        candidate = self.improved(solution.unit_plan, k)
        old = torch.where((state.crossed > state.overlap)[:, None, None], state.last, state.unit_plan)
        reached, bar = dot(k, self.lift_of(candidate)), torch.maximum(state.crossed, state.overlap)
        worse = ~(reached >= bar)
        if bool(worse.any()):
            other = self.improved(old, k)
            candidate = torch.where(worse[:, None, None], other, candidate)
            reached = torch.where(worse, dot(k, self.lift_of(other)), reached)
        new = self._lifted(candidate, state.unit_plan, reached)
        better = new.overlap >= state.most
        return replace(
            new,
            best=torch.where(better[:, None, None], new.unit_plan, state.best),
            most=torch.maximum(new.overlap, state.most),
        )

    def improved(self, shape: Tensor, k: Tensor) -> Tensor:
        """One unregularized step p ← k∘w(p): the row and column updates of P and Q at once. <k, w(p)> never falls.

        A plan that overlaps with nothing stays as it is.
        """
        better = k * self.lift_of(shape)
        mass = better.sum(dim=(1, 2), keepdim=True)
        return torch.where(mass > 0, better / mass, shape)

    def reported_state(self, state: Lifted) -> Lifted:
        """The state as it is reported."""
        return state

    def final(self, state: Lifted) -> Lifted:
        """The best state seen."""
        worse = state.overlap < state.most
        if not bool(worse.any()):
            return state
        return self._lifted(torch.where(worse[:, None, None], state.best, state.unit_plan), state.last, state.crossed)

    # -- the objective -------------------------------------------------------------------------------------

    def objective(self, p: Lifted, q: Lifted | None = None) -> ConicTerms:
        """The value at (w_p, w_q), q = p unless given. Terms of shape (B,)."""
        whole, other = (p, q or p) if p.local_cost is not None else (q or p, p)
        overlap = p.overlap if q is None else dot(other.w, known(whole.local_cost))
        apart = self.rho_a * (2.0 * self.log_mass_a).exp() + self.rho_b * (2.0 * self.log_mass_b).exp()
        return ConicTerms(apart=apart, overlap=-self._total * self._log_unit.exp() * overlap)

    def lift(self, state: Lifted) -> Lift:
        """P, Q and w with the masses of the weights, and what the kernel's error may add to the value."""
        p1, p2 = state.unit_plan.sum(2, keepdim=True), state.unit_plan.sum(1, keepdim=True)
        mass_a, mass_b = (m.exp().to(p1.dtype)[:, None, None] for m in (self.log_mass_a, self.log_mass_b))
        # A row without mass has all of P where w = 0.
        rows = torch.where(p1 > 0, state.unit_plan / p1, self.log_b.exp()[:, None, :])
        cols = torch.where(p2 > 0, state.unit_plan / p2, self.log_a.exp()[:, :, None])
        error, rounding = self.distortion_sum.error.expand(self.batch), ROUNDING * torch.finfo(p1.dtype).eps
        unit = self._log_unit.exp()
        return Lift(
            P=mass_a * self.log_a.exp()[:, :, None] * rows,
            Q=mass_b * self.log_b.exp()[:, None, :] * cols,
            w=(0.5 * self._log_unit).exp().to(p1.dtype)[:, None, None] * state.w,
            kernel_error=error,
            kernel_tolerance=self.distortion_sum.tolerance.expand(self.batch),
            value_slack=self._total * unit * (error + rounding) * state.w.sum(dim=(1, 2), dtype=torch.float64).square(),
            kernel_rank=self.distortion_sum.rank.expand(self.batch),
            is_metric=self.cone.is_metric(self.rho_a) & (self.rho_a == self.rho_b),
            distance_exponent=torch.full_like(self.rho_a, self.cone.distance_exponent),
            radius_power=torch.full_like(self.rho_a, self.cone.mass_exponent),
        )

    def marginal_error(self, state: Lifted) -> Tensor:
        """No marginal is hard. Returns (B,)."""
        return torch.zeros_like(self.eps)

    def is_collapsed(self, state: Lifted) -> Tensor:
        """(B,) bool: does nothing match, so that the value is that of all mass apart?"""
        return state.overlap <= NOTHING

    def potentials(self, *_: object) -> None:
        """None."""
        return None

    @property
    def _total(self) -> Tensor:
        return self.rho_a + self.rho_b

    @property
    def _share(self) -> Tensor:
        return self.rho_a / self._total

    @property
    def _log_unit(self) -> Tensor:
        """Log of the factor by which the masses scale <w, G w>."""
        return 2.0 * (self._share * self.log_mass_a + (1.0 - self._share) * self.log_mass_b)


def _finite(value: Tensor) -> Tensor:
    """0 where a point has no weight or no mass: its row or column of the plan is 0 anyway."""
    return torch.where(torch.isfinite(value), value, 0.0)
