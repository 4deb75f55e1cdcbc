"""Low-rank approximations against the distances they approximate."""

import networkx
import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

import ugw
from oracles.thresholds import changed_thresholds
from ugw._utils.config import UTILS_CONFIG
from ugw.geometry import compression
from ugw.geometry import point_distances as distances
from ugw.geometry.config import GEOMETRY_CONFIG
from ugw.geometry.low_rank import LowRankMetric


def plane(n=30, d=2, seed=0):
    """Uniform points (n, d)."""
    return np.random.default_rng(seed).random((n, d))


def circle(n=24):
    """Arc lengths between evenly spaced points of a circle of length 1."""
    gap = np.abs(np.arange(n)[:, None] - np.arange(n)) / n
    return np.minimum(gap, 1 - gap)


def tree(n=26):
    """Shortest paths in a tree with edges of different lengths."""
    graph = networkx.from_prufer_sequence(np.random.default_rng(3).integers(n, size=n - 2).tolist())
    for i, edge in enumerate(graph.edges):
        graph.edges[edge]["weight"] = 1.0 + 0.1 * i
    return np.array(networkx.floyd_warshall_numpy(graph))


def indefinite_distances(n=20):
    """A random symmetric matrix with a zero diagonal, not conditionally negative."""
    d = np.random.default_rng(5).random((n, n))
    d = d + d.T
    np.fill_diagonal(d, 0.0)
    return d


CONDITIONALLY_NEGATIVE = {"plane": cdist(plane(), plane()), "circle": circle(), "tree": tree()}


@pytest.mark.parametrize("name", [*CONDITIONALLY_NEGATIVE, "anything"])
def test_full_rank_is_exact(name):
    d = CONDITIONALLY_NEGATIVE.get(name, indefinite_distances())
    low = ugw.Space.from_distances(d).compressed(tol=1e-10).metric
    assert isinstance(low, LowRankMetric)
    np.testing.assert_allclose(low.dense(), d, atol=1e-10 * d.max())
    assert low.error == pytest.approx(np.abs(low.dense().numpy() - d).max(), abs=1e-13 * d.max())
    assert bool((low.signs > 0).all()) == (name != "anything")


def test_the_tolerance_is_kept_on_all_pairs():
    points = plane(1500)
    d = cdist(points, points)
    x = ugw.Space.from_points(points, tol=0.05)
    wrong = np.abs(x.metric.dense().numpy() - d).max()
    assert wrong <= 0.05 * d.max()
    assert x.metric.error == pytest.approx(wrong, rel=1e-9)  # all pairs are measured
    assert x.metric.points.shape[1] < 60
    assert (x.metric.signs > 0).all()


@pytest.mark.parametrize("metric", ["euclidean", "cityblock"])
@changed_thresholds(GEOMETRY_CONFIG, max_landmarks=200, max_fit_points=300)
@changed_thresholds(UTILS_CONFIG, max_block_entries=40_000)
def test_the_error_measured_on_some_pairs_holds_for_all(metric):
    points = plane(1200)
    d = cdist(points, points, metric)
    low = ugw.Space.from_points(points, metric=metric, tol=0.08).metric
    wrong = np.abs(low.dense().numpy() - d).max()
    assert low.error <= 0.08 * d.max() * 1.01
    assert wrong <= 1.5 * low.error


def test_fitted_weights_reduce_the_mean_error():
    points = plane(400)
    d = cdist(points, points)
    low = ugw.Space.from_points(points, tol=0.05).metric
    r = low.points.shape[1]
    j = np.eye(400) - 1 / 400
    values, vectors = np.linalg.eigh(-0.5 * j @ d @ j)
    phi = vectors[:, -r:] * np.sqrt(values[-r:])
    plain = np.sqrt(np.mean((cdist(phi, phi, "sqeuclidean") - d) ** 2))
    assert np.sqrt(np.mean((low.dense().numpy() - d) ** 2)) < 0.3 * plain


def test_weights_solve_the_least_squares_problem():
    """Columns include the square roots of their weights: no factors other than 1 fit the distances better."""
    points = plane(40)
    columns = ugw.Space.from_points(points, tol=0.2).metric.points.numpy()
    i, j = np.triu_indices(40, 1)
    factors = np.linalg.lstsq((columns[i] - columns[j]) ** 2, cdist(points, points)[i, j], rcond=None)[0]
    assert columns.shape == (40, 5)
    np.testing.assert_allclose(factors, 1.0, atol=1e-8)


