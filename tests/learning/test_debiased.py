"""The debiased divergence: zero where it should be, its gradient, and what it does not shrink."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import ugw
from oracles.errors import assert_refused
from oracles.gradients import INF, SHARP, STREAMING, Data, check_gradient, rand
from ugw.learning.debiased import debiased_codes, product_plan_distortion
from ugw.problems.build import build_ugw


@pytest.mark.parametrize("eps", [0.1, 0.01, 0.0])
@pytest.mark.parametrize("rho", [0.5, INF])
def test_isometric_spaces_are_at_0(rho, eps):
    points, weights = rand(6, 2, seed=0), rand(6, seed=1) + 0.2
    turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64)
    x = ugw.Space.from_points(points, weights=weights)
    y = ugw.Space.from_points(points.flip(0) @ turn + 2.0, weights=weights.flip(0))
    d = ugw.debiased(x, y, rho=rho, eps=eps, solver=SHARP).check()
    assert abs(d.value) < 1e-9
    assert d.cross.value > 1e-3 or eps == 0


def test_it_is_the_formula_of_three_values():
    x, y = Data.make().spaces()
    rho, eps = 0.8, 0.1
    parts = [ugw.solve(*pair, rho=rho, eps=eps, solver=SHARP).value for pair in ((x, y), (x, x), (y, y))]
    expected = parts[0] - 0.5 * parts[1] - 0.5 * parts[2] + 0.5 * eps * (x.mass**2 - y.mass**2) ** 2
    d = ugw.debiased(x, y, rho=rho, eps=eps, solver=SHARP)
    assert torch.allclose(d.value, expected, rtol=1e-8)
    swapped = ugw.debiased(y, x, rho=rho, eps=eps, solver=SHARP)
    assert torch.allclose(d.value, swapped.value, rtol=1e-8)
    assert (d.cross.plan.shape, d.self_x.plan.shape, d.self_y.plan.shape) == ((4, 5), (4, 4), (5, 5))


@pytest.mark.parametrize("seed", range(4))
def test_it_is_positive_for_unequal_masses(seed):
    """Without the term of the masses this is not so."""
    x = ugw.Space.from_points(rand(5, 2, seed=seed), weights=0.2 + rand(5, seed=10 + seed))
    y = ugw.Space.from_points(rand(5, 2, seed=20 + seed), weights=0.2 * rand(5, seed=30 + seed))
    d = ugw.debiased(x, y, rho=0.1, eps=0.5)
    assert d.value > 0
    assert d.value - 0.25 * (x.mass**2 - y.mass**2) ** 2 < 0


@pytest.mark.parametrize("fused", [None, ugw.Fused(0.6)], ids=["plain", "fused"])
def test_its_gradient_is_that_of_the_solved_value(fused):
    data = Data.make()
    options = {"rho": 0.7, "eps": 0.1, "fused": fused, "solver": SHARP}
    last = ugw.debiased(*data.spaces(), **options)
    names = "x y a b" + (" fx fy" if fused else "")
    check_gradient(lambda d: ugw.debiased(*d.spaces(), **options, init=last).value, data, names)


def test_items_of_a_batch():
    data = Data.make(batch=(3,))
    x, y = data.spaces()
    d = ugw.debiased(x, y, rho=torch.tensor([0.5, 1.0, 2.0]), eps=torch.tensor([0.1, 0.2, 0.05]))
    assert d.value.shape == (3,)
    assert d.status == [ugw.Status.CONVERGED] * 3
    for i, (rho, eps) in enumerate(((0.5, 0.1), (1.0, 0.2), (2.0, 0.05))):
        assert torch.allclose(d.value[i], ugw.debiased(x[i], y[i], rho=rho, eps=eps).value, rtol=1e-6)
    shared = ugw.debiased(x[0], y, rho=0.5, eps=0.1)
    assert torch.allclose(shared.value[0], d.value[0], rtol=1e-6)


def test_plans_that_are_not_stored():
    x, y = rand(40, 2, seed=0), rand(30, 2, seed=1)
    results = []
    for solver in (SHARP, STREAMING):
        leaf = x.clone().requires_grad_()
        spaces = (ugw.Space.from_points(p, metric="sqeuclidean") for p in (leaf, y))
        d = ugw.debiased(*spaces, rho=0.3, eps=0.05, solver=replace(solver, tol=1e-7)).check()
        d.value.backward()
        results.append((d.value.detach(), leaf.grad))
    assert d.self_x.path == "streaming"
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-6)


def test_the_identity_is_among_the_starts_of_self_terms():
    """The product plan is a saddle of a regular polygon against itself: a solve from there alone stays blurred."""
    angle = torch.arange(8, dtype=torch.float64) * torch.pi / 4
    ring = torch.stack([angle.cos(), angle.sin()], dim=1)
    from_product = ugw.solve(*2 * [ugw.Space.from_points(ring)], rho=1.0, eps=1e-3, init="product")
    good = ugw.debiased(ring, 1.02 * ring, rho=1.0, eps=1e-3, init="product")
    assert good.self_x.value < 0.01 * from_product.value
    good = ugw.debiased(ring, 1.02 * ring, rho=1.0, eps=1e-3)
    assert good.value > 0
    with pytest.warns(ugw.ConvergenceWarning, match="below 0"):
        bad = ugw.debiased(ring, 1.02 * ring, rho=1.0, eps=1e-3, init=replace(good, self_x=from_product))
    assert bad.value < 0  # reported, not clamped
    assert bad.status == ugw.Status.NEGATIVE
    assert not bad.converged
    with pytest.raises(ugw.NotConverged, match="local minimum"):
        bad.check()


def test_invalid_arguments_are_refused():
    x = rand(4, 2, seed=0)
    with pytest.raises(ugw.InputError, match="one rho for both sides, got 1 and 2"):
        ugw.debiased(x, x, rho=(1.0, 2.0))
    with pytest.raises(ugw.InputError, match="has no self terms"):
        ugw.debiased(x, x, fused=ugw.Fused(1.0, torch.zeros(4, 4, dtype=torch.float64)))


def test_a_part_that_did_not_converge_is_named():
    x, y = rand(6, 2, seed=0), rand(5, 2, seed=1)
    with pytest.warns(ugw.ConvergenceWarning, match="residual"):
        d = ugw.debiased(x, y, eps=1e-3, solver=ugw.AlternateMin(max_iter=2))
    assert d.status == ugw.Status.MAX_ITER


def test_the_status_is_that_of_the_first_part_that_failed():
    x = ugw.Space.from_points(rand(3, 2, seed=0))
    problem = build_ugw(x, x, rho=1.0, eps=0.1, fused=None)
    good, early, lost = ugw.Status.CONVERGED, ugw.Status.MAX_ITER, ugw.Status.COLLAPSED
    for statuses, expected in (((good, early, lost), early), ((lost, early, good), lost), ((good,) * 3, good)):
        parts = [torch.tensor([int(s)]) for s in statuses]
        assert debiased_codes(
            torch.zeros(1, dtype=torch.float64), product_plan_distortion(problem), parts
        ).tolist() == [int(expected)]


def test_gradient_descent_shrinks_points_unless_the_loss_is_debiased():
    """Gradient descent on the points, from the target itself: a fixed point of the debiased loss only."""
    target = rand(12, 2, seed=0)
    sizes = {}
    for debiased in (False, True):
        points = target.clone().requires_grad_()
        loss = ugw.UGWLoss(rho=1.0, eps=0.1, debiased=debiased, init="last")
        optimizer = torch.optim.SGD([points], lr=2.0)
        for _ in range(20):
            optimizer.zero_grad()
            loss(points, target).backward()
            optimizer.step()
        sizes[debiased] = float(torch.pdist(points.detach()).mean() / torch.pdist(target).mean())
    assert sizes[False] < 0.85
    assert sizes[True] == pytest.approx(1.0, abs=1e-3)


def test_each_problem_is_built_once(monkeypatch):
    builds, solves = [], []
    build = ugw.learning.value_and_grad.build_ugw
    monkeypatch.setattr("ugw.learning.value_and_grad.build_ugw", lambda *a, **k: builds.append(1) or build(*a, **k))
    solve = ugw.learning.value_and_grad.solve_problem
    monkeypatch.setattr("ugw.learning.value_and_grad.solve_problem", lambda *a, **k: solves.append(1) or solve(*a, **k))
    ugw.debiased(*Data.make().spaces(), eps=0.1)
    assert len(builds) == 3  # X and Y, X and X, Y and Y
    assert len(solves) == 5  # one start of X and Y, two of each self term


@pytest.mark.parametrize("fused", [0.5, "features", np.eye(3)], ids=str)
def test_a_fused_term_that_is_none_is_refused(fused):
    x, y = (s.detach() for s in Data.make().spaces())
    assert_refused(ugw.debiased, x, y, fused=fused, match="fused must be a ugw.Fused")
    assert_refused(ugw.UGWLoss, debiased=True, fused=fused, match="fused must be a ugw.Fused")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("numpy", [True, False])
def test_values_are_in_double_precision_and_codes_of_the_kind_of_the_spaces(dtype, numpy):
    points = rand(6, 2, seed=0).to(dtype)
    x, y = (ugw.Space.from_points(p.numpy() if numpy else p) for p in (points, 2.0 * points))
    kind = np.ndarray if numpy else torch.Tensor
    d, batch = ugw.debiased(x, y, eps=0.1), ugw.debiased(ugw.Space.stack([x, x]), y, eps=0.1)
    parts = d.cross.value - 0.5 * (d.self_x.value + d.self_y.value)
    assert float(d.value) == pytest.approx(float(parts), abs=1e-12)
    assert d.value_tensor.dtype == batch.value_tensor.dtype == torch.float64
    for result, n in ((d, 1), (batch, 2)):
        assert isinstance(result.codes, kind)
        assert result.codes.tolist() == [int(ugw.Status.CONVERGED)] * n
    loss = ugw.UGWLoss(eps=0.1, debiased=True)(x, y)
    assert loss.dtype == dtype


def test_a_value_with_a_gradient_is_a_tensor_also_after_it_was_saved(tmp_path):
    points = rand(6, 2, seed=0).numpy()
    d = ugw.debiased(points, 2.0 * points, rho=torch.tensor(1.0, requires_grad=True), eps=0.1)
    assert d.value.requires_grad
    d.save(tmp_path / "d.npz")
    for same in (ugw.Debiased.load(tmp_path / "d.npz"), d.detach()):
        for value in (same.value, same.codes, same.cross.value, same.self_x.plan):
            assert isinstance(value, torch.Tensor)
        assert same.value.item() == d.value.item()
