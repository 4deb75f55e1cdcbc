"""A ragged batch is its items, one by one: every start, every parameter per item, any order.

The plans agree to 1e-9 and not to the last bit, because sums over padded rows group their terms differently.
"""

import math

import numpy as np
import pytest
import torch

import ugw
from oracles import cases
from oracles.spaces import pair, space
from oracles.thresholds import changed_thresholds
from ugw._utils.size_class import THRESHOLDS, SizeClass, size_class
from ugw.geometry.space import Space
from ugw.results.lazy_plan import LazyPlan
from ugw.results.records import Status

INF = math.inf
# B = 5 is no n, no m, and not 1.
SIZES = [(6, 3), (2, 7), (4, 4), (1, 6), (3, 2)]
RHO = (np.array([1.0, 0.3, INF, 0.5, INF]), np.array([1.0, 2.0, 0.7, INF, INF]))
EPS = np.array([0.1, 0.2, 0.0, 0.1, 0.0])
STARTS = ["product", "flb", "linear", "random", "coarse", "auto", "best"]


def spaces(n_features=0):
    """Five pairs; the last two items of RHO are hard on both sides, or on one, so their masses are equal."""
    masses = [(1.5, 0.5), (1.0, 30.0), (1.0, 2.0), (0.2, 0.7), (1.0, 1.0)]
    xs = [space(n, 2, i, masses[i][0], n_features=n_features) for i, (n, _) in enumerate(SIZES)]
    ys = [space(m, 2, 10 + i, masses[i][1], n_features=n_features) for i, (_, m) in enumerate(SIZES)]
    return xs, ys


def take_item(values, i):
    return tuple(v[i] for v in values) if isinstance(values, tuple) else values[i]


def assert_same_item(one, other, atol=1e-9):
    """Is an item of a batch the result of its own solve?"""
    assert one.status is other.status
    assert one.n_iter == other.n_iter
    assert one.plan.shape == other.plan.shape
    np.testing.assert_allclose(one.plan, other.plan, rtol=0, atol=atol * max(1.0, other.mass))
    assert one.value == pytest.approx(other.value, rel=1e-9, abs=1e-12)
    for name, term in one.terms.as_dict().items():
        assert term == pytest.approx(getattr(other.terms, name), rel=1e-6, abs=1e-9 * (1 + abs(other.value)))
    assert len(one.history) == len(other.history)
    np.testing.assert_allclose(one.history.objective, other.history.objective, rtol=1e-8, atol=1e-12)
    assert one.marginal_error == pytest.approx(other.marginal_error, abs=1e-9)
    assert one.gap == pytest.approx(other.gap, abs=1e-8 * (1 + abs(other.value)))


@pytest.mark.parametrize("init", STARTS)
def test_items_of_a_mixed_ragged_batch_equal_single_solves(init):
    xs, ys = spaces()
    r = ugw.solve(Space.stack(xs), Space.stack(ys), rho=RHO, eps=EPS, init=init)
    assert len(r) == 5
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        assert_same_item(r[i], ugw.solve(x, y, rho=take_item(RHO, i), eps=EPS[i], init=init))


@pytest.mark.parametrize(
    ("rho", "eps"), [(1.0, 0.1), ((0.4, 2.0), "relative"), ((INF, 0.5), 0.1), ((0.5, INF), "relative"), (1.0, 0.0)]
)
def test_shared_parameters(rho, eps):
    eps = ugw.relative(0.1) if eps == "relative" else eps
    xs, ys = spaces()
    r = ugw.solve(Space.stack(xs), Space.stack(ys), rho=rho, eps=eps, init="product")
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        assert_same_item(r[i], ugw.solve(x, y, rho=rho, eps=eps, init="product"))


