"""The blocks of one call of `pairwise`, and the matrix that collects their results."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from ..learning.debiased import debiased_codes, debiased_value
from .blocks import Block, BlockLimits, max_block_entries, self_pair_blocks, tile_pairs
from .inputs import SpaceList
from .methods import Columns, Method, Options, exact_self_columns, is_symmetric, pair_seconds
from .result import PairwiseResult
from .serialize import digest
from .worker import Task


@dataclass(frozen=True, eq=False)
class PairwiseJob:
    """The pairs to solve, divided into blocks, between two lists of spaces.

    sides: the lists, one object twice if only one was given; orders: for each list, the indices of its spaces sorted by
    size and then by digest. The pairs of a block are positions in these orders, so that which of two spaces comes first
    does not depend on their positions in the lists. digests: hashes of the spaces of each different list.
    """

    method: Method
    options: Options
    sides: tuple[SpaceList, SpaceList]
    orders: tuple[Sequence[int], ...]
    digests: list[list[str]]
    blocks: list[Block]

    @classmethod
    def create(cls, method: Method, options: Options, sides: tuple[SpaceList, SpaceList]) -> PairwiseJob:
        """Return the description of all pairs of the two lists, divided into batches, with the method and options."""
        digests = {side: [digest(space) for space in side.spaces] for side in dict.fromkeys(sides)}
        orders = tuple(_sorted_indices(side.sizes, digests[side]) for side in sides)
        rows, cols = ([side.sizes[i] for i in order] for side, order in zip(sides, orders, strict=True))
        spec, one_list = method.spec, sides[0] is sides[1]
        device = sides[0].spaces[0].device.type
        max_entries = max_block_entries(float(sum(rows)) * sum(cols), device, spec.relative_cost)
        limits = BlockLimits(max_entries, pair_seconds(options) if device == "cpu" else None)
        # In one list i < j or i ≠ j: pairs (i, i) are in blocks of their own.
        is_wanted = (operator.lt if is_symmetric(options["rho"]) else operator.ne) if one_list else None
        blocks = tile_pairs(rows, cols, limits, is_wanted)
        if not spec.has_zero_self_value(options):
            blocks += self_pair_blocks(rows, limits, 0) if one_list or spec.needs_self_values else []
            blocks += self_pair_blocks(cols, limits, 1) if not one_list and spec.needs_self_values else []
        return cls(method, options, sides, orders, list(digests.values()), blocks)

    @property
    def has_one_list(self) -> bool:
        """Whether only one list was given, whose spaces are compared with each other."""
        return self.sides[0] is self.sides[1]

    @property
    def is_symmetric(self) -> bool:
        """Whether pair (j, i) has the result of pair (i, j): only one list was given, and both sides have one rho."""
        return self.has_one_list and is_symmetric(self.options["rho"])

    def list_indices(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Return for the P pairs of a block the indices (P,) of their first and second spaces in their lists."""
        lists = (0, 1) if block.self_side is None else (block.self_side, block.self_side)
        pairs = np.array(block.pairs)
        return np.array(self.orders[lists[0]])[pairs[:, 0]], np.array(self.orders[lists[1]])[pairs[:, 1]]

    def make_task(self, k: int) -> Task:
        """Return batch k as a Task: its pairs, the spaces they need (once per side), method name, options and device.

        For pairs of spaces with themselves the second side is empty.
        """
        block = self.blocks[k]
        rows, cols = self.list_indices(block)
        (needed_rows, first), (needed_cols, second) = (np.unique(side, return_inverse=True) for side in (rows, cols))
        is_self = block.self_side is not None
        return Task(
            rows=tuple(self.sides[block.self_side or 0].spaces[i] for i in needed_rows),
            cols=() if is_self else tuple(self.sides[1].spaces[j] for j in needed_cols),
            pairs=tuple(zip(first.tolist(), second.tolist(), strict=True)),
            is_self=is_self,
            method=self.method.name,
            options=self.options,
            device=self.sides[0].spaces[0].device,
        )


def _sorted_indices(sizes: Sequence[int], digests: Sequence[str]) -> list[int]:
    """Return the indices of spaces with these sizes and digests, the largest first, of equal sizes by digest."""
    return sorted(range(len(sizes)), key=lambda i: (-sizes[i], digests[i]))


