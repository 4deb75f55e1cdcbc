"""Sinkhorn: fixed point, log-domain and stabilized iterations, limits, and the effect of the translation."""

import math
from dataclasses import replace

import numpy as np
import ot
import pytest
import scipy.optimize
import torch
from scipy.special import logsumexp

from oracles import cases
from oracles.linear import linear_problem, plan_with_mass
from ugw.kernels import sinkhorn as torch_ops
from ugw.measures.divergences import KL
from ugw.problems.linear import LinearProblem
from ugw.solvers import sinkhorn
from ugw.solvers.sinkhorn import Sinkhorn

INF = math.inf
SIDES = [(0.5, 2.0), (INF, 2.0), (0.5, INF), (INF, INF)]


def arrays(n=6, m=8, seed=0, mass=(1.0, 1.0)):
    """Return a random cost (n, m) and weights (n,), (m,) of the given masses."""
    pair = cases.clouds(n, m, seed, mass)
    cost = np.random.default_rng(seed + 100).random((n, m))
    return cost, pair.a, pair.b


def stack(problems):
    """Items of one size as one batch."""
    return LinearProblem(
        *(torch.cat([getattr(p, k) for p in problems]) for k in ("cost", "log_a", "log_b")),
        *(KL(torch.cat([getattr(p, k).rho for p in problems])) for k in ("div_a", "div_b")),
        torch.cat([p.eps for p in problems]),
    )


def solve(*args, method="stabilized", tol=1e-12, max_iter=5000):
    """Solve the linear problem with the arguments of `linear_problem`."""
    return Sinkhorn(tol=tol, max_iter=max_iter, method=method)(linear_problem(*args))


def masses(rho):
    """Return masses of both sides that differ unless both sides are hard."""
    return (1.3, 1.3) if rho == (INF, INF) else (1.3, 0.6)


# --- the fixed point ---


@pytest.mark.parametrize("method", ["stabilized", "log"])
@pytest.mark.parametrize("rho", SIDES)
@pytest.mark.parametrize("eps", [0.5, 0.01])
def test_fixed_point_equations(rho, eps, method):
    cost, a, b = arrays(mass=masses(rho))
    end = solve(cost, a, b, rho, eps, method=method)
    f, g = end.f[0].numpy(), end.g[0].numpy()
    damping = [1.0 if r == INF else r / (r + eps) for r in rho]
    again_f = -damping[0] * eps * logsumexp(np.log(b) + (g - cost) / eps, axis=1)
    again_g = -damping[1] * eps * logsumexp((np.log(a) + f / eps)[:, None] - cost / eps, axis=0)
    np.testing.assert_allclose(f, again_f, atol=1e-11)
    np.testing.assert_allclose(g, again_g, atol=1e-11)
    plan = np.outer(a, b) * np.exp((f[:, None] + g - cost) / eps)
    np.testing.assert_allclose(plan_with_mass(end), plan, rtol=1e-11)
    assert end.unit_plan.sum().item() == pytest.approx(1.0, rel=1e-14)
    assert end.residual.item() <= 1e-12


