"""Streaming sums of exponentials as Triton kernels for float32; reference: `..streaming_logsumexp`.

The exponents are products of packed rows on the tensor cores. A float32 number is the sum of two TF32 numbers, its
halves hi and lo (22 bits together), so left · right = hi·hi + hi·lo + lo·hi up to rounding. The halves are packed side
by side with the bias and the shift as further columns: for rank 4, one TF32 product of K = 16 columns gives the
exponents to float32 accuracy. Each pair of points then takes one exponential and one addition.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..._utils.precision import split_tf32
from .config import TRITON_CONFIG

LOG2E = math.log2(math.e)


@triton.jit
def _round_to_tf32(x):
    """Return x rounded to the 11 significant bits of TF32; NaN stays NaN, whose bits would become those of 0."""
    return tl.where(x == x, ((x.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True), x)


@triton.jit
def _pack_kernel(
    factor_ptr, extra_ptr, out_ptr, n, count, item_stride, point_stride, column_stride,
    extra_item_stride, extra_point_stride, scale, extra_scale,
    R: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, ROW: tl.constexpr, MINUS_INF: tl.constexpr,
):  # fmt: skip
    """Pack the TF32 halves of BM points: (hi, hi, lo, 1, 1, extra) if ROW, otherwise (hi, lo, hi, extra, 1, 1).

    hi and lo are R numbers each, extra is two, its own hi and lo; zeros follow. factor_ptr: (B, n, R), multiplied by
    `scale`; extra_ptr: (B, n), the bias or the shift, multiplied by `extra_scale`, then at least MINUS_INF; out_ptr:
    (B, count, K), K ≥ 3 R + 4; points beyond n have an extra of MINUS_INF. Strides are in entries.
    """
    i, item, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1).to(tl.int64), tl.arange(0, K)
    is_point, is_factor = i < n, k < 3 * R
    place = item * item_stride + i[:, None].to(tl.int64) * point_stride + (k % R)[None, :] * column_stride
    x = tl.load(factor_ptr + place, mask=is_point[:, None] & is_factor[None, :], other=0.0) * scale
    extra = tl.load(
        extra_ptr + item * extra_item_stride + i.to(tl.int64) * extra_point_stride, mask=is_point, other=-float("inf")
    )
    extra = extra * extra_scale
    extra = tl.where(extra < MINUS_INF, MINUS_INF, extra)  # NaN stays NaN
    hi, extra_hi = _round_to_tf32(x), _round_to_tf32(extra)
    lo, extra_lo = _round_to_tf32(x - hi), _round_to_tf32(extra - extra_hi)
    if ROW:
        low, first = 2, 2
    else:
        low, first = 1, 0
    value = tl.where((k // R == low)[None, :], lo, hi)
    beyond = k - 3 * R
    ones = (beyond == 2 - first) | (beyond == 3 - first)
    value = tl.where(ones[None, :], 1.0, value)
    value = tl.where((beyond == first)[None, :], extra_hi[:, None], value)
    value = tl.where((beyond == first + 1)[None, :], extra_lo[:, None], value)
    out = out_ptr + (item * count + i[:, None].to(tl.int64)) * K + k[None, :]
    tl.store(out, value, mask=(i < count)[:, None])


@triton.jit
def _logsumexp_kernel(
    rows_ptr, cols_ptr, out_ptr, n, blocks, blocks_per_split, splits,
    K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, GUESSED: tl.constexpr,
    LOWEST: tl.constexpr, HIGHEST: tl.constexpr,
):  # fmt: skip
    """Compute log2 Σ_j 2^(rows_i · cols_j) for BM rows over one split of the columns.

    rows_ptr: (B, n, K) and cols_ptr: (B, blocks·BN, K), packed; out_ptr: (B, splits, n); a program adds
    `blocks_per_split` of the `blocks` blocks of columns. GUESSED: the rows contain a guess of the result; a sum whose
    log2 is then not between LOWEST and HIGHEST is computed again with its maximum.
    """
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    split, item = tl.program_id(1), tl.program_id(2)
    k = tl.arange(0, K)
    rows = tl.load(rows_ptr + (item * n + i[:, None]).to(tl.int64) * K + k[None, :], mask=i[:, None] < n, other=0.0)
    first = split * blocks_per_split
    last = tl.minimum(first + blocks_per_split, blocks)
    base = cols_ptr + item.to(tl.int64) * blocks * BN * K
    j = tl.arange(0, BN)
    sums = tl.zeros((BM,), tl.float32)
    top = tl.zeros((BM,), tl.float32)
    needs_maximum = 1
    if GUESSED:
        partial = tl.zeros((BM, BN), tl.float32)
        for block in range(first, last):
            cols = tl.load(base + (block * BN + j[None, :]).to(tl.int64) * K + k[:, None])
            partial += tl.exp2(tl.dot(rows, cols, input_precision="tf32"))
        sums = tl.sum(partial, 1)
        is_trusted = (tl.log2(sums) > LOWEST) & (tl.log2(sums) < HIGHEST)
        needs_maximum = tl.max(tl.where(is_trusted | (i >= n), 0, 1), 0)
    if needs_maximum > 0:
        top = tl.full((BM,), -1e38, tl.float32)
        sums = tl.zeros((BM,), tl.float32)
        for block in range(first, last):
            cols = tl.load(base + (block * BN + j[None, :]).to(tl.int64) * K + k[:, None])
            z = tl.dot(rows, cols, input_precision="tf32")
            new_top = tl.maximum(top, tl.max(z, 1))
            sums = sums * tl.exp2(top - new_top) + tl.sum(tl.exp2(z - new_top[:, None]), 1)
            top = new_top
    tl.store(out_ptr + ((item * splits + split).to(tl.int64) * n) + i, top + tl.log2(sums), mask=i < n)


@triton.jit
def _few_weighted_sums_kernel(
    rows_ptr, cols_ptr, values_ptr, out_ptr, n, blocks, blocks_per_split, splits,
    K: tl.constexpr, V: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Compute Σ_j 2^(rows_i · cols_j) values_vj for BM rows over one split of the columns, V ≤ 6, without tensor cores.

    rows_ptr: (B, n, K) and cols_ptr: (B, blocks·BN, K), packed; values_ptr: (B, V, blocks·BN); out_ptr:
    (B, splits, V, n).
    """
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    split, item = tl.program_id(1), tl.program_id(2)
    k, j = tl.arange(0, K), tl.arange(0, BN)
    rows = tl.load(rows_ptr + (item * n + i[:, None]).to(tl.int64) * K + k[None, :], mask=i[:, None] < n, other=0.0)
    first = split * blocks_per_split
    last = tl.minimum(first + blocks_per_split, blocks)
    m = blocks * BN
    start = item.to(tl.int64) * m
    zero = tl.zeros((BM, BN), tl.float32)
    s0, s1, s2, s3, s4, s5 = zero, zero, zero, zero, zero, zero
    for block in range(first, last):
        cols = tl.load(cols_ptr + (start + block * BN + j[None, :]) * K + k[:, None])
        p = tl.exp2(tl.dot(rows, cols, input_precision="tf32"))
        values = values_ptr + start * V + block * BN + j
        s0 += p * tl.load(values)[None, :]
        if V > 1:
            s1 += p * tl.load(values + m)[None, :]
        if V > 2:
            s2 += p * tl.load(values + 2 * m)[None, :]
        if V > 3:
            s3 += p * tl.load(values + 3 * m)[None, :]
        if V > 4:
            s4 += p * tl.load(values + 4 * m)[None, :]
        if V > 5:
            s5 += p * tl.load(values + 5 * m)[None, :]
    out = out_ptr + (item * splits + split).to(tl.int64) * V * n + i
    tl.store(out, tl.sum(s0, 1), mask=i < n)
    if V > 1:
        tl.store(out + n, tl.sum(s1, 1), mask=i < n)
    if V > 2:
        tl.store(out + 2 * n, tl.sum(s2, 1), mask=i < n)
    if V > 3:
        tl.store(out + 3 * n, tl.sum(s3, 1), mask=i < n)
    if V > 4:
        tl.store(out + 4 * n, tl.sum(s4, 1), mask=i < n)
    if V > 5:
        tl.store(out + 5 * n, tl.sum(s5, 1), mask=i < n)


