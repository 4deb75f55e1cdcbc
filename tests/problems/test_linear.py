"""The linear problem: its solution satisfies the optimality conditions, and a proximal step is a linear problem too."""

import math

import numpy as np
import pytest
import torch

from oracles import cases
from oracles.linear import linear_problem, plan_with_mass
from ugw.kernels.sinkhorn import LogKernel, StabilizedKernel
from ugw.problems.linear import LinearProblem
from ugw.solvers.sinkhorn import Sinkhorn

INF = math.inf
TIGHT = Sinkhorn(tol=1e-12, max_iter=5000)
SIDES = [(0.5, 2.0), (INF, 2.0), (0.5, INF), (INF, INF)]


def make_problem(rho=(0.5, 2.0), eps=0.1, seed=0, mass=(1.0, 1.0)):
    """Return a pair of clouds and one linear problem with a random cost of both signs.

    The masses differ unless both sides are hard.
    """
    pair = cases.clouds(5, 6, seed, mass)
    cost = np.random.default_rng(seed).normal(size=(5, 6))
    return pair, linear_problem(cost, pair.a, pair.b, rho, eps)


def objective(problem, p):
    """Return <cost, p> + rho1 KL(p1 | a) + rho2 KL(p2 | b) + eps KL(p | a⊗b), hard sides without a term."""
    a, b = problem.log_a[0].exp(), problem.log_b[0].exp()
    rho1, rho2, eps = float(problem.div_a.rho), float(problem.div_b.rho), float(problem.eps)
    value = (problem.cost[0] * p).sum() + eps * cases.kl(p, cases.outer(a, b))
    if rho1 < INF:
        value = value + rho1 * cases.kl(p.sum(1), a)
    return value + rho2 * cases.kl(p.sum(0), b) if rho2 < INF else value


def gradient(problem, p):
    """Return the gradient (n, m) of the objective at a plan."""
    p = p.clone().requires_grad_(True)
    objective(problem, p).backward()
    return p.grad


@pytest.mark.parametrize("rho", SIDES)
@pytest.mark.parametrize("eps", [1.0, 0.02])
def test_the_solution_is_stationary(rho, eps):
    # The gradient in p is 0, but for the multipliers of hard sides: a function of i, of j, or a sum of both.
    mass = (1.3, 1.3) if rho == (INF, INF) else (1.3, 0.6)
    pair, problem = make_problem(rho, eps, mass=mass)
    p = torch.tensor(plan_with_mass(TIGHT(problem)))
    left = gradient(problem, p)
    if rho[0] == INF:
        torch.testing.assert_close(p.sum(1), torch.tensor(pair.a), rtol=1e-10, atol=0.0)
        left = left - left.mean(1, keepdim=True)
    if rho[1] == INF:
        torch.testing.assert_close(p.sum(0), torch.tensor(pair.b), rtol=1e-10, atol=0.0)
        left = left - left.mean(0, keepdim=True)
    assert left.abs().max() < 1e-9


@pytest.mark.parametrize("rho", SIDES)
def test_the_solution_beats_its_neighbors(rho):
    mass = (1.3, 1.3) if rho == (INF, INF) else (1.3, 0.6)
    _, problem = make_problem(rho, 0.5, mass=mass)
    p = torch.tensor(plan_with_mass(TIGHT(problem)))
    best = float(objective(problem, p))
    rng = np.random.default_rng(1)
    for size in (1e-2, 0.3):
        for _ in range(20):
            d = torch.tensor(rng.uniform(-1, 1, size=p.shape)) * p * size
            # The perturbation keeps the hard marginals; if both are hard it moves mass around a rectangle.
            if rho == (INF, INF):
                i, k = rng.choice(5, 2, replace=False)
                j, h = rng.choice(6, 2, replace=False)
                d = torch.zeros_like(p)
                d[i, j] = d[k, h] = size * min(p[i, j], p[k, h], p[i, h], p[k, j])
                d[i, h] = d[k, j] = -d[i, j]
            elif rho[0] == INF:
                d = d - p * (d.sum(1) / p.sum(1))[:, None]
            elif rho[1] == INF:
                d = d - p * (d.sum(0) / p.sum(0))[None, :]
            other = p + d
            assert other.min() > 0
            # Convexity: the entropy alone raises the value by eps·Σ p φ(d/p), φ(t) ≥ t²/2(1 + t/3).
            assert float(objective(problem, other)) >= best + 0.2 * float((d**2 / p).sum()) - 1e-13


