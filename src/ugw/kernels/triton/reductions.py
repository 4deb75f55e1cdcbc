"""Sums over the entries of plans as Triton kernels for float32, each entry read once; reference: `..reductions`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .config import TRITON_CONFIG


@triton.jit
def _partial_sum_kernel(
    u_ptr, v_ptr, out_ptr, size, tiny, KIND: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr
):  # fmt: skip
    """Compute Σ u·v, Σ |u − v| or Σ u log u over BLOCKS·BLOCK entries of one item.

    u_ptr, v_ptr: (B, size), contiguous; out_ptr: (B, parts), one partial sum for each program; tiny: the smallest
    normal number; KIND: "dot", "l1_distance" or "neg_entropy".
    """
    parts = tl.cdiv(size, BLOCK * BLOCKS)
    item, part = (tl.program_id(0) // parts).to(tl.int64), tl.program_id(0) % parts
    sums = tl.zeros((BLOCK,), tl.float32)
    for k in range(BLOCKS):
        at = (part * BLOCKS + k).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        u = tl.load(u_ptr + item * size + at, mask=at < size, other=0.0)
        if KIND == "neg_entropy":
            sums += u * tl.log(tl.maximum(u, tiny))
        else:
            v = tl.load(v_ptr + item * size + at, mask=at < size, other=0.0)
            sums += u * v if KIND == "dot" else tl.abs(u - v)
    tl.store(out_ptr + tl.program_id(0), tl.sum(sums, 0))


def dot(u: Tensor, v: Tensor) -> Tensor:
    """Return the inner product Σ u·v of each item. u, v: (B, n, m), float32. Returns (B,), float64."""
    return _item_sums(u, v, "dot")


def l1_distance(u: Tensor, v: Tensor) -> Tensor:
    """Return the L1 distance Σ |u − v| of each item. u, v: (B, n, m), float32. Returns (B,), float64."""
    return _item_sums(u, v, "l1_distance")


def neg_entropy(p: Tensor) -> Tensor:
    """Return the negative entropy Σ p log p (natural log) of each item, (B,), float64. p: (B, n, m), float32."""
    return _item_sums(p, p, "neg_entropy")


def _item_sums(u: Tensor, v: Tensor, kind: str) -> Tensor:
    """Return Σ u·v ("dot"), Σ |u − v| ("l1_distance") or Σ u log u ("neg_entropy") of each item, (B,), float64.

    u, v: (B, n, m); kind: one of these three names. Parts are added in the dtype of u.
    """
    u, v = u.contiguous(), v.contiguous()
    size = u[0].numel()
    block, blocks = TRITON_CONFIG.reduction_block, TRITON_CONFIG.reduction_blocks_per_program
    parts = triton.cdiv(size, block * blocks)
    out = u.new_empty((len(u), parts))
    tiny = torch.finfo(u.dtype).tiny
    _partial_sum_kernel[(len(u) * parts,)](u, v, out, size, tiny, KIND=kind, BLOCK=block, BLOCKS=blocks)
    return out.sum(1, dtype=torch.float64)
