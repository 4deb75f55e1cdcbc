"""rho, eps and the fused term as a caller may say them, and what becomes of them, item by item."""

import math

import numpy as np
import pytest
import torch

import ugw
from oracles.errors import assert_refused
from oracles.spaces import space
from ugw.errors import InputError
from ugw.geometry.space import Space
from ugw.problems.build import build_ugw

INF = math.inf


def ugw_problem(x=None, y=None, *, rho=1.0, eps=0.1, fused=None):
    """Return a UGW problem, by default between clouds of 4 and 5 points."""
    return build_ugw(x or space(4), y or space(5, 3, 1), rho=rho, eps=eps, fused=fused)


def rho_values(problem):
    """Return rho of both sides as lists over the batch."""
    return problem.div_a.rho.tolist(), problem.div_b.rho.tolist()


# --- rho and eps ---


@pytest.mark.parametrize(
    ("rho", "expected"),
    [
        (2, ([2.0], [2.0])),
        (np.float32(0.5), ([0.5], [0.5])),
        (INF, ([INF], [INF])),
        ((0.5, INF), ([0.5], [INF])),
        ((torch.tensor(0.5), np.array(3)), ([0.5], [3.0])),
        (ugw.KL(2.0), ([2.0], [2.0])),
        ((ugw.Balanced(), ugw.KL(1.0)), ([INF], [1.0])),
    ],
)
def test_a_number_is_for_both_sides_and_a_tuple_for_each(rho, expected):
    problem = ugw_problem(rho=rho)
    assert rho_values(problem) == expected
    assert not problem.batched
    assert problem.sizes is None


@pytest.mark.parametrize(
    ("rho", "expected"),
    [
        (np.array([1.0, 2.0, INF]), ([1.0, 2.0, INF], [1.0, 2.0, INF])),
        (np.array([1.0, 2.0, 3.0], dtype=np.float32), ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])),
        ((np.array([1.0, 2.0, 3.0]), 0.5), ([1.0, 2.0, 3.0], [0.5, 0.5, 0.5])),
        ((INF, torch.tensor([1.0, 2.0, 3.0])), ([INF, INF, INF], [1.0, 2.0, 3.0])),
        ((np.array([1, 2, 3]), np.array([4, 5, 6])), ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])),
        (ugw.KL(np.array([1.0, 2.0, 3.0])), ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])),
    ],
)
def test_an_array_is_for_the_items_of_a_batch_which_it_may_make(rho, expected):
    problem = ugw_problem(rho=rho)
    assert rho_values(problem) == expected
    assert problem.batched
    assert problem.batch == 3
    assert problem.sizes == ((4, 5),) * 3


def test_every_parameter_may_make_the_batch():
    cost = np.ones((3, 4, 5))
    for options in (
        {"eps": np.array([0.1, 0.2, 0.3])},
        {"eps": ugw.relative(np.array([0.1, 0.2, 0.3]))},
        {"fused": ugw.Fused(np.array([0.1, 0.2, 0.3]), cost[0])},
        {"fused": ugw.Fused(0.1, cost)},
        {"x": Space.stack([space(2), space(3), space(4)])},
        {"y": Space.stack([space(2), space(3), space(5)])},
    ):
        problem = ugw_problem(**options)
        assert problem.batched
        assert problem.eps.shape == problem.alpha.shape == problem.div_a.rho.shape == (3,)
        assert problem.log_a.shape == (3, 4)
        assert problem.log_b.shape == (3, 5)


def test_a_batch_of_one_is_a_batch():
    problem = ugw_problem(rho=np.array([1.0]))
    assert problem.batched
    assert problem.sizes == ((4, 5),)
    assert len(ugw.solve(space(4), space(5), rho=np.array([1.0]), eps=0.2)) == 1


def test_true_sizes_of_a_ragged_batch():
    x, y = Space.stack([space(2), space(4), space(3)]), Space.stack([space(5), space(1), space(2)])
    assert ugw_problem(x, y).sizes == ((2, 5), (4, 1), (3, 2))
    assert ugw_problem(space(4), y).sizes == ((4, 5), (4, 1), (4, 2))


