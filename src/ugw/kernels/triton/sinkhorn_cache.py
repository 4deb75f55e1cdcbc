"""Iterations of Sinkhorn on plans that fit into a GPU's cache, not into registers: two Triton kernels for each.

One sums over the columns of a few rows, the other over the rows of a few columns, and each makes of its sums what the
other one reads; a last kernel makes of all iterations what `triton_small` does. The specification is the same, and so
are the binary logarithms inside. Torch takes about twenty kernels for an iteration, which for such plans are too short.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .sinkhorn_registers import LOG2E

# Entries of a plan for which this pays: beyond, reading it is all there is.
MOST_ENTRIES = 2**22
# Rows of a program that sums over columns, and columns at a time; then the other way round; parts of a vector.
ROWS, COLS, BLOCK = (4, 256), (8, 128), 1024


@triton.jit
def _log_total(log_ptr, size, BLOCK: tl.constexpr):
    """log Σ exp of the entries of a vector, whose size is moderate."""
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        k = start + tl.arange(0, BLOCK)
        total += tl.exp2(tl.load(log_ptr + k, mask=k < size, other=float("-inf")))
    return tl.log2(tl.sum(total, 0))


@triton.jit
def _rows(
    k_ptr, of_a_ptr, of_b_ptr, gamma_ptr, before_p1_ptr, before_p2_ptr, of_item_ptr, phi_ptr, log_p1_ptr, n, m, tiny,
    FIRST: tl.constexpr, LAST: tl.constexpr, N: tl.constexpr, M: tl.constexpr, BLOCK: tl.constexpr, LOG2E: tl.constexpr,
):  # fmt: skip
    """phi and the logarithm of the first marginal from gamma of the iteration before, which lacks its translation."""
    blocks = tl.cdiv(n, N)
    item = (tl.program_id(0) // blocks).to(tl.int64)
    i = (tl.program_id(0) % blocks) * N + tl.arange(0, N)
    in_a = i < n
    shift = 0.0
    if not FIRST:
        share = tl.load(of_item_ptr + item * 3 + 2)
        shift = _log_total(before_p1_ptr + item * n, n, BLOCK) - _log_total(before_p2_ptr + item * m, m, BLOCK)
        shift = share * shift
    sums, largest = tl.zeros((N, M), tl.float32), tl.zeros((M,), tl.float32)
    for start in range(0, m, M):
        j = start + tl.arange(0, M)
        in_b = j < m
        gamma = tl.load(gamma_ptr + item * m + j, mask=in_b, other=0.0)
        gamma = LOG2E * gamma if FIRST else gamma - shift
        beta = LOG2E * tl.load(of_b_ptr + item * 4 * m + j, mask=in_b, other=0.0)
        scaling = tl.where(in_b, tl.exp2(gamma - beta), 0.0)
        k = tl.load(k_ptr + item * n * m + i[:, None] * m + j[None, :], mask=in_a[:, None] & in_b[None, :], other=0.0)
        sums += k * scaling[None, :]
        largest = tl.maximum(largest, scaling)
    a = of_a_ptr + item * 4 * n + i
    total = tl.sum(sums, 1) + tl.load(a + 3 * n, mask=in_a, other=1.0)
    if LAST:
        total = tl.where((total > tl.max(largest, 0) * tiny * m) | (i >= n), total, float("nan"))
    rows = tl.log2(total) - LOG2E * tl.load(a + n, mask=in_a, other=0.0)
    phi = -tl.load(of_item_ptr + item * 3) * rows
    tl.store(phi_ptr + item * n + i, phi, mask=in_a)
    log_a = LOG2E * tl.load(a + 2 * n, mask=in_a, other=float("-inf"))
    tl.store(log_p1_ptr + item * n + i, rows + phi + log_a, mask=in_a)


@triton.jit
def _cols(
    k_ptr, of_a_ptr, of_b_ptr, phi_ptr, of_item_ptr, gamma_ptr, log_p2_ptr, n, m, tiny,
    LAST: tl.constexpr, N: tl.constexpr, M: tl.constexpr, LOG2E: tl.constexpr,
):  # fmt: skip
    """gamma, and the logarithm of the second marginal, from phi of the same iteration, both without translation."""
    blocks = tl.cdiv(m, M)
    item = (tl.program_id(0) // blocks).to(tl.int64)
    j = (tl.program_id(0) % blocks) * M + tl.arange(0, M)
    in_b = j < m
    sums, largest = tl.zeros((N, M), tl.float32), tl.zeros((N,), tl.float32)
    for start in range(0, n, N):
        i = start + tl.arange(0, N)
        in_a = i < n
        phi = tl.load(phi_ptr + item * n + i, mask=in_a, other=0.0)
        alpha = LOG2E * tl.load(of_a_ptr + item * 4 * n + i, mask=in_a, other=0.0)
        scaling = tl.where(in_a, tl.exp2(phi - alpha), 0.0)
        k = tl.load(k_ptr + item * n * m + i[:, None] * m + j[None, :], mask=in_a[:, None] & in_b[None, :], other=0.0)
        sums += k * scaling[:, None]
        largest = tl.maximum(largest, scaling)
    b = of_b_ptr + item * 4 * m + j
    total = tl.sum(sums, 0) + tl.load(b + 3 * m, mask=in_b, other=1.0)
    if LAST:
        total = tl.where((total > tl.max(largest, 0) * tiny * n) | (j >= m), total, float("nan"))
    cols = tl.log2(total) - LOG2E * tl.load(b + m, mask=in_b, other=0.0)
    gamma = -tl.load(of_item_ptr + item * 3 + 1) * cols
    tl.store(gamma_ptr + item * m + j, gamma, mask=in_b)
    log_b = LOG2E * tl.load(b + 2 * m, mask=in_b, other=float("-inf"))
    tl.store(log_p2_ptr + item * m + j, cols + gamma + log_b, mask=in_b)


@triton.jit
def _shift(log_p1_ptr, log_p2_ptr, share, which, n, m, BLOCK: tl.constexpr):
    """The translation of an iteration."""
    return share * (_log_total(log_p1_ptr + which * n, n, BLOCK) - _log_total(log_p2_ptr + which * m, m, BLOCK))


@triton.jit
def _end(
    phi_ptr, gamma_ptr, log_p1_ptr, log_p2_ptr, of_item_ptr, new_phi_ptr, new_gamma_ptr, ahead_ptr, moved_ptr,
    batch, n, m, slowest, COUNT: tl.constexpr, BLOCK: tl.constexpr, LOG2E: tl.constexpr,
):  # fmt: skip
    """What comes of the last three of COUNT iterations, (COUNT, B, n) and (COUNT, B, m) each."""
    item = tl.program_id(0).to(tl.int64)
    share = tl.load(of_item_ptr + item * 3 + 2)
    now, last, before = (COUNT - 1) * batch + item, (COUNT - 2) * batch + item, (COUNT - 3) * batch + item
    shift = _shift(log_p1_ptr, log_p2_ptr, share, now, n, m, BLOCK)
    last_shift = _shift(log_p1_ptr, log_p2_ptr, share, last, n, m, BLOCK)
    before_shift = _shift(log_p1_ptr, log_p2_ptr, share, before, n, m, BLOCK)
    weight, far = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    lost, top = tl.zeros((BLOCK,), tl.float32), tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        inside = i < n
        update = tl.load(phi_ptr + now * n + i, mask=inside, other=0.0)
        update -= tl.load(phi_ptr + last * n + i, mask=inside, other=0.0) + last_shift
        top = tl.maximum(top, tl.load(log_p1_ptr + now * n + i, mask=inside, other=float("-inf")) - update)
    largest = tl.max(top, 0)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        inside = i < n
        phi = tl.load(phi_ptr + now * n + i, mask=inside, other=0.0)
        update = phi - (tl.load(phi_ptr + last * n + i, mask=inside, other=0.0) + last_shift)
        # The marginal before the update, up to a factor that its sum takes out again.
        p1 = tl.exp2(tl.load(log_p1_ptr + now * n + i, mask=inside, other=float("-inf")) - update - largest)
        weight += p1
        far += p1 * tl.minimum(tl.abs(update) / LOG2E, 1.0)
        lost += 0.0 * phi
        tl.store(new_phi_ptr + item * n + i, (phi + shift) / LOG2E, mask=inside)
    moved = tl.sum(far, 0) / tl.sum(weight, 0)
    weight, far = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    cross, square = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, m, BLOCK):
        j = start + tl.arange(0, BLOCK)
        inside = j < m
        own = tl.load(gamma_ptr + now * m + j, mask=inside, other=0.0)
        one = tl.load(gamma_ptr + last * m + j, mask=inside, other=0.0) - last_shift
        two = tl.load(gamma_ptr + before * m + j, mask=inside, other=0.0) - before_shift
        p2 = tl.exp2(tl.load(log_p2_ptr + now * m + j, mask=inside, other=float("-inf")))
        weight += p2
        far += p2 * tl.minimum(tl.abs(own - one) / LOG2E, 1.0)
        newer, older = own - shift - one, one - two
        cross += p2 * newer * older
        square += p2 * older * older
        lost += 0.0 * own
    moved += tl.sum(far, 0) / tl.sum(weight, 0)
    rate = tl.sum(cross, 0) / tl.sum(square, 0)
    rate = tl.where(rate > 0.0, tl.minimum(rate, slowest), 0.0)
    for start in range(0, m, BLOCK):
        j = start + tl.arange(0, BLOCK)
        inside = j < m
        gamma = tl.load(gamma_ptr + now * m + j, mask=inside, other=0.0) - shift
        newer = gamma - (tl.load(gamma_ptr + last * m + j, mask=inside, other=0.0) - last_shift)
        tl.store(new_gamma_ptr + item * m + j, gamma / LOG2E, mask=inside)
        tl.store(ahead_ptr + item * m + j, (gamma + newer * rate / (1.0 - rate)) / LOG2E, mask=inside)
    tl.store(moved_ptr + item, moved + tl.sum(lost, 0))


def fits(k: Tensor) -> bool:
    """Is a plan (B, n, m) of such a size?"""
    return k.dtype == torch.float32 and k[0].numel() <= MOST_ENTRIES


def sweeps(
    k: Tensor,
    sides: tuple[Tensor, Tensor],
    potentials: tuple[Tensor, Tensor],
    of_item: Tensor,
    count: int,
    slowest: float,
) -> tuple[Tensor, ...]:
    """See `triton_small.sweeps`. count ≥ 3."""
    batch, n, m = k.shape
    k, of_a, of_b, first_phi, first_gamma, of_item = (t.contiguous() for t in (k, *sides, *potentials, of_item))
    phi, log_p1 = k.new_empty(2, count, batch, n)
    gamma, log_p2 = k.new_empty(2, count, batch, m)
    info = torch.finfo(k.dtype)
    tiny = info.tiny / info.eps
    by_rows, by_cols = (triton.cdiv(n, ROWS[0]) * batch,), (triton.cdiv(m, COLS[0]) * batch,)
    for step in range(count):
        first, before = step == 0, max(0, step - 1)
        given = first_gamma if first else gamma[before]
        _rows[by_rows](
            k, of_a, of_b, given, log_p1[before], log_p2[before], of_item, phi[step], log_p1[step], n, m, tiny,
            FIRST=first, LAST=step == count - 1, N=ROWS[0], M=ROWS[1], BLOCK=BLOCK, LOG2E=LOG2E,
        )  # fmt: skip
        _cols[by_cols](
            k, of_a, of_b, phi[step], of_item, gamma[step], log_p2[step], n, m, tiny,
            LAST=step == count - 1, N=COLS[1], M=COLS[0], LOG2E=LOG2E,
        )  # fmt: skip
    made = torch.empty_like(first_phi), torch.empty_like(first_gamma), torch.empty_like(first_gamma), k.new_empty(batch)
    _end[(batch,)](
        phi, gamma, log_p1, log_p2, of_item, *made, batch, n, m, slowest, COUNT=count, BLOCK=BLOCK, LOG2E=LOG2E
    )
    return made
