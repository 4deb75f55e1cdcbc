"""What `pairwise` computes for a pair of spaces: one record for each method."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._utils.checks import as_nonnegative, check_choice
from ..api import solve as api
from ..errors import InputError
from ..geometry.space import Space
from ..initializers.conic import WAYS
from ..initializers.partial import build_capped
from ..initializers.select import STARTS
from ..learning.debiased import check_one_rho, self_result, stake
from ..measures.divergences import Divergence, Mass, divergence_pair, partial_divergences
from ..problems.build import Fused, Relative, build, check_soft, count_of, read_cone
from ..results.records import Status
from ..results.result import Result
from ..solvers.alternating import AlternateMin
from ..solvers.frank_wolfe import FrankWolfe

# Of a batch of pairs, by name, (P,) each: value, mass, status, n_iter, and what a method has besides.
Columns = dict[str, np.ndarray]
Given = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """A method of `pairwise` by name, and what is seldom said about it.

    init: the name of a start, as for `ugw.solve`; loss, fused: as there, for "ugw", "gw" and "debiased" ("fused" by the
    features of the spaces); cone: as for `ugw.solve_conic`, for "cgw".

    >>> Method("ugw", init="product")
    Method(name='ugw', init='product', loss=None, fused=None, cone=None)
    """

    name: str = "ugw"
    init: str = "auto"
    loss: Any = None
    fused: Fused | None = None
    cone: Any = None

    def __post_init__(self) -> None:
        check_choice("method", self.name, tuple(RECIPES))
        check_choice(f"init of method {self.name!r}", self.init, STARTS)
        for name in (f.name for f in fields(self)[2:]):
            if getattr(self, name) is not None and name not in self.recipe.knows:
                raise InputError(f"method {self.name!r} has no {name}, got {getattr(self, name)!r}")
        if self.fused is not None and (not isinstance(self.fused, Fused) or self.fused.cost is not None):
            raise InputError(
                f"fused of pairwise must be ugw.Fused(alpha), by the features of the spaces, got {self.fused!r}"
            )

    @property
    def recipe(self) -> Recipe:
        """How it is computed."""
        return RECIPES[self.name]

    def given(self, rho: Any, eps: Any, solver: Any) -> Given:
        """The arguments of a solve, with this method's rho and eps for "auto"."""
        recipe = self.recipe
        rho = recipe.rho if isinstance(rho, str) and rho == "auto" else rho
        capped = partial_divergences(rho) is not None
        eps = (0.0 if capped else recipe.eps) if isinstance(eps, str) and eps == "auto" else eps
        own = {name: getattr(self, name) for name in recipe.knows}
        if "cone" in own:
            own["cone"] = "gaussian-hellinger" if self.cone is None else self.cone
        made = {"rho": rho, "eps": eps, "solver": solver, "init": self.init, **own}
        _check_eps(eps)
        if self.name == "cgw":
            check_soft(rho)
        if self.name == "gw" and not _hard(rho):
            raise InputError(f"method 'gw' keeps both marginals, rho = inf, got rho={rho!r}: method 'ugw' has a rho")
        return made


@dataclass(frozen=True)
class Recipe:
    """A method: its defaults, the options it knows, and its functions of batches of pairs.

    check: refuse what no pair can be solved with, asked of the largest spaces; cross: of pairs of spaces;
    own: of spaces, each with itself; at_zero: is a space exactly 0 from itself? selves: is a value made of that of a
    pair and those of both spaces with themselves? weight: what a pair takes, against one of "ugw".
    """

    rho: float
    eps: float
    knows: tuple[str, ...]
    check: Callable[[Space, Space, Given], None]
    cross: Callable[[Space, Space, Given], Columns]
    own: Callable[[Space, Given], Columns]
    at_zero: Callable[[Given], bool]
    selves: bool = False
    weight: int = 1


# -- what is asked of the arguments --------------------------------------------------------------------------


def symmetric(given: Given) -> bool:
    """Is the value of (x, y) that of (y, x)? It is with one rho for both sides."""
    first, second = _pair(given["rho"])
    return bool(first._parameter == second._parameter)


def both_hard(given: Given) -> bool:
    """Are both marginals kept, so that all masses must be equal?"""
    return _hard(given["rho"])


def _hard(rho: Any) -> bool:
    return all(bool(side.is_hard) for side in _pair(rho))


def _pair(rho: Any) -> tuple[Divergence, Divergence]:
    """The divergences of both sides, with one parameter each: an array would be one for each item of a batch."""
    pair = partial_divergences(rho) or divergence_pair(rho)
    if any(count_of(side._parameter) is not None for side in pair):
        raise InputError("rho of pairwise must be one number for all pairs, or a tuple of two, got an array")
    return pair


