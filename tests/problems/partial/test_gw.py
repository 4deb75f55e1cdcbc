"""Partial Gromov–Wasserstein, TV and Mass: against POT, brute-force sums, a grid, and the axioms of a metric."""

import itertools
import warnings

import numpy as np
import ot
import pytest
import torch

import ugw
from oracles import cases
from oracles.cases import INF, Parameters
from oracles.versions import needs_pot
from ugw.measures.divergences import partial_divergences
from ugw.problems.build import build_partial
from ugw.problems.partial.gw import product_tv

FUSED = 0.6
KINDS = {"TV": ugw.TV(0.2), "two TV": (ugw.TV(0.1), ugw.TV(0.4)), "Mass": ugw.Mass(0.6)}


def plan_below_weights(pair, seed, mass):
    """A random plan below the weights, of that mass."""
    plan = cases.random_plan(pair, seed, mass)
    for _ in range(200):
        plan *= np.minimum(pair.a / plan.sum(1), 1)[:, None]
        plan *= np.minimum(pair.b / plan.sum(0), 1)
        plan *= mass / plan.sum()
    return plan * 0.999


def problem(pair, rho, fused=0.0):
    """Return the partial problem of a pair."""
    linear_term = ugw.Fused(fused, pair.cost) if fused else None
    return build_partial(pair.x, pair.y, sides=partial_divergences(rho), eps=0.0, fused=linear_term, loss=None)[0]


def value(pair, rho, plan, fused=0.0):
    """The objective, sum by sum: TV(p1⊗p1 | a⊗a) over all pairs."""
    total = cases.value(pair, Parameters(INF, INF, 0.0, fused), plan)
    if isinstance(rho, ugw.Mass):
        return total
    first, second = rho if isinstance(rho, tuple) else (rho, rho)
    for side, p, a in ((first, plan.sum(1), pair.a), (second, plan.sum(0), pair.b)):
        total += float(side.rho) * abs(np.outer(p, p) - np.outer(a, a)).sum()
    return total


# --- the objective ---


@pytest.mark.parametrize("rho", KINDS.values(), ids=KINDS)
def test_objective_is_the_sum_over_pairs_for_any_plan(rho):
    pair = cases.clouds(5, 6, 0, (1.3, 0.8))
    for seed, mass in ((0, 0.6), (1, 3.0)):  # the second far above the weights
        plan = cases.random_plan(pair, seed, mass)
        terms = ugw.objective(plan, pair.x, pair.y, rho=rho, fused=ugw.Fused(FUSED, pair.cost))
        assert terms.total == pytest.approx(value(pair, rho, plan, FUSED), rel=1e-12)
    assert ugw.objective(0 * plan, pair.x, pair.y, rho=ugw.TV(0.5)).total == pytest.approx(0.5 * (1.3**2 + 0.8**2))


def test_below_the_weights_total_variation_is_a_difference_of_squares():
    pair = cases.clouds(5, 6, 0, (1.3, 0.8))
    plan = plan_below_weights(pair, 3, 0.5)
    terms = ugw.objective(plan, pair.x, pair.y, rho=(ugw.TV(2.0), ugw.TV(3.0)))
    assert terms.marginal_a == pytest.approx(2.0 * (1.3**2 - plan.sum() ** 2), rel=1e-12)
    assert terms.marginal_b == pytest.approx(3.0 * (0.8**2 - plan.sum() ** 2), rel=1e-12)


@pytest.mark.parametrize("n", [11, 1500])  # in one block, and in two
def test_the_total_variation_of_products_is_a_sum_over_pairs(n):
    p, a = (torch.tensor(np.random.default_rng(seed).random((3, n))) for seed in (0, 1))
    differences = p[:, :, None] * p[:, None, :] - a[:, :, None] * a[:, None, :]
    torch.testing.assert_close(product_tv(p, a), differences.abs().sum((1, 2)), rtol=1e-12, atol=0)


