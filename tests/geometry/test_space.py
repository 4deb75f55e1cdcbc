"""Spaces: every constructor, leading dimensions, and the table of bad input."""

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cdist

from oracles.errors import assert_refused
from oracles.spaces import cloud
from ugw.errors import InputError
from ugw.geometry.space import Space


def distances(n=6, seed=0):
    """Euclidean distances (n, n) of random points."""
    return cdist(cloud(n, seed=seed), cloud(n, seed=seed))


# --- one space ---


def test_from_points_keeps_points_weights_and_features():
    points, weights, features = cloud(), np.arange(6.0), cloud(d=2, seed=1)
    space = Space.from_points(points, weights=weights, features=features)
    np.testing.assert_allclose(space.metric.dense(), cdist(points, points), rtol=1e-14)
    assert np.array_equal(space.weights, weights)
    assert np.array_equal(space.features, features)
    assert np.array_equal(space.points, points)
    assert (space.n, space.mass, space.batched, space.sizes, space.numpy) == (
        6,
        15.0,
        False,
        None,
        True,
    )
    assert (space.dtype, space.device) == (torch.float64, torch.device("cpu"))


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cityblock"])
def test_metric_names(metric):
    space = Space.from_points(cloud(), metric=metric)
    np.testing.assert_allclose(space.metric.dense(), cdist(cloud(), cloud(), metric), rtol=1e-14)


def constructors():
    """Each constructor as a function of keyword arguments, all of n = 4 points."""
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    ring = networkx.cycle_graph(4)
    return {
        "points": lambda **kw: Space.from_points(square, **kw),
        "distances": lambda **kw: Space.from_distances(cdist(square, square), **kw),
        "graph": lambda **kw: Space.from_graph(ring, **kw),
        "adjacency": lambda **kw: Space.from_graph(networkx.to_scipy_sparse_array(ring), **kw),
        "knn": lambda **kw: Space.from_knn(square, k=2, **kw),
        "mesh": lambda **kw: Space.from_mesh(square, [[0, 1, 2], [0, 2, 3]], **kw),
        "matrix": lambda **kw: Space.from_matrix(square @ square.T, **kw),
    }


@pytest.mark.parametrize("make", constructors().values(), ids=constructors().keys())
def test_every_constructor_takes_weights_and_features(make):
    plain = make()
    assert plain.weights.tolist() == [0.25] * 4
    assert plain.features is None
    assert plain.numpy
    full = make(weights=[0, 1, 2, 3], features=np.eye(4))
    assert full.weights.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert full.features.shape == (4, 4)
    assert full.dtype == torch.float64
    assert make(weights=torch.ones(4, dtype=torch.float64)).numpy is False


def test_coordinates_are_kept_where_there_are_any():
    for name, make in constructors().items():
        points = make().points
        assert points.shape == (4, 2) if name in ("points", "knn", "mesh") else points is None


def test_graphs_meshes_and_knn_give_the_ring_around_a_square():
    spaces = constructors()
    ring = [[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0]]
    for name in ("graph", "adjacency", "knn"):
        assert spaces[name]().metric.dense().tolist() == ring
    across = spaces["mesh"]().metric.dense()
    assert across[0, 2] == 2**0.5
    assert across[1, 3] == 2


def test_similarities_may_be_negative_with_any_diagonal():
    matrix = np.array([[3.0, -1.0], [-1.0, -2.0]])
    assert np.array_equal(Space.from_matrix(matrix).metric.dense(), matrix)
    with pytest.raises(InputError, match="nonnegative"):
        Space.from_distances(matrix)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_torch_in_torch_out(dtype):
    points = torch.from_numpy(cloud()).to(dtype)
    space = Space.from_points(points, weights=torch.ones(6, dtype=dtype))
    assert space.numpy is False
    assert {space.dtype, space.metric.dtype, space.weights.dtype} == {dtype}
    assert Space.from_points(points).weights.dtype == dtype
    assert Space.from_points(points, weights=[1] * 6).weights.dtype == dtype
    assert Space.from_knn(points, k=5).metric.dtype == dtype


