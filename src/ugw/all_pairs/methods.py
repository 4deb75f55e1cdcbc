"""The methods of `pairwise`: their defaults, their checks, and the solvers of a batch of pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._utils.checks import as_parameter, check_choice
from ..api import solve as api
from ..api.arguments import check_solver
from ..api.conic import solve_conic
from ..errors import InputError
from ..geometry.space import Space
from ..initializers.conic import STRATEGIES
from ..initializers.select import INIT_NAMES
from ..learning.debiased import check_one_rho, product_plan_value, solve_self_term
from ..learning.value_and_grad import build_detached
from ..measures.divergences import Divergence, Mass, divergence_pair, partial_divergences
from ..problems.build import (
    Fused,
    Relative,
    build_partial,
    build_ugw,
    check_finite_rho,
    parse_cone,
    resolve_eps,
)
from ..problems.config import PROBLEM_CONFIG
from ..results.records import Status
from ..results.result import Result
from ..solvers.alternating import AlternateMin
from ..solvers.frank_wolfe import FrankWolfe

# Arrays (P,) of a batch of pairs: value, mass, status, n_iter, and for "debiased" sign_scale, for "cgw" distance and
# is_metric.
Columns = dict[str, np.ndarray]
# Keyword arguments of `ugw.solve` or `ugw.solve_conic`.
Options = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """A method of `pairwise` by name, with its less common options.

    init: the name of an initial plan, as for `ugw.solve`; loss, fused: as there, for "ugw", "gw" and "debiased"
    ("fused" by the features of the spaces); cone: as for `ugw.solve_conic`, for "cgw".

    >>> Method("ugw", init="product")
    Method(name='ugw', init='product', loss=None, fused=None, cone=None)
    """

    name: str = "ugw"
    init: str = "auto"
    loss: Any = None
    fused: Fused | None = None
    cone: Any = None

    def __post_init__(self) -> None:
        """Check the fields."""
        check_choice("method", self.name, tuple(METHOD_SPECS))
        check_choice(f"init of method {self.name!r}", self.init, INIT_NAMES)
        for name in (f.name for f in fields(self)[2:]):
            if getattr(self, name) is not None and name not in self.spec.option_names:
                raise InputError(f"method {self.name!r} has no {name}, got {getattr(self, name)!r}")
        if self.fused is not None and (not isinstance(self.fused, Fused) or self.fused.cost is not None):
            raise InputError(
                f"fused of pairwise must be ugw.Fused(alpha), by the features of the spaces, got {self.fused!r}"
            )

    @property
    def spec(self) -> MethodSpec:
        """The defaults and functions of the method."""
        return METHOD_SPECS[self.name]

    def solve_options(self, rho: Any, eps: Any, solver: Any) -> Options:
        """Return the keyword arguments of a solve, with the method's defaults for "auto", checked."""
        spec = self.spec
        rho = spec.default_rho if isinstance(rho, str) and rho == "auto" else rho
        has_no_entropy = self.name == "cgw" and isinstance(eps, str) and eps == "auto"
        eps = 0.0 if has_no_entropy else resolve_eps(eps, rho)
        extra = {name: getattr(self, name) for name in spec.option_names}
        if "cone" in extra:
            extra["cone"] = "gaussian-hellinger" if self.cone is None else self.cone
        _check_eps(eps)
        if self.name == "cgw":
            check_finite_rho(rho)
        if self.name == "gw" and not _is_hard(rho):
            raise InputError(f"method 'gw' keeps both marginals, rho = inf, got rho={rho!r}: method 'ugw' has a rho")
        return {"rho": rho, "eps": eps, "solver": solver, "init": self.init, **extra}


@dataclass(frozen=True)
class MethodSpec:
    """The defaults of a method, the names of its options, and its functions of batches of pairs.

    check: returns the solver, with the options that were not given filled in, and raises for options with which the
    two largest spaces cannot be solved; solve_pairs: columns of pairs (x, y);
    solve_self: columns of pairs (x, x); has_zero_self_value: whether the value of (x, x) is exactly 0;
    needs_self_values: whether a value is computed from those of (x, y), (x, x) and (y, y); relative_cost: time of a
    pair compared with one of "ugw".
    """

    default_rho: float
    option_names: tuple[str, ...]
    check: Callable[[Space, Space, Options], Any]
    solve_pairs: Callable[[Space, Space, Options], Columns]
    solve_self: Callable[[Space, Options], Columns]
    has_zero_self_value: Callable[[Options], bool]
    needs_self_values: bool = False
    relative_cost: int = 1


