"""Losses as torch users meet them."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch

import ugw
from oracles.errors import assert_refused
from oracles.gradients import rand
from ugw.problems.build import build_ugw


def test_the_first_thing_a_user_does():
    x, y = torch.rand(7, 2, generator=torch.Generator().manual_seed(0)).requires_grad_(), torch.eye(3)
    loss = ugw.UGWLoss(rho=1.0, eps=1e-2)(x, y)
    loss.backward()
    assert loss.shape == ()
    assert loss.dtype == x.grad.dtype == torch.float32
    solved = ugw.solve(ugw.Space.from_points(x.detach()), ugw.Space.from_points(y), rho=1.0, eps=1e-2)
    assert loss.item() == pytest.approx(float(solved.value), rel=1e-6)


def test_a_loss_is_part_of_a_graph():
    """Gradients of leaves through other operations, sums with other losses, scaled spaces."""
    layer = torch.nn.Linear(2, 3, dtype=torch.float64)
    x, y = rand(5, 2, seed=0), rand(4, 2, seed=1)
    space = ugw.Space.from_points(layer(x)).scaled("mean")
    total = 2.0 * ugw.ugw_loss(space, y) + layer.bias.square().sum()
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
    with pytest.raises(ugw.InputError, match="solver must be an AlternateMin"):
        ugw.ugw_loss(x, x, eps=ugw.relative(1e-2), solver=ugw.FrankWolfe())
    with pytest.raises(ugw.InputError, match="without entropy: eps must be 0"):
        ugw.ugw_loss(x, x, rho=ugw.TV(0.1), eps=0.01)
    for make, message in (
        (lambda: ugw.UGWLoss(rho=-1.0), "rho must be positive"),
        (lambda: ugw.UGWLoss(eps=-1.0), "eps must be nonnegative"),
        (lambda: ugw.CGWLoss(rho=float("inf")), "must be finite"),
        (lambda: ugw.CGWLoss(cone="foo"), "cone must be one of"),
        (lambda: ugw.ugw_loss([x, x[:3]], x), r"Space\.stack"),
    ):
        with pytest.raises(ugw.InputError, match=message):
            make()
    assert "init='last'" in repr(ugw.UGWLoss(init="last")) + repr(ugw.CGWLoss(init=torch.eye(2)))
    with pytest.raises(ugw.InputError, match="cone over KL, got partial transport"):
        ugw.CGWLoss(cone="partial-transport")(x, x)


@pytest.mark.parametrize("batch", [(), (2,)], ids=["one", "batch"])
def test_a_relative_eps_is_held_fixed(batch):
    """It is the number that `solve` makes of it, and the gradient that of the loss with this number."""
    gradients, y = [], rand(4, 2, seed=1)
    eps = build_ugw(
        *map(ugw.Space.from_points, (rand(*batch, 5, 2, seed=0), y)), rho=1.0, eps=ugw.relative(0.1), fused=None
    ).eps
    for eps_argument in (ugw.relative(0.1), eps if batch else eps.item()):
        x = rand(*batch, 5, 2, seed=0).requires_grad_()
        value = ugw.ugw_loss(x, y, eps=eps_argument)
        value.sum().backward()
        d = ugw.debiased(x, y, eps=eps_argument)
        d.value.sum().backward()
        r = ugw.solve_differentiable(x, y, eps=eps_argument)
        r.plan.square().sum().backward()
        gradients.append((value.detach(), d.value.detach(), r.plan.detach(), x.grad))
    torch.testing.assert_close(gradients[0], gradients[1])
    assert value.shape == batch
    x, y = rand(6, 2, seed=0), rand(6, 2, seed=0).flip(0)
    assert abs(ugw.debiased(x, 1.0 - y, eps=ugw.relative(0.2)).value) < 1e-9
    share = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    ugw.ugw_loss(x, y, eps=ugw.relative(share)).backward()
    assert share.grad > 0


def test_partial_losses_take_no_entropy():
    x, y = rand(5, 2, seed=0).requires_grad_(), rand(4, 2, seed=1)
    loss = ugw.UGWLoss(rho=ugw.Mass(0.5), init="last")
    loss(x, y).backward()
    assert bool(x.grad.isfinite().all())
    assert float(loss.result.mass) == pytest.approx(0.5)
    assert loss(x, y).item() <= ugw.solve(*map(ugw.Space.from_points, (x.detach(), y)), rho=ugw.Mass(0.5)).value + 1e-12
    with pytest.raises(ugw.InputError, match="takes off what entropy adds"):
        ugw.debiased(x, y, rho=ugw.TV(0.1))
    with pytest.raises(ugw.InputError, match="for a rho of KL"):
        ugw.solve_differentiable(x, y, rho=ugw.TV(0.1))


def test_a_module_is_copied_and_saved(tmp_path):
    x, y = rand(5, 2, seed=0), rand(4, 2, seed=1)
    rho = torch.nn.Parameter(torch.tensor(0.7))
    for loss in (ugw.UGWLoss(rho=rho, debiased=True, init="last"), ugw.CGWLoss(rho=0.5, init="last")):
        value = loss(x, y).item()
        torch.save(loss, tmp_path / "loss.pt")
        again = torch.load(tmp_path / "loss.pt", weights_only=False)
        for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), again):
            assert other(x, y).item() == pytest.approx(value, rel=1e-6)
    assert list(ugw.UGWLoss(rho=rho).state_dict()) == ["rho"]
    assert not ugw.CGWLoss().state_dict()


def test_an_unconverged_solve_warns_that_the_gradient_is_inexact():
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
    loss(x[:8].float(), y.float())  # another dtype
    assert loss.result.plan.dtype == torch.float32
    for count in (2, 3):  # batches
        assert loss(x[:8].float().expand(count, 8, 2), y.float()).shape == (count,)


def test_a_plan_that_did_not_converge_is_not_used_as_a_start():
    x, y = rand(8, 2, seed=0), rand(8, 2, seed=1)
    loss = ugw.UGWLoss(eps=1e-3, init="last", solver=ugw.AlternateMin(max_iter=3))
    with pytest.warns(ugw.ConvergenceWarning):
        first, again = loss(x, y), loss(x, y)
    assert again.item() == first.item()


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


def test_a_conic_loss_in_single_precision_converges():
    x, y = rand(12, 2, seed=0).float().requires_grad_(), rand(10, 2, seed=1).float()
    loss = ugw.CGWLoss(rho=0.5, init="last")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = loss(x, y)
        value.backward()
        steps = loss.result.n_iter
        loss(x + 1e-5, y)
    assert loss.result.n_iter <= steps
    leaf = x.detach().double().requires_grad_()
    ugw.CGWLoss(rho=0.5)(leaf, y.double()).backward()
    assert value.dtype == x.grad.dtype == torch.float32
    torch.testing.assert_close(x.grad.double(), leaf.grad, rtol=1e-4, atol=1e-6)
    with pytest.raises(ugw.InputError, match="one dtype"):
        loss(x, y.double())


def test_numpy_and_torch_spaces_mix():
    points = np.random.default_rng(0).random((5, 2))
    leaf = torch.from_numpy(points[::-1].copy()).requires_grad_()
    ugw.ugw_loss(leaf, ugw.Space.from_points(points)).backward()
    assert bool(leaf.grad.isfinite().all())


@pytest.mark.parametrize("value", ["no", 1, None, np.ones(3), torch.ones(3)], ids=str)
def test_debiased_is_true_or_false(value):
    assert_refused(ugw.UGWLoss, debiased=value, match="debiased must be True or False")