@pytest.mark.parametrize(("alpha", "init"), [(0.3, "product"), (np.array([0.0, 0.5, 1.0, 0.1, 0.2]), "auto")])
def test_fused_batches(alpha, init):
    xs, ys, eps = *spaces(n_features=3), np.array([*EPS[:4], 0.1])
    r = ugw.solve(Space.stack(xs), Space.stack(ys), rho=RHO, eps=eps, fused=ugw.Fused(alpha), init=init)
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        item_alpha = alpha if isinstance(alpha, float) else alpha[i]
        assert_same_item(
            r[i], ugw.solve(x, y, rho=take_item(RHO, i), eps=eps[i], fused=ugw.Fused(item_alpha), init=init)
        )


@pytest.mark.parametrize("loss", [None, lambda t: t**2])
def test_an_item_is_annealed_as_alone_beside_one_of_proximal_steps(loss):
    """The second item has an eps so small that it needs proximal steps. A function as loss has no compiled steps."""
    pairs, eps = [pair(9, 7, seed=0), pair(6, 8, seed=5)], np.array([0.02, 1e-4])
    given = {"rho": 0.5, "loss": loss, "init": "product", "solver": ugw.AlternateMin(anneal=0.9)}
    r = ugw.solve(*(Space.stack(list(side)) for side in zip(*pairs, strict=True)), eps=eps, **given)
    for i, (x, y) in enumerate(pairs):
        assert_same_item(r[i], ugw.solve(x, y, eps=eps[i], **given))


def test_a_linear_cost_per_item():
    xs, y = [space(6, seed=i) for i in range(3)], space(7, seed=9)
    costs = np.random.default_rng(0).random((3, 6, 7))
    r = ugw.solve(Space.stack(xs), y, eps=0.05, fused=ugw.Fused(0.4, costs), init="product")
    for i, x in enumerate(xs):
        assert_same_item(r[i], ugw.solve(x, y, eps=0.05, fused=ugw.Fused(0.4, costs[i]), init="product"))


@pytest.mark.parametrize("init", ["linear", "coarse"])
def test_one_space_against_a_batch(init):
    x, (_, ys) = space(5, seed=40), spaces()
    forward = ugw.solve(x, Space.stack(ys), rho=0.5, eps=EPS, init=init)
    backward = ugw.solve(Space.stack(ys), x, rho=0.5, eps=EPS, init=init)
    for i, y in enumerate(ys):
        assert_same_item(forward[i], ugw.solve(x, y, rho=0.5, eps=EPS[i], init=init))
        assert_same_item(backward[i], ugw.solve(y, x, rho=0.5, eps=EPS[i], init=init))


@pytest.mark.parametrize("init", ["product", "auto"])
def test_one_pair_for_many_parameters(init):
    x, y = space(6, seed=0), space(7, seed=1)
    rho = (np.array([0.1, 1.0, INF, 10.0]), np.array([0.2, 1.0, INF, INF]))
    eps = np.array([0.1, 0.0, 0.15, 0.1])
    r = ugw.solve(x, y, rho=rho, eps=eps, init=init)
    assert r.plan.shape == (4, 6, 7)
    for i in range(4):
        assert_same_item(r[i], ugw.solve(x, y, rho=take_item(rho, i), eps=eps[i], init=init))


def test_equal_sizes_given_as_one_array():
    points = np.random.default_rng(0).random((3, 6, 2))
    weights = np.random.default_rng(1).random((3, 6)) + 0.1
    y = space(4, seed=1)
    r = ugw.solve(Space.from_points(points, weights=weights), y, eps=0.2, init="flb")
    for i in range(3):
        assert_same_item(r[i], ugw.solve(Space.from_points(points[i], weights=weights[i]), y, eps=0.2, init="flb"))
    shared = ugw.solve(Space.from_points(points[0], weights=weights), y, eps=0.2, init="flb")  # one metric
    for i in range(3):
        assert_same_item(shared[i], ugw.solve(Space.from_points(points[0], weights=weights[i]), y, eps=0.2, init="flb"))