@triton.jit
def _weighted_sums_kernel(
    rows_ptr, cols_ptr, high_ptr, low_ptr, out_ptr, n, blocks, blocks_per_split, splits,
    K: tl.constexpr, V: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Compute Σ_j 2^(rows_i · cols_j) values_jv for BM rows over one split of the columns on the tensor cores.

    rows_ptr: (B, n, K) and cols_ptr: (B, blocks·BN, K), packed; high_ptr, low_ptr: (B, blocks·BN, V), see
    `_value_halves`; out_ptr: (B, splits, n, V); GROUP: blocks that tensor cores add up by themselves.
    """
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    split, item = tl.program_id(1), tl.program_id(2)
    k, v, j = tl.arange(0, K), tl.arange(0, V), tl.arange(0, BN)
    rows = tl.load(rows_ptr + (item * n + i[:, None]).to(tl.int64) * K + k[None, :], mask=i[:, None] < n, other=0.0)
    first = split * blocks_per_split
    last = tl.minimum(first + blocks_per_split, blocks)
    start = item.to(tl.int64) * blocks * BN
    total = tl.zeros((BM, V), tl.float32)
    for group in range(first, last, GROUP):
        # Tensor cores truncate when they add: errors of a long sum would accumulate. Short sums are added
        # outside, with rounding.
        sums = tl.zeros((BM, V), tl.float32)
        for block in range(group, tl.minimum(group + GROUP, last)):
            places = start + block * BN + j
            cols = tl.load(cols_ptr + places[None, :] * K + k[:, None])
            high = tl.load(high_ptr + places[:, None] * V + v[None, :])
            low = tl.load(low_ptr + places[:, None] * V + v[None, :])
            p = tl.exp2(tl.dot(rows, cols, input_precision="tf32"))
            p_high = (p.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
            sums = tl.dot(p_high, high, sums, input_precision="tf32")
            sums = tl.dot(p - p_high, low, sums, input_precision="tf32")
        total += sums
    place = ((item * splits + split).to(tl.int64) * n + i[:, None]) * V + v[None, :]
    tl.store(out_ptr + place, total, mask=i[:, None] < n)


def streaming_logsumexp(left: Tensor, right: Tensor, bias: Tensor, guess: Tensor | None = None) -> Tensor:
    """Return log Σ_j exp(left_i · right_j + bias_j), (B, n), float32, without storing the matrix.

    left: (B, n, r); right: (B, m, r); bias: (B, m), -inf where j is ignored; guess: (B, n), near the result, saves
    the search for the maximum of each row; None to search.
    """
    batch, n = left.shape[:2]
    block = TRITON_CONFIG.streaming_block
    shift = torch.zeros_like(left[:, :, 0]) if guess is None else guess
    rows, cols = pack(left, right, bias, shift)
    blocks, per_split, splits = _column_splits(batch, (n, block), (cols.shape[1], block), left.device)
    out = torch.empty(batch, splits, n, dtype=torch.float32, device=left.device)
    _logsumexp_kernel[(triton.cdiv(n, block), splits, batch)](
        rows, cols, out, n, blocks, per_split, splits,
        K=rows.shape[2], BM=block, BN=block, GUESSED=guess is not None,
        LOWEST=TRITON_CONFIG.min_trusted_log2, HIGHEST=TRITON_CONFIG.max_trusted_log2,
        num_warps=TRITON_CONFIG.streaming_warps, num_stages=TRITON_CONFIG.streaming_stages,
    )  # fmt: skip
    total = out[:, 0] / LOG2E if splits == 1 else torch.logsumexp(out / LOG2E, dim=1)
    return total + shift


def streaming_weighted_sum(left: Tensor, right: Tensor, bias: Tensor, shift: Tensor, values: Tensor) -> Tensor:
    """Return Σ_j exp(left_i · right_j + bias_j − shift_i) values_jk, (B, n, k), float32.

    left: (B, n, r); right: (B, m, r); bias: (B, m), -inf where j is ignored; shift: (B, n); values: (B, m, k).
    """
    rows, cols = pack(left, right, bias, shift)
    has_few_values = values.shape[2] <= TRITON_CONFIG.max_register_values
    return (_sum_few_values if has_few_values else _sum_many_values)(rows, cols, values)


def _sum_few_values(rows: Tensor, cols: Tensor, values: Tensor) -> Tensor:
    """Return Σ_j 2^(rows_i · cols_j) values_jv, (B, n, V), float32, for V up to 6 (`max_register_values`).

    rows: (B, n, K) and cols: (B, m', K), vectors from `pack`, m' ≥ m a whole number of blocks; values: (B, m, V).
    """
    batch, n, width = rows.shape
    n_rows, n_cols = TRITON_CONFIG.few_values_rows, TRITON_CONFIG.few_values_cols
    transposed = torch.nn.functional.pad(values.mT, (0, cols.shape[1] - values.shape[1])).contiguous()
    blocks, per_split, splits = _column_splits(batch, (n, n_rows), (cols.shape[1], n_cols), rows.device)
    out = torch.empty(batch, splits, values.shape[2], n, dtype=torch.float32, device=rows.device)
    _few_weighted_sums_kernel[(triton.cdiv(n, n_rows), splits, batch)](
        rows, cols, transposed, out, n, blocks, per_split, splits,
        K=width, V=values.shape[2], BM=n_rows, BN=n_cols,
        num_warps=TRITON_CONFIG.few_values_warps, num_stages=TRITON_CONFIG.streaming_stages,
    )  # fmt: skip
    return out.sum(1).mT


def _sum_many_values(rows: Tensor, cols: Tensor, values: Tensor) -> Tensor:
    """Return Σ_j 2^(rows_i · cols_j) values_jv, (B, n, V) float32, for any V, computed on the tensor cores.

    rows: (B, n, K) and cols: (B, m', K), vectors from `pack`, m' ≥ m a whole number of blocks; values: (B, m, V), which
    count as 0 for j ≥ m.
    """
    batch, n = rows.shape[:2]
    width, block = values.shape[2], TRITON_CONFIG.streaming_block
    high, low = _value_halves(values, cols.shape[1])
    blocks, per_split, splits = _column_splits(batch, (n, block), (cols.shape[1], block), rows.device)
    out = torch.empty(batch, splits, n, high.shape[2], dtype=torch.float32, device=rows.device)
    _weighted_sums_kernel[(triton.cdiv(n, block), splits, batch)](
        rows, cols, high, low, out, n, blocks, per_split, splits,
        K=rows.shape[2], V=high.shape[2], BM=block, BN=block, GROUP=TRITON_CONFIG.blocks_per_group,
        num_warps=TRITON_CONFIG.streaming_warps, num_stages=TRITON_CONFIG.streaming_stages,
    )  # fmt: skip
    total = out.sum(1)
    return total[:, :, :width] + total[:, :, width : 2 * width]


def pack(left: Tensor, right: Tensor, bias: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Return TF32 vectors, (B, n, K) and (B, m', K), whose products are log2(e)·(left_i · right_j + bias_j − shift_i).

    left: (B, n, r); right: (B, m, r); bias: (B, m); shift: (B, n). m' is m rounded up to whole blocks.
    """
    block = TRITON_CONFIG.streaming_block
    m = triton.cdiv(right.shape[1], block) * block
    rows = _pack_side(left, shift, left.shape[1], scales=(LOG2E, -LOG2E), is_row=True)
    return rows, _pack_side(right, bias, m, scales=(1.0, LOG2E), is_row=False)


def _pack_side(factor: Tensor, extra: Tensor, count: int, *, scales: tuple[float, float], is_row: bool) -> Tensor:
    """Return vectors (B, count, K), float32, of points, with row · column = factor_i · factor_j + extra_i + extra_j.

    factor: (B, n, r), multiplied by scales[0] first; extra: (B, n), the shift of rows or the bias of columns,
    multiplied by scales[1]. Each number is the sum of two TF32 numbers hi and lo, with nearly the precision of float32.
    Rows are (hi, hi, lo, 1, 1, extra), columns (hi, lo, hi, extra, 1, 1), with hi and lo of r numbers and extra of two,
    then zeros: K is 3r + 4 rounded up to a power of 2, at least 16. Points beyond n get an extra of about −infinity:
    the exponentials of their products are 0.
    """
    batch, n, rank = factor.shape
    width = max(16, triton.next_power_of_2(3 * rank + 4))
    out = torch.empty(batch, count, width, dtype=torch.float32, device=factor.device)
    per_program = max(1, TRITON_CONFIG.packed_numbers // width)
    _pack_kernel[(triton.cdiv(count, per_program), batch)](
        factor, extra, out, n, count, *factor.stride(), *extra.stride(), *scales,
        R=rank, K=width, BM=per_program, ROW=is_row, MINUS_INF=TRITON_CONFIG.packed_minus_infinity, num_warps=4,
    )  # fmt: skip
    return out


def _value_halves(values: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """Return the matrices (hi, lo) and (hi, 0), (B, m, W) each, where values = hi + lo with TF32 numbers hi and lo.

    values: (B, ·, V). Rows are padded with zeros to m, columns to a power of two W ≥ 2 V. The first matrix is
    multiplied by the upper half of a factor, the second by its lower half.
    """
    hi, lo = split_tf32(values)
    width = max(16, triton.next_power_of_2(2 * values.shape[2]))
    padding = (0, width - 2 * values.shape[2], 0, m - values.shape[1])
    pad = torch.nn.functional.pad
    return pad(torch.cat([hi, lo], dim=2), padding), pad(torch.cat([hi, torch.zeros_like(lo)], dim=2), padding)


def _column_splits(
    batch: int, rows: tuple[int, int], cols: tuple[int, int], device: torch.device
) -> tuple[int, int, int]:
    """Return the number of blocks of columns, the blocks of one program, and the programs for each block of rows.

    Columns are divided among enough programs to fill the device. rows, cols: (number, number in a block) each.
    """
    blocks = cols[0] // cols[1]
    cores = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
    n_programs = triton.cdiv(8 * cores, triton.cdiv(*rows) * batch)
    per_split = max(8, triton.cdiv(blocks, n_programs))
    return blocks, per_split, triton.cdiv(blocks, per_split)
