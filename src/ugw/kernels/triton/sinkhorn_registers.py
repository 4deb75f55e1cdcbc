"""Iterations of Sinkhorn on plans that fit into the registers of a GPU's multiprocessor, as one Triton kernel.

Each item of a batch is one program: it reads its kernel matrix once and keeps it. The specification is
`StabilizedKernel.iterate` and what `solvers.sinkhorn` makes of it; float32 alone, as the registers hold no larger
a plan in float64. Logarithms are binary inside: a GPU's own exponential is one of 2.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2E = math.log2(math.e)
# Entries of a plan, padded to powers of two, that a program holds, and entries for each of its threads.
MOST_ENTRIES, SHARE = 2**15, 128


@triton.jit
def _sweeps(
    k_ptr, of_a_ptr, of_b_ptr, phi_ptr, gamma_ptr, of_item_ptr,
    new_phi_ptr, new_gamma_ptr, ahead_ptr, moved_ptr, n, m, slowest, tiny,
    COUNT: tl.constexpr, N: tl.constexpr, M: tl.constexpr, LOG2E: tl.constexpr,
):  # fmt: skip
    """See `sweeps`. of_a: (B, 4, n), of_b: (B, 4, m): shift, offset, log weight, padding; of_item: (B, 3)."""
    item = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, N), tl.arange(0, M)
    in_a, in_b = i < n, j < m
    k = tl.load(k_ptr + item * n * m + i[:, None] * m + j[None, :], mask=in_a[:, None] & in_b[None, :], other=0.0)
    a, b = of_a_ptr + item * 4 * n + i, of_b_ptr + item * 4 * m + j
    # Entries beyond the edge: no weight, and a sum of 1 instead of 0.
    alpha, offset_a = LOG2E * tl.load(a, mask=in_a, other=0.0), LOG2E * tl.load(a + n, mask=in_a, other=0.0)
    log_a = LOG2E * tl.load(a + 2 * n, mask=in_a, other=float("-inf"))
    beta, offset_b = LOG2E * tl.load(b, mask=in_b, other=0.0), LOG2E * tl.load(b + m, mask=in_b, other=0.0)
    log_b = LOG2E * tl.load(b + 2 * m, mask=in_b, other=float("-inf"))
    pad_a, pad_b = tl.load(a + 3 * n, mask=in_a, other=1.0), tl.load(b + 3 * m, mask=in_b, other=1.0)
    damping_a, damping_b = tl.load(of_item_ptr + item * 3), tl.load(of_item_ptr + item * 3 + 1)
    share = tl.load(of_item_ptr + item * 3 + 2)
    phi = LOG2E * tl.load(phi_ptr + item * n + i, mask=in_a, other=0.0)
    gamma = LOG2E * tl.load(gamma_ptr + item * m + j, mask=in_b, other=0.0)
    last, before, last_phi = gamma, gamma, phi
    own_phi, own_gamma, log_p1, log_p2 = phi, gamma, phi, gamma
    for step in tl.static_range(COUNT):
        before, last, last_phi = last, gamma, phi
        scaling_b = tl.where(in_b, tl.exp2(gamma - beta), 0.0)
        sums_a = tl.sum(k * scaling_b[None, :], 1) + pad_a
        if step == COUNT - 1:
            sums_a = tl.where((sums_a > tl.max(scaling_b, 0) * tiny * m) | (i >= n), sums_a, float("nan"))
        rows = tl.log2(sums_a) - offset_a
        own_phi = -damping_a * rows
        scaling_a = tl.where(in_a, tl.exp2(own_phi - alpha), 0.0)
        sums_b = tl.sum(k * scaling_a[:, None], 0) + pad_b
        if step == COUNT - 1:
            sums_b = tl.where((sums_b > tl.max(scaling_a, 0) * tiny * n) | (j >= m), sums_b, float("nan"))
        cols = tl.log2(sums_b) - offset_b
        own_gamma = -damping_b * cols
        log_p1, log_p2 = rows + own_phi + log_a, cols + own_gamma + log_b
        shift = share * (tl.log2(tl.sum(tl.exp2(log_p1), 0)) - tl.log2(tl.sum(tl.exp2(log_p2), 0)))
        phi, gamma = own_phi + shift, own_gamma - shift
    # What `sinkhorn` makes of its last iterations: the mass that moved, and gamma extrapolated.
    update_a, update_b = own_phi - last_phi, own_gamma - last
    p1 = log_p1 - update_a
    p1 = tl.exp2(p1 - tl.max(p1, 0))
    p2 = tl.exp2(log_p2 - tl.max(log_p2, 0))
    p1, p2 = p1 / tl.sum(p1, 0), p2 / tl.sum(p2, 0)
    far_a, far_b = tl.minimum(tl.abs(update_a) / LOG2E, 1.0), tl.minimum(tl.abs(update_b) / LOG2E, 1.0)
    moved = tl.sum(p1 * far_a, 0) + tl.sum(p2 * far_b, 0)
    # A maximum forgets NaN: what is lost must be seen.
    moved += 0.0 * (tl.sum(tl.where(in_a, rows, 0.0), 0) + tl.sum(tl.where(in_b, cols, 0.0), 0))
    newer, older = gamma - last, last - before
    rate = tl.sum(p2 * newer * older, 0) / tl.sum(p2 * older * older, 0)
    rate = tl.where(rate > 0.0, tl.minimum(rate, slowest), 0.0)
    ahead = gamma + newer * rate / (1.0 - rate)
    tl.store(new_phi_ptr + item * n + i, phi / LOG2E, mask=in_a)
    tl.store(new_gamma_ptr + item * m + j, gamma / LOG2E, mask=in_b)
    tl.store(ahead_ptr + item * m + j, ahead / LOG2E, mask=in_b)
    tl.store(moved_ptr + item, moved)


def fits(k: Tensor) -> bool:
    """Does a plan (B, n, m) fit into registers?"""
    n, m = _padded(k.shape[1]), _padded(k.shape[2])
    return k.dtype == torch.float32 and n * m <= MOST_ENTRIES


def sweeps(
    k: Tensor,
    sides: tuple[Tensor, Tensor],
    potentials: tuple[Tensor, Tensor],
    of_item: Tensor,
    count: int,
    slowest: float,
) -> tuple[Tensor, ...]:
    """`count` iterations with the kernel matrix k (B, n, m), and what comes of them.

    sides: (B, 4, n) and (B, 4, m), of `StabilizedKernel`; potentials: phi (B, n) and gamma (B, m); of_item: (B, 3), the
    dampings of both sides and the share of the translation. Returns phi, gamma, gamma extrapolated at a rate of at most
    `slowest`, and the share of the mass (B,) that the last iteration moved, NaN where the exponent range was left.
    """
    batch, n, m = k.shape
    phi, gamma, ahead = (
        torch.empty_like(potentials[0]),
        torch.empty_like(potentials[1]),
        torch.empty_like(potentials[1]),
    )
    moved = k.new_empty(batch)
    info = torch.finfo(k.dtype)
    size = _padded(n) * _padded(m)
    given = (t.contiguous() for t in (k, *sides, *potentials, of_item))
    _sweeps[(batch,)](
        *given,
        phi, gamma, ahead, moved, n, m, slowest, info.tiny / info.eps,
        COUNT=count, N=_padded(n), M=_padded(m), LOG2E=LOG2E, num_warps=min(16, max(1, size // (32 * SHARE))),
    )  # fmt: skip
    return phi, gamma, ahead, moved


def _padded(size: int) -> int:
    return max(16, 1 << (size - 1).bit_length())
