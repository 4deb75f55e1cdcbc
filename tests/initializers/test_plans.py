"""Initial plans: definitions, and independence of batches, padding, order and side."""

import math

import numpy as np
import ot
import pytest
import torch
from scipy.spatial.distance import cdist

import ugw
from oracles.spaces import space, ugw_problem, weighted_points
from ugw.geometry.space import Space
from ugw.initializers import plans as init
from ugw.initializers import select
from ugw.initializers.config import INITIALIZER_CONFIG

INF = math.inf
NAMES = ("product", "flb", "linear", "random", "coarse")
MADE = (*NAMES, "noisy", "matching")


def make_plans(name, problem):
    """The plans (B, S, n, m) of a named start."""
    if name in ("random", "noisy"):
        return (init.random_anchor_plans if name == "random" else init.noise_plans)(problem, 5)
    if name == "matching":
        return init.matching_anchor_plans(problem, 5)
    return select.SINGLE_PLANS[name](problem)[:, None]


# --- definitions of the initial plans ---


@pytest.mark.parametrize("name", MADE)
def test_every_start_is_a_plan_of_unit_mass(name):
    rho = np.tile([[1.0, 0.1, INF, 1.0, INF], [1.0, 3.0, 0.5, INF, INF]], 3)
    eps = np.repeat([0.1, 0.001, 0.0], 5)
    plans = make_plans(name, ugw_problem(space(mass=7.0), space(7, 2, 1, mass=7.0), rho=tuple(rho), eps=eps))
    assert plans.shape[2:] == (6, 7)
    assert torch.isfinite(plans).all()
    assert (plans >= 0).all()
    torch.testing.assert_close(plans.sum((2, 3)), torch.ones(plans.shape[:2], dtype=torch.float64))


def test_product():
    plan = ugw_problem(space(mass=2.0), space(7, 2, 1, mass=3.0)).product[0]
    np.testing.assert_allclose(plan, np.outer(weighted_points()[1], weighted_points(7, 2, 1)[1]), rtol=1e-12)


def transport_plan(cost, a, b, eps):
    """The plan of unit mass that POT's entropic transport with hard marginals gives."""
    return ot.sinkhorn(a, b, cost, eps, method="sinkhorn_log", numItermax=50_000, stopThr=1e-12)


def test_flb_transports_eccentricities():
    (p, a), (q, b) = weighted_points(6, 2, 0), weighted_points(7, 3, 1)
    cost = ((cdist(p, p) @ a)[:, None] - cdist(q, q) @ b) ** 2
    plan = init.first_lower_bound_plan(ugw_problem(space(6, 2, 0), space(7, 3, 1), rho=INF, eps=0.01))[0].numpy()
    assert np.abs(plan - transport_plan(cost, a, b, 0.01)).sum() < 2e-3


def test_linear_transports_the_points():
    (p, a), (q, b) = weighted_points(6, 2, 0), weighted_points(7, 2, 1)
    plan = init.linear_transport_plan(ugw_problem(space(6, 2, 0), space(7, 2, 1), rho=INF, eps=0.05))[0].numpy()
    assert np.abs(plan - transport_plan(cdist(p, q, "sqeuclidean"), a, b, 0.05)).sum() < 2e-3


def test_sharp_problems_have_blurred_starts():
    """For every smaller eps, the linear problem has eps = BLUR times its mean cost."""
    plans = [init.first_lower_bound_plan(ugw_problem(space(), space(7, 3, 1), eps=eps)) for eps in (0.0, 1e-9)]
    assert torch.equal(*plans)


def test_linear_puts_shifted_copies_on_each_other():
    points, weights = weighted_points(8, 2, 3)
    x, y = Space.from_points(points, weights=weights), Space.from_points(points[::-1] + 0.01, weights=weights[::-1])
    plan = init.linear_transport_plan(ugw_problem(x, y, rho=(5.0, 5.0), eps=1e-4))[0].numpy()
    assert plan.argmax(1).tolist() == list(range(8))[::-1]


def test_random_starts_differ_from_each_other_and_from_the_product():
    problem = ugw_problem(space(), space(7, 3, 1))
    plans = [*init.random_anchor_plans(problem, 4)[0], problem.product[0]]
    for i in range(5):
        for j in range(i):
            assert (plans[i] - plans[j]).abs().sum() > 1e-2


