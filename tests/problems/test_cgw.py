"""The CGW problem: lift, value and steps against explicit sums, and its linear problem."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ugw
from oracles import cases
from oracles import conic as oracles
from ugw.problems.build import build_conic
from ugw.problems.config import PROBLEM_CONFIG
from ugw.problems.linear import LinearProblem, LinearSolution
from ugw.solvers.sinkhorn import Sinkhorn

RHOS = [(1.0, 1.0), (0.1, 0.1), (0.3, 1.2), (3.0, 0.2)]
MASSES = [(1.0, 1.0), (1.3, 0.6), (30.0, 0.02)]
CONES = list(oracles.LOSSES)


def conic_problem(pair, rho, cone="gaussian-hellinger"):
    """Return the conic problem of a pair."""
    return build_conic(pair.x, pair.y, rho=rho, cone=cone, eps=0.0)[0]


def state_of_plan(problem, plan):
    """Return the state of a plan (n, m) of any mass."""
    tensor = torch.as_tensor(plan)[None]
    return problem.state_of_plan(tensor / tensor.sum())


def lift_arrays(lift):
    """Return P, Q and w, (n, m) each, of the first item as arrays."""
    return lift.P[0].numpy(), lift.Q[0].numpy(), lift.w[0].numpy()


def plan_with_zeros(pair, seed, row=1, column=2):
    """Return a random plan (n, m) with an empty row, an empty column and a few other zeros."""
    plan = cases.random_plan(pair, seed, 0.8)
    plan[row], plan[:, column], plan[0, 0] = 0.0, 0.0, 0.0
    return plan


# --- the lift ---


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("rho", RHOS, ids=str)
@pytest.mark.parametrize("make_plan", [cases.random_plan, plan_with_zeros])
def test_the_lift_equals_its_formula(make_plan, rho, mass):
    pair = cases.clouds(5, 6, 3, mass)
    plan = make_plan(pair, 1)
    problem = conic_problem(pair, rho)
    for got, expected in zip(
        lift_arrays(problem.lift(state_of_plan(problem, plan))), oracles.lift(pair, plan, rho), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("make_plan", [cases.random_plan, plan_with_zeros])
@pytest.mark.parametrize("rho", RHOS[1:3], ids=str)
def test_the_lift_is_feasible(rho, make_plan):
    pair = cases.clouds(5, 6, 3, (1.3, 0.6))
    problem = conic_problem(pair, rho)
    P, Q, w = lift_arrays(problem.lift(state_of_plan(problem, make_plan(pair, 2))))
    np.testing.assert_allclose(P.sum(1), pair.a, rtol=1e-12)
    np.testing.assert_allclose(Q.sum(0), pair.b, rtol=1e-12)
    share = rho[0] / sum(rho)
    assert (w <= P**share * Q ** (1 - share) * (1 + 1e-12)).all()
    assert min(P.min(), Q.min(), w.min()) >= 0


@pytest.mark.parametrize("rho", RHOS, ids=str)
def test_the_lift_does_not_depend_on_the_mass_of_the_plan(rho):
    pair = cases.clouds(5, 6, 3, (1.3, 0.6))
    problem = conic_problem(pair, rho)
    plan = torch.as_tensor(plan_with_zeros(pair, 4))[None]
    for scale in (1e-9, 1e9):
        torch.testing.assert_close(problem.lift_plan(scale * plan), problem.lift_plan(plan), rtol=1e-12, atol=0.0)


# --- the value ---


@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize("rho", RHOS, ids=str)
@pytest.mark.parametrize("cone", CONES)
def test_the_value_equals_its_four_index_sum(cone, rho, mass):
    pair = cases.clouds(5, 6, 3, mass)
    problem, loss = conic_problem(pair, rho, cone), oracles.LOSSES[cone]
    p, q = plan_with_zeros(pair, 1), cases.random_plan(pair, 2)
    state, other = state_of_plan(problem, p), state_of_plan(problem, q)
    w, v = oracles.lift(pair, p, rho)[2], oracles.lift(pair, q, rho)[2]
    terms = problem.objective(state)
    assert terms.total.item() == pytest.approx(oracles.value(pair, w, rho, loss), rel=1e-11)
    assert terms.unmatched.item() == pytest.approx(rho[0] * mass[0] ** 2 + rho[1] * mass[1] ** 2, rel=1e-12)
    expected = oracles.value(pair, w, rho, loss, v)
    assert problem.objective(state, other).total.item() == pytest.approx(expected, rel=1e-11)
    assert problem.objective(other, state).total.item() == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("cone", CONES)
def test_the_value_is_the_functional_of_the_atoms(cone):
    # The paper's integral of the cone cost over pairs of atoms, against <w, G w>, for atoms with the apex too.
    pair, rho = cases.clouds(5, 6, 3, (1.3, 0.6)), 0.4
    problem = conic_problem(pair, rho, cone)
    plan = plan_with_zeros(pair, 1)
    P, Q, w = oracles.lift(pair, plan, (rho, rho))
    value = problem.objective(state_of_plan(problem, plan)).total.item()
    i, j = np.indices(w.shape)
    held, left_p, left_q = w > 0, (w == 0) & (P > 0), (w == 0) & (Q > 0)
    atoms = {
        "i": np.concatenate([i[held], i[left_p], i[left_q]]),
        "j": np.concatenate([j[held], j[left_p], j[left_q]]),
        "radius_x": np.concatenate([np.sqrt(P / np.where(held, w, 1))[held], np.ones(left_p.sum()), np.zeros(left_q.sum())]),
        "radius_y": np.concatenate([np.sqrt(Q / np.where(held, w, 1))[held], np.zeros(left_p.sum()), np.ones(left_q.sum())]),
        "mass": np.concatenate([w[held], P[left_p], Q[left_q]]),
    }  # fmt: skip
    assert oracles.atoms_value(pair, atoms, rho, oracles.LOSSES[cone]) == pytest.approx(value, rel=1e-11)
    # And it does not change when the atoms are dilated.
    v = np.random.default_rng(0).uniform(0.3, 3.0, len(atoms["mass"]))
    rescaled = atoms | {k: atoms[k] / v for k in ("radius_x", "radius_y")} | {"mass": atoms["mass"] * v**2}
    assert oracles.atoms_value(pair, rescaled, rho, oracles.LOSSES[cone]) == pytest.approx(value, rel=1e-11)


# --- against UGW, plan by plan ---


@st.composite
def plans(draw):
    """Draw a pair of spaces and a plan of any mass that may have empty rows and columns."""
    n, m = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    mass = tuple(draw(st.sampled_from([0.1, 0.7, 1.0, 2.5, 20.0])) for _ in range(2))
    pair = cases.clouds(n, m, draw(st.integers(0, 10_000)), mass)
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    sharp = draw(st.sampled_from([0.3, 2.0, 6.0]))
    plan = np.outer(pair.a, pair.b) * np.exp(sharp * rng.normal(size=(n, m)))
    plan *= rng.random((n, m)) < draw(st.sampled_from([1.0, 0.7, 0.4]))
    if not plan.sum():
        plan[0, 0] = 1.0
    plan *= draw(st.sampled_from([1e-3, 0.3, 1.0, 4.0])) * math.sqrt(mass[0] * mass[1]) / plan.sum()
    return pair, plan


@given(case=plans(), rho=st.sampled_from([(0.05, 0.05), (1.0, 1.0), (7.0, 7.0), (0.3, 2.0)]))
@pytest.mark.parametrize(
    "cone",
    [ugw.GaussianHellinger(), ugw.HellingerKantorovich(), ugw.HellingerKantorovich(0.7), lambda t: torch.log1p(t**2)],
    ids=["GH", "HK", "HK, cut", "log"],
)
def test_the_lift_costs_no_more_than_the_plan(case, rho, cone):
    pair, plan = case
    problem = conic_problem(pair, rho, cone)
    ours = problem.objective(state_of_plan(problem, plan)).total.item()
    theirs = ugw.objective(plan, pair.x, pair.y, rho=rho, loss=cone).total
    unit = rho[0] * pair.a.sum() ** 2 + rho[1] * pair.b.sum() ** 2
    assert ours <= theirs + 1e-12 * unit  # infinite where the plan pays an infinite loss
    assert -1e-12 * unit <= ours <= unit


def test_the_lift_costs_no_more_than_a_plan_of_finite_cost_although_the_loss_is_infinite_elsewhere():
    # A matching of two points with a cutoff that other plans exceed.
    d = np.array([[0.0, 1.0], [1.0, 0.0]])
    pair = cases.Pair(d, np.array([0.3, 0.7]), 1.2 * d, np.array([0.6, 0.5]))
    cone = ugw.HellingerKantorovich(0.5)
    problem = conic_problem(pair, 0.4, cone)
    for plan in (np.diag([0.3, 0.6]), np.array([[0.0, 0.2], [0.4, 0.0]]), np.diag([0.3, 0.0])):
        theirs = ugw.objective(plan, pair.x, pair.y, rho=0.4, loss=cone).total
        assert math.isfinite(theirs)
        assert problem.objective(state_of_plan(problem, plan)).total.item() < theirs
    assert math.isinf(ugw.objective(np.ones((2, 2)), pair.x, pair.y, rho=0.4, loss=cone).total)


@pytest.mark.parametrize("cone", CONES)
@pytest.mark.parametrize("rho", [0.2, 1.5])
@pytest.mark.parametrize("make_plan", [cases.random_plan, plan_with_zeros])
def test_ugw_is_a_sum_of_entropic_costs_of_densities(make_plan, rho, cone):
    # The paper's lemma: L(π) = ∫ L_λ(f⊗f, g⊗g) dπ dπ + φ(0) (|(μ⊗μ)^⊥| + |(ν⊗ν)^⊥|), φ = rho (x log x − x + 1).
    pair, loss = cases.clouds(5, 6, 3, (1.3, 0.6)), oracles.LOSSES[cone]
    plan = make_plan(pair, 1)
    p1, p2 = plan.sum(1), plan.sum(0)
    f = np.where(p1 > 0, pair.a / np.where(p1 > 0, p1, 1), 0.0)
    g = np.where(p2 > 0, pair.b / np.where(p2 > 0, p2, 1), 0.0)
    lam = loss(oracles.differences(pair))
    total = 0.0
    for i, j, k, h in np.ndindex(lam.shape):
        mass = plan[i, j] * plan[k, h]
        if mass > 0:
            r, s = f[i] * f[k], g[j] * g[h]
            entropies = sum(rho * (-math.log(x) - 1 + x) for x in (r, s))  # x φ(1/x)
            total += mass * (lam[i, j, k, h] + entropies)
    differences = [w.sum() ** 2 - w[marginal > 0].sum() ** 2 for w, marginal in ((pair.a, p1), (pair.b, p2))]
    total += rho * sum(differences)
    got = ugw.objective(plan, pair.x, pair.y, rho=rho, loss=cone).total
    assert got == pytest.approx(total, rel=1e-10)
    assert (sum(differences) > 0) == (make_plan is plan_with_zeros)


# --- the steps ---


@pytest.mark.parametrize("rho", RHOS, ids=str)
def test_an_unregularized_step_never_lowers_the_linear_value(rho):
    pair = cases.clouds(5, 6, 7, (1.3, 0.6))
    problem = conic_problem(pair, rho)
    k = torch.as_tensor(np.random.default_rng(0).random((1, 5, 6)))
    unit_plan, values = torch.as_tensor(cases.random_plan(pair, 1))[None], []
    for _ in range(60):
        values.append(float((k * problem.lift_plan(unit_plan)).sum()))
        unit_plan = problem.improve_plan(unit_plan, k)
        assert float(unit_plan.sum()) == pytest.approx(1.0, rel=1e-12)
    assert (np.diff(values) >= -1e-15).all()
    assert values[5] > values[0] + 1e-3


def test_one_unregularized_step_updates_both_sides():
    # P ∝ k² Q on rows from Q of the plan, then the lift: p ← k∘w(p) does both sides at once at equal rhos.
    pair = cases.clouds(5, 6, 7)
    problem = conic_problem(pair, 1.0)
    k = np.random.default_rng(0).random((5, 6))
    plan = cases.random_plan(pair, 1)
    P, Q, w = oracles.lift(pair, plan)
    got = problem.improve_plan(torch.as_tensor(plan)[None], torch.as_tensor(k)[None])[0].numpy()
    np.testing.assert_allclose(got, k * np.sqrt(P * Q) / (k * np.sqrt(P * Q)).sum(), rtol=1e-12)
    # Its lift has P ∝ k w on rows, and <k, w> rises as by an alternation.
    rows = k**2 * Q
    rows *= (pair.a / rows.sum(1))[:, None]
    alternated = (k * np.sqrt(rows * Q)).sum()
    assert (k * w).sum() <= min(alternated, (k * oracles.lift(pair, got)[2]).sum())


@pytest.mark.parametrize("rho", [(1.0, 1.0), (0.3, 1.2)], ids=str)
def test_a_step_never_lowers_the_bilinear_value(rho):
    pair = cases.clouds(5, 6, 11, (1.3, 0.6))
    problem = conic_problem(pair, rho)
    state = state_of_plan(problem, cases.random_plan(pair, 3))
    bar = state.overlap.item()
    for eps in (1.0, 0.3, 0.1, 0.03, 0.01, 0.01):
        linear = problem.linearize(state)
        solution = Sinkhorn(max_iter=20)(
            LinearProblem(linear.cost, linear.log_a, linear.log_b, linear.div_a, linear.div_b, torch.tensor([eps]))
        )
        new = problem.accept(state, solution)
        crossed = float((new.w * state.local_cost).sum())
        assert new.last_overlap.item() == pytest.approx(crossed, rel=1e-12)
        assert crossed >= bar - 1e-14
        assert new.best_overlap.item() >= max(state.best_overlap.item(), new.overlap.item())
        bar, state = max(crossed, new.overlap.item()), new
    assert problem.final_state(state).overlap.item() == pytest.approx(state.best_overlap.item(), rel=1e-12)


def with_last_column(values, last):
    """Return rows of values (B, k) with another last column (B,)."""
    return torch.cat([values[:, :-1], last[:, None]], dim=1)


def test_the_best_plan_seen_is_returned():
    pair = cases.clouds(5, 6, 11)
    problem = conic_problem(pair, 0.2)
    good, bad = state_of_plan(problem, plan_with_zeros(pair, 1)), state_of_plan(problem, np.outer(pair.a, pair.b))
    good, bad = (good, bad) if good.overlap > bad.overlap else (bad, good)
    end = problem.final_state(
        replace(bad, best_plan=good.unit_plan, best_overlaps=with_last_column(bad.best_overlaps, good.overlap))
    )
    torch.testing.assert_close(end.unit_plan, good.unit_plan)
    assert end.overlap.item() == pytest.approx(good.overlap.item(), rel=1e-12)
    assert problem.final_state(good) is good


def test_a_solution_with_a_lower_bilinear_value_is_replaced():
    # The replacement is an unregularized step from the last plan.
    pair = cases.clouds(5, 6, 11, (1.3, 0.6))
    problem = conic_problem(pair, 0.2)
    state = state_of_plan(problem, cases.random_plan(pair, 3))
    for _ in range(30):
        state = problem.state_of_plan(problem.improve_plan(state.unit_plan, state.local_cost))
    flat = torch.ones(1, 5, 6, dtype=torch.float64) / 30
    zero = torch.zeros(1, dtype=torch.float64)
    solution = LinearSolution(flat, zero, torch.zeros(1, 5), torch.zeros(1, 6), zero)
    assert (
        float((state.local_cost * problem.lift_plan(problem.improve_plan(flat, state.local_cost))).sum())
        < state.overlap.item() - 1e-3
    )
    new = problem.accept(state, solution)
    torch.testing.assert_close(new.unit_plan, problem.improve_plan(state.unit_plan, state.local_cost))
    assert new.last_overlap.item() >= state.overlap.item()


def test_the_best_plan_is_remembered_from_step_to_step():
    pair = cases.clouds(5, 6, 11)
    problem = conic_problem(pair, 0.2)
    state = state_of_plan(problem, cases.random_plan(pair, 3))
    solution = Sinkhorn()(replace(problem.linearize(state), eps=torch.tensor([0.1])))
    new = problem.accept(state, solution)
    assert new.overlap.item() > state.overlap.item()
    torch.testing.assert_close(new.best_plan, new.unit_plan)
    # Had there been a better one before, it would still be known.
    other = state_of_plan(problem, cases.random_plan(pair, 4)).unit_plan
    new = problem.accept(
        replace(state, best_plan=other, best_overlaps=with_last_column(state.best_overlaps, new.overlap + 1.0)),
        solution,
    )
    torch.testing.assert_close(new.best_plan, other)
    assert new.best_overlap.item() > new.overlap.item()


@pytest.mark.parametrize("rho", RHOS, ids=str)
def test_the_linear_problem_has_the_cost_of_k(rho):
    pair = cases.clouds(5, 6, 3, (1.3, 0.6))
    problem = conic_problem(pair, rho)
    state = state_of_plan(problem, cases.random_plan(pair, 1))
    linear = problem.linearize(state)
    k = np.einsum("ijkl,kl->ij", oracles.kernel(pair, rho), state.w[0].numpy())
    np.testing.assert_allclose(state.local_cost[0].numpy(), k, rtol=1e-12)
    differences = linear.cost[0].numpy() + 2 * np.log(k)
    np.testing.assert_allclose(differences, differences[0, 0], rtol=1e-10)
    total = sum(rho)
    assert (linear.div_a.rho.item(), linear.div_b.rho.item()) == pytest.approx((2 * rho[0] / total, 2 * rho[1] / total))


def test_taken_items_equal_the_items_of_the_batch():
    pairs = [cases.clouds(5, 6, seed, (1.0 + seed, 1.0)) for seed in range(4)]
    x, y = (ugw.Space.stack([getattr(p, side) for p in pairs]) for side in "xy")
    problem = build_conic(x, y, rho=np.array([0.1, 0.5, 1.0, 2.0]), cone="gaussian-hellinger", eps=0.0)[0]
    shapes = torch.stack([torch.as_tensor(cases.random_plan(p, 9)) for p in pairs])
    full = problem.objective(problem.state_of_plan(shapes)).total
    index = torch.tensor([3, 1, 1])
    some = problem.take(index)
    torch.testing.assert_close(
        some.objective(some.state_of_plan(shapes[index])).total, full[index], rtol=1e-13, atol=0.0
    )
    state = problem.state_of_plan(shapes).take(index)
    torch.testing.assert_close(state.plan, problem.state_of_plan(shapes).plan[index])


# --- the linear problem is unbalanced transport ---


def measures(n, m, seed, d=2):
    """Return the distances (n, m) between the points of two measures on one space, and their weights."""
    rng = np.random.default_rng(seed)
    x, y = rng.random((n, d)), rng.random((m, d)) + 0.3
    a, b = rng.random(n) + 0.2, 2.0 * (rng.random(m) + 0.2)
    return np.linalg.norm(x[:, None] - y, axis=2), a, b


@pytest.mark.parametrize("cone", CONES)
@pytest.mark.parametrize(("n", "m"), [(8, 9), (25, 30)])
def test_the_value_with_the_leading_kernel_terms_is_close(n, m, cone):
    """The kernel of the first size is summed term by term, that of the second has factors."""
    pair = cases.clouds(n, m, 5)
    problem = conic_problem(pair, (0.1, 0.1), cone)
    plan = torch.as_tensor(cases.random_plan(pair, 3))[None]
    exact, truncated = (p.objective(p.state_of_plan(plan)) for p in (problem, problem.truncate_kernel()))
    assert float(truncated.unmatched) == float(exact.unmatched)
    assert float(truncated.overlap) == pytest.approx(float(exact.overlap), rel=1e-2)


@pytest.mark.parametrize("loss", oracles.LOSSES.values(), ids=oracles.LOSSES)
@pytest.mark.parametrize("rho", [(0.2, 0.2), (1.0, 1.0), (0.3, 1.2)], ids=str)
def test_the_linear_step_is_unbalanced_transport(rho, loss):
    distances, a, b = measures(4, 5, 0)
    cost, total = loss(distances), sum(rho)
    direct, plan = oracles.unbalanced_transport(cost, a, b, rho)
    k = torch.as_tensor(np.exp(-cost / total))[None]
    problem = conic_problem(cases.Pair(np.zeros((4, 4)), a, np.zeros((5, 5)), b), rho)

    def value(unit_plan):
        """Return the value of the linear step at a plan."""
        unit = a.sum() ** (rho[0] / total) * b.sum() ** (rho[1] / total)
        return rho[0] * a.sum() + rho[1] * b.sum() - total * unit * float((k * problem.lift_plan(unit_plan)).sum())

    eps = torch.tensor([1e-3], dtype=torch.float64)
    linear = LinearProblem(-2 * k.log(), problem.log_a, problem.log_b, problem.div_a, problem.div_b, eps)
    unit_plan = Sinkhorn(tol=1e-10, max_iter=2000)(linear).unit_plan
    assert value(unit_plan) == pytest.approx(direct, rel=1e-3)
    assert value(unit_plan) >= direct - 1e-8
    for _ in range(500):
        unit_plan = problem.improve_plan(unit_plan, k)
    assert value(unit_plan) == pytest.approx(direct, rel=1e-6)
    if rho[0] == rho[1]:
        # The homogeneous form has the same minimum, from the same plan.
        assert oracles.homogeneous_transport(cost, a, b, rho[0], plan) == pytest.approx(direct, rel=1e-6)
        assert direct - 1e-8 <= oracles.homogeneous_transport(cost, a, b, rho[0]) <= 1.01 * direct


def state_with_overlaps(overlaps):
    """Return a state whose largest overlaps after its last steps are a share of the largest possible overlap."""
    pair = cases.clouds(5, 4, seed=3)
    problem = conic_problem(pair, 0.3)
    state = state_of_plan(problem, cases.random_plan(pair, 0))
    return replace(state, best_overlaps=state.max_overlap[:, None] * torch.as_tensor(overlaps)[None])


@pytest.mark.parametrize("rate", [0.95, 0.98])
def test_the_remaining_decrease_of_a_geometric_sequence_is_exact(rate):
    """The value 1 − overlap falls to 0.4 by a factor per step: what is left of the decrease, relative to the value."""
    count = 2 * PROBLEM_CONFIG.decrease_window + 1
    overlaps = 0.6 - 1e-3 * rate ** torch.arange(count, dtype=torch.float64)
    state = state_with_overlaps(overlaps)
    far = replace(state, unit_plan=torch.zeros_like(state.unit_plan))
    left = 1e-3 * rate ** (count - 1)
    assert float(state.change_since(far)) == pytest.approx(left / (0.4 + left), rel=1e-6)


def test_the_remaining_decrease_is_at_least_three_times_the_last_one():
    """A fast decrease often resumes after a slow window, which a rate near 0 would take for the end."""
    count = 2 * PROBLEM_CONFIG.decrease_window + 1
    overlaps = 0.6 - 1e-3 * 0.1 ** torch.arange(count, dtype=torch.float64)
    state = state_with_overlaps(overlaps)
    far = replace(state, unit_plan=torch.zeros_like(state.unit_plan))
    decrease = float(overlaps[-1] - overlaps[PROBLEM_CONFIG.decrease_window])
    assert float(state.change_since(far)) == pytest.approx(3.0 * decrease / (1.0 - float(overlaps[-1])), rel=1e-9)
    still = state_with_overlaps(torch.full((count,), 0.6, dtype=torch.float64))
    assert float(still.change_since(far)) == 0.0
