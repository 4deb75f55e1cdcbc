"""The sums of `streaming` as Triton kernels for float32: equal signatures, equal results up to rounding.

The exponents are products of packed rows on the tensor cores. A float32 number is the sum of two that TF32 holds
exactly (22 bits together), so left · right is hi·hi + hi·lo + lo·hi: packed side by side, with the bias and the
shift as further columns, one product of K = 16 columns does rank 4 to float32 accuracy. What is left for every
pair of points is one exponential and one addition.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..._utils.precision import halves

LOG2E = math.log2(math.e)
# Stands for -inf in a packed bias.
NEVER = -(2.0**99)
# Rows and columns of a block, warps and stages: the fastest of 54 tried on an H200 at rank 4.
BLOCK, WARPS, STAGES = 64, 4, 3
# Up to so many columns of values, whose sums have room in registers, are multiplied and added one by one, in blocks of
# so many rows and columns and by so many warps.
# For more of them tensor cores multiply, and add up so many blocks by themselves.
FEW, FEW_ROWS, FEW_COLS, FEW_WARPS, GROUP = 6, 128, 32, 4, 4
# Numbers that one program packs.
PACKED = 2048
# Sums outside these, as powers of two, are not trusted: the guess was too far off.
LOWEST, HIGHEST = -100.0, 120.0


@triton.jit
def _rounded(x):
    """The nearest number with the 11 bits of TF32; what is not a number has bits that would become those of 0."""
    return tl.where(x == x, ((x.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True), x)


@triton.jit
def _packed(
    factor_ptr, extra_ptr, out_ptr, n, count, of_item, of_point, of_column, extra_of_item, extra_of_point,
    scale, extra_scale, R: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, ROW: tl.constexpr, NEVER: tl.constexpr,
):  # fmt: skip
    """Halves of numbers side by side: (hi, hi, lo, 1, 1, extra) for rows, (hi, lo, hi, extra, 1, 1) for columns."""
    i, item, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1).to(tl.int64), tl.arange(0, K)
    there, of_factor = i < n, k < 3 * R
    place = item * of_item + i[:, None].to(tl.int64) * of_point + (k % R)[None, :] * of_column
    x = tl.load(factor_ptr + place, mask=there[:, None] & of_factor[None, :], other=0.0) * scale
    extra = tl.load(extra_ptr + item * extra_of_item + i.to(tl.int64) * extra_of_point, mask=there, other=-float("inf"))
    extra = extra * extra_scale
    extra = tl.where(extra < NEVER, NEVER, extra)  # what is not a number stays so; beyond the last point it is -inf
    hi, extra_hi = _rounded(x), _rounded(extra)
    lo, extra_lo = _rounded(x - hi), _rounded(extra - extra_hi)
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
    """log2 Σ_j 2^(rows_i · cols_j) over one split of the columns. rows: (B, n, K), cols: (B, blocks·BN, K)."""
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
    lost = 1
    if GUESSED:
        partial = tl.zeros((BM, BN), tl.float32)
        for block in range(first, last):
            cols = tl.load(base + (block * BN + j[None, :]).to(tl.int64) * K + k[:, None])
            partial += tl.exp2(tl.dot(rows, cols, input_precision="tf32"))
        sums = tl.sum(partial, 1)
        safe = (tl.log2(sums) > LOWEST) & (tl.log2(sums) < HIGHEST)
        lost = tl.max(tl.where(safe | (i >= n), 0, 1), 0)
    if lost > 0:
        top = tl.full((BM,), -1e38, tl.float32)
        sums = tl.zeros((BM,), tl.float32)
        for block in range(first, last):
            cols = tl.load(base + (block * BN + j[None, :]).to(tl.int64) * K + k[:, None])
            z = tl.dot(rows, cols, input_precision="tf32")
            higher = tl.maximum(top, tl.max(z, 1))
            sums = sums * tl.exp2(top - higher) + tl.sum(tl.exp2(z - higher[:, None]), 1)
            top = higher
    tl.store(out_ptr + ((item * splits + split).to(tl.int64) * n) + i, top + tl.log2(sums), mask=i < n)


@triton.jit
def _few_weighted_sums_kernel(
    rows_ptr, cols_ptr, values_ptr, out_ptr, n, blocks, blocks_per_split, splits,
    K: tl.constexpr, V: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Σ_j 2^(rows_i · cols_j) values_vj over one split. values: (B, V, blocks·BN); out: (B, splits, V, n); V ≤ 6."""
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
    """Σ_j 2^(rows_i · cols_j) values_jv over one split. high, low: (B, blocks·BN, V), see `_value_halves`."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    split, item = tl.program_id(1), tl.program_id(2)
    k, v, j = tl.arange(0, K), tl.arange(0, V), tl.arange(0, BN)
    rows = tl.load(rows_ptr + (item * n + i[:, None]).to(tl.int64) * K + k[None, :], mask=i[:, None] < n, other=0.0)
    first = split * blocks_per_split
    last = tl.minimum(first + blocks_per_split, blocks)
    start = item.to(tl.int64) * blocks * BN
    total = tl.zeros((BM, V), tl.float32)
    for group in range(first, last, GROUP):
        # Tensor cores cut off what they add up: a long sum would drift. Short ones are added by others, who round.
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
    """See `streaming.streaming_logsumexp`."""
    batch, n = left.shape[:2]
    shift = torch.zeros_like(left[:, :, 0]) if guess is None else guess
    rows, cols = packed(left, right, bias, shift)
    blocks, per_split, splits = _splits(batch, (n, BLOCK), (cols.shape[1], BLOCK), left.device)
    out = torch.empty(batch, splits, n, dtype=torch.float32, device=left.device)
    _logsumexp_kernel[(triton.cdiv(n, BLOCK), splits, batch)](
        rows, cols, out, n, blocks, per_split, splits,
        K=rows.shape[2], BM=BLOCK, BN=BLOCK, GUESSED=guess is not None, LOWEST=LOWEST, HIGHEST=HIGHEST,
        num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    total = out[:, 0] / LOG2E if splits == 1 else torch.logsumexp(out / LOG2E, dim=1)
    return total + shift


def streaming_weighted_sum(left: Tensor, right: Tensor, bias: Tensor, shift: Tensor, values: Tensor) -> Tensor:
    """See `streaming.streaming_weighted_sum`."""
    rows, cols = packed(left, right, bias, shift)
    return (_few if values.shape[2] <= FEW else _many)(rows, cols, values)


def _few(rows: Tensor, cols: Tensor, values: Tensor) -> Tensor:
    """Σ_j 2^(rows_i · cols_j) values_jv for at most FEW columns of values. Returns (B, n, V)."""
    batch, n, width = rows.shape
    turned = torch.nn.functional.pad(values.mT, (0, cols.shape[1] - values.shape[1])).contiguous()
    blocks, per_split, splits = _splits(batch, (n, FEW_ROWS), (cols.shape[1], FEW_COLS), rows.device)
    out = torch.empty(batch, splits, values.shape[2], n, dtype=torch.float32, device=rows.device)
    _few_weighted_sums_kernel[(triton.cdiv(n, FEW_ROWS), splits, batch)](
        rows, cols, turned, out, n, blocks, per_split, splits,
        K=width, V=values.shape[2], BM=FEW_ROWS, BN=FEW_COLS, num_warps=FEW_WARPS, num_stages=STAGES,
    )  # fmt: skip
    return out.sum(1).mT


def _many(rows: Tensor, cols: Tensor, values: Tensor) -> Tensor:
    """The same for any number of them."""
    batch, n = rows.shape[:2]
    width = values.shape[2]
    high, low = _value_halves(values, cols.shape[1])
    blocks, per_split, splits = _splits(batch, (n, BLOCK), (cols.shape[1], BLOCK), rows.device)
    out = torch.empty(batch, splits, n, high.shape[2], dtype=torch.float32, device=rows.device)
    _weighted_sums_kernel[(triton.cdiv(n, BLOCK), splits, batch)](
        rows, cols, high, low, out, n, blocks, per_split, splits,
        K=rows.shape[2], V=high.shape[2], BM=BLOCK, BN=BLOCK, GROUP=GROUP, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    total = out.sum(1)
    return total[:, :, :width] + total[:, :, width : 2 * width]


def packed(left: Tensor, right: Tensor, bias: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """(B, n, K) and (B, m, K), m up to whole blocks: TF32 products are log2(e)·(left · right + bias − shift)."""
    m = triton.cdiv(right.shape[1], BLOCK) * BLOCK
    rows = _pack(left, shift, left.shape[1], scales=(LOG2E, -LOG2E), is_row=True)
    return rows, _pack(right, bias, m, scales=(1.0, LOG2E), is_row=False)


def _pack(factor: Tensor, extra: Tensor, count: int, *, scales: tuple[float, float], is_row: bool) -> Tensor:
    """One side of `packed`, so many points of it: a factor (B, n, r) and a number for each point, (B, n), scaled."""
    batch, n, rank = factor.shape
    width = max(16, triton.next_power_of_2(3 * rank + 4))
    out = torch.empty(batch, count, width, dtype=torch.float32, device=factor.device)
    per_program = max(1, PACKED // width)
    _packed[(triton.cdiv(count, per_program), batch)](
        factor, extra, out, n, count, *factor.stride(), *extra.stride(), *scales,
        R=rank, K=width, BM=per_program, ROW=is_row, NEVER=NEVER, num_warps=4,
    )  # fmt: skip
    return out


def _value_halves(values: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """(B, m, V) twice: beside p's upper half stand the values' halves (hi, lo), beside its lower half (hi, 0)."""
    hi, lo = halves(values)
    width = max(16, triton.next_power_of_2(2 * values.shape[2]))
    padding = (0, width - 2 * values.shape[2], 0, m - values.shape[1])
    pad = torch.nn.functional.pad
    return pad(torch.cat([hi, lo], dim=2), padding), pad(torch.cat([hi, torch.zeros_like(lo)], dim=2), padding)


def _splits(batch: int, rows: tuple[int, int], cols: tuple[int, int], device: torch.device) -> tuple[int, int, int]:
    """Blocks of columns, how many of them one program takes, and programs side by side: enough to fill the device.

    rows, cols: how many there are, and how many in a block.
    """
    blocks = cols[0] // cols[1]
    cores = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
    wanted = triton.cdiv(8 * cores, triton.cdiv(*rows) * batch)
    per_split = max(8, triton.cdiv(blocks, wanted))
    return blocks, per_split, triton.cdiv(blocks, per_split)