def test_anchors_that_match_have_no_mismatch():
    points = np.random.default_rng(0).random((8, 2))
    x, y = Space.from_points(points), Space.from_points(2.0 * points[::-1].copy())
    index = torch.tensor([[[0, 3, 5], [1, 1, 1]]])
    problem, scaled = ugw_problem(x, Space.from_points(points[::-1].copy())), ugw_problem(x, y)
    assert init.anchor_mismatch(problem, index, 7 - index).tolist() == [[0.0, math.inf]]
    other = torch.tensor([[[7, 4, 1], [6, 2, 2]]])
    for one, rows, cols in ((scaled, index, 7 - index), (problem, index, other)):
        assert init.anchor_mismatch(one, rows, cols)[0, 0] > 0


def test_mismatch_compares_distances_and_eccentricities():
    x, y = space(6, 2, 0), space(7, 3, 1)
    (p, a), (q, b) = weighted_points(6, 2, 0), weighted_points(7, 3, 1)
    dx, dy, rows, cols = cdist(p, p), cdist(q, q), [0, 4, 2], [6, 3, 1]
    pairs = [(k, other) for k in range(3) for other in range(k)]
    between = [(dx[rows[k], rows[other]], dy[cols[k], cols[other]]) for k, other in pairs]
    differences = sum((u - v) ** 2 for u, v in between) + sum(((dx @ a)[rows] - (dy @ b)[cols]) ** 2)
    expected = differences / sum(u**2 + v**2 for u, v in between)
    mismatch = init.anchor_mismatch(ugw_problem(x, y), torch.tensor([rows]), torch.tensor([cols]))
    step = INITIALIZER_CONFIG.anchor_mismatch_step
    assert mismatch.item() == pytest.approx(expected / step, abs=1)


def test_matching_anchor_plans_are_the_best_of_several_random_ones(monkeypatch):
    problem = ugw_problem(space(9, 2, 0), space(8, 3, 1))
    n_proposals = INITIALIZER_CONFIG.n_anchor_proposals
    proposals = init.random_anchor_plans(problem, 3 * n_proposals)[0].unflatten(0, (3, n_proposals))
    seen = []
    measure = init.anchor_mismatch
    monkeypatch.setattr(init, "anchor_mismatch", lambda *args: seen.append(measure(*args)) or seen[-1])
    plans = init.matching_anchor_plans(problem, 3)[0]
    best = seen[0][0].argmin(1)
    torch.testing.assert_close(plans, proposals[torch.arange(3), best])
    assert best.tolist() != [0, 0, 0]


def test_noise_is_of_unit_size_and_independent_of_the_weights():
    problem = ugw_problem(space(), space(7, 2, 1))
    noise = (init.noise_plans(problem, 400) / problem.product[:, None]).log()
    noise = noise - noise.mean((2, 3), keepdim=True)
    assert noise.std().item() == pytest.approx(1.0, abs=0.1)
    assert noise.mean(1).abs().max().item() < 0.3


def test_more_random_starts_begin_with_the_fewer():
    problem = ugw_problem(space(), space(7, 3, 1))
    assert torch.equal(init.random_anchor_plans(problem, 5)[:, :3], init.random_anchor_plans(problem, 3))
    assert not torch.equal(init.random_anchor_plans(problem, 3, seed=1), init.random_anchor_plans(problem, 3))


@pytest.mark.parametrize("name", MADE)
def test_no_mass_on_points_of_weight_0(name):
    (p, a), (q, b) = weighted_points(6, 2, 0), weighted_points(7, 2, 1)
    a[2], b[[0, 6]] = 0.0, 0.0
    plans = make_plans(name, ugw_problem(Space.from_points(p, weights=a), Space.from_points(q, weights=b)))
    assert (plans[:, :, 2] == 0).all()
    assert (plans[:, :, :, [0, 6]] == 0).all()


# --- what none depends on ---


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("eps", [0.05, 0.0])
def test_a_start_does_not_depend_on_its_place_in_a_batch_or_on_padding(name, eps):
    xs, ys = [space(n, 2, n) for n in (5, 2, 7)], [space(m, 2, 10 + m) for m in (4, 6, 2)]
    rho = (np.array([1.0, 0.3, INF]), np.array([1.0, 5.0, 0.2]))
    together = make_plans(name, ugw_problem(Space.stack(xs), Space.stack(ys), rho=rho, eps=eps))
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        alone = make_plans(name, ugw_problem(x, y, rho=(rho[0][i], rho[1][i]), eps=eps))[0]
        # A coarse start at eps = 0 is itself the end of iterations, as equal as their tolerance makes them.
        digits = 1e-6 if (name, eps) == ("coarse", 0.0) else 1e-9
        torch.testing.assert_close(together[i, :, : x.n, : y.n], alone, rtol=0, atol=digits)
        assert (together[i, :, x.n :] == 0).all()
        assert (together[i, :, :, y.n :] == 0).all()
    order = [2, 0, 1]
    permuted = ugw_problem(
        Space.stack([xs[i] for i in order]),
        Space.stack([ys[i] for i in order]),
        rho=(rho[0][order], rho[1][order]),
        eps=eps,
    )
    torch.testing.assert_close(make_plans(name, permuted), together[order], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MADE)
