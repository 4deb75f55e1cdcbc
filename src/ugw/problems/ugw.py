"""Unbalanced Gromov–Wasserstein, plain and fused, with the loss λ(t) = t².

    F(p, q) = Σ (Dx_ii' − Dy_jj')² p_ij q_i'j' + rho1 KL(p1⊗q1 | a⊗a) + rho2 KL(p2⊗q2 | b⊗b)
              + eps KL(p⊗q | (a⊗b)⊗²) + (alpha/2)(<M, p> + <M, q>)

This is eq. (1.2). The code works with *shapes*, plans divided by their mass. Dividing eq. (2.1) by the
mass of q leaves rho1, rho2 and eps as they are, and the scalars of its cost only scale its solution. So the
shape of the next plan depends on the shape of the last one alone, whatever the masses of a, b and the plan, and
the best mass of a shape has a closed form. Nothing overflows with the masses; a mass may underflow, harmlessly.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .._utils.cuda_graphs.mode import looking
from .._utils.precision import careful, rough
from .._utils.size_class import size_class
from ..geometry.space import Space
from ..kernels import exact_ot as exact
from ..kernels.dispatch import dot, neg_entropy
from ..measures.divergences import KL, kl_terms
from ..results.records import SolverOutput, Terms
from ..results.result import Result
from .base import Cheaper, Problem, known, take_cost
from .distortion.base import Distortion
from .distortion.squares import SquaredDistortion
from .linear import LinearProblem, LinearSolution
from .ugw_state import PenaltyWeights, PlanState, lambert, mean_log, product_kl

# Plans of so many entries, on CUDA, know their cost by how they changed, as long as they did by this share in all:
# TF32, 1e-3 off at most, then adds an error of 1e-6 to the cost and of 1e-8 to the value, less than float32 does.
CHANGING, DRIFT = 2**25, 2.5e-3
# A plan is a product of its marginals up to so many times the rounding of an entry.
SAME = 32.0
# Below this share of sqrt(m(a) m(b)), as a logarithm, a plan transports nothing worth the name.
LOG_NOTHING = -30.0


@dataclass(frozen=True, eq=False)
class UGW(Problem):
    """Two spaces, a divergence for each marginal, eps (B,) ≥ 0, and for the fused problem alpha (B,) and M.

    Spaces without a batch dimension are shared by all B items. cost: (n, m) or (B, n, m), or None; distortion_sum: the
    sum over pairs of pairs for the loss, that of t² if None.
    """

    x: Space
    y: Space
    div_a: KL
    div_b: KL
    eps: Tensor
    alpha: Tensor
    cost: Any = None
    batched: bool = True  # False: the one item of a problem without a batch
    distortion_sum: Distortion | None = None
    measured: Tensor | None = None  # the size of the cost, if it is known from more exact numbers
    by_changes: bool = False  # is the local cost of a plan made from that of the plan before, and from the change?

    prices: PenaltyWeights = field(init=False)

    def __post_init__(self) -> None:
        self.weigh()
        object.__setattr__(self, "prices", PenaltyWeights.of(self))
        if self.distortion_sum is None:
            object.__setattr__(self, "distortion_sum", SquaredDistortion(self.x.metric, self.y.metric))

    def take(self, index: Tensor) -> UGW:
        """Some items of the batch; an item may be taken more than once."""
        sums = self._sum
        measured = None if self.measured is None else self.measured[index]
        others = {"alpha": self.alpha[index], "cost": take_cost(self.cost, index), "measured": measured}
        if not isinstance(sums, SquaredDistortion) or sums.dx is not self.x.metric or sums.dy is not self.y.metric:
            return self.taken(index, distortion_sum=sums.take(index), **others)
        # The metrics of the spaces are taken anyway: not once more.
        return self.taken(index, distortion_sum=None, **others)

    def on(self, x: Space, y: Space, cost: Tensor | None, measured: Tensor | None = None) -> UGW:
        """The same problem on other spaces, whose distances are no longer. measured: the size of its cost, if known."""
        return replace(
            self, x=x, y=y, cost=cost, distortion_sum=self._sum.with_metrics(x.metric, y.metric), measured=measured
        )

    def result(self, tensors: SolverOutput) -> Result:
        """What a solver found, as users see it."""
        return Result(tensors, self.sizes, self.numpy)

    def cheaper(self) -> Cheaper | None:
        """In float32 instead of float64, or on CUDA with products in TF32 instead of float32."""
        sizes = size_class(*self.largest)
        if not isinstance(self.distortion_sum, SquaredDistortion) or not sizes.has_low_precision_phase:
            return None
        if self.x.dtype == torch.float64:
            cost = self.cost if self.cost is None else self.cost.to(torch.float32)
            short = self.on(self.x.to(torch.float32), self.y.to(torch.float32), cost, self.scale())
            return Cheaper(short, tol=1e-5, max_iter=200, meanwhile=nullcontext, then=self)
        if self.x.device.type == "cuda" and sizes.has_tf32_phase:
            then = replace(self, by_changes=True) if math.prod(self.largest) * self.batch >= CHANGING else self
            return Cheaper(self, tol=5e-4, max_iter=40, meanwhile=rough, then=then)
        return None

    @property
    def recordable(self) -> bool:  # type: ignore[override]
        """Are a step's operations the same whatever the numbers are?"""
        return self.unseeing and not self.by_changes

    @property
    def unseeing(self) -> bool:  # type: ignore[override]
        """The same, but for how far products of changes have come."""
        return isinstance(self.distortion_sum, SquaredDistortion)

    @property
    def linear_local(self) -> bool:  # type: ignore[override]
        """Is the local cost of a mixture of plans the mixture of theirs? Not where it is infinite."""
        return not self.infinite

    @property
    def infinite(self) -> bool:
        """May the loss be infinite? Then a plan keeps its zeros: mass anywhere else may cost that."""
        return self._sum.may_be_infinite

    def mixed(self, shape: Any, share: Tensor) -> Any:
        """A plan of unit mass with a share (B,) of the product plan, where the loss is finite. shape: (B, n, m)."""
        return shape if self.infinite else super().mixed(shape, share)

    def scale(self) -> Tensor:
        """Mean distortion of the product plan at unit mass: the size of the cost.

        Where it vanishes (single points, equal constant distances) the mean square distance, or 1. Returns (B,).
        """
        if self.measured is not None:
            return self.measured
        return self._measured() if torch.is_grad_enabled() else self._scale

    @cached_property
    def _scale(self) -> Tensor:
        with careful():  # whoever asks first
            return self._measured()

    def _measured(self) -> Tensor:
        sums = SquaredDistortion(self.x.metric, self.y.metric)
        mean, squares = sums.product_mean_and_scale(self.log_a, self.log_b)
        if not isinstance(self.distortion_sum, SquaredDistortion):
            mean = self._sum.product_mean(self.log_a, self.log_b)
        scale = torch.where(torch.isfinite(mean) & (mean > 0), mean, squares)
        return torch.where(scale > 0, scale, 1.0)

    def cost_size(self) -> Tensor:
        """The mean distortion, and the mean of the linear cost beside it. Returns (B,)."""
        if self.cost is None:
            return self.scale()
        return self.scale() + 0.5 * self.alpha * (-self._log_unit).exp() * dot(self.cost.abs(), self.product)

    # -- the state -----------------------------------------------------------------------------------------

    def state_of_plan(self, shape: Any) -> PlanState:
        """The state of a plan of unit mass, given the best total mass that it can have. shape: (B, n, m)."""
        return self.coupled(shape, self._sum.apply(shape))

    def begin(self, shape: Any) -> PlanState:
        """The state of a first plan of unit mass: that of a product takes no product of matrices. shape: (B, n, m)."""
        if not isinstance(self.distortion_sum, SquaredDistortion) or not isinstance(shape, Tensor):
            return self.state_of_plan(shape)
        p1, p2 = shape.sum(2), shape.sum(1)
        off = torch.baddbmm(shape, p1[:, :, None], p2[:, None, :], alpha=-1.0).abs_()
        far = off.sub_(shape, alpha=SAME * torch.finfo(shape.dtype).eps).amax(dim=(1, 2)) > 0
        if looking() and bool(far.all()):
            return self.state_of_plan(shape)
        local = self.distortion_sum.apply_to_product_plan(p1, p2)
        if not looking() or bool(far.any()):
            local = torch.where(far[:, None, None], self._sum.apply(shape), local)
        return self.coupled(shape, local)

    def coupled(self, shape: Any, local: Any) -> PlanState:
        """The state of a plan of unit mass whose local cost is known."""
        n, marginals = self.x.n, torch.cat([shape.sum(2), shape.sum(1)], dim=1).double()
        # A plan of float32 numbers has unit mass but for rounding, which the entropy of a plan would multiply.
        mass = marginals[:, :n].sum(1)
        marginals = marginals / mass[:, None]
        terms = kl_terms(marginals, self.logs.exp())
        kls = terms[:, :n].sum(1), terms[:, n:].sum(1), self._kl_plan(shape, mass, marginals)
        scalars = {
            "distortion": self._paid(local, shape) / mass.square(),
            "kls": torch.stack(kls, dim=1),
            "linear": torch.zeros_like(self.eps) if self.cost is None else self._paid(self.cost, shape) / mass,
        }
        drift = torch.zeros_like(mass) if self.by_changes else None
        return PlanState(shape, local, self._log_mass(**scalars), **scalars, drift=drift)

    @property
    def _sum(self) -> Distortion:
        if self.distortion_sum is None:
            raise RuntimeError("__post_init__ sets the distortion sum")
        return self.distortion_sum

    def linearize(self, state: PlanState) -> LinearProblem:
        """∂F(·, q)/∂p, eq. (2.2), divided by m(q): the next shape is the shape of this problem's solution.

        A constant in the cost scales the solution and no more. The one subtracted here stands for the three
        scalars of the paper's cost: it keeps the solution's mass within n·m of 1, mid-range for the inner solver.
        """
        cost = known(state.local_cost)
        if self.cost is not None:
            cost = cost + self._linear_share(state).to(cost.dtype)[:, None, None] * self.cost
        cost = cost - self._constant(state).to(cost.dtype)[:, None, None]
        if self.infinite:  # mass anywhere else may cost that, at the next step if not at this one
            cost = torch.where(state.unit_plan > 0, cost, torch.inf)
        return LinearProblem(cost, self.log_a, self.log_b, self.div_a, self.div_b, self.eps)

    def accept(self, state: PlanState, solution: LinearSolution) -> PlanState:
        """The state after a linear step: its shape, rescaled to the best mass.

        Of a plan that changed little the change alone may be multiplied in TF32, whose error is then as little.
        """
        shape = solution.unit_plan
        drift = None if state.drift is None else state.drift + self.apart(shape, state.unit_plan)
        if drift is None or bool((drift > DRIFT).any()):
            return self.state_of_plan(shape)
        with rough():
            local = known(state.local_cost) + self._sum.apply(shape - state.unit_plan)
        return replace(self.coupled(shape, local), drift=drift)

    def along(self, state: PlanState, direction: Tensor) -> tuple[Tensor, Tensor]:
        """(s, c) with F(p + t·m·d) = F(p) + s·t + c·t², for d (B, n, m) that keeps hard marginals, eps = 0."""
        mass = state.log_mass.exp()
        local = self._sum.apply(direction)
        slope = 2.0 * mass**2 * dot(known(state.local_cost), direction)
        if self.cost is not None:
            slope = slope + self.alpha * mass * dot(self.cost, direction)
        return slope, mass**2 * dot(local, direction)

    def vertex(self, state: PlanState) -> Tensor:
        """The plan of unit mass with both marginals that the gradient at a state likes best. Returns (B, n, m)."""
        return exact.optimal_plan(self.linearize(state).cost, self.log_a.exp(), self.log_b.exp())

    def feasible(self, plan: Tensor) -> Tensor:
        """The plan (B, n, m) at unit mass, moved to both marginals."""
        return exact.round_to_marginals(self.unit(plan), self.log_a.exp(), self.log_b.exp())

    def stake(self) -> Tensor:
        """The objective of the product plan, both marginals hard. Returns (B,)."""
        return self.scale() * (2.0 * self.log_mass_a).exp()

    def resolution(self) -> Tensor:
        """A gap as small as this, (B,) in units of the stake, may be rounding alone."""
        return torch.full_like(self.eps, 64.0 * torch.finfo(self.x.dtype).eps)

    def _kl_plan(self, shape: Any, mass: Tensor, marginals: Tensor) -> Tensor:
        """Σ p log(p / a⊗b) for p = shape / mass, (B,), with marginals (B, n + m). Returns (B,)."""
        return neg_entropy(shape) / mass - mass.log() - mean_log(marginals, self.logs)

    def _paid(self, local: Any, shape: Any) -> Tensor:
        """<local, shape>, where an infinite cost counts only if the plan has mass there. Returns (B,)."""
        return dot(torch.where(shape > 0, local, 0.0) if self.infinite else local, shape)

    def _linear_share(self, state: PlanState) -> Tensor:
        """alpha / 2m: the weight of the linear cost once the problem is divided by the mass."""
        return 0.5 * self.alpha * (-torch.maximum(state.log_mass, self._log_unit + LOG_NOTHING)).exp()

    def _constant(self, state: PlanState) -> Tensor:
        """<cost, shape> of a state, at unit mass."""
        return state.distortion if self.cost is None else state.distortion + self._linear_share(state) * state.linear

    def potentials(
        self, q: PlanState, p: PlanState, linear: tuple[Tensor, Tensor], log_mass: Tensor, entropy: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """(f, g) of the problem as the paper writes it, whose cost has the scalars and the mass of q:

            p = a⊗b · exp((f ⊕ g − cost(q)) / (m(q) eps)),  and  p1 = a·exp(−f / (m(q) rho1)) where rho1 is finite.

        `linear`, `log_mass`, `entropy`: potentials and log mass of the linear problem's solution, and its eps,
        which a proximal term may have raised; then this holds where p = q. None at eps = 0.
        """
        if not bool((self.eps > 0).any()):
            return None
        mass, log_ma, log_mb = q.log_mass.exp(), self.log_mass_a, self.log_mass_b
        # A rho so large that eps/rho is lost in rounding is as good as hard.
        most = entropy / (10.0 * torch.finfo(p.unit_plan.dtype).eps)
        hard_a, hard_b = self.div_a.rho > most, self.div_b.rho > most
        rho_a, rho_b = torch.where(hard_a, 0.0, self.div_a.rho), torch.where(hard_b, 0.0, self.div_b.rho)
        # The constant of f where rho1 is finite, that of g likewise, and the sum of both, each over m(q).
        of_f = -rho_a * (p.log_mass - log_mass - log_ma)
        of_g = -rho_b * (p.log_mass - log_mass - log_mb)
        of_both = (
            self._constant(q)
            + rho_a * (q.kls[:, 0] + q.log_mass - log_ma)
            + rho_b * (q.kls[:, 1] + q.log_mass - log_mb)
            + self.eps * (q.kls[:, 2] + q.log_mass + p.log_mass - 2.0 * (log_ma + log_mb))
            - entropy * log_mass
        )
        of_f = torch.where(hard_a, torch.where(hard_b, 0.5 * of_both, of_both - of_g), of_f)
        made = []
        for potential, constant in zip(linear, (of_f, of_both - of_f), strict=True):
            full = mass[:, None] * (potential.double() + constant[:, None])
            made.append(torch.where(self.eps[:, None] > 0, full, torch.nan).to(potential.dtype))
        return made[0], made[1]

    def lift(self, state: PlanState) -> None:
        """No lift to a cone."""
        return None

    # -- the objective -------------------------------------------------------------------------------------

    def objective(self, p: PlanState, q: PlanState | None = None) -> Terms:
        """F(p, q), term by term; q = p unless given. A hard side contributes 0. Terms of shape (B,)."""
        same = q is None
        q = p if q is None else q
        log_mass = p.log_mass + q.log_mass
        distortion = p.distortion if same else self._paid(known(q.local_cost), p.unit_plan)
        linear = torch.zeros_like(log_mass) if self.cost is None else self._linear_part(p, q)
        # All three at once: on a GPU so small an operation takes as long as a larger one.
        paid = self.prices.each * product_kl(p.kls + q.kls, log_mass[:, None], self.prices.masses)
        return Terms(log_mass.exp() * distortion, linear, *paid.unbind(1))

    def _linear_part(self, p: PlanState, q: PlanState) -> Tensor:
        """(alpha/2)(<M, p> + <M, q>)."""
        return 0.5 * self.alpha * (p.log_mass.exp() * p.linear + q.log_mass.exp() * q.linear)

    def is_collapsed(self, state: PlanState) -> Tensor:
        """(B,) bool: is the best mass of this shape 0, or too small to call it a plan?"""
        light = state.log_mass < self._log_unit + LOG_NOTHING
        return light if self.cost is None else light | self._outweighed(state)

    def reported_state(self, state: PlanState) -> PlanState:
        """The state as it is reported: no mass to speak of where the linear cost outweighs any plan of its shape."""
        if self.cost is None:
            return state
        none = self._log_unit + 10.0 * LOG_NOTHING
        return state.weighing(torch.where(self._outweighed(state), none, state.log_mass))

    @property
    def _log_unit(self) -> Tensor:
        return 0.5 * (self.log_mass_a + self.log_mass_b)

    def _log_mass(self, distortion: Tensor, kls: Tensor, linear: Tensor) -> Tensor:
        """Log of the mass m that minimizes F(m·shape, m·shape), eq. (3.3): with R = rho1 + rho2 + eps,

            F = m² (B − R + 2 R log m) + m·L + C   ⟹   log m = −B/2R + W(−L/4R e^{B/2R}),  L = alpha <M, shape>.

        Where the Lambert function W has no real value the linear cost outweighs any plan of this shape: the
        branch point W = −1 stands in while a solver looks for a better one. A hard side fixes the mass.
        """
        log_mass = self._log_mass_alone(distortion, kls)
        if self.cost is not None:
            log_mass = log_mass + lambert(-self._pull(linear, log_mass))
        log_mass = torch.where(self.div_b.is_hard, self.log_mass_b, log_mass)
        return torch.where(self.div_a.is_hard, self.log_mass_a, log_mass)

    def _log_mass_alone(self, distortion: Tensor, kls: Tensor) -> Tensor:
        """−B/2R, eq. (3.1): the best log mass without the linear cost and without hard sides."""
        return torch.add(self.prices.pull(kls), distortion, alpha=0.5).neg() / self.prices.total

    def _pull(self, linear: Tensor, log_mass: Tensor) -> Tensor:
        """L / 4R m for a mass m: above 1/e the linear cost wins."""
        return self.alpha * linear / (4.0 * self.prices.total) * (-log_mass).clamp(max=700.0).exp()

    def _outweighed(self, state: PlanState) -> Tensor:
        """(B,) bool: does the linear cost leave no positive mass where F is stationary?"""
        alone = self._log_mass_alone(state.distortion, state.kls)
        free = ~(self.div_a.is_hard | self.div_b.is_hard)
        return free & (self._pull(state.linear, alone) > 1.0 / math.e)
