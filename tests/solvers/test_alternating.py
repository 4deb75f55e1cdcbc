"""Alternating minimization: known answers, invariances, limits, brute force, stopping, status, and eps = 0."""

import math
from dataclasses import replace

import numpy as np
import ot
import pytest

import ugw
from oracles import cases
from oracles.cases import INF, Parameters
from oracles.versions import needs_pot
from ugw.kernels.cpu import native

SOFT = [Parameters(1.0, 1.0, 0.05), Parameters(0.3, 2.0, 0.05), Parameters(0.3, 0.5, 0.02, 0.4)]
HARD = [Parameters(INF, 0.5, 0.05), Parameters(0.5, INF, 0.05)]
EXACT = [
    Parameters(0.3, 2.0, 0.0),
    Parameters(0.5, 0.2, 0.0, 0.3),
    Parameters(INF, 0.5, 0.0),
    Parameters(0.5, INF, 0.0),
]


def penalty_sum(parameters):
    """Return rho1 + rho2 + eps."""
    return parameters.rho1 + parameters.rho2 + parameters.eps


# --- answers that can be written down ---


@pytest.mark.parametrize("case", cases.closed_form_cases(), ids=lambda k: k.name)
def test_known_answers(case):
    result = cases.solve(case.pair, case.parameters)
    assert result.converged
    assert result.value == pytest.approx(case.value, rel=1e-8, abs=1e-14)
    assert cases.value(case.pair, case.parameters, case.plan) == pytest.approx(case.value, rel=1e-10)
    np.testing.assert_allclose(result.plan, case.plan, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("rho", [(1.0, 1.0), (0.3, INF), (INF, INF)])
def test_isometric_copies_give_the_permutation(rho):
    pair, order = cases.copies(10, 0)
    permutation = np.zeros((10, 10))
    permutation[order, np.arange(10)] = pair.b
    result = ugw.solve(pair.x, pair.y, rho=rho, eps=0.0, solver=ugw.AlternateMin(tol=1e-8))
    assert result.converged
    np.testing.assert_allclose(result.plan, permutation, atol=1e-8)
    assert result.value == pytest.approx(0.0, abs=1e-11)


def test_isometric_copies_as_eps_falls():
    pair, order = cases.copies(8, 1)
    permutation = np.zeros((8, 8))
    permutation[order, np.arange(8)] = pair.b
    start, values = "flb", []
    for eps in (1e-1, 1e-2, 1e-3):
        parameters = Parameters(1.0, 0.5, eps)
        result = ugw.solve(pair.x, pair.y, rho=parameters.rho, eps=eps, init=start)
        # The permutation pays its entropy and nothing else: an upper bound that is linear in eps.
        ceiling = cases.value(pair, parameters, permutation)
        assert ceiling == pytest.approx(float(cases.terms(pair, parameters, permutation)["entropy"]), abs=1e-14)
        assert 0 < result.value <= ceiling + 1e-12
        values.append(result.value)
        start = result.plan
    assert (result.plan.argmax(0) == order).all()
    assert abs(result.plan - permutation).sum() < 5e-3
    assert values[2] < 0.15 * values[1] < 0.15 * values[0]


# --- facts at a stationary point ---


@pytest.mark.parametrize("mass", [(1.0, 1.0), (1.3, 0.6), (40.0, 0.03)])
@pytest.mark.parametrize("parameters", [*SOFT[:2], EXACT[0]], ids=str)
def test_mass_identity(parameters, mass):
    # F(p, p) = C − R m(p)² wherever the plan is stationary, and only there.
    pair = cases.clouds(6, 7, 1, mass)
    result = cases.solve(pair, parameters)
    constant = (
        parameters.rho1 * mass[0] ** 2 + parameters.rho2 * mass[1] ** 2 + parameters.eps * (mass[0] * mass[1]) ** 2
    )
    square = penalty_sum(parameters) * result.mass**2
    assert constant - result.value == pytest.approx(square, rel=1e-8)
    assert result.value == pytest.approx(cases.value(pair, parameters, result.plan), rel=1e-10)
    off = cases.random_plan(pair, 1, result.mass)
    assert cases.value(pair, parameters, off) > constant - square + 1e-2 * square


@pytest.mark.parametrize("parameters", [*SOFT, *HARD], ids=str)
def test_the_plan_is_stationary(parameters):
    pair = cases.clouds(6, 7, 2, (1.3, 0.6))
    result = cases.solve(pair, parameters)
    assert result.converged
    left = cases.gradient(pair, parameters, result.plan)
    if parameters.rho1 == INF:
        np.testing.assert_allclose(result.plan.sum(1), pair.a, rtol=1e-8)
        left = left - left.mean(1, keepdims=True)
    if parameters.rho2 == INF:
        np.testing.assert_allclose(result.plan.sum(0), pair.b, rtol=1e-8)
        left = left - left.mean(0, keepdims=True)
    assert abs(left).max() < 1e-6
    assert result.marginal_error < 1e-8


@pytest.mark.parametrize("parameters", [*SOFT, *HARD], ids=str)
def test_the_fields_of_the_result_agree_with_the_plan(parameters):
    pair = cases.clouds(6, 7, 2, (1.3, 0.6))
    result = cases.solve(pair, parameters)
    p, q = result.plan_pair
    assert result.value == pytest.approx(cases.value(pair, parameters, p), rel=1e-10)
    assert result.relaxed_value == pytest.approx(cases.value(pair, parameters, p, q), rel=1e-10)
    assert sum(result.terms.as_dict().values()) == pytest.approx(result.value, rel=1e-14)
    for name, term in cases.terms(pair, parameters, p).items():
        assert getattr(result.terms, name) == pytest.approx(float(term), rel=1e-9, abs=1e-14)
    assert result.history.objective[-1] == pytest.approx(result.value, rel=1e-12)
    assert result.history.mass[-1] == pytest.approx(result.mass, rel=1e-12)
    assert len(result.history) == result.n_iter


@pytest.mark.parametrize("parameters", [*SOFT, *HARD, Parameters(INF, INF, 0.05)], ids=str)
def test_the_objective_falls_at_every_step(parameters):
    pair = cases.clouds(8, 9, 3, (1.3, 1.3) if parameters.rho == (INF, INF) else (1.3, 0.6))
    result = cases.solve(pair, parameters, cases.random_plan(pair, 1), inner_iter=2000)
    objective = result.history.objective
    gain = objective[0] - objective[-1]
    assert gain > 1e-3
    # A plan that does not meet a hard marginal yet may lie below the value it will have when it does.
    assert np.diff(objective).max() <= (1e-10 if INF not in parameters.rho else 1e-4) * gain


# --- invariances ---


@pytest.mark.parametrize("parameters", EXACT[:1] + EXACT[2:], ids=str)
def test_two_homogeneous_without_entropy(parameters):
    # UGW(s·a, s·b) = s² UGW(a, b), the plan s times the plan.
    pair = cases.clouds(6, 7, 1, (1.3, 0.6))
    one = cases.solve(pair, parameters)
    many = cases.solve(pair.with_masses(1.3 * 50, 0.6 * 50), parameters)
    assert many.value == pytest.approx(2500 * one.value, rel=1e-9)
    np.testing.assert_allclose(many.plan, 50 * one.plan, rtol=1e-6, atol=1e-12)


def test_the_reference_of_the_entropy_scales_with_the_fourth_power():
    pair, parameters = cases.clouds(6, 7, 1, (1.3, 0.6)), Parameters(0.3, 2.0, 0.05)
    one, many = cases.solve(pair, parameters), cases.solve(pair.with_masses(1.3 * 50, 0.6 * 50), parameters)
    shapes = [r.plan / r.mass for r in (one, many)]
    np.testing.assert_allclose(shapes[1], shapes[0], rtol=1e-7)
    # log m grows by (rho1 + rho2 + 2 eps)/(rho1 + rho2 + eps)·log s.
    assert math.log(many.mass / one.mass) == pytest.approx(2.4 / 2.35 * math.log(50), rel=1e-9)
    assert abs(many.value / (2500 * one.value) - 1) > 0.1


@pytest.mark.parametrize("parameters", [*SOFT, *HARD, EXACT[0], EXACT[2]], ids=str)
def test_swapping_the_spaces_transposes_the_plan(parameters):
    pair = cases.clouds(6, 7, 2, (1.3, 0.6))
    start = cases.random_plan(pair, 2)
    one = cases.solve(pair, parameters, start)
    other = cases.solve(pair.transpose(), parameters.transpose(), start.T)
    assert other.value == pytest.approx(one.value, rel=1e-8)
    np.testing.assert_allclose(other.plan.T, one.plan, atol=1e-7)
    # The rhos are exchanged with the spaces: not exchanging them is another problem.
    wrong = cases.value(pair.transpose(), parameters, other.plan)
    assert abs(wrong - one.value) > 1e-3 or parameters.rho1 == parameters.rho2


@pytest.mark.parametrize("parameters", [SOFT[1], HARD[0], EXACT[0]], ids=str)
def test_permuting_points_permutes_the_plan(parameters):
    pair = cases.clouds(6, 7, 2, (1.3, 0.6))
    rows, cols = np.random.default_rng(0).permutation(6), np.random.default_rng(1).permutation(7)
    start = cases.random_plan(pair, 2)
    one = cases.solve(pair, parameters, start)
    mixed = cases.Pair(pair.dx[rows][:, rows], pair.a[rows], pair.dy[cols][:, cols], pair.b[cols])
    other = cases.solve(mixed, parameters, start[rows][:, cols])
    np.testing.assert_allclose(other.plan, one.plan[rows][:, cols], atol=1e-8)


@pytest.mark.parametrize("parameters", [SOFT[1], HARD[0], EXACT[0]], ids=str)
def test_zero_weight_points_do_not_change_the_result(parameters):
    pair = cases.clouds(6, 7, 2, (1.3, 0.6))
    more = cases.clouds(8, 8, 5)
    dx, dy = more.dx.copy(), more.dy.copy()
    dx[:6, :6], dy[:7, :7] = pair.dx, pair.dy
    padded = cases.Pair(dx, np.append(pair.a, [0, 0]), dy, np.append(pair.b, [0]))
    one, other = cases.solve(pair, parameters), cases.solve(padded, parameters)
    np.testing.assert_allclose(other.plan[:6, :7], one.plan, atol=1e-8)
    assert other.plan[6:].max() == other.plan[:, 7:].max() == 0.0
    assert other.value == pytest.approx(one.value, rel=1e-9)


# --- brute force ---


@pytest.mark.parametrize("parameters", [*SOFT[1:], *HARD, *EXACT], ids=str)
def test_brute_force_does_not_find_a_lower_objective(parameters):
    pair = cases.clouds(4, 5, 6, (1.3, 0.6))
    starts = [pair.product, *(cases.random_plan(pair, seed) for seed in range(3))]
    results = [cases.solve(pair, parameters, start) for start in starts]
    for result in results:  # no descent from where a run ended
        minimum, _ = cases.brute_force(pair, parameters, [result.plan])
        assert minimum >= result.value - 1e-8
        assert cases.value(pair, parameters, result.plan) == pytest.approx(result.value, rel=1e-10)
    best = min(result.value for result in results)
    assert best <= cases.brute_force(pair, parameters, starts)[0] + 1e-7


# --- rho → ∞ ---


@pytest.mark.parametrize("rho", [INF, 1e6])
def test_large_rho_is_entropic_gromov_wasserstein(rho):
    # POT's epsilon multiplies the entropy of p once, ours that of p⊗p: theirs is 2·eps.
    pair, eps = cases.clouds(9, 10, 0), 0.05
    theirs, log = ot.gromov.entropic_gromov_wasserstein(
        pair.dx, pair.dy, pair.a, pair.b, "square_loss", epsilon=2 * eps, G0=np.outer(pair.a, pair.b), max_iter=2000,
        tol=1e-10, log=True, numItermax=5000, stopThr=1e-12,
    )  # fmt: skip
    result = cases.solve(pair, Parameters(rho, rho, eps), inner_iter=1000)
    tolerance = 1e-7 if rho == INF else 1e-6
    np.testing.assert_allclose(result.plan, theirs, atol=tolerance)
    assert result.terms.distortion == pytest.approx(log["gw_dist"], abs=tolerance)


def test_marginals_approach_the_weights_as_rho_grows():
    pair, eps = cases.clouds(7, 8, 0), 0.05
    hard = cases.solve(pair, Parameters(INF, INF, eps))
    gaps = []
    for rho in (1e1, 1e3, 1e5):
        soft = cases.solve(pair, Parameters(rho, rho, eps), hard.plan)
        gaps.append(hard.value - soft.value)
        assert abs(soft.plan.sum(1) - pair.a).sum() < 1.0 / rho
    assert gaps[0] > gaps[1] > gaps[2] > 0
    assert gaps[2] < 1e-5
    one_hard = cases.solve(pair, Parameters(INF, 1e6, eps), hard.plan)
    assert one_hard.value == pytest.approx(hard.value, abs=1e-6)


@pytest.mark.parametrize("compiled", ["0", "1"])
@pytest.mark.parametrize("rho", [1e10, INF])
def test_a_tiny_eps_has_the_value_and_the_marginals_of_eps_zero(rho, compiled, monkeypatch):
    """Its rounding noise limits the change of the plan, but not how well the linear problems can be solved."""
    monkeypatch.setenv(native.SWITCH, compiled)
    pair, solver = cases.clouds(6, 7, 0), ugw.AlternateMin(tol=1e-9)
    exact, tiny = (ugw.solve(pair.x, pair.y, rho=rho, eps=eps, init="flb", solver=solver) for eps in (0.0, 1e-12))
    assert tiny.converged
    assert tiny.value == pytest.approx(exact.value, rel=1e-4)
    assert abs(tiny.plan.sum(1) - pair.a).sum() < 1e-8
    assert abs(tiny.plan.sum(0) - pair.b).sum() < 1e-8


# --- how it is run ---


def test_inexact_inner_loops_end_at_the_same_point():
    pair, parameters = cases.clouds(8, 9, 5), Parameters(0.3, 2.0, 0.05)
    tight = cases.solve(pair, parameters, inner_iter=2000)
    loose = cases.solve(pair, parameters, inner_iter=10, max_iter=3000)
    log = cases.solve(pair, parameters, method="log")
    default = ugw.solve(pair.x, pair.y, rho=parameters.rho, eps=parameters.eps, init="product")
    for other in (loose, log):
        assert other.value == pytest.approx(tight.value, rel=1e-10)
        np.testing.assert_allclose(other.plan, tight.plan, atol=1e-7)
    assert default.value == pytest.approx(tight.value, rel=1e-7)


def test_a_tolerance_below_that_of_the_inner_solver_is_reached():
    pair = cases.clouds(8, 9, 0, (1.3, 0.6))
    solver = ugw.AlternateMin(tol=1e-8, max_iter=500)  # the inner solver's own is 1e-7
    result = ugw.solve(pair.x, pair.y, rho=(0.3, 2.0), eps=0.01, init=cases.random_plan(pair, 0), solver=solver)
    assert result.converged
    assert result.tensors.residual.item() <= 1e-8


def test_annealing_ends_at_the_stated_eps():
    pair, parameters = cases.clouds(8, 9, 5), Parameters(0.5, 1.0, 0.01)
    result = cases.solve(pair, parameters, anneal=0.8)
    assert result.converged
    assert abs(cases.gradient(pair, parameters, result.plan)).max() < 1e-6  # at this eps, not at the first
    assert result.value == pytest.approx(cases.value(pair, parameters, result.plan), rel=1e-10)


@pytest.mark.parametrize("compiled", ["0", "1"])
@pytest.mark.parametrize("rho", [(0.5, 1.0), (0.5, INF)])
def test_annealing_ends_at_eps_zero(rho, compiled, monkeypatch):
    monkeypatch.setenv(native.SWITCH, compiled)
    pair, parameters = cases.clouds(8, 9, 5), Parameters(*rho, 0.0)
    annealed = cases.solve(pair, parameters, anneal=0.8)
    assert annealed.converged
    continued = ugw.solve(pair.x, pair.y, rho=rho, eps=0.0, init=annealed)  # without annealing it stays there
    assert annealed.value == pytest.approx(continued.value, rel=1e-6)


def test_an_annealed_conic_problem_converges():
    pair = cases.clouds(8, 9, 5)
    results = [ugw.solve_conic(pair.x, pair.y, solver=ugw.AlternateMin(anneal=anneal)) for anneal in (0.8, None)]
    assert all(result.converged for result in results)
    assert results[0].value == pytest.approx(results[1].value, rel=1e-4)


def test_of_two_alternating_plans_the_better_is_returned():
    # With matrices that are not conditionally negative the pair need not meet: F(p, q) < F(p, p), F(q, q).
    turns = []
    for seed in range(6):
        pair, parameters = cases.similarities(6, 6, seed), Parameters(1.0, 1.0, 0.02)
        with pytest.warns(ugw.ConvergenceWarning, match="alternate"):
            result = ugw.solve(pair.x, pair.y, rho=1.0, eps=parameters.eps, init=cases.random_plan(pair, seed))
        assert result.status == ugw.Status.ALTERNATING
        p, q = result.plan_pair
        assert cases.value(pair, parameters, p) == pytest.approx(result.value, rel=1e-9)
        assert cases.value(pair, parameters, p) < cases.value(pair, parameters, q)
        assert cases.value(pair, parameters, p, q) == pytest.approx(result.relaxed_value, rel=1e-9)
        assert result.gap > 0.1
        # Each is the other's step, and the potentials are those of `plan`.
        f, g = result.potentials
        cost = cases.full_cost(pair, parameters, q)
        expected = np.outer(pair.a, pair.b) * np.exp((f[:, None] + g[None] - cost) / (q.sum() * parameters.eps))
        np.testing.assert_allclose(expected, p, rtol=1e-6, atol=1e-12)
        turns.append(result.history.objective[-1] > result.history.objective[-2])
    assert True in turns  # both orders occur: the better plan is the last one, or the one before
    assert False in turns


def test_items_of_a_batch_converge_independently():
    pairs = [cases.clouds(6, 7, seed, (1.0, 0.5 + seed)) for seed in range(4)]
    rho1, rho2, eps = np.array([0.3, 1.0, INF, 2.0]), np.array([2.0, 1.0, 0.5, INF]), np.array([0.3, 0.05, 0.1, 0.0])
    x, y = (ugw.Space.stack([getattr(pair, side) for pair in pairs]) for side in "xy")
    solver = ugw.AlternateMin(tol=1e-7, inner=ugw.Sinkhorn(tol=1e-9, max_iter=500))
    whole = ugw.solve(x, y, rho=(rho1, rho2), eps=eps, init="product", solver=solver)
    for i, pair in enumerate(pairs):
        alone = ugw.solve(pair.x, pair.y, rho=(rho1[i], rho2[i]), eps=eps[i], init="product", solver=solver)
        assert whole[i].n_iter == alone.n_iter
        assert whole[i].value == pytest.approx(alone.value, rel=1e-10)
        np.testing.assert_allclose(whole[i].plan, alone.plan, atol=1e-9)
        np.testing.assert_allclose(whole[i].history.objective, alone.history.objective, rtol=1e-9)
    assert len({item.n_iter for item in whole}) > 1


def test_the_callback_stops_the_run():
    steps = []
    solver = ugw.AlternateMin(callback=lambda step: steps.append(step) or len(steps) == 3)
    pair = cases.clouds(6, 7, 0)
    with pytest.warns(ugw.ConvergenceWarning, match="callback"):
        result = ugw.solve(pair.x, pair.y, eps=0.05, init="product", solver=solver)
    assert result.status == ugw.Status.STOPPED
    assert result.n_iter == len(steps) == 3
    assert [float(step.objective[0]) for step in steps] == result.history.objective.tolist()


def test_the_iteration_limit_is_a_status():
    pair = cases.clouds(6, 7, 0)
    with pytest.warns(ugw.ConvergenceWarning, match="iteration limit"):
        result = ugw.solve(pair.x, pair.y, eps=0.05, init="product", solver=ugw.AlternateMin(max_iter=2))
    assert result.status == ugw.Status.MAX_ITER
    assert result.n_iter == 2
    with pytest.raises(ugw.NotConverged, match="iteration limit"):
        result.check()


def test_the_change_of_a_step_includes_that_of_the_mass():
    """If rho and eps are small compared with the costs, a small change of the unit plan changes the mass a lot."""
    x, y = (ugw.Space.from_points(np.random.default_rng(k).random((n, d))) for k, n, d in ((1, 6, 2), (51, 7, 3)))
    history = ugw.solve(x, y, rho=0.01, eps=0.005, init="product").history
    assert (np.abs(np.diff(np.log(history.mass))) <= history.change[1:] + 1e-12).all()


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
def test_the_history_has_the_relaxed_value_of_each_step():
    """F(p, q) of a plan and the one before it: that of the result which ends at that step."""
    pair, parameters = cases.clouds(6, 7, 0), SOFT[1]
    result = cases.solve(pair, parameters, max_iter=6)
    for steps in (2, 4, 6):
        p, q = cases.solve(pair, parameters, max_iter=steps).plan_pair
        assert result.history.relaxed[steps - 1] == pytest.approx(cases.value(pair, parameters, p, q), rel=1e-9)
    assert abs(result.history.relaxed - result.history.objective).max() > 1e-5


# --- eps = 0, by proximal steps ---


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("parameters", EXACT, ids=str)
def test_the_plan_without_entropy_is_stationary(parameters, seed):
    pair = cases.clouds(6, 6, seed, (1.3, 0.6))
    result = cases.solve(pair, parameters, cases.random_plan(pair, 2))
    plan = result.plan
    left = cases.gradient(pair, parameters, plan)
    if parameters.rho1 == INF:
        np.testing.assert_allclose(plan.sum(1), pair.a, rtol=1e-7)
        left = left - ((plan * left).sum(1) / plan.sum(1))[:, None]
    if parameters.rho2 == INF:
        np.testing.assert_allclose(plan.sum(0), pair.b, rtol=1e-7)
        left = left - ((plan * left).sum(0) / plan.sum(0))[None, :]
    # No multiplicative perturbation descends: where the plan is positive the gradient vanishes.
    assert abs(plan * left).sum() < 1e-7
    assert (plan > 1e-6).sum() <= 18 < plan.size  # a sparse plan, as it is without entropy
    # From a mixture with the product plan, which is positive everywhere, the same value is reached again.
    reference = 0.99 * plan / plan.sum() + 0.01 * pair.product / pair.product.sum()
    again = cases.solve(pair, parameters, reference)
    assert cases.value(pair, parameters, reference * result.mass) > result.value + 1e-4
    assert again.value == pytest.approx(result.value, abs=1e-6)


@pytest.mark.parametrize("parameters", EXACT[:3], ids=str)
def test_the_objective_falls(parameters):
    pair = cases.clouds(6, 7, 4, (1.3, 0.6))
    objective = cases.solve(pair, parameters, inner_iter=1000).history.objective
    assert objective[0] > objective[-1] + 1e-3
    # An early plan violates a hard marginal a little, so that its objective may be too low.
    slack = 1e-8 if parameters.rho1 < INF else 1e-3
    rises = np.diff(objective) > slack * (objective[0] - objective[-1])
    # A converged plan is mixed once with the product plan, to check that it converges again: one small rise.
    assert rises.sum() <= 1
    assert np.diff(objective).max() <= 1e-4 * (objective[0] - objective[-1])
    assert objective[-1] == pytest.approx(objective.min(), rel=1e-6)


@needs_pot("0.9.5")
@pytest.mark.parametrize("parameters", EXACT[:2], ids=str)
def test_not_worse_than_pot(parameters):
    # Different minima can be reached from one start, so the library's own choice of starts is what is compared.
    pair = cases.clouds(7, 8, 1, (1.3, 0.6))
    plan, _ = ot.gromov.fused_unbalanced_gromov_wasserstein(
        pair.dx, pair.dy, pair.a, pair.b, reg_marginals=parameters.rho, epsilon=0, divergence="kl", unbalanced_solver="mm",
        alpha=parameters.alpha, M=pair.cost if parameters.alpha else None, init_pi=pair.product, max_iter=200, tol=1e-9,
        max_iter_ot=500, tol_ot=1e-9,
    )  # fmt: skip
    fused = ugw.Fused(parameters.alpha, pair.cost) if parameters.alpha else None
    result = ugw.solve(pair.x, pair.y, rho=parameters.rho, eps=0.0, fused=fused)
    assert result.value <= cases.value(pair, parameters, plan) + 1e-6


def test_a_point_too_far_to_be_matched_has_no_mass():
    # Its row of the plan underflows to zeros; the rest is the problem without it, its weight a constant.
    pair = cases.clouds(7, 8, 0)
    points = np.random.default_rng(0).random((7, 2))
    points[0] += 60.0
    pair = replace(pair, dx=np.linalg.norm(points[:, None] - points[None], axis=2))
    parameters = Parameters(1.0, 1.0, 0.0)
    solver = ugw.AlternateMin(max_iter=300)
    result = ugw.solve(pair.x, pair.y, rho=parameters.rho, eps=0.0, init="product", solver=solver)
    assert result.converged
    assert result.plan[0].sum() == 0.0
    near = cases.Pair(pair.dx[1:, 1:], pair.a[1:], pair.dy, pair.b)
    rest = ugw.solve(near.x, near.y, rho=parameters.rho, eps=0.0, init=result.plan[1:])
    lost = pair.a.sum() ** 2 - near.a.sum() ** 2  # KL(p1⊗p1 | a⊗a) counts the mass of a⊗a
    assert result.value == pytest.approx(rest.value + lost, rel=1e-5)


def test_zeros_of_the_initial_plan_can_become_positive():
    # A proximal step keeps zeros, so the first reference plan must be positive everywhere.
    pair, parameters = cases.clouds(7, 8, 0), Parameters(0.5, 1.0, 0.0)
    start = cases.random_plan(pair, 1)
    start[2], start[:, 3], start[0, 0] = 0.0, 0.0, 0.0
    result = ugw.solve(pair.x, pair.y, rho=parameters.rho, eps=0.0, init=start)
    assert result.converged
    assert result.plan[2].sum() > 0.01
    assert result.plan[:, 3].sum() > 0.01
    reference = 0.99 * result.plan / result.mass + 0.01 * pair.product
    assert cases.solve(pair, parameters, reference).value >= result.value - 1e-6
