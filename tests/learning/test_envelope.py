"""Gradients of solved values against central differences of values that are solved again."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import ugw
from oracles.gradients import CONIC, INF, SHARP, STREAMING, Data, check_gradient, rand
from oracles.thresholds import changed_thresholds
from ugw.kernels.config import KERNEL_CONFIG

RHOS = [(0.7, 2.0), (1.0, 1.0), (INF, 1.0), (0.5, INF), (INF, INF)]


@pytest.mark.parametrize(
    ("eps", "fused"), [(0.05, None), (0.05, ugw.Fused(0.6)), (0.0, ugw.Fused(0.6))], ids=["plain", "fused", "sharp"]
)
@pytest.mark.parametrize("rho", RHOS, ids=str)
def test_every_input_has_the_gradient_of_the_solved_value(rho, eps, fused):
    balanced = rho == (INF, INF)
    data = Data.make(equal=balanced)
    x, y = data.spaces("euclidean", "sqeuclidean")
    plan = ugw.solve(x, y, rho=rho, eps=eps, fused=fused, solver=SHARP).plan

    def value(d: Data) -> torch.Tensor:
        pair = d.spaces("euclidean", "sqeuclidean")
        return ugw.ugw_loss(*pair, rho=rho, eps=eps, fused=fused, init=plan, solver=SHARP)

    check_gradient(value, data, "x y a b" + (" fx fy" if fused else ""), balanced=balanced)


def test_distance_matrices_and_costs_have_gradients():
    data = Data.make()
    x, y = (replace(space, feature_tensor=None) for space in data.spaces())
    upper = torch.triu_indices(4, 4, 1)
    cost = rand(4, 5, seed=6)
    plan = ugw.solve(x, y, rho=(0.7, 2.0), eps=0.05, fused=ugw.Fused(0.6, cost), solver=SHARP).plan

    def value(entries: torch.Tensor, cost: torch.Tensor) -> torch.Tensor:
        half = torch.zeros(4, 4, dtype=torch.float64).index_put(tuple(upper), entries)
        space = ugw.Space.from_distances(half + half.mT, weights=data.a)
        return ugw.ugw_loss(space, y, rho=(0.7, 2.0), eps=0.05, fused=ugw.Fused(0.6, cost), init=plan, solver=SHARP)

    entries = x.metric.dense()[tuple(upper)].clone()
    inputs = entries.requires_grad_(), cost.requires_grad_()
    assert torch.autograd.gradcheck(value, inputs, eps=1e-5, atol=1e-7, rtol=1e-6)


def test_rho_eps_and_alpha_have_gradients():
    x, y = Data.make().spaces()
    plan = ugw.solve(x, y, rho=(0.7, 2.0), eps=0.05, fused=ugw.Fused(0.6), solver=SHARP).plan

    def value(rho1, rho2, eps, alpha):
        return ugw.ugw_loss(x, y, rho=(rho1, rho2), eps=eps, fused=ugw.Fused(alpha), init=plan, solver=SHARP)

    parameters = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.7, 2.0, 0.05, 0.6)]
    assert torch.autograd.gradcheck(value, parameters, eps=1e-5, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("loss", [torch.Tensor.abs, lambda t: t.square() / (1 + t)], ids=["abs", "smooth"])
def test_other_losses_have_gradients(loss):
    data, options = Data.make(), {"rho": (0.7, 2.0), "eps": 0.1, "loss": loss, "solver": SHARP}
    plan = ugw.solve(*data.spaces(), **options).plan
    check_gradient(lambda d: ugw.ugw_loss(*d.spaces(), **options, init=plan), data, "x y a b")


def test_factorized_losses_have_gradients():
    x, y = rand(21, 2, seed=0), rand(20, 2, seed=1)
    leaf, direction = x.clone().requires_grad_(), rand(21, 2, seed=2) - 0.5
    smooth = ugw.Loss(lambda t: t.square() / (1 + t.square()), tol=1e-10)
    plan = ugw.solve(*map(ugw.Space.from_points, (x, y)), rho=1.0, eps=0.2, loss=smooth, solver=SHARP).plan

    def value(points: torch.Tensor) -> torch.Tensor:
        return ugw.ugw_loss(points, y, rho=1.0, eps=0.2, loss=smooth, init=plan, solver=SHARP)

    value(leaf).backward()
    with torch.no_grad():
        expected = (value(x + 1e-4 * direction) - value(x - 1e-4 * direction)) / 2e-4
    assert torch.allclose((leaf.grad * direction).sum(), expected, rtol=1e-5)


@pytest.mark.parametrize("fused", [None, ugw.Fused(0.05)], ids=["plain", "fused"])
@pytest.mark.parametrize("rho", [ugw.TV(0.02), (ugw.TV(0.01), ugw.TV(0.04)), ugw.Mass(1.5)], ids=str)
def test_partial_values_have_gradients(rho, fused):
    data = Data.make()
    options = {"rho": rho, "fused": fused, "solver": ugw.FrankWolfe(tol=1e-13)}
    result = ugw.solve(*data.spaces(), **options)
    assert 0.5 < result.mass < min(data.a.sum(), data.b.sum()) - 0.01  # both sides have unmatched mass
    names = "x y a b" + (" fx fy" if fused else "")
    check_gradient(lambda d: ugw.ugw_loss(*d.spaces(), **options, init=result.plan), data, names, step=1e-6)


def test_rho_of_tv_and_given_masses_have_gradients():
    x, y = Data.make().spaces()
    solver = ugw.FrankWolfe(tol=1e-13)
    starts = [ugw.solve(x, y, rho=rho, fused=ugw.Fused(0.05)).plan for rho in (ugw.TV(0.05), ugw.Mass(1.5))]

    def value(rho1, rho2, mass, alpha):
        pair = zip(((ugw.TV(rho1), ugw.TV(rho2)), ugw.Mass(mass)), starts, strict=True)
        return [ugw.ugw_loss(x, y, rho=r, fused=ugw.Fused(alpha), init=p, solver=solver) for r, p in pair]

    parameters = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.05, 0.05, 1.5, 0.05)]
    for k in (0, 1):
        assert torch.autograd.gradcheck(lambda *p, k=k: value(*p)[k], parameters, eps=1e-6, atol=1e-7, rtol=1e-6)


def test_partial_values_of_a_batch_and_of_scaled_masses():
    """Each item has its own gradient, and V is 2-homogeneous in the weights: <dV/da, a> + <dV/db, b> = 2 V."""
    data = Data.make(batch=(3,))
    rho = ugw.TV(torch.tensor([0.02, 0.05, 0.1]))
    a, b, points = (t.clone().requires_grad_() for t in (data.a, data.b, data.x))
    value = ugw.ugw_loss(*replace(data, a=a, b=b, x=points).spaces(), rho=rho)
    of_a, of_b, of_x = torch.autograd.grad(value.sum(), (a, b, points))
    torch.testing.assert_close((of_a * a).sum(1) + (of_b * b).sum(1), 2 * value, rtol=1e-8, atol=0.0)
    for i, penalty in enumerate((0.02, 0.05, 0.1)):
        x, y = (ugw.Space.from_points(p[i], weights=w[i]) for p, w in ((points, data.a), (data.y, data.b)))
        (alone,) = torch.autograd.grad(ugw.ugw_loss(x, y, rho=ugw.TV(penalty)), points)
        torch.testing.assert_close(alone[i], of_x[i], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("rho", "cone"),
    [(0.5, "gaussian-hellinger"), ((0.3, 0.9), "gaussian-hellinger"), (0.6, "hellinger-kantorovich")],
    ids=str,
)
def test_the_conic_value_has_gradients(rho, cone):
    data = Data.make()
    plan = ugw.solve_conic(*data.spaces("euclidean", "sqeuclidean"), rho=rho, cone=cone, solver=CONIC).plan
    loss = ugw.CGWLoss(rho=rho, cone=cone, init=plan, solver=CONIC)
    check_gradient(lambda d: loss(*d.spaces("euclidean", "sqeuclidean")), data, "x y a b", step=1e-4)


def test_items_of_a_batch_have_their_own_gradients():
    data = Data.make(batch=(3,))
    rho = (torch.tensor([0.7, INF, 0.5]), torch.tensor([2.0, 1.0, INF]))
    options = {"rho": rho, "eps": torch.tensor([0.05, 0.1, 0.0]), "solver": SHARP}
    plan = ugw.solve(*data.spaces(), **options).plan
    check_gradient(lambda d: ugw.ugw_loss(*d.spaces(), **options, init=plan), data, "x y a b")
    leaf = data.x.clone().requires_grad_()
    value = ugw.ugw_loss(*replace(data, x=leaf).spaces(), **options, init=plan)
    assert value.shape == (3,)
    value[1].backward()
    assert bool((leaf.grad[1] != 0).any())
    assert not bool(leaf.grad[[0, 2]].any())


def test_items_of_a_ragged_batch_have_the_gradients_of_single_solves():
    clouds = [rand(n, 2, seed=n).requires_grad_() for n in (3, 5, 4)]
    weights = [(rand(n, seed=20 + n) + 0.2).requires_grad_() for n in (3, 5, 4)]
    spaces = [ugw.Space.from_points(c, weights=w) for c, w in zip(clouds, weights, strict=True)]
    other = ugw.Space.from_points(rand(4, 3, seed=9))
    together = ugw.ugw_loss(ugw.Space.stack(spaces), other, rho=0.6, eps=0.05, solver=SHARP)
    alone = [ugw.ugw_loss(space, other, rho=0.6, eps=0.05, solver=SHARP) for space in spaces]
    torch.testing.assert_close(together, torch.stack(alone))
    leaves = (*clouds, *weights)
    at_once = torch.autograd.grad(together.sum(), leaves, retain_graph=True)
    torch.testing.assert_close(at_once, torch.autograd.grad(sum(alone), leaves), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("rho", [(0.7, 2.0), (INF, 1.0)], ids=str)
@pytest.mark.parametrize("eps", [0.05, 0.0])
def test_a_streamed_plan_has_the_gradients_of_a_stored_one(rho, eps):
    data = Data.make()
    data.a[1] = 0.0
    leaves = [t.clone().requires_grad_() for t in (data.x, data.y, data.a, data.b, data.fx, data.fy)]
    gradients, tolerance = [], (1e-4 if eps == 0 else 1e-7)
    start = ugw.solve(*data.spaces("sqeuclidean"), rho=rho, eps=0.05, fused=ugw.Fused(0.3)).plan
    for solver in (SHARP, STREAMING):
        solver = solver if eps else replace(solver, tol=1e-7)
        x, y = Data(*leaves).spaces("sqeuclidean")
        value = ugw.ugw_loss(x, y, rho=rho, eps=eps, fused=ugw.Fused(0.3), init=start, solver=solver)
        gradients.append(torch.autograd.grad(value, leaves))
    torch.testing.assert_close(gradients[1], gradients[0], rtol=tolerance, atol=tolerance)


@changed_thresholds(KERNEL_CONFIG, streaming_block_cpu=2**10)
def test_the_backward_pass_of_a_streamed_plan_stores_no_plan():
    n, m = 300, 200
    x, y = rand(n, 3, seed=0).requires_grad_(), rand(m, 3, seed=1).requires_grad_()
    pair = (ugw.Space.from_points(p, metric="sqeuclidean") for p in (x, y))
    value = ugw.ugw_loss(*pair, rho=0.5, eps=0.05, solver=replace(STREAMING, tol=1e-6))
    sizes: list[int] = []

    class Monitor(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            sizes.extend(t.numel() for t in (out if isinstance(out, tuple) else (out,)) if isinstance(t, torch.Tensor))
            return out

    with Monitor():
        value.backward()
    assert sizes
    assert max(sizes) < n * m / 4


def test_coincident_points_have_finite_gradients():
    x = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    ugw.ugw_loss(x, rand(4, 2, seed=0)).backward()
    assert bool(x.grad.isfinite().all())
    assert bool(x.grad.any())


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_without_matched_mass_the_gradient_is_that_of_the_penalty(dtype):
    """A linear cost that outweighs any plan: V = C = rho1 m(a)² + rho2 m(b)² + eps m(a)² m(b)²."""
    data = Data.make()
    data = Data(*(getattr(data, name).to(dtype) for name in ("x", "y", "a", "b", "fx", "fy")))
    data.fy += 50.0
    data.a.requires_grad_()
    rho = torch.tensor(0.7, dtype=dtype, requires_grad=True)
    ugw.ugw_loss(*data.spaces(), rho=(rho, 2.0), eps=0.05, fused=ugw.Fused(9.0)).backward()
    mass_a, mass_b = data.a.detach().sum().item(), data.b.sum().item()
    assert rho.grad.item() == pytest.approx(mass_a**2, rel=1e-6)
    expected = torch.full((4,), 2 * 0.7 * mass_a + 2 * 0.05 * mass_a * mass_b**2, dtype=dtype)
    torch.testing.assert_close(data.a.grad, expected)


def test_norms_made_without_a_graph_do_not_stop_gradients():
    x = rand(4, 2, seed=0).requires_grad_()
    space, y = ugw.Space.from_points(x, metric="sqeuclidean"), ugw.Space.from_points(rand(3, 2, seed=1))
    ugw.solve(space, y)
    (after,) = torch.autograd.grad(ugw.ugw_loss(space, y), x, retain_graph=True)
    without_norms = ugw.Space.from_points(x, metric="sqeuclidean")
    (alone,) = torch.autograd.grad(ugw.ugw_loss(without_norms, y), x)
    torch.testing.assert_close(after, alone)
    torch.autograd.grad(ugw.ugw_loss(space, y), x)  # the graph of the first one is not spent


def test_second_derivatives_are_refused():
    x = rand(4, 2, seed=0).requires_grad_()
    value = ugw.ugw_loss(x, rand(3, 2, seed=1))
    with pytest.raises(ugw.InputError, match="differentiated once"):
        torch.autograd.grad(value, x, create_graph=True)