@pytest.mark.parametrize("init", ["auto", "random"])
def test_the_order_of_a_batch_does_not_matter(init):
    xs, ys = spaces()
    order = [3, 0, 4, 2, 1]
    r = ugw.solve(Space.stack(xs), Space.stack(ys), rho=RHO, eps=EPS, init=init)
    s = ugw.solve(
        Space.stack([xs[i] for i in order]),
        Space.stack([ys[i] for i in order]),
        rho=tuple(side[order] for side in RHO),
        eps=EPS[order],
        init=init,
    )
    for place, i in enumerate(order):
        assert_same_item(s[place], r[i])


def test_an_item_does_not_depend_on_its_neighbors():
    """Nor on an item of the batch that collapses, stops at once or does not converge."""
    x, y = space(6, seed=0), space(7, seed=1)
    alone = ugw.solve(x, y, rho=1.0, eps=0.05, init="product")
    far = Space.from_points(1e6 * np.random.default_rng(5).random((3, 2)))
    one = Space.from_points(np.zeros((1, 2)))
    with pytest.warns(ugw.ConvergenceWarning):
        r = ugw.solve(
            Space.stack([far, x, one, x]),
            Space.stack([far, y, one, y]),
            rho=np.array([1e-3, 1.0, 1.0, 1.0]),
            eps=np.array([0.01, 0.05, 0.3, 1e-4]),
            init="product",
            solver=ugw.AlternateMin(max_iter=alone.n_iter + 3),
        )
    assert_same_item(r[1], alone)
    assert r.n_iter[2] < r.n_iter[1]
    assert r[3].status is Status.MAX_ITER
    assert r[3].n_iter == alone.n_iter + 3


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
def test_of_two_alternating_plans_an_item_returns_the_same_as_alone():
    """Hard marginals are never extrapolated; those of the neighbor are soft, so that its steps are."""
    neighbor, improves = cases.clouds(4, 5, 0), []
    for seed in (0, 1, 3, 4):
        pair = cases.similarities(6, 6, seed)
        alone = ugw.solve(pair.x, pair.y, rho=INF, eps=0.1, init="product")
        x, y = Space.stack([pair.x, neighbor.x]), Space.stack([pair.y, neighbor.y])
        assert_same_item(ugw.solve(x, y, rho=np.array([INF, 1.0]), eps=0.1, init="product")[0], alone)
        assert alone.status is Status.ALTERNATING
        improves.append(alone.value < alone.history.objective[-1] - 1e-6)
    assert True in improves  # one more step was made, to the better plan
    assert False in improves


def test_status_and_steps_are_per_item():
    x, y = space(6, seed=0), space(7, seed=1)
    with pytest.warns(ugw.ConvergenceWarning, match=r"item 1 \(1 of 3"):
        r = ugw.solve(x, y, eps=np.array([0.5, 0.01, 0.4]), init="product", solver=ugw.AlternateMin(max_iter=15))
    assert r.status == [Status.CONVERGED, Status.MAX_ITER, Status.CONVERGED]
    assert r.converged.tolist() == [True, False, True]
    assert r.n_iter[1] == 15
    assert max(r.n_iter[0], r.n_iter[2]) < 15
    assert [len(h) for h in r.history] == r.n_iter.tolist()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_tensors(dtype):
    xs, ys = spaces()
    xs, ys = ([s.to(dtype) for s in side] for side in (xs, ys))
    xs = [Space.from_points(s.point_tensor, weights=s.weight_tensor) for s in xs]  # of tensors
    r = ugw.solve(Space.stack(xs), Space.stack(ys), eps=0.1, init="product")
    assert isinstance(r.plan, torch.Tensor)
    assert r.plan.dtype == dtype
    assert isinstance(r.value, torch.Tensor)
    assert r.value.shape == r.n_iter.shape == r.converged.shape == (5,)
    for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
        alone = ugw.solve(x, y, eps=0.1, init="product")
        atol = 1e-9 if dtype == torch.float64 else 1e-4 * float(alone.mass)
        torch.testing.assert_close(r[i].plan, alone.plan, rtol=0, atol=atol)
        assert r[i].converged is alone.converged is True