def test_unrestricted_plans_may_be_better():
    """Two points of mass 1 and 2: a plan above the weights can match the side with the larger penalty fully."""
    x, y = (ugw.Space.from_points([[0.0]], weights=[mass]) for mass in (1.0, 2.0))
    rho = ugw.TV(1.0), ugw.TV(5.0)
    best = ugw.solve(x, y, rho=rho)
    assert best.value == pytest.approx(15.0, rel=1e-12)
    assert best.mass == pytest.approx(1.0, rel=1e-12)
    assert ugw.objective([[2.0]], x, y, rho=rho).total == pytest.approx(3.0, rel=1e-12)


# --- the solver ---


def solve_partial(pair, rho, fused, init, max_iter=500):
    """Solve the partial problem of a pair without convergence warnings."""
    linear_term = ugw.Fused(fused, pair.cost) if fused else None
    with warnings.catch_warnings():  # the last digits take long if the optimum is not a vertex
        warnings.simplefilter("ignore", ugw.ConvergenceWarning)
        return ugw.solve(
            pair.x, pair.y, rho=rho, fused=linear_term, init=init, solver=ugw.FrankWolfe(max_iter=max_iter)
        )


@pytest.mark.parametrize("fused", [0.0, FUSED], ids=["plain", "fused"])
@pytest.mark.parametrize("rho", [ugw.TV(2.0), (ugw.TV(1.0), ugw.TV(4.0)), ugw.Mass(0.6)], ids=KINDS)
def test_the_line_search_is_exact_and_the_objective_falls(rho, fused):
    inside = 0
    for seed, make in itertools.product((1, 3, 4), (cases.clouds, cases.similarities)):
        pair = make(6, 7, seed, (1.3, 0.8))
        start = plan_below_weights(pair, seed, 0.6)
        if make is cases.similarities:  # some steps end inside a segment
            start = solve_partial(pair, rho, fused, start, max_iter=4).plan
        step = solve_partial(pair, rho, fused, start, max_iter=1)
        p = problem(pair, rho, fused)
        first = p.project(torch.tensor(start)[None])
        vertex = (p.linear_minimizer(p.state_of_plan(first)) * p.mass_unit)[0].numpy()
        begin = (first * p.mass_unit)[0].numpy()
        direction = vertex - begin
        values = [value(pair, rho, begin + t * direction, fused) for t in np.linspace(0, 1, 201)]
        assert step.value <= min(values) + 1e-13
        t = ((step.plan - begin) * direction).sum() / (direction**2).sum() if direction.any() else 1.0
        np.testing.assert_allclose(step.plan, begin + t * direction, atol=1e-13)
        assert value(pair, rho, step.plan, fused) == pytest.approx(step.value, rel=1e-11)
        inside += 1e-3 < t < 0.99
        end = solve_partial(pair, rho, fused, start)
        assert end.converged or make is cases.similarities
        assert np.diff(end.history.objective).max(initial=-1.0) <= 1e-13
        assert end.value <= step.value + 1e-13
    assert inside


@pytest.mark.parametrize("rho", KINDS.values(), ids=KINDS)
def test_plans_stay_below_the_weights_and_no_vertex_improves_the_end(rho):
    pair = cases.clouds(7, 8, 1, (1.3, 0.8))
    result = ugw.solve(pair.x, pair.y, rho=rho)
    assert result.converged
    assert (result.plan.sum(1) - pair.a).max() < 1e-14
    assert (result.plan.sum(0) - pair.b).max() < 1e-14
    assert result.plan.min() >= 0
    assert result.marginal_error < 1e-14
    if isinstance(rho, ugw.Mass):
        assert result.mass == pytest.approx(0.6, rel=1e-13)
    p = problem(pair, rho)
    state = p.state_of_plan(torch.tensor(result.plan)[None] / p.mass_unit)
    segment = p.segment(state, p.linear_minimizer(state) - state.unit_plan)
    assert float(-segment.slope) <= 1e-8 * float(p.gap_scale())


