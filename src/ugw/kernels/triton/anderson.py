"""Anderson extrapolation as Triton kernels, one launch for each function; reference: `..anderson`.

Torch takes a pass over the entries for every operation, some forty in all, and a hundred launches for the coefficients.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..anderson import AndersonStep
from ..config import KERNEL_CONFIG
from .config import TRITON_CONFIG

# Five differences; their sums and the sums of their products, a symmetric 5 × 5 matrix.
N_DIFFERENCES, N_SUMS = 5, 30


@triton.jit
def _store_symmetric(out_ptr, row, col, entries):
    """Store the sum of `entries` at (row, col) and (col, row) of the 5 × 5 matrix at out_ptr."""
    total = tl.sum(entries)
    tl.store(out_ptr + 5 * row + col, total)
    tl.store(out_ptr + 5 * col + row, total)


@triton.jit
def _moments_kernel(
    g0_ptr, g1_ptr, g2_ptr, f0_ptr, f1_ptr, f2_ptr, a_ptr, b_ptr, out_ptr, n, m,
    STRIP: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """Store Σ w d_k and Σ w d_k d_l of the five `anderson_differences` d, w = a⊗b, over STRIP rows of an item.

    g0_ptr, g1_ptr, g2_ptr: the three inputs and f0_ptr, f1_ptr, f2_ptr: the three outputs, (B, n, m), oldest first;
    a_ptr: (B, n); b_ptr: (B, m); out_ptr: (B·strips, SUMS): five sums, then the 5 × 5 sums of products.
    """
    strips = tl.cdiv(n, STRIP)
    item = (tl.program_id(0) // strips).to(tl.int64)
    first = (tl.program_id(0) % strips) * STRIP
    zero = tl.zeros((ROWS, COLS), tl.float32)
    s0, s1, s2, s3, s4 = zero, zero, zero, zero, zero
    p00, p01, p02, p03, p04, p11, p12, p13 = zero, zero, zero, zero, zero, zero, zero, zero
    p14, p22, p23, p24, p33, p34, p44 = zero, zero, zero, zero, zero, zero, zero
    for top in range(0, STRIP, ROWS):
        i = first + top + tl.arange(0, ROWS)
        a = tl.load(a_ptr + item * n + i, mask=i < n, other=0.0)
        for start in range(0, m, COLS):
            j = start + tl.arange(0, COLS)
            w = a[:, None] * tl.load(b_ptr + item * m + j, mask=j < m, other=0.0)[None, :]
            at = item * n * m + i.to(tl.int64)[:, None] * m + j[None, :]
            inside = (i < n)[:, None] & (j < m)[None, :]
            g1, g2 = tl.load(g1_ptr + at, mask=inside, other=0.0), tl.load(g2_ptr + at, mask=inside, other=0.0)
            f1, f2 = tl.load(f1_ptr + at, mask=inside, other=0.0), tl.load(f2_ptr + at, mask=inside, other=0.0)
            d0, d1 = g1 - tl.load(g0_ptr + at, mask=inside, other=0.0), g2 - g1
            d2, d3 = (f1 - tl.load(f0_ptr + at, mask=inside, other=0.0)) - d0, (f2 - f1) - d1
            d4 = f2 - g2
            w0, w1, w2, w3, w4 = w * d0, w * d1, w * d2, w * d3, w * d4
            s0, s1, s2, s3, s4 = s0 + w0, s1 + w1, s2 + w2, s3 + w3, s4 + w4
            p00, p01, p02, p03, p04 = p00 + w0 * d0, p01 + w0 * d1, p02 + w0 * d2, p03 + w0 * d3, p04 + w0 * d4
            p11, p12, p13, p14 = p11 + w1 * d1, p12 + w1 * d2, p13 + w1 * d3, p14 + w1 * d4
            p22, p23, p24 = p22 + w2 * d2, p23 + w2 * d3, p24 + w2 * d4
            p33, p34, p44 = p33 + w3 * d3, p34 + w3 * d4, p44 + w4 * d4
    out = out_ptr + tl.program_id(0) * SUMS
    tl.store(out + 0, tl.sum(s0))
    tl.store(out + 1, tl.sum(s1))
    tl.store(out + 2, tl.sum(s2))
    tl.store(out + 3, tl.sum(s3))
    tl.store(out + 4, tl.sum(s4))
    products = out + 5
    _store_symmetric(products, 0, 0, p00)
    _store_symmetric(products, 0, 1, p01)
    _store_symmetric(products, 0, 2, p02)
    _store_symmetric(products, 0, 3, p03)
    _store_symmetric(products, 0, 4, p04)
    _store_symmetric(products, 1, 1, p11)
    _store_symmetric(products, 1, 2, p12)
    _store_symmetric(products, 1, 3, p13)
    _store_symmetric(products, 1, 4, p14)
    _store_symmetric(products, 2, 2, p22)
    _store_symmetric(products, 2, 3, p23)
    _store_symmetric(products, 2, 4, p24)
    _store_symmetric(products, 3, 3, p33)
    _store_symmetric(products, 3, 4, p34)
    _store_symmetric(products, 4, 4, p44)


@triton.jit
def _extrapolate_kernel(g_ptr, f0_ptr, f1_ptr, f2_ptr, factors_ptr, out_ptr, size, BLOCK: tl.constexpr):
    """Store f2 + c0 (f1 − f0) + c1 (f2 − f1) + c2 (f2 − g) for BLOCK entries of an item.

    g_ptr: the last input and f0_ptr, f1_ptr, f2_ptr: the outputs, oldest first, (B, size); factors_ptr: (B, 3);
    out_ptr: (B, size).
    """
    parts = tl.cdiv(size, BLOCK)
    item = (tl.program_id(0) // parts).to(tl.int64)
    at = (tl.program_id(0) % parts).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside, at = at < size, item * size + at
    c0, c1 = tl.load(factors_ptr + 3 * item), tl.load(factors_ptr + 3 * item + 1)
    c2 = tl.load(factors_ptr + 3 * item + 2)
    g, f0 = tl.load(g_ptr + at, mask=inside, other=0.0), tl.load(f0_ptr + at, mask=inside, other=0.0)
    f1, f2 = tl.load(f1_ptr + at, mask=inside, other=0.0), tl.load(f2_ptr + at, mask=inside, other=0.0)
    tl.store(out_ptr + at, f2 + c0 * (f1 - f0) + c1 * (f2 - f1) + c2 * (f2 - g), mask=inside)


@triton.jit
def _coefficients_kernel(
    gram_ptr, change_ptr, was_rejected_ptr, factors_ptr, is_extrapolated_ptr, is_overrelaxed_ptr,
    OVERRELAXATION: tl.constexpr, MIN_CHANGE: tl.constexpr, MAX_TWO: tl.constexpr, MAX_ONE: tl.constexpr,
    GRAIN: tl.constexpr, INDEPENDENCE: tl.constexpr, DAMPING: tl.constexpr,
):  # fmt: skip
    """Store factors, is_extrapolated and is_overrelaxed of one item, as `anderson_coefficients` computes them.

    gram_ptr: (B, 5, 5), float64; change_ptr: (B,), float64; was_rejected_ptr: (B,), int8; factors_ptr: (B, 3),
    float64; is_extrapolated_ptr, is_overrelaxed_ptr: (B,), int8. The constants are those of `KERNEL_CONFIG`.
    """
    item = tl.program_id(0)
    g = gram_ptr + item * 25
    b00, b01, b11 = tl.load(g), tl.load(g + 1), tl.load(g + 6)
    x00, x01, x10, x11 = tl.load(g + 2), tl.load(g + 3), tl.load(g + 7), tl.load(g + 8)
    e00, e01, e11 = tl.load(g + 12), tl.load(g + 13), tl.load(g + 18)
    s0, s1, residual_square = -tl.load(g + 14), -tl.load(g + 19), tl.load(g + 24)
    change, was_rejected = tl.load(change_ptr + item), tl.load(was_rejected_ptr + item) != 0
    # Least squares, or the last difference alone.
    d00, d11 = e00 * (1.0 + DAMPING), e11 * (1.0 + DAMPING)
    determinant = d00 * d11 - e01 * e01
    first = (d11 * s0 - e01 * s1) / determinant
    last = (d00 * s1 - e01 * s0) / determinant
    is_trusted = tl.abs(first) + tl.abs(last) <= MAX_TWO
    single_coefficient = s1 / e11
    single_coefficient = tl.where(single_coefficient > MAX_ONE, MAX_ONE, single_coefficient)
    single_coefficient = tl.where((s1 > 0.0) & (e11 > 0.0), single_coefficient, float("nan"))
    first, last = tl.where(is_trusted, first, 0.0), tl.where(is_trusted, last, single_coefficient)
    first, last = GRAIN * tl.floor(first / GRAIN + 0.5), GRAIN * tl.floor(last / GRAIN + 0.5)
    # The largest eigenvalue, as in `largest_growth`.
    l0, l1 = tl.sqrt(b00), tl.sqrt(b11)
    cosine = b01 / (l0 * l1)
    cosine = tl.where(cosine > 1.0, 1.0, tl.where(cosine < -1.0, -1.0, cosine))
    k00, k11 = (b00 + x00) / (l0 * l0), (b11 + x11) / (l1 * l1)
    half, off = 0.5 * (k00 + k11), (b01 + 0.5 * (x01 + x10)) / (l0 * l1)
    plus, minus = 1.0 + cosine, 1.0 - cosine
    plus, minus = tl.where(plus < INDEPENDENCE, INDEPENDENCE, plus), tl.where(minus < INDEPENDENCE, INDEPENDENCE, minus)
    upper, lower = (half + off) / plus, (half - off) / minus
    mixed = 0.5 * (k00 - k11) / tl.sqrt(plus * minus)
    both = 0.5 * (upper + lower) + tl.sqrt(0.25 * (upper - lower) * (upper - lower) + mixed * mixed)
    single = tl.where(cosine > 0.0, upper, lower)
    expands = tl.where((plus <= 2.0 * INDEPENDENCE) | (minus <= 2.0 * INDEPENDENCE), single, both) >= 1.0
    previous_square = residual_square + e11 + 2.0 * s1
    may_extrapolate, coefficient_sum = change > 0.0, first + last
    is_overrelaxed = (
        may_extrapolate
        & expands
        & (change >= MIN_CHANGE)
        & ((was_rejected == 0) | (residual_square >= previous_square))
    )
    is_mixed = may_extrapolate & (expands == 0) & (coefficient_sum - coefficient_sum == 0.0)  # not NaN or infinite
    tl.store(factors_ptr + item * 3, tl.where(is_mixed, first, 0.0))
    tl.store(factors_ptr + item * 3 + 1, tl.where(is_mixed, last, 0.0))
    tl.store(factors_ptr + item * 3 + 2, tl.where(is_overrelaxed, OVERRELAXATION, 0.0))
    tl.store(is_extrapolated_ptr + item, (is_overrelaxed | is_mixed).to(tl.int8))
    tl.store(is_overrelaxed_ptr + item, is_overrelaxed.to(tl.int8))


def anderson_moments(
    a: Tensor, b: Tensor, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return Σ_ij a_i b_j d_k, (B, 5, 1), and Σ_ij a_i b_j d_k d_l, (B, 5, 5), float64, of five differences d of costs.

    d: x1 − x0, x2 − x1, r1 − r0, r2 − r1 and r2 with r_k = y_k − x_k; inputs: x0, x1, x2, outputs: y0, y1, y2, float32
    costs (B, n, m), oldest first; a: (B, n); b: (B, m).
    """
    batch, n, m = outputs[2].shape
    strip = TRITON_CONFIG.moment_rows
    cols = min(TRITON_CONFIG.moment_entries, triton.next_power_of_2(m))
    strips = triton.cdiv(n, strip)
    out = a.new_empty((batch * strips, N_SUMS))
    costs = [cost.contiguous() for cost in (*inputs, *outputs)]
    weights = (w.expand(batch, -1).contiguous() for w in (a, b))
    rows = min(strip, TRITON_CONFIG.moment_entries // cols)
    _moments_kernel[(batch * strips,)](
        *costs, *weights, out, n, m, STRIP=strip, ROWS=rows, COLS=cols, SUMS=N_SUMS
    )  # fmt: skip
    sums = out.view(batch, strips, N_SUMS).sum(1, dtype=torch.float64)
    return sums[:, :N_DIFFERENCES, None], sums[:, N_DIFFERENCES:].unflatten(1, (N_DIFFERENCES, N_DIFFERENCES))


def extrapolate(last_input: Tensor, outputs: Sequence[Tensor], factors: Sequence[Tensor]) -> Tensor:
    """Return the cost f2 + c0 (f1 − f0) + c1 (f2 − f1) + c2 (f2 − last_input), (B, n, m), float32.

    last_input: (B, n, m), float32; outputs: f0, f1, f2, the same, oldest first; factors: c0, c1, c2, (B,) each.
    """
    last_input, outputs = last_input.contiguous(), [output.contiguous() for output in outputs]
    out, size = torch.empty_like(last_input), last_input[0].numel()
    stacked = torch.stack([factor.to(last_input.dtype) for factor in factors], dim=1)
    block = TRITON_CONFIG.reduction_block
    _extrapolate_kernel[(len(last_input) * triton.cdiv(size, block),)](
        last_input, *outputs, stacked, out, size, BLOCK=block
    )  # fmt: skip
    return out


def anderson_coefficients(gram: Tensor, relative_change: Tensor, was_rejected: Tensor) -> AndersonStep:
    """Return factors (B, 3), and (B,) bool twice: is the item extrapolated at all, and if so by over-relaxation?

    The factors c0, c1, c2 give the next cost f2 + c0 (f1 − f0) + c1 (f2 − f1) + c2 (f2 − last input), see
    `extrapolate`. Arguments as for `..anderson.anderson_coefficients`; gram: (B, 5, 5), covariances of five differences
    of costs, and relative_change: (B,), float64; was_rejected: (B,) bool.
    """
    batch = len(gram)
    factors = gram.new_empty(batch, 3)
    is_extrapolated, is_overrelaxed = (torch.empty(batch, dtype=torch.bool, device=gram.device) for _ in range(2))
    _coefficients_kernel[(batch,)](
        gram.contiguous(), relative_change.contiguous(), was_rejected.contiguous().view(torch.int8), factors,
        is_extrapolated.view(torch.int8), is_overrelaxed.view(torch.int8),
        OVERRELAXATION=KERNEL_CONFIG.overrelaxation, MIN_CHANGE=KERNEL_CONFIG.min_overrelaxed_change,
        MAX_TWO=KERNEL_CONFIG.max_two_coefficients, MAX_ONE=KERNEL_CONFIG.max_one_coefficient,
        GRAIN=KERNEL_CONFIG.coefficient_grain, INDEPENDENCE=KERNEL_CONFIG.min_independence,
        DAMPING=KERNEL_CONFIG.least_squares_damping, num_warps=1,
    )  # fmt: skip
    return AndersonStep(factors, is_extrapolated, is_overrelaxed)
