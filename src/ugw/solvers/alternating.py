"""Alternating minimization: linearize, solve the linear problem, take its plan, repeat."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.checks import check_fractions, check_tolerance
from .._utils.cuda_graphs.steps import BUSY, Replay, Step
from .._utils.pytree import take_fields, where
from ..errors import InputError
from ..kernels.config import KERNEL_CONFIG
from ..problems.base import Problem
from ..results.records import SolverOutput, Status
from ..results.result import Result
from . import loop
from .base import Solver
from .extrapolation import BEGIN, Trail
from .monitor import Monitor
from .sinkhorn import Sinkhorn
from .stopping import FORCING, TRUSTED, Context, entered

# An item is judged not to meet (ALTERNATING) when every second plan agrees to this share of the tolerance.
MEETING = 1e-3
KEEPS_UP = 0.01  # an inner solver keeps up if its residual is below this
# A proximal step keeps zeros, and an entry close to zero takes long to grow. So the first of them stays near a plan
# with this share of the product plan, and so does one after a plan has settled, until it settles no better.
MIXED = 1e-3
GROWTH = 1e-4  # the gradient may be this far below 0 somewhere, as a share of the cost's size
BETTER = 1e-7  # a plan got better if its objective fell by this share
# A plan has nearly settled within so many times the limit; then the inner iterations grow up to so many.
# A rough tolerance is not worth them.
NEAR, MOST_ITERATIONS, ROUGH = 10.0, 3200, 1e-5
SHORT = 30  # a run of so few steps is over before less exact numbers pay
FIRST_PATIENCE = 4.0  # the first linear problem has no potentials to start from
TOGETHER = 6  # steps that are made on a GPU without a look, at most


@dataclass(frozen=True, kw_only=True)
class AlternateMin(Solver):
    """Solve a problem by linear steps.

    tol: relative L1 change of the plan from one step to the next, and the inner residual, at which to stop;
    proximal: (first, last, factor). An eps below the share `last` of the cost's size is too sharp for an inner
    solver: there the steps have more entropy, as a proximal term against the last plan, which leaves the solution
    as it is. It falls from the share `first` by the factor at each step;
    anneal: factor in (0, 1) by which eps itself falls each step, from a third of the mean distortion to its value;
    progress: show a bar; callback: called after each step, True stops the run.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.random.default_rng(0).random((20, 2)))
    >>> ugw.solve(x, x, eps=1e-3, solver=ugw.AlternateMin(tol=1e-8, max_iter=500)).converged
    True
    """

    tol: float = 1e-6
    max_iter: int = 1000
    inner: Sinkhorn = field(default_factory=Sinkhorn)
    proximal: tuple[float, float, float] = (0.3, 0.01, 0.95)
    anneal: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fractions("AlternateMin proximal", self.proximal, ("first", "last", "factor"))
        if self.anneal is not None:
            check_tolerance("AlternateMin anneal", self.anneal)
        if not isinstance(self.inner, Sinkhorn):
            raise InputError(f"AlternateMin inner must be a Sinkhorn, got {type(self.inner).__name__}")

    @torch.no_grad()
    def run(self, problem: Problem, init: Any, watch: Monitor | None) -> Result:
        """Solve from the plan `init` (B, n, m), of any mass."""
        context, outcome = self._ran(problem, init, watch)
        return context.problem.result(_finish(context, outcome))

    @torch.no_grad()
    def end(self, problem: Problem, init: Any) -> Any:
        """The last state alone of a run from the plan `init`, watched by nobody."""
        context, outcome = self._ran(problem, init, None, lean=True)
        return context.problem.final(outcome.state.now)

    def _ran(
        self, problem: Problem, init: Any, watch: Monitor | None, *, lean: bool = False
    ) -> tuple[Context, loop.Outcome]:
        shape, warm, first = problem.unit(init), None, None
        cheaper = problem.cheaper() if self.max_iter > SHORT else None
        if cheaper is not None:
            options = replace(self, tol=max(self.tol, cheaper.tol), max_iter=min(self.max_iter, cheaper.max_iter))
            with cheaper.meanwhile():
                now, context = entered(cheaper.problem, shape.to(cheaper.problem.x.dtype), options, lean=lean)
                if bool((context.noise <= TRUSTED / 10.0).all()):
                    first = _iterated(context, _State.start(now, context), options.max_iter, watch)
            if first is not None:
                problem = cheaper.then
                shape, warm = problem.unit(first.state.now.unit_plan.to(shape.dtype)), first.state
        now, context = entered(problem, shape, self, entropy=None if warm is None else warm.eps, lean=lean)
        stopped = first is not None and bool((first.status == Status.STOPPED).any())
        outcome = _iterated(context, _State.start(now, context, warm), _left(self, first), None if stopped else watch)
        return context, outcome if first is None else first.then(outcome)


def _iterated(context: Context, state: _State, most: int, watch: Monitor | None) -> loop.Outcome:
    """At most so many steps."""
    together = _together(context, state, most)
    step = Replay(STEPS[together], _asks)
    # To drop retired items copies all others: not for each of them.
    rules = loop.Rules(
        max_iter=most // together, compact_at=0.8, held=step.sizes(context, state), history=not context.lean
    )
    outcome = loop.iterate(step, context, state, rules, watch)
    return replace(outcome, state=step.released(outcome.state), n_iter=together * outcome.n_iter)


def _together(context: Context, state: _State, most: int) -> int:
    """How many steps to make between two looks: on a GPU that waits for each, several if nobody else looks.

    A batch that keeps it busy looks after each step, so what has settled early may end elsewhere than alone, a little.
    """
    shape = state.now.unit_plan
    if not context.lean or not (isinstance(shape, Tensor) and shape.is_cuda) or shape.numel() > BUSY:
        return 1
    return max(count for count in STEPS if most % count == 0)


def _left(options: AlternateMin, first: loop.Outcome | None) -> int:
    """Steps that are left after those with less exact numbers: one at least, none more if a callback stopped them."""
    if first is None:
        return options.max_iter
    return 1 if bool((first.status == Status.STOPPED).any()) else max(1, options.max_iter - int(first.n_iter.max()))


@dataclass(frozen=True, eq=False)
class _State:
    """The last plan, the one before it (without its local cost), potentials, and how far the last step went."""

    now: Any
    given: Any  # the local cost of the next step: that of the last plan, or an extrapolated one
    guessed: Tensor  # (B,) bool: is it?
    trail: Trail | None
    objective: Tensor
    before: Any  # None in a lean run
    f: Tensor
    g: Tensor
    log_mass: Tensor  # of the linear problem's solution, before rescaling
    annealed: Tensor  # eps of the next step's problem, above the problem's own while annealing
    eps: Tensor  # entropy of the next linear problem; beyond `annealed` it is proximal
    entropy: Tensor  # of the last one
    change: Tensor
    residual: Tensor
    patience: Tensor  # multiplies the inner iterations of the next step
    repeats: Tensor  # steps in a row after which every second plan was the same
    settled: Tensor  # objective of the plan that settled last by proximal steps
    doubtful: Tensor  # 1 where that plan is to be disturbed, to see whether it settles there again

    @classmethod
    def start(cls, now: Any, context: Context, warm: _State | None = None) -> _State:
        problem, eps = context.problem, context.start
        one, zero = torch.ones_like(eps), torch.zeros_like(eps)
        f, g = problem.first_potentials(now.unit_plan) if warm is None else (warm.f, warm.g)
        annealed = problem.eps if context.options.anneal is None else torch.maximum(problem.eps, context.most)
        annealed = annealed if warm is None else warm.annealed
        first = torch.maximum(eps, annealed)
        return cls(
            now=now,
            given=now.local_cost if context.free is not None else None,
            guessed=zero > 0,
            trail=Trail.start(now.local_cost, eps) if context.free is not None else None,
            objective=torch.inf * one,
            before=None if context.lean else replace(now, local_cost=None),
            f=f.to(now.unit_plan.dtype),
            g=g.to(now.unit_plan.dtype),
            log_mass=one,
            annealed=annealed,
            eps=first,
            entropy=first,
            # The first linear problem is solved well, as the start may be a solution, if that is not too dear.
            change=torch.full_like(eps, problem.first_change) if warm is None else warm.change,
            residual=one,
            patience=one,
            repeats=zero,
            settled=torch.inf * one,
            doubtful=one,  # a start may have zeros
        )

    @property
    def batch(self) -> int:
        return self.eps.shape[0]

    @property
    def device(self) -> torch.device:
        return self.eps.device

    def take(self, index: Tensor) -> _State:
        return take_fields(self, index)


def _step(context: Context, state: _State, rounds: int | None = None, *, judged: bool = True) -> tuple[_State, Any]:
    """A step and what it reports, None where nobody judges it and no proximal term depends on the verdict."""
    problem, options = context.problem, context.options
    proximal = state.eps - state.annealed
    at = state.now if state.trail is None else replace(state.now, local_cost=state.given)
    linear = replace(problem.linearize(at), eps=state.annealed)
    if context.proximal:
        linear = linear.near(_reference(problem, state, look=rounds is None), proximal)
    effort = _effort(context, state) if rounds is None else (None, None)
    solution = options.inner(linear, (state.f, state.g), *effort, rounds)
    now = problem.accept(state.now, solution)
    moved = _distance(problem, now, state.now)
    annealed = problem.eps if options.anneal is None else torch.maximum(problem.eps, options.anneal * state.annealed)
    objective = problem.objective(problem.reported_state(now)).total
    worse = objective - state.objective > context.least
    back = worse & state.guessed
    if state.trail is not None and (rounds is not None or bool(back.any())):  # a guess that failed is undone
        kept = state.now, state.objective, state.change
        now, objective, moved = where(back, kept, (now, objective, moved))
    given, guessed, trail = _looked_back(context, state, (now, moved, worse), look=rounds is None)
    new = _State(
        now=now,
        given=given,
        guessed=guessed,
        trail=trail,
        objective=objective,
        before=None if context.lean else replace(state.now, local_cost=None),
        f=solution.f,
        g=solution.g,
        log_mass=solution.log_mass.double(),
        annealed=annealed,
        eps=torch.maximum(annealed, _next_eps(context, state, solution.residual <= KEEPS_UP)),
        entropy=state.eps,
        change=moved,
        residual=solution.residual.double(),
        patience=_patience(context, state, moved, solution.residual.double()),
        repeats=_repeats(context, state, now),
        settled=state.settled,
        doubtful=torch.zeros_like(moved),
    )
    if not judged and not context.proximal:
        return new, None
    status = _verdict(context, state, new)
    if context.proximal:
        if rounds is not None or bool((status != Status.RUNNING).any()):
            status = torch.where(_growing(context, state, now.unit_plan), int(Status.RUNNING), status)
        ends = (status != Status.RUNNING) & (proximal > 0)
        doubtful = ends & (objective < state.settled - BETTER * objective.abs() - context.least)
        settled = torch.where(ends, objective, state.settled)
        new = replace(new, settled=settled, doubtful=doubtful.to(moved.dtype))
        status = torch.where(doubtful, int(Status.RUNNING), status)
    if context.lean:
        return new, loop.Report(status, {"objective": objective, "change": moved, "residual": new.residual})
    mass = problem.reported_state(now).log_mass.exp()
    relaxed = problem.objective(now, state.now).total
    numbers = {"objective": objective, "relaxed": relaxed, "change": moved, "residual": new.residual, "mass": mass}
    return new, loop.Report(status, numbers)


def _steps(count: int) -> Step:
    """So many steps as one, which reports what the last of them did."""

    def several(context: Context, state: _State, rounds: int | None = None) -> tuple[_State, loop.Report]:
        for left in reversed(range(count)):
            state, report = _step(context, state, rounds, judged=left == 0)
        return state, report

    return several


# By how many they are: recordings are told apart by them.
STEPS: dict[int, Step] = {1: _step} | {count: _steps(count) for count in range(2, TOGETHER + 1)}


def _repeats(context: Context, state: _State, now: Any) -> Tensor:
    """(B,): for how many steps in a row the plan has been where it was two steps before, as near a cycle of two."""
    if state.before is None:
        return state.repeats
    returned = _distance(context.problem, now, state.before) <= MEETING * context.options.tol
    return torch.where(returned, state.repeats + 1, 0.0)


def _looked_back(context: Context, state: _State, new: tuple[Any, Tensor, Tensor], *, look: bool) -> tuple[Any, ...]:
    """The next step's local cost, (B,) whether it is a guess, and the trail. new: the plan, its change, is it worse?"""
    if state.trail is None or context.free is None:
        return None, state.guessed, state.trail
    now, moved, worse = new
    # What has settled is to show it by a plain step.
    ready = context.free & (moved < BEGIN) & (moved > context.limit) & (state.annealed <= context.problem.eps) & ~worse
    size = torch.where(ready, moved / context.limit, 0.0)
    given, guessed, leap = state.trail.next(context.problem, state.given, now.local_cost, size, look=look)
    return given, guessed, state.trail.extended(state.given, now.local_cost, worse, leap)