@pytest.mark.parametrize("fused", [0.0, FUSED], ids=["plain", "fused"])
@pytest.mark.parametrize("rho", KINDS.values(), ids=KINDS)
def test_the_gradient_and_the_parabola_are_those_of_the_objective(rho, fused):
    """Along a direction that changes the mass, F(p + t·d) = F(p) + s·t + c·t², and s = <gradient, d>."""
    pair = cases.clouds(5, 6, 2, (1.3, 0.8))
    p = problem(pair, rho, fused)
    plan, end = plan_below_weights(pair, 1, 0.3), plan_below_weights(pair, 2, 0.7)
    state = p.state_of_plan(torch.tensor(plan)[None] / p.mass_unit)
    direction = torch.tensor(end - plan)[None] / p.mass_unit
    segment = p.segment(state, direction)
    slope, curvature = float(segment.slope), float(segment.curvature)
    for t in (0.1, 0.5, 1.0):
        expected = value(pair, rho, plan + t * (end - plan), fused) - value(pair, rho, plan, fused)
        assert slope * t + curvature * t**2 == pytest.approx(expected, rel=1e-9)
    assert float((p.gradient(state) * direction).sum() * p.mass_unit**2) == pytest.approx(slope, rel=1e-12)
    moved, expected = (
        segment.move(state, torch.tensor([0.3], dtype=torch.float64)),
        p.state_of_plan(state.unit_plan + 0.3 * direction),
    )
    for name in ("unit_plan", "local_cost", "mass", "linear", "distortion"):
        torch.testing.assert_close(getattr(moved, name), getattr(expected, name), rtol=1e-12, atol=1e-14)


def pot_plan(pair, mass, start, fused=0.0):
    """Return the plan (n, m) of POT's partial GW from the same start."""
    options = {"m": mass, "G0": start, "tol": 1e-14, "numItermax": 5000, "warn": False}
    if not fused:
        return ot.gromov.partial_gromov_wasserstein(pair.dx, pair.dy, pair.a, pair.b, **options)
    args = pair.cost, pair.dx, pair.dy, pair.a, pair.b
    return ot.gromov.partial_fused_gromov_wasserstein(*args, alpha=1 / (1 + fused), **options)


@needs_pot("0.9.6")
@pytest.mark.parametrize("fused", [0.0, FUSED], ids=["plain", "fused"])
@pytest.mark.parametrize("mass", [0.3, 0.6, 0.79])
@pytest.mark.parametrize("seed", range(2))
def test_mass_is_equal_to_pot_or_better_from_the_same_start(seed, mass, fused):
    pair = cases.clouds(8, 9, seed, (1.3, 0.8))
    start = np.outer(pair.a, pair.b) * mass / (1.3 * 0.8)
    rho, fused_term = ugw.Mass(mass), ugw.Fused(fused, pair.cost) if fused else None
    theirs = value(pair, rho, pot_plan(pair, mass, start, fused), fused)
    ours = ugw.solve(pair.x, pair.y, rho=rho, fused=fused_term, init=start)
    assert ours.converged
    assert ours.value <= theirs + 1e-12
    assert ugw.solve(pair.x, pair.y, rho=rho, fused=fused_term).value <= ours.value + 1e-12


@pytest.mark.parametrize("seed", range(2))
def test_the_tv_plan_is_optimal_for_its_mass_and_among_masses(seed):
    pair = cases.clouds(6, 7, seed, (1.0, 0.8))
    chosen = ugw.solve(pair.x, pair.y, rho=ugw.TV(0.01))
    assert chosen.mass > 0.2
    same = ugw.solve(pair.x, pair.y, rho=ugw.Mass(chosen.mass), init=chosen.plan)
    assert same.value == pytest.approx(chosen.terms.distortion, rel=1e-7)
    for mass in (0.2, 0.8):
        other = ugw.solve(pair.x, pair.y, rho=ugw.Mass(mass))
        assert chosen.value <= ugw.objective(other.plan, pair.x, pair.y, rho=ugw.TV(0.01)).total + 1e-9