# -- checks of the options -----------------------------------------------------------------------------------


def is_symmetric(options: Options) -> bool:
    """Return whether (x, y) and (y, x) have the same value, which is so with one rho for both sides."""
    first, second = _divergences(options["rho"])
    return bool(first._parameter == second._parameter)


def are_both_marginals_hard(options: Options) -> bool:
    """Return whether both marginals are constraints, so that all masses must be equal."""
    return _is_hard(options["rho"])


def _is_hard(rho: Any) -> bool:
    """Return whether the divergences of both sides are constraints."""
    return all(bool(side.is_hard) for side in _divergences(rho))


def _divergences(rho: Any) -> tuple[Divergence, Divergence]:
    """Return the divergences of both sides; raise for an array of parameters, which would be one per batch item."""
    pair = partial_divergences(rho) or divergence_pair(rho)
    if any(side.penalty.ndim for side in pair):
        raise InputError("rho of pairwise must be one number for all pairs, or a tuple of two, got an array")
    return pair


def _check_eps(eps: Any) -> None:
    """Raise unless eps is one number or `ugw.relative` of one number."""
    if isinstance(eps, list | tuple):
        raise InputError(f"eps of pairwise must be one number for all pairs, got a {type(eps).__name__}")
    number = eps.share if isinstance(eps, Relative) else as_parameter("eps", eps, allow_zero=True)
    if number.ndim:
        raise InputError("eps of pairwise must be one number for all pairs, got an array")


def auto_eps_of_all_pairs(first: Sequence[Space], second: Sequence[Space], loss: Any = None) -> float:
    """Return eps="auto" of "debiased": one number for all pairs, 1 % of their average mean distortion.

    The mean of (Dx − Dy)² under the product plan is E Dx² + E Dy² − 2 E Dx E Dy. For another loss there is no such
    formula, and the mean distortion of each pair is computed, which takes far less time than its solve.
    """
    if loss is not None:
        auto = resolve_eps("auto", 1.0)
        problems = (build_ugw(x, y, rho=1.0, eps=auto, fused=None, loss=loss) for x in first for y in second)
        return float(np.mean([float(problem.eps[0]) for problem in problems]))
    means = []
    for side in (first, second):
        moments = []
        for space in side:
            law = (space.weight_tensor / space.weight_tensor.sum()).detach()[:, None]
            moments.append(
                [float((law * apply(law)).sum()) for apply in (space.metric.apply, space.metric.apply_squared)]
            )
        means.append(np.array(moments))
    (mean_x, square_x), (mean_y, square_y) = means[0].T, means[1].T
    average = float(square_x.mean() + square_y.mean() - 2.0 * mean_x.mean() * mean_y.mean())
    scale = average if average > 0 else float(square_x.mean() + square_y.mean()) or 1.0
    return PROBLEM_CONFIG.auto_eps_share * scale


def _check_ugw(x: Space, y: Space, options: Options) -> Any:
    """Return the solver; raise for options that `ugw.solve` refuses."""
    partial = partial_divergences(options["rho"])
    if partial is not None:
        build_partial(x, y, sides=partial, eps=options["eps"], fused=options["fused"], loss=options["loss"])
        return check_solver(options["solver"], FrankWolfe())
    build_ugw(x, y, **_objective_options(options))
    return check_solver(options["solver"], AlternateMin())


def _check_debiased(x: Space, y: Space, options: Options) -> Any:
    """Return the solver; raise for options that `ugw.debiased` refuses, and for a relative eps."""
    if partial_divergences(options["rho"]) is not None:
        raise InputError(f"method 'debiased' needs a rho of KL, got {options['rho']!r}")
    if isinstance(options["eps"], Relative):
        raise InputError(
            f"eps of method 'debiased' must be one number, so that a space is solved with itself once, "
            f"got ugw.relative({options['eps'].share!r})"
        )
    solver = _check_ugw(x, y, options)
    check_one_rho(build_ugw(x, y, **_objective_options(options)))
    return solver


