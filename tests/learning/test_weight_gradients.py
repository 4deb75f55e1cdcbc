"""Derivatives for points of weight 0, against one-sided differences of solved values."""

from __future__ import annotations

import pytest
import torch

import ugw
from oracles.gradients import CONIC, INF, SHARP, Data, rand


@pytest.mark.parametrize("eps", [0.05, 0.0])
@pytest.mark.parametrize("rho", [(0.7, 2.0), (INF, 1.0), (0.5, INF), (INF, INF)], ids=str)
def test_weightless_points_have_one_sided_derivatives(rho, eps):
    side = int(eps == 0)  # each side once
    data = Data.make()
    first = data.a if side == 0 else data.b
    first[1] = 0.0
    data.b *= data.a.sum() / data.b.sum() if rho == (INF, INF) else 1.0
    weights = data.a if side == 0 else data.b

    def value(changed: torch.Tensor) -> torch.Tensor:
        pair = (changed, data.b) if side == 0 else (data.a, changed)
        x, y = (ugw.Space.from_points(p, weights=w) for p, w in zip((data.x, data.y), pair, strict=True))
        return ugw.ugw_loss(x, y, rho=rho, eps=eps, solver=SHARP)

    direction = torch.zeros_like(weights)
    direction[1] = 1.0
    direction[0] = -1.0 if rho == (INF, INF) else 0.0
    leaf = weights.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(leaf), leaf)
    h = 1e-5
    with torch.no_grad():
        value_0, value_1, value_2 = (value(weights + s * h * direction) for s in (0, 1, 2))
    expected = (-3 * value_0 + 4 * value_1 - value_2) / (2 * h)
    assert torch.allclose((gradient * direction).sum(), expected, rtol=1e-6)


def test_weightless_points_of_a_conic_problem():
    data = Data.make()
    data.a[1] = 0.0

    def value(a: torch.Tensor) -> torch.Tensor:
        x, y = ugw.Space.from_points(data.x, weights=a), ugw.Space.from_points(data.y, weights=data.b)
        return ugw.CGWLoss(rho=(0.3, 0.9), solver=CONIC)(x, y)

    leaf = data.a.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(leaf), leaf)
    step = torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    with torch.no_grad():
        coarse, fine = ((value(data.a + h * step) - value(data.a)) / h for h in (2e-3, 1e-3))
    assert torch.allclose(gradient[1], 2 * fine - coarse, rtol=1e-5)


def test_euler_identity_of_the_2_homogeneous_value():
    """At eps = 0 UGW is 2-homogeneous in the weights: <dV/da, a> + <dV/db, b> = 2 V, hard sides included."""
    data = Data.make(equal=True)
    for rho in ((0.7, 2.0), (INF, 1.0), (INF, INF)):
        a, b = (w.clone().requires_grad_() for w in (data.a, data.b))
        x, y = ugw.Space.from_points(data.x, weights=a), ugw.Space.from_points(data.y, weights=b)
        value = ugw.ugw_loss(x, y, rho=rho, eps=0.0, solver=SHARP)
        ga, gb = torch.autograd.grad(value, (a, b))
        assert torch.allclose((ga * a).sum() + (gb * b).sum(), 2 * value, rtol=1e-8)


def test_the_gradient_at_an_unmatched_outlier_is_its_penalty():
    """A far outlier that nothing is matched with: p1 = 0 there, so dV/da = 2 rho m(a)."""
    x = torch.cat([rand(4, 2, seed=0), torch.full((1, 2), 30.0, dtype=torch.float64)])
    a = torch.tensor([0.25, 0.25, 0.25, 0.25, 0.3], dtype=torch.float64, requires_grad=True)
    value = ugw.ugw_loss(ugw.Space.from_points(x, weights=a), x[:4], rho=0.5, eps=0.0, solver=SHARP)
    value.backward()
    assert torch.allclose(a.grad[4], 2 * 0.5 * a.sum().detach(), rtol=1e-9)