def test_parameters_are_float64_for_every_dtype_of_the_spaces():
    problem = ugw_problem(space(4).to(torch.float32), space(5).to(torch.float32), rho=(0.1, INF), eps=0.3)
    assert problem.eps.dtype == problem.div_a.rho.dtype == problem.alpha.dtype == torch.float64
    assert problem.eps.item() == 0.3
    assert problem.log_a.dtype == torch.float32


# --- relative eps ---


def mean_distortion(x, y):
    """Return the mean distortion of the product plan at unit mass, by the four-index sum."""
    dx, dy = x.metric.dense().numpy(), y.metric.dense().numpy()
    a, b = x.weights / x.weights.sum().item(), y.weights / y.weights.sum().item()
    square = (dx[:, None, :, None] - dy[None, :, None, :]) ** 2
    return np.einsum("ijkl,i,j,k,l->", square, a, b, a, b)


@pytest.mark.parametrize("mass", [1.0, 1e-3, 50.0])
def test_relative_eps_is_in_units_of_the_mean_distortion(mass):
    x, y = space(4, mass=mass), space(5, 3, 1, mass=2.0)
    assert ugw_problem(x, y, eps=ugw.relative(0.02)).eps.item() == pytest.approx(
        0.02 * mean_distortion(x, y), rel=1e-12
    )


def test_relative_eps_is_each_items_own():
    xs, ys = [space(4, seed=0), space(3, seed=1, scale=9.0)], [space(5, seed=2), space(2, seed=3)]
    problem = ugw_problem(Space.stack(xs), Space.stack(ys), eps=ugw.relative(np.array([0.1, 0.02])))
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        assert problem.eps[i].item() == pytest.approx((0.1, 0.02)[i] * mean_distortion(x, y), rel=1e-12)


@pytest.mark.parametrize("unit", [1e-8, 1e-3, 1e8])
def test_relative_eps_does_not_depend_on_units(unit):
    r = ugw.solve(space(4), space(5, 3, 1), rho=0.7, eps=ugw.relative(0.1))
    s = ugw.solve(space(4, scale=unit), space(5, 3, 1, scale=unit), rho=0.7 * unit**2, eps=ugw.relative(0.1))
    assert s.value == pytest.approx(r.value * unit**2, rel=1e-8)
    np.testing.assert_allclose(s.plan, r.plan, atol=1e-8)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (space(1), space(1)),  # no distances at all
        (space(1), space(5)),
        (Space.from_points(np.ones((3, 2))), Space.from_points(np.ones((4, 2)))),
        (Space.from_distances(1 - np.eye(3)), Space.from_distances(1 - np.eye(3))),
        (Space.from_matrix(np.ones((3, 3))), Space.from_matrix(np.ones((4, 4)))),
    ],
)
def test_relative_eps_is_positive_where_the_distortion_vanishes(x, y):
    eps = ugw_problem(x, y, eps=ugw.relative(0.1)).eps.item()
    assert math.isfinite(eps)
    assert eps > 0
    assert ugw.solve(x, y, eps=ugw.relative(0.1)).converged


@pytest.mark.parametrize("share", [0, -0.1, math.nan, INF, "1e-2", None, True, 1j, [], [[0.1]], [0.1, 0.0], object()])
def test_bad_shares(share):
    assert_refused(ugw.relative, share, match="^relative eps must .*got")


# --- the fused term ---


def test_the_cost_of_features_is_their_squared_distance():
    u, v = np.random.default_rng(0).normal(size=(4, 3)), np.random.default_rng(1).normal(size=(5, 3))
    problem = ugw_problem(space(4, features=u), space(5, 3, 1, features=v), fused=ugw.Fused(0.3))
    np.testing.assert_allclose(problem.cost, ((u[:, None] - v) ** 2).sum(-1), rtol=1e-13)
    assert problem.alpha.tolist() == [0.3]