def _check_eps(eps: Any) -> None:
    if isinstance(eps, list | tuple):
        raise InputError(f"eps of pairwise must be one number for all pairs, got a {type(eps).__name__}")
    share = eps.share if isinstance(eps, Relative) else as_nonnegative("eps", eps)
    if count_of(share) is not None:
        raise InputError("eps of pairwise must be one number for all pairs, got an array")


def _check_ugw(x: Space, y: Space, given: Given) -> None:
    capped = partial_divergences(given["rho"])
    if capped is not None:
        build_capped(x, y, sides=capped, eps=given["eps"], fused=given["fused"], loss=given["loss"])
        api.checked_solver(given["solver"], FrankWolfe())
        return
    api.checked_solver(given["solver"], AlternateMin())
    build(x, y, **_objective(given))


def _check_debiased(x: Space, y: Space, given: Given) -> None:
    if partial_divergences(given["rho"]) is not None:
        raise InputError(f"method 'debiased' needs a rho of KL, got {given['rho']!r}")
    if isinstance(given["eps"], Relative):
        raise InputError(
            f"eps of method 'debiased' must be one number, so that a space is solved with itself once, "
            f"got ugw.relative({given['eps'].share!r})"
        )
    _check_ugw(x, y, given)
    check_one_rho(build(x, y, **_objective(given)))


def _check_conic(x: Space, y: Space, given: Given) -> None:
    as_nonnegative("eps", given["eps"])
    cone = read_cone(x, y, given["cone"])
    way = WAYS[cone.solver_kind]
    api.checked_solver(given["solver"], way.solver)
    if cone.solver_kind == "programs":  # for small spaces alone
        way.build(x, y, rho=given["rho"], cone=cone, eps=given["eps"])


def _objective(given: Given) -> Given:
    return {name: given[name] for name in ("rho", "eps", "fused", "loss")}


# -- what is computed ----------------------------------------------------------------------------------------


def _columns(result: Result, **more: Tensor) -> Columns:
    found = result.tensors
    made = {"value": found.terms.total, "mass": found.plan.sum(dim=(1, 2), dtype=torch.float64)}
    made |= {"status": found.status, "n_iter": found.n_iter, **more}
    return {name: column.cpu().numpy() for name, column in made.items()}


def _ugw(x: Space, y: Space, given: Given) -> Columns:
    return _columns(api.solve(x, y, **given))


def _own_ugw(x: Space, given: Given) -> Columns:
    rest = {name: value for name, value in given.items() if name != "init"}
    return _columns(self_result(x, rest, given["init"]))


def _debiased(x: Space, y: Space, given: Given) -> Columns:
    return _columns(api.solve(x, y, **given), stake=stake(build(x, y, **_objective(given))))


def _own_debiased(x: Space, given: Given) -> Columns:
    made = _own_ugw(x, given)
    return made | {"stake": np.zeros_like(made["value"])}


def _conic(x: Space, y: Space, given: Given) -> Columns:
    result = api.solve_conic(x, y, **given)
    metric = torch.as_tensor(result.is_metric).to(torch.int64)
    return _columns(result, distance=torch.as_tensor(result.distance), metric=metric)


def _own_conic(x: Space, given: Given) -> Columns:
    raise RuntimeError("a space is at distance 0 from itself")


def _no_entropy(given: Given) -> bool:
    """Without entropy the identity costs nothing, λ(0) being 0, and nothing costs less."""
    return not isinstance(given["eps"], Relative) and float(given["eps"]) == 0.0


def at_itself(x: Space, given: Given) -> dict[str, Any]:
    """The columns of a space that is exactly 0 from itself: the identity, of its whole mass or of the one asked for."""
    rho = given["rho"]
    kept = float(rho.m) if isinstance(rho, Mass) else float(x.mass)
    zeros = dict.fromkeys(("value", "n_iter", "distance", "stake"), 0.0)
    return zeros | {"mass": kept, "status": int(Status.CONVERGED), "metric": 1}


_SAID = ("loss", "fused")
RECIPES = {
    "ugw": Recipe(1.0, 1e-2, _SAID, _check_ugw, _ugw, _own_ugw, _no_entropy),
    "gw": Recipe(math.inf, 1e-2, _SAID, _check_ugw, _ugw, _own_ugw, _no_entropy),
    "debiased": Recipe(1.0, 1e-2, _SAID, _check_debiased, _debiased, _own_debiased, _no_entropy, selves=True),
    "cgw": Recipe(1.0, 0.0, ("cone",), _check_conic, _conic, _own_conic, lambda given: True, weight=2),
}