def test_a_batch_of_one():
    x, y = space(6, seed=0), space(7, seed=1)
    r = ugw.solve(Space.stack([x]), Space.stack([y]), eps=0.05)
    assert r.plan.shape == (1, 6, 7)
    assert_same_item(r[0], ugw.solve(x, y, eps=0.05))


def test_symmetric_spaces_choose_the_same_of_their_equal_plans():
    """A square on a square has eight best plans of one value: padding must not choose among them."""
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    square = Space.from_points(corners)
    other = space(7, seed=3)
    for init in ("coarse", "auto", "random", "flb"):
        alone = ugw.solve(square, square, rho=1.0, eps=0.01, init=init)
        r = ugw.solve(Space.stack([other, square]), Space.stack([square, square]), rho=1.0, eps=0.01, init=init)
        assert r[1].value == pytest.approx(alone.value, rel=1e-9)
        np.testing.assert_allclose(r[1].plan, alone.plan, atol=1e-6)


# --- items on both sides of every size threshold ---

QUICK = ugw.AlternateMin(max_iter=300)
STREAMING = ugw.AlternateMin(inner=ugw.Sinkhorn(method="streaming"))


def general_loss(t):
    return t**2 / (1.0 + t)


PROBLEMS = {
    "KL": (ugw.solve, {"rho": 0.5, "eps": 2e-3}),
    "fused": (ugw.solve, {"rho": 0.5, "eps": 5e-3, "fused": ugw.Fused(0.1)}),
    "TV": (ugw.solve, {"rho": ugw.TV(0.05)}),
    "Mass": (ugw.solve, {"rho": ugw.Mass(0.6)}),
    "general loss": (ugw.solve, {"rho": 0.5, "eps": 5e-3, "loss": general_loss}),
    "balanced": (ugw.solve, {"rho": INF, "eps": 1e-2}),
    "semi-relaxed": (ugw.solve, {"rho": (INF, 0.5), "eps": 1e-2}),
    "eps = 0": (ugw.solve, {"rho": 0.3, "eps": 0.0, "solver": QUICK}),
    "balanced, eps = 0": (ugw.solve, {"rho": INF, "eps": 0.0, "solver": QUICK}),
    "streaming": (ugw.solve, {"rho": 0.5, "eps": 1e-2, "solver": STREAMING}),
    "gaussian-hellinger": (ugw.solve_conic, {"rho": 0.1}),
    "hellinger-kantorovich": (ugw.solve_conic, {"rho": 0.1, "cone": "hellinger-kantorovich"}),
    "partial-transport": (ugw.solve_conic, {"rho": 0.1, "cone": "partial-transport"}),
    "general cone": (ugw.solve_conic, {"rho": 0.1, "cone": ugw.Loss(general_loss)}),
}
# Every threshold is passed by items of a few points: those of tests, in the order of `SizeThresholds`.
LOW_THRESHOLDS = dict(
    max_entries_with_long_search=60,
    max_entries_without_middle_level=100,
    n_coarse_clusters=8,
    middle_clusters_step=5,
    points_per_middle_step=10,
    max_middle_clusters=10,
    max_compiled_entries=60,
    min_low_precision_entries=80,
    max_rows_without_sampling=9,
    max_noise_candidates=16,
    max_noise_entries=600,
    max_entries_with_many_vertices=64,
    max_entries_with_swapped_vertices=70,
    max_stored_sample=10,
    max_level_ratio=3,
)
SMALL_SIZES = [(5, 6), (6, 9), (9, 11), (11, 12)]