def test_a_graph_takes_dtype_and_kind_of_its_weights_or_features():
    ring = networkx.cycle_graph(4)
    single = Space.from_graph(ring, features=torch.ones(4, 2))
    assert (single.dtype, single.numpy) == (torch.float32, False)
    assert Space.from_graph(ring, weights=np.ones(4, np.float32), features=[[1], [2], [3], [4]]).numpy
    adjacency = networkx.to_scipy_sparse_array(ring).astype(np.float32)
    assert Space.from_graph(adjacency).dtype == torch.float32
    with pytest.raises(InputError, match="features must be float32 like the rest, got float64"):
        Space.from_graph(ring, weights=torch.ones(4), features=np.ones((4, 2)))


def test_gradients_reach_points_weights_and_features():
    points = torch.from_numpy(cloud()).requires_grad_()
    weights = torch.ones(6, dtype=torch.float64, requires_grad=True)
    features = torch.ones(6, 2, dtype=torch.float64, requires_grad=True)
    space = Space.from_points(points, weights=weights, features=features).scaled("mean")
    batch = Space.stack([space, Space.from_points(points[:3], features=features[:3])])
    total = batch[0].metric.apply(batch[0].weights[:, None])[0].sum() + batch[1].features.square().sum()
    for gradient in torch.autograd.grad(total, (points, weights, features)):
        assert torch.isfinite(gradient).all()
        assert gradient.abs().sum() > 0


def test_constructors_through_scipy_refuse_tensors_with_gradients():
    points = torch.from_numpy(cloud()).requires_grad_()
    with pytest.raises(InputError, match=r"'cityblock' cannot carry gradients.*euclidean or sqeuclidean"):
        Space.from_points(points, metric="cityblock")
    with pytest.raises(InputError, match="from_knn cannot carry gradients"):
        Space.from_knn(points, k=3)
    with pytest.raises(InputError, match="from_mesh cannot carry gradients"):
        Space.from_mesh(points, [[0, 1, 2]])
    assert Space.from_distances(torch.cdist(points, points).detach().requires_grad_()).metric.dense().requires_grad


@pytest.mark.parametrize("scale_name", ["max", "mean"])
@given(n=st.integers(2, 6), mass=st.floats(1e-6, 1e6), unit=st.sampled_from([1e-8, 1.0, 1e8]))
def test_scaled(scale_name, n, mass, unit):
    law = np.random.default_rng(n).dirichlet(np.ones(n))
    space = Space.from_points(unit * cloud(n), weights=mass * law).scaled(scale_name)
    matrix = space.metric.dense().numpy()
    assert (matrix.max() if scale_name == "max" else law @ matrix @ law) == pytest.approx(1, rel=1e-12)
    assert np.array_equal(space.points, unit * cloud(n))


def test_scaled_leaves_spaces_without_extent_alone():
    for space in (Space.from_points([[1.0, 2.0]]), Space.from_points(np.ones((3, 2)))):
        for scale_name in ("max", "mean"):
            assert torch.equal(space.scaled(scale_name).metric.dense(), space.metric.dense())
    tiny = Space.from_points(np.array([[0.0], [5e-324]]), metric="cityblock").scaled("max")
    assert torch.isfinite(tiny.metric.dense()).all()


def test_scaled_goes_item_by_item_and_ignores_padding():
    parts = [Space.from_points(10.0**k * cloud(n)) for k, n in enumerate((3, 5, 1))]
    for scale_name in ("max", "mean"):
        batch = Space.stack(parts).scaled(scale_name)
        for item, part in zip(batch, parts, strict=True):
            torch.testing.assert_close(item.metric.dense(), part.scaled(scale_name).metric.dense())


