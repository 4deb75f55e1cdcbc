"""What a caller may say about a problem besides its spaces: rho, eps, the fused term."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.checks import as_nonnegative, as_positive, as_tensor, check_finite
from ..errors import InputError
from ..geometry.low_rank import LowRankMetric
from ..geometry.space import Space
from ..measures.cones import Cone, PartialTransport, parse_loss
from ..measures.divergences import divergence_pair
from .base import Problem
from .cgw import CGW
from .distortion.base import Distortion, PairLoss
from .distortion.itemwise import Sizes
from .distortion.select import select_distortion
from .distortion.term_by_term import TermByTermDistortion
from .partial.cgw import PartialCGW
from .ugw import UGW
from .ugw_streamed import StreamingUGW

# A loss that is infinite somewhere has no factors: its plans have at most so many entries.
INFINITE_PLAN = 2500
# Steps by linear programs are for plans of at most so many entries: larger ones take more than ten minutes.
PROGRAM_PLAN = 3600
# Plans with more entries than this are not stored where they need not be: a cost of a few ranks is made again faster
# than it is read from the memory of a GPU.
STREAMED = {"cpu": 2.5e7, "cuda": 1e7}
# eps, relative, of the UGW problem whose starts a conic problem takes.
TWIN_EPS = 1e-2


@dataclass(frozen=True, eq=False)
class Relative:
    """An eps in units of the mean distortion of the product plan; made by `relative`."""

    share: Tensor


def relative(share: Any) -> Relative:
    """eps as a share of the mean distortion Σ (Dx_ii' − Dy_jj')² under the product plan of unit mass.

    The same share gives plans of the same sharpness whatever the units of the distances.

    >>> relative(1e-2)
    Relative(share=tensor(0.0100, dtype=torch.float64))
    """
    return Relative(as_positive("relative eps", share, allow_inf=False))


def eps_or(eps: Any, default: float) -> Any:
    """The eps that a caller gave, or the default for "auto".

    >>> eps_or("auto", 0.01), eps_or(0.5, 0.01)
    (0.01, 0.5)
    """
    return default if isinstance(eps, str) and eps == "auto" else eps


@dataclass(frozen=True, eq=False)
class Fused:
    """The linear term (alpha/2)(<M, p> + <M, q>), M the squared distance of the features, or `cost`.

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


def build(
    x: Space, y: Space, *, rho: Any, eps: Any, fused: Fused | None, loss: Any = None, method: str = "stabilized"
) -> UGW:
    """The problem for two spaces, with every parameter checked and given one value per item.

    method: that of Sinkhorn; "streaming" or a large problem under "auto" is one whose plans are not stored.
    """
    check_spaces(x, y)
    div_a, div_b = divergence_pair(rho)
    share = eps.share if isinstance(eps, Relative) else as_nonnegative("eps", eps)
    stream = streams(x, y, fused=fused, loss=loss, method=method)
    alpha, cost = _fused(x, y, fused, stored=not stream)
    if stream:
        x, y = (replace(space, metric=space.metric.center(space.weight_tensor)) for space in (x, y))  # type: ignore
    counts = {
        "the first space": x.weight_tensor.shape[0] if x.batched else None,
        "the second space": y.weight_tensor.shape[0] if y.batched else None,
        "rho of the first side": count_of(div_a.rho),
        "rho of the second side": count_of(div_b.rho),
        "eps": count_of(share),
        "alpha": count_of(alpha),
        "the linear cost": cost.shape[0] if isinstance(cost, Tensor) and cost.ndim == 3 else None,
    }
    batch = common_batch(counts)
    size, device = batch or 1, x.device
    problem = (StreamingUGW if stream else UGW)(
        x,
        y,
        div_a.expand(size, device),
        div_b.expand(size, device),
        share.to(device).expand(size),
        alpha.to(device).expand(size),
        cost,
        batched=batch is not None,
        distortion_sum=None if loss is None else loss_distortion(x, y, loss),
    )
    check_hard_masses(problem)
    return replace(problem, eps=problem.eps * problem.scale()) if isinstance(eps, Relative) else problem


