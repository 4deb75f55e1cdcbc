"""Problems built from the arguments of users: spaces, rho, eps, loss, cone and fused term, after checks of each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.checks import as_parameter, as_tensor, check_finite, describe_value, is_array_like
from .._utils.size_class import THRESHOLDS
from ..errors import InputError
from ..geometry.low_rank import LowRankMetric
from ..geometry.point_distances import euclidean_distances
from ..geometry.space import Space
from ..measures.cones import Cone, PartialTransport, parse_loss
from ..measures.divergences import KL, TV, Mass, divergence_pair, partial_divergences
from .base import Problem, SpacePair
from .cgw import CGW
from .config import PROBLEM_CONFIG
from .distortion.base import Distortion, PairLoss
from .distortion.itemwise import Sizes
from .distortion.select import select_distortion
from .partial.cgw import PartialCGW
from .partial.gw import PartialGW
from .ugw import UGW
from .ugw_streamed import StreamingUGW


@dataclass(frozen=True, eq=False)
class Relative:
    """An eps in units of the mean distortion of the product plan a⊗b. share: () or (B,), the number of these units."""

    share: Tensor

    def __repr__(self) -> str:
        """Return the call of `relative` that makes this object, such as "relative(0.01)"."""
        return f"relative({self.share.tolist()})"


def relative(share: Any) -> Relative:
    """Return an eps of `share` times the mean distortion of the product plan p = a⊗b of mass 1, as a `Relative` object.

    The mean distortion is Σ λ(|Dx_ii' − Dy_jj'|) p_ij p_i'j', λ(t) = t² unless `loss` is given; in `solve_linear` it is
    the mean cost. The same share gives plans of the same sharpness whatever the units of the distances.

    >>> relative(1e-2)
    relative(0.01)
    """
    return Relative(as_parameter("relative eps", share))


def resolve_eps(eps: Any, rho: Any) -> Any:
    """Return `eps` as given, or for "auto" `relative(1e-2)`, 0.0 if rho is TV or Mass; InputError for None, other text.

    >>> resolve_eps(0.5, 1.0)
    0.5
    >>> resolve_eps("auto", 1.0)
    relative(0.01)
    """
    if any(isinstance(side, Relative) for side in (rho if isinstance(rho, tuple) else (rho,))):
        raise InputError("rho must be a number, got a relative eps: ugw.relative is for eps only")
    if eps is not None and not isinstance(eps, str):
        return eps
    if eps != "auto":
        raise InputError(
            f'eps must be a number, a relative eps or "auto", got {describe_value(eps)}: 1 % is ugw.relative(0.01)'
        )
    return relative(PROBLEM_CONFIG.auto_eps_share) if partial_divergences(rho) is None else 0.0


def resolve_conic_eps(eps: Any) -> Any:
    """Return `eps` as given, or 0.0 for "auto"; raise InputError unless it is a number, an array or "auto".

    eps: entropy of the preliminary phase of `ugw.solve_conic`, as a multiple of rho; 0 is no such phase.

    >>> resolve_conic_eps("auto"), resolve_conic_eps(0.1)
    (0.0, 0.1)
    """
    if isinstance(eps, str) and eps == "auto":
        return 0.0
    if isinstance(eps, str | Relative) or not is_array_like(eps):
        raise InputError(
            f'eps of a conic problem must be a number or an array (B,), multiples of rho, or "auto", which is 0, '
            f"got {describe_value(eps)}"
        )
    return eps


@dataclass(frozen=True, eq=False)
class Fused:
    """The linear term alpha <M, p> of a plan p, with M the squared distances between the features, or `cost`.

    For the two plans p, q of the alternation it is (alpha/2)(<M, p> + <M, q>).

    alpha: a number ≥ 0, or an array (B,); cost: (n, m) or (B, n, m), or None to take the spaces' features.

    >>> import numpy as np, ugw
    >>> square = [[0, 0], [0, 1], [1, 1], [1, 0]]  # can be turned four times; the color says which way
    >>> x = ugw.Space.from_points(square, features=[[1.0], [0.0], [0.0], [0.0]])
    >>> y = ugw.Space.from_points(square, features=[[0.0], [0.0], [1.0], [0.0]])
    >>> int(ugw.solve(x, y, fused=ugw.Fused(0.5)).plan[0].argmax())
    2
    """

    alpha: Any
    cost: Any = None


def check_fused(fused: Any) -> None:
    """Raise InputError unless the argument `fused` is a `Fused` or None."""
    if fused is not None and not isinstance(fused, Fused):
        raise InputError(f"fused must be a ugw.Fused(alpha, cost), got {type(fused).__name__}")


def build_ugw(
    x: Space, y: Space, *, rho: Any, eps: Any, fused: Fused | None, loss: Any = None, method: str = "stabilized"
) -> UGW:
    """Return the UGW problem of two spaces: a `StreamingUGW` if its plans are not stored (`uses_streaming`).

    rho, eps and alpha get one value per batch item; a relative eps becomes a number. rho: marginal penalties; eps: a
    number, an array or relative, not "auto"; fused: linear term or None; loss: λ, t² if None; method: that of Sinkhorn.
    Raises InputError for invalid arguments, batch sizes that disagree, and hard marginals of different masses.
    """
    check_spaces(x, y)
    if fused is not None:
        check_fused(fused)
    div_a, div_b = divergence_pair(rho)
    share = eps.share if isinstance(eps, Relative) else as_parameter("eps", eps, allow_zero=True)
    stream = uses_streaming(x, y, fused=fused, loss=loss, method=method)
    alpha, cost = torch.zeros((), dtype=torch.float64), None
    if fused is not None:
        alpha, cost = _fused_cost(x, y, fused, stored=not stream)
    if stream:
        x, y = (replace(space, metric=space.metric.center(space.weight_tensor)) for space in (x, y))  # type: ignore
    batch = common_batch_size(
        {
            "the first space": x.weight_tensor[..., 0],
            "the second space": y.weight_tensor[..., 0],
            "rho of the first side": div_a.rho,
            "rho of the second side": div_b.rho,
            "eps": share,
            "alpha": alpha,
            "the linear cost": cost[..., 0, 0] if isinstance(cost, Tensor) else None,
        }
    )
    size, device = batch or 1, x.device
    first = div_a.expand(size, device)
    problem = (StreamingUGW if stream else UGW)(
        x,
        y,
        first,
        first if div_b is div_a else div_b.expand(size, device),
        share.to(device).expand(size),
        alpha.to(device).expand(size),
        cost,
        batched=batch is not None,
        distortion_sum=None if loss is None else loss_distortion(x, y, loss),
    )
    check_hard_masses(problem)
    return (
        replace(problem, eps=_drop_last_bits(problem.eps * problem.scale())) if isinstance(eps, Relative) else problem
    )


def _drop_last_bits(values: Tensor) -> Tensor:
    """Return positive values (B,) rounded to 13 bits less than float64 has, differentiable with derivative 1 (Dekker).

    So an item has the same eps alone and in a batch: sums over other items round differently in the last bits.
    """
    split = values * (2.0**PROBLEM_CONFIG.dropped_eps_bits + 1.0)
    rounded = split - (split - values)
    return torch.where(torch.isfinite(rounded), rounded, values)


def uses_streaming(x: Space, y: Space, *, fused: Fused | None, loss: Any, method: str) -> bool:
    """Return whether plans are kept as potentials and low-rank factors (streaming) instead of matrices (n, m).

    True for the method "streaming", and for "auto" if spaces, loss and linear cost allow it and plans are large. Raises
    InputError if they do not allow the method "streaming", or if with "auto" only some items of a batch are large.
    """
    if method not in ("auto", "streaming"):
        return False
    obstacle = None
    if not all(isinstance(space.metric, LowRankMetric) for space in (x, y)):
        obstacle = (
            'low-rank spaces, Space.from_points(..., metric="sqeuclidean" or tol=0.05) or Space.compressed(tol), '
            "got stored ones"
        )
    elif loss is not None:
        obstacle = "the loss t², got another one"
    elif fused is not None and fused.cost is not None:
        plan_bytes = x.n * y.n * x.weight_tensor.element_size()
        obstacle = f"features on the spaces, got a linear cost of {plan_bytes / 2**30:.3g} GiB"
    if obstacle is not None:
        if method == "streaming":
            raise InputError(f"plans that are not stored need {obstacle}")
        return False
    return method == "streaming" or _are_large_plans(x, y)


def _are_large_plans(x: Space, y: Space) -> bool:
    """Return whether plans have more than `max_stored_entries` entries; raise InputError if only some items have."""
    limits = THRESHOLDS.max_stored_entries
    limit = limits.get(x.device.type, limits["cpu"])
    ends = [pick(item_sizes(x, y), key=math.prod) for pick in (min, max)]
    smallest, largest = (math.prod(size) for size in ends)
    if smallest <= limit < largest:
        n_entries = " and ".join(f"{n} × {m}" for n, m in ends)
        raise InputError(
            f"the plans of a batch must be of one kind, and by default those of more than {limit:.3g} entries are not "
            f"stored, got items of {n_entries}: solve large and small items in two calls, or all of them with "
            'inner=Sinkhorn(method="streaming") or "stabilized"'
        )
    return largest > limit


def loss_distortion(x: Space, y: Space, loss: Any) -> Distortion:
    """Return the object that computes Σ_i'j' λ(|Dx_ii' − Dy_jj'|) p_i'j' of plans p; loss: λ, a cone or its name."""
    cone = parse_loss(loss, max_distance_difference(x, y), dtype=x.dtype)
    return _cone_distortion(x, y, PairLoss(cone), cone)


def _cone_distortion(x: Space, y: Space, g: PairLoss, cone: Cone) -> Distortion:
    """Return the object that computes Σ_i'j' g(|Dx_ii' − Dy_jj'|) p_i'j' of plans p; g: loss or conic kernel."""
    return select_distortion(x.metric, y.metric, g, sizes=item_sizes(x, y), tol=cone.tol, max_rank=cone.max_rank)


def build_conic(x: Space, y: Space, *, rho: Any, cone: Any, eps: Any) -> tuple[CGW, UGW]:
    """Return the conic problem of two spaces, and the UGW problem of the same rhos from whose plans its solve starts.

    The UGW problem has the loss t² and as eps 0.01 of the mean distortion. cone: a cone, a loss function or a name;
    eps: entropy of a preliminary phase, a multiple of rho; "auto" is 0.
    """
    surrogate = _conic_surrogate(x, y, rho)
    entropy = as_parameter("eps", resolve_conic_eps(eps), allow_zero=True)
    if entropy.ndim and len(entropy) != surrogate.batch:
        raise InputError(f"batch sizes must agree, got eps {len(entropy)} and {surrogate.batch}")
    parsed_cone = parse_cone(x, y, cone)
    rho_a, rho_b = surrogate.div_a.rho, surrogate.div_b.rho
    total = rho_a + rho_b
    pair_loss = PairLoss(parsed_cone, total[:1] if bool((total == total[0]).all()) else total)
    kernel = _cone_distortion(x, y, pair_loss, parsed_cone)
    entropies = entropy.to(x.device).expand(surrogate.batch)
    return CGW(x, y, rho_a, rho_b, parsed_cone, kernel, entropies, batched=surrogate.batched), surrogate


def _conic_surrogate(x: Space, y: Space, rho: Any) -> UGW:
    """Return the UGW problem of these spaces and rhos, loss t², eps 0.01 of the mean distortion; InputError for inf."""
    check_finite_rho(rho)
    return build_ugw(x, y, rho=rho, eps=relative(PROBLEM_CONFIG.surrogate_eps_share), fused=None)


def check_finite_rho(rho: Any) -> None:
    """Raise InputError unless rho, a number, array, KL or tuple of two, is finite on both sides of all items."""
    if any(bool(div.is_hard.any()) for div in divergence_pair(rho)):
        raise InputError("rho must be finite for the conic distance, got inf")


def parse_cone(x: Space, y: Space, cone: Any) -> Cone:
    """Return the cone for a name, a loss function (a `Loss`) or a cone; InputError if it or a space is invalid."""
    check_spaces(x, y)
    return parse_loss(cone, max_distance_difference(x, y), name="cone", dtype=x.dtype)


def build_partial_conic(x: Space, y: Space, *, rho: Any, cone: PartialTransport, eps: Any) -> tuple[PartialCGW, UGW]:
    """Return the partial conic problem of two spaces, and the UGW problem from whose plans its solve starts.

    The UGW problem has the same rhos, the loss t² and as eps 0.01 of the mean distortion.
    Raises InputError unless rho is the same on both sides, eps is 0 or "auto", and plans have few enough entries.
    """
    surrogate = _conic_surrogate(x, y, rho)
    rho_a, rho_b = surrogate.div_a.rho, surrogate.div_b.rho
    if bool((rho_a != rho_b).any()):
        i = int(torch.nonzero(rho_a != rho_b)[0])
        raise InputError(
            f"partial transport needs one rho for both sides, got {float(rho_a[i]):g} and {float(rho_b[i]):g}"
        )
    eps = eps if isinstance(eps, Relative) else resolve_conic_eps(eps)
    check_zero_eps(eps, "partial transport is solved by linear programs")
    n, m = max(item_sizes(x, y), key=math.prod)
    max_entries = THRESHOLDS.max_entries_of_linear_programs
    if n * m > max_entries:
        raise InputError(
            f"partial transport is solved by linear programs, up to n·m = {max_entries}, got {n} × {m}: "
            "take fewer points, or a cone over KL, which has no such limit"
        )
    return PartialCGW(x, y, rho_a, cone, batched=surrogate.batched), surrogate


def build_partial(
    x: Any, y: Any, *, sides: tuple[TV | Mass, TV | Mass], eps: Any, fused: Fused | None, loss: Any
) -> tuple[PartialGW, UGW]:
    """Return the partial GW problem of two spaces, and a UGW problem from whose plans its solve starts.

    sides: the divergences of both sides; eps: 0 or "auto"; fused: linear term; loss: λ, t² if None. The UGW problem has
    the rhos of TV, or for Mass 0.03 of the mean distortion, and as eps 0.01 of the mean distortion, at most 0.2 of rho.
    """
    check_zero_eps(resolve_eps(eps, sides[0]), "TV and Mass are solved by exact linear programs")
    rhos = [KL(side.rho.detach()) if isinstance(side, TV) else torch.ones_like(side.m) for side in sides]
    ugw = build_ugw(x, y, rho=tuple(rhos), eps=relative(PROBLEM_CONFIG.surrogate_eps_share), fused=fused, loss=loss)
    if ugw.distortion_sum.may_be_infinite:
        raise InputError("TV and Mass need a loss that is finite everywhere, got one that is infinite somewhere")
    div_a, div_b = (side.expand(ugw.batch, x.device) for side in sides)
    zero = torch.zeros_like(ugw.eps)
    problem = PartialGW(x, y, div_a, div_b, zero, ugw.alpha, ugw.cost, ugw.distortion_sum, batched=ugw.batched)
    if isinstance(div_a, Mass):
        check_mass(ugw, div_a.m)
        rho = KL(ugw.eps * (PROBLEM_CONFIG.surrogate_rho_share / PROBLEM_CONFIG.surrogate_eps_share))
        ugw = replace(ugw, div_a=rho, div_b=rho)
    max_eps = PROBLEM_CONFIG.max_surrogate_eps_over_rho * torch.minimum(ugw.div_a.rho, ugw.div_b.rho)
    return problem, replace(ugw, eps=torch.minimum(ugw.eps, max_eps))


def check_zero_eps(eps: Any, reason: str) -> None:
    """Raise InputError unless eps is 0. eps: a number, an array (B,) or a Relative; reason: begins the message."""
    values = eps.share if isinstance(eps, Relative) else as_parameter("eps", eps, allow_zero=True)
    if bool((values > 0).any()):
        largest = f"{float(values.detach().max()):g}"
        text = f"relative({largest})" if isinstance(eps, Relative) else largest
        raise InputError(f"{reason}, without entropy: eps must be 0, got {text}")


def check_mass(problem: SpacePair, mass: Tensor) -> None:
    """Raise InputError if the mass (B,) required of plans is above the mass of either side, beyond rounding."""
    max_mass = torch.minimum(problem.log_mass_a, problem.log_mass_b).exp()
    is_above = mass > max_mass * (1.0 + PROBLEM_CONFIG.mass_rounding_units * torch.finfo(problem.x.dtype).eps)
    if bool(is_above.any()):
        i = int(torch.nonzero(is_above)[0])
        item = f" in item {i}" if problem.batched else ""
        raise InputError(
            f"Mass(m) must be at most the smaller of both masses, got m = {float(mass[i]):.9g}{item}, "
            f"expected at most {float(max_mass[i]):.9g}"
        )


def item_sizes(x: Space, y: Space) -> Sizes:
    """Return the list of (n, m) of all items, padded points not counted; one entry if neither space is a batch.

    Only the padded (n, m) where the batch sizes of the spaces disagree, which is an error reported later.
    """
    if x.sizes and y.sizes and len(x.sizes) != len(y.sizes):
        return [(x.n, y.n)]
    count = max(len(space.sizes or (0,)) for space in (x, y))
    rows, cols = (space.sizes or (space.n,) * count for space in (x, y))
    return list(zip(rows, cols, strict=True))


def max_distance_difference(x: Space, y: Space) -> float:
    """Return an upper bound on |Dx_ii' − Dy_jj'| over all batch items, one float.

    It is the largest entry of both matrices minus the smallest one if that is negative (similarities), else minus 0.
    """
    lows, highs = zip(*(s.metric.extremes() for s in (x, y)), strict=True)
    return max(float(high.max()) for high in highs) - min(0.0, *(float(low.min()) for low in lows))


def check_spaces(x: Any, y: Any) -> None:
    """Raise InputError unless x and y are spaces of one dtype and device, with features of one width or none."""
    for name, space in (("first", x), ("second", y)):
        if not isinstance(space, Space):
            raise InputError(
                f"the {name} space must be a ugw.Space, got {type(space).__name__}: make one with "
                "Space.from_points, from_distances, from_graph, from_knn, from_mesh or from_matrix"
            )
    if x.dtype != y.dtype:
        raise InputError(f"both spaces must have one dtype, got {x.dtype} and {y.dtype}: use Space.to(dtype)")
    if x.device != y.device:
        raise InputError(f"both spaces must be on one device, got {x.device} and {y.device}: use Space.to(device)")
    if (x.feature_tensor is None) != (y.feature_tensor is None):
        raise InputError("features must be on both spaces or on none, got them on one side only")
    if x.feature_tensor is not None and x.feature_tensor.shape[-1] != y.feature_tensor.shape[-1]:
        raise InputError(
            f"features must have one width, got {x.feature_tensor.shape[-1]} and {y.feature_tensor.shape[-1]}"
        )


def _fused_cost(x: Space, y: Space, fused: Fused, *, stored: bool) -> tuple[Tensor, Any]:
    """Return alpha, () or (B,), and the linear cost M, (n, m) or (B, n, m).

    stored: if False, True is returned in place of the M of features, which StreamingUGW computes itself.
    """
    alpha = as_parameter("alpha", fused.alpha, allow_zero=True)
    if fused.cost is None:
        if x.feature_tensor is None or y.feature_tensor is None:
            raise InputError("a fused problem needs features on both spaces, or Fused(alpha, cost=M), got neither")
        return alpha, _feature_cost(x, y) if stored else True
    cost = as_tensor("the linear cost", fused.cost, like=x.weight_tensor)
    if cost.ndim not in (2, 3) or cost.shape[-2:] != (x.n, y.n):
        raise InputError(f"the linear cost must have shape (..., {x.n}, {y.n}), got {tuple(cost.shape)}")
    check_finite("the linear cost", cost)
    return alpha, cost.detach()


def _feature_cost(x: Any, y: Any) -> Tensor:
    """Return the squared distances (..., n, m) between the features of two spaces, which must have them."""
    return euclidean_distances(x.feature_tensor.detach(), y.feature_tensor.detach(), squared=True)


def common_batch_size(inputs: dict[str, Tensor | None]) -> int | None:
    """Return the batch size B of the inputs, None if none of them is a batch; raise InputError if they disagree.

    inputs: by name, tensors (B,) or (), or None, which is ignored.
    """
    sizes = {name: len(value) for name, value in inputs.items() if value is not None and value.ndim}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in sizes.items())
        raise InputError(f"batch sizes must agree, got {listed}; a rho for each side is a tuple, (rho1, rho2)")
    return next(iter(sizes.values()), None)


def check_hard_masses(problem: Problem) -> None:
    """Raise InputError if both sides of an item are hard and their masses differ by more than rounding."""
    both = problem.div_a.is_hard & problem.div_b.is_hard
    if not bool(both.any()):
        return
    off = (problem.log_mass_a - problem.log_mass_b).abs() > PROBLEM_CONFIG.hard_mass_rounding_units * torch.finfo(
        problem.x.dtype
    ).eps
    if bool((both & off).any()):
        i = int(torch.nonzero(both & off)[0])
        mass_a, mass_b = float(problem.log_mass_a[i].exp()), float(problem.log_mass_b[i].exp())
        item = f" in item {i}" if problem.batched else ""
        raise InputError(
            f"rho = inf on both sides needs equal masses, got {mass_a:.9g} and {mass_b:.9g}{item}, "
            f"which differ by {abs(mass_a - mass_b):.2g}"
        )
