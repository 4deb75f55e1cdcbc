"""CGW over the partial transport cone: closed forms, brute force, the radial grid, and the axioms of a metric."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog, minimize_scalar

import ugw
from oracles.spaces import space
from ugw.initializers.plans import vertex_plans
from ugw.problems.build import build_ugw
from ugw.problems.partial.cgw import PartialConicItem

PT = ugw.PartialTransport()


def space_of_any_mass(rng, n, d=2, mass=None):
    """Return a cloud of n points in R^d with uneven weights, by default of a random mass."""
    return space(n, d, rng, mass or rng.uniform(0.5, 2.0))


def arrays(x, y):
    """Return dx, dy, a and b of two spaces as arrays."""
    return (x.metric.dense().numpy(), y.metric.dense().numpy(), x.weights, y.weights)


def solve_conic(x, y, rho=1.0, cone=PT, **options):
    """Solve for the conic distance over partial transport."""
    return ugw.solve_conic(x, y, rho=rho, cone=cone, **options)


def conic_value(x, y, P, Q, *, rho, q):
    """Return the value at a lift P, Q (n, m) as a four-index sum."""
    dx, dy, a, b = arrays(x, y)
    saved = np.maximum(2 * rho - np.abs(dx[:, None, :, None] - dy[None, :, None, :]) ** q, 0.0)
    least = np.minimum(np.multiply.outer(P, P), np.multiply.outer(Q, Q))
    return rho * (a.sum() ** 2 + b.sum() ** 2) - (saved * least).sum()


def cone_cost(a, b, t, *, rho, q):
    """Return the cone cost of radii a and b at distance t."""
    return rho * (a + b) - min(a, b) * float(ugw.PartialTransport(q).matching_gain(np.array(t), rho))


# -- the cone ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [1.0, 2.0, 3.5])
@pytest.mark.parametrize("rho", [0.1, 1.0, 4.0])
def test_the_cone_cost_is_the_infimum_over_dilations(rho, q):
    """inf_θ θ L_c(r/θ, s/θ), L_c(r, s) = c + r φ(1/r) + s φ(1/s), φ(t) = rho |t − 1|."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        r, s, t = rng.uniform(0.0, 2.0, 3)

        def dilated_cost(theta, r=r, s=s, t=t):
            """Return θ L_c(r/θ, s/θ)."""
            return theta * t**q + rho * abs(r - theta) + rho * abs(s - theta)

        # Convex and linear between 0, r and s, where the search therefore also looks.
        minimum = min(
            minimize_scalar(dilated_cost, bounds=(0.0, 4.0), method="bounded").fun, *map(dilated_cost, (0.0, r, s))
        )
        assert cone_cost(r, s, t, rho=rho, q=q) == pytest.approx(minimum, abs=1e-12)


@pytest.mark.parametrize("q", [1.0, 2.0, 3.5])
@pytest.mark.parametrize("rho", [0.1, 1.0, 4.0])
def test_the_cone_cost_is_a_metric(rho, q):
    rng = np.random.default_rng(1)
    points = [(u, r) for u, r in rng.uniform(0.0, 2.0, (14, 2))] + [(0.3, 0.0)]

    def distance(u, v):
        """Return the distance of two points (position, radius) of the cone."""
        return max(cone_cost(u[1], v[1], abs(u[0] - v[0]), rho=rho, q=q), 0.0) ** (1 / q)

    table = np.array([[distance(one, other) for other in points] for one in points])
    assert np.allclose(table, table.T)
    assert (np.diag(table) < 1e-7 ** (1 / q)).all()
    assert (table + 2 * np.eye(len(points)) > 1e-4).all()  # definite
    assert (table[:, None, :] <= table[:, :, None] + table[None] + 1e-6).all()


@pytest.mark.parametrize("q", [0.5, 0.999, math.nan, math.inf, -1, "2", None, True])
def test_bad_exponents_are_refused(q):
    with pytest.raises(ugw.InputError, match="q must be a finite number ≥ 1"):
        ugw.PartialTransport(q)