@dataclass(eq=False)
class ResultMatrix:
    """The results of all blocks so far, of n spaces and m others.

    pair_columns: results of the pairs, arrays (n, m) by name; self_columns: for each list the results of its spaces
    with themselves, arrays (n,) or (m,) by name; failures: (label of the pair, error message) of each failed pair.
    """

    job: PairwiseJob
    pair_columns: Columns = field(default_factory=dict)
    self_columns: tuple[Columns, Columns] = field(default_factory=lambda: ({}, {}))
    failures: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Create all result arrays, NaN (status, n_iter: 0); set those of pairs (x, x) known to have the value 0."""
        first, second = self.job.sides
        shape = len(first.spaces), len(second.spaces)
        first_self, second_self = self.self_columns
        for target, size in ((self.pair_columns, shape), (first_self, shape[:1]), (second_self, shape[1:])):
            target |= {name: np.full(size, np.nan) for name in ("value", "mass", "distance", "is_metric", "sign_scale")}
            target |= {name: np.zeros(size, dtype=np.int64) for name in ("status", "n_iter")}
        if self.job.method.spec.has_zero_self_value(self.job.options):
            for side, target in zip(self.job.sides, self.self_columns, strict=True):
                for name, column in exact_self_columns(side.spaces, self.job.options).items():
                    target[name][:] = column

    def add_block(self, block: Block, columns: Columns, failures: list[tuple[int, str]]) -> None:
        """Write results of a block into `pair_columns`, of pairs (x, x) into `self_columns`, and append its failures.

        If (y, x) has the result of (x, y), both entries are written; entries of failed pairs are not changed. columns:
        arrays of the solved pairs, by name; failures: (position in the block, error message) of the others, appended to
        `self.failures` as (label of the pair, error message).
        """
        all_rows, all_cols = self.job.list_indices(block)
        rows, cols = (np.delete(side, [k for k, _ in failures]) for side in (all_rows, all_cols))
        for name, column in columns.items():
            if block.self_side is not None:
                self.self_columns[block.self_side][name][rows] = column
                continue
            self.pair_columns[name][rows, cols] = column
            if self.job.is_symmetric:
                self.pair_columns[name][cols, rows] = column
        first, second = self.job.sides if block.self_side is None else (self.job.sides[block.self_side],) * 2
        for k, text in failures:
            self.failures.append((f"({first.label(all_rows[k])}, {second.label(all_cols[k])})", text))

    def result(self) -> PairwiseResult:
        """Return the `PairwiseResult` of all pairs so far; pairs not solved have the value NaN and the status RUNNING.

        For one list the diagonal has the results of spaces with themselves; the values of "debiased" are 0 there.
        """
        job, columns = self.job, dict(self.pair_columns)
        if job.method.spec.needs_self_values:
            columns |= self._debiased_columns()
        if job.has_one_list:
            diagonal = np.arange(len(columns["value"]))
            for name in ("value", "mass", "status", "n_iter", "distance", "is_metric"):
                columns[name] = columns[name].copy()
                columns[name][diagonal, diagonal] = self.self_columns[0][name]
            if job.method.spec.needs_self_values:
                columns["value"][diagonal, diagonal] = np.where(np.isnan(self.self_columns[0]["value"]), np.nan, 0.0)
        first, second = job.sides
        return PairwiseResult(
            values=self._to_user(columns["value"]),
            masses=self._to_user(columns["mass"]),
            codes=self._to_user(columns["status"]),
            n_iter=self._to_user(columns["n_iter"]),
            names=(first.names, second.names),
            method=job.method.name,
            roots=self._distances(columns),
            parameters=job.method.parameters(job.options),
        )

    def _debiased_columns(self) -> Columns:
        """Return the debiased values and their status codes as columns "value" and "status", (n, m) each.

        A value is UGW(x, y) − ½ UGW(x, x) − ½ UGW(y, y) + (eps/2)(m(x)² − m(y)²)², m: total weight.
        """
        first, second = (self.self_columns[0],) * 2 if self.job.has_one_list else self.self_columns
        masses = [np.array([float(s.weight_tensor.double().sum()) for s in side.spaces]) for side in self.job.sides]
        value = debiased_value(
            self.pair_columns["value"],
            first["value"][:, None],
            second["value"][None, :],
            masses_x=masses[0][:, None],
            masses_y=masses[1][None, :],
            eps=float(self.job.options["eps"]),
        )
        statuses = [self.pair_columns["status"], first["status"][:, None], second["status"][None, :]]
        arrays = (value, self.pair_columns["sign_scale"], *statuses)
        tensors = [torch.from_numpy(np.broadcast_to(array, value.shape).copy()) for array in arrays]
        return {"value": value, "status": debiased_codes(tensors[0], tensors[1], tensors[2:]).numpy()}

    def _distances(self, columns: Columns) -> object:
        """Return distances (n, m), square roots of values ("cgw" by PartialTransport: another root); None if no metric.

        Only "gw" with eps = 0, and "cgw" with eps = 0 where all solved pairs have `is_metric`, have distances.
        """
        name = self.job.method.name
        if name == "cgw":
            flags = columns["is_metric"][~np.isnan(columns["is_metric"])]
            exact = float(self.job.options["eps"]) == 0.0 and bool((flags == 1).all())
            return self._to_user(columns["distance"]) if exact else None
        exact = name == "gw" and self.job.method.spec.has_zero_self_value(self.job.options)
        return self._to_user(np.sqrt(np.maximum(columns["value"], 0.0))) if exact else None

    def _to_user(self, array: np.ndarray) -> object:
        """Return the array if all spaces were made from NumPy arrays, else a tensor on their device."""
        spaces = [space for side in self.job.sides for space in side.spaces]
        if all(space.numpy for space in spaces):
            return array
        return torch.from_numpy(array).to(spaces[0].device)