def streams(x: Space, y: Space, *, fused: Fused | None, loss: Any, method: str) -> bool:
    """Does a problem have plans that are not stored? Asked for by name, or chosen for a large one where it can be."""
    if method not in ("auto", "streaming"):
        return False
    stored = x.n * y.n * x.weight_tensor.element_size()
    obstacle = None
    if not all(isinstance(space.metric, LowRankMetric) for space in (x, y)):
        obstacle = (
            'low-rank spaces, Space.from_points(..., metric="sqeuclidean" or tol=0.05) or Space.compressed(tol), '
            "got stored ones"
        )
    elif loss is not None:
        obstacle = "the loss t², got another one"
    elif isinstance(fused, Fused) and fused.cost is not None:
        obstacle = f"features on the spaces, got a linear cost of {stored / 2**30:.3g} GiB"
    if method == "streaming" and obstacle is not None:
        raise InputError(f"plans that are not stored need {obstacle}")
    large = math.prod(largest_size(x, y)) > STREAMED[x.device.type if x.device.type in STREAMED else "cpu"]
    return obstacle is None and (method == "streaming" or large)


def loss_distortion(x: Space, y: Space, loss: Any) -> Distortion:
    """The distortion sum for a loss other than t²."""
    longest = longest_distance(x, y)
    read = parse_loss(loss, longest, dtype=x.dtype)
    finite = is_finite(read, longest)
    n, m = largest_size(x, y)
    if not finite and n * m > INFINITE_PLAN:
        raise InputError(
            f"a loss that is infinite for some distances is summed term by term, up to n·m = {INFINITE_PLAN}, "
            f"got {n} × {m}: take a smaller problem, a larger cutoff, or solve_conic, which needs no such sum"
        )
    if not finite:
        return TermByTermDistortion(x.metric, y.metric, PairLoss(read))
    return select_distortion(
        x.metric, y.metric, PairLoss(read), sizes=own_sizes(x, y), tol=read.tol, max_rank=read.max_rank
    )


def is_finite(loss: Cone, longest: float) -> bool:
    """Is a loss finite at all distances up to the longest?"""
    return bool(torch.isfinite(loss(torch.linspace(0.0, longest, 2000, dtype=torch.float64))).all())


def build_conic(x: Space, y: Space, *, rho: Any, cone: Any, eps: Any) -> tuple[CGW, UGW]:
    """The conic problem for two spaces, and the UGW problem with the same spaces and rhos, which has its starts."""
    twin = _twin(x, y, rho)
    entropy = as_nonnegative("eps", eps)
    if entropy.ndim and len(entropy) != twin.batch:
        raise InputError(f"batch sizes must agree, got eps {len(entropy)} and {twin.batch}")
    read = read_cone(x, y, cone)
    rho_a, rho_b = twin.div_a.rho, twin.div_b.rho
    total = rho_a + rho_b
    same = bool((total == total[0]).all())
    pair_loss = PairLoss(read, total[:1] if same else total)
    kernel = select_distortion(
        x.metric, y.metric, pair_loss, sizes=own_sizes(x, y), tol=read.tol, max_rank=read.max_rank
    )
    entropies = entropy.to(x.device).expand(twin.batch)
    return CGW(x, y, rho_a, rho_b, read, kernel, entropies, batched=twin.batched), twin


def _twin(x: Space, y: Space, rho: Any) -> UGW:
    """The UGW problem whose starts a conic problem takes."""
    check_soft(rho)
    return build(x, y, rho=rho, eps=relative(TWIN_EPS), fused=None)


def check_soft(rho: Any) -> None:
    """Raise unless rho is finite on both sides."""
    if any(bool(div.is_hard.any()) for div in divergence_pair(rho)):
        raise InputError("rho must be finite for the conic distance, got inf")


def read_cone(x: Space, y: Space, cone: Any) -> Cone:
    """The cone for two spaces, checked."""
    check_spaces(x, y)
    return parse_loss(cone, longest_distance(x, y), name="cone", dtype=x.dtype)


def build_partial(x: Space, y: Space, *, rho: Any, cone: PartialTransport, eps: Any) -> tuple[PartialCGW, UGW]:
    """The partial transport problem for two spaces, and the UGW problem with the same spaces and rhos."""
    twin = _twin(x, y, rho)
    rho_a, rho_b = twin.div_a.rho, twin.div_b.rho
    if bool((rho_a != rho_b).any()):
        i = int(torch.nonzero(rho_a != rho_b)[0])
        raise InputError(
            f"partial transport needs one rho for both sides, got {float(rho_a[i]):g} and {float(rho_b[i]):g}"
        )
    if bool((as_nonnegative("eps", eps) > 0).any()):
        raise InputError("partial transport is solved by linear programs, without entropy: eps must be 0, got more")
    n, m = largest_size(x, y)
    if n * m > PROGRAM_PLAN:
        raise InputError(
            f"partial transport is solved by linear programs, up to n·m = {PROGRAM_PLAN}, got {n} × {m}: "
            "take fewer points, or a cone over KL, which has no such limit"
        )
    return PartialCGW(x, y, rho_a, cone, batched=twin.batched), twin