def test_scaled_refusals():
    with pytest.raises(InputError, match="'max', 'mean', got 'median'"):
        Space.from_points(cloud()).scaled("median")
    negative = Space.from_matrix([[-1.0, 0.0], [0.0, -1.0]])
    with pytest.raises(InputError, match=r"mean of the matrix, to scale by it, must be nonnegative, got -0.5"):
        negative.scaled("mean")
    assert negative.scaled("max").metric.dense()[0, 0] == -1


def test_to_moves_every_part():
    space = Space.from_points(cloud(), features=cloud(d=2)).to(torch.float32)
    parts = (space.metric.dense(), space.weight_tensor, space.feature_tensor, space.point_tensor)
    assert {part.dtype for part in parts} == {torch.float32}
    assert space.to("cpu").device.type == "cpu"
    assert space.to(torch.device("meta")).metric.device.type == "meta"
    with pytest.raises(InputError, match="float32 or float64, got float16"):
        space.to(torch.float16)


def test_to_takes_the_names_of_dtypes():
    space = Space.from_points(cloud())
    assert space.to("float32").dtype == torch.float32
    assert space.to("float32").to("float64").dtype == torch.float64


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_to_refuses_a_device_that_is_not_there():
    with pytest.raises(InputError, match=r"float64 or a device, got 'cuda'"):
        Space.from_points(cloud()).to("cuda")


@pytest.mark.parametrize("target", [None, "nosuch", "float16", 1.5, [], "privateuseone"])
def test_to_refuses_other_arguments(target):
    with pytest.raises(InputError, match=r"to\(\) must be given float32, float64 or a device, got") as caught:
        Space.from_points(cloud()).to(target)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (Space.from_points(cloud(200)), "Space(n=200, mass=1, float64, points in R^3)"),
        (
            Space.from_distances(distances().astype(np.float32), features=cloud(d=2, dtype=np.float32)),
            "Space(n=6, mass=1, float32, features in R^2)",
        ),
        (
            Space.stack([Space.from_matrix(np.eye(n), weights=np.ones(n)) for n in (2, 8, 5)]),
            "Space(batch of 3, n ≤ 8, mass 2 to 8, float64)",
        ),
    ],
)
def test_repr(space, text):
    assert repr(space) == text


# --- batches ---


def test_a_leading_dimension_is_a_batch():
    points = np.stack([cloud(seed=0), cloud(seed=1)])
    space = Space.from_points(points, weights=np.ones((2, 6)), features=points[..., :1])
    assert (len(space), space.sizes, space.batched, space.metric.batched) == (2, (6, 6), True, True)
    assert space.mass.tolist() == [6.0, 6.0]
    for i in range(2):
        alone = Space.from_points(points[i])
        torch.testing.assert_close(space[i].metric.dense(), alone.metric.dense())
        assert np.array_equal(space[i].points, alone.points)


def test_parts_without_a_batch_dimension_are_shared():
    points = np.stack([cloud(seed=0), cloud(seed=1)])
    shared_weights = Space.from_points(points, weights=np.arange(1.0, 7), features=cloud(d=2))
    assert shared_weights.weights.shape == (2, 6)
    assert shared_weights.features.shape == (2, 6, 2)
    shared_metric = Space.from_points(points[0], weights=np.ones((3, 6)))
    assert (len(shared_metric), shared_metric.metric.batched, shared_metric.points.shape) == (
        3,
        False,
        (3, 6, 3),
    )
    assert shared_metric.take(torch.tensor([1])).metric is shared_metric.metric
    assert shared_metric[2].metric.shape == (6, 6)


def test_one_space_has_no_length_and_no_items():
    space = Space.from_points(cloud())
    with pytest.raises(InputError, match=r"len\(\) counts batch items, got one space"):
        len(space)
    with pytest.raises(InputError, match="must index a batch, got one space"):
        space[0]
    assert space  # bool() does not call len()
    batch = Space.stack([space])
    for i in (1, -2):
        with pytest.raises(IndexError):
            batch[i]
    with pytest.raises(TypeError):
        batch["a"]