def test_permuting_the_points_permutes_the_start(name):
    (p, a), (q, b) = weighted_points(6, 2, 0), weighted_points(7, 2, 1)
    rows, cols = np.random.default_rng(0).permutation(6), np.random.default_rng(1).permutation(7)
    one = make_plans(name, ugw_problem(Space.from_points(p, weights=a), Space.from_points(q, weights=b)))
    x, y = Space.from_points(p[rows], weights=a[rows]), Space.from_points(q[cols], weights=b[cols])
    other = make_plans(name, ugw_problem(x, y))
    torch.testing.assert_close(other, one[:, :, rows][:, :, :, cols], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("rho", [1.0, INF])
def test_exchanging_the_spaces_transposes_the_start(name, rho):
    """Up to the tolerance of the linear solve, whose iterations begin with the rows."""
    x, y = space(6, 2, 0), space(7, 2, 1)
    one, other = make_plans(name, ugw_problem(x, y, rho=rho)), make_plans(name, ugw_problem(y, x, rho=rho))
    atol = 1e-12 if name in ("product", "random", "noisy") else 2e-3
    torch.testing.assert_close(other.mT, one, rtol=0, atol=atol)


@pytest.mark.parametrize("name", MADE)
def test_units_and_masses_change_no_start(name):
    (p, a), (q, b) = weighted_points(6, 2, 0), weighted_points(7, 2, 1)
    one = make_plans(
        name, ugw_problem(Space.from_points(p, weights=a), Space.from_points(q, weights=b), rho=0.5, eps=0.05)
    )
    x, y = Space.from_points(1e4 * p, weights=1e-3 * a), Space.from_points(1e4 * q, weights=20.0 * b)
    other = make_plans(name, ugw_problem(x, y, rho=0.5e8, eps=0.05e8))
    torch.testing.assert_close(other, one, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", MADE)
def test_starts_leave_the_graph_and_the_inputs_alone(name):
    points = torch.rand(6, 2, dtype=torch.float64, requires_grad=True)
    x = Space.from_points(points)
    with torch.no_grad():
        plans = make_plans(name, ugw_problem(x, space(7, 2, 1)))
    assert not plans.requires_grad


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize(
    ("x", "y"),
    [
        (space(1), space(5, 2, 1)),
        (space(1), space(1)),
        (Space.from_points(np.ones((4, 2))), space(5, 2, 1)),
        (Space.from_points(np.ones((4, 2))), Space.from_points(np.ones((3, 2)))),
    ],
    ids=["one point", "two points", "identical points", "both identical"],
)
def test_starts_of_degenerate_spaces(name, x, y):
    for eps in (0.0, 0.05):
        plans = make_plans(name, ugw_problem(x, y, eps=eps))
        assert torch.isfinite(plans).all()
        torch.testing.assert_close(plans.sum((2, 3)), torch.ones(plans.shape[:2], dtype=torch.float64))


def test_many_points_start_no_higher_than_from_the_product_plan():
    """A problem on which a start on a subsample of the points ended higher."""
    rng = np.random.default_rng(8)
    x, y = (Space.from_points(rng.random((620, d))).scaled("max") for d in (3, 2))
    auto, product = (ugw.solve(x, y, rho=1.0, eps=1e-2, init=init) for init in ("auto", "product"))
    assert auto.value <= product.value * (1 + 1e-4)


# --- solved from each ---


@pytest.mark.parametrize("name", [*NAMES, "auto", "best"])
def test_every_start_leads_to_a_stationary_plan(name):
    options = {
        "rho": (np.array([1.0, INF, INF, 0.5]), np.array([1.0, 0.5, INF, 0.5])),
        "eps": np.array([0.1, 0.1, 0.15, 0.0]),
    }
    r = ugw.solve(space(), space(7, 2, 1), init=name, **options)
    assert r.converged.all()
    again = ugw.solve(space(), space(7, 2, 1), init=r.plan, **options)
    np.testing.assert_allclose(again.value, r.value, atol=1e-5)
    assert (r.mass > 0).all()
    assert (r.mass <= 1.0 + 1e-6).all()