def test_outliers_stay_unmatched():
    """A cloud inside a larger one: matched in full at no distortion, whatever is asked for."""
    rng = np.random.default_rng(0)
    cloud = rng.normal(size=(9, 3))
    x = ugw.Space.from_points(cloud)
    y = ugw.Space.from_points(
        np.vstack([cloud[::-1] @ np.diag([1, -1, 1]), 4 + rng.normal(size=(4, 3))]), weights=np.full(13, 1 / 9)
    )
    for rho, expected in ((ugw.Mass(1.0), 0.0), (ugw.TV(0.1), 0.1 * ((13 / 9) ** 2 - 1))):
        result = ugw.solve(x, y, rho=rho)
        assert result.value == pytest.approx(expected, abs=1e-9)
        np.testing.assert_allclose(result.plan[:, :9], np.eye(9)[::-1] / 9, atol=1e-9)
        assert abs(result.plan[:, 9:]).max() < 1e-12


@pytest.mark.parametrize(("n", "copied", "outliers", "rhos"), [(12, 8, 4, (0.001, 0.01, 0.03)), (30, 20, 15, (0.01,))])
def test_a_mirrored_part_is_found_at_low_and_high_rho(n, copied, outliers, rhos):
    """A mirrored copy of some of the points, and outliers: it fits without distortion, and no plan is below that."""
    rng = np.random.default_rng(2)
    points = rng.normal(size=(n, 2))
    x = ugw.Space.from_points(points)
    y = np.concatenate([points[:copied, ::-1], 4 + rng.normal(size=(outliers, 2))])
    y = ugw.Space.from_points(y, weights=np.full(copied + outliers, 1 / n))
    best = np.eye(n, copied + outliers) / n
    best[copied:] = 0.0
    for rho in rhos:
        least = ugw.objective(best, x, y, rho=ugw.TV(rho)).total
        assert ugw.solve(x, y, rho=ugw.TV(rho)).check().value <= least * (1 + 1e-9)
    assert ugw.solve(x, y, rho=ugw.Mass(copied / n)).check().value < 1e-9


