"""Finite results for small eps, extreme masses, single and identical points, tiny and huge distances, empty rows, float32.

Whatever the input, every number of the result is finite and the status is honest: what is called converged
agrees with float64 or with a tighter solve, and what is not says what to do.
"""

import contextlib
import math

import numpy as np
import ot
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ugw
from oracles import cases
from oracles.spaces import pair, space
from ugw.errors import InputError
from ugw.geometry.space import Space
from ugw.problems.build import build_ugw
from ugw.results.records import Status

INF = math.inf
RHOS = [1.0, (0.3, 2.0), (1.0, INF), (INF, 1.0), INF]
HUGE_COST = 1e8 * np.random.default_rng(0).random((6, 7))
pytestmark = pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")


def assert_consistent(r, size=1.0):
    """Assert that all numbers are finite and consistent and that failures have advice; return the result.

    size: objective of the zero plan, to which the rounding errors of the terms are relative.
    """
    for item in r if r.batched else [r]:
        numbers = [item.plan, item.plan_pair[1], *item.marginals, item.value, item.relaxed_value, item.gap, item.mass]
        numbers += [item.marginal_error, *item.terms.as_dict().values()]
        with contextlib.suppress(InputError):
            numbers += item.potentials
        h = item.history
        numbers += [h.objective, h.change, h.residual, h.mass]
        for number in numbers:
            assert np.isfinite(number).all()
        assert (np.asarray(item.plan) >= 0).all()
        assert len(h) == item.n_iter
        if item.status is Status.ALTERNATING:  # the plan is the better of two
            assert float(item.value) <= h.objective[-1] * (1 + 1e-9)
        elif len(h):
            # Of float32 spaces, whose small problems are solved in float64, weights are of mass 1 up to rounding only.
            tolerance = 1e-9 if r.tensors.plan.dtype == torch.float64 else 1e-8
            least = 1e-300 if r.tensors.plan.dtype == torch.float64 else 1e-20
            assert h.objective[-1] == pytest.approx(float(item.value), rel=tolerance, abs=least)
        t = item.terms
        scale = sum(abs(float(v)) for v in t.as_dict().values())
        assert float(item.value) == pytest.approx(sum(float(v) for v in t.as_dict().values()), abs=1e-12 * scale)
        rounding = 64 * torch.finfo(r.tensors.plan.dtype).eps * max(scale, size)
        for term in (t.distortion, t.marginal_a, t.marginal_b, t.entropy):
            assert term >= -rounding
        assert item.converged == (item.status is Status.CONVERGED)
        if item.converged:
            assert item.check() is item
        else:
            with pytest.raises(ugw.NotConverged, match=r"raise|use|rescale|try"):
                item.check()
    return r


# --- sharp eps ---


SHARES = np.array([3e-2, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6])


@pytest.fixture(scope="module", params=RHOS, ids=str)
def sharp_results(request):
    """A rho, and the results for it at ever sharper eps."""
    return request.param, ugw.solve(*pair(), rho=request.param, eps=ugw.relative(SHARES), init="product")


def test_eps_down_to_a_millionth_of_the_cost(sharp_results):
    _, r = sharp_results
    assert_consistent(r)
    assert r.converged.all()
    assert r.marginal_error.max() <= 1e-5


def test_a_smaller_eps_has_a_lower_value_with_the_limit_of_eps_0(sharp_results):
    rho, r = sharp_results
    sharper = ugw.solve(*pair(), rho=rho, eps=ugw.relative(SHARES / 2), init=r.plan)
    assert (sharper.value <= r.value + 1e-6).all()
    exact = ugw.solve(*pair(), rho=rho, eps=0.0, init=r[-1].plan)
    assert r[-1].value == pytest.approx(exact.value, abs=1e-4)


def test_a_sharp_plan_called_converged_is_stationary(sharp_results):
    """A tighter solve from it stays there."""
    rho, r = sharp_results
    tight = ugw.solve(
        *pair(), rho=rho, eps=ugw.relative(SHARES), init=r.plan, solver=ugw.AlternateMin(tol=1e-8, max_iter=300)
    )
    np.testing.assert_allclose(tight.value, r.value, rtol=0, atol=1e-5)
    assert np.abs(tight.plan - r.plan).sum((1, 2)).max() < 1e-2


