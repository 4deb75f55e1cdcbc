"""The front door: each function builds parts and calls them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from . import init as starts
from . import memory, multilevel
from ._batch import take
from ._check import as_tensor, check_finite, check_nonnegative
from ._options import choice
from ._precision import rough
from .cones import GaussianHellinger
from .conic_result import ConicResult
from .errors import ConvergenceWarning, InputError
from .lazy_plan import LazyPlan
from .memory import Estimate
from .multistart import Multistart, best_of
from .parameters import Fused, build, build_conic, build_partial, check_spaces, read_cone, streams
from .problems.conic import CGW
from .problems.partial import PartialCGW
from .problems.problem import Problem
from .problems.streamed import StreamedUGW
from .problems.unbalanced import UGW
from .records import Tensors, Terms
from .result import Result
from .solvers.alternate import AlternateMin
from .solvers.programs import AlternateLP
from .solvers.sinkhorn import Sinkhorn
from .solvers.watch import Watch
from .spaces import Space

AnyResult = TypeVar("AnyResult", bound=Result)
# Up to this many entries of the plan, "auto" also solves from the product plan and keeps the better result.
SMALL_PLAN = 100_000
# Stands for the logarithm of a mass of 0.
LOG_ZERO = -1e30
# The starts of a conic problem that begin with so many steps of UGW, and on CUDA so many with rough products.
INFORMED, CHEAP_STEPS, ROUGH_STEPS = ("auto", "best", "coarse"), 15, 10
# Starts by linear programs, besides those of "auto": from random anchor pairs, and corners of the transport polytope.
RANDOM_STARTS, CORNER_STARTS = 24, 16
# The best plan for UGW need not be the best for CGW: tiny conic problems have so many starts of their own, of which
# so many end well after a few rough steps. There a product with the kernel costs less than a linear step.
TINY_PLAN, TINY_STARTS, TINY_KEPT = 400, 256, 2
TINY_STEPS = AlternateMin(tol=1e-4, max_iter=8, inner=Sinkhorn(tol=1e-3, max_iter=10), proximal=(0.03, 0.001, 0.6))
# Problems as small as that are solved from so many coarse plans.
FEW = 2
# Entropy above this share of the mean distortion leaves one valley: no start is better than another.
EASY = 1.0
STARTS = ("auto", "best", "product", "flb", "linear", "random", "coarse")


def solve(
    x: Space,
    y: Space,
    *,
    rho: Any = 1.0,
    eps: Any = 1e-2,
    loss: Any = None,
    fused: Fused | None = None,
    init: Any = "auto",
    solver: AlternateMin | Multistart | None = None,
) -> Result:
    """Unbalanced Gromov–Wasserstein between two spaces, or two batches of spaces.

        min_p  Σ λ(|Dx_ii' − Dy_jj'|) p_ij p_i'j' + rho1 KL(p1⊗p1 | a⊗a) + rho2 KL(p2⊗p2 | b⊗b)
               + eps KL(p⊗p | (a⊗b)⊗²)  [ + alpha <M, p> ]

    rho: a number in (0, inf] for both sides, a tuple (rho1, rho2), an array (B,) with one per batch item, or a
    tuple of arrays; inf keeps that marginal (both: balanced GW, one: semi-relaxed).
    eps: a number ≥ 0, an array (B,), or `ugw.relative(share)`; 0 is the unregularised problem.
    loss: λ as a function of tensors or a cone, t² if None.
    fused: `ugw.Fused(alpha, cost)` adds a linear cost.
    init: "auto", "best", "product", "flb", "linear", "random", "coarse", or a plan (n, m) or (B, n, m).
    solver: `ugw.AlternateMin(tol=, max_iter=, ...)` or `ugw.Multistart(...)`.

    Warns once (ConvergenceWarning) if an item did not converge; `result.check()` raises.
    Large batches are solved in chunks; True from a callback stops them all. Raises OutOfMemory where nothing fits.

    >>> import numpy as np, ugw
    >>> points = np.random.default_rng(0).random((20, 2))
    >>> x, y = ugw.Space.from_points(points), ugw.Space.from_points(points[::-1] @ [[0, 1], [-1, 0]])
    >>> r = ugw.solve(x, y, rho=1.0, eps=1e-4)
    >>> r.plan.argmax(axis=1)[:5]
    array([19, 18, 17, 16, 15])
    """
    solver = _checked_solver(solver, AlternateMin())
    method = _plain(solver).inner.method
    with memory.guard(lambda: estimate(x, y, fused=fused, loss=loss, solver=solver)):
        problem = build(x, y, rho=rho, eps=eps, fused=fused, loss=loss, method=method)
        with torch.no_grad():
            start = _read_start(problem, solver, init)
            name = start if isinstance(start, str) else "given"
            task = memory.Task.of(problem, _tried(x.n * y.n, name, solver), name)
            memory.check(task.estimate(_plain(solver).inner.max_iter))
            return _warned(_in_chunks(problem, solver, start, task.together))


def estimate(
    x: Space, y: Space, *, fused: Fused | None = None, loss: Any = None, solver: AlternateMin | Multistart | None = None
) -> Estimate:
    """What `solve` with the same arguments and its default start will need: path, memory and work, before it runs.

    It is made for a float rho and eps: arrays of them make a batch, which spaces that are not one do not show.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.random.default_rng(0).random((2000, 3)))
    >>> e = ugw.estimate(x, x)
    >>> e.path, 0.3 < e.bytes / 2**30 < 1.0
    ('stored', True)
    """
    solver = _checked_solver(solver, AlternateMin())
    check_spaces(x, y)
    inner = _plain(solver).inner
    stream = streams(x, y, fused=fused, loss=loss, method=inner.method)
    count = _tried(x.n * y.n, "auto", solver)
    task = memory.Task.between(x, y, fused=fused, loss=loss, streaming=stream, count=count)
    return task.estimate(inner.max_iter)


def _in_chunks(problem: UGW, solver: Any, start: Any, together: int) -> Result:
    """Solve so many items at a time: what does not fit into memory, or the caches, does not run at once.

    One watcher looks on, so steps count on from chunk to chunk. True from a callback stops the whole run: the items
    of chunks that had not begun take one step from the product plan, the cheapest start, and are STOPPED too.
    """
    chunks = torch.arange(problem.batch, device=problem.eps.device).split(together)
    if len(chunks) == 1:
        return problem.result(_solved(problem, solver, start, None))
    parts = []
    with _plain(solver).watched(len(chunks)) as watch:
        for index in chunks:
            own = "product" if watch is not None and watch.stopped else take(start, index)
            parts.append(_solved(problem.take(index), solver, own, watch))
    return problem.result(Tensors.joined(parts))


def _solved(problem: UGW, solver: Any, start: Any, watch: Watch | None) -> Tensors:
    """Solve from a start that `_read_start` made."""
    if isinstance(problem, StreamedUGW):
        make = multilevel.start if isinstance(start, str) else multilevel.given
        with solver.watched() if watch is None else nullcontext(watch) as watch:
            return solver.run(problem, make(problem, start), watch).tensors
    plans = first_plans(problem, start)
    _check_finite_value(problem, plans)
    return best_of(solver, problem, plans, watch).tensors


def _read_start(problem: UGW, solver: Any, init: Any) -> Any:
    """The name of a start, or plans (B, n, m), checked."""
    streamed = isinstance(problem, StreamedUGW)
    if streamed and isinstance(solver, Multistart):
        raise InputError(
            "a Multistart stores its plans, got a problem too large for that: the default start tries many"
        )
    if streamed and bool(((problem.eps == 0) & problem.div_a.hard & problem.div_b.hard).any()):
        raise InputError(
            'eps = 0 with both marginals hard needs a stored plan: take eps > 0, or inner=Sinkhorn(method="stabilised")'
        )
    if streamed and isinstance(init, LazyPlan):
        return init.streamed_for((problem.batch, problem.x.n, problem.y.n))
    if not isinstance(init, str):
        return given_plan(problem, init, "init")
    choice("init", init, STARTS)
    if init == "linear":
        _check_points(problem)
    # Asked of the whole batch, so that chunks of it start alike.
    if init == "auto" and not streamed and bool((problem.eps >= EASY * problem.scale()).all()):
        return "product"
    return init


def _tried(entries: int, start: str, solver: Any) -> int:
    """Plans of so many entries that are solved for at a time, for each item, from a start of that name."""
    few = FEW if entries <= TINY_PLAN else 1
    count = few + (start == "best" or entries <= SMALL_PLAN) if start in ("auto", "best") else 1
    return count + (solver.n - 1 if isinstance(solver, Multistart) else 0)


def solve_conic(
    x: Space,
    y: Space,
    *,
    rho: Any = 1.0,
    cone: Any = "gaussian-hellinger",
    eps: Any = 0.0,
    init: Any = "auto",
    solver: AlternateMin | AlternateLP | Multistart | None = None,
) -> ConicResult:
    """The conic distance CGW between two spaces, or two batches of spaces: a metric, and at most UGW at eps = 0.

        CGW = rho1 m(a)² + rho2 m(b)² − R max <w, G w>,  G = exp(−λ(|Dx_ii' − Dy_jj'|)/R),  R = rho1 + rho2

    rho: as for `solve`, finite. cone: "gaussian-hellinger" (λ = t²), "hellinger-kantorovich" or
    `ugw.HellingerKantorovich(cutoff)`, or λ as a function of tensors or `ugw.Loss(function)`, each with `tol` and
    `max_rank` for the factors of its kernel, which problems beyond n·m = 400 use; "partial-transport" or
    `ugw.PartialTransport(q)`, TV in place of KL, for small spaces and one rho: see there.
    eps: entropy of the first steps, in units of rho; the last ones have none; 0 for partial transport.
    init: as for `solve`, or a Result of `solve`, whose lift is never worse than its plan's UGW objective at eps = 0.
    solver: as for `solve`; `ugw.AlternateLP(tol=, max_iter=, ...)` for partial transport.

    >>> import numpy as np, ugw
    >>> points = np.random.default_rng(0).random((8, 2))
    >>> x, y = ugw.Space.from_points(points), ugw.Space.from_points(points[::-1] + 1.0, weights=np.full(8, 0.25))
    >>> c = ugw.solve_conic(x, y, rho=1.0)
    >>> round(c.distance, 6), c.is_metric  # the same shape, once of mass 1 and once of mass 2
    (1.0, True)
    """
    read = read_cone(x, y, cone)
    way = WAYS[read.steps]
    problem, twin = way.build(x, y, rho=rho, cone=read, eps=eps)
    solver = _checked_solver(solver, way.solver)
    terms = int(problem.pairs.rank.max()) if isinstance(problem, CGW) else 1
    task = replace(memory.Task.of(twin, 1, "auto"), terms=max(1, terms))
    with torch.no_grad(), memory.guard(lambda: task.estimate(inner=1)):
        start = (init.tensors.plan if init.batched else init.tensors.plan[0]) if isinstance(init, Result) else init
        plans = way.plans(problem, twin, solver, start)
        return _warned(problem.result(best_of(solver, problem, plans).tensors))


def _kernel_plans(problem: Problem, twin: UGW, solver: Any, init: Any) -> Tensor:
    """The plans (B, S, n, m) from which a conic problem over KL starts."""
    if not isinstance(init, str) or init not in INFORMED:
        return first_plans(twin, init)
    if init != "coarse" and problem.x.n * problem.y.n <= TINY_PLAN:
        return _raced(problem, torch.cat([problem.product[:, None], starts.noisy(problem, TINY_STARTS)], dim=1))
    plans, _ = _advanced(AlternateMin(max_iter=CHEAP_STEPS), twin, first_plans(twin, init))
    if plans.is_cuda and plans.dtype == torch.float32:
        cheap = replace(_plain(solver), max_iter=ROUGH_STEPS, callback=None, progress=False)
        plans, _ = _advanced(cheap, problem, plans)
    return plans


def _raced(problem: Problem, plans: Tensor) -> Tensor:
    """The best of many plans (B, S, n, m) after a few steps, as far as they differ."""
    plans, values = _advanced(TINY_STEPS, problem, plans)
    first = torch.arange(problem.batch, device=plans.device)
    chosen = starts.different(plans, values, TINY_KEPT)
    return torch.stack([plans[first, index] for index in chosen], dim=1)


def _program_plans(problem: PartialCGW, twin: UGW, solver: Any, init: Any) -> Tensor:
    """The plans (B, S, n, m) from which linear programs start: many for "auto" and "best", as each ends nearby."""
    plans = first_plans(twin, init)
    if not isinstance(init, str) or init not in ("auto", "best"):
        return plans
    way, rhos = WAYS[GaussianHellinger.steps], (twin.div_a, twin.div_b)
    smooth, _ = way.build(twin.x, twin.y, rho=rhos, cone=GaussianHellinger(), eps=0.0)
    found = best_of(way.solver, smooth, way.plans(smooth, twin, way.solver, init)).tensors.plan
    more = starts.random(problem, RANDOM_STARTS), starts.corners(problem, CORNER_STARTS)
    return torch.cat([plans, starts.unit(found)[:, None], *more], dim=1)


@dataclass(frozen=True)
class Way:
    """How to solve a conic problem: what builds it and its UGW twin, the solver, and what makes the first plans."""

    build: Callable[..., tuple[Any, UGW]]
    solver: AlternateMin | AlternateLP
    plans: Callable[[Any, UGW, Any, Any], Tensor]


# By the kind of step that a cone asks for.
WAYS = {
    # A product with the kernel costs far more than a linear step: these may be sharp.
    "transport": Way(
        build_conic, AlternateMin(inner=Sinkhorn(max_iter=200), proximal=(0.003, 0.001, 0.8)), _kernel_plans
    ),
    "programs": Way(build_partial, AlternateLP(), _program_plans),
}


def _advanced(solver: AlternateMin, problem: Problem, plans: Tensor) -> tuple[Tensor, Tensor]:
    """The plans (B, S, n, m) after some steps whose products may be rough, and their values (B, S)."""
    first = torch.arange(problem.batch, device=plans.device).repeat_interleave(plans.shape[1])
    with rough():
        found = solver(problem.take(first), plans.flatten(0, 1)).tensors
    return starts.unit(found.plan).view_as(plans), found.terms.total.view(plans.shape[:2])


def _plain(solver: AlternateMin | Multistart) -> Any:
    return solver.solver if isinstance(solver, Multistart) else solver


def _checked_solver(solver: Any, default: AlternateMin | AlternateLP) -> Any:
    solver = default if solver is None else solver
    kind = type(default)
    if not isinstance(_plain(solver), kind):
        raise InputError(f"solver must be an {kind.__name__} or a Multistart of one, got {type(solver).__name__}")
    return solver


def _warned(result: AnyResult) -> AnyResult:
    if not bool(torch.as_tensor(result.converged).all()):
        warnings.warn(result.message, ConvergenceWarning, stacklevel=3)
    return result


def _check_finite_value(problem: UGW, plans: Tensor) -> None:
    """A loss that is infinite somewhere needs a start that pays it nowhere."""
    if not problem.infinite:
        return
    for k in range(plans.shape[1]):
        value = problem.objective(problem.couple(plans[:, k])).total
        if not bool(torch.isfinite(value).all()):
            raise InputError("a loss that is infinite somewhere needs init=plan of finite value, got an infinite one")


def first_plans(problem: UGW, init: Any) -> Tensor:
    """The plans (B, S, n, m) to start from: a name's, or the given one."""
    if not isinstance(init, str):
        plan = given_plan(problem, init, "init")
        if not bool((plan.amax(dim=(1, 2)) > 0).all()):
            raise InputError("init must have positive mass, got a plan of zeros")
        return plan[:, None]
    choice("init", init, STARTS)
    if init == "linear":
        _check_points(problem)
    if init == "random":
        return starts.random(problem, 1)
    if init not in ("auto", "best"):
        return getattr(starts, init)(problem)[:, None]
    entries = problem.x.n * problem.y.n
    plans = starts.several(problem, FEW if entries <= TINY_PLAN else 1)
    if init == "best" or entries <= SMALL_PLAN:
        plans = torch.cat([starts.product(problem)[:, None], plans], dim=1)
    return plans


