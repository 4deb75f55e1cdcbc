"""Products with smooth plans: as exact as with all of their columns, or not made."""

import numpy as np
import pytest
import torch

import ugw
from ugw.geometry.metric import Dense
from ugw.problems.build import build
from ugw.problems.distortion import smooth
from ugw.problems.distortion.smooth import Spans

N, M = 260, 250


def metrics(dtype, batch=None, sizes=(N, M)):
    draw = torch.Generator().manual_seed(0)
    lead = () if batch is None else (batch,)
    points = (torch.rand(*lead, n, 2, generator=draw, dtype=dtype) for n in sizes)
    return [Dense(torch.cdist(p, p)) for p in points]


def bells(width, dtype=torch.float32, batch=1, size=(N, M)):
    """exp(−|x − y|² / width²): the narrower, the more combinations."""
    draw = torch.Generator().manual_seed(1)
    x, y = (torch.rand(batch, n, 2, generator=draw, dtype=torch.float64) for n in size)
    plan = (-torch.cdist(x, y).square() / width**2).exp()
    return (plan / plan.sum()).to(dtype)


def exact(dx, plan, dy):
    return torch.einsum("...ij,...jk,...kl->...il", dx.matrix.double(), plan.double(), dy.matrix.double())


def product(dx, plan, dy, spans=None):
    with torch.no_grad():
        return smooth.sandwich(dx, plan, dy, Spans() if spans is None else spans)


@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("width", [100.0, 2.0, 1.0])
def test_products_are_exact_but_for_rounding(width, batch):
    dx, dy = metrics(torch.float32, batch)
    plan = bells(width, batch=batch or 1)
    found = product(dx, plan, dy)
    torch.testing.assert_close(found.double(), exact(dx, plan, dy), rtol=3e-6, atol=0.0)