@pytest.mark.parametrize("rho", [1.0, (1.0, INF), INF], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_eps_below_any_rounding_is_finite_and_not_called_converged(rho, dtype):
    eps, quick = np.array([1e-15, 1e-20, 1e-100, 1e-300, 5e-324]), ugw.AlternateMin(max_iter=30)
    r = assert_consistent(ugw.solve(*pair(dtype=dtype), rho=rho, eps=eps, init="product", solver=quick))
    assert not r.converged.any()


def pair_of_arrays(x, y):
    dx, dy = x.metric.dense().double().numpy(), y.metric.dense().double().numpy()
    return cases.Pair(dx, x.weights.astype(float), dy, y.weights.astype(float))


@pytest.mark.parametrize("init", ["product", "flb", "linear", "random", "coarse"])
def test_converged_plans_at_eps_0_are_stationary(init):
    """The gradient of F(·, plan) vanishes under the plan and is nowhere negative."""
    xs, ys = [space(6, 2, seed) for seed in range(3)] * 2, [space(7, 2, 30 + seed) for seed in range(3)] * 2
    xs, ys = [*xs, space(6, 2, 0)], [*ys, space(7, 2, 1)]
    rhos = np.array([0.5] * 3 + [0.05] * 3 + [0.5])
    results = ugw.solve(Space.stack(xs), Space.stack(ys), rho=rhos, eps=0.0, init=init)
    for x, y, rho, r in zip(xs, ys, rhos, assert_consistent(results), strict=True):
        assert r.converged
        gradient = cases.gradient(pair_of_arrays(x, y), cases.Parameters(rho, rho, 0.0), r.plan)
        assert (r.plan * np.abs(gradient)).sum() < 1e-7
        assert gradient.min() > -1e-4


def test_a_plan_whose_zeros_still_grow_is_not_called_converged():
    """One entry grows by a few per cent a step from next to nothing: the plan hardly changes, and has not converged."""
    x = Space.from_points(np.random.default_rng(5).random((14, 3)))
    y = Space.from_points(np.random.default_rng(105).random((16, 2)))
    r = ugw.solve(x, y, rho=(INF, 0.1), eps=0.0, init="product")
    again = ugw.solve(x, y, rho=(INF, 0.1), eps=0.0, init=r.plan, solver=ugw.AlternateMin(tol=1e-9))
    assert r.converged
    assert again.value == pytest.approx(r.value, rel=2e-4)


# --- rho from nothing to everything ---


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_rho_from_1e_minus_300_to_1e300(eps, dtype):
    rho, quick = (
        np.array([1e-300, 1e-30, 1e-9, 1e-3, 1e3, 1e9, 1e12, 1e16, 1e30, 1e300]),
        ugw.AlternateMin(max_iter=150),
    )
    r = ugw.solve(*pair(dtype=dtype), rho=rho, eps=eps, init="product", solver=quick)
    assert_consistent(r)
    hard = ugw.solve(*pair(dtype=dtype), rho=INF, eps=eps, init="product")
    for item, given_rho in zip(r, rho, strict=True):
        if given_rho >= 1e9 and item.converged:  # a hard side in all but name
            np.testing.assert_allclose(item.marginals[0], hard.marginals[0], atol=1e-4)
            np.testing.assert_allclose(item.marginals[1], hard.marginals[1], atol=1e-4)
            if eps:
                assert np.abs(item.plan - hard.plan).sum() < 1e-3
            # The value has the rounding of the marginals in it, times rho. Without entropy the hard problem is solved by
            # Frank–Wolfe, which may lead to another local minimum.
            if eps and given_rho * (100 * np.finfo(dtype).eps) ** 2 < 1e-3:
                assert item.value == pytest.approx(hard.value, rel=1e-2)


def test_large_rho_meets_the_hard_marginal():
    x, y = pair()
    hard = ugw.solve(x, y, rho=INF, eps=0.05, init="product")
    for rho, near in ((1e2, 1e-2), (1e4, 1e-4), (1e6, 2e-6)):
        r = assert_consistent(ugw.solve(x, y, rho=rho, eps=0.05, init="product"))
        assert r.converged
        assert np.abs(r.plan - hard.plan).sum() < near


# --- masses ---


MASSES = [(1e-6, 1e-6), (1e6, 1e6), (1e-6, 1e6), (1e6, 1e-6), (1e-6, 1.0), (1.0, 1e6)]


@pytest.mark.parametrize("eps", [0.0, 0.05, 1e-5])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_masses_from_a_millionth_to_a_million(eps, dtype):
    rhos = [(1.0, 1.0), (0.3, 2.0), (INF, 1.0), (1.0, INF)]
    items = [(masses, rho) for masses in MASSES for rho in rhos]
    r = ugw.solve(
        Space.stack([space(6, 2, 0, masses[0], dtype=dtype) for masses, _ in items]),
        Space.stack([space(7, 3, 1, masses[1], dtype=dtype) for masses, _ in items]),
        rho=tuple(np.array([rho[side] for _, rho in items]) for side in (0, 1)),
        eps=eps,
        init="product",
    )
    for item, (masses, rho) in zip(r, items, strict=True):
        finite = [0.0 if side == INF else side for side in rho]
        constant = finite[0] * masses[0] ** 2 + finite[1] * masses[1] ** 2 + eps * masses[0] ** 2 * masses[1] ** 2
        assert_consistent(item, constant)
        if dtype == np.float64:
            assert item.converged
            if INF not in rho:
                total = sum(rho) + eps
                assert item.value == pytest.approx(constant - total * item.mass**2, abs=1e-6 * constant)
        if INF in rho:
            assert item.mass == pytest.approx(masses[rho.index(INF)], rel=1e-5)


def test_without_entropy_the_plan_only_scales_with_the_masses():
    """At equal rhos and eps = 0 the shape of the plan is that of unit masses, its mass ∝ sqrt(m(a) m(b))."""
    unit = ugw.solve(*pair(), rho=1.0, eps=0.0, init="product")
    x = Space.stack([space(6, 2, 0, mass) for mass, _ in MASSES])
    y = Space.stack([space(7, 3, 1, mass) for _, mass in MASSES])
    for r, masses in zip(ugw.solve(x, y, rho=1.0, eps=0.0, init="product"), MASSES, strict=True):
        np.testing.assert_allclose(r.plan / math.sqrt(masses[0] * masses[1]), unit.plan, atol=1e-6)


@pytest.mark.parametrize("mass", [1e-6, 1e6])
@pytest.mark.parametrize("eps", [0.0, 0.05])
def test_balanced_at_any_mass(mass, eps):
    """With both sides hard the mass is given: plan ∝ mass; eps of a unit-mass problem stays eps."""
    unit = ugw.solve(*pair(), rho=INF, eps=eps, init="product")
    r = assert_consistent(ugw.solve(*pair(mass=mass), rho=INF, eps=eps, init="product"))
    np.testing.assert_allclose(r.plan / mass, unit.plan, atol=1e-6)
    assert r.terms.distortion == pytest.approx(mass**2 * unit.terms.distortion, rel=1e-5)


# --- few and equal points ---


@pytest.mark.parametrize("closed_form", cases.closed_form_cases(), ids=lambda k: k.name)
@pytest.mark.parametrize("init", ["product", "auto", "random", "flb"])
def test_known_answers_from_every_start(closed_form, init):
    r = assert_consistent(
        ugw.solve(
            closed_form.pair.x,
            closed_form.pair.y,
            rho=closed_form.parameters.rho,
            eps=closed_form.parameters.eps,
            init=init,
        )
    )
    assert r.converged
    assert r.value == pytest.approx(closed_form.value, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 5), (5, 1)])
