"""Sizes of the plans that Triton kernels accept, and their block sizes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TritonConfig:
    """Limits and launch parameters of the Triton kernels, measured on an H200 where no other reason is given."""

    # --- Sinkhorn in registers ---
    # Entries of a plan whose sides are padded to powers of two that the registers of a multiprocessor hold in float32.
    max_register_entries: int = 2**15
    # Plan entries for each thread of a program: determines the number of warps.
    register_entries_per_thread: int = 128

    # --- Sinkhorn in the cache ---
    # Plan entries up to which separate row and column kernels are faster than torch; above, memory bandwidth decides.
    max_cache_entries: int = 2**22
    # Rows of a program that sums over columns, and columns that it reads at a time.
    row_sum_block: tuple[int, int] = (4, 256)
    # Columns of a program that sums over rows, and rows that it reads at a time.
    col_sum_block: tuple[int, int] = (8, 128)
    # Vector entries that a program reads at a time.
    vector_block: int = 1024

    # --- reductions and extrapolation ---
    # Entries that a program reads at a time.
    reduction_block: int = 1024
    # Blocks that a program adds in float32 before the partial sums are added in float64.
    reduction_blocks_per_program: int = 8
    # Rows of the strip of a program that computes moments.
    moment_rows: int = 8
    # Entries of the strip that it reads at a time: each has twenty sums in registers.
    moment_entries: int = 512

    # --- streaming sums ---
    # Rows and columns of a block: with the warps and stages below the fastest of 54 settings tried at rank 4.
    streaming_block: int = 64
    # Warps of a program.
    streaming_warps: int = 4
    # Pipeline stages of a program.
    streaming_stages: int = 3
    # Columns of values up to which their sums stay in registers, without tensor cores.
    max_register_values: int = 6
    # Rows, columns and warps of a program for so few columns of values.
    few_values_rows: int = 128
    few_values_cols: int = 32
    few_values_warps: int = 4
    # Blocks that tensor cores add by themselves, before the sums are added with rounding: errors of longer
    # sums would accumulate, because tensor cores truncate.
    blocks_per_group: int = 4
    # Numbers that one program packs.
    packed_numbers: int = 2048
    # Stands for -inf in a packed bias: its products are finite.
    packed_minus_infinity: float = -(2.0**99)
    # Binary logarithms of a sum outside of which the guess of its maximum was too far off.
    min_trusted_log2: float = -100.0
    max_trusted_log2: float = 120.0


TRITON_CONFIG = TritonConfig()


def padded_size(size: int) -> int:
    """Return `size` rounded up to a power of two of at least 16, the length of the block that holds such a vector."""
    return max(16, 1 << (size - 1).bit_length())