def tiny_space(seed):
    """Return a cloud of 2 to 4 points with random scale and weights."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 5))
    return ugw.Space.from_points(rng.random((n, 2)) * rng.uniform(0.3, 2), weights=rng.random(n) + 0.1)


@pytest.mark.parametrize("rho", [0.05, 0.5])
def test_the_root_of_the_tv_value_is_a_metric(rho):
    spaces = [tiny_space(seed) for seed in range(7)]
    pairs = list(itertools.permutations(range(7), 2))
    x, y = (ugw.Space.stack([spaces[pair[side]] for pair in pairs]) for side in (0, 1))
    values = ugw.solve(x, y, rho=ugw.TV(rho), solver=ugw.Multistart(solver=ugw.FrankWolfe(), n=40)).value
    least = dict(zip(pairs, values, strict=True))
    distance = {(i, j): min(least[i, j], least[j, i]) ** 0.5 for i, j in pairs}
    for i, j, k in itertools.permutations(range(7), 3):
        assert distance[i, k] <= distance[i, j] + distance[j, k] + 1e-6
    assert ugw.solve(spaces[0], spaces[0], rho=ugw.TV(rho)).value == pytest.approx(0.0, abs=1e-9)
    assert min(distance.values()) > 1e-2


def test_swapping_the_spaces_transposes_and_masses_scale():
    pair = cases.clouds(6, 7, 2, (1.3, 0.8))
    rho = ugw.TV(0.1), ugw.TV(0.3)
    result, back = ugw.solve(pair.x, pair.y, rho=rho), ugw.solve(pair.y, pair.x, rho=rho[::-1])
    assert back.value == pytest.approx(result.value, rel=1e-10)
    np.testing.assert_allclose(back.plan.T, result.plan, atol=1e-10)
    for scale in (1e-9, 1e6):
        other = cases.Pair(pair.dx, pair.a * scale, pair.dy, pair.b * scale)
        scaled = ugw.solve(other.x, other.y, rho=rho)
        assert scaled.value / scale**2 == pytest.approx(result.value, rel=1e-9)
        assert scaled.mass / scale == pytest.approx(result.mass, rel=1e-9)


@pytest.mark.parametrize("rho", [ugw.TV(0.3), ugw.Mass(0.6)], ids=repr)
def test_scaling_distances_and_rho_together_scales_the_value(rho):
    pair = cases.clouds(6, 7, 2, (1.3, 0.8))
    result = ugw.solve(pair.x, pair.y, rho=rho, init="product")
    assert result.n_iter > 2
    for length in (1e-8, 1e-5, 1e6):
        other = cases.Pair(pair.dx * length, pair.a, pair.dy * length, pair.b)
        penalty = ugw.TV(0.3 * length**2) if isinstance(rho, ugw.TV) else rho
        scaled = ugw.solve(other.x, other.y, rho=penalty, init="product")
        assert scaled.converged
        assert scaled.value / length**2 == pytest.approx(result.value, rel=1e-9)


def test_a_tiny_given_mass_is_kept_exactly():
    """One pair of points with all mass has no distortion; a given mass is never reported as collapsed."""
    pair = cases.clouds(6, 7, 2, (1.3, 0.8))
    for mass in (1e-3, 1e-8, 1e-13):
        result = ugw.solve(pair.x, pair.y, rho=ugw.Mass(mass), init="product")
        assert result.converged
        assert result.mass == pytest.approx(mass, rel=1e-12)
        assert result.value < 1e-9 * mass**2
        assert result.marginal_error < 1e-12


@pytest.mark.parametrize("rho", [ugw.TV(np.array([0.05, 0.2, 1.0])), ugw.Mass(np.array([0.3, 0.5, 0.7]))], ids=repr)
def test_items_of_a_batch_equal_single_solves(rho):
    pairs = [cases.clouds(5 + seed, 7 - seed, seed, (1.3, 0.8)) for seed in range(3)]
    x, y = (ugw.Space.stack([getattr(pair, side) for pair in pairs]) for side in "xy")
    whole = ugw.solve(x, y, rho=rho)
    for i, pair in enumerate(pairs):
        alone = ugw.solve(pair.x, pair.y, rho=type(rho)(float((rho.rho if isinstance(rho, ugw.TV) else rho.m)[i])))
        assert whole[i].value == pytest.approx(alone.value, rel=1e-10)
        np.testing.assert_allclose(whole[i].plan, alone.plan, atol=1e-10)


def test_zero_weights_get_no_mass_and_float32_agrees():
    pair = cases.clouds(8, 9, 1)
    a, b = pair.a.copy(), pair.b.copy()
    a[2] = b[4] = 0.0
    holes = cases.Pair(pair.dx, a, pair.dy, b)
    result = ugw.solve(holes.x, holes.y, rho=ugw.TV(0.1), init="product")
    assert result.plan[2].max() == result.plan[:, 4].max() == 0.0
    rest = cases.Pair(pair.dx[np.ix_(a > 0, a > 0)], a[a > 0], pair.dy[np.ix_(b > 0, b > 0)], b[b > 0])
    assert ugw.solve(rest.x, rest.y, rho=ugw.TV(0.1), init="product").value == pytest.approx(result.value, rel=1e-9)
    short = ugw.solve(rest.x.to("float32"), rest.y.to("float32"), rho=ugw.TV(0.1))
    assert short.converged
    assert short.value == pytest.approx(ugw.solve(rest.x, rest.y, rho=ugw.TV(0.1)).value, rel=1e-4)


def test_another_loss_and_an_infinite_one():
    pair = cases.clouds(5, 6, 0, (1.3, 0.8))
    result = ugw.solve(pair.x, pair.y, rho=ugw.TV(0.3), loss=torch.abs)
    gaps = abs(pair.dx[:, None, :, None] - pair.dy[None, :, None, :])
    assert result.terms.distortion == pytest.approx(np.einsum("ijkl,ij,kl", gaps, result.plan, result.plan), rel=1e-12)
    with pytest.raises(ugw.InputError, match="finite everywhere"):
        ugw.solve(pair.x, pair.y, rho=ugw.TV(0.3), loss=ugw.HellingerKantorovich(cutoff=0.3))


# --- errors and messages ---


def test_invalid_arguments_are_refused():
    pair = cases.clouds(5, 6, 0, (1.3, 0.8))
    x, y = pair.x, pair.y
    for rho, message in (
        (ugw.Mass(0.9), "at most the smaller of both masses, got m = 0.9, expected at most 0.8"),
        ((ugw.TV(1.0), 1.0), "TV must be on both sides"),
        ((ugw.Mass(0.1), ugw.Mass(0.1)), "one Mass applies to both sides"),
        ((ugw.TV(1.0),) * 3, "3 entries"),
    ):
        with pytest.raises(ugw.InputError, match=message):
            ugw.solve(x, y, rho=rho)
    for divergence, bad in ((ugw.TV, INF), (ugw.TV, 0.0), (ugw.Mass, -1.0), (ugw.Mass, INF)):
        with pytest.raises(ugw.InputError, match="positive and finite"):
            divergence(bad)
    for eps in (0.1, ugw.relative(0.1)):
        with pytest.raises(ugw.InputError, match="eps must be 0"):
            ugw.solve(x, y, rho=ugw.TV(1.0), eps=eps)
    with pytest.raises(ugw.InputError, match="eps must be a number"):
        ugw.solve(x, y, rho=ugw.TV(1.0), eps=None)
    assert ugw.solve(x, y, rho=ugw.Mass(0.8), eps=0.0).mass == pytest.approx(0.8)
    with pytest.raises(ugw.InputError, match="solver must be a FrankWolfe"):
        ugw.solve(x, y, rho=ugw.TV(1.0), solver=ugw.AlternateMin())
    with pytest.raises(ugw.InputError, match="for solve, solve_linear, objective"):
        ugw.solve_conic(x, y, rho=ugw.TV(1.0))
    with pytest.raises(ugw.InputError, match="no potentials"):
        _ = ugw.solve(x, y, rho=ugw.TV(1.0)).potentials


def test_a_vanishing_plan_has_the_status_collapsed():
    pair = cases.clouds(6, 7, 0)
    with pytest.warns(ugw.ConvergenceWarning, match="next to no mass"):
        result = ugw.solve(pair.x, pair.y, rho=ugw.TV(1e-3), init="product")
    assert result.status == ugw.Status.COLLAPSED
    assert ugw.solve(pair.x, pair.y, rho=ugw.TV(1e-3)).mass > 0.01  # other starts find what fits


@pytest.mark.parametrize(
    ("rho", "outliers"), [(1e-3, "one side"), (1e-3, "both sides"), (1e-2, "both sides"), (0.1, "one side")]
)
def test_a_copy_is_found_at_any_low_rho(rho, outliers):
    """Far from the solution a low rho favors matching nothing: initial plans come from a higher rho, which keeps mass."""
    rng = np.random.default_rng(0)
    points, n = rng.random((12, 2)), 12
    copy = np.vstack([points @ [[0.0, 1.0], [-1.0, 0.0]] + 3.0, 5.0 + 3.0 * rng.random((4, 2))])
    if outliers == "both sides":
        points = np.vstack([points, -4.0 + rng.random((3, 2))])
    x, y = (ugw.Space.from_points(p, weights=np.full(len(p), 1.0 / n)) for p in (points, copy))
    right = np.zeros((x.n, y.n))
    right[np.arange(n), np.arange(n)] = 1.0 / n
    r = ugw.solve(x, y, rho=ugw.TV(rho))
    assert r.converged
    assert r.value <= ugw.objective(right, x, y, rho=ugw.TV(rho)).total * (1.0 + 1e-9)
