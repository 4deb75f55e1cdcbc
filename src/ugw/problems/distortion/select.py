"""Choice of the method for a distortion sum: term by term, factorized, or item by item."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ..._utils.size_class import THRESHOLDS
from ...errors import InputError
from ...geometry.metric import Metric
from .base import Distortion, PairLoss, distance_range
from .config import DISTORTION_CONFIG
from .factorize import LossFactors, factorize
from .factorized import FactorizedDistortion
from .itemwise import ItemwiseDistortion, Sizes
from .term_by_term import TermByTermDistortion


def select_distortion(
    dx: Metric,
    dy: Metric,
    g: PairLoss,
    *,
    sizes: Sizes | None = None,
    tol: float | None = None,
    max_rank: int | None = None,
) -> Distortion:
    """Return the Distortion object that computes Σ_i'j' g(|Dx_ii' − Dy_jj'|) plan_i'j' for plans between two metrics.

    The method is chosen for each batch item: term by term if n·m ≤ 400, otherwise by low-rank factors of g, the loss λ
    or the conic kernel. If the factors miss their tolerance, plans of n·m ≤ 2500 are summed term by term too, unless
    `max_rank` is given; larger plans keep the factors, and the `error` of the object is above its `tolerance`.
    If the items differ in method or factors, or are small but padded to a large size, each has its own object inside
    an ItemwiseDistortion.
    sizes: (n, m) of each item, padded points not counted, None for those of the metrics; tol: error of the factors as a
    fraction of the range of g; max_rank: limit of their rank.
    """
    lows, highs = zip(distance_range(dx), distance_range(dy), strict=True)
    low, high = torch.minimum(*lows), torch.maximum(*highs)  # (B,) or (1,)
    item_sizes = [(dx.n, dy.n)] if sizes is None else list(sizes)
    count = max(len(low), len(item_sizes), 1 if g.rho_total is None else len(g.rho_total))
    item_sizes = item_sizes * count if len(item_sizes) == 1 else item_sizes
    losses = [g.take(torch.tensor([i])) for i in range(count)]
    ranges = zip(low.expand(count).tolist(), high.expand(count).tolist(), strict=True)
    item_factors = _factors_of_items(losses, list(ranges), item_sizes, tol=tol, max_rank=max_rank)

    factors = [f for f in item_factors if f is not None]
    padded = dx.n * dy.n
    if not factors and (padded <= DISTORTION_CONFIG.max_exact_plan or min(n * m for n, m in item_sizes) == padded):
        return TermByTermDistortion(dx, dy, g)
    is_shared = not dx.batched and not dy.batched and len(factors) == count and all(f is factors[0] for f in factors)
    if is_shared:
        return FactorizedDistortion(dx, dy, factors[0])
    parts: list[Distortion] = []
    for i, ((n, m), loss, f) in enumerate(zip(item_sizes, losses, item_factors, strict=True)):
        metrics = dx.item(i, n), dy.item(i, m)
        parts.append(TermByTermDistortion(*metrics, loss) if f is None else FactorizedDistortion(*metrics, f))
    return ItemwiseDistortion(tuple(parts), item_sizes, torch.arange(count, device=dx.device))


def _factors_of_items(
    losses: list[PairLoss],
    ranges: list[tuple[float, float]],
    sizes: Sizes,
    *,
    tol: float | None,
    max_rank: int | None,
) -> list[LossFactors | None]:
    """Return the low-rank factors of the loss of each item, None for items that are to be summed term by term.

    Summed term by term are items with n·m ≤ 400, those whose loss is infinite somewhere, and, unless `max_rank` is
    given, items with n·m ≤ 2500 whose factors miss the tolerance.
    ranges: lowest and highest distance of each item, between which its loss is factorized; sizes: (n, m) of each item;
    tol: error of the factors as a fraction of the range of the loss; max_rank: limit of their rank. Items with the same
    loss and range share one factorization.
    """
    factors: list[LossFactors | None] = []
    computed: dict[tuple[float, float, float], LossFactors] = {}
    for loss, (lowest, highest), (n, m) in zip(losses, ranges, sizes, strict=True):
        if n * m <= DISTORTION_CONFIG.max_exact_plan:
            factors.append(None)
            continue
        if not loss.is_finite_up_to(highest - lowest):
            _check_size_of_infinite_loss(n, m)
            factors.append(None)
            continue
        key = (lowest, highest, 0.0 if loss.rho_total is None else float(loss.rho_total[0]))
        if key not in computed:
            from_zero = factorize(_without_batch_dimension(loss), highest - lowest, tol=tol, max_rank=max_rank)
            computed[key] = replace(from_zero, lowest=lowest)
        is_coarse = not computed[key].meets_tolerance and max_rank is None
        term_by_term = is_coarse and n * m <= DISTORTION_CONFIG.max_exact_plan_if_coarse
        factors.append(None if term_by_term else computed[key])
    return factors


def _check_size_of_infinite_loss(n: int, m: int) -> None:
    """Raise InputError if n·m is too large to sum term by term, as a loss that is infinite somewhere needs."""
    max_entries = THRESHOLDS.max_entries_of_infinite_loss
    if n * m > max_entries:
        raise InputError(
            f"a loss that is infinite for some distances is summed term by term, up to n·m = {max_entries}, "
            f"got {n} × {m}: take a smaller problem, a larger cutoff, or solve_conic, which needs no such sum"
        )


def _without_batch_dimension(g: PairLoss) -> Callable[[Tensor], Tensor]:
    """Return g, loss or kernel of a batch of one item, as a function of float64 tensors without a batch dimension."""
    rho_total = None if g.rho_total is None else g.rho_total.double().cpu()
    return lambda t: PairLoss(g.loss, rho_total)(t[None])[0]