def _growing(context: Context, state: _State, shape: Any) -> Tensor:
    """(B,) bool: does a proximal step make some entry, however small, grow faster than a settled plan's may?

    The logarithm of that growth, times the entropy of the step, is how far the gradient of the problem is below 0.
    """
    proximal = state.eps > state.annealed
    steepest = context.problem.growth(state.now.unit_plan, shape)
    allowed = torch.maximum(GROWTH * context.scale / state.eps, context.noise)
    return proximal & (steepest > allowed)


def _reference(problem: Problem, state: _State, *, look: bool) -> Any:
    """The plan (B, n, m) that a proximal step stays near: the last one, with some of the product if in doubt."""
    if look and not bool((state.doubtful > 0).any()):
        return state.now.unit_plan
    return problem.mixed(state.now.unit_plan, MIXED * state.doubtful)


def _fresh(state: _State) -> Tensor:
    """(B,) bool: is the next linear problem to be solved well, because the last plan may be a solution?"""
    return state.change == 0


def _effort(context: Context, state: _State) -> tuple[Tensor, Tensor]:
    """The tolerance (B,) of the next inner solve, and the multiple of its iterations."""
    aim = torch.maximum(context.aim, (FORCING * state.change).clamp(max=0.01))
    if context.options.tol > ROUGH:
        return aim, state.patience
    return aim, torch.where(_fresh(state), FIRST_PATIENCE * state.patience, state.patience)