def given_plan(problem: UGW, plan: Any, name: str) -> Tensor:
    """A plan given as an array, checked. Returns (B, n, m)."""
    tensor = as_tensor(name, plan, like=problem.x.weights).detach()
    n, m = problem.x.n, problem.y.n
    if tensor.shape not in ((n, m), (problem.batch, n, m)):
        expected = f"({n}, {m})" + (f" or ({problem.batch}, {n}, {m})" if problem.batched else "")
        raise InputError(f"{name} must be a plan of shape {expected}, got {tuple(tensor.shape)}")
    check_finite(name, tensor)
    check_nonnegative(name, tensor)
    tensor = tensor.expand(problem.batch, n, m)
    allowed = (problem.log_a > -torch.inf)[:, :, None] & (problem.log_b > -torch.inf)[:, None, :]
    if bool(((tensor > 0) & ~allowed).any()):
        raise InputError(f"{name} must be 0 at points of weight 0, got mass in their rows or columns")
    return tensor


def _check_points(problem: UGW) -> None:
    x, y = problem.x.points, problem.y.points
    if x is None or y is None:
        raise InputError('init="linear" needs spaces made by Space.from_points, got one without points')
    if x.shape[-1] != y.shape[-1]:
        raise InputError(f'init="linear" needs points of one dimension, got R^{x.shape[-1]} and R^{y.shape[-1]}')


def objective(
    plan: Any,
    x: Space,
    y: Space,
    *,
    rho: Any = 1.0,
    eps: Any = 0.0,
    loss: Any = None,
    fused: Fused | None = None,
) -> Terms:
    """The terms of the objective F(plan, plan) of any plan (n, m) or (B, n, m); `.total` is their sum.

    A hard side contributes 0, whether or not the plan keeps it.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.eye(3))
    >>> round(ugw.objective(np.eye(3) / 3, x, x, rho=1.0).total, 12)
    0.0
    """
    problem = build(x, y, rho=rho, eps=eps, fused=fused, loss=loss)
    plan = given_plan(problem, plan, "plan")
    mass = plan.sum(dim=(1, 2), dtype=torch.float64)
    with torch.no_grad():
        # A plan of zeros has no shape; any will do for a mass of 0.
        shape = torch.where(mass[:, None, None] > 0, plan / mass.to(plan.dtype)[:, None, None], starts.product(problem))
        log_mass = torch.where(mass > 0, mass.log(), LOG_ZERO)
        terms = problem.objective(problem.couple(shape).weighing(log_mass))
    return terms.present(batched=problem.batched, numpy=problem.numpy)
