"""Barycenters are stationary, monotone, and between what they are of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import ugw
from oracles.errors import assert_refused
from oracles.gradients import INF, rand
from ugw.problems.build import build_ugw

SHARP = ugw.BarycenterMin(tol=1e-9, max_iter=2000, inner=ugw.AlternateMin(tol=1e-9, inner=ugw.Sinkhorn(tol=1e-10)))


def clouds() -> list[ugw.Space]:
    """Three clouds of different sizes, dimensions and masses."""
    return [
        ugw.Space.from_points(rand(n, d, seed=n), weights=0.2 + rand(n, seed=10 + n))
        for n, d in ((5, 2), (7, 3), (6, 1))
    ]


def total_value(
    spaces: list[ugw.Space], shares: list[float], y: ugw.Space, init: torch.Tensor, **options
) -> torch.Tensor:
    """Σ t_s UGW(X_s, y), solved anew."""
    parts = zip(shares, spaces, init, strict=True)
    return sum(t * ugw.ugw_loss(x, y, **options, init=p[: x.n], solver=SHARP.inner) for t, x, p in parts)


@pytest.mark.parametrize("rho", [(0.7, 2.0), (1.0, INF)], ids=str)
def test_distances_are_stationary(rho):
    spaces, shares = clouds(), [0.5, 0.3, 0.2]
    b = ugw.barycenter(spaces, n=4, weights=shares, rho=rho, eps=0.02, solver=SHARP).check()
    assert b.space.mass.item() == pytest.approx(sum(t * float(x.mass) for t, x in zip(shares, spaces, strict=True)))
    leaf = b.distances.requires_grad_()
    y = ugw.Space.from_distances(leaf, weights=b.space.weights)
    value = total_value(spaces, shares, y, b.parts.plan, rho=rho, eps=0.02)
    assert value.item() == pytest.approx(b.value.item(), rel=1e-8)
    (gradient,) = torch.autograd.grad(value, leaf)
    assert not bool(b.distances.diagonal().any())
    off = ~torch.eye(4, dtype=torch.bool)
    assert gradient[off].abs().max() < 1e-6 * gradient.abs().max() + 1e-7


def test_points_are_stationary():
    spaces, shares = clouds(), [0.5, 0.3, 0.2]
    b = ugw.barycenter(spaces, n=5, weights=shares, dim=2, rho=0.7, eps=0.02, solver=replace(SHARP, tol=1e-8)).check()
    assert b.points.shape == (5, 2)
    leaf = b.points.requires_grad_()
    y = ugw.Space.from_points(leaf, weights=b.space.weights)
    torch.testing.assert_close(y.metric.dense(), b.distances)
    (gradient,) = torch.autograd.grad(total_value(spaces, shares, y, b.parts.plan, rho=0.7, eps=0.02), leaf)
    assert gradient.abs().max() < 1e-6


@pytest.mark.parametrize("dim", [None, 2])
def test_the_objective_never_rises(dim):
    b = ugw.barycenter(clouds(), n=6, dim=dim, rho=0.5, eps=0.01)
    steps = np.diff(b.history.objective)
    assert len(steps) > 3
    assert steps.max() < 1e-9
    assert float(b.value) <= b.history.objective[-1] + 1e-9
    # Each round starts where the last one ended.
    cold = ugw.solve(ugw.Space.stack(clouds()), b.space, rho=0.5, eps=0.01, init="product")
    assert b.parts.n_iter.max() < cold.n_iter.max() / 2


def test_the_message_of_a_barycenter_counts_rounds():
    b = ugw.barycenter(clouds(), n=4, rho=0.5, eps=0.1).check()
    assert b.message.startswith(f"converged (after {b.n_iter} rounds the distances changed by ")


def test_similarities_keep_their_diagonal():
    kernel = torch.exp(-clouds()[0].metric.dense())
    x = ugw.Space.from_matrix(kernel)
    b = ugw.barycenter([x, x], start=x, rho=100.0, eps=0.0)
    torch.testing.assert_close(b.distances, kernel, rtol=1e-4, atol=1e-5)


def test_of_one_space_it_is_that_space():
    x = clouds()[0]
    b = ugw.barycenter([x, clouds()[1]], start=x, weights=[1.0, 0.0], rho=1.0, eps=0.0)
    torch.testing.assert_close(b.distances, x.metric.dense(), rtol=1e-4, atol=1e-5)
    assert float(b.value) < 1e-6


def test_in_r3_points_find_a_rotated_copy():
    """Balanced and nearly sharp: the barycenter of isometric clouds is isometric to them."""
    points = rand(8, 3, seed=0)
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))[0]
    spaces = [ugw.Space.from_points(points), ugw.Space.from_points((points @ turn).flip(0))]
    b = ugw.barycenter(spaces, n=8, dim=3, rho=INF, eps=1e-4, solver=ugw.BarycenterMin(max_iter=500, tol=1e-6))
    distances, true = (torch.pdist(p).sort().values for p in (b.points, points))
    torch.testing.assert_close(distances, true, atol=2e-3, rtol=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("dim", [None, 2])
def test_where_all_distances_are_0(dim, dtype):
    """One point, or spaces of one point each: nothing moves, and 0/0 is no change."""
    spaces = [x.to(dtype) for x in clouds()]
    one = ugw.barycenter(spaces, n=1, dim=dim, rho=1.0, eps=0.1).check()
    assert one.distances.item() == 0.0
    points = [ugw.Space.from_points(torch.zeros(1, 2, dtype=dtype))] * 2
    b = ugw.barycenter(points, start=ugw.Space.from_points(torch.zeros(2, 2, dtype=dtype)), dim=dim).check()
    assert b.value.item() == pytest.approx(0.0, abs=1e-6)


def test_single_precision_points_are_near_those_of_double():
    spaces = clouds()
    double = ugw.barycenter(spaces, n=5, dim=2, rho=0.7, eps=0.05)
    single = ugw.barycenter([x.to("float32") for x in spaces], n=5, dim=2, rho=0.7, eps=0.05)
    assert single.points.dtype == torch.float32
    assert float(single.value) == pytest.approx(float(double.value), rel=1e-3)


def test_a_relative_eps_is_that_of_the_start():
    spaces = clouds()
    start = ugw.Space.from_points(rand(4, 2, seed=5))
    eps = [build_ugw(x, start, rho=0.5, eps=ugw.relative(0.1), fused=None).eps.item() for x in spaces]
    b = ugw.barycenter(spaces, start=start, rho=0.5, eps=ugw.relative(0.1))
    same = ugw.barycenter(spaces, start=start, rho=0.5, eps=np.array(eps))
    torch.testing.assert_close(b.distances, same.distances)
    assert np.diff(b.history.objective).max() < 1e-9


def test_numpy_in_numpy_out():
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    batch = ugw.Space.from_points(np.stack([corners, 3 * corners]))
    b = ugw.barycenter(batch, start=ugw.Space.from_points(1.5 * corners), weights=[0.25, 0.75], rho=100.0, eps=1e-3)
    assert isinstance(b.value, float)
    assert isinstance(b.distances, np.ndarray)
    assert b.points is None
    assert isinstance(b.parts.plan, np.ndarray)
    assert isinstance(b.space.weights, np.ndarray)
    assert b.distances[0, 1] == pytest.approx(2.5, rel=1e-2)
    assert "of 2, n=4" in repr(b)


def test_parameters_have_numbers_of_all_options():
    b = ugw.barycenter(clouds(), n=4, dim=2, weights=[2.0, 1.0, 1.0], rho=(0.7, INF), eps=0.05)
    expected = {"divergence": "KL", "rho": [0.7, INF], "eps": 0.05, "n": 4, "dim": 2, "shares": [0.5, 0.25, 0.25]}
    assert {name: b.parameters[name] for name in expected} == expected
    assert b.parameters["solver"]["inner"] == b.parts.parameters["solver"]
    assert b.parameters["solver"]["inner"]["inner"]["max_iter"] == 50
    rhos = [0.5, 0.6, 0.7]
    each = ugw.barycenter(clouds(), start=clouds()[0], rho=np.array(rhos), eps=ugw.relative(0.1)).parameters
    assert each["rho"] == [rhos, rhos]
    assert len(set(each["eps"])) == 3
    assert (each["n"], each["start"]) == (5, "space")
    assert "dim" not in each


def test_rounds_that_end_early_say_so():
    with pytest.warns(ugw.ConvergenceWarning, match=r"limit of rounds.*after 2 rounds"):
        b = ugw.barycenter(clouds(), n=4, solver=ugw.BarycenterMin(max_iter=2))
    assert b.status == ugw.Status.MAX_ITER
    with pytest.raises(ugw.NotConverged, match="max_iter"):
        b.check()
    rounds = []
    with pytest.warns(ugw.ConvergenceWarning, match="callback"):
        ugw.barycenter(clouds(), n=4, solver=ugw.BarycenterMin(callback=lambda s: rounds.append(s) or len(rounds) == 3))
    assert [s.iteration for s in rounds] == [1, 2, 3]


def test_bad_input_is_named():
    spaces = clouds()
    for options, message in (
        ({}, "needs n, its number of points, or a start, got neither"),
        ({"n": 3, "start": spaces[0]}, "got both"),
        ({"n": 0}, "n must be a whole number"),
        ({"n": 3, "dim": 0}, "dim must be a whole number"),
        ({"n": 3, "weights": [1.0, 2.0]}, r"shape \(3,\)"),
        ({"n": 3, "weights": [0.0, 0.0, 0.0]}, "positive sum"),
        ({"n": 3, "solver": ugw.AlternateMin()}, "BarycenterMin"),
        ({"start": spaces[0].to("float32")}, "like the spaces"),
        ({"start": ugw.Space.stack(spaces)}, "one Space, got a batch of 3"),
        ({"start": np.eye(3)}, "one Space, got ndarray"),
        ({"n": 3, "rho": ugw.TV(0.1)}, "a KL here"),
    ):
        with pytest.raises(ugw.InputError, match=message):
            ugw.barycenter(spaces, **options)
    for given, got in ((spaces[0], r"one Space: write \[space\]"), ("ab", "str"), (None, "NoneType"), ([], "none")):
        expected = f"spaces of a barycenter must be a batch or a list of spaces, got {got}"
        assert_refused(ugw.barycenter, given, n=3, match=expected)
    with pytest.raises(ugw.InputError, match="features"):
        ugw.barycenter([ugw.Space.from_points(rand(3, 2, seed=0), features=rand(3, 2, seed=0))], n=3)


def test_results_hold_tensors_if_the_spaces_or_the_start_do():
    points = rand(5, 2, seed=0)
    tensors, arrays = ugw.Space.from_points(points), ugw.Space.from_points(points.numpy())
    for spaces, start, is_torch in ((arrays, arrays, False), (arrays, tensors, True), (tensors, arrays, True)):
        b = ugw.barycenter([spaces, spaces], start=start, solver=ugw.BarycenterMin(tol=0.1))
        for value in (b.distances, b.shares, b.parts.plan, b.space.weights):
            assert isinstance(value, torch.Tensor) == is_torch
    assert isinstance(ugw.barycenter([arrays], n=3, solver=ugw.BarycenterMin(tol=0.1)).distances, np.ndarray)


def test_an_array_without_dimensions_is_no_list_of_spaces():
    assert_refused(ugw.barycenter, np.array(1.0), n=3, match="list of spaces, got ndarray")
