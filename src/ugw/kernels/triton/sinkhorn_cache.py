"""Sinkhorn iterations on plans that fit into a GPU's cache but not into registers: two Triton kernels an iteration.

One kernel sums over the columns for a few rows, the other over the rows for a few columns; each computes the vector
that the other reads. A last kernel computes the result. Reference: `..sinkhorn.sinkhorn_iterations`; logarithms are
binary inside, as in `sinkhorn_registers`. Torch would take about twenty short kernels for an iteration.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..sinkhorn import SinkhornIterate, StabilizedKernel
from .config import TRITON_CONFIG
from .sinkhorn_registers import LOG2E, empty_result


@triton.jit
def _log2_sum(log_ptr, size, BLOCK: tl.constexpr):
    """Return log2 Σ 2^x over the entries x of the vector at log_ptr, (size,), without subtracting a maximum."""
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        k = start + tl.arange(0, BLOCK)
        total += tl.exp2(tl.load(log_ptr + k, mask=k < size, other=float("-inf")))
    return tl.log2(tl.sum(total, 0))


@triton.jit
def _row_kernel(
    k_ptr, side_a_ptr, side_b_ptr, gamma_ptr, previous_p1_ptr, previous_p2_ptr, factors_ptr, phi_ptr, log_p1_ptr,
    n, m, tiny,
    FIRST: tl.constexpr, LAST: tl.constexpr, N: tl.constexpr, M: tl.constexpr, BLOCK: tl.constexpr, LOG2E: tl.constexpr,
):  # fmt: skip
    """Compute phi and the log of the first marginal for N rows of an item, both without translation, in units of log 2.

    Input: k_ptr: (B, n, m), the kernel matrix; side_a_ptr: (B, 4, n), side_b_ptr: (B, 4, m), see
    `StabilizedKernel.side_vectors`; gamma_ptr: (B, m), g/eps from the previous iteration without its translation, or
    the given potential if FIRST; previous_p1_ptr: (B, n), previous_p2_ptr: (B, m), log marginals of the previous
    iteration, which give the translation; factors_ptr: (B, 3), dampings 1/(1 + eps/rho) of both sides and the
    translation share 1/(eps/rho1 + eps/rho2); tiny: a sum counts as lost to underflow if it is at most tiny times the
    number of terms times the largest factor. Output: phi_ptr, log_p1_ptr: (B, n).
    """
    blocks = tl.cdiv(n, N)
    item = (tl.program_id(0) // blocks).to(tl.int64)
    i = (tl.program_id(0) % blocks) * N + tl.arange(0, N)
    in_a = i < n
    shift = 0.0
    if not FIRST:
        share = tl.load(factors_ptr + item * 3 + 2)
        shift = _log2_sum(previous_p1_ptr + item * n, n, BLOCK) - _log2_sum(previous_p2_ptr + item * m, m, BLOCK)
        shift = share * shift
    sums, largest = tl.zeros((N, M), tl.float32), tl.zeros((M,), tl.float32)
    for start in range(0, m, M):
        j = start + tl.arange(0, M)
        in_b = j < m
        gamma = tl.load(gamma_ptr + item * m + j, mask=in_b, other=0.0)
        gamma = LOG2E * gamma if FIRST else gamma - shift
        beta = LOG2E * tl.load(side_b_ptr + item * 4 * m + j, mask=in_b, other=0.0)
        scaling = tl.where(in_b, tl.exp2(gamma - beta), 0.0)
        k = tl.load(k_ptr + item * n * m + i[:, None] * m + j[None, :], mask=in_a[:, None] & in_b[None, :], other=0.0)
        sums += k * scaling[None, :]
        largest = tl.maximum(largest, scaling)
    a = side_a_ptr + item * 4 * n + i
    total = tl.sum(sums, 1) + tl.load(a + 3 * n, mask=in_a, other=1.0)
    if LAST:
        total = tl.where((total > tl.max(largest, 0) * tiny * m) | (i >= n), total, float("nan"))
    rows = tl.log2(total) - LOG2E * tl.load(a + n, mask=in_a, other=0.0)
    phi = -tl.load(factors_ptr + item * 3) * rows
    tl.store(phi_ptr + item * n + i, phi, mask=in_a)
    log_a = LOG2E * tl.load(a + 2 * n, mask=in_a, other=float("-inf"))
    tl.store(log_p1_ptr + item * n + i, rows + phi + log_a, mask=in_a)


@triton.jit
def _col_kernel(
    k_ptr, side_a_ptr, side_b_ptr, phi_ptr, factors_ptr, gamma_ptr, log_p2_ptr, n, m, tiny,
    LAST: tl.constexpr, N: tl.constexpr, M: tl.constexpr, LOG2E: tl.constexpr,
):  # fmt: skip
    """Compute gamma and the log of the second marginal for M columns of an item from phi of the same iteration.

    phi_ptr: (B, n); gamma_ptr, log_p2_ptr: (B, m), output; all without translation, in units of log 2. k_ptr: (B, n,
    m), the kernel matrix; side_a_ptr: (B, 4, n), side_b_ptr: (B, 4, m), see `StabilizedKernel.side_vectors`;
    factors_ptr: (B, 3), dampings 1/(1 + eps/rho) of both sides and the translation share; tiny: as in `_row_kernel`.
    """
    blocks = tl.cdiv(m, M)
    item = (tl.program_id(0) // blocks).to(tl.int64)
    j = (tl.program_id(0) % blocks) * M + tl.arange(0, M)
    in_b = j < m
    sums, largest = tl.zeros((N, M), tl.float32), tl.zeros((N,), tl.float32)
    for start in range(0, n, N):
        i = start + tl.arange(0, N)
        in_a = i < n
        phi = tl.load(phi_ptr + item * n + i, mask=in_a, other=0.0)
        alpha = LOG2E * tl.load(side_a_ptr + item * 4 * n + i, mask=in_a, other=0.0)
        scaling = tl.where(in_a, tl.exp2(phi - alpha), 0.0)
        k = tl.load(k_ptr + item * n * m + i[:, None] * m + j[None, :], mask=in_a[:, None] & in_b[None, :], other=0.0)
        sums += k * scaling[:, None]
        largest = tl.maximum(largest, scaling)
    b = side_b_ptr + item * 4 * m + j
    total = tl.sum(sums, 0) + tl.load(b + 3 * m, mask=in_b, other=1.0)
    if LAST:
        total = tl.where((total > tl.max(largest, 0) * tiny * n) | (j >= m), total, float("nan"))
    cols = tl.log2(total) - LOG2E * tl.load(b + m, mask=in_b, other=0.0)
    gamma = -tl.load(factors_ptr + item * 3 + 1) * cols
    tl.store(gamma_ptr + item * m + j, gamma, mask=in_b)
    log_b = LOG2E * tl.load(b + 2 * m, mask=in_b, other=float("-inf"))
    tl.store(log_p2_ptr + item * m + j, cols + gamma + log_b, mask=in_b)


@triton.jit
def _translation(log_p1_ptr, log_p2_ptr, share, index, n, m, BLOCK: tl.constexpr):
    """Return share · log2(m(p1) / m(p2)), a number: the translation of an iteration, for potentials in units of log 2.

    The base-2 logs of its marginals p1 and p2 are in row `index` of log_p1_ptr (·, n) and of log_p2_ptr (·, m).
    """
    return share * (_log2_sum(log_p1_ptr + index * n, n, BLOCK) - _log2_sum(log_p2_ptr + index * m, m, BLOCK))


@triton.jit
def _result_kernel(
    phi_ptr, gamma_ptr, log_p1_ptr, log_p2_ptr, factors_ptr, new_gamma_ptr, extrapolated_ptr, residual_ptr,
    batch, n, m, max_rate, COUNT: tl.constexpr, BLOCK: tl.constexpr, LOG2E: tl.constexpr,
):  # fmt: skip
    """Compute the `SinkhornIterate` of one item from the last three of COUNT ≥ 3 iterations.

    Input: phi_ptr, log_p1_ptr: (COUNT, B, n) and gamma_ptr, log_p2_ptr: (COUNT, B, m), without translation, in units of
    log 2; factors_ptr: (B, 3), the last one the translation share; max_rate: largest convergence rate that the
    extrapolation assumes. Output: new_gamma_ptr and extrapolated_ptr: (B, m); residual_ptr: (B,).
    """
    item = tl.program_id(0).to(tl.int64)
    share = tl.load(factors_ptr + item * 3 + 2)
    now, last = (COUNT - 1) * batch + item, (COUNT - 2) * batch + item
    previous = (COUNT - 3) * batch + item
    shift = _translation(log_p1_ptr, log_p2_ptr, share, now, n, m, BLOCK)
    last_shift = _translation(log_p1_ptr, log_p2_ptr, share, last, n, m, BLOCK)
    previous_shift = _translation(log_p1_ptr, log_p2_ptr, share, previous, n, m, BLOCK)
    weight, moved = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
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
        # The marginal before the update, up to a factor that cancels in the residual.
        p1 = tl.exp2(tl.load(log_p1_ptr + now * n + i, mask=inside, other=float("-inf")) - update - largest)
        weight += p1
        moved += p1 * tl.minimum(tl.abs(update) / LOG2E, 1.0)
        lost += 0.0 * phi
    residual = tl.sum(moved, 0) / tl.sum(weight, 0)
    weight, moved = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    cross, square = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(0, m, BLOCK):
        j = start + tl.arange(0, BLOCK)
        inside = j < m
        new = tl.load(gamma_ptr + now * m + j, mask=inside, other=0.0)
        last_gamma = tl.load(gamma_ptr + last * m + j, mask=inside, other=0.0) - last_shift
        previous_gamma = tl.load(gamma_ptr + previous * m + j, mask=inside, other=0.0) - previous_shift
        p2 = tl.exp2(tl.load(log_p2_ptr + now * m + j, mask=inside, other=float("-inf")))
        weight += p2
        moved += p2 * tl.minimum(tl.abs(new - last_gamma) / LOG2E, 1.0)
        last_change, previous_change = new - shift - last_gamma, last_gamma - previous_gamma
        cross += p2 * last_change * previous_change
        square += p2 * previous_change * previous_change
        lost += 0.0 * new
    residual += tl.sum(moved, 0) / tl.sum(weight, 0)
    rate = tl.sum(cross, 0) / tl.sum(square, 0)
    rate = tl.where(rate > 0.0, tl.minimum(rate, max_rate), 0.0)
    for start in range(0, m, BLOCK):
        j = start + tl.arange(0, BLOCK)
        inside = j < m
        gamma = tl.load(gamma_ptr + now * m + j, mask=inside, other=0.0) - shift
        last_change = gamma - (tl.load(gamma_ptr + last * m + j, mask=inside, other=0.0) - last_shift)
        tl.store(new_gamma_ptr + item * m + j, gamma / LOG2E, mask=inside)
        tl.store(extrapolated_ptr + item * m + j, (gamma + last_change * rate / (1.0 - rate)) / LOG2E, mask=inside)
    tl.store(residual_ptr + item, residual + tl.sum(lost, 0))


def sinkhorn_iterations(
    gamma: Tensor, kernel: StabilizedKernel, dampings: tuple[Tensor, ...], translation_share: Tensor, max_rate: float
) -> SinkhornIterate:
    """Return gamma = g/eps after `kernel.iterations_per_check` Sinkhorn iterations, an extrapolation, and the residual.

    Shapes: (B, m), (B, m), (B,). The extrapolation is Aitken's; the residual is the fraction of the plan's mass that
    the last iteration moved, NaN where sums underflowed. The arguments are those of the reference,
    `..sinkhorn.sinkhorn_iterations`.
    """
    batch, n, m = kernel.matrix.shape
    factors = torch.cat((*dampings, translation_share), dim=1)
    inputs = (kernel.matrix, *kernel.side_vectors, gamma, factors)
    matrix, side_a, side_b, first_gamma, factors = (t.contiguous() for t in inputs)
    count = kernel.iterations_per_check
    phi, log_p1 = matrix.new_empty(2, count, batch, n)
    gamma, log_p2 = matrix.new_empty(2, count, batch, m)
    info = torch.finfo(matrix.dtype)
    tiny = info.tiny / info.eps
    rows, cols, block = TRITON_CONFIG.row_sum_block, TRITON_CONFIG.col_sum_block, TRITON_CONFIG.vector_block
    row_grid, col_grid = (triton.cdiv(n, rows[0]) * batch,), (triton.cdiv(m, cols[0]) * batch,)
    for step in range(count):
        is_first, is_last, previous = step == 0, step == count - 1, max(0, step - 1)
        current_gamma = first_gamma if is_first else gamma[previous]
        _row_kernel[row_grid](
            matrix, side_a, side_b, current_gamma, log_p1[previous], log_p2[previous], factors,
            phi[step], log_p1[step], n, m, tiny,
            FIRST=is_first, LAST=is_last, N=rows[0], M=rows[1], BLOCK=block, LOG2E=LOG2E,
        )  # fmt: skip
        _col_kernel[col_grid](
            matrix, side_a, side_b, phi[step], factors, gamma[step], log_p2[step], n, m, tiny,
            LAST=is_last, N=cols[1], M=cols[0], LOG2E=LOG2E,
        )  # fmt: skip
    result = empty_result(first_gamma)
    _result_kernel[(batch,)](
        phi, gamma, log_p1, log_p2, factors, *result, batch, n, m, max_rate, COUNT=count, BLOCK=block, LOG2E=LOG2E
    )  # fmt: skip
    return result