# --- bad input: errors name the argument, what was given and what was expected ---

BAD_NUMBERS = {
    "strings": lambda a: a.astype(str),
    "complex": lambda a: a.astype(complex),
    "object": lambda a: a.astype(object),
    "bool": lambda a: a.astype(bool),
    "half": lambda a: a.astype(np.float16),
    "torch half": lambda a: torch.from_numpy(a).half(),
    "torch bool": lambda a: torch.from_numpy(a) > 0,
    "torch complex": lambda a: torch.from_numpy(a) * 1j,
    "ragged": lambda a: [*a.tolist(), [[]]],
    "none": lambda a: [None] * len(a),
    "empty": lambda a: a[:0],
    "scalar": lambda a: a.flat[0],
    "too deep": lambda a: a[None, None, None],
    "nan": lambda a: np.where(np.arange(a.size).reshape(a.shape) == a.size - 2, np.nan, a),
    "inf": lambda a: np.where(np.arange(a.size).reshape(a.shape) == a.size - 2, -np.inf, a),
}

GOOD_DATA = {
    "points": (cloud(), Space.from_points),
    "distances": (distances(), Space.from_distances),
    "matrix": (distances(), Space.from_matrix),
    "points of knn": (cloud(), lambda p: Space.from_knn(p, k=3)),
    "vertices": (cloud(), lambda v: Space.from_mesh(v, [[0, 1, 2], [2, 3, 4], [3, 4, 5]])),
    "weights": (np.ones(6), lambda w: Space.from_points(cloud(), weights=w)),
    "features": (np.ones((6, 2)), lambda f: Space.from_distances(distances(), features=f)),
}


def check_refused(match, make, *args, **kwargs):
    """Check that a call raises an InputError of one line that matches."""
    with pytest.raises(InputError, match=match) as caught:
        make(*args, **kwargs)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("corrupt", BAD_NUMBERS.values(), ids=BAD_NUMBERS.keys())
@pytest.mark.parametrize(("data", "make"), GOOD_DATA.values(), ids=GOOD_DATA.keys())
def test_bad_arrays_are_refused_everywhere(data, make, corrupt):
    make(data)
    check_refused("must .*got", make, corrupt(data))


@given(
    data=st.data(),
    bad=st.sampled_from([np.nan, np.inf, -np.inf]),
    name=st.sampled_from(sorted(GOOD_DATA)),
)
def test_one_bad_entry_anywhere_is_found(data, bad, name):
    good, make = GOOD_DATA[name]
    corrupted = good.copy()
    corrupted.flat[data.draw(st.integers(0, good.size - 1))] = bad
    check_refused("must be finite, got (nan|-?inf)", make, corrupted)


@given(weights=arrays(np.float64, 6, elements=st.floats(-1, 1)))
def test_weights_are_nonnegative_with_mass(weights):
    if (weights < 0).any():
        check_refused("weights must be nonnegative, got -", Space.from_points, cloud(), weights=weights)
    elif not weights.any():
        check_refused(
            "weights must have positive total mass, got all zero", Space.from_points, cloud(), weights=weights
        )
    else:
        assert np.array_equal(Space.from_points(cloud(), weights=weights).weights, weights)


@given(i=st.integers(0, 5), j=st.integers(0, 5), change=st.sampled_from([1e-3, 1.0, -100.0]))
def test_one_changed_distance_is_found(i, j, change):
    corrupted = distances()
    corrupted[i, j] += change
    check_refused(
        "distances must (be symmetric|be nonnegative|have a zero diagonal), got", Space.from_distances, corrupted
    )
    if i != j:
        check_refused("matrix must be symmetric, got", Space.from_matrix, corrupted)
        corrupted[j, i] += change
        if change < 0:
            check_refused("distances must be nonnegative, got -", Space.from_distances, corrupted)


BATCH = np.stack([cloud(seed=0), cloud(seed=1)])