@pytest.mark.parametrize("eps", [0.0, 0.1, 1e-6])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_single_points(n, m, eps, dtype):
    x, y = space(n, 2, 0, dtype=dtype), space(m, 2, 1, dtype=dtype)
    for rho in RHOS:
        for init in ("product", "auto", "linear"):
            r = assert_consistent(ugw.solve(x, y, rho=rho, eps=eps, init=init))
            assert r.converged or (dtype == np.float32 and eps == 1e-6 and r.status is Status.PRECISION)
            assert r.plan.shape == (n, m)


@pytest.mark.parametrize("eps", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_identical_points(eps, dtype):
    """All distances are 0: any plan with the right marginals is optimal."""
    x = Space.from_points(np.ones((4, 2), dtype=dtype))
    y = Space.from_points(np.full((5, 3), 7.0, dtype=dtype))
    for rho in RHOS:
        for init in ("product", "auto"):
            r = assert_consistent(ugw.solve(x, y, rho=rho, eps=eps, init=init))
            assert r.converged
            assert r.value == pytest.approx(0.0, abs=1e-6)
            assert r.mass == pytest.approx(1.0, rel=1e-5)


def test_identical_points_against_others():
    r = assert_consistent(ugw.solve(Space.from_points(np.ones((4, 2))), space(6, 2, 0), eps=0.05))
    assert r.converged
    assert np.ptp(r.plan, axis=0).max() < 1e-6  # its rows are equal


def test_duplicated_points_share_the_mass_of_a_single_point():
    rng = np.random.default_rng(0)
    points, weights = rng.random((5, 2)), rng.random(5) + 0.2
    twice = Space.from_points(
        points[[0, 0, 1, 2, 3, 4]], weights=np.r_[0.3 * weights[0], 0.7 * weights[0], weights[1:]]
    )
    y = space(7, 3, 1)
    r = ugw.solve(Space.from_points(points, weights=weights), y, eps=0.05, init="product")
    s = assert_consistent(ugw.solve(twice, y, eps=0.05, init="product"))
    assert s.value == pytest.approx(r.value, rel=1e-7)
    np.testing.assert_allclose(s.plan[0] + s.plan[1], r.plan[0], atol=1e-6)
    np.testing.assert_allclose(0.7 * s.plan[0], 0.3 * s.plan[1], atol=1e-6)


# --- distances of any size ---


@pytest.mark.parametrize("scale", [1e-8, 1e8])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_tiny_and_huge_distances_with_rho_in_their_units(scale, dtype):
    rho = tuple(np.array(side) for side in ([1.0, 0.3, 1.0, INF, INF] * 2, [1.0, 2.0, INF, 1.0, INF] * 2))
    eps = np.repeat([0.0, 0.05], 5)
    quick = ugw.AlternateMin(max_iter=300)
    unit = ugw.solve(*pair(dtype=dtype), rho=rho, eps=eps, init="product", solver=quick)
    scaled = {"rho": tuple(side * scale**2 for side in rho), "eps": eps * scale**2}
    r = assert_consistent(ugw.solve(*pair(scale=scale, dtype=dtype), **scaled, init="product", solver=quick))
    assert r.status == unit.status
    near = 1e-6 if dtype == np.float64 else 1e-2
    np.testing.assert_allclose(r.plan, unit.plan, atol=near)
    np.testing.assert_allclose(r.value, unit.value * scale**2, rtol=near)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("eps", [0.0, 1e-3, 0.05])
@pytest.mark.parametrize("rho", [1.0, (0.3, 2.0)], ids=str)
def test_huge_distances_with_rho_1_have_the_status_precision(dtype, eps, rho):
    """Distances of 1e8 cost 1e16 against a rho of 1: one pair of points stays matched, and rounding decides which."""
    x, y = pair(scale=1e8, dtype=dtype)
    r = assert_consistent(ugw.solve(x, y, rho=rho, eps=eps, init="product", solver=ugw.AlternateMin(max_iter=100)))
    assert r.status is Status.PRECISION
    assert "raise eps" in r.message
    assert r.plan.max() == pytest.approx(r.mass, rel=1e-6)
    assert r.value < ugw.objective(np.zeros_like(r.plan), x, y, rho=rho, eps=eps).total


@pytest.mark.parametrize("rho", [1.0, (INF, 1.0), INF], ids=str)
def test_huge_distances_with_hard_sides(rho):
    for eps in (0.0, 0.05):
        assert_consistent(
            ugw.solve(*pair(scale=1e8), rho=rho, eps=eps, init="product", solver=ugw.AlternateMin(max_iter=200))
        )


def test_a_collapsed_start_does_not_hide_a_better_plan():
    """One pair of points has no distortion at any distances: matching it is better than the zero plan."""
    x, y = pair(scale=1e8)
    best = np.zeros((6, 7))
    i, j = int(x.weights.argmax()), int(y.weights.argmax())
    best[i, j] = math.sqrt(float(x.weights[i] * y.weights[j]))
    one = ugw.objective(best, x, y, rho=1.0).total
    nothing = ugw.objective(np.full((6, 7), 1e-300), x, y, rho=1.0).total
    assert one < nothing
    r = assert_consistent(ugw.solve(x, y, rho=1.0, eps=0.0))
    assert r.value < nothing - 0.05
    assert r.status is Status.PRECISION  # it keeps one pair, and does not claim that it is the best one


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_tiny_distances_with_rho_1_keep_everything(dtype):
    x, y = pair(scale=1e-8, dtype=dtype)
    for eps in (0.0, 0.05):
        r = assert_consistent(ugw.solve(x, y, rho=1.0, eps=eps, init="product"))
        assert r.mass == pytest.approx(1.0, rel=1e-5)
        assert abs(r.value) < 1e-5


def test_one_huge_and_one_tiny_space():
    x, y = space(6, 2, 0, scale=1e8), space(7, 3, 1, scale=1e-8)
    for rho, eps in ((1.0, 0.05), (1e16, 1e14), (INF, 1e14), ((INF, 1.0), 0.0)):
        assert_consistent(ugw.solve(x, y, rho=rho, eps=eps, init="product", solver=ugw.AlternateMin(max_iter=100)))


def test_weights_over_three_hundred_orders_of_magnitude():
    points = np.random.default_rng(0).random((6, 2))
    x = Space.from_points(points, weights=np.array([1.0, 1e-30, 1e-300, 0.5, 1e-12, 5e-324]))
    for rho in (1.0, (INF, 1.0)):
        for eps in (0.05, 0.0):
            assert_consistent(ugw.solve(x, space(7, 3, 1), rho=rho, eps=eps))


# --- empty rows and outliers ---


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("eps", [0.01, 0.0])
def test_outliers_lose_their_mass_and_leave_the_rest_alone(eps, dtype):
    """With a small rho the plan has empty rows: the far points are left out."""
    rng = np.random.default_rng(0)
    points = rng.random((8, 2))
    with_outliers = np.vstack([points, [[60.0, 60.0], [-80.0, 40.0]]]).astype(dtype)
    y = Space.from_points(points.astype(dtype))
    x = Space.from_points(with_outliers, weights=np.full(10, 0.125, dtype=dtype))
    r = assert_consistent(ugw.solve(x, y, rho=1.0, eps=eps))
    assert r.converged or (dtype == np.float32 and r.status is Status.PRECISION)  # costs of 1e4 against an eps of 0.01
    assert r.value == pytest.approx(0.60351 if eps else 0.5625, abs=1e-4)
    assert r.marginals[0][8:].max() < 1e-6
    assert r.marginals[0][:8].min() > 0.05
    assert np.isfinite(r.transport(np.arange(10, dtype=dtype))).all()


@pytest.mark.parametrize("rho", RHOS, ids=str)
@pytest.mark.parametrize("eps", [0.05, 0.0])
def test_starts_with_empty_rows_and_columns(rho, eps):
    """Rows and columns that are empty in the initial plan may receive mass."""
    plan = np.zeros((6, 7))
    plan[1, 2] = plan[3, 3] = 1.0
    r = assert_consistent(ugw.solve(*pair(), rho=rho, eps=eps, init=plan, solver=ugw.AlternateMin(max_iter=200)))
    assert r.converged
    if rho != INF:
        assert r.marginals[0].min() > 1e-3
    again = ugw.solve(*pair(), rho=rho, eps=eps, init=r.plan, solver=ugw.AlternateMin(max_iter=200))
    assert again.value == pytest.approx(r.value, abs=1e-5)


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1e200, 1e308])
@pytest.mark.parametrize("rho", [1.0, INF])
@pytest.mark.parametrize("eps", [0.05, 0.0])
def test_starts_of_any_mass(size, rho, eps):
    plan = size * (np.random.default_rng(0).random((6, 7)) + 0.5)
    quick = ugw.AlternateMin(max_iter=50)
    assert_consistent(ugw.solve(*pair(), rho=rho, eps=eps, init=np.minimum(plan, 1.7e308), solver=quick))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("eps", [0.05, 0.0])
