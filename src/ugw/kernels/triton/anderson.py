"""`trail.anderson_coefficients` as one Triton kernel instead of a hundred launches."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .. import anderson as trail


@triton.jit
def _coefficients(
    gram_ptr, size_ptr, barred_ptr, factors_ptr, guessed_ptr, leap_ptr,
    LEAP: tl.constexpr, SURE: tl.constexpr, LARGEST: tl.constexpr, FARTHEST: tl.constexpr,
    GRAIN: tl.constexpr, PARALLEL: tl.constexpr, DAMPING: tl.constexpr,
):  # fmt: skip
    """One item. Numbers as in `trail`, by name."""
    item = tl.program_id(0)
    g = gram_ptr + item * 25
    b00, b01, b11 = tl.load(g), tl.load(g + 1), tl.load(g + 6)
    x00, x01, x10, x11 = tl.load(g + 2), tl.load(g + 3), tl.load(g + 7), tl.load(g + 8)
    e00, e01, e11 = tl.load(g + 12), tl.load(g + 13), tl.load(g + 18)
    s0, s1, last = -tl.load(g + 14), -tl.load(g + 19), tl.load(g + 24)
    size, barred = tl.load(size_ptr + item), tl.load(barred_ptr + item) != 0
    # Least squares, or the last difference alone.
    first, second = e00 * (1.0 + DAMPING), e11 * (1.0 + DAMPING)
    determinant = first * second - e01 * e01
    one = (second * s0 - e01 * s1) / determinant
    two = (first * s1 - e01 * s0) / determinant
    trusted = tl.abs(one) + tl.abs(two) <= LARGEST
    ahead = s1 / e11
    ahead = tl.where(ahead > FARTHEST, FARTHEST, ahead)
    ahead = tl.where((s1 > 0.0) & (e11 > 0.0), ahead, float("nan"))
    one, two = tl.where(trusted, one, 0.0), tl.where(trusted, two, ahead)
    one, two = GRAIN * tl.floor(one / GRAIN + 0.5), GRAIN * tl.floor(two / GRAIN + 0.5)
    # The largest eigenvalue.
    l0, l1 = tl.sqrt(b00), tl.sqrt(b11)
    cosine = b01 / (l0 * l1)
    cosine = tl.where(cosine > 1.0, 1.0, tl.where(cosine < -1.0, -1.0, cosine))
    k00, k11 = (b00 + x00) / (l0 * l0), (b11 + x11) / (l1 * l1)
    half, off = 0.5 * (k00 + k11), (b01 + 0.5 * (x01 + x10)) / (l0 * l1)
    plus, minus = 1.0 + cosine, 1.0 - cosine
    plus, minus = tl.where(plus < PARALLEL, PARALLEL, plus), tl.where(minus < PARALLEL, PARALLEL, minus)
    upper, lower = (half + off) / plus, (half - off) / minus
    mixed = 0.5 * (k00 - k11) / tl.sqrt(plus * minus)
    both = 0.5 * (upper + lower) + tl.sqrt(0.25 * (upper - lower) * (upper - lower) + mixed * mixed)
    single = tl.where(cosine > 0.0, upper, lower)
    grows = tl.where((plus <= 2.0 * PARALLEL) | (minus <= 2.0 * PARALLEL), single, both) >= 1.0
    before = last + e11 + 2.0 * s1
    ready, sum_ = size > 0.0, one + two
    leap = ready & grows & (size >= SURE) & ((barred == 0) | (last >= before))
    mix = ready & (grows == 0) & (sum_ - sum_ == 0.0)
    tl.store(factors_ptr + item * 3, tl.where(mix, one, 0.0))
    tl.store(factors_ptr + item * 3 + 1, tl.where(mix, two, 0.0))
    tl.store(factors_ptr + item * 3 + 2, tl.where(leap, LEAP, 0.0))
    tl.store(guessed_ptr + item, (leap | mix).to(tl.int8))
    tl.store(leap_ptr + item, leap.to(tl.int8))


def anderson_coefficients(gram: Tensor, size: Tensor, barred: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See `trail.anderson_coefficients`. gram and size: float64."""
    batch = len(gram)
    factors = gram.new_empty(batch, 3)
    guessed, leap = (torch.empty(batch, dtype=torch.bool, device=gram.device) for _ in range(2))
    _coefficients[(batch,)](
        gram.contiguous(), size.contiguous(), barred.contiguous().view(torch.int8), factors,
        guessed.view(torch.int8), leap.view(torch.int8),
        LEAP=trail.LEAP, SURE=trail.SURE, LARGEST=trail.LARGEST, FARTHEST=trail.FARTHEST,
        GRAIN=trail.GRAIN, PARALLEL=trail.PARALLEL, DAMPING=trail.DAMPING, num_warps=1,
    )  # fmt: skip
    return factors, guessed, leap