def test_the_cost_of_features_in_ragged_and_shared_batches():
    rng = np.random.default_rng(0)
    features = [rng.normal(size=(n, 2)) for n in (4, 3, 2)]
    x = Space.stack([space(len(f), features=f) for f in features])
    u = rng.normal(size=(5, 2))
    y = space(5, 3, 1, features=u)
    for problem in (ugw_problem(x, y, fused=ugw.Fused(0.3)), ugw_problem(y, x, fused=ugw.Fused(0.3))):
        assert problem.cost.shape == (3, *(problem.x.n, problem.y.n))
        for i, f in enumerate(features):
            block = problem.cost[i, : len(f)] if problem.x is x else problem.cost[i, :, : len(f)].T
            np.testing.assert_allclose(block, ((f[:, None] - u) ** 2).sum(-1), rtol=1e-13)


def test_no_fused_term_without_fused():
    problem = ugw_problem(space(4, features=np.eye(4)), space(5, features=np.eye(5)[:, :4]))
    assert problem.cost is None
    assert problem.alpha.tolist() == [0.0]


def test_integer_costs_and_lists_take_the_dtype_of_the_spaces():
    single = space(4).to(torch.float32), space(5).to(torch.float32)
    for cost in (np.ones((4, 5), dtype=int), np.ones((4, 5)).tolist()):
        assert ugw_problem(*single, fused=ugw.Fused(1, cost)).cost.dtype == torch.float32


def test_negative_costs_are_costs():
    cost = -np.random.default_rng(0).random((4, 5))
    r = ugw.solve(space(4), space(5, 3, 1), eps=0.1, fused=ugw.Fused(0.5, cost))
    assert r.terms.linear == pytest.approx(0.5 * (cost * r.plan).sum(), rel=1e-12)
    assert r.terms.linear < 0


# --- masses ---


def test_equal_masses_where_both_sides_are_hard():
    rng = np.random.default_rng(0)
    weights = rng.random(4)
    for dtype in (np.float32, np.float64):
        x = Space.from_points(rng.random((4, 2)).astype(dtype), weights=weights.astype(dtype))
        y = Space.from_points(rng.random((4, 2)).astype(dtype), weights=weights[::-1].astype(dtype))
        ugw_problem(x, y, rho=INF)  # equal up to the order of the sum
    for rho in ((INF, 1.0), (1.0, INF), 1.0):
        ugw_problem(space(4, mass=1.0), space(4, mass=3.0), rho=rho)
    with pytest.raises(InputError, match="equal masses, got 1 and 3"):
        ugw_problem(space(4, mass=1.0), space(4, mass=3.0), rho=(INF, INF))


def test_only_the_items_that_are_hard_on_both_sides_need_equal_masses():
    x = Space.stack([space(4, mass=1.0), space(4, mass=2.0), space(4, mass=3.0)])
    ugw_problem(x, space(4, mass=2.0), rho=(np.array([1.0, INF, INF]), np.array([INF, INF, 1.0])))
    with pytest.raises(InputError, match=r"equal masses, got 3 and 2.*item 2"):
        ugw_problem(x, space(4, mass=2.0), rho=(np.array([1.0, INF, INF]), INF))


def test_a_relative_eps_is_the_same_number_alone_and_in_a_batch():
    """Rounding of its last bits would be amplified by the steps of a solve."""
    sizes = [(5, 6), (14, 5), (9, 31), (22, 7), (3, 4), (40, 38)]
    spaces = [
        [space(n, 2, seed + 10 * side) for seed, (n, _) in enumerate(s)]
        for side, s in enumerate((sizes, [x[::-1] for x in sizes]))
    ]
    share = ugw.relative(1e-2)
    batch = build_ugw(*map(ugw.Space.stack, spaces), rho=1.0, eps=share, fused=None)
    alone = [build_ugw(x, y, rho=1.0, eps=share, fused=None) for x, y in zip(*spaces, strict=True)]
    assert batch.eps.tolist() == [float(problem.eps) for problem in alone]
    assert [float(p.eps) for p in alone] == pytest.approx([1e-2 * float(p.scale()) for p in alone], rel=1e-11)