def test_fused_with_a_huge_linear_cost_matches_no_mass(dtype, eps):
    x, y = pair(dtype=dtype)
    fused = ugw.Fused(0.5, HUGE_COST.astype(dtype))
    r = assert_consistent(
        ugw.solve(x, y, rho=1.0, eps=eps, fused=fused, init="product", solver=ugw.AlternateMin(max_iter=40))
    )
    assert r.status is Status.COLLAPSED
    assert "raise rho" in r.message
    assert r.value == pytest.approx(1.0 + 1.0 + eps, rel=1e-6)  # what no plan at all costs


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("rho", "eps"), [((INF, 1.0), 0.05), (INF, 0.05), (INF, 0.0)], ids=str)
def test_fused_with_a_huge_linear_cost_and_hard_sides(rho, eps, dtype):
    """Costs of 1e8 dominate all other terms: a linear problem, whose optimum is known."""
    x, y = pair(dtype=dtype)
    fused = ugw.Fused(0.5, HUGE_COST.astype(dtype))
    r = assert_consistent(
        ugw.solve(x, y, rho=rho, eps=eps, fused=fused, init="product", solver=ugw.AlternateMin(max_iter=200))
    )
    assert r.status is Status.CONVERGED  # small problems in float32 too, whose steps are made in float64
    a, b = (s.weights.astype(float) for s in (x, y))
    optimum = ot.emd2(a / a.sum(), b / b.sum(), HUGE_COST) if rho == INF else a @ HUGE_COST.min(axis=1)
    assert r.value == pytest.approx(0.5 * optimum, rel=1e-3)
    assert r.marginal_error < 1e-4


