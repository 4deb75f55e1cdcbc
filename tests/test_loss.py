"""Losses as torch users meet them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import ugw
from gradient_cases import rand


def test_the_first_thing_a_user_does():
    x, y = torch.rand(7, 2, generator=torch.Generator().manual_seed(0)).requires_grad_(), torch.eye(3)
    loss = ugw.UGWLoss(rho=1.0, eps=1e-2)(x, y)
    loss.backward()
    assert loss.shape == ()
    assert loss.dtype == x.grad.dtype == torch.float32
    solved = ugw.solve(ugw.Space.from_points(x.detach()), ugw.Space.from_points(y), rho=1.0, eps=1e-2)
    assert loss.item() == pytest.approx(float(solved.value), rel=1e-6)


def test_a_loss_is_part_of_a_graph():
    """Leaves far behind the points, sums with other losses, scaled spaces."""
    layer = torch.nn.Linear(2, 3, dtype=torch.float64)
    x, y = rand(5, 2, seed=0), rand(4, 2, seed=1)
    moved = ugw.Space.from_points(layer(x)).scaled("mean")
    total = 2.0 * ugw.ugw_loss(moved, y) + layer.bias.square().sum()
    total.backward()
    assert bool(layer.weight.grad.isfinite().all())
    assert bool(layer.weight.grad.any())


def test_values_without_gradients_are_plain():
    x, y = rand(5, 2, seed=0), rand(4, 2, seed=1)
    assert not ugw.ugw_loss(x, y).requires_grad
    assert not ugw.ugw_loss(x.numpy(), y.numpy()).requires_grad
    x.requires_grad_()
    with torch.no_grad():
        assert not ugw.ugw_loss(x, y).requires_grad
    assert ugw.ugw_loss(x, y.numpy()).requires_grad


def test_bad_input_is_named():
    x = rand(5, 2, seed=0)
    with pytest.raises(ugw.InputError, match=r"x must be a ugw\.Space or points"):
        ugw.ugw_loss("points", x)
    with pytest.raises(ugw.InputError, match="one dtype"):
        ugw.ugw_loss(x.float(), x)
    with pytest.raises(ugw.InputError, match=r"eps of a loss must be a number.*here 0\.00"):
        ugw.ugw_loss(x, x, eps=ugw.relative(1e-2))
    with pytest.raises(ugw.InputError, match="cone over KL, got partial transport"):
        ugw.CGWLoss(cone="partial-transport")(x, x)


def test_a_solve_that_did_not_converge_says_what_its_gradient_is_not():
    x, y = rand(6, 2, seed=0).requires_grad_(), rand(5, 2, seed=1)
    short = ugw.AlternateMin(max_iter=2)
    with pytest.warns(
        ugw.ConvergenceWarning, match=r"gradient.*not that of the value.*changed by .*residual"
    ) as caught:
        ugw.ugw_loss(x, y, eps=1e-3, solver=short)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with pytest.warns(ugw.ConvergenceWarning, match="residual") as caught:
        ugw.ugw_loss(x.detach(), y, eps=1e-3, solver=short)
    assert "gradient" not in str(caught[0].message)
    with pytest.warns(ugw.ConvergenceWarning, match="gradient") as caught:
        ugw.UGWLoss(eps=1e-3, solver=short)(x, y)
    assert caught[0].filename == __file__


def test_the_last_plan_starts_the_next_call():
    x, y = rand(12, 2, seed=0), rand(12, 2, seed=1)
    loss = ugw.UGWLoss(rho=1.0, eps=0.02, init="last")
    first = loss(x, y)
    steps = loss.result.n_iter
    again = loss(x + 1e-4, y)
    assert loss.result.n_iter < steps / 2
    torch.testing.assert_close(again, first, rtol=1e-4, atol=0.0)
    loss(x[:8], y)  # another size: from the start again
    assert loss.result.plan.shape == (8, 12)


def test_conic_loss_of_points():
    x, y = rand(5, 2, seed=0).requires_grad_(), rand(4, 2, seed=1)
    loss = ugw.CGWLoss(rho=0.5, init="last")
    value = loss(x, y)
    value.backward()
    solved = ugw.solve_conic(ugw.Space.from_points(x.detach()), ugw.Space.from_points(y), rho=0.5)
    assert value.item() == pytest.approx(float(solved.value), rel=1e-9)
    assert loss.result.distance == pytest.approx(value.item() ** 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loss(x, y).item() <= value.item() * (1 + 1e-9)


def test_numpy_and_torch_spaces_mix():
    points = np.random.default_rng(0).random((5, 2))
    leaf = torch.from_numpy(points[::-1].copy()).requires_grad_()
    ugw.ugw_loss(leaf, ugw.Space.from_points(points)).backward()
    assert bool(leaf.grad.isfinite().all())