def _asks(context: Context, state: _State) -> Tensor:
    """(B,): rounds of inner iterations that items ask for, 0 where the usual do, as for what has settled."""
    if context.options.tol > ROUGH:
        return torch.zeros_like(state.change)
    settled = (state.change <= context.limit) & (state.residual <= context.residual_limit)
    waiting = torch.where((state.patience > 1.0) & ~settled, state.patience, 0.0)
    wanted = torch.where(_fresh(state), FIRST_PATIENCE * state.patience, waiting)
    return (context.options.inner.max_iter / KERNEL_CONFIG.iterations_per_check * wanted).ceil()


def _patience(context: Context, state: _State, moved: Tensor, residual: Tensor) -> Tensor:
    """Where the plan has settled and only the inner solver has not, it gets more iterations."""
    options = context.options
    if options.tol > ROUGH:
        return state.patience
    waiting = (moved <= NEAR * context.limit) & (residual > context.residual_limit)
    most = max(1.0, MOST_ITERATIONS / options.inner.max_iter)
    return torch.where(waiting, (2.0 * state.patience).clamp(max=most), state.patience)


def _next_eps(context: Context, state: _State, solved: Tensor) -> Tensor:
    """The entropy falls to its end, and rises again while the inner solver does not keep up."""
    if not context.proximal:
        return context.end
    factor = context.options.proximal[2]
    lower = torch.maximum(context.end, factor * state.eps)
    higher = torch.minimum(context.most, state.eps / factor)
    plain = context.end <= context.problem.eps  # no proximal steps for these, whatever others in the batch need
    return torch.where(solved | plain, lower, higher)


