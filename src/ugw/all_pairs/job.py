"""The blocks of a call, and the matrix that their columns fill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from ..learning.debiased import codes
from . import blocks as tiles
from .blocks import Block
from .inputs import Side
from .methods import Columns, Given, Method, at_itself, symmetric
from .result import PairwiseResult
from .serialize import digest
from .worker import Task


@dataclass(frozen=True, eq=False)
class Job:
    """Which pairs are solved, block by block, between two sides, which are one object if there is one list.

    orders: the places of the spaces in their list, by size and then by the data themselves. Pairs of blocks are places
    in these orders: which of two spaces comes first does not depend on where they stand in the list.
    """

    method: Method
    given: Given
    sides: tuple[Side, Side]
    orders: tuple[Sequence[int], Sequence[int]]
    digests: list[list[str]]
    blocks: list[Block]

    @classmethod
    def of(cls, method: Method, given: Given, sides: tuple[Side, Side]) -> Job:
        """The job of a call."""
        first, second = sides
        digests = [[digest(space) for space in side.spaces] for side in dict.fromkeys(sides)]
        orders = [_order(side.sizes, own) for side, own in zip((first, second), digests, strict=False)]
        rows, cols = ([side.sizes[i] for i in order] for side, order in ((first, orders[0]), (second, orders[-1])))
        recipe = method.recipe
        entries = tiles.budget(float(sum(rows)) * sum(cols), first.spaces[0].device.type, recipe.weight)
        blocks = tiles.tiles(rows, cols, entries, _wanted(one=first is second, mirrored=symmetric(given)))
        if not recipe.at_zero(given):
            blocks += tiles.diagonal(rows, entries, 0) if first is second or recipe.selves else []
            blocks += tiles.diagonal(cols, entries, 1) if first is not second and recipe.selves else []
        return cls(method, given, sides, (orders[0], orders[-1]), digests, blocks)

    @property
    def one_list(self) -> bool:
        """Are the spaces compared with each other?"""
        return self.sides[0] is self.sides[1]

    @property
    def mirrored(self) -> bool:
        """Is (j, i) solved by (i, j)?"""
        return self.one_list and symmetric(self.given)

    def places(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """The places in their lists of the spaces of each pair."""
        lists = (0, 1) if block.own is None else (block.own, block.own)
        pairs = np.array(block.pairs)
        return np.array(self.orders[lists[0]])[pairs[:, 0]], np.array(self.orders[lists[1]])[pairs[:, 1]]

    def task(self, k: int) -> Task:
        """What a worker needs for a block: each space of it once."""
        block = self.blocks[k]
        rows, cols = self.places(block)
        (needed, first), (others, second) = (np.unique(side, return_inverse=True) for side in (rows, cols))
        own = block.own
        return Task(
            rows=tuple(self.sides[own or 0].spaces[i] for i in needed),
            cols=() if own is not None else tuple(self.sides[1].spaces[j] for j in others),
            pairs=tuple(zip(first.tolist(), second.tolist(), strict=True)),
            own=own is not None,
            method=self.method.name,
            given=self.given,
            device=self.sides[0].spaces[0].device,
        )


def _order(sizes: Sequence[int], digests: Sequence[str]) -> list[int]:
    return sorted(range(len(sizes)), key=lambda i: (-sizes[i], digests[i]))


def _wanted(*, one: bool, mirrored: bool) -> Callable[[int, int], bool]:
    """Which pairs of two lists, or of one, are solved besides those of a space with itself."""
    if not one:
        return lambda i, j: True
    return (lambda i, j: i < j) if mirrored else (lambda i, j: i != j)


@dataclass(eq=False)
class Matrix:
    """The columns of all pairs so far, (n, m) by name, those of each space with itself, (n,) and (m,), and failures."""

    job: Job
    pairs: Columns = field(default_factory=dict)
    own: tuple[Columns, Columns] = field(default_factory=lambda: ({}, {}))
    failures: list[tuple[str, str]] = field(default_factory=list)  # the pair, what happened

    def __post_init__(self) -> None:
        first, second = self.job.sides
        shape = len(first.spaces), len(second.spaces)
        for target, size in ((self.pairs, shape), (self.own[0], shape[:1]), (self.own[1], shape[1:])):
            target |= {name: np.full(size, np.nan) for name in ("value", "mass", "distance", "metric", "stake")}
            target |= {name: np.zeros(size, dtype=np.int64) for name in ("status", "n_iter")}
        if self.job.method.recipe.at_zero(self.job.given):
            for side, target in zip(self.job.sides, self.own, strict=True):
                for i, space in enumerate(side.spaces):
                    for name, value in at_itself(space, self.job.given).items():
                        target[name][i] = value

    def add(self, block: Block, columns: Columns, failed: list[tuple[int, str]]) -> None:
        """Fill in a block."""
        rows, cols = self.job.places(block)
        for name, column in columns.items():
            if block.own is not None:
                self.own[block.own][name][rows] = column
                continue
            self.pairs[name][rows, cols] = column
            if self.job.mirrored:
                self.pairs[name][cols, rows] = column
        side = self.job.sides if block.own is None else (self.job.sides[block.own],) * 2
        for k, text in failed:
            self.failures.append((f"({side[0].label(int(rows[k]))}, {side[1].label(int(cols[k]))})", text))

    def result(self) -> PairwiseResult:
        """What is known so far: NaN, and a solve that has not ended, elsewhere."""
        job, found = self.job, dict(self.pairs)
        if job.method.recipe.selves:
            found |= self._debiased()
        if job.one_list:
            here = np.arange(len(found["value"]))
            for name in ("value", "mass", "status", "n_iter", "distance", "metric"):
                found[name] = found[name].copy()
                found[name][here, here] = self.own[0][name]
            if job.method.recipe.selves:
                found["value"][here, here] = np.where(np.isnan(self.own[0]["value"]), np.nan, 0.0)
        first, second = job.sides
        return PairwiseResult(
            values=self._presented(found["value"]),
            masses=self._presented(found["mass"]),
            codes=found["status"],
            n_iter=found["n_iter"],
            names=(first.names, second.names),
            method=job.method.name,
            roots=self._roots(found),
        )

    def _debiased(self) -> Columns:
        """Cross terms less half of the self terms, and the term of the masses: see `ugw.debiased`."""
        selves = [own["value"] for own in self._selves()]
        squares = [
            np.array([float(s.weight_tensor.double().sum()) ** 2 for s in side.spaces]) for side in self.job.sides
        ]
        value = self.pairs["value"] - 0.5 * selves[0][:, None] - 0.5 * selves[1][None, :]
        value += 0.5 * float(self.job.given["eps"]) * (squares[0][:, None] - squares[1][None, :]) ** 2
        parts = [self.pairs["status"], self._selves()[0]["status"][:, None], self._selves()[1]["status"][None, :]]
        known = [
            torch.from_numpy(np.broadcast_to(part, value.shape).copy()) for part in (value, self.pairs["stake"], *parts)
        ]
        return {"value": value, "status": codes(known[0], known[1], known[2:]).numpy()}

    def _selves(self) -> tuple[Columns, Columns]:
        return (self.own[0], self.own[0]) if self.job.one_list else self.own

    def _roots(self, found: Columns) -> object:
        """Distances, where the values are powers of some."""
        name = self.job.method.name
        if name == "cgw":
            known = found["metric"][~np.isnan(found["metric"])]
            exact = float(self.job.given["eps"]) == 0.0 and bool((known == 1).all())
            return self._presented(found["distance"]) if exact else None
        exact = name == "gw" and self.job.method.recipe.at_zero(self.job.given)
        return self._presented(np.sqrt(np.maximum(found["value"], 0.0))) if exact else None

    def _presented(self, array: np.ndarray) -> object:
        """As the spaces are: an array, or a tensor on their device."""
        spaces = [space for side in self.job.sides for space in side.spaces]
        if all(space.numpy for space in spaces):
            return array
        return torch.from_numpy(array).to(spaces[0].device)
