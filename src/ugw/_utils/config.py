"""Limits that several packages share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UtilsConfig:
    """Limits of the input checks, of work on n×n matrices and of kept constants, used by several packages."""

    # Entries of one block of rows when an n×n matrix is checked or multiplied (32 MiB in float64): a temporary copy
    # of the whole matrix would double the memory that a large space needs.
    max_block_entries: int = 1 << 22
    # Two entries count as equal when they differ by at most this many machine epsilons of the largest entry: enough
    # for distances summed in another order, far below any difference that matters.
    rounding_units: int = 64
    # Constant tensors kept on their device, such as the random numbers that initial plans draw.
    max_constants: int = 16
    # Characters of a value that an error message quotes: enough for names and numbers, and the message stays one line.
    max_described_length: int = 100


UTILS_CONFIG = UtilsConfig()