def threshold_pairs(sizes, metric="euclidean", seed=0):
    """Pairs of spaces of these sizes, all of mass 1, with features."""
    return [pair(n, m, seed=100 * (seed + 1) + 2 * i, n_features=2, metric=metric) for i, (n, m) in enumerate(sizes)]


def check_batch_against_items(name, sizes, seed=0, **others):
    """`solve(stack)[i]` agrees with `solve(item)` to the default tolerance."""
    solve, options = PROBLEMS[name][0], PROBLEMS[name][1] | others
    pairs = threshold_pairs(sizes, "sqeuclidean" if "streaming" in name else "euclidean", seed)
    batch = solve(*(Space.stack(list(side)) for side in zip(*pairs, strict=True)), **options)
    for i, (x, y) in enumerate(pairs):
        alone = solve(x, y, **options)
        item = batch[i]
        product = np.outer(np.asarray(x.weights), np.asarray(y.weights))
        scale = float(alone.mass) ** 2 * ugw.objective(product, x, y, rho=1.0).distortion
        assert item.status is alone.status, (i, sizes[i])
        assert abs(item.value - alone.value) <= 1e-7 * max(abs(alone.value), scale), (i, sizes[i])
        plans = [np.asarray(r.plan.dense() if isinstance(r.plan, LazyPlan) else r.plan) for r in (item, alone)]
        assert np.abs(plans[0] - plans[1]).sum() <= 1e-4 * max(np.abs(plans[1]).sum(), 1e-300), (i, sizes[i])


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
@pytest.mark.parametrize("name", PROBLEMS)
def test_items_on_both_sides_of_every_size_threshold(name):
    thresholds = LOW_THRESHOLDS
    if PROBLEMS[name][0] is ugw.solve_conic:
        # Of plans near a saddle point the rounding of float32 decides where they go, and padding changes rounding.
        thresholds = thresholds | {"min_low_precision_entries": 5000}
    with changed_thresholds(THRESHOLDS, **thresholds):
        # Linear programs with many more variables than a plan has entries are slow.
        check_batch_against_items(name, [(5, 6), (4, 8)] if name == "partial-transport" else SMALL_SIZES)


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("KL", [(20, 20), (65, 7), (71, 71)]),
        ("TV", [(16, 16), (52, 49)]),
        ("gaussian-hellinger", [(20, 20), (21, 20), (28, 28)]),
    ],
)
def test_items_on_both_sides_of_the_smaller_thresholds_as_they_are(name, sizes):
    check_batch_against_items(name, sizes)


@pytest.mark.parametrize("seed", [2, 19])
def test_long_alternations_do_not_amplify_the_rounding_of_padded_sums(seed):
    """Balanced problems without entropy, which alternate without converging before linear programs end the solve."""
    sizes = [(19, 20), (29, 11), (29, 24), (29, 28)]
    check_batch_against_items("balanced, eps = 0", sizes, seed, solver=None)


def test_small_sizes_are_in_many_classes():
    """The sizes of the test above pass every threshold that it lowers."""
    with changed_thresholds(THRESHOLDS, **LOW_THRESHOLDS):
        classes = [size_class(n, m) for n, m in SMALL_SIZES]
    constant = {"has_tf32_phase"}  # on CUDA alone
    for name in set(SizeClass.__dataclass_fields__) - constant:
        assert len({getattr(c, name) for c in classes}) > 1, name


@pytest.mark.parametrize("solve", [ugw.solve, ugw.solve_conic])
def test_padding_is_not_counted_where_sizes_are_limited(solve):
    """Items of at most 50 × 50 and 60 × 60 entries, whose stack is larger."""
    sizes = [(3, 80), (80, 3)]
    pairs = threshold_pairs(sizes)
    x, y = (Space.stack(list(side)) for side in zip(*pairs, strict=True))
    if solve is ugw.solve:
        plan = np.zeros((80, 80))
        plan[0, 0] = 1.0
        infinite = ugw.solve(x, y, rho=1.0, eps=0.1, loss=ugw.HellingerKantorovich(), init=plan)
        assert len(infinite) == 2
    else:
        assert len(solve(x, y, rho=0.1, cone="partial-transport", init="product")) == 2