HOLED = np.array([[1.0] * 6, [0.0] * 6])
LONG = scipy.sparse.csr_array(np.diag([1e308, 1e308], 1) + np.diag([1e308, 1e308], -1))
META = torch.ones(6, dtype=torch.float64, device="meta")

MISFITS = [
    (r"points must have shape \(n, d\) or \(B, n, d\), got \(6,\)", Space.from_points, np.ones(6), {}),
    ("points must not be empty", Space.from_points, np.ones((3, 0)), {}),
    (r"distances must be square.*got \(6, 5\)", Space.from_distances, distances()[:, :5], {}),
    (r"weights must have shape \(..., 6\), got \(5,\)", Space.from_points, cloud(), {"weights": np.ones(5)}),
    (r"weights .* 6\), got \(2, 7\)", Space.from_points, BATCH, {"weights": np.ones((2, 7))}),
    (r"features .* 6, d\), got \(5, 2\)", Space.from_points, cloud(), {"features": np.ones((5, 2))}),
    (r"features must have shape \(6, d\)", Space.from_points, cloud(), {"features": np.ones(6)}),
    ("equal, got distances 2, weights 3", Space.from_points, BATCH, {"weights": np.ones((3, 6))}),
    ("equal, got distances 2, features 3", Space.from_points, BATCH, {"features": np.ones((3, 6, 1))}),
    (r"for a batch use Space.stack, got \(2, 6, 3\)", Space.from_knn, BATCH, {}),
    ("positive total mass, got all zero in batch item 1", Space.from_points, BATCH, {"weights": HOLED}),
    ("total mass of the weights must be finite", Space.from_points, cloud(), {"weights": [1e308] * 6}),
    ("distances must hold real numbers", Space.from_distances, scipy.sparse.csr_array(distances()), {}),
    ("weights must be float64 .* float32", Space.from_points, cloud(), {"weights": np.ones(6, np.float32)}),
    ("features must be float32 .* float64", Space.from_points, torch.ones(6, 2), {"features": cloud()}),
    ("weights must be on cpu like the rest, got meta", Space.from_points, cloud(), {"weights": META}),
    ("distances between the points must be finite, got inf", Space.from_knn, [[0], [1e200]], {"k": 1}),
    ("distances must be finite, got inf", Space.from_graph, LONG, {}),
    ("must be undirected", Space.from_graph, networkx.DiGraph([(0, 1)]), {}),
    ("components of sizes 3, 1", Space.from_graph, networkx.Graph([(0, 1), (1, 2), (3, 3)]), {}),
]


@pytest.mark.parametrize(("match", "make", "data", "options"), MISFITS, ids=[row[0] for row in MISFITS])
def test_arrays_of_unequal_sizes_are_refused(match, make, data, options):
    check_refused(match, make, data, **options)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_gives_the_same_space():
    points = torch.from_numpy(np.stack([cloud(50), cloud(50, seed=1)]))
    on_cpu = Space.from_points(points)
    leaf = points.cuda().requires_grad_()
    from_leaf = Space.from_points(leaf)
    assert from_leaf.device.type == "cuda"
    matrix = from_leaf.metric.dense()
    torch.testing.assert_close(matrix.detach().cpu(), on_cpu.metric.dense())
    assert torch.equal(matrix, matrix.mT)
    assert not torch.diagonal(matrix, dim1=1, dim2=2).any()
    assert torch.isfinite(torch.autograd.grad(matrix.sum(), leaf)[0]).all()
    assert Space.from_points(points.cuda(), weights=np.ones(50)).weights.device.type == "cuda"
    assert Space.from_points(points.cuda(), metric="cityblock").device.type == "cuda"
    check_refused("weights must be on cuda:0", Space.from_points, points.cuda(), weights=torch.ones(50).double())
    on_cuda = Space.stack([on_cpu[0], on_cpu[1]]).to("cuda")
    assert on_cuda.numpy is False
    torch.testing.assert_close(on_cuda.scaled("mean").metric.dense().cpu(), on_cpu.scaled("mean").metric.dense())


