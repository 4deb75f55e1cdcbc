"""Random spaces for tests, and UGW problems between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import ugw
from ugw.problems.build import build_ugw
from ugw.problems.ugw import UGW


def cloud(n: int = 6, d: int = 3, seed: int = 0, dtype: Any = np.float64) -> np.ndarray:
    """Return normally distributed points (n, d)."""
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


def weighted_points(n: int = 6, d: int = 2, seed: Any = 0, mass: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return uniform points (n, d) in the unit cube and uneven weights (n,) of the given sum. seed: or a generator."""
    rng = np.random.default_rng(seed)
    points, weights = rng.random((n, d)), rng.random(n) + 0.2
    return points, weights * mass / weights.sum()


def space(
    n: int = 6,
    d: int = 2,
    seed: Any = 0,
    mass: float = 1.0,
    *,
    scale: float = 1.0,
    n_features: int = 0,
    empty: int | None = None,
    dtype: Any = np.float64,
    **options: Any,
) -> ugw.Space:
    """Return a space of n uniform points in [0, scale]^d with uneven weights of the given sum and normal features.

    empty: index of a point without weight; dtype: of arrays, or of tensors if it is one of torch; options: of
    `Space.from_points`.
    """
    rng = np.random.default_rng(seed)
    points, weights = weighted_points(n, d, rng, mass)
    if empty is not None:
        weights[empty] = 0.0
        weights *= mass / weights.sum()
    arrays = {"points": scale * points, "weights": weights}
    if n_features:
        arrays["features"] = rng.normal(size=(n, n_features))
    if isinstance(dtype, torch.dtype):
        return ugw.Space.from_points(**{k: torch.as_tensor(v, dtype=dtype) for k, v in arrays.items()}, **options)
    return ugw.Space.from_points(**{k: v.astype(dtype) for k, v in arrays.items()}, **options)


def pair(
    n: int = 6, m: int = 7, *, seed: int = 0, dims: tuple[int, int] = (2, 3), **options: Any
) -> tuple[ugw.Space, ugw.Space]:
    """Return spaces of n and m points, in the square and in the cube unless `dims` says otherwise.

    options: of `space`, for both.
    """
    return space(n, dims[0], seed, **options), space(m, dims[1], seed + 1, **options)


def streamable_pair(n: int = 60, m: int = 50, seed: int = 0, mass: float = 1.3, **options: Any) -> list[ugw.Space]:
    """Return spaces of masses 1 and `mass` with squared distances; one point of each has no weight.

    options: of `space`.
    """
    options |= {"metric": "sqeuclidean"}
    return [space(n, 3, seed, empty=3, **options), space(m, 2, seed + 1, mass, empty=-1, **options)]


def ugw_problem(
    x: ugw.Space | None = None, y: ugw.Space | None = None, *, rho: Any = 1.0, eps: Any = 0.05, **options: Any
) -> UGW:
    """Return a UGW problem, by default between the spaces of `pair`. options: of `build_ugw`."""
    return build_ugw(x or space(), y or space(7, 3, 1), rho=rho, eps=eps, **{"fused": None} | options)