@pytest.mark.parametrize("n", [60, 400])
@changed_thresholds(GEOMETRY_CONFIG, max_landmarks=100, max_fit_points=200)
def test_a_permuted_space_has_the_same_distances(n):
    points, order = plane(n), np.random.default_rng(1).permutation(n)
    for make in (lambda p: ugw.Space.from_points(p, tol=0.06), lambda p: ugw.Space.from_points(p).compressed(0.06)):
        d = make(points).metric.dense().numpy()
        np.testing.assert_allclose(make(points[order]).metric.dense(), d[np.ix_(order, order)], atol=1e-9)


def test_units_do_not_matter():
    points = plane(300)
    one, other = (ugw.Space.from_points(s * points, tol=0.05).metric for s in (1.0, 1e6))
    np.testing.assert_allclose(other.dense(), 1e6 * one.dense(), rtol=1e-6, atol=1.0)
    assert other.error == pytest.approx(1e6 * one.error, rel=1e-6)


def test_float32_and_coincident_points():
    points = np.repeat(plane(30), 50, axis=0).astype(np.float32)  # fewer distinct points than landmarks
    x = ugw.Space.from_points(points, tol=1e-3)
    assert x.metric.dtype == torch.float32
    np.testing.assert_allclose(x.metric.dense(), cdist(points, points), atol=2e-3)
    assert ugw.Space.from_points(np.zeros((3, 2)), tol=0.1).metric.dense().abs().max() == 0
    assert ugw.Space.from_points(np.zeros((1, 2)), tol=0.1).metric.dense().abs().max() == 0


def test_values_are_close_to_those_of_the_stored_spaces():
    rng = np.random.default_rng(2)
    p, q = rng.random((200, 2)), rng.random((180, 2)) * [1.0, 0.5]
    x, y = ugw.Space.from_points(p), ugw.Space.from_points(q)
    off = []
    for tol in (0.04, 0.015):
        low = [s.compressed(tol, max_rank=199) for s in (x, y)]
        r = ugw.solve(*low, rho=0.5, eps=0.02, init="flb")
        stored = ugw.objective(r.plan, x, y, rho=0.5, eps=0.02)
        # |(s − t)² − (s' − t')²| ≤ δ (2 |s − t| + δ), δ the two errors together, summed by Cauchy–Schwarz.
        delta = sum(s.metric.error for s in low)
        off.append(abs(float(stored.total) - r.value))
        assert off[-1] <= delta * r.mass * (2 * np.sqrt(r.terms.distortion) + delta * r.mass)
    assert off[1] < 0.5 * off[0] < 0.01 * r.value


def test_plans_between_compressed_spaces_stream():
    x, y = ugw.Space.from_points(plane(80), tol=0.1), ugw.Space.from_distances(indefinite_distances(40)).compressed(0.3)
    assert (y.metric.signs < 0).any()
    solvers = (ugw.AlternateMin(inner=ugw.Sinkhorn(method=m)) for m in ("stabilized", "streaming"))
    stored, streamed = (ugw.solve(x, y, rho=0.5, eps=0.05, init="product", solver=s) for s in solvers)
    assert streamed.path == "streaming"
    assert streamed.value == pytest.approx(stored.value, rel=1e-6)


def test_items_of_a_batch_equal_single_compressions():
    spaces = [ugw.Space.from_distances(d) for d in (circle(), indefinite_distances(), tree())]
    batch = ugw.Space.stack(spaces).compressed(1e-9)
    assert isinstance(batch.metric, LowRankMetric)
    for one, space in zip(batch, spaces, strict=True):
        torch.testing.assert_close(one.metric.dense(), space.metric.dense(), atol=1e-8, rtol=0.0)
    again = ugw.Space.stack([space.compressed(1e-9) for space in spaces])
    torch.testing.assert_close(again.metric.dense(), batch.metric.dense())
    points = np.stack([plane(40, seed=s) for s in range(3)])
    compressed = ugw.Space.from_points(points, tol=0.1)
    for i, one in enumerate(compressed):
        assert np.abs(one.metric.dense().numpy() - cdist(points[i], points[i])).max() <= compressed.metric.error * 1.01