# -- values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [1, 2, 3])
@pytest.mark.parametrize(("mass_a", "mass_b"), [(1.0, 1.0), (1.0, 2.5), (0.3, 0.1)])
def test_one_point_against_one(mass_a, mass_b, q):
    x, y = (ugw.Space.from_distances(np.zeros((1, 1)), weights=[mass]) for mass in (mass_a, mass_b))
    r = solve_conic(x, y, rho=0.7, cone=ugw.PartialTransport(q))
    expected = 0.7 * abs(mass_a**2 - mass_b**2)
    assert r.value == pytest.approx(expected, abs=1e-12)
    assert r.distance == pytest.approx(expected ** (1 / q), abs=1e-4)
    assert r.is_metric


@pytest.mark.parametrize("seed", range(6))
def test_two_points_against_two_by_brute_force(seed):
    rng = np.random.default_rng(seed)
    x, y, rho, q = space_of_any_mass(rng, 2), space_of_any_mass(rng, 2), (0.05, 0.3)[seed % 2], (1, 2)[seed // 3]
    dx, dy, a, b = arrays(x, y)
    saved = np.maximum(2 * rho - np.abs(dx[:, None, :, None] - dy[None, :, None, :]) ** q, 0.0).reshape(4, 4)

    def best_on_grid(center, width):
        """The best shares (of each row of P and column of Q on the first place) on a grid."""
        grid = np.linspace(-width, width, 21)
        shares = np.stack(np.meshgrid(*[np.unique(np.clip(c + grid, 0, 1)) for c in center]), axis=-1).reshape(-1, 4)
        p0, p1, q0, q1 = shares.T
        P = np.stack([a[0] * p0, a[0] * (1 - p0), a[1] * p1, a[1] * (1 - p1)], axis=1)
        Q = np.stack([b[0] * q0, b[1] * q1, b[0] * (1 - q0), b[1] * (1 - q1)], axis=1)
        overlap = sum(
            saved[s, t] * np.minimum(P[:, s] * P[:, t], Q[:, s] * Q[:, t])
            for s, t in itertools.product(range(4), repeat=2)
        )
        return shares[overlap.argmax()], float(overlap.max())

    center, width = np.full(4, 0.5), 0.5
    for _ in range(6):
        center, overlap = best_on_grid(center, width)
        width /= 4
    minimum = rho * (a.sum() ** 2 + b.sum() ** 2) - overlap
    value = solve_conic(x, y, rho=rho, cone=ugw.PartialTransport(q)).value
    assert value <= minimum + 1e-9
    assert value == pytest.approx(minimum, abs=2e-4 * rho)


def grid_program(x, y, *, rho, q, radii, starts):
    """The paper's algorithm: masses on a grid of radii for every pair, alternating linear programs; the best H(α, α)."""
    dx, dy, a, b = arrays(x, y)
    n, m, k = len(a), len(b), len(radii)
    i, j, r, s = (axis.ravel() for axis in np.indices((n, m, k, k)))
    r, s = radii[r], radii[s]
    u, v = np.multiply.outer(r, r), np.multiply.outer(s, s)
    t = np.abs(dx[np.ix_(i, i)] - dy[np.ix_(j, j)])
    cost = rho * (u + v) - np.minimum(u, v) * np.maximum(2 * rho - t**q, 0.0)
    rows = np.concatenate([(i == np.arange(n)[:, None]) * r, (j == np.arange(m)[:, None]) * s])
    minimum = np.inf
    for direction in starts:
        alpha = linprog(direction(i, j, r, s), A_eq=rows, b_eq=np.append(a, b)).x
        for _ in range(30):
            before, alpha = alpha, linprog(cost @ alpha, A_eq=rows, b_eq=np.append(a, b)).x
            minimum = min(minimum, alpha @ cost @ alpha)
            if np.abs(alpha - before).sum() < 1e-9:
                break
    return minimum


@pytest.mark.parametrize(("n", "seed"), [(2, 1), (3, 2)])
def test_never_above_the_radial_grid(n, seed):
    rng = np.random.default_rng(seed)
    x, y, rho = (
        space_of_any_mass(rng, n, mass=1.0),
        space_of_any_mass(rng, n, mass=(1.0, 0.6)[seed % 2]),
        (0.1, 1.0)[seed % 2],
    )
    radii = np.linspace(0.0, 1.0, 11)[1:]

    def random_costs(i, *_):
        """Return random starting costs of the entries."""
        return rng.random(len(i))

    def permutation_costs(order):
        """Return starting costs that favor one matching of the points."""
        return lambda i, j, r, s: np.abs(r - s) + 10.0 * (np.array(order)[i] != j)

    starts = [random_costs] * 4 + [permutation_costs(order) for order in itertools.permutations(range(n))]
    grid = grid_program(x, y, rho=rho, q=2, radii=radii, starts=starts)
    assert solve_conic(x, y, rho=rho).value <= grid + 1e-9


def test_the_value_is_that_of_the_lift():
    rng = np.random.default_rng(3)
    x, y = space_of_any_mass(rng, 5), space_of_any_mass(rng, 4, 3)
    r = solve_conic(x, y, rho=0.2, cone=ugw.PartialTransport(1.5), init="coarse")
    P, Q, w = r.lift
    assert np.allclose(P.sum(1), x.weights)
    assert np.allclose(Q.sum(0), y.weights)
    assert np.allclose(w, np.minimum(P, Q))
    assert min(P.min(), Q.min()) >= 0
    assert r.value == pytest.approx(conic_value(x, y, P, Q, rho=0.2, q=1.5), abs=1e-12)
    assert r.value_bound == r.value
    assert r.distance == pytest.approx(r.value ** (1 / 1.5))
    assert 0.4 * r.mass**2 == pytest.approx(r.terms.unmatched - r.value)
    atoms = r.atoms()  # radii are masses here: p = 1
    assert np.allclose(np.bincount(atoms["i"], atoms["radius_x"] * atoms["mass"]), x.weights)
    assert np.allclose(np.bincount(atoms["j"], atoms["radius_y"] * atoms["mass"]), y.weights)


@pytest.mark.parametrize("rho", [0.05, 1.0])
def test_never_above_the_tv_objective_of_any_plan(rho):
    """The lift of a plan costs at most Σ λ p p' + rho |p1⊗p1 − a⊗a| + rho |p2⊗p2 − b⊗b|, and steps only improve it."""
    rng = np.random.default_rng(4)
    x, y = space_of_any_mass(rng, 4), space_of_any_mass(rng, 5, 3)
    dx, dy, a, b = arrays(x, y)
    cost = (dx[:, None, :, None] - dy[None, :, None, :]) ** 2
    for k in range(8):
        plan = rng.random((4, 5)) ** rng.integers(1, 9) * rng.uniform(0.05, 0.5)
        plan[rng.random((4, 5)) < 0.1 * k] = 0.0
        p1, p2 = plan.sum(1), plan.sum(0)
        tv = sum(np.abs(np.outer(p, p) - np.outer(w, w)).sum() for p, w in ((p1, a), (p2, b)))
        objective = float(np.einsum("ijkl,ij,kl", cost, plan, plan) + rho * tv)
        assert solve_conic(x, y, rho=rho, init=plan).value <= objective + 1e-9


def test_two_homogeneous_in_the_masses():
    rng = np.random.default_rng(5)
    x, y = space_of_any_mass(rng, 4), space_of_any_mass(rng, 3)
    scaled = [ugw.Space.from_points(s.points, weights=7.0 * s.weights) for s in (x, y)]
    value = solve_conic(x, y, rho=0.3).value
    assert solve_conic(*scaled, rho=0.3).value == pytest.approx(49.0 * value, rel=1e-6)


# -- a metric ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_triangle_inequality_and_symmetry(seed):
    rng = np.random.default_rng(seed)
    x, y, z = (space_of_any_mass(rng, int(n)) for n in rng.integers(1, 4, 3))
    rho, cone = (0.1, 0.5, 3.0)[seed % 3], ugw.PartialTransport((2, 1)[seed % 2])
    xy, yz, xz, yx = (solve_conic(s, t, rho=rho, cone=cone) for s, t in ((x, y), (y, z), (x, z), (y, x)))
    assert xz.distance <= xy.distance + yz.distance + 1e-6
    assert xy.distance <= xz.distance + yz.distance + 1e-6
    assert yz.distance <= xz.distance + xy.distance + 1e-6
    assert xy.value == pytest.approx(yx.value, abs=1e-6)
    assert xy.distance > 1e-2  # they are not isometric


@pytest.mark.parametrize("rho", [0.02, 1.0])
def test_zero_on_isometric_copies(rho):
    rng = np.random.default_rng(6)
    points, weights = rng.random((6, 2)), rng.random(6) + 0.1
    order = rng.permutation(6)
    turn = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    x = ugw.Space.from_points(points, weights=weights)
    y = ugw.Space.from_points(points[order] @ turn, weights=weights[order])
    r = solve_conic(x, y, rho=rho)
    assert r.value == pytest.approx(0.0, abs=1e-9)
    assert np.allclose(r.plan[order, np.arange(6)], weights[order], atol=1e-6)


def test_permuting_the_points_keeps_the_value():
    rng = np.random.default_rng(7)
    points, weights, y = rng.random((4, 2)), rng.random(4) + 0.1, space_of_any_mass(rng, 3)
    order = rng.permutation(4)
    x, permuted = (ugw.Space.from_points(points[o], weights=weights[o]) for o in (np.arange(4), order))
    assert solve_conic(permuted, y, rho=0.3).value == pytest.approx(solve_conic(x, y, rho=0.3).value, abs=1e-6)


def test_points_without_weight_keep_the_value():
    rng = np.random.default_rng(8)
    points, y = rng.random((4, 2)), space_of_any_mass(rng, 3)
    x = ugw.Space.from_points(points[:3], weights=np.full(3, 0.3))
    more = ugw.Space.from_points(points, weights=np.array([0.3] * 3 + [0.0]))
    assert solve_conic(more, y, rho=0.3).value == pytest.approx(solve_conic(x, y, rho=0.3).value, abs=1e-6)


# -- steps and inputs -------------------------------------------------------------------------------------


def test_the_linear_step_is_the_best_of_all_lifts():
    """Its overlap with w, against random lifts and against the linear program with a variable for every minimum."""
    rng = np.random.default_rng(10)
    x, y = space_of_any_mass(rng, 4), space_of_any_mass(rng, 3)
    item = PartialConicItem(*arrays(x, y), 0.1, PT)
    w = item.lift_plan(rng.random((4, 3)))
    best = item.overlap_along_segment(w, item.maximize_overlap_with(w))[0]
    for _ in range(200):
        v = item.lift_plan(rng.random((4, 3)) ** 6)[0], item.lift_plan(rng.random((4, 3)) ** 6)[1]
        assert item.overlap_along_segment(w, v)[0] <= best + 1e-9
    c = item.pair_gains(np.arange(12), np.arange(12)).ravel()
    s, t = np.divmod(np.arange(144), 12)
    eye, zero = np.eye(12), np.zeros((144, 12))
    below_p = np.hstack([np.eye(144), -eye[s] * w[0].ravel()[t][:, None], zero])
    below_q = np.hstack([np.eye(144), zero, -eye[s] * w[1].ravel()[t][:, None]])
    sums = np.zeros((7, 168))
    for i, j in np.ndindex(4, 3):
        sums[i, 144 + 3 * i + j] = sums[4 + j, 156 + 3 * i + j] = 1.0
    program = linprog(
        -np.append(c, np.zeros(24)),
        A_ub=np.vstack([below_p, below_q]),
        b_ub=np.zeros(288),
        A_eq=sums,
        b_eq=np.append(item.a, item.b),
    )
    assert best == pytest.approx(-program.fun, abs=1e-7)


def test_corner_starts_have_the_marginals_and_commute_with_swapping_and_padding():
    rng = np.random.default_rng(18)
    x, y = space_of_any_mass(rng, 4), space_of_any_mass(rng, 3)
    weights = np.insert(x.weights, 2, 0.0)
    more = ugw.Space.from_points(np.insert(x.points, 2, 0.5, axis=0), weights=weights)
    plans, swapped, padded = (
        vertex_plans(build_ugw(s, t, rho=1.0, eps=0.1, fused=None), 5)[0].numpy()
        for s, t in ((x, y), (y, x), (more, y))
    )
    assert np.allclose(plans.sum(2), x.weights / x.weights.sum())
    assert np.allclose(plans.sum(1), y.weights / y.weights.sum())
    assert ((plans > 0).sum((1, 2)) <= 6).all()
    assert np.allclose(swapped, plans.transpose(0, 2, 1))
    assert np.allclose(np.delete(padded, 2, axis=1), plans)


def test_items_of_a_batch_equal_single_solves():
    rng = np.random.default_rng(11)
    xs, ys, rhos = (
        [space_of_any_mass(rng, n) for n in (3, 2, 4)],
        [space_of_any_mass(rng, n) for n in (2, 4, 3)],
        np.array([0.1, 0.5, 2.0]),
    )
    r = solve_conic(ugw.Space.stack(xs), ugw.Space.stack(ys), rho=rhos, init="product")
    assert r.is_metric.all()
    for item, x, y, rho in zip(r, xs, ys, rhos, strict=True):
        alone = solve_conic(x, y, rho=rho, init="product")
        assert item.value == pytest.approx(alone.value, abs=1e-9)
        assert item.lift[0].shape == alone.lift[0].shape
        assert np.allclose(item.lift[0].sum(1), x.weights)


def test_float32_and_tensors():
    rng = np.random.default_rng(12)
    x, y = space_of_any_mass(rng, 4), space_of_any_mass(rng, 3)
    single = [ugw.Space.from_points(s.point_tensor.float(), weights=s.weight_tensor.float()) for s in (x, y)]
    r = solve_conic(*single, rho=0.3, init="coarse")
    assert isinstance(r.plan, torch.Tensor)
    assert r.plan.dtype == torch.float32
    assert float(r.value) == pytest.approx(solve_conic(x, y, rho=0.3, init="coarse").value, rel=1e-4)


def test_saved_and_loaded(tmp_path):
    rng = np.random.default_rng(13)
    r = solve_conic(
        space_of_any_mass(rng, 3), space_of_any_mass(rng, 2), cone=ugw.PartialTransport(1.0), init="product"
    )
    r.save(tmp_path / "r.npz")
    loaded = ugw.ConicResult.load(tmp_path / "r.npz")
    assert loaded.distance == r.distance == r.value
    assert "distance" in r.summary()


def test_by_name_with_the_exponent_of_the_default_loss():
    rng = np.random.default_rng(15)
    x, y = space_of_any_mass(rng, 3), space_of_any_mass(rng, 3)
    assert solve_conic(x, y, cone="partial-transport", init="product").value == solve_conic(x, y, init="product").value
    assert ugw.PartialTransport().distance_exponent == 2.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rho": (1.0, 2.0)}, "one rho for both sides, got 1 and 2"),
        ({"rho": math.inf}, "rho must be finite"),
        ({"eps": 0.1}, "eps must be 0"),
        ({"eps": math.nan}, "eps"),
        ({"solver": ugw.AlternateMin()}, "solver must be an AlternateLP"),
        ({"solver": ugw.Multistart()}, "solver must be an AlternateLP"),
        ({"cone": "gaussian-hellinger", "solver": ugw.AlternateLP()}, "solver must be an AlternateMin"),
        ({"init": np.zeros((3, 3))}, "positive mass"),
    ],
)
def test_bad_input_is_refused(options, message):
    rng = np.random.default_rng(16)
    with pytest.raises(ugw.InputError, match=message):
        solve_conic(space_of_any_mass(rng, 3), space_of_any_mass(rng, 3), **options)


def test_tightness_has_no_ugw_over_tv():
    rng = np.random.default_rng(16)
    with pytest.raises(ugw.InputError, match="cone must be one over KL"):
        ugw.tightness(space_of_any_mass(rng, 2), space_of_any_mass(rng, 2), cone=PT)


def test_large_spaces_are_refused():
    rng = np.random.default_rng(17)
    with pytest.raises(ugw.InputError, match=r"up to n·m = \d+, got 400 × 300"):
        solve_conic(space_of_any_mass(rng, 400), space_of_any_mass(rng, 300))


@pytest.mark.parametrize("options", [{"tol": 0.0}, {"max_iter": 0}, {"progress": 1}, {"callback": 3}])
def test_bad_solver_options_are_refused(options):
    with pytest.raises(ugw.InputError, match="AlternateLP"):
        ugw.AlternateLP(**options)
