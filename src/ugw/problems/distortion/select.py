"""How a sum over pairs of pairs is made: term by term, by factors, or for each item of a batch in its own way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ...geometry.metric import Metric
from .factorize import Factors, factorize
from .pairs import Factorized, Pairs, Profile, TermByTerm, mean, reach

# Up to this many entries of a plan the sum is made term by term; up to this many if the factors of g are too coarse.
EXACT_PLAN, LONG_PLAN = 400, 2500

Sizes = Sequence[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Itemwise:
    """Each item of a batch in its own way, on its own points.

    parts: one for each item that differs, sizes: its (n, m); owner: (B,), the part that each plan belongs to.
    """

    parts: tuple[TermByTerm | Factorized, ...]
    sizes: Sizes
    owner: Tensor

    @property
    def rank(self) -> Tensor:
        """Of each item's own sum."""
        return torch.cat([part.rank for part in self.parts])[self.owner]

    @property
    def error(self) -> Tensor:
        """Of each item's own sum."""
        return torch.cat([part.error for part in self.parts])[self.owner]

    @property
    def wanted(self) -> Tensor:
        """Of each item's own sum."""
        return torch.cat([part.wanted for part in self.parts])[self.owner]

    @property
    def infinite(self) -> bool:
        """Where any is."""
        return any(part.infinite for part in self.parts)

    def apply(self, plan: Tensor) -> Tensor:
        """See `Pairs.apply`; 0 at points that an item does not have."""
        total = torch.zeros_like(plan)
        for k, items in self._groups:
            n, m = self.sizes[k]
            total[items, :n, :m] = self.parts[k].apply(plan[items, :n, :m])
        return total

    @cached_property
    def _groups(self) -> list[tuple[int, Tensor]]:
        """The parts in use, and the places of their plans."""
        return [(k, torch.nonzero(self.owner == k).flatten()) for k in self.owner.unique().tolist()]

    def mean(self, log_a: Tensor, log_b: Tensor) -> Tensor:
        """See `Pairs.mean`."""
        return mean(self, log_a, log_b)

    def on(self, dx: Metric, dy: Metric) -> Itemwise:
        """See `Pairs.on`."""
        owners = enumerate(self.owner.tolist())
        parts = tuple(self.parts[k].on(dx.item(i, dx.n), dy.item(i, dy.n)) for i, k in owners)
        return Itemwise(parts, [(dx.n, dy.n)] * len(parts), torch.arange(len(parts), device=self.owner.device))

    def take(self, index: Tensor) -> Itemwise:
        """See `Pairs.take`."""
        return replace(self, owner=self.owner[index])


def pair(
    dx: Metric,
    dy: Metric,
    g: Profile,
    *,
    sizes: Sizes | None = None,
    tol: float | None = None,
    max_rank: int | None = None,
) -> Pairs:
    """The sum for g: term by term for small plans, else factorized.

    sizes: (n, m) of each item without its padding. Where the factors do not get within the tolerance, plans of
    moderate size are summed term by term too, unless a rank was asked for.
    """
    lows, highs = zip(reach(dx), reach(dy), strict=True)
    low, high = torch.minimum(*lows), torch.maximum(*highs)  # (B,) or (1,)
    own = [(dx.n, dy.n)] if sizes is None else list(sizes)
    count = max(len(low), len(own), 1 if g.total is None else len(g.total))
    own = own * count if len(own) == 1 else own
    made: dict[tuple[float, float, float], Factors] = {}
    profiles: list[Profile] = []
    found: list[Factors | None] = []
    ends = zip(low.expand(count).tolist(), high.expand(count).tolist(), own, strict=True)
    for i, (least, most, (n, m)) in enumerate(ends):
        one = g.take(torch.tensor([i])) if g.total is not None and len(g.total) > 1 else g
        profiles.append(one)
        if n * m <= EXACT_PLAN:
            found.append(None)
            continue
        key = (least, most, 0.0 if one.total is None else float(one.total[0]))
        if key not in made:
            made[key] = replace(factorize(_plain(one), most - least, tol=tol, max_rank=max_rank), lowest=least)
        coarse = not made[key].good and max_rank is None
        found.append(None if coarse and n * m <= LONG_PLAN else made[key])
    factors = [f for f in found if f is not None]
    padded = dx.n * dy.n
    if not factors and (padded <= EXACT_PLAN or min(n * m for n, m in own) == padded):
        return TermByTerm(dx, dy, g)
    if len(factors) == count:
        return Factorized(dx, dy, tuple(factors) if len(made) > 1 else (factors[0],))
    parts: list[TermByTerm | Factorized] = []
    for i, ((n, m), one, f) in enumerate(zip(own, profiles, found, strict=True)):
        metrics = dx.item(i, n), dy.item(i, m)
        parts.append(TermByTerm(*metrics, one) if f is None else Factorized(*metrics, (f,)))
    return Itemwise(tuple(parts), own, torch.arange(count, device=dx.device))


def _plain(g: Profile) -> Callable[[Tensor], Tensor]:
    """g as a function of a tensor without a batch dimension."""
    total = None if g.total is None else g.total.double().cpu()
    return lambda t: Profile(g.loss, total)(t[None])[0]
