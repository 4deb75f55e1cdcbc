"""Sums over exp(left_i · right_j + bias_j) that never store the matrix, in blocks of plain torch: the reference.

Shapes: left (B, n, r), right (B, m, r), bias (B, m), -inf where column j is ignored. Memory: O((n + m)·r).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from .config import KERNEL_CONFIG


def streaming_logsumexp(left: Tensor, right: Tensor, bias: Tensor, guess: Tensor | None = None) -> Tensor:
    """Return log Σ_j exp(left_i · right_j + bias_j), (B, n), without storing the matrix.

    left: (B, n, r); right: (B, m, r); bias: (B, m), -inf where j is ignored; guess: (B, n), an approximation of the
    result, which saves the search for the maximum of each row.
    """
    shift = torch.zeros_like(left[:, :, 0]) if guess is None else guess
    blocks = []
    for z in exponent_blocks(left, right, bias, shift):
        largest = None if guess is not None else z.amax(dim=2, keepdim=True)
        block = _logsumexp_inplace(z, largest)
        if largest is None and not bool(torch.isfinite(block).all()):  # the guess was too far off
            return streaming_logsumexp(left, right, bias)
        blocks.append(block)
    return torch.cat(blocks, dim=1) + shift


def streaming_weighted_sum(left: Tensor, right: Tensor, bias: Tensor, shift: Tensor, values: Tensor) -> Tensor:
    """Return Σ_j exp(left_i · right_j + bias_j − shift_i) values_jk, (B, n, k), without storing the matrix.

    left: (B, n, r); right: (B, m, r); bias: (B, m), -inf where j is ignored; shift: (B, n), near the logarithms of the
    sums of exponentials, so that none overflows; values: (B, m, k).
    """
    blocks = [torch.bmm(z.exp_(), values) for z in exponent_blocks(left, right, bias, shift)]
    return torch.cat(blocks, dim=1)


def _logsumexp_inplace(z: Tensor, largest: Tensor | None) -> Tensor:
    """Return log Σ_j exp(z_ij), (B, n), and overwrite z (B, n, m) by the exponentials.

    largest: (B, n, 1), the maxima of the rows, subtracted before the exponential; None if z needs no shift.
    """
    if largest is None:
        return z.exp_().sum(2).log_()
    finite_largest = torch.where(torch.isfinite(largest), largest, 0.0)
    return z.sub_(finite_largest).exp_().sum(2).log_().add_(finite_largest[:, :, 0])


def exponent_blocks(left: Tensor, right: Tensor, bias: Tensor, shift: Tensor) -> Iterator[Tensor]:
    """Yield left_i · right_j + bias_j − shift_i in blocks of consecutive rows i, (B, rows, m).

    left: (B, n, r); right: (B, m, r); bias: (B, m); shift: (B, n). Unless gradients are recorded, each block overwrites
    the one before: separate blocks would fragment the memory of a CPU.
    """
    rows, cols = _augment(left, right, bias, shift)
    batch, m = len(rows), cols.shape[2]
    entries = KERNEL_CONFIG.streaming_block_cuda if right.is_cuda else KERNEL_CONFIG.streaming_block_cpu
    count = min(rows.shape[1], max(1, entries // (batch * m)))
    buffer = None if torch.is_grad_enabled() else rows.new_empty(batch * count * m)
    for block in rows.split(count, dim=1):
        shape = batch, block.shape[1], m
        yield torch.bmm(block, cols, out=None if buffer is None else buffer[: math.prod(shape)].view(shape))


def _augment(left: Tensor, right: Tensor, bias: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Return matrices (B, n, r + 2), (B, r + 2, m) whose product is left_i · right_j + bias_j − shift_i, (B, n, m)."""
    lowest = torch.finfo(bias.dtype).min / 4  # not -inf: some matrix products pad with zeros, and -inf · 0 is NaN
    ones_n, ones_m = torch.ones_like(shift)[:, :, None], torch.ones_like(bias)[:, :, None]
    rows = torch.cat([left, ones_n, -shift[:, :, None]], dim=2)
    cols = torch.cat([right, bias.clamp(min=lowest)[:, :, None], ones_m], dim=2)
    return rows, cols.mT.contiguous()