def _check_conic(x: Space, y: Space, options: Options) -> Any:
    """Return the solver; raise for options that `ugw.solve_conic` refuses."""
    as_parameter("eps", options["eps"], allow_zero=True)
    cone = parse_cone(x, y, options["cone"])
    strategy = STRATEGIES[cone.solver_kind]
    solver = check_solver(options["solver"], strategy.solver)
    if cone.solver_kind == "programs":  # its constructor raises if the spaces are too large
        strategy.build(x, y, rho=options["rho"], cone=cone, eps=options["eps"])
    return solver


def _objective_options(options: Options) -> Options:
    """Return the options that define the objective."""
    return {name: options[name] for name in ("rho", "eps", "fused", "loss")}


# -- solvers of batches of pairs -----------------------------------------------------------------------------


def _columns(result: Result, **extra: Tensor) -> Columns:
    """Return value, mass, status and iterations of a batch of results, and the extra tensors, as arrays (P,)."""
    output = result.tensors
    columns = {"value": output.terms.total, "mass": output.plan.sum(dim=(1, 2), dtype=torch.float64)}
    columns |= {"status": output.status, "n_iter": output.n_iter, **extra}
    return {name: column.cpu().numpy() for name, column in columns.items()}


def _solve_ugw(x: Space, y: Space, options: Options) -> Columns:
    """Return the columns of `ugw.solve` for a batch of pairs."""
    return _columns(api.solve(x, y, **options))


def _solve_self_ugw(x: Space, options: Options) -> Columns:
    """Return the columns of `ugw.solve` for spaces with themselves, the better of two initial plans."""
    problem = build_detached(x, x, **_objective_options(options), solver=options["solver"])
    terms = {name: options[name] for name in ("fused", "loss", "solver")}
    return _columns(solve_self_term(problem, options["init"], **terms))


def _solve_debiased(x: Space, y: Space, options: Options) -> Columns:
    """Return the columns of the cross terms, with the scale against which negative values are judged."""
    return _columns(
        api.solve(x, y, **options), sign_scale=product_plan_value(build_ugw(x, y, **_objective_options(options)))
    )


def _solve_self_debiased(x: Space, options: Options) -> Columns:
    """Return the columns of the self terms."""
    columns = _solve_self_ugw(x, options)
    return columns | {"sign_scale": np.zeros_like(columns["value"])}


def _solve_conic(x: Space, y: Space, options: Options) -> Columns:
    """Return the columns of `ugw.solve_conic` for a batch of pairs, with `distance`, and `is_metric` as 0 or 1."""
    result = solve_conic(x, y, **options)
    is_metric = torch.as_tensor(result.is_metric).to(torch.int64)
    return _columns(result, distance=torch.as_tensor(result.distance), is_metric=is_metric)


def _solve_self_conic(x: Space, options: Options) -> Columns:
    """Raise: the conic distance of a space to itself is 0 and is never solved."""
    raise RuntimeError("a space is at distance 0 from itself")


def _has_no_entropy(options: Options) -> bool:
    """Return whether eps is 0: then the identity is optimal for (x, x), with value 0 since λ(0) = 0."""
    return not isinstance(options["eps"], Relative) and float(options["eps"]) == 0.0


def exact_self_columns(x: Space, options: Options) -> dict[str, Any]:
    """Return the columns of (x, x) where its value is exactly 0: those of the identity plan."""
    rho = options["rho"]
    mass = float(rho.m) if isinstance(rho, Mass) else float(x.mass)
    zeros = dict.fromkeys(("value", "n_iter", "distance", "sign_scale"), 0.0)
    return zeros | {"mass": mass, "status": int(Status.CONVERGED), "is_metric": 1}


_UGW_SPEC = MethodSpec(
    default_rho=1.0,
    option_names=("loss", "fused"),
    check=_check_ugw,
    solve_pairs=_solve_ugw,
    solve_self=_solve_self_ugw,
    has_zero_self_value=_has_no_entropy,
)
METHOD_SPECS = {
    "ugw": _UGW_SPEC,
    "gw": replace(_UGW_SPEC, default_rho=math.inf),
    "debiased": replace(
        _UGW_SPEC,
        check=_check_debiased,
        solve_pairs=_solve_debiased,
        solve_self=_solve_self_debiased,
        needs_self_values=True,
    ),
    "cgw": MethodSpec(
        default_rho=1.0,
        option_names=("cone",),
        check=_check_conic,
        solve_pairs=_solve_conic,
        solve_self=_solve_self_conic,
        has_zero_self_value=lambda options: True,
        relative_cost=2,
    ),
}
