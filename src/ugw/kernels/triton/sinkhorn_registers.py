"""Sinkhorn iterations on plans that fit into the registers of a GPU's multiprocessor, as one Triton kernel.

Each item of a batch is one program, which reads its kernel matrix once and keeps it. Reference:
`..sinkhorn.sinkhorn_iterations`; only float32, as plans in float64 would take twice the registers. Logarithms are
binary inside: the exponential of the hardware is a power of 2, and scaling the exponents would round them in every
iteration.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..sinkhorn import SinkhornIterate, StabilizedKernel
from .config import TRITON_CONFIG, padded_size

LOG2E = math.log2(math.e)


@triton.jit
def _iterations_kernel(
    k_ptr, side_a_ptr, side_b_ptr, gamma_ptr, factors_ptr, new_gamma_ptr, extrapolated_ptr, residual_ptr,
    n, m, max_rate, tiny,
    COUNT: tl.constexpr, N: tl.constexpr, M: tl.constexpr, LOG2E: tl.constexpr,
):  # fmt: skip
    """Make COUNT Sinkhorn iterations of one item and store the fields of its `SinkhornIterate`.

    Input: k_ptr: (B, n, m), the kernel matrix; side_a_ptr: (B, 4, n) and side_b_ptr: (B, 4, m), see
    `StabilizedKernel.side_vectors`; gamma_ptr: (B, m), the potential; factors_ptr: (B, 3), dampings
    1/(1 + eps/rho) of both sides and the translation share 1/(eps/rho1 + eps/rho2); tiny: a sum counts as lost to
    underflow, and gives NaN, if it is at most tiny times the number of terms times the largest factor. Output:
    new_gamma_ptr, extrapolated_ptr: (B, m); residual_ptr: (B,). N, M: n and m padded to powers of two.
    """
    item = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, N), tl.arange(0, M)
    in_a, in_b = i < n, j < m
    k = tl.load(k_ptr + item * n * m + i[:, None] * m + j[None, :], mask=in_a[:, None] & in_b[None, :], other=0.0)
    a, b = side_a_ptr + item * 4 * n + i, side_b_ptr + item * 4 * m + j
    # Entries beyond the edge have no weight, and a sum of 1 instead of 0.
    alpha, offset_a = LOG2E * tl.load(a, mask=in_a, other=0.0), LOG2E * tl.load(a + n, mask=in_a, other=0.0)
    log_a = LOG2E * tl.load(a + 2 * n, mask=in_a, other=float("-inf"))
    beta, offset_b = LOG2E * tl.load(b, mask=in_b, other=0.0), LOG2E * tl.load(b + m, mask=in_b, other=0.0)
    log_b = LOG2E * tl.load(b + 2 * m, mask=in_b, other=float("-inf"))
    pad_a, pad_b = tl.load(a + 3 * n, mask=in_a, other=1.0), tl.load(b + 3 * m, mask=in_b, other=1.0)
    damping_a, damping_b = tl.load(factors_ptr + item * 3), tl.load(factors_ptr + item * 3 + 1)
    share = tl.load(factors_ptr + item * 3 + 2)
    phi = tl.zeros((N,), tl.float32)  # each iteration computes it from gamma
    gamma = LOG2E * tl.load(gamma_ptr + item * m + j, mask=in_b, other=0.0)
    last_gamma, previous_gamma, last_phi = gamma, gamma, phi
    new_phi, new_gamma, log_p1, log_p2 = phi, gamma, phi, gamma
    for step in tl.static_range(COUNT):
        previous_gamma, last_gamma, last_phi = last_gamma, gamma, phi
        scaling_b = tl.where(in_b, tl.exp2(gamma - beta), 0.0)
        sums_a = tl.sum(k * scaling_b[None, :], 1) + pad_a
        if step == COUNT - 1:
            sums_a = tl.where((sums_a > tl.max(scaling_b, 0) * tiny * m) | (i >= n), sums_a, float("nan"))
        rows = tl.log2(sums_a) - offset_a
        new_phi = -damping_a * rows
        scaling_a = tl.where(in_a, tl.exp2(new_phi - alpha), 0.0)
        sums_b = tl.sum(k * scaling_a[:, None], 0) + pad_b
        if step == COUNT - 1:
            sums_b = tl.where((sums_b > tl.max(scaling_a, 0) * tiny * n) | (j >= m), sums_b, float("nan"))
        cols = tl.log2(sums_b) - offset_b
        new_gamma = -damping_b * cols
        log_p1, log_p2 = rows + new_phi + log_a, cols + new_gamma + log_b
        shift = share * (tl.log2(tl.sum(tl.exp2(log_p1), 0)) - tl.log2(tl.sum(tl.exp2(log_p2), 0)))
        phi, gamma = new_phi + shift, new_gamma - shift
    # The mass that moved, and Aitken's extrapolation of gamma, as in `sinkhorn_iterations`.
    update_a, update_b = new_phi - last_phi, new_gamma - last_gamma
    p1 = log_p1 - update_a
    p1 = tl.exp2(p1 - tl.max(p1, 0))
    p2 = tl.exp2(log_p2 - tl.max(log_p2, 0))
    p1, p2 = p1 / tl.sum(p1, 0), p2 / tl.sum(p2, 0)
    moved_a, moved_b = tl.minimum(tl.abs(update_a) / LOG2E, 1.0), tl.minimum(tl.abs(update_b) / LOG2E, 1.0)
    residual = tl.sum(p1 * moved_a, 0) + tl.sum(p2 * moved_b, 0)
    # tl.max drops NaN, so that underflow must be propagated explicitly.
    residual += 0.0 * (tl.sum(tl.where(in_a, rows, 0.0), 0) + tl.sum(tl.where(in_b, cols, 0.0), 0))
    last_change, previous_change = gamma - last_gamma, last_gamma - previous_gamma
    rate = tl.sum(p2 * last_change * previous_change, 0) / tl.sum(p2 * previous_change * previous_change, 0)
    rate = tl.where(rate > 0.0, tl.minimum(rate, max_rate), 0.0)
    extrapolated = gamma + last_change * rate / (1.0 - rate)
    tl.store(new_gamma_ptr + item * m + j, gamma / LOG2E, mask=in_b)
    tl.store(extrapolated_ptr + item * m + j, extrapolated / LOG2E, mask=in_b)
    tl.store(residual_ptr + item, residual)


def sinkhorn_iterations(
    gamma: Tensor, kernel: StabilizedKernel, dampings: tuple[Tensor, ...], translation_share: Tensor, max_rate: float
) -> SinkhornIterate:
    """Return gamma = g/eps after `kernel.iterations_per_check` Sinkhorn iterations, an extrapolation, and the residual.

    Shapes: (B, m), (B, m), (B,). The extrapolation is Aitken's; the residual is the fraction of the plan's mass that
    the last iteration moved, NaN where sums underflowed. The arguments are those of the reference,
    `..sinkhorn.sinkhorn_iterations`.
    """
    matrix = kernel.matrix
    batch, n, m = matrix.shape
    result = empty_result(gamma)
    info = torch.finfo(matrix.dtype)
    rows, cols = padded_size(n), padded_size(m)
    warps = min(16, max(1, rows * cols // (32 * TRITON_CONFIG.register_entries_per_thread)))
    factors = torch.cat((*dampings, translation_share), dim=1)
    inputs = (t.contiguous() for t in (matrix, *kernel.side_vectors, gamma, factors))
    _iterations_kernel[(batch,)](
        *inputs, *result, n, m, max_rate, info.tiny / info.eps,
        COUNT=kernel.iterations_per_check, N=rows, M=cols, LOG2E=LOG2E, num_warps=warps,
    )  # fmt: skip
    return result


def empty_result(gamma: Tensor) -> SinkhornIterate:
    """Return an uninitialized `SinkhornIterate`: two tensors like `gamma`, (B, m), and one number per item, (B,)."""
    return SinkhornIterate(torch.empty_like(gamma), torch.empty_like(gamma), gamma.new_empty(len(gamma)))
