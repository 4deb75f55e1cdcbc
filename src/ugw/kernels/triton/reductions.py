"""Sums over the entries of plans and costs for Triton, each entry read once: `entries` is their specification.

Torch takes a pass over the entries for every operation, and extrapolated steps have some forty of these.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

# Entries that a program has in hand, and those that it adds up in float32 before its sums are added in float64.
BLOCK, SPAN = 1024, 8
# Rows of a strip of which a program makes covariances, and entries of it in hand, with twenty sums for each.
STRIP, TILE = 8, 512
# Five differences: their sums, and those of their products, a symmetric matrix.
DIFFERENCES, SUMS = 5, 30


@triton.jit
def _pairs(u_ptr, v_ptr, out_ptr, size, tiny, KIND: tl.constexpr, BLOCK: tl.constexpr, SPAN: tl.constexpr):
    """Σ u·v, Σ |u − v| or Σ u log u over a part of an item."""
    parts = tl.cdiv(size, BLOCK * SPAN)
    item, part = (tl.program_id(0) // parts).to(tl.int64), tl.program_id(0) % parts
    sums = tl.zeros((BLOCK,), tl.float32)
    for k in range(SPAN):
        at = (part * SPAN + k).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        u = tl.load(u_ptr + item * size + at, mask=at < size, other=0.0)
        if KIND == "neg_entropy":
            sums += u * tl.log(tl.maximum(u, tiny))
        else:
            v = tl.load(v_ptr + item * size + at, mask=at < size, other=0.0)
            sums += u * v if KIND == "dot" else tl.abs(u - v)
    tl.store(out_ptr + tl.program_id(0), tl.sum(sums, 0))


@triton.jit
def _store_twice(out, row, col, entries):
    """The sum of some entries, at both of its places in a symmetric matrix of 5 × 5."""
    made = tl.sum(entries)
    tl.store(out + 5 * row + col, made)
    tl.store(out + 5 * col + row, made)


@triton.jit
def _gram(
    g0_ptr, g1_ptr, g2_ptr, f0_ptr, f1_ptr, f2_ptr, a_ptr, b_ptr, out_ptr, n, m,
    STRIP: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """Sums of the five differences of `entries.anderson_differences` and of their products, over a strip of rows."""
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
    _store_twice(products, 0, 0, p00)
    _store_twice(products, 0, 1, p01)
    _store_twice(products, 0, 2, p02)
    _store_twice(products, 0, 3, p03)
    _store_twice(products, 0, 4, p04)
    _store_twice(products, 1, 1, p11)
    _store_twice(products, 1, 2, p12)
    _store_twice(products, 1, 3, p13)
    _store_twice(products, 1, 4, p14)
    _store_twice(products, 2, 2, p22)
    _store_twice(products, 2, 3, p23)
    _store_twice(products, 2, 4, p24)
    _store_twice(products, 3, 3, p33)
    _store_twice(products, 3, 4, p34)
    _store_twice(products, 4, 4, p44)


@triton.jit
def _farther(g_ptr, f0_ptr, f1_ptr, f2_ptr, factors_ptr, out_ptr, size, BLOCK: tl.constexpr):
    """f2 + c0 (f1 − f0) + c1 (f2 − f1) + c2 (f2 − g)."""
    parts = tl.cdiv(size, BLOCK)
    item = (tl.program_id(0) // parts).to(tl.int64)
    at = (tl.program_id(0) % parts).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside, at = at < size, item * size + at
    c0, c1 = tl.load(factors_ptr + 3 * item), tl.load(factors_ptr + 3 * item + 1)
    c2 = tl.load(factors_ptr + 3 * item + 2)
    g, f0 = tl.load(g_ptr + at, mask=inside, other=0.0), tl.load(f0_ptr + at, mask=inside, other=0.0)
    f1, f2 = tl.load(f1_ptr + at, mask=inside, other=0.0), tl.load(f2_ptr + at, mask=inside, other=0.0)
    tl.store(out_ptr + at, f2 + c0 * (f1 - f0) + c1 * (f2 - f1) + c2 * (f2 - g), mask=inside)


def dot(u: Tensor, v: Tensor) -> Tensor:
    """See `entries.dot`."""
    return _summed(u, v, "dot")


def l1_distance(u: Tensor, v: Tensor) -> Tensor:
    """See `entries.l1_distance`."""
    return _summed(u, v, "l1_distance")


def neg_entropy(p: Tensor) -> Tensor:
    """See `entries.neg_entropy`."""
    return _summed(p, p, "neg_entropy")


def anderson_moments(a: Tensor, b: Tensor, given: Sequence[Tensor], found: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """See `entries.anderson_moments`."""
    batch, n, m = found[2].shape
    cols = min(TILE, triton.next_power_of_2(m))
    strips = triton.cdiv(n, STRIP)
    out = a.new_empty((batch * strips, SUMS))
    costs = [cost.contiguous() for cost in (*given, *found)]
    weights = (w.expand(batch, -1).contiguous() for w in (a, b))
    _gram[(batch * strips,)](
        *costs, *weights, out, n, m, STRIP=STRIP, ROWS=min(STRIP, TILE // cols), COLS=cols, SUMS=SUMS
    )
    sums = out.view(batch, strips, SUMS).sum(1, dtype=torch.float64)
    return sums[:, :DIFFERENCES, None], sums[:, DIFFERENCES:].unflatten(1, (DIFFERENCES, DIFFERENCES))


def extrapolate(given: Tensor, found: Sequence[Tensor], factors: Sequence[Tensor]) -> Tensor:
    """See `entries.extrapolate`."""
    given, found = given.contiguous(), [f.contiguous() for f in found]
    out, size = torch.empty_like(given), given[0].numel()
    of_item = torch.stack([f.to(given.dtype) for f in factors], dim=1)
    _farther[(len(given) * triton.cdiv(size, BLOCK),)](given, *found, of_item, out, size, BLOCK=BLOCK)
    return out


def _summed(u: Tensor, v: Tensor, kind: str) -> Tensor:
    u, v = u.contiguous(), v.contiguous()
    size = u[0].numel()
    parts = triton.cdiv(size, BLOCK * SPAN)
    out = u.new_empty((len(u), parts))
    tiny = torch.finfo(u.dtype).tiny
    _pairs[(len(u) * parts,)](u, v, out, size, tiny, KIND=kind, BLOCK=BLOCK, SPAN=SPAN)
    return out.sum(1, dtype=torch.float64)
