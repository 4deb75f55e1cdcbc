"""Gradients of plans against central differences of plans that are solved again, and against unrolled steps."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import ugw
from oracles.gradients import INF, SHARP, Data, check_gradient, rand
from oracles.thresholds import changed_thresholds
from ugw.learning.config import LEARNING_CONFIG


def probe(r: ugw.Result) -> torch.Tensor:
    """A number that depends on every entry of the plan, and not on the value."""
    return (r.plan * (rand(*r.plan.shape, seed=7) - 0.5)).sum() + r.mass.sum() ** 2


@pytest.mark.parametrize("fused", [None, ugw.Fused(0.6)], ids=["plain", "fused"])
@pytest.mark.parametrize("rho", [(0.7, 2.0), (INF, 1.0), (0.5, INF), (INF, INF)], ids=str)
def test_a_plan_has_the_gradient_of_the_solved_plan(rho, fused):
    balanced = rho == (INF, INF)
    data = Data.make(equal=balanced)
    options = {"rho": rho, "eps": 0.05, "fused": fused, "solver": SHARP}
    plan = ugw.solve(*data.spaces("euclidean", "sqeuclidean"), **options).plan

    def value(d: Data) -> torch.Tensor:
        return probe(ugw.solve_differentiable(*d.spaces("euclidean", "sqeuclidean"), **options, init=plan))

    check_gradient(value, data, "x y a b" + (" fx fy" if fused else ""), balanced=balanced, rtol=1e-5)


def test_the_implicit_gradient_equals_that_of_unrolled_steps():
    """Outer steps with many Sinkhorn iterations under autograd, from the formulas of docs/mathematics.md."""
    data, rho, eps = Data.make(), (0.7, 2.0), 0.2
    leaf = data.x.clone().requires_grad_()
    x, y = ugw.Space.from_points(leaf, weights=data.a), ugw.Space.from_points(data.y, weights=data.b)
    r = ugw.solve_differentiable(x, y, rho=rho, eps=eps, init="product", solver=SHARP)
    (implicitly,) = torch.autograd.grad(probe(r), leaf, retain_graph=True)

    dx, dy, a, b = x.metric.dense(), y.metric.dense(), data.a, data.b
    q = torch.outer(a, b) / (a.sum() * b.sum()).sqrt()
    g = torch.zeros_like(b)
    for _ in range(60):
        m, q1, q2 = q.sum(), q.sum(1), q.sum(0)
        cost = (dx**2 @ q1)[:, None] + (dy**2 @ q2)[None, :] - 2 * dx @ q @ dy
        cost = cost + rho[0] * (q1 * (q1 / a).log()).sum() + rho[1] * (q2 * (q2 / b).log()).sum()
        cost = cost + eps * (q * (q / torch.outer(a, b)).log()).sum()
        e, damping = m * eps, [rho_k / (rho_k + eps) for rho_k in rho]
        for _ in range(20):
            f = -damping[0] * e * torch.logsumexp(b.log() + (g - cost) / e, dim=1)
            g = -damping[1] * e * torch.logsumexp((a.log() + f / e)[:, None] - cost / e, dim=0)
        p = torch.outer(a, b) * ((f[:, None] + g - cost) / e).exp()
        q = (m / p.sum()).sqrt() * p
    torch.testing.assert_close(q, r.plan, rtol=1e-6, atol=1e-9)
    (unrolled,) = torch.autograd.grad((q * (rand(4, 5, seed=7) - 0.5)).sum() + q.sum() ** 2, leaf)
    torch.testing.assert_close(implicitly, unrolled, rtol=1e-4, atol=1e-8)


def test_the_value_and_its_terms_have_their_gradients():
    data = Data.make()
    options = {"rho": (0.7, 2.0), "eps": 0.05, "fused": ugw.Fused(0.6), "solver": SHARP}
    plan = ugw.solve(*data.spaces(), **options).plan
    for name in ("distortion", "linear", "marginal_a", "marginal_b", "entropy"):
        check_gradient(
            lambda d, name=name: getattr(ugw.solve_differentiable(*d.spaces(), **options, init=plan).terms, name),
            data,
            "x a fy",
            rtol=1e-5,
        )
    leaf = data.x.clone().requires_grad_()
    x, y = Data(leaf, data.y, data.a, data.b, data.fx, data.fy).spaces()
    implicitly = torch.autograd.grad(
        ugw.solve_differentiable(x, y, **options, init=plan).value, leaf, retain_graph=True
    )
    envelope = torch.autograd.grad(ugw.ugw_loss(x, y, **options, init=plan), leaf)
    torch.testing.assert_close(implicitly, envelope, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("parameter", ["rho", "eps", "alpha", "cost"])
def test_spaces_of_arrays_with_a_parameter_that_requires_gradients(parameter):
    x, y = (ugw.Space.from_points(rand(n, 2, seed=n).numpy()) for n in (5, 4))
    leaf = rand(5, 4, seed=0) if parameter == "cost" else torch.tensor(0.3, dtype=torch.float64)
    options = {"rho": 0.5, "eps": 0.1, "alpha": 0.4, "cost": rand(5, 4, seed=1), parameter: leaf.requires_grad_()}
    fused = ugw.Fused(options.pop("alpha"), options.pop("cost"))
    r = ugw.solve_differentiable(x, y, fused=fused, solver=SHARP, **options)
    assert all(value.requires_grad for value in (r.plan, r.value, r.mass, r.terms.entropy, r.marginals[0]))
    (gradient,) = torch.autograd.grad(r.value, leaf)
    (expected,) = torch.autograd.grad(ugw.ugw_loss(x, y, fused=fused, solver=SHARP, **options), leaf)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-8)
    plain = ugw.solve_differentiable(x, y, rho=0.5, eps=0.1)
    assert isinstance(plain.plan, np.ndarray)  # nothing requires gradients


def test_items_of_a_batch_and_other_losses():
    data = Data.make(batch=(3,))
    options = {
        "rho": (torch.tensor([0.7, INF, 0.5]), torch.tensor([2.0, 1.0, INF])),
        "eps": torch.tensor([0.05, 0.1, 0.2]),
        "loss": lambda t: t.square() / (1 + t),
        "solver": SHARP,
    }
    plan = ugw.solve(*data.spaces(), **options).plan
    check_gradient(
        lambda d: probe(ugw.solve_differentiable(*d.spaces(), **options, init=plan)), data, "x y a b", rtol=1e-5
    )


def test_items_of_a_ragged_batch_have_the_gradients_of_single_solves():
    clouds = [rand(n, 2, seed=n).requires_grad_() for n in (3, 5)]
    others = [ugw.Space.from_points(rand(n, 3, seed=20 + n)) for n in (6, 4)]
    spaces = [ugw.Space.from_points(cloud) for cloud in clouds]
    together = ugw.solve_differentiable(ugw.Space.stack(spaces), ugw.Space.stack(others), eps=0.1, solver=SHARP)
    alone = [ugw.solve_differentiable(x, y, eps=0.1, solver=SHARP) for x, y in zip(spaces, others, strict=True)]
    gradients = [torch.autograd.grad(sum(probe(r) for r in rs), clouds, retain_graph=True) for rs in (together, alone)]
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-6, atol=1e-9)


def test_coincident_points_have_finite_gradients():
    for points in (torch.zeros(4, 2), torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]])):
        leaf = points.double().requires_grad_()
        probe(ugw.solve_differentiable(leaf, rand(3, 2, seed=1), eps=0.1)).backward()
        ugw.debiased(leaf, rand(3, 2, seed=1), eps=0.1).value.backward()
        assert bool(leaf.grad.isfinite().all())


def test_rho_eps_and_alpha_have_gradients():
    x, y = Data.make().spaces()
    plan = ugw.solve(x, y, rho=(0.7, 2.0), eps=0.05, fused=ugw.Fused(0.6), solver=SHARP).plan

    def value(rho1, rho2, eps, alpha):
        parameters = {"rho": (rho1, rho2), "eps": eps, "fused": ugw.Fused(alpha)}
        return probe(ugw.solve_differentiable(x, y, **parameters, init=plan, solver=SHARP))

    parameters = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.7, 2.0, 0.05, 0.6)]
    assert torch.autograd.gradcheck(value, parameters, eps=1e-5, atol=1e-6, rtol=1e-5)


def test_points_without_weight_do_not_change_gradients():
    data = Data.make()
    data.a[1] = 0.0
    leaf, weights = data.x.clone().requires_grad_(), data.a.clone().requires_grad_()
    y = ugw.Space.from_points(data.y)
    r = ugw.solve_differentiable(ugw.Space.from_points(leaf, weights=weights), y, eps=0.05, solver=SHARP)
    point, weight = torch.autograd.grad(probe(r), (leaf, weights))
    assert not bool(point[1].any())
    assert bool(weight.isfinite().all())


def test_problems_without_plan_gradients_are_refused():
    x, y = rand(4, 2, seed=0).requires_grad_(), rand(3, 2, seed=1)
    with pytest.raises(ugw.InputError, match="eps > 0"):
        ugw.solve_differentiable(x, y, eps=0.0)
    streaming = ugw.AlternateMin(inner=ugw.Sinkhorn(method="streaming"))
    pair = (ugw.Space.from_points(p, metric="sqeuclidean") for p in (x, y))
    with pytest.raises(ugw.InputError, match="not stored has no implicit gradient"):
        ugw.solve_differentiable(*pair, solver=streaming)
    plain = ugw.solve_differentiable(x.detach(), y)
    assert not plain.plan.requires_grad
    r = ugw.solve_differentiable(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "converged" in r.summary() + repr(r)
    with pytest.raises(ugw.InputError, match="differentiated once"):
        torch.autograd.grad(r.mass, x, create_graph=True)


@changed_thresholds(LEARNING_CONFIG, max_cg_products=2)
def test_an_inexact_linear_solve_gives_a_warning():
    x = rand(6, 2, seed=0).requires_grad_()
    r = ugw.solve_differentiable(x, rand(5, 2, seed=1), eps=0.05)
    with pytest.warns(ugw.ConvergenceWarning, match="residual of"):
        r.plan[0, 0].backward()


def test_a_result_with_gradients_is_saved(tmp_path):
    x = rand(4, 2, seed=0).requires_grad_()
    r = ugw.solve_differentiable(x, rand(3, 2, seed=1))
    r.save(tmp_path / "r.npz")
    torch.testing.assert_close(ugw.Result.load(tmp_path / "r.npz").plan, r.plan.detach())


def test_single_precision_gradients_are_those_of_double():
    x, y = rand(6, 2, seed=0), rand(5, 2, seed=1)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        leaf = x.to(dtype).requires_grad_()
        r = ugw.solve_differentiable(leaf, y.to(dtype), eps=0.1)
        r.plan[0, 0].backward()
        assert r.plan.dtype == leaf.grad.dtype == dtype
        gradients.append(leaf.grad.double())
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-2, atol=1e-4)