@pytest.mark.parametrize("rho", SIDES)
@pytest.mark.parametrize("eps", [0.5, 0.01, 3e-3])
def test_log_and_stabilized_iterations_agree(rho, eps):
    cost, a, b = arrays(mass=masses(rho))
    one, other = (solve(cost, a, b, rho, eps, method=m, max_iter=20_000) for m in ("stabilized", "log"))
    for field in ("unit_plan", "log_mass", "f", "g"):
        torch.testing.assert_close(getattr(one, field), getattr(other, field), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rho", [(INF, 2.0), (0.5, INF), (INF, INF)])
def test_hard_marginals_are_satisfied(rho):
    cost, a, b = arrays(mass=masses(rho))
    plan = plan_with_mass(solve(cost, a, b, rho, 0.02))
    if rho[0] == INF:
        np.testing.assert_allclose(plan.sum(1), a, rtol=1e-11)
    else:
        assert abs(plan.sum(1) - a).sum() > 1e-3
    if rho[1] == INF:
        np.testing.assert_allclose(plan.sum(0), b, rtol=1e-11)
    else:
        assert abs(plan.sum(0) - b).sum() > 1e-3


# --- peers and limits ---


@pytest.mark.parametrize(("rho", "eps"), [((0.5, 2.0), 0.05), ((3.0, 0.2), 0.5), ((1.0, 1.0), 0.01)])
def test_against_pot(rho, eps):
    # With reg_type="kl" and no c POT's reference is a⊗b, as ours; asked for by name to be sure.
    cost, a, b = arrays(mass=(1.3, 0.6))
    theirs = ot.unbalanced.sinkhorn_unbalanced(
        a, b, cost, eps, rho, method="sinkhorn", reg_type="kl", c=np.outer(a, b), numItermax=100_000, stopThr=1e-15
    )
    np.testing.assert_allclose(plan_with_mass(solve(cost, a, b, rho, eps)), theirs, rtol=1e-8, atol=1e-12)


def test_the_limit_of_hard_sides_is_a_linear_program():
    cost, a, b = arrays(n=5, m=6)
    equalities = np.vstack([np.kron(np.eye(5), np.ones(6)), np.kron(np.ones(5), np.eye(6))])
    exact = scipy.optimize.linprog(cost.ravel(), A_eq=equalities, b_eq=np.concatenate([a, b])).fun
    assert exact == pytest.approx(ot.emd2(a, b, cost), abs=1e-9)
    gaps = []
    for eps in (1e-2, 1e-3):
        plan = plan_with_mass(solve(cost, a, b, (INF, INF), eps, tol=1e-10))
        np.testing.assert_allclose(plan.sum(1), a, atol=1e-8)
        gaps.append((plan * cost).sum() - exact)
        # Entropic transport is within eps·KL(vertex | a⊗b) of the program, and that is at most eps·log(n + m).
        assert -1e-8 <= gaps[-1] <= eps * math.log(11)
    assert gaps[1] < gaps[0]


def test_the_limit_of_soft_sides():
    # eps → 0 with soft sides: POT's majorize–minimize solves that problem.
    cost, a, b = arrays(n=5, m=6, mass=(1.3, 0.6))
    rho = (0.5, 2.0)

    def value(plan):
        """Return the objective of a plan (n, m) without entropy."""
        return float((plan * cost).sum() + rho[0] * cases.kl(plan.sum(1), a) + rho[1] * cases.kl(plan.sum(0), b))

    exact = value(ot.unbalanced.mm_unbalanced(a, b, cost, rho, div="kl", numItermax=100_000, stopThr=1e-13))
    gap = value(plan_with_mass(solve(cost, a, b, rho, 1e-3, tol=1e-11))) - exact
    assert -1e-9 <= gap <= 1e-3 * math.log(11) * 1.3


# --- forbidden pairs, zero weights, numbers at the edge ---


@pytest.mark.parametrize("method", ["stabilized", "log"])
@pytest.mark.parametrize("rho", SIDES[:3])
def test_forbidden_pairs(rho, method):
    cost, a, b = arrays(mass=masses(rho))
    cost[1, 2] = cost[4, 5] = INF
    end = solve(cost, a, b, rho, 0.1, method=method)
    assert end.unit_plan[0, 1, 2] == end.unit_plan[0, 4, 5] == 0
    assert int((end.unit_plan == 0).sum()) == 2
    finite = np.where(np.isinf(cost), 60.0, cost)  # e^−600: as good as forbidden
    np.testing.assert_allclose(
        plan_with_mass(end), plan_with_mass(solve(finite, a, b, rho, 0.1)), rtol=1e-9, atol=1e-100
    )


@pytest.mark.parametrize("method", ["stabilized", "log"])
def test_a_point_whose_pairs_are_all_forbidden_is_left_out(method):
    cost, a, b = arrays()
    cost[2] = cost[:, 3] = INF
    end = solve(cost, a, b, (0.5, 2.0), 0.1, method=method)
    rows, cols = np.arange(6) != 2, np.arange(8) != 3
    plan = plan_with_mass(end)
    assert (plan[~rows] == 0).all()
    assert (plan[:, ~cols] == 0).all()
    # The rest is the problem on the rest: a finite rho on lost weight is a constant.
    rest = plan_with_mass(solve(cost[rows][:, cols], a[rows], b[cols], (0.5, 2.0), 0.1))
    assert end.residual.item() <= 1e-12
    np.testing.assert_allclose(plan[rows][:, cols], rest, rtol=1e-9)
    for field in ("unit_plan", "log_mass", "f", "g", "residual"):
        assert torch.isfinite(getattr(end, field)).all()


@pytest.mark.parametrize("method", ["stabilized", "log"])
@pytest.mark.parametrize("rho", SIDES)
def test_zero_weights_do_not_change_the_plan(rho, method):
    cost, a, b = arrays(mass=masses(rho))
    a[3] = b[0] = 0.0
    b *= a.sum() / b.sum() if rho == (INF, INF) else 1.0
    rows, cols = a > 0, b > 0
    end = solve(cost, a, b, rho, 0.1, method=method)
    part = solve(cost[rows][:, cols], a[rows], b[cols], rho, 0.1, method=method)
    plan = plan_with_mass(end)
    np.testing.assert_allclose(plan[rows][:, cols], plan_with_mass(part), rtol=1e-11)
    np.testing.assert_allclose(end.f[0].numpy()[rows], part.f[0].numpy(), atol=1e-11)
    assert plan[~rows].max() == plan[:, ~cols].max() == 0.0
    assert torch.isfinite(end.f).all()
    assert torch.isfinite(end.g).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_far_points_fall_back_to_log_sum_exp(dtype, monkeypatch):
    # Point 0 of each space is `depth` rhos from everything, the other's point 0 included, and column 0 sees only
    # still more distant points: with a stored kernel its sum underflows, for some depths only in part.
    cost, a, b = arrays()
    depths = np.linspace(0.9, 2.2, 27) * -math.log(torch.finfo(dtype).tiny)
    problems = []
    for depth in depths:
        far = cost.copy()
        far[0], far[1:, 0] = depth, 3 * depth
        problems.append(linear_problem(far, a, b, (1.0, 1.0), 0.1))
    batch = stack(problems)
    batch = replace(batch, **{k: getattr(batch, k).to(dtype) for k in ("cost", "log_a", "log_b")})
    calls = []
    exact = torch_ops.LogKernel.col_logsumexp
    monkeypatch.setattr(torch_ops.LogKernel, "col_logsumexp", lambda self, phi: calls.append(1) or exact(self, phi))
    rtol, tol = (1e-10, 1e-13) if dtype == torch.float64 else (1e-4, 1e-6)
    one = Sinkhorn(tol=tol, max_iter=3000)(batch)
    assert calls, "the stored kernel was expected to give up"
    other = Sinkhorn(tol=tol, max_iter=3000, method="log")(batch)
    assert (other.residual <= tol).all()
    for field in ("unit_plan", "log_mass", "f", "g"):
        assert torch.isfinite(getattr(one, field)).all()
    assert (one.residual <= tol).all()
    torch.testing.assert_close(one.unit_plan, other.unit_plan, rtol=rtol, atol=rtol * 1e-3)
    torch.testing.assert_close(one.log_mass, other.log_mass, rtol=rtol, atol=rtol)
    # The residual weighs by mass: where there is none it says nothing of a potential.
    torch.testing.assert_close(one.f[:, 1:], other.f[:, 1:], rtol=rtol, atol=rtol)
    torch.testing.assert_close(one.g[:, 1:], other.g[:, 1:], rtol=rtol, atol=rtol)


@pytest.mark.parametrize("method", ["stabilized", "log"])
def test_extreme_scales_stay_finite(method):
    cost, a, b = arrays()
    for size in (1e-8, 1.0, 1e8):
        for rho in SIDES:
            share = 1e-6 * size
            end = solve(cost * size, a, b, tuple(r * size for r in rho), share, method=method, max_iter=20)
            for field in ("unit_plan", "log_mass", "f", "g", "residual"):
                assert torch.isfinite(getattr(end, field)).all(), (size, rho, field)
            assert end.unit_plan.sum().item() == pytest.approx(1.0, rel=1e-9)


# --- the translation ---


def plain_iterations(cost, a, b, rho, eps, goal):
    """Steps that Sinkhorn without the translation needs to bring f within 1e-6·eps of the goal."""
    g = np.zeros(len(b))
    l1, l2 = (1.0 if r == INF else r / (r + eps) for r in rho)
    kernel = np.outer(a, b) * np.exp(-cost / eps)  # fit for these eps
    for step in range(1, 100_000):
        f = -l1 * eps * np.log(kernel @ np.exp(g / eps) / a)
        g = -l2 * eps * np.log(np.exp(f / eps) @ kernel / b)
        if abs(f - goal).max() <= 1e-6 * eps:
            return step
    return step


@pytest.mark.parametrize(
    ("rho", "eps", "times"),
    [((10.0, 10.0), 0.05, 15), ((1000.0, 1000.0), 0.5, 500), ((INF, 1000.0), 0.5, 500), ((300.0, INF), 0.5, 200)],
)
def test_translation_reduces_the_number_of_iterations(rho, eps, times):
    cost, a, b = arrays(n=8, m=10, mass=(1.0, 1.4))
    goal = solve(cost, a, b, rho, eps).f[0].numpy()
    needed = plain_iterations(cost, a, b, rho, eps, goal)
    steps = needed // times
    assert steps >= 5
    ours = solve(cost, a, b, rho, eps, max_iter=steps).f[0].numpy()
    assert abs(ours - goal).max() <= 1e-6 * eps


# --- starts, tolerances, batches ---


def test_a_warm_start_converges_at_once():
    args = *arrays(), (0.5, 2.0), 0.05
    end = solve(*args)
    again = Sinkhorn(tol=1e-10, max_iter=1)(linear_problem(*args), (end.f, end.g))
    assert again.residual.item() <= 1e-12
    torch.testing.assert_close(again.unit_plan, end.unit_plan, rtol=1e-10, atol=0.0)
    cold = Sinkhorn(tol=1e-10, max_iter=1)(linear_problem(*args))
    assert cold.residual.item() > 1e-4


def test_the_residual_is_above_tol_at_the_iteration_limit():
    args = *arrays(), (INF, INF), 0.01
    short = solve(*args, tol=1e-9, max_iter=5)
    assert short.residual.item() > 1e-9
    goal = solve(*args)
    assert abs(plan_with_mass(short) - plan_with_mass(goal)).sum() > 1e-3
    # A tolerance that is met bounds what is left, in mass.
    near = solve(*args, tol=1e-6)
    assert near.residual.item() <= 1e-6
    assert abs(plan_with_mass(near) - plan_with_mass(goal)).sum() < 1e-3


def items():
    """Return four linear problems with different rho and eps."""
    problems = []
    for seed, (rho, eps) in enumerate([((0.5, 2.0), 0.5), ((INF, 1.0), 0.05), ((1.0, INF), 0.02), ((3.0, 3.0), 0.1)]):
        problems.append(linear_problem(*arrays(seed=seed, mass=(1.0, 0.5 + seed)), rho, eps))
    return problems


@pytest.mark.parametrize("method", ["stabilized", "log"])
def test_items_of_a_batch_equal_single_solves(method):
    solver = Sinkhorn(tol=1e-9, max_iter=2000, method=method)
    whole = solver(stack(items()))
    for i, item in enumerate(items()):
        alone = solver(item)
        for field in ("unit_plan", "log_mass", "f", "g", "residual"):
            torch.testing.assert_close(
                getattr(whole, field)[i], getattr(alone, field)[0], rtol=1e-9, atol=1e-12, msg=f"{i} {field}"
            )


def test_a_tolerance_per_item():
    loose = torch.tensor([1e-2, 1e-12, 1e-2, 1e-12], dtype=torch.float64)
    end = Sinkhorn(tol=1e-7, max_iter=20_000)(stack(items()), None, loose)
    assert (end.residual <= loose).all()
    assert (end.residual[[0, 2]] > 1e-9).all()


def test_an_extrapolation_that_increases_the_residual_is_undone(monkeypatch):
    """After a bad extrapolation the next iterations start from the potential before it."""
    rounds, iterations = [], sinkhorn.sinkhorn_iterations

    def iterations_with_bad_extrapolation(first_gamma, *arguments):
        """Return the iterate of a round, of the first one with a random potential as extrapolation."""
        gamma, next_gamma, residual = iterations(first_gamma, *arguments)
        rounds.append((first_gamma, gamma, residual))
        return gamma, next_gamma if len(rounds) > 1 else 10.0 * torch.randn_like(gamma), residual

    monkeypatch.setattr(sinkhorn, "sinkhorn_iterations", iterations_with_bad_extrapolation)
    torch.manual_seed(0)
    solve(*arrays(), (0.5, 2.0), 0.01, max_iter=15)
    residuals = [residual for _, _, residual in rounds]
    assert residuals[1] > residuals[0]
    assert torch.equal(rounds[2][0], rounds[0][1])