def test_potentials_and_marginals():
    # p = a⊗b exp((f⊕g − cost)/eps); p1 = a e^{−f/rho1}, p2 = b e^{−g/rho2}.
    pair, problem = make_problem((0.5, 2.0), 0.1, mass=(1.3, 0.6))
    end = TIGHT(problem)
    p, f, g = torch.tensor(plan_with_mass(end)), end.f[0], end.g[0]
    ab = torch.tensor(np.outer(pair.a, pair.b))
    torch.testing.assert_close(p, ab * ((f[:, None] + g[None] - problem.cost[0]) / 0.1).exp(), rtol=1e-12, atol=0.0)
    torch.testing.assert_close(p.sum(1), torch.tensor(pair.a) * (-f / 0.5).exp(), rtol=1e-10, atol=0.0)
    torch.testing.assert_close(p.sum(0), torch.tensor(pair.b) * (-g / 2.0).exp(), rtol=1e-10, atol=0.0)


# --- the proximal step ---


def proximal_objective(problem, p, last, strength):
    """Return the objective of a plan plus strength · KL(p | last)."""
    return objective(problem, p) + strength * cases.kl(p, last)


@pytest.mark.parametrize("rho", SIDES[:2])
@pytest.mark.parametrize("strength", [0.03, 2.0])
def test_the_proximal_term_is_added_to_the_objective(strength, rho):
    pair, problem = make_problem(rho, 0.1, mass=(1.3, 0.6))
    last = torch.tensor(cases.random_plan(pair, 3))
    proximal = problem.add_proximal_term(last[None], torch.tensor([strength], dtype=torch.float64))
    p = torch.tensor(plan_with_mass(TIGHT(proximal))).requires_grad_(True)
    proximal_objective(problem, p, last, strength).backward()
    left = p.grad if rho[0] < INF else p.grad - p.grad.mean(1, keepdim=True)
    assert left.abs().max() < 1e-9
    plain = gradient(problem, p.detach())
    assert (plain if rho[0] < INF else plain - plain.mean(1, keepdim=True)).abs().max() > 1e-2
    # Both objectives agree on all plans, up to a constant.
    one, other = p.detach(), torch.tensor(cases.random_plan(pair, 4, 1.1))
    gap = float(objective(proximal, one) - objective(proximal, other))
    expected = float(
        proximal_objective(problem, one, last, strength) - proximal_objective(problem, other, last, strength)
    )
    assert gap == pytest.approx(expected, rel=1e-11)


def test_a_proximal_term_keeps_zeros_and_forbidden_pairs():
    pair, problem = make_problem()
    last = torch.tensor(cases.random_plan(pair, 3))
    last[1, 2] = 0.0
    problem.cost[0, 3, 4] = INF
    log_a = problem.log_a.clone()
    log_a[0, 0] = -INF
    last[0] = 0.0
    proximal = LinearProblem(problem.cost, log_a, problem.log_b, problem.div_a, problem.div_b, problem.eps)
    end = TIGHT(proximal.add_proximal_term(last[None], torch.ones(1, dtype=torch.float64)))
    zero = end.unit_plan[0] == 0
    assert zero[1, 2]
    assert zero[3, 4]
    assert zero[0].all()
    assert int(zero.sum()) == 2 + 6
    assert torch.isfinite(end.unit_plan).all()
    assert torch.isfinite(end.log_mass).all()


def test_a_proximal_term_of_strength_zero_changes_nothing():
    pair, problem = make_problem()
    two = problem.take(torch.tensor([0, 0]))
    last = torch.tensor(cases.random_plan(pair, 3)).expand(2, -1, -1).clone()
    last[:, 1, 2] = 0.0
    proximal = two.add_proximal_term(last, torch.tensor([0.0, 0.5], dtype=torch.float64))
    assert torch.equal(proximal.cost[0], problem.cost[0])
    assert proximal.eps.tolist() == pytest.approx([0.1, 0.6])
    assert (proximal.cost[1] != problem.cost[0]).all()
    assert proximal.cost[1, 1, 2] == INF


def test_items_of_a_batch_are_taken_field_by_field():
    _, problem = make_problem()
    three = problem.take(torch.tensor([0, 0, 0]))
    assert three.batch == 3
    assert three.cost.shape == (3, 5, 6)
    assert three.div_a.rho.shape == three.eps.shape == (3,)
    solution = TIGHT(three)
    part = solution.take(torch.tensor([2]))
    assert part.unit_plan.shape == (1, 5, 6)
    assert part.f.shape == (1, 5)
    assert torch.equal(part.g, solution.g[2:])


def test_a_potential_selects_the_stabilized_kernel():
    _, problem = make_problem()
    assert type(problem.kernel(None)) is LogKernel
    assert type(problem.kernel(torch.zeros_like(problem.log_b))) is StabilizedKernel
