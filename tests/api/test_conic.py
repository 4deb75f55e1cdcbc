"""The conic distance as users meet it: against the paper's program and brute force, as a metric, and as a result."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import ugw
from oracles import cases
from oracles import conic as oracles
from oracles.cases import label
from oracles.conic import solve_from_one_plan
from ugw.errors import InputError

GH, HK = oracles.LOSSES
MANY = ugw.Multistart(n=16)


def solve_from_many_starts(pair, rho, cone=GH, **options):
    """The least value that many starts find."""
    return ugw.solve_conic(pair.x, pair.y, rho=rho, cone=cone, **({"init": "product", "solver": MANY} | options))


def with_uniform_weights(pair):
    n, m = len(pair.a), len(pair.b)
    return cases.Pair(pair.dx, np.full(n, 1 / n), pair.dy, np.full(m, 1 / m))


def stack_pairs(pairs):
    return tuple(ugw.Space.stack([getattr(p, side) for p in pairs]) for side in "xy")


# --- known values ---


@pytest.mark.parametrize(
    ("n", "m", "rho", "mass"),
    [(2, 2, 0.5, (1.0, 2.0)), (2, 3, 0.1, (1.3, 0.6)), (3, 3, 0.1, (1.0, 1.0))],
)
def test_never_above_the_linear_program_of_the_paper(n, m, rho, mass):
    pair = cases.clouds(n, m, n + m, mass)
    ours, theirs = solve_from_many_starts(pair, rho).value, oracles.linear_program(pair, rho)
    assert ours <= theirs + 1e-9
    assert ours >= 0.9 * theirs  # the grid of radii is not that coarse
    assert ours == pytest.approx(oracles.brute_force(pair, (rho, rho), starts=30), rel=1e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_equal_to_the_linear_program_where_a_permutation_is_best(seed):
    pair = with_uniform_weights(cases.clouds(3, 3, seed))
    c = solve_from_many_starts(pair, 3.0)
    w = c.lift[2]
    assert np.abs(np.sort(w.ravel()) - np.repeat([0.0, 1 / 3], [6, 3])).max() < 1e-4
    assert c.value == pytest.approx(oracles.linear_program(pair, 3.0), abs=1e-6)


@pytest.mark.parametrize("cone", [GH, HK])
@pytest.mark.parametrize("rho", [0.3, (0.3, 1.2)], ids=str)
def test_two_single_points(rho, cone):
    pair = cases.Pair(np.zeros((1, 1)), np.array([2.0]), np.zeros((1, 1)), np.array([0.5]))
    rho1, rho2 = rho if isinstance(rho, tuple) else (rho, rho)
    total = rho1 + rho2
    expected = rho1 * 4.0 + rho2 * 0.25 - total * (2.0 ** (rho1 / total) * 0.5 ** (rho2 / total)) ** 2
    c = ugw.solve_conic(pair.x, pair.y, rho=rho, cone=cone)
    assert c.value == pytest.approx(expected, rel=1e-12)
    if rho1 == rho2:
        assert c.value == pytest.approx(rho1 * (2.0 - 0.5) ** 2, rel=1e-12)
        assert c.distance == pytest.approx(math.sqrt(rho1) * 1.5, rel=1e-12)


@pytest.mark.parametrize("cone", [GH, HK])
@pytest.mark.parametrize("rho", [0.05, (0.2, 0.9)], ids=str)
def test_two_points_against_two(rho, cone):
    d = np.array([[0.0, 1.0], [1.0, 0.0]])
    pair = cases.Pair(d, np.array([0.9, 0.4]), 0.3 * d, np.array([0.2, 0.5]))
    rhos = rho if isinstance(rho, tuple) else (rho, rho)
    assert solve_from_many_starts(pair, rho, cone).value == pytest.approx(
        oracles.grid_search_two_by_two(pair, rhos, oracles.LOSSES[cone]), rel=1e-6
    )


def test_two_rhos_against_brute_force():
    pair = cases.clouds(3, 3, 0, (1.3, 0.6))
    ours, theirs = solve_from_many_starts(pair, (0.2, 0.9)).value, oracles.brute_force(pair, (0.2, 0.9), starts=30)
    assert ours <= theirs + 1e-9
    assert ours == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize("seed", [0, 2, 6])
def test_tiny_problems_have_no_better_local_optimum_nearby(seed):
    pair = cases.clouds(5, 6, seed=seed, mass=(1.0, 1.5))
    got = ugw.solve_conic(pair.x, pair.y, rho=0.1)
    assert got.value <= oracles.brute_force(pair, (0.1, 0.1), starts=60) * (1.0 + 1e-7)


def test_segments_of_one_mass_at_a_large_rho():
    # Matched end to end, <w, G w> = ½ + ½ exp(−(d − e)²/2rho).
    d = np.array([[0.0, 1.0], [1.0, 0.0]])
    pair = cases.Pair(d, np.array([0.5, 0.5]), 0.6 * d, np.array([0.5, 0.5]))
    assert solve_from_many_starts(pair, 2.0).value == pytest.approx(2.0 * (1.0 - math.exp(-0.16 / 4.0)), rel=1e-8)


# --- a metric ---


def triples(count, seed, scale=1.0):
    """Random spaces of 1 to 6 points and different masses, three at a time."""
    rng = np.random.default_rng(seed)

    def space():
        n = int(rng.integers(1, 7))
        weights = rng.random(n) + 0.2
        mass = rng.choice([0.5, 1.0, 1.3])
        return ugw.Space.from_points(scale * rng.random((n, 2)), weights=mass * weights / weights.sum())

    return [[space() for _ in range(3)] for _ in range(count)]


@pytest.mark.parametrize(
    ("cone", "rho"), [(GH, (0.05, 0.3, 3.0, 30.0)), (HK, (0.05, 0.3, 0.8, 1.0))], ids=["GH, any rho", "HK, rho ≤ 1"]
)
def test_symmetry_and_triangle_inequality(cone, rho):
    spaces = triples(4, 3, scale=1.3)
    sides = [(t[i], t[j]) for t in spaces for i, j in ((0, 1), (1, 2), (0, 2))]
    x, y = (ugw.Space.stack([s[k] for s in sides]) for k in (0, 1))
    rhos = np.repeat(np.resize(rho, len(spaces)), 3)
    solver = ugw.Multistart(n=8)
    c = ugw.solve_conic(x, y, rho=rhos, cone=cone, init="product", solver=solver).check()
    back = ugw.solve_conic(y, x, rho=rhos, cone=cone, init="product", solver=solver)
    np.testing.assert_allclose(back.value, c.value, rtol=1e-6)
    assert c.is_metric.all()
    assert (c.value > 1e-6).all()
    d = c.distance.reshape(-1, 3)
    for i, j, k in itertools.permutations(range(3)):
        assert (d[:, i] + d[:, j] - d[:, k] > -1e-9).all()


def test_the_hellinger_kantorovich_cone_is_no_metric_at_rho_4():
    # Segments of lengths .2, .2 + π/4 and .2 + π/2: the long way is the short one.
    ends = [
        ugw.Space.from_distances(np.array([[0.0, d], [d, 0.0]])) for d in (0.2, 0.2 + math.pi / 4, 0.2 + math.pi / 2)
    ]

    def triangle_sides(rho):
        pairs = ((0, 1), (1, 2), (0, 2))
        results = [ugw.solve_conic(ends[i], ends[j], rho=rho, cone=HK) for i, j in pairs]
        assert all(c.is_metric is (rho <= 1.0) for c in results)
        return [c.distance for c in results]

    first, second, third = triangle_sides(4.0)
    assert third > first + second + 0.8
    # By hand: matched end to end, CGW = rho (1 − cos^{1/rho}(π/4)), and rho at the cutoff.
    assert first == pytest.approx(math.sqrt(4.0 * (1.0 - math.cos(math.pi / 4) ** 0.25)), rel=1e-6)
    assert third == pytest.approx(2.0, rel=1e-6)
    first, second, third = triangle_sides(1.0)
    assert third < first + second


@pytest.mark.parametrize(("cone", "rho"), [(GH, 0.05), (HK, 1.0)])
def test_zero_on_isometric_copies_only(rho, cone):
    pair, order = cases.copies(6, 1)
    c = ugw.solve_conic(pair.x, pair.y, rho=rho, cone=cone)
    assert abs(c.value) < 1e-7 * rho
    assert c.distance < 1e-3
    np.testing.assert_array_equal(c.plan.argmax(0), order)
    np.testing.assert_allclose(c.plan.sum(0), pair.b, atol=1e-4)
    # Not if a distance, a weight or the mass differs.
    longer = cases.Pair(pair.dx * (1 + 0.3 * (np.add.outer(np.arange(6), np.arange(6)) == 1)), pair.a, pair.dy, pair.b)
    heavier = cases.Pair(pair.dx, pair.a * np.array([2, 1, 1, 1, 1, 1]), pair.dy, pair.b)
    for other in (longer, heavier, pair.with_masses(1.0, 1.1)):
        assert solve_from_one_plan(other, rho, cone, init=np.outer(other.a, other.b) + c.plan).value > 1e-5


# --- scalings and limits ---


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_value_is_2_homogeneous_in_the_masses(scale):
    pair = cases.clouds(5, 6, 1, (1.3, 0.6))
    c = solve_from_one_plan(pair)
    scaled_result = solve_from_one_plan(pair.with_masses(1.3 * scale, 0.6 * scale))
    assert scaled_result.value == pytest.approx(scale**2 * c.value, rel=1e-10)
    for got, expected in zip(scaled_result.lift, c.lift, strict=True):
        np.testing.assert_allclose(got, scale * expected, rtol=1e-6, atol=1e-9 * scale)
    assert scaled_result.converged


@pytest.mark.parametrize(("mass", "distance"), [(1e-50, 1.0), (1e45, 1.0), (1.0, 1e-40), (1.0, 1e40)])
def test_candidates_are_compared_at_scales_beyond_float32(mass, distance):
    """Masses times m and distances times s, rho times s²: CGW times m² s²."""
    rng = np.random.default_rng(0)
    points = rng.random((12, 2)), rng.random((10, 3))

    def value(m, s):
        """Return CGW of the points times s, with mass m, in units of m² s²."""
        x, y = (ugw.Space.from_points(s * p, weights=np.full(len(p), m / len(p))) for p in points)
        return ugw.solve_conic(x, y, rho=s**2).value / m**2 / s**2

    assert value(mass, distance) == pytest.approx(value(1.0, 1.0), rel=1e-7)


def test_masses_far_apart():
    pair = cases.clouds(5, 6, 1, (1e-6, 1e6))
    c = solve_from_one_plan(pair)
    assert c.value == pytest.approx(0.5 * 1e12, rel=1e-6)
    assert math.isfinite(c.distance)
    np.testing.assert_allclose(c.lift[0].sum(1), pair.a, rtol=1e-10)
    np.testing.assert_allclose(c.lift[1].sum(0), pair.b, rtol=1e-10)


def test_units_of_distance_and_rho():
    # Distances times s and rho times s²: CGW times s².
    pair = cases.clouds(5, 6, 2, (1.3, 0.6))
    scaled = cases.Pair(10 * pair.dx, pair.a, 10 * pair.dy, pair.b)
    assert solve_from_one_plan(scaled, 50.0).value == pytest.approx(
        100 * solve_from_one_plan(pair, 0.5).value, rel=1e-8
    )
    # For Hellinger–Kantorovich the cutoff is the unit of distance.
    start = np.random.default_rng(0).random((5, 6))
    one, ten = (
        solve_from_one_plan(p, 0.5, ugw.HellingerKantorovich(cutoff), init=start)
        for p, cutoff in ((pair, 1.5), (scaled, 15.0))
    )
    assert ten.value == pytest.approx(one.value, rel=1e-8)


def test_a_large_rho_pays_the_difference_of_the_masses():
    pair = cases.clouds(4, 5, 3, (1.3, 0.6))
    for rho in (1e2, 1e4):
        assert 0 < solve_from_one_plan(pair, rho).value - rho * 0.7**2 < 1.0


def test_a_large_rho_tends_to_gw_at_equal_masses():
    pair = cases.clouds(4, 5, 3)
    gw = ugw.solve(pair.x, pair.y, rho=math.inf, eps=0.0, init="flb")
    off = [gw.value - solve_from_one_plan(pair, rho, init=gw.plan).value for rho in (1.0, 10.0, 100.0)]
    assert off[0] > off[1] > off[2] > 0
    assert off[2] < 1e-2 * gw.value


def test_a_small_rho_matches_almost_no_mass():
    pair = cases.clouds(5, 6, 3, (1.3, 0.6))
    c = solve_from_one_plan(pair, 1e-6)
    assert 0.3 * c.terms.unmatched < c.value < c.terms.unmatched
    assert c.value == pytest.approx(c.terms.unmatched + c.terms.overlap, rel=1e-12)


@pytest.mark.parametrize(("cone", "rho"), [(GH, 1.0), (HK, 0.1)])
def test_never_above_ugw(rho, cone):
    pair = cases.clouds(5, 6, 4, (1.3, 0.6))
    r = ugw.solve(pair.x, pair.y, rho=rho, eps=1e-2, loss=cone)
    bar = ugw.objective(r.plan, pair.x, pair.y, rho=rho, loss=cone).total
    c = ugw.solve_conic(pair.x, pair.y, rho=rho, cone=cone, init=r)
    assert c.value < bar
    assert c.value == pytest.approx(ugw.solve_conic(pair.x, pair.y, rho=rho, cone=cone, init=r.plan).value, rel=1e-9)


# --- what a result says ---


@pytest.mark.parametrize(("cone", "rho"), [(GH, 0.1), (HK, (0.3, 1.2))], ids=str)
@pytest.mark.parametrize("init", ["product", "random", "auto"])
def test_the_history_never_rises_and_the_best_plan_is_kept(init, rho, cone):
    pair = cases.clouds(5, 6, 5, (1.3, 0.6))
    c = ugw.solve_conic(pair.x, pair.y, rho=rho, cone=cone, init=init)
    rounding = 1e-13 * c.terms.unmatched
    assert (np.diff(c.history.relaxed) <= rounding).all()
    assert c.value <= c.history.objective.min() + rounding
    assert c.value_bound >= c.value
    assert len(c.history) == c.n_iter
    assert abs(c.gap) < 1e-6


@pytest.mark.parametrize("n", [5, 21])
@pytest.mark.parametrize("rho", [0.2, (0.3, 1.2)], ids=str)
def test_the_lift_is_feasible_and_has_the_value(rho, n):
    pair = cases.clouds(n, n + 1, 6, (1.3, 0.6))
    c = solve_from_one_plan(pair, rho, solver=ugw.AlternateMin(tol=1e-5))
    P, Q, w = c.lift
    rhos = rho if isinstance(rho, tuple) else (rho, rho)
    share = rhos[0] / sum(rhos)
    np.testing.assert_allclose(P.sum(1), pair.a, rtol=1e-11)
    np.testing.assert_allclose(Q.sum(0), pair.b, rtol=1e-11)
    assert min(P.min(), Q.min(), w.min()) >= 0
    assert (w <= P**share * Q ** (1 - share) * (1 + 1e-10) + 1e-290).all()  # tiny numbers have few digits
    exact = oracles.value(pair, w, rhos)
    assert exact <= c.value_bound + 1e-12
    assert c.value == pytest.approx(exact, abs=c.value_bound - c.value + 1e-12)
    # The plan for pictures: R m² = apart − value, and it lies along w∘k.
    assert sum(rhos) * c.mass**2 == pytest.approx(c.terms.unmatched - c.value, rel=1e-9)
    k = np.einsum("ijkl,kl->ij", oracles.kernel(pair, rhos), w)
    assert np.abs(c.plan - w * k / math.sqrt((w * k).sum())).max() < 1e-4
    assert (c.kernel_rank > 0) == (n == 21)
    assert (c.kernel_error > 0) == (n == 21)
    assert c.value_bound - c.value == pytest.approx(sum(rhos) * c.kernel_error * w.sum() ** 2, rel=1e-4)


# --- what changes nothing ---


@pytest.mark.parametrize("init", ["flb", "auto"])
def test_items_of_a_batch_equal_single_solves(init):
    sizes, masses = [(3, 5), (5, 2), (4, 4), (1, 6)], [(1.0, 1.0), (1.3, 0.6), (0.2, 3.0), (1.0, 1.0)]
    pairs = [cases.clouds(n, m, n + m, mass) for (n, m), mass in zip(sizes, masses, strict=True)]
    rho = np.array([0.1, 0.5, 1.0, 3.0])
    c = ugw.solve_conic(*stack_pairs(pairs), rho=rho, init=init)
    assert len(c) == 4
    for i, pair in enumerate(pairs):
        one = solve_from_one_plan(pair, rho[i], init=init)
        assert c[i].value == pytest.approx(one.value, rel=1e-9)
        assert c[i].distance == pytest.approx(one.distance, rel=1e-9)
        assert c[i].plan.shape == one.plan.shape
        for got, expected in zip(c[i].lift, one.lift, strict=True):
            np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")  # a few steps are enough to compare
def test_factorized_kernels_of_a_ragged_batch_are_those_of_its_items():
    pairs = [cases.clouds(n, m, n, (1.0, 1.5)) for n, m in ((21, 20), (8, 22), (16, 3))]
    rho, solver = np.array([0.1, 1.0, 0.3]), ugw.AlternateMin(max_iter=4)
    c = ugw.solve_conic(*stack_pairs(pairs), rho=rho, init="flb", solver=solver)
    assert (c.kernel_rank > 0).tolist() == [True, False, False]
    for i, pair in enumerate(pairs):
        one = solve_from_one_plan(pair, rho[i], solver=solver)
        assert c[i].value == pytest.approx(one.value, rel=1e-10)


@pytest.mark.parametrize(
    ("cone", "init"),
    [(torch.abs, "flb"), (torch.abs, "auto"), (ugw.HellingerKantorovich(0.4), "flb")],
    ids=["abs-flb", "abs-auto", "cutoff-flb"],
)
def test_an_item_is_the_same_alone_and_beside_a_larger_one(cone, init):
    pairs = [cases.clouds(4, 5, 1), cases.clouds(21, 22, 3)]
    tight = ugw.AlternateMin(tol=1e-10)
    c = ugw.solve_conic(*stack_pairs(pairs), rho=0.01, cone=cone, init=init, solver=tight)
    for i, pair in enumerate(pairs):
        one = solve_from_one_plan(pair, 0.01, cone, init=init, solver=tight)
        assert c[i].value == pytest.approx(one.value, rel=1e-9)
        assert c[i].kernel_rank == one.kernel_rank
        assert c[i].kernel_error == one.kernel_error


def test_one_space_against_a_batch():
    pairs = [cases.clouds(4, m, m) for m in (3, 5, 6)]
    x, y = pairs[0].x, stack_pairs(pairs)[1]
    c = ugw.solve_conic(x, y, rho=0.5, init="flb")
    for i, pair in enumerate(pairs):
        assert c[i].value == pytest.approx(
            solve_from_one_plan(cases.Pair(pairs[0].dx, pairs[0].a, pair.dy, pair.b)).value, rel=1e-9
        )


@pytest.mark.parametrize("init", ["flb", "auto"])
def test_permuting_the_points_permutes_the_lift(init):
    pair = cases.clouds(5, 6, 9, (1.3, 0.6))
    rng = np.random.default_rng(0)
    rows, cols = rng.permutation(5), rng.permutation(6)
    permuted = cases.Pair(pair.dx[np.ix_(rows, rows)], pair.a[rows], pair.dy[np.ix_(cols, cols)], pair.b[cols])
    c, d = solve_from_one_plan(pair, init=init), solve_from_one_plan(permuted, init=init)
    assert d.value == pytest.approx(c.value, rel=1e-9)
    np.testing.assert_allclose(d.plan, c.plan[np.ix_(rows, cols)], atol=1e-5)
    for got, expected in zip(d.lift, c.lift, strict=True):
        np.testing.assert_allclose(got, expected[np.ix_(rows, cols)], atol=1e-4)


def test_points_of_weight_zero_do_not_change_the_result():
    pair = cases.clouds(5, 6, 9, (1.3, 0.6))
    a, b = pair.a.copy(), pair.b.copy()
    a[2], b[4] = 0.0, 0.0
    less = cases.Pair(np.delete(np.delete(pair.dx, 2, 0), 2, 1), np.delete(a, 2), np.delete(np.delete(pair.dy, 4, 0), 4, 1), np.delete(b, 4))  # fmt: skip
    c, d = solve_from_one_plan(cases.Pair(pair.dx, a, pair.dy, b)), solve_from_one_plan(less)
    assert c.value == pytest.approx(d.value, rel=1e-9)
    np.testing.assert_allclose(np.delete(np.delete(c.plan, 2, 0), 4, 1), d.plan, atol=1e-6)
    assert np.isfinite(np.stack(c.lift)).all()
    assert c.plan[2].sum() == c.plan[:, 4].sum() == 0
    np.testing.assert_allclose(c.lift[0].sum(1), a, atol=1e-12)


@pytest.mark.parametrize("rho", [(0.5, 0.5), (0.2, 1.1)], ids=str)
def test_swapping_the_spaces_transposes(rho):
    pair = cases.clouds(5, 6, 9, (1.3, 0.6))
    tight = ugw.AlternateMin(tol=1e-10)
    c, d = solve_from_one_plan(pair, rho, solver=tight), solve_from_one_plan(pair.transpose(), rho[::-1], solver=tight)
    assert d.value == pytest.approx(c.value, rel=1e-9)
    np.testing.assert_allclose(d.plan, c.plan.T, atol=1e-5)
    np.testing.assert_allclose(d.lift[0], c.lift[1].T, atol=1e-4)


@pytest.mark.parametrize(("n", "m", "rho"), [(12, 15, 1.0), (25, 30, 0.3), (40, 33, 0.1)])
def test_tol_is_about_the_relative_decrease_of_the_value_to_come(n, m, rho):
    """A run from near a solution stops at most about tol above it.

    From far away it may pass saddle points, near which the value does not move for dozens of steps.
    """
    pair = cases.clouds(n, m, n)
    tight = solve_from_one_plan(pair, rho, init="auto", solver=ugw.AlternateMin(tol=1e-11, max_iter=5000))
    start = 0.9 * tight.plan / tight.plan.sum() + 0.1 * pair.product / pair.product.sum()
    for tol in (1e-4, 1e-6):
        c = solve_from_one_plan(pair, rho, init=start, solver=ugw.AlternateMin(tol=tol, max_iter=5000))
        assert c.converged
        assert -1e-10 <= c.value / tight.value - 1.0 <= 10 * tol


@pytest.mark.parametrize("n", [6, 21])
def test_single_precision_is_close(n):
    pair = cases.clouds(n, n - 1, 2, (1.3, 0.6))
    slow = ugw.AlternateMin(
        proximal=ugw.ProximalSchedule(first=0.3, last=0.01, factor=0.9)
    )  # rounding leads sharper steps to other local minima
    double = solve_from_one_plan(pair, 0.3, solver=slow)
    x, y = pair.x.to(torch.float32), pair.y.to(torch.float32)
    single = ugw.solve_conic(x, y, rho=0.3, init="flb", solver=slow)
    assert single.plan.dtype == np.float32
    assert single.lift[2].dtype == np.float32
    assert single.value == pytest.approx(double.value, rel=1e-3)
    np.testing.assert_allclose(single.lift[0].sum(1), pair.a, rtol=1e-5)


def test_torch_in_torch_out():
    pair = cases.clouds(4, 5, 2)
    x, y = (ugw.Space.from_matrix(torch.as_tensor(d), weights=torch.as_tensor(w)) for d, w in ((pair.dx, pair.a), (pair.dy, pair.b)))  # fmt: skip
    c, d = ugw.solve_conic(x, y, rho=0.5, init="flb"), solve_from_one_plan(pair)
    for value in (c.value, c.distance, c.value_bound, c.plan, c.kernel_error, *c.lift, *c.atoms().values()):
        assert isinstance(value, torch.Tensor)
    for value in (d.plan, *d.lift, *d.atoms().values()):
        assert isinstance(value, np.ndarray)
    assert isinstance(d.value, float)
    assert isinstance(d.kernel_rank, int)
    assert c.value.item() == pytest.approx(d.value, rel=1e-12)


def test_the_same_input_gives_the_same_output():
    pair = cases.clouds(5, 6, 9)
    c, d = (ugw.solve_conic(pair.x, pair.y, rho=0.3) for _ in range(2))
    assert c.value == d.value
    np.testing.assert_array_equal(c.plan, d.plan)


@pytest.mark.parametrize("cone", ["gaussian-hellinger", "partial-transport"])
def test_auto_is_no_entropy(cone):
    pair = cases.clouds(5, 6, 0)
    auto, zero = (ugw.solve_conic(pair.x, pair.y, cone=cone, eps=eps) for eps in ("auto", 0.0))
    assert auto.value == zero.value
    assert auto.parameters == zero.parameters


@pytest.mark.parametrize("eps", [1e-2, 1.0])
def test_entropy_changes_the_iterates_and_not_the_objective(eps):
    pair = cases.clouds(5, 6, 1, (1.3, 0.6))
    c = solve_from_one_plan(pair, 0.3, eps=eps, solver=ugw.AlternateMin(max_iter=3000))
    assert (np.diff(c.history.relaxed) <= 1e-13).all()
    assert c.value <= c.history.objective.min() + 1e-13
    assert oracles.value(pair, c.lift[2], (0.3, 0.3)) == pytest.approx(c.value, rel=1e-11)


@pytest.mark.parametrize("eps", [1e-2, 1.0])
def test_entropy_is_not_slow(eps):
    pair = cases.clouds(5, 6, 0)
    sharp, soft = (ugw.solve_conic(pair.x, pair.y, rho=0.3, eps=e) for e in (0.0, eps))
    assert soft.n_iter <= 50
    assert soft.value == pytest.approx(sharp.value, rel=1e-6)
    both = ugw.solve_conic(pair.x, pair.y, rho=np.array([0.3, 0.3]), eps=np.array([0.0, eps]))
    assert both[0].value == pytest.approx(sharp.value, rel=1e-12)
    assert both[1].value == pytest.approx(soft.value, rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("init", ["flb", "auto"])
@pytest.mark.parametrize(
    "options",
    [{"rho": 1e-3}, {"cone": ugw.HellingerKantorovich(0.5)}, {"rho": 0.1, "cone": "partial-transport"}],
    ids=["GH", "HK", "partial"],
)
def test_spaces_too_different_to_match_have_the_status_collapsed(options, init, dtype):
    x, y = (ugw.Space.from_matrix(m).to(dtype) for m in (np.full((3, 3), 9.0), np.zeros((4, 4))))
    with pytest.warns(ugw.ConvergenceWarning, match="next to no mass"):
        c = ugw.solve_conic(x, y, init=init, **options)
    assert c.status == ugw.Status.COLLAPSED
    assert c.value == c.terms.unmatched
    assert c.value == pytest.approx(2.0 * options.get("rho", 1.0), rel=1e-6)
    assert c.mass < 1e-20
    P, Q, w = c.lift
    np.testing.assert_allclose(P.sum(1), 1 / 3, rtol=1e-6)
    np.testing.assert_allclose(Q.sum(0), 1 / 4, rtol=1e-6)
    assert np.isfinite(w).all()
    # Beside an item that matches, it is the same.
    near = ugw.Space.stack([y, y])
    with pytest.warns(ugw.ConvergenceWarning):
        both = ugw.solve_conic(ugw.Space.stack([x, y]), near, init=init, **options)
    assert both[0].value == c.value
    assert both[1].value == pytest.approx(0.0, abs=1e-6)
    assert both[1].converged


def test_initial_plans_of_another_dtype_or_not_stored():
    pair = cases.clouds(5, 6, 0)
    plan = ugw.solve(pair.x, pair.y, eps=0.1, init="flb").plan
    single = ugw.solve(pair.x.to(torch.float32), pair.y.to(torch.float32), eps=0.1, init="flb")
    expected = solve_from_one_plan(pair, init=plan).value
    for start in (single, single.plan, torch.as_tensor(single.plan), plan.tolist()):
        assert solve_from_one_plan(pair, init=start).value == pytest.approx(expected, rel=1e-6)
    rng = np.random.default_rng(0)
    x, y = (ugw.Space.from_points(rng.random((n, 2)), metric="sqeuclidean") for n in (8, 9))
    streaming = ugw.AlternateMin(inner=ugw.Sinkhorn(method="streaming"))
    r = ugw.solve(x, y, rho=0.3, eps=0.05, solver=streaming)
    assert r.path == "streaming"
    expected = ugw.solve_conic(x, y, rho=0.3, init=r.plan.dense()).value
    for start in (r, r.plan):
        assert ugw.solve_conic(x, y, rho=0.3, init=start).value == expected


def test_there_are_no_potentials_at_any_eps():
    pair = cases.clouds(5, 6, 0)
    for eps in (0.0, 0.1):
        with pytest.raises(InputError, match="a conic result has no potentials, at any eps"):
            _ = solve_from_one_plan(pair, eps=eps).potentials


def test_a_function_is_a_cone():
    pair = cases.clouds(4, 5, 2, (1.3, 0.6))
    assert solve_from_one_plan(pair, 0.5, lambda t: t**2).value == pytest.approx(
        solve_from_one_plan(pair, 0.5).value, rel=1e-12
    )
    custom = solve_from_one_plan(pair, 0.5, lambda t: torch.log1p(3.0 * t**2))
    assert custom.value == pytest.approx(oracles.value(pair, custom.lift[2], (0.5, 0.5), lambda t: np.log1p(3.0 * t**2)), rel=1e-10)  # fmt: skip
    # λ = 0 but at 0: only equal distances match.
    hard = solve_from_one_plan(pair, 0.5, lambda t: torch.where(t > 0, torch.inf, 0.0))
    w = hard.lift[2]
    same = oracles.differences(pair) == 0
    assert hard.terms.overlap == pytest.approx(-np.einsum("ij,ijkl,kl->", w, same, w), rel=1e-10)


COARSE = {
    "cutoff": (ugw.HellingerKantorovich(0.4, max_rank=32), lambda t: oracles.hk(t, 0.4)),
    "abs": (ugw.Loss(torch.abs, max_rank=32), np.abs),
}


@pytest.mark.parametrize("name", COARSE)
def test_the_kernel_error_of_a_loss_with_a_kink_is_reported(name):
    cone, numpy_loss = COARSE[name]
    pair = cases.clouds(20, 21, 3)
    c = solve_from_one_plan(pair, 2.0, cone, solver=ugw.AlternateMin(tol=1e-2))
    assert c.kernel_rank == 32
    assert 1e-4 < c.kernel_error < 1.0
    assert abs(oracles.value(pair, c.lift[2], (2.0, 2.0), numpy_loss) - c.value) <= c.value_bound - c.value
    assert f"kernel only to {c.kernel_error:.0e})" in repr(c)
    assert "above the" in c.message
    assert "max_rank" in c.message
    assert c.message in c.summary()
    batch = ugw.solve_conic(pair.x, pair.y, rho=np.array([2.0, 1.0]), cone=cone, init="flb")
    assert "item 0: the error of the kernel" in batch.message or "item 1: the error of the kernel" in batch.message
    smooth = solve_from_one_plan(pair, 2.0, solver=ugw.AlternateMin(tol=1e-2))
    assert "kernel" not in repr(smooth)
    assert "kernel" not in smooth.message


@pytest.mark.parametrize("rho", [0.1, 100.0])
def test_the_value_of_a_loss_with_a_kink_is_exact_for_moderate_sizes(rho):
    pair = cases.clouds(21, 21, 1)  # more than 400 entries
    solver = ugw.AlternateMin(tol=1e-2)
    c = solve_from_one_plan(pair, rho, torch.abs, solver=solver)
    assert c.kernel_error == 0.0
    assert c.value == pytest.approx(oracles.value(pair, c.lift[2], (rho, rho), np.abs), rel=1e-9)
    r = ugw.solve(pair.x, pair.y, rho=rho, eps=1e-2, loss=torch.abs, init="flb")
    bar = ugw.objective(r.plan, pair.x, pair.y, rho=rho, loss=torch.abs).total
    assert solve_from_one_plan(pair, rho, torch.abs, init=r, solver=solver).value <= bar


@pytest.mark.parametrize("rho", [1e2, 1e4])
def test_the_error_of_the_factors_is_small_beside_the_value_at_a_large_rho(rho):
    pair = cases.clouds(21, 22, 1)
    c = solve_from_one_plan(pair, rho, solver=ugw.AlternateMin(tol=1e-2))
    assert c.kernel_rank > 0
    assert c.value == pytest.approx(oracles.value(pair, c.lift[2], (rho, rho)), rel=1e-6)


def test_options_that_are_not_given_take_the_conic_defaults():
    pair = cases.clouds(6, 7, 1)
    default = solve_from_one_plan(pair, 1.0)
    for solver in (ugw.AlternateMin(callback=lambda step: None), ugw.Multistart(n=1), ugw.AlternateMin(max_iter=999)):
        c = solve_from_one_plan(pair, 1.0, solver=solver)
        assert c.n_iter == default.n_iter
        assert c.value == default.value


@pytest.mark.parametrize("tol", [1e-11, 1e-8, 1e-4])
def test_a_given_inner_tolerance_holds_at_the_end(tol):
    result = solve_from_one_plan(cases.clouds(12, 10, 0), solver=ugw.AlternateMin(inner=ugw.Sinkhorn(tol=tol)))
    assert result.converged
    assert result.history.residual[-1] <= tol


def test_callbacks_and_limits():
    pair = cases.clouds(5, 6, 1)
    steps = []
    solve_from_one_plan(pair, 0.1, solver=ugw.AlternateMin(callback=lambda *step: steps.append(step)))
    assert len(steps) > 2
    with pytest.warns(ugw.ConvergenceWarning):
        c = solve_from_one_plan(pair, 0.1, solver=ugw.AlternateMin(max_iter=2))
    assert c.status == ugw.Status.MAX_ITER
    with pytest.raises(ugw.NotConverged):
        c.check()


# --- bad input ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rho": math.inf}, "rho .* (finite|inf)"),
        ({"rho": (1.0, math.inf)}, "rho must be finite"),
        ({"rho": 0.0}, "rho must be positive"),
        ({"rho": -1.0}, "rho must be positive"),
        ({"rho": math.nan}, "rho"),
        ({"rho": np.array([1.0, 2.0]), "eps": np.array([0.1, 0.2, 0.3])}, "batch sizes must agree"),
        ({"eps": -0.1}, "eps must be nonnegative"),
        ({"eps": math.inf}, "eps must be nonnegative and finite"),
        ({"eps": "small"}, "must be a number or an array .*, got .small."),
        ({"eps": ugw.relative(0.1)}, r"an array \(B,\), multiples of rho, .*, got relative\(0.1\)"),
        ({"eps": ugw.relative(0.1), "cone": "partial-transport"}, r"eps must be 0, got relative\(0.1\)"),
        ({"eps": np.array([0.1, 0.2])}, "batch sizes must agree"),
        ({"cone": "wfr"}, "cone must be one of"),
        ({"cone": lambda t: -t}, "cone must be ≥ 0"),
        ({"cone": lambda t: t * math.nan}, "cone must not be NaN"),
        ({"cone": lambda t: t + 1.0}, "cone must be 0 at t = 0"),
        ({"cone": lambda t: t[:5]}, "cone must map a tensor"),
        ({"cone": 1.0}, "cone must be a name"),
        ({"init": "nearest"}, "init must be one of"),
        ({"init": np.zeros((5, 6))}, "positive mass"),
        ({"init": np.ones((6, 5))}, "shape"),
        ({"init": -np.ones((5, 6))}, "init"),
        ({"solver": "fast"}, "solver must be"),
        ({"solver": ugw.AlternateLP()}, r"must be an AlternateMin or a Multistart.*, got AlternateLP$"),
        (
            {"solver": ugw.Multistart(n=3), "cone": "partial-transport"},
            r"a Multistart of one, got Multistart of an AlternateMin: make it Multistart\(solver=AlternateLP\(\), n=3\)",
        ),
    ],
    ids=label,
)
def test_bad_input_is_refused(options, message):
    pair = cases.clouds(5, 6, 0)
    with pytest.raises(InputError, match=message):
        ugw.solve_conic(pair.x, pair.y, **options)


def test_an_array_is_not_a_space():
    pair = cases.clouds(5, 6, 0)
    for x, y in ((pair.dx, pair.y), (pair.x, pair.dy)):
        with pytest.raises(InputError, match=r"must be a ugw\.Space, got ndarray"):
            ugw.solve_conic(x, y)


def test_a_start_from_another_problem_is_refused():
    pair, other = cases.clouds(5, 6, 0), cases.clouds(4, 6, 0)
    r = ugw.solve(other.x, other.y, eps=0.1, init="flb")
    with pytest.raises(InputError, match="shape"):
        ugw.solve_conic(pair.x, pair.y, init=r)


def test_an_initial_plan_is_for_all_items_or_one_for_each():
    pair = cases.clouds(5, 6, 0)
    alone = ugw.solve(pair.x, pair.y, eps=0.1, init="flb")
    every = solve_from_one_plan(pair, np.array([0.3, 0.5, 0.7]), init=alone)
    assert every[1].value == pytest.approx(solve_from_one_plan(pair, 0.5, init=alone).value, rel=1e-9)
    five = ugw.solve(pair.x, pair.y, rho=np.array([0.3, 0.5, 0.7, 1.0, 2.0]), eps=0.1, init="flb")
    with pytest.raises(InputError, match="init must be a plan of shape"):
        solve_from_one_plan(pair, np.array([0.3, 0.5, 0.7]), init=five)


# --- UGW with other losses ---


def loss_value(pair, plan, rho, eps, loss):
    """F(p, p) with λ, four indices, by contractions for the divergences."""
    lam = loss(oracles.differences(pair))
    held = plan > 0
    distortion = (lam[held][:, held] * np.outer(plan[held], plan[held])).sum()
    mass, total = plan.sum(), distortion
    for weight, p, a in ((rho, plan.sum(1), pair.a), (rho, plan.sum(0), pair.b), (eps, plan.ravel(), np.outer(pair.a, pair.b).ravel())):  # fmt: skip
        kl = (p[p > 0] * np.log(p[p > 0] / a[p > 0])).sum() - p.sum() + a.sum()
        total += weight * (2 * mass * kl + (mass - a.sum()) ** 2)
    return total


@pytest.mark.parametrize("n", [5, 21])
@pytest.mark.parametrize("name", ["log", "abs"])
def test_ugw_with_another_loss(name, n):
    loss, numpy_loss = {"log": (lambda t: torch.log1p(t**2), lambda t: np.log1p(t**2)), "abs": (torch.abs, np.abs)}[
        name
    ]
    pair = cases.clouds(n, n + 1, 3, (1.3, 0.6))
    plan = cases.random_plan(pair, 1, 0.8)
    # Exact for small plans; a smooth loss to 1e-8 otherwise, one with a kink to what a rank of 64 reaches.
    tol = 1e-11 if n == 5 else {"log": 1e-8, "abs": 1e-2}[name]
    got = ugw.objective(plan, pair.x, pair.y, rho=0.7, eps=0.02, loss=loss).total
    assert got == pytest.approx(loss_value(pair, plan, 0.7, 0.02, numpy_loss), rel=tol)
    r = ugw.solve(pair.x, pair.y, rho=0.7, eps=0.02, loss=loss, init="flb")
    assert r.value == pytest.approx(loss_value(pair, r.plan, 0.7, 0.02, numpy_loss), rel=tol)
    assert r.value < got
    # Stationary: its mass obeys F = C − R m².
    ma, mb = pair.a.sum(), pair.b.sum()
    const = 0.7 * (ma**2 + mb**2) + 0.02 * (ma * mb) ** 2
    assert r.value == pytest.approx(const - 1.42 * r.mass**2, rel=1e-6)


def test_ugw_with_the_square_as_a_function_is_ugw():
    for n in (5, 21):
        pair = cases.clouds(n, n + 1, 3, (1.3, 0.6))
        r = ugw.solve(pair.x, pair.y, rho=0.7, eps=0.05, init="flb")
        for loss in (torch.square, GH):
            s = ugw.solve(pair.x, pair.y, rho=0.7, eps=0.05, init="flb", loss=loss)
            assert s.value == pytest.approx(r.value, rel=1e-7)
            np.testing.assert_allclose(s.plan, r.plan, atol=1e-6)


@pytest.mark.parametrize("eps", [0.0, 0.05])
def test_ugw_with_an_infinite_loss_puts_mass_only_where_it_is_finite(eps):
    d = np.array([[0.0, 1.0, 1.2], [1.0, 0.0, 0.9], [1.2, 0.9, 0.0]])
    pair = cases.Pair(d, np.array([0.3, 0.7, 0.4]), 1.2 * d, np.array([0.6, 0.5, 0.2]))
    cone, numpy_loss = ugw.HellingerKantorovich(0.5), lambda t: oracles.hk(t, 0.5)
    start = np.diag([0.3, 0.6, 0.2])
    r = ugw.solve(pair.x, pair.y, rho=0.4, eps=eps, loss=cone, init=start).check()
    assert r.value == pytest.approx(loss_value(pair, r.plan, 0.4, eps, numpy_loss), rel=1e-10)
    assert r.value < loss_value(pair, start, 0.4, eps, numpy_loss)
    assert (r.plan[start == 0] == 0).all()
    # The best diagonal plan, by search.
    minimum = minimize(
        lambda u: loss_value(pair, np.diag(np.exp(u)), 0.4, eps, numpy_loss), np.log(np.diag(start)), tol=1e-12
    )
    assert r.value == pytest.approx(minimum.fun, rel=1e-6)


@pytest.mark.parametrize("seed", [2, 3])
def test_ugw_with_an_infinite_loss_puts_no_mass_where_there_was_none(seed):
    # Elsewhere the cost of one step may be finite, and that of the next infinite.
    pair = cases.clouds(5, 5, seed, (1.0, 0.8))
    cone, start = ugw.HellingerKantorovich(0.5), np.diag(pair.a) * (np.arange(5) < 2)
    r = ugw.solve(pair.x, pair.y, rho=0.4, eps=0.05, loss=cone, init=start).check()
    assert (r.plan[start == 0] == 0).all()
    bar = ugw.objective(start, pair.x, pair.y, rho=0.4, eps=0.05, loss=cone).total
    assert r.value < bar < math.inf


def test_ugw_with_an_infinite_loss_needs_a_start_of_finite_value():
    d = np.array([[0.0, 1.0], [1.0, 0.0]])
    pair = cases.Pair(d, np.array([0.3, 0.7]), 1.2 * d, np.array([0.6, 0.5]))
    cone = ugw.HellingerKantorovich(0.5)
    for init in ("product", np.ones((2, 2))):
        with pytest.raises(InputError, match="needs init=plan of finite value"):
            ugw.solve(pair.x, pair.y, rho=0.4, loss=cone, init=init)
    wide = cases.clouds(25, 24, 0)  # where more than one start is compared
    with pytest.raises(InputError, match="needs init=plan of finite value"):
        ugw.solve(wide.x, wide.y, rho=0.4, loss=cone)
    # Below the cutoff it is a loss like any other.
    short = cases.Pair(0.3 * d, pair.a, 0.36 * d, pair.b)
    assert ugw.solve(short.x, short.y, rho=0.4, loss=cone).converged


def test_ugw_with_an_infinite_loss_is_refused_for_large_plans():
    pair = cases.clouds(50, 51, 0)
    with pytest.raises(InputError, match="term by term, up to n·m = 2500, got 50 × 51"):
        ugw.solve(pair.x, pair.y, loss=ugw.HellingerKantorovich(0.5), init="flb")


@pytest.mark.parametrize("loss", ["wfr", lambda t: -t, lambda t: t + 1.0, lambda t: t * math.nan, 3.0], ids=label)
def test_ugw_refuses_bad_losses(loss):
    pair = cases.clouds(5, 6, 0)
    with pytest.raises(InputError, match="loss"):
        ugw.solve(pair.x, pair.y, loss=loss)


def test_tol_and_max_rank_set_the_accuracy_of_the_kernel():
    pair = cases.clouds(21, 22, 0)
    coarse, fine = (solve_from_one_plan(pair, 0.1, ugw.GaussianHellinger(tol=tol)) for tol in (1e-3, 1e-10))
    assert coarse.kernel_rank < fine.kernel_rank
    assert fine.kernel_error <= 1e-10 < coarse.kernel_error <= 1e-3
    truncated = solve_from_one_plan(pair, 0.1, ugw.Loss(torch.square, max_rank=4))
    assert truncated.kernel_rank == 4
    assert truncated.kernel_error > coarse.kernel_error
    assert truncated.value_bound >= fine.value - 1e-9


@pytest.mark.parametrize("wrong", [{"tol": 0.0}, {"tol": math.nan}, {"max_rank": 0}, {"max_rank": 2.5}])
def test_bad_accuracy(wrong):
    with pytest.raises(InputError, match=r"of a cone must be .*, got"):
        ugw.HellingerKantorovich(**wrong)


def test_a_solver_that_streams_plans_is_refused():
    x = ugw.Space.from_points(np.random.default_rng(0).random((5, 2)), metric="sqeuclidean")
    streaming = ugw.AlternateMin(inner=ugw.Sinkhorn(method="streaming"))
    for call in (
        lambda solver: ugw.solve_conic(x, x, solver=solver),
        lambda solver: ugw.solve_conic(x, x, solver=ugw.Multistart(solver=solver, n=2)),
        lambda solver: ugw.pairwise([x, x], method="cgw", solver=solver),
    ):
        with pytest.raises(InputError, match=r'solve_conic stores its plans: .* got "streaming"'):
            call(streaming)