def test_numpy_in_numpy_out():
    points, weights = cloud(), np.arange(6.0)
    space = Space.from_points(points, weights=weights, features=points[:, :1])
    assert all(type(part) is np.ndarray for part in (space.weights, space.points, space.features))
    assert type(space.mass) is float
    space.weights[:] = 7.0  # a copy: the space does not change
    assert space.mass == weights.sum()
    batch = Space.stack([space, space])
    assert type(batch.mass) is np.ndarray
    assert type(Space.from_points(torch.from_numpy(points)).weights) is torch.Tensor


def test_distances_are_of_the_kind_of_the_input():
    points = np.random.default_rng(0).random((2, 5, 3))
    for metric in ("euclidean", "sqeuclidean"):
        expected = np.stack([cdist(cloud, cloud, metric) for cloud in points])
        batch, tensors = (Space.from_points(p, metric=metric) for p in (points, torch.tensor(points)))
        assert isinstance(batch.distances, np.ndarray)
        np.testing.assert_allclose(batch.distances, expected, atol=1e-12)
        np.testing.assert_array_equal(batch[1].distances, batch.distances[1])
        assert torch.equal(tensors.distances, tensors.metric.dense())
    space = Space.from_points(points[0])
    space.distances[:] = 0.0  # a copy: the space does not change
    assert space.distances[0, 1] > 0
    leaf = torch.tensor(points[0], requires_grad=True)
    assert Space.from_points(leaf).distances.requires_grad


# -- selection of items --------------------------------------------------------------------------------------


def uneven_batch():
    """Three spaces of 4, 6 and 5 points."""
    return Space.stack([Space.from_points(cloud(n)) for n in (4, 6, 5)])


@pytest.mark.parametrize("index", [[0, 2], np.array([0, 2]), torch.tensor([0, 2]), [0, -1], [True, False, True],
                                   np.array([True, False, True]), torch.tensor([True, False, True])], ids=str)  # fmt: skip
def test_take_accepts_lists_arrays_and_masks(index):
    batch = uneven_batch()
    chosen = batch.take(index)
    assert chosen.sizes == (4, 5)
    assert chosen.weights.shape == (2, 6)
    for k, i in enumerate((0, 2)):
        assert np.array_equal(chosen[k].distances, batch[i].distances)
        assert np.array_equal(chosen[k].points, batch[i].points)


@pytest.mark.parametrize("index", [np.ones(3), [0.0, 1.0], torch.ones(3), [[0, 1]], torch.tensor([[0, 1]]), [3], [-4],
                                   1, [], np.zeros(0, int), [False] * 3, [True, False], "ab", None], ids=str)  # fmt: skip
def test_take_refuses_values_that_are_no_index(index):
    for batch in (uneven_batch(), Space.from_points(np.zeros((3, 5, 2)))):
        assert_refused(batch.take, index, match="index must")


@pytest.mark.parametrize("index", [[0, 2], np.arange(3), torch.tensor([True, False]), 7, None], ids=str)
def test_take_refuses_one_space_and_names_the_way_to_take_points(index):
    assert_refused(
        Space.from_points(cloud()).take, index, match=r"take must be .* a batch, got one space and the index"
    )
    assert_refused(Space.from_points(cloud()).take, index, match=r"Space.from_points\(points\[index\], weights=")


@pytest.mark.parametrize("value", [np.ones(2), np.eye(2), np.zeros(0), torch.eye(2), None, 3], ids=str)
def test_names_of_metrics_and_scales_are_strings(value):
    assert_refused(Space.from_points, cloud(), metric=value, match="metric must be")
    assert_refused(Space.from_points, cloud(), metric=value, tol=0.1, match="metric must be")
    assert_refused(Space.from_points(cloud()).scaled, value, match="how must be one of")
