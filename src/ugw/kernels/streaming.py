"""Sums over exp(left_i · right_j + bias_j) that never store the matrix, in blocks of plain torch: the specification.

Shapes: left (B, n, r), right (B, m, r), bias (B, m), -inf where j does not count. O((n + m)·r) memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Entries of the block in hand: small enough for a cache, large enough to keep the arithmetic busy.
BLOCK = {"cpu": 2**19, "cuda": 2**26}


def log_sums(left: Tensor, right: Tensor, bias: Tensor, guess: Tensor | None = None) -> Tensor:
    """log Σ_j exp(left_i · right_j + bias_j). guess: (B, n), near the result, saves the search for a maximum.

    Returns (B, n).
    """
    shift = torch.zeros_like(left[:, :, 0]) if guess is None else guess
    rows, cols = _extended(left, right, bias, shift)
    made = []
    for block in rows.split(_rows(right, left.shape[0]), dim=1):
        z = torch.bmm(block, cols)
        if guess is None:
            made.append(torch.logsumexp(z, dim=2))
            continue
        sums = z.exp_().sum(2).log_()
        if not bool(torch.isfinite(sums).all()):  # the guess was too far off
            sums = torch.logsumexp(torch.bmm(block, cols), dim=2)
        made.append(sums)
    return torch.cat(made, dim=1) + shift


def weighted_sums(left: Tensor, right: Tensor, bias: Tensor, shift: Tensor, values: Tensor) -> Tensor:
    """Σ_j exp(left_i · right_j + bias_j − shift_i) values_jk. shift: (B, n); values: (B, m, k). Returns (B, n, k)."""
    rows, cols = _extended(left, right, bias, shift)
    blocks = rows.split(_rows(right, left.shape[0]), dim=1)
    return torch.cat([torch.bmm(torch.bmm(block, cols).exp_(), values) for block in blocks], dim=1)


def _extended(left: Tensor, right: Tensor, bias: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """(B, n, r + 2) and (B, r + 2, m) whose product is left · right + bias − shift: one product does it all."""
    lowest = torch.finfo(bias.dtype).min / 4  # -inf times 1 is well, but some products pad with -inf times 0
    one_n, one_m = torch.ones_like(shift)[:, :, None], torch.ones_like(bias)[:, :, None]
    rows = torch.cat([left, one_n, -shift[:, :, None]], dim=2)
    cols = torch.cat([right, bias.clamp(min=lowest)[:, :, None], one_m], dim=2)
    return rows, cols.mT.contiguous()


def _rows(right: Tensor, batch: int) -> int:
    return max(1, BLOCK.get(right.device.type, BLOCK["cpu"]) // (batch * right.shape[1]))
