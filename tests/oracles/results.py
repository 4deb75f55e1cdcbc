"""Results of every kind."""

import math

import numpy as np
import pytest

import ugw
from oracles.spaces import space

INF = math.inf


def solve(x=None, y=None, *, rho=(0.6, 1.5), eps=0.05, init="product", **kwargs):
    return ugw.solve(x or space(5, 3, mass=1.4), y or space(6, 2, 1, mass=0.9), rho=rho, eps=eps, init=init, **kwargs)


def solve_batch(**kwargs):
    x = ugw.Space.stack([space(4, 3, 3), space(5, 3), space(2, 3, 4)])
    y = ugw.Space.stack([space(3, 2, 5), space(6, 2, 1), space(4, 2, 6)])
    return solve(x, y, **kwargs)


def solve_two_steps(**kwargs):
    with pytest.warns(ugw.ConvergenceWarning):
        return solve(solver=ugw.AlternateMin(max_iter=2), **kwargs)


KINDS = {
    "plain": lambda: solve(),
    "balanced": lambda: solve(space(5, 3), space(6, 2, 1), rho=INF, eps=0.1),
    "semi-relaxed": lambda: solve(rho=(INF, 1.0)),
    "exact": lambda: solve(eps=0.0),
    "vertex": lambda: solve(space(5, 3), space(6, 2, 1), rho=INF, eps=0.0),
    "fused": lambda: solve(fused=ugw.Fused(0.3, np.random.default_rng(0).random((5, 6)))),
    "unconverged": solve_two_steps,
    "batch": solve_batch,
    "mixed batch": lambda: solve_batch(eps=np.array([0.05, 0.0, 0.1])),
    "multistart": lambda: solve(solver=ugw.Multistart(n=3)),
}


def items_of(r):
    return list(r) if r.batched else [r]