def own_sizes(x: Space, y: Space) -> Sizes:
    """(n, m) of each item without its padding; of one item where neither space is a batch."""
    count = max(len(space.sizes or (0,)) for space in (x, y))
    rows, cols = (space.sizes or (space.n,) * count for space in (x, y))
    return list(zip(rows, cols, strict=True))


def largest_size(x: Space, y: Space) -> tuple[int, int]:
    """Return (n, m), without padding, of the item whose plan has the most entries."""
    return max(own_sizes(x, y), key=math.prod)


def longest_distance(x: Space, y: Space) -> float:
    """The largest difference of two distances; similarities may be negative."""
    lows, highs = zip(*(s.metric.extremes() for s in (x, y)), strict=True)
    return max(float(high.max()) for high in highs) - min(0.0, *(float(low.min()) for low in lows))


def check_spaces(x: Any, y: Any) -> None:
    """Raise unless both are spaces of one kind, on one device."""
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


def _fused(x: Space, y: Space, fused: Fused | None, *, stored: bool) -> tuple[Tensor, Any]:
    """alpha and the matrix M, or 0 and None; for a problem that stores no matrix a mark that there is one."""
    if fused is None:
        return torch.zeros((), dtype=torch.float64), None
    if not isinstance(fused, Fused):
        raise InputError(f"fused must be a ugw.Fused(alpha, cost), got {type(fused).__name__}")
    alpha = as_nonnegative("alpha", fused.alpha)
    if fused.cost is None:
        _check_features(x, y)
        return alpha, _feature_cost(x, y) if stored else True
    cost = as_tensor("the linear cost", fused.cost, like=x.weight_tensor)
    if cost.ndim not in (2, 3) or cost.shape[-2:] != (x.n, y.n):
        raise InputError(f"the linear cost must have shape (..., {x.n}, {y.n}), got {tuple(cost.shape)}")
    check_finite("the linear cost", cost)
    return alpha, cost.detach()


def _check_features(x: Space, y: Space) -> None:
    if x.feature_tensor is None or y.feature_tensor is None:
        raise InputError("a fused problem needs features on both spaces, or Fused(alpha, cost=M), got neither")


def _feature_cost(x: Any, y: Any) -> Tensor:
    pair = x.feature_tensor.detach(), y.feature_tensor.detach()
    return torch.cdist(*pair, compute_mode="donot_use_mm_for_euclid_dist").square()


def count_of(value: Tensor) -> int | None:
    """The length of a parameter (B,), or None for a number."""
    return value.shape[0] if value.ndim else None


def common_batch(counts: dict[str, int | None]) -> int | None:
    """The one batch size that all agree on, or None if nothing has one."""
    given = {name: count for name, count in counts.items() if count is not None}
    if len(set(given.values())) > 1:
        said = ", ".join(f"{name} {count}" for name, count in given.items())
        raise InputError(f"batch sizes must agree, got {said}; a rho for each side is a tuple, (rho1, rho2)")
    return next(iter(given.values()), None)


def check_hard_masses(problem: Problem) -> None:
    """Refuse two hard sides of different masses."""
    both = problem.div_a.is_hard & problem.div_b.is_hard
    off = (problem.log_mass_a - problem.log_mass_b).abs() > 1e3 * torch.finfo(problem.x.dtype).eps
    if bool((both & off).any()):
        i = int(torch.nonzero(both & off)[0])
        mass_a, mass_b = float(problem.log_mass_a[i].exp()), float(problem.log_mass_b[i].exp())
        item = f" in item {i}" if problem.batched else ""
        raise InputError(
            f"rho = inf on both sides needs equal masses, got {mass_a:.9g} and {mass_b:.9g}{item}, "
            f"which differ by {abs(mass_a - mass_b):.2g}"
        )