# --- float32 ---


def clouds(repeat):
    """Stacked pairs of three seeds, each `repeat` times."""
    xs = [space(6, 2, seed) for seed in range(3) for _ in range(repeat)]
    ys = [space(7, 3, 10 + seed) for seed in range(3) for _ in range(repeat)]
    return Space.stack(xs), Space.stack(ys)


MEAN_DISTORTION = 0.2  # of these clouds, the size of all terms


@pytest.mark.parametrize("rho", RHOS, ids=str)
def test_float32_is_close_to_float64(rho):
    x, y = clouds(4)
    eps = np.tile([0.2, 0.1, 0.05, 0.0], 3)
    r = ugw.solve(x, y, rho=rho, eps=eps, init="product")
    s = assert_consistent(ugw.solve(x.to(torch.float32), y.to(torch.float32), rho=rho, eps=eps, init="product"))
    assert r.converged.all()
    assert s.converged.all()
    assert s.plan.dtype == np.float32
    assert (np.abs(s.value - r.value) < 1e-4 * np.maximum(MEAN_DISTORTION, np.abs(r.value))).all()


@pytest.mark.parametrize("rho", RHOS, ids=str)
def test_float32_is_never_called_converged_far_from_float64(rho):
    x, y = clouds(5)
    eps = ugw.relative(np.tile([3e-2, 3e-3, 1e-3, 1e-4, 1e-6], 3))
    s = assert_consistent(ugw.solve(x.to(torch.float32), y.to(torch.float32), rho=rho, eps=eps, init="product"))
    r = ugw.solve(x, y, rho=rho, eps=eps, init="product")
    for one, other in zip(s, r, strict=True):
        if one.converged:
            assert abs(one.value - other.value) < 1e-4 * max(MEAN_DISTORTION, abs(other.value))
        else:
            assert one.status in (Status.PRECISION, Status.MAX_ITER)


