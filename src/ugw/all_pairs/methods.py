"""The methods of `pairwise`: their defaults, their checks, and the solvers of a batch of pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._utils.checks import as_parameter, check_choice, describe_value
from ..api import solve as api
from ..api.conic import solve_conic
from ..errors import InputError
from ..geometry.space import Space
from ..initializers.conic import STRATEGIES
from ..initializers.multistart import Multistart, check_solver, check_stores_plans
from ..initializers.names import INIT_NAMES
from ..learning.debiased import check_one_rho, product_plan_distortion, solve_self_term
from ..learning.value_and_grad import SolveArguments
from ..measures.cones import GaussianHellinger, PartialTransport, parse_loss
from ..measures.divergences import Divergence, Mass, divergence_pair, partial_divergences
from ..problems.build import (
    Fused,
    Relative,
    build_partial,
    build_ugw,
    check_finite_rho,
    parse_cone,
    resolve_conic_eps,
    resolve_eps,
)
from ..problems.config import PROBLEM_CONFIG
from ..problems.distortion.squares import distance_moments
from ..problems.ugw import UGW
from ..results.parameters import penalty_parameters, to_plain
from ..results.records import Status
from ..results.result import Result
from ..solvers.alternating import DEFAULT_SOLVER
from ..solvers.frank_wolfe import FrankWolfe
from .config import PAIRWISE_CONFIG

# Results of P pairs, arrays (P,) by name: value, mass, status, n_iter, and for "debiased" sign_scale, for "cgw"
# distance and is_metric. Docstrings call such a dict columns.
Columns = dict[str, np.ndarray]
# Keyword arguments of `ugw.solve` or `ugw.solve_conic`.
Options = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """A method of `pairwise` by name, with its less common options.

    init: the name of an initial plan, as for `ugw.solve`, and no plan, which would fit one pair only; loss, fused: as
    there, for "ugw", "gw" and "debiased" ("fused" by the features of the spaces); cone: as for `ugw.solve_conic`, for
    "cgw".

    >>> Method("ugw", init="product")
    Method(name='ugw', init='product', loss=None, fused=None, cone=None)
    """

    name: str = "ugw"
    init: str = "auto"
    loss: Any = None
    fused: Fused | None = None
    cone: Any = None

    def __post_init__(self) -> None:
        """Raise InputError for an unknown method or `init`, or for an option that the method does not have."""
        check_choice("method", self.name, tuple(METHOD_SPECS))
        if not isinstance(self.init, str):
            expected = "the name of an initial plan, the same for all pairs"
            raise InputError(f"init of method {self.name!r} must be {expected}, got {type(self.init).__name__}")
        check_choice(f"init of method {self.name!r}", self.init, INIT_NAMES)
        for name in (f.name for f in fields(self)[2:]):
            if getattr(self, name) is not None and name not in self.spec.option_names:
                raise InputError(f"method {self.name!r} has no {name}, got {describe_value(getattr(self, name))}")
        if self.fused is not None and (not isinstance(self.fused, Fused) or self.fused.cost is not None):
            got = describe_value(self.fused)
            raise InputError(f"fused of pairwise must be ugw.Fused(alpha), by the features of the spaces, got {got}")

    @property
    def spec(self) -> MethodSpec:
        """A MethodSpec: option names, default rho, functions that check options and solve pairs, traits of (x, x)."""
        return METHOD_SPECS[self.name]

    def solve_options(self, rho: Any, eps: Any, solver: Any) -> Options:
        """Return the keyword arguments for `ugw.solve` or `ugw.solve_conic`, checked, with "auto" resolved.

        Keys: rho, eps, solver (unchanged, may be None), init, and loss and fused, or for "cgw" cone.
        """
        if rho is None or (isinstance(rho, str) and rho != "auto"):
            expected = 'one number for all pairs, a tuple of two, a KL, TV or Mass, or "auto"'
            raise InputError(f"rho of pairwise must be {expected}, got {describe_value(rho)}")
        rho = self.spec.default_rho if isinstance(rho, str) else rho
        is_conic = self.name == "cgw"
        eps = resolve_conic_eps(eps) if is_conic else resolve_eps(eps, rho)
        extra = {name: getattr(self, name) for name in self.spec.option_names}
        _check_eps(eps)
        if is_conic:
            check_finite_rho(rho)
            extra["cone"] = "gaussian-hellinger" if self.cone is None else self.cone
        if self.name == "gw" and not are_marginals_hard(rho):
            raise InputError(
                f"method 'gw' keeps both marginals, rho = inf, got rho={describe_value(rho)}: method 'ugw' has a rho"
            )
        return {"rho": rho, "eps": eps, "solver": solver, "init": self.init, **extra}

    def parameters(self, options: Options) -> dict[str, Any]:
        """Return as a dict of plain values "method", "divergence", "eps", "rho" ([of x, of y]) or "mass", and others.

        The others are the solver and init, and loss, fused and cone unless None, as in `Result.parameters`.
        options: as `solve_options` returns them, with the solver of all pairs.
        """
        others = {name: value for name, value in options.items() if name not in ("rho", "eps") and value is not None}
        if isinstance(options.get("cone"), str):
            others["cone"] = parse_loss(options["cone"], 1.0)
        if isinstance(others.get("cone"), PartialTransport):
            others["divergence"] = "TV"
        penalties = penalty_parameters(_divergences(options["rho"]), options["eps"])
        return {"method": self.name, **penalties, **{name: to_plain(value) for name, value in others.items()}}


@dataclass(frozen=True)
class MethodSpec:
    """The option names and defaults of a method, and its functions of two spaces, or of two batches of spaces.

    check: returns the solver, with the options that were not given filled in, and raises for options with which the
    two largest spaces cannot be solved; solve_pairs: columns of pairs (x, y); is_zero_on_self: whether the value of
    (x, x) is 0 for every eps; needs_self_values: whether a value is computed from those of (x, y), (x, x) and (y, y);
    relative_cost: time of a pair compared with one of "ugw".
    """

    option_names: tuple[str, ...]
    check: Callable[[Space, Space, Options], Any]
    solve_pairs: Callable[[Space, Space, Options], Columns]
    default_rho: float = 1.0
    is_zero_on_self: bool = False
    needs_self_values: bool = False
    relative_cost: int = 1

    def has_zero_self_value(self, options: Options) -> bool:
        """Return whether the value of (x, x) is exactly 0: for "cgw", and at eps = 0, where the identity is optimal."""
        eps = options["eps"]
        return self.is_zero_on_self or (not isinstance(eps, Relative) and float(eps) == 0.0)


def pair_seconds(options: Options) -> tuple[float, float]:
    """Return (constant, factor): a pair of n and m points takes about constant + factor·n·m·(n + m + 100) s on a CPU.

    options: as `Method.solve_options` returns them, with the solver of all pairs. A Multistart takes as many times
    longer as it has starts.
    """
    constant, factor = PAIRWISE_CONFIG.pair_seconds[_solve_kind(options)]
    n_starts = options["solver"].n if isinstance(options["solver"], Multistart) else 1
    return n_starts * constant, n_starts * factor


def _solve_kind(options: Options) -> str:
    """Return how pairs are solved with these options, as a key of the config's `pair_seconds`.

    It is "entropic", "sharp" (eps = 0), "hard" (both marginals), "general loss", "partial", "conic", "conic, general
    loss" or "linear programs".
    """
    if "cone" in options:
        cone = parse_loss(options["cone"], 1.0) if isinstance(options["cone"], str) else options["cone"]
        if isinstance(cone, PartialTransport):
            return "linear programs"
        return "conic" if isinstance(cone, GaussianHellinger) else "conic, general loss"
    if partial_divergences(options["rho"]) is not None:
        return "partial"
    if options["loss"] is not None:
        return "general loss"
    if not isinstance(options["eps"], Relative) and float(options["eps"]) == 0.0:
        return "sharp"
    return "hard" if are_marginals_hard(options["rho"]) else "entropic"


# -- checks of the options -----------------------------------------------------------------------------------


def is_symmetric(rho: Any) -> bool:
    """Return whether (x, y) and (y, x) have the same value, which is so with one rho for both sides."""
    first, second = _divergences(rho)
    return bool(first._parameter == second._parameter)


def are_marginals_hard(rho: Any) -> bool:
    """Return whether both marginals are constraints, so that all masses must be equal."""
    return all(bool(side.is_hard) for side in _divergences(rho))


def _divergences(rho: Any) -> tuple[Divergence, Divergence]:
    """Return the divergences of both sides for the rho of `ugw.solve`; raise InputError for an array of parameters."""
    pair = partial_divergences(rho) or divergence_pair(rho)
    if any(side.penalty.ndim for side in pair):
        raise InputError("rho of pairwise must be one number for all pairs, or a tuple of two, got an array")
    return pair


def _check_eps(eps: Any) -> None:
    """Raise InputError unless eps is one number or `ugw.relative` of one number."""
    if isinstance(eps, list | tuple):
        raise InputError(f"eps of pairwise must be one number for all pairs, got a {type(eps).__name__}")
    number = eps.share if isinstance(eps, Relative) else as_parameter("eps", eps, allow_zero=True)
    if number.ndim:
        raise InputError("eps of pairwise must be one number for all pairs, got an array")


def auto_eps_of_all_pairs(first: Sequence[Space], second: Sequence[Space], loss: Any = None) -> float:
    """Return the eps that "auto" is for "debiased": one number, 1 % of the mean distortion averaged over all pairs.

    first, second: the spaces of both lists; loss: λ, t² if None. The mean of (Dx − Dy)² under the product plan a⊗b of
    weights scaled to mass 1 is E Dx² + E Dy² − 2 E Dx E Dy. For another loss there is no such formula, and the mean
    distortion of each pair is computed, which takes far less time than its solve.
    """
    if loss is not None:
        auto = resolve_eps("auto", 1.0)
        problems = (build_ugw(x, y, rho=1.0, eps=auto, fused=None, loss=loss) for x in first for y in second)
        return float(np.mean([float(problem.eps[0]) for problem in problems]))
    (mean_x, square_x), (mean_y, square_y) = _average_distance_moments(first), _average_distance_moments(second)
    average = square_x + square_y - 2.0 * mean_x * mean_y
    return PROBLEM_CONFIG.auto_eps_share * (average if average > 0 else (square_x + square_y or 1.0))


def _average_distance_moments(spaces: Sequence[Space]) -> tuple[float, float]:
    """Return E D and E D², averaged over the spaces; D: distance of two points drawn with probabilities ∝ weights."""
    moments = []
    for space in spaces:
        log_weights = (space.weight_tensor / space.weight_tensor.sum()).detach().log()[None]
        moments.append([float(moment) for moment in distance_moments(space.metric, log_weights)])
    mean, square = np.mean(moments, axis=0).tolist()
    return mean, square


def _check_ugw(x: Space, y: Space, options: Options) -> Any:
    """Return the solver of `options`, the default for None; raise InputError if `ugw.solve(x, y, **options)` would."""
    partial = partial_divergences(options["rho"])
    if partial is not None:
        build_partial(x, y, sides=partial, eps=options["eps"], fused=options["fused"], loss=options["loss"])
        return check_solver(options["solver"], FrankWolfe())
    _build_problem(x, y, options)
    return check_solver(options["solver"], DEFAULT_SOLVER)


def _check_debiased(x: Space, y: Space, options: Options) -> Any:
    """Return the solver of `options`, the default for None; raise for what `ugw.debiased` refuses, or relative eps."""
    if partial_divergences(options["rho"]) is not None:
        raise InputError(f"method 'debiased' needs a rho of KL, got {describe_value(options['rho'])}")
    if isinstance(options["eps"], Relative):
        raise InputError(
            f"eps of method 'debiased' must be one number, so that a space is solved with itself once, "
            f"got ugw.{options['eps']!r}"
        )
    solver = _check_ugw(x, y, options)
    check_one_rho(_build_problem(x, y, options))
    return solver


def _check_conic(x: Space, y: Space, options: Options) -> Any:
    """Return the solver of `options`, the default for None; raise for those that `ugw.solve_conic` refuses."""
    as_parameter("eps", options["eps"], allow_zero=True)
    cone = parse_cone(x, y, options["cone"])
    strategy = STRATEGIES[cone.solver_kind]
    solver = check_stores_plans(check_solver(options["solver"], strategy.solver), "solve_conic")
    if cone.solver_kind == "programs":  # its constructor raises if the spaces are too large
        strategy.build(x, y, rho=options["rho"], cone=cone, eps=options["eps"])
    return solver


def _build_problem(x: Space, y: Space, options: Options) -> UGW:
    """Return the UGW problem between two spaces or two batches, with plans stored as matrices, for these options."""
    return build_ugw(x, y, **{name: options[name] for name in ("rho", "eps", "fused", "loss")})


# -- solvers of batches of pairs -----------------------------------------------------------------------------


def _columns(result: Result, **extra: Tensor) -> Columns:
    """Return value (objective), mass of the plan, status, n_iter of P results, and `extra`, as arrays (P,) by name."""
    output = result.tensors
    columns = {"value": output.terms.total, "mass": output.plan.sum(dim=(1, 2), dtype=torch.float64)}
    columns |= {"status": output.status, "n_iter": output.n_iter, **extra}
    return {name: column.cpu().numpy() for name, column in columns.items()}


def _solve_ugw(x: Space, y: Space, options: Options) -> Columns:
    """Return value, mass, status, n_iter, arrays (P,) by name, of `ugw.solve` between batches x and y of P spaces."""
    return _columns(api.solve(x, y, **options))


def _solve_cross_terms(x: Space, y: Space, options: Options) -> Columns:
    """Return value, mass, status, n_iter, sign_scale, arrays (P,) by name, of `ugw.solve` between batches x and y.

    sign_scale is the distortion of the product plan a⊗b / sqrt(m(a) m(b)), the unit in which a debiased value is judged
    as negative.
    """
    return _columns(api.solve(x, y, **options), sign_scale=product_plan_distortion(_build_problem(x, y, options)))


def _solve_conic(x: Space, y: Space, options: Options) -> Columns:
    """Return value, mass, status, n_iter, distance and is_metric (0 or 1) of `ugw.solve_conic`, arrays (P,) by name."""
    result = solve_conic(x, y, **options)
    is_metric = torch.as_tensor(result.is_metric).to(torch.int64)
    return _columns(result, distance=torch.as_tensor(result.distance), is_metric=is_metric)


def solve_self_pairs(x: Space, options: Options) -> Columns:
    """Return value, mass, status, n_iter, arrays (P,) by name, of `ugw.solve` of each space of x with itself.

    Each is solved from the initial plan of `options` and from the identity, and has the result of lower value.
    """
    arguments = SolveArguments(**{name: value for name, value in options.items() if name != "init"})
    return _columns(solve_self_term(arguments, arguments.build_problem(x, x), options["init"]))


def exact_self_columns(spaces: Sequence[Space], options: Options) -> dict[str, Any]:
    """Return the columns of pairs (x, x) of value 0 by name: the mass as an array (P,), others as one number for all.

    These are status CONVERGED, is_metric 1, and value, n_iter, distance and sign_scale 0. The mass is the total weight
    of x, or if rho is a `ugw.Mass` the number in it.
    """
    rho = options["rho"]
    masses = np.array([float(rho.m) if isinstance(rho, Mass) else float(space.mass) for space in spaces])
    zeros = dict.fromkeys(("value", "n_iter", "distance", "sign_scale"), 0.0)
    return zeros | {"mass": masses, "status": int(Status.CONVERGED), "is_metric": 1}


_UGW_OPTIONS = ("loss", "fused")
METHOD_SPECS = {
    "ugw": MethodSpec(_UGW_OPTIONS, _check_ugw, _solve_ugw),
    "gw": MethodSpec(_UGW_OPTIONS, _check_ugw, _solve_ugw, default_rho=math.inf),
    "debiased": MethodSpec(_UGW_OPTIONS, _check_debiased, _solve_cross_terms, needs_self_values=True),
    "cgw": MethodSpec(("cone",), _check_conic, _solve_conic, is_zero_on_self=True, relative_cost=2),
}