def _verdict(context: Context, old: _State, new: _State) -> Tensor:
    """Status codes (B,) of the items after a step."""
    problem, limit = context.problem, context.limit
    # The stronger the proximal term, the shorter the steps.
    settled = (new.change * old.eps / context.end <= limit) & (new.residual <= context.residual_limit)
    settled &= (old.annealed <= problem.eps) & ~old.guessed
    end = context.ending.masked_fill(problem.is_collapsed(new.now), int(Status.COLLAPSED))
    code = torch.full_like(end, int(Status.RUNNING))
    if new.before is not None:
        code = code.masked_fill((new.repeats >= 3) & (new.change > limit), int(Status.ALTERNATING))
    return torch.where(settled, end, code)


def _distance(problem: Problem, p: Any, q: Any) -> Tensor:
    """Relative L1 distance of two plans (B,): of their shapes, plus what their masses differ by."""
    shapes = problem.apart(p.unit_plan, q.unit_plan)
    # A mass far below any weight is a mass of 0; its logarithm is then too large to compare.
    masses = (p.log_mass - q.log_mass).abs().clamp(max=1.0)
    return shapes + masses.masked_fill_(p.log_mass <= -700.0, 0.0)


def _finish(context: Context, outcome: loop.Outcome) -> SolverOutput:
    problem, state, status = context.problem, outcome.state, outcome.status
    worn = (status == Status.MAX_ITER) & (context.noise > TRUSTED)
    status = torch.where(worn, int(Status.PRECISION), status)
    if bool((status == Status.ALTERNATING).any()):
        state = _better(context, state, status == Status.ALTERNATING)
    now, before = problem.final(state.now), state.before
    return SolverOutput(
        plan=now.plan,
        previous_plan=before.plan,
        potentials=problem.potentials(before, now, (state.f, state.g), state.log_mass, state.entropy),
        terms=problem.objective(now),
        relaxed_value=problem.objective(before, now).total,
        marginal_error=problem.marginal_error(now),
        change=state.change,
        residual=state.residual,
        status=status,
        n_iter=outcome.n_iter,
        trace=outcome.table(),
        lift=problem.lift(now),
    )


def _better(context: Context, state: _State, alternating: Tensor) -> _State:
    """One step more, back to the other of two alternating plans, for the items where that one is better."""
    other = _step(context, state)[0]
    totals = (context.problem.objective(s.now).total for s in (other, state))
    return where(alternating & torch.lt(*totals), other, state)
