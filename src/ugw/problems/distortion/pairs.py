"""Sums over pairs of pairs, Σ g(|Dx_ii' − Dy_jj'|) plan_i'j': the one expensive product of every outer step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from ...geometry.metric import Metric
from .factorize import Factors

# Term-by-term sums are made in blocks of about so many terms.
BLOCK_TERMS = 2**23
# Evaluated factors are kept if they take no more than this many bytes, or half of what is free on a CUDA device;
# else they are made anew in every product.
KEPT_BYTES = 4 * 2**30


class Pairs(Protocol):
    """The four-index sum for two metrics, batch dimension B of the plans."""

    @property
    def rank(self) -> Tensor:
        """(B,) or (1,) products of matrices that it takes; 0 if it is made term by term."""

    @property
    def error(self) -> Tensor:
        """(B,) or (1,) bound on the error of g."""

    @property
    def wanted(self) -> Tensor:
        """(B,) or (1,), what that bound should be at most."""

    def apply(self, plan: Tensor) -> Tensor:
        """Σ_i'j' g(|Dx_ii' − Dy_jj'|) plan_i'j'. plan: (B, n, m). Returns (B, n, m)."""

    @property
    def infinite(self) -> bool:
        """May a value of g be infinite?"""

    def mean(self, log_a: Tensor, log_b: Tensor) -> Tensor:
        """The mean of g under weights of unit mass. log_a: (B, n); log_b: (B, m). Returns (B,)."""

    def on(self, dx: Metric, dy: Metric) -> Pairs:
        """The same function on other metrics whose distances are no longer."""

    def take(self, index: Tensor) -> Pairs:
        """The sums of some batch items."""


@dataclass(frozen=True, eq=False)
class Squares:
    """g(t) = t²: (Dx∘Dx) p1 ⊕ (Dy∘Dy) p2 − 2 Dx p Dy."""

    dx: Metric
    dy: Metric

    @property
    def rank(self) -> Tensor:
        """Three."""
        return torch.full((1,), 3, device=self.dx.device)

    @property
    def error(self) -> Tensor:
        """None but rounding."""
        return torch.zeros(1, dtype=torch.float64, device=self.dx.device)

    @property
    def wanted(self) -> Tensor:
        """None."""
        return self.error

    @property
    def infinite(self) -> bool:
        """Never."""
        return False

    def apply(self, plan: Tensor) -> Tensor:
        """See `Pairs.apply`."""
        cross = sandwich(self.dx, plan, self.dy)
        row = self.dx.apply_squared(plan.sum(2)[:, :, None])
        col = self.dy.apply_squared(plan.sum(1)[:, :, None])
        return torch.add(row + col.mT, cross, alpha=-2.0)

    def apply_product(self, p1: Tensor, p2: Tensor) -> Tensor:
        """The sum for the plan p1⊗p2 of unit mass, by products with vectors. p1: (B, n), p2: (B, m)."""
        p1, p2 = p1[:, :, None], p2[:, :, None]
        row, col = self.dx.apply_squared(p1), self.dy.apply_squared(p2)
        return torch.add(row + col.mT, self.dx.apply(p1) * self.dy.apply(p2).mT, alpha=-2.0)

    def mean(self, log_a: Tensor, log_b: Tensor) -> Tensor:
        """See `Pairs.mean`; 0 where it is lost in rounding."""
        return self.means(log_a, log_b)[0]

    def means(self, log_a: Tensor, log_b: Tensor) -> tuple[Tensor, Tensor]:
        """The same, and the mean square distances of both spaces together. Returns (B,) twice."""
        (mean_x, square_x), (mean_y, square_y) = moments(self.dx, log_a), moments(self.dy, log_b)
        squares, mean = square_x + square_y, square_x + square_y - 2.0 * mean_x * mean_y
        return torch.where(mean > 1e-9 * squares, mean, 0.0), squares

    def on(self, dx: Metric, dy: Metric) -> Squares:
        """See `Pairs.on`."""
        return Squares(dx, dy)

    def take(self, index: Tensor) -> Squares:
        """See `Pairs.take`."""
        return Squares(self.dx.take(index), self.dy.take(index))


@dataclass(frozen=True, eq=False)
class Profile:
    """g(t) = λ(t), or exp(−λ(t)/total) where a total (B,) or (1,) is given."""

    loss: Callable[[Tensor], Tensor]
    total: Tensor | None = None

    def __call__(self, t: Tensor) -> Tensor:
        """g at t (B, ...), or at t (1, ...) for every item."""
        if self.total is None:
            return self.loss(t)
        return (-self.loss(t) / self.total.to(t.dtype).view(-1, *[1] * (t.ndim - 1))).exp()

    def take(self, index: Tensor) -> Profile:
        """The functions of some batch items."""
        return self if self.total is None or len(self.total) == 1 else replace(self, total=self.total[index])


@dataclass(frozen=True, eq=False)
class TermByTerm:
    """Every term by itself: exact, also where g is infinite; for small plans.

    owner: (B,), the item of the metrics and of g that each plan belongs to, as many starts share one; None: its own.
    """

    dx: Metric
    dy: Metric
    g: Profile
    owner: Tensor | None = None
    _evaluated: list[tuple[Tensor, Tensor | None]] = field(default_factory=list)  # once the first product was made

    @property
    def rank(self) -> Tensor:
        """None."""
        return torch.zeros(1, dtype=torch.long, device=self.dx.device)

    @property
    def error(self) -> Tensor:
        """None but rounding."""
        return torch.zeros(1, dtype=torch.float64, device=self.dx.device)

    @property
    def wanted(self) -> Tensor:
        """None."""
        return self.error

    @cached_property
    def infinite(self) -> bool:
        """Does g have infinite values at these distances?"""
        (low_x, high_x), (low_y, high_y) = reach(self.dx), reach(self.dy)
        longest = max(float(high_x.max() - low_y.min()), float(high_y.max() - low_x.min()))
        grid = torch.linspace(0.0, longest, 2000, dtype=torch.float64)
        return self.g.total is None and not bool(torch.isfinite(self.g.loss(grid)).all())

    def apply(self, plan: Tensor) -> Tensor:
        """See `Pairs.apply`. An infinite term counts where the plan has mass, and only there."""
        flat, made = plan.flatten(1), []
        for values, infinite in self._terms():
            total = self._product(values, flat)
            if infinite is not None:
                total = torch.where(self._product(infinite, flat) > 0, torch.inf, total)
            made.append(total)
        return torch.cat(made, dim=1).view_as(plan)

    def _terms(self) -> Iterable[tuple[Tensor, Tensor | None]]:
        """g between pairs, (items, some pairs, n·m), 0 where it is infinite, and 1 there if it is anywhere.

        Together the blocks are all pairs. A single one is kept.
        """
        if self._evaluated:
            return self._evaluated
        dx, dy = _batched(self.dx), _batched(self.dy)
        rows = max(1, BLOCK_TERMS // (self._items * self.dx.n * self.dy.n**2))
        blocks = (self._block(block, dy) for block in dx.split(rows, dim=1))
        if rows < self.dx.n:
            return blocks
        self._evaluated.extend(blocks)
        return self._evaluated

    def _block(self, dx: Tensor, dy: Tensor) -> tuple[Tensor, Tensor | None]:
        values = self.g((dx[:, :, None, :, None] - dy[:, None, :, None, :]).abs()).flatten(3).flatten(1, 2)
        infinite = torch.isinf(values)
        if not bool(infinite.any()):
            return values, None
        return torch.where(infinite, 0.0, values), infinite.to(values.dtype)

    def _product(self, values: Tensor, flat: Tensor) -> Tensor:
        """Each plan's own matrix (pairs, n·m) times the plan. values: one, or one for each item; flat: (B, n·m)."""
        if len(values) == 1:
            return flat @ values[0].mT
        if self.owner is None:
            return torch.bmm(values, flat[:, :, None])[:, :, 0]
        some = max(1, BLOCK_TERMS // values[0].numel())
        parts = zip(self.owner.split(some), flat.split(some), strict=True)
        return torch.cat([torch.bmm(values[owner], part[:, :, None])[:, :, 0] for owner, part in parts])

    @property
    def _items(self) -> int:
        """Items that differ: 1, or as many as the metrics and g have."""
        counts = [len(metric.dense()) for metric in (self.dx, self.dy) if metric.batched]
        return max([1, *counts, 0 if self.g.total is None else len(self.g.total)])

    def mean(self, log_a: Tensor, log_b: Tensor) -> Tensor:
        """See `Pairs.mean`."""
        return mean(self, log_a, log_b)

    def on(self, dx: Metric, dy: Metric) -> TermByTerm:
        """See `Pairs.on`."""
        return TermByTerm(dx, dy, self.g if self.owner is None else self.g.take(self.owner))

    def take(self, index: Tensor) -> TermByTerm:
        """See `Pairs.take`."""
        if self._items == 1:
            return self
        owner = torch.arange(self._items, device=self.dx.device) if self.owner is None else self.owner
        return replace(self, owner=owner[index])


@dataclass(frozen=True, eq=False)
class Factorized:
    """Σ_r signs_r φ_r(Dx) plan φ_r(Dy): as many products of matrices as g has terms.

    factors: one for each item, or one for all.
    """

    dx: Metric
    dy: Metric
    factors: tuple[Factors, ...]
    _evaluated: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # once the first product was made
    _items: dict[int, Factorized] = field(default_factory=dict)

    @property
    def rank(self) -> Tensor:
        """Terms of the factorization."""
        return torch.tensor([f.rank for f in self.factors], device=self.dx.device)

    @property
    def error(self) -> Tensor:
        """As the factorization says."""
        return torch.tensor([f.error for f in self.factors], dtype=torch.float64, device=self.dx.device)

    @property
    def wanted(self) -> Tensor:
        """As the factorization says."""
        return torch.tensor([f.wanted for f in self.factors], dtype=torch.float64, device=self.dx.device)

    @property
    def infinite(self) -> bool:
        """Never."""
        return False

    def apply(self, plan: Tensor) -> Tensor:
        """See `Pairs.apply`."""
        if len(self.factors) == 1 and not self.dx.batched and not self.dy.batched:
            return self._apply_shared(plan)
        return torch.cat([self._item(b)._apply_shared(plan[b : b + 1]) for b in range(len(plan))])

    def _apply_shared(self, plan: Tensor) -> Tensor:
        """One pair of metrics for all plans: two long products for each block of terms."""
        batch, n, m = plan.shape
        folded = plan.permute(1, 0, 2).reshape(n, batch * m)
        total = torch.zeros(batch * n, m, dtype=plan.dtype, device=plan.device)
        for phi_x, phi_y in self._terms():
            count = len(phi_x)
            half = (phi_x.reshape(count * n, n) @ folded).view(count, n, batch, m)
            total.addmm_(half.permute(2, 1, 0, 3).reshape(batch * n, count * m), phi_y.reshape(count * m, m))
        return total.view(batch, n, m)

    def _terms(self) -> Iterable[tuple[Tensor, Tensor]]:
        """φ(Dx) and signs·φ(Dy), (count, n, n) and (count, m, m), in blocks that together are all terms."""
        factors, dx, dy = self.factors[0], self.dx.dense(), self.dy.dense()
        entry = torch.finfo(dx.dtype).bits // 8
        if self._evaluated:
            return self._evaluated
        term = (dx.numel() + dy.numel()) * entry
        room = max(KEPT_BYTES, torch.cuda.mem_get_info(dx.device)[0] // 2 if dx.is_cuda else 0)
        if factors.rank * term > room:
            return _blocks(factors, dx, dy, max(1, room // (4 * term)))
        self._evaluated.extend(_blocks(factors, dx, dy, factors.rank))
        return self._evaluated

    def _item(self, b: int) -> Factorized:
        if b not in self._items:
            factors = self.factors[b if len(self.factors) > 1 else 0]
            self._items[b] = Factorized(self.dx.item(b, self.dx.n), self.dy.item(b, self.dy.n), (factors,))
        return self._items[b]

    def mean(self, log_a: Tensor, log_b: Tensor) -> Tensor:
        """See `Pairs.mean`."""
        return mean(self, log_a, log_b)

    def on(self, dx: Metric, dy: Metric) -> Factorized:
        """See `Pairs.on`."""
        return Factorized(dx, dy, self.factors)

    def take(self, index: Tensor) -> Factorized:
        """See `Pairs.take`."""
        if len(self.factors) == 1 and not self.dx.batched and not self.dy.batched:
            return self
        if index.dtype == torch.bool:
            index = torch.nonzero(index).flatten()
        factors = self.factors if len(self.factors) == 1 else tuple(self.factors[i] for i in index.tolist())
        return Factorized(self.dx.take(index), self.dy.take(index), factors)


def _blocks(factors: Factors, dx: Tensor, dy: Tensor, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The evaluated terms, `count` at a time."""
    for start in range(0, factors.rank, count):
        part = slice(start, start + count)
        some = replace(factors, coefficients=factors.coefficients[:, part], signs=factors.signs[part])
        yield some.evaluate(dx), some.evaluate(dy) * some.signs.to(dy)[:, None, None]


def reach(metric: Metric) -> tuple[Tensor, Tensor]:
    """The smallest and the largest entry of each matrix, (B,) or (1,) each; 0 is among them, as padding may be."""
    low, high = (end.detach().double().reshape(-1).cpu() for end in metric.extremes())
    return low.clamp(max=0.0), high.clamp(min=0.0)


def _batched(metric: Metric) -> Tensor:
    matrix = metric.dense()
    return matrix if matrix.ndim == 3 else matrix[None]


def mean(pairs: Pairs, log_a: Tensor, log_b: Tensor) -> Tensor:
    """See `Pairs.mean`: of whatever can be applied."""
    product = (log_a[:, :, None] + log_b[:, None, :]).exp()
    return (pairs.apply(product) * product).sum(dim=(1, 2), dtype=torch.float64)


def moments(metric: Metric, log_weights: Tensor) -> tuple[Tensor, Tensor]:
    """Σ D w w' and Σ D² w w' of a metric under weights of unit mass. log_weights: (B, n). Returns (B,) twice."""
    w = log_weights.exp()[:, :, None]
    first, second = (
        (w * applied).sum(dim=(1, 2), dtype=torch.float64) for applied in (metric.apply(w), metric.apply_squared(w))
    )
    return first, second


def sandwich(dx: Metric, plan: Tensor, dy: Metric) -> Tensor:
    """Dx · plan · Dy for symmetric distances. plan: (B, n, m). Returns (B, n, m)."""
    return dy.apply(dx.apply(plan).mT).mT