def test_products_in_float64_are_exact_to_its_digits():
    size = (400, 390)
    dx, dy = metrics(torch.float64, sizes=size)
    plan = bells(3.0, torch.float64, size=size)
    torch.testing.assert_close(product(dx, plan, dy), exact(dx, plan, dy), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize(("width", "least", "most"), [(3.0, 24, 24), (0.7, 25, N // smooth.DEAR)])
def test_as_many_combinations_as_it_takes_are_remembered(width, least, most):
    spans, plan = Spans(), bells(width)
    tail = torch.linalg.svdvals(plan.double()[0]).square()
    rank = int((tail.flip(0).cumsum(0).flip(0) > (1e-6 * plan.double().norm()) ** 2).sum())
    product(*around(plan), spans)
    assert least <= spans.count <= most
    assert rank <= spans.count
    assert spans.failed == 0


def around(plan):
    dx, dy = metrics(plan.dtype)
    return dx, plan, dy


def test_draws_are_kept_for_plans_alike():
    spans, plan = Spans(), torch.zeros(1)
    first = spans.draws(9, 4, plan)
    assert spans.draws(9, 4, plan) is first
    assert spans.draws(9, 5, plan).shape == (9, 5)
    assert spans.draws(9, 4, plan.double()).dtype == torch.float64


def permutation():
    return torch.eye(N)[torch.randperm(N, generator=torch.Generator().manual_seed(2))][None, :, :M] / N


def test_a_plan_that_is_not_smooth_is_multiplied_otherwise(monkeypatch):
    spans, tried, true = Spans(), [], smooth._spanned
    monkeypatch.setattr(smooth, "_spanned", lambda *given: tried.append(1) or true(*given))
    assert product(*around(permutation()), spans) is None
    assert product(*around(bells(3.0)), spans) is not None  # one that is not smooth says little
    assert product(*around(permutation()), spans) is None
    tried.clear()
    assert product(*around(bells(3.0)), spans) is None
    assert not tried  # two say enough


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 0.0])
def test_what_has_no_digits_is_not_spanned(number):
    plan = bells(3.0)
    plan[0, 3] = number
    if number == 0.0:
        plan[:] = 0.0
    assert product(*around(plan)) is None


def test_small_plans_low_rank_metrics_and_gradients_are_left_alone():
    dx, dy = metrics(torch.float32, sizes=(smooth.FEW - 1, M))
    assert product(dx, bells(3.0, size=(smooth.FEW - 1, M)), dy) is None
    points = torch.rand(N, 3)
    low = ugw.Space.from_points(points, metric="sqeuclidean").metric
    assert product(low, bells(3.0, size=(N, N)), low) is None
    dx, plan, dy = around(bells(3.0))
    assert smooth.sandwich(dx, plan, dy, Spans()) is None


def test_padding_does_not_change_the_combinations():
    short, long = (smooth._normal(size, 9, torch.float64) for size in (5, 8))
    assert torch.equal(short, long[:5])


def pair(dtype=np.float64, seed=3, sizes=(N, M)):
    rng = np.random.default_rng(seed)
    return [ugw.Space.from_points(rng.random((n, 2)).astype(dtype)) for n in sizes]


@pytest.mark.parametrize(("share", "smoothed"), [(1.5, True), (0.5, True), (0.3, False)])
def test_problems_are_smooth_by_their_entropy(share, smoothed):
    problem = build(*pair(), rho=1.0, eps=ugw.relative(share), fused=None).smoothed()
    assert (problem.pairs.spans is not None) is smoothed
    assert (problem.cheaper().problem.pairs.spans is not None) is smoothed


@pytest.mark.parametrize(
    ("sizes", "dtypes"), [((N, M), {torch.float32}), ((420, 400), {torch.float32, torch.float64})], ids=["260", "420"]
)
def test_a_solve_ends_where_it_does_with_all_columns(monkeypatch, sizes, dtypes):
    given = {"rho": 0.5, "eps": ugw.relative(1.0), "solver": ugw.AlternateMin(tol=1e-11)}
    used, true = [], smooth._spanned
    monkeypatch.setattr(smooth, "_spanned", lambda rest, *g: used.append(rest.dtype) or true(rest, *g))
    found = ugw.solve(*pair(sizes=sizes), **given)
    assert set(used) == dtypes
    monkeypatch.setattr(smooth, "FEW", 10**9)
    used.clear()
    plain = ugw.solve(*pair(sizes=sizes), **given)
    assert not used
    assert found.value == pytest.approx(plain.value, rel=1e-11)
    assert np.abs(found.plan - plain.plan).sum() <= 1e-9 * plain.plan.sum()
    assert found.converged


def test_a_ragged_batch_is_its_items():
    pairs = [pair(sizes=sizes, seed=seed) for seed, sizes in enumerate([(250, 260), (300, 245), (241, 241)])]
    given = {"rho": 0.5, "eps": 0.2}
    batch = ugw.solve(*(ugw.Space.stack(side) for side in zip(*pairs, strict=True)), **given)
    for i, (x, y) in enumerate(pairs):
        alone = ugw.solve(x, y, **given)
        assert batch[i].value == pytest.approx(alone.value, rel=1e-10)
        assert np.abs(batch[i].plan - alone.plan).sum() <= 1e-6 * alone.plan.sum()


@pytest.mark.parametrize("solver", [ugw.AlternateMin(), ugw.Multistart(n=2)], ids=["one", "two"])
def test_items_that_are_taken_stay_smooth(monkeypatch, solver):
    used, true = [], smooth._spanned
    monkeypatch.setattr(smooth, "_spanned", lambda *g: used.append(1) or true(*g))
    problem = build(*pair(), rho=0.5, eps=ugw.relative(0.6), fused=None).smoothed()
    assert problem.take(torch.tensor([0, 0])).pairs.spans is problem.pairs.spans
    ugw.solve(*pair(), rho=0.5, eps=ugw.relative(0.6), solver=solver)
    assert used


@pytest.mark.parametrize("seed", range(4))
def test_what_a_basis_rounds_does_not_show_in_values(seed):
    x, y = pair(seed=seed)
    problem = build(x, y, rho=0.5, eps=ugw.relative(1.5), fused=None).smoothed().cheaper().problem
    plan = ugw.solve(x, y, rho=0.5, eps=ugw.relative(1.5)).plan
    shape = problem.unit(torch.as_tensor(plan)[None].float())
    with torch.no_grad():
        found = problem.couple(shape)
    assert problem.pairs.spans.count == smooth.FIRST[torch.float32]
    p, dx, dy = shape[0].double().numpy(), x.metric.dense().numpy(), y.metric.dense().numpy()
    squares = (dx**2 @ p.sum(1)) @ p.sum(1) + (dy**2 @ p.sum(0)) @ p.sum(0)
    distortion = (squares - 2.0 * np.sum(p * (dx @ p @ dy))) / p.sum() ** 2
    assert float(found.distortion) == pytest.approx(distortion, rel=4e-7)


def test_numbers_that_no_longer_ones_follow_keep_all_columns():
    assert build(*pair(np.float32), rho=0.5, eps=1.0, fused=None).smoothed().pairs.spans is None