def test_rho_for_mass_of_items_of_different_sizes():
    pairs = threshold_pairs([(8, 7), (24, 21)])
    x, y = (Space.stack(list(side)) for side in zip(*pairs, strict=True))
    np.testing.assert_allclose(ugw.rho_for_mass(x, y), [ugw.rho_for_mass(*pair) for pair in pairs], rtol=1e-5)


def test_an_infinite_loss_of_one_item_does_not_change_an_item_of_short_distances():
    rng, loss, plan = np.random.default_rng(0), ugw.HellingerKantorovich(), np.eye(6) / 6
    xs = [ugw.Space.from_points(scale * rng.random((6, 2))) for scale in (0.5, 3.0)]
    ys = [ugw.Space.from_points(x.points + 0.01 * rng.normal(size=(6, 2))) for x in xs]
    options = {"rho": 0.3, "eps": 0.05, "loss": loss}
    both = ugw.solve(ugw.Space.stack(xs), ugw.Space.stack(ys), init=np.stack([plan, plan]), **options)
    for i in range(2):
        alone = ugw.solve(xs[i], ys[i], init=plan, **options)
        assert both[i].value == pytest.approx(alone.value, rel=1e-7)
        np.testing.assert_allclose(both[i].plan, alone.plan, atol=1e-6)


def test_a_callback_stops_items_of_an_infinite_loss_at_their_given_plans():
    rng, loss = np.random.default_rng(0), ugw.HellingerKantorovich()
    xs = [ugw.Space.from_points(scale * rng.random((6, 2))) for scale in (0.5, 2.0, 2.2)]
    ys = [ugw.Space.from_points(x.points + 0.1 * rng.normal(size=(6, 2))) for x in xs]
    solver, plan = ugw.AlternateMin(callback=lambda step: True), np.diag(np.arange(1.0, 7.0)) / 21
    with pytest.warns(ugw.ConvergenceWarning, match="callback"):
        result = ugw.solve(*map(ugw.Space.stack, (xs, ys)), rho=0.3, eps=0.05, loss=loss, init=plan, solver=solver)
    assert result.status == [Status.STOPPED] * 3
    assert result.n_iter.tolist() == [1, 1, 1]
    assert np.isfinite(result.value).all()


def test_a_loss_is_infinite_for_items_of_long_distances_alone():
    """Only these have a limit of their size, and an item of short distances keeps the factors of its loss."""
    rng, loss = np.random.default_rng(0), ugw.HellingerKantorovich()
    xs, ys = ([ugw.Space.from_points(s * rng.random((n, 2))) for n, s in ((60, 0.5), (10, 6.0))] for _ in range(2))
    plan = np.zeros((2, 60, 60))
    plan[0], plan[1, 0, 0] = 1.0 / 3600, 1.0
    options = {"rho": 0.3, "eps": 0.05, "loss": loss}
    both = ugw.solve(ugw.Space.stack(xs), ugw.Space.stack(ys), init=plan, **options)
    for i, n in enumerate((60, 10)):
        alone = ugw.solve(xs[i], ys[i], init=plan[i, :n, :n], **options)
        assert both[i].status is alone.status
        assert both[i].value == pytest.approx(alone.value, rel=1e-9)
        np.testing.assert_allclose(both[i].plan, alone.plan, atol=1e-9)
    large = [ugw.Space.from_points(6.0 * rng.random((60, 2))) for _ in range(2)]
    with pytest.raises(ugw.InputError, match="up to n·m = 2500, got 60 × 60"):
        ugw.solve(ugw.Space.stack([xs[1], large[0]]), ugw.Space.stack([ys[1], large[1]]), init=plan, **options)