@pytest.mark.parametrize("rho", RHOS, ids=str)
def test_float32_steps_have_the_status_precision_at_tiny_eps(rho):
    """`solve` makes the steps of problems of this size in float64; a solver takes the dtype of its problem."""
    problem = build_ugw(*pair(dtype=np.float32), rho=rho, eps=ugw.relative(1e-6), fused=None)
    r = ugw.AlternateMin()(problem, problem.product)
    assert r.status is Status.PRECISION
    assert "float64" in r.message
    assert "eps" in r.message
    assert ugw.solve(*pair(dtype=np.float32), rho=rho, eps=ugw.relative(1e-6), init="product").converged


# --- whatever comes ---


@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(0, 10**6),
    st.floats(-8, 8),
    st.tuples(st.floats(-6, 6), st.floats(-6, 6)),
    st.tuples(st.one_of(st.floats(-3, 3), st.just(INF)), st.one_of(st.floats(-3, 3), st.just(INF))),
    st.one_of(st.just(-INF), st.floats(-6, 1)),
    st.sampled_from([np.float64, np.float32]),
    st.sampled_from(["product", "auto", "random"]),
)
def test_random_problems_give_finite_consistent_results(
    n, m, seed, log_scale, log_masses, log_rhos, log_eps, dtype, init
):
    """Random spaces of any size and mass, rho and eps in units of the squared distances."""
    unit = 10.0 ** (2 * log_scale)
    masses = [10.0**v for v in log_masses]
    if log_rhos == (INF, INF):
        masses[1] = masses[0]
        dtype = np.float64  # float32 would round them apart
    x = space(n, 2, seed, masses[0], scale=10.0**log_scale, dtype=dtype)
    y = space(m, 3, seed + 1, masses[1], scale=10.0**log_scale, dtype=dtype)
    rho = tuple(INF if v == INF else unit * 10.0**v for v in log_rhos)
    eps = 0.0 if log_eps == -INF else unit * 10.0**log_eps
    r = ugw.solve(x, y, rho=rho, eps=eps, init=init, solver=ugw.AlternateMin(max_iter=40))
    penalties = [0.0 if v == INF else v for v in rho]
    assert_consistent(
        r, sum(w * m**2 for w, m in zip(penalties, masses, strict=True)) + eps * (masses[0] * masses[1]) ** 2
    )
