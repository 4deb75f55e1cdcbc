"""Sums over exp(left_i · right_j + bias_j) that never store the matrix, in blocks of plain torch: the specification.

Shapes: left (B, n, r), right (B, m, r), bias (B, m), -inf where j does not count. O((n + m)·r) memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

# Entries of the block in hand: small enough for a cache, large enough to keep the arithmetic busy.
BLOCK = {"cpu": 2**19, "cuda": 2**26}


def streaming_logsumexp(left: Tensor, right: Tensor, bias: Tensor, guess: Tensor | None = None) -> Tensor:
    """log Σ_j exp(left_i · right_j + bias_j). guess: (B, n), near the result, saves the search for a maximum.

    Returns (B, n).
    """
    shift = torch.zeros_like(left[:, :, 0]) if guess is None else guess
    made = []
    for z in _blocks(left, right, bias, shift):
        largest = None if guess is not None else z.amax(dim=2, keepdim=True)
        sums = _log_sum(z, largest)
        if largest is None and not bool(torch.isfinite(sums).all()):  # the guess was too far off
            return streaming_logsumexp(left, right, bias)
        made.append(sums)
    return torch.cat(made, dim=1) + shift


def _log_sum(z: Tensor, largest: Tensor | None) -> Tensor:
    """log Σ_j exp(z_ij), in place, with the largest entries (B, n, 1) taken out where they are given."""
    if largest is None:
        return z.exp_().sum(2).log_()
    top = torch.where(torch.isfinite(largest), largest, 0.0)
    return z.sub_(top).exp_().sum(2).log_().add_(top[:, :, 0])


def streaming_weighted_sum(left: Tensor, right: Tensor, bias: Tensor, shift: Tensor, values: Tensor) -> Tensor:
    """Σ_j exp(left_i · right_j + bias_j − shift_i) values_jk. shift: (B, n); values: (B, m, k). Returns (B, n, k)."""
    made = [torch.bmm(z.exp_(), values) for z in _blocks(left, right, bias, shift)]
    return torch.cat(made, dim=1)


def _blocks(left: Tensor, right: Tensor, bias: Tensor, shift: Tensor) -> Iterator[Tensor]:
    """left · right + bias − shift for some rows at a time, (B, rows, m), to be used up before the next.

    All in one place: blocks of their own, with a few numbers kept between them, would fragment the memory of a CPU.
    """
    rows, cols = _extended(left, right, bias, shift)
    batch, m = len(rows), cols.shape[2]
    count = min(rows.shape[1], _rows(right, batch))
    place = None if torch.is_grad_enabled() else rows.new_empty(batch * count * m)
    for block in rows.split(count, dim=1):
        shape = batch, block.shape[1], m
        yield torch.bmm(block, cols, out=None if place is None else place[: math.prod(shape)].view(shape))


def _extended(left: Tensor, right: Tensor, bias: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """(B, n, r + 2) and (B, r + 2, m) whose product is left · right + bias − shift: one product does it all."""
    lowest = torch.finfo(bias.dtype).min / 4  # -inf times 1 is well, but some products pad with -inf times 0
    one_n, one_m = torch.ones_like(shift)[:, :, None], torch.ones_like(bias)[:, :, None]
    rows = torch.cat([left, one_n, -shift[:, :, None]], dim=2)
    cols = torch.cat([right, bias.clamp(min=lowest)[:, :, None], one_m], dim=2)
    return rows, cols.mT.contiguous()


def _rows(right: Tensor, batch: int) -> int:
    return max(1, BLOCK.get(right.device.type, BLOCK["cpu"]) // (batch * right.shape[1]))