def test_stacked_spaces_of_different_ranks_are_low_rank():
    spaces = [ugw.Space.from_points(plane(5 + d, d), metric="sqeuclidean") for d in (1, 3)]
    batch = ugw.Space.stack(spaces)
    assert isinstance(batch.metric, LowRankMetric)
    for one, space in zip(batch, spaces, strict=True):
        torch.testing.assert_close(one.metric.dense(), space.metric.dense())


def test_low_rank_metrics_are_not_compressed_again():
    x = ugw.Space.from_points(plane(), metric="sqeuclidean")
    assert x.compressed().metric is x.metric
    wide = ugw.Space.from_points(np.c_[plane(50), 1e-9 * plane(50, 4)], metric="sqeuclidean")
    narrow = wide.compressed(1e-6, max_rank=3)
    assert narrow.metric.points.shape[1] == 2
    torch.testing.assert_close(narrow.metric.dense(), wide.metric.dense(), atol=1e-6, rtol=0.0)
    with pytest.raises(ugw.InputError, match="do not become better"):
        ugw.Space.from_points(plane(200), tol=0.1).compressed(0.01)


def test_repr_shows_rank_and_error():
    x = ugw.Space.from_points(plane(100), tol=0.1)
    rank, error = x.metric.points.shape[1], x.metric.error
    assert f"distances of rank {rank} within {error:.2g}" in repr(x)
    assert "rank" not in repr(ugw.Space.from_points(plane(100)))


@changed_thresholds(GEOMETRY_CONFIG, max_landmarks=60, max_fit_points=120)
@changed_thresholds(UTILS_CONFIG, max_block_entries=50_000)
def test_the_full_matrix_of_many_points_is_never_computed(monkeypatch):
    cross_distances, sizes = compression.cross_distances, []

    def record_size(*args):
        """Compute distances and record how many."""
        distances = cross_distances(*args)
        sizes.append(distances.numel())
        return distances

    monkeypatch.setattr(compression, "cross_distances", record_size)
    ugw.Space.from_points(plane(20_000), tol=0.2)
    assert max(sizes) <= 50_000


def test_an_unreachable_tolerance_raises_with_a_rank_and_a_tolerance_that_work():
    x = ugw.Space.from_points(plane(300))
    with pytest.raises(ugw.InputError, match=r"rank 10: take max_rank=(\d+) or tol=([\d.]+)") as caught:
        x.compressed(0.03, max_rank=10)
    rank, tol = str(caught.value).partition("max_rank=")[2].split(" or tol=")
    assert x.compressed(0.03, max_rank=int(rank)).metric.points.shape[1] > 10
    assert x.compressed(float(tol), max_rank=10).metric.points.shape[1] == 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "sqeuclidean", "tol": 0.1}, "exact"),
        ({"metric": "seuclidean", "tol": 0.1}, "depends on all points"),
        ({"metric": "nonsense", "tol": 0.1}, "nonsense"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"tol": 1.5}, "tol must be a number below 1"),
        ({"tol": np.array([0.1, 0.2])}, "tol must be a number"),
        ({"tol": 0.1, "max_rank": 0}, "max_rank must be"),
        ({"tol": 0.1, "max_rank": 2.5}, "max_rank must be"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ugw.InputError, match=message):
        ugw.Space.from_points(plane(), **options)


def test_gradients_and_diagonals_are_refused():
    points = torch.rand(5, 2, requires_grad=True)
    with pytest.raises(ugw.InputError, match="gradients"):
        ugw.Space.from_points(points, tol=0.1)
    with pytest.raises(ugw.InputError, match="gradients"):
        ugw.Space.from_points(points).compressed()
    with pytest.raises(ugw.InputError, match="zero diagonal"):
        ugw.Space.from_matrix(np.eye(3)).compressed()


def test_distances_that_do_not_fit_in_memory_are_refused(monkeypatch):
    monkeypatch.setattr(distances, "machine_memory", lambda: 2.0**20)
    with pytest.raises(ugw.InputError, match=r"0\.00745 GiB .* tol="):
        ugw.Space.from_points(plane(1000))
    ugw.Space.from_points(plane(200))
    assert ugw.Space.from_points(plane(1000), tol=0.1).n == 1000
