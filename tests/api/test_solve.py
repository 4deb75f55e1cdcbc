"""The front door: invariances of `solve`, kinds of arrays, and the table of bad input."""

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ugw
from oracles import cases
from oracles.cases import label
from oracles.errors import assert_refused
from oracles.spaces import space, weighted_points
from ugw.geometry.space import Space

INF = math.inf
SETTINGS = [
    {"rho": 1.0, "eps": 0.1},
    {"rho": (0.3, 2.0), "eps": 0.1},
    {"rho": INF, "eps": 0.15},
    {"rho": (INF, 0.5), "eps": 0.1},
    {"rho": (0.5, INF), "eps": 0.0},
    {"rho": 1.0, "eps": 0.0},
    {"rho": INF, "eps": 0.0},
]
# All of them, as the items of a batch over one pair of spaces.
RHO = tuple(np.array([s["rho"] if np.isscalar(s["rho"]) else s["rho"][k] for s in SETTINGS]) for k in (0, 1))
EPS = np.array([s["eps"] for s in SETTINGS])
TIGHT = ugw.AlternateMin(tol=1e-10, inner=ugw.Sinkhorn(tol=1e-12))


def pair(**kwargs):
    return space(6, 3, 8, **kwargs), space(7, 2, 108, **kwargs)


def start(seed=2, n=6, m=7):
    return np.random.default_rng(seed).random((n, m)) + 0.1


# --- what changes nothing ---


@pytest.mark.parametrize("init", ["product", "flb", "random", "coarse", "auto"])
def test_permuting_the_points_permutes_the_plan(init):
    (p, a), (q, b) = weighted_points(6, 3, 8), weighted_points(7, 2, 108)
    rng = np.random.default_rng(3)
    rows, cols = rng.permutation(6), rng.permutation(7)
    permuted = Space.from_points(p[rows], weights=a[rows]), Space.from_points(q[cols], weights=b[cols])
    r, s = (ugw.solve(*spaces, rho=RHO, eps=EPS, init=init) for spaces in (pair(), permuted))
    np.testing.assert_allclose(s.value, r.value, rtol=1e-7)
    np.testing.assert_allclose(s.plan, r.plan[:, rows][:, :, cols], atol=1e-6)


@pytest.mark.parametrize("init", ["product", "flb", "random", "coarse", "auto", "best"])
def test_zero_weight_points_do_not_change_the_result(init):
    (p, a), (q, b) = weighted_points(6, 3, 8), weighted_points(7, 2, 108)
    r = ugw.solve(*pair(), rho=RHO, eps=EPS, init=init)
    far = 5.0 * np.random.default_rng(4).random((3, 3))
    x = Space.from_points(np.insert(p, [0, 2, 6], far, axis=0), weights=np.insert(a, [0, 2, 6], 0.0))
    y = Space.from_points(np.vstack([q, 3.0 * q[:2]]), weights=np.r_[b, 0.0, 0.0])
    s = ugw.solve(x, y, rho=RHO, eps=EPS, init=init)
    np.testing.assert_allclose(s.value, r.value, rtol=0, atol=1e-9)
    assert np.array_equal(s.n_iter, r.n_iter)
    present = np.flatnonzero(x.weights)
    np.testing.assert_allclose(s.plan[:, present, :7], r.plan, atol=1e-9)
    assert not s.plan[:, x.weights == 0].any()
    assert not s.plan[:, :, 7:].any()


@pytest.mark.parametrize("init", ["product", "flb", "random", "coarse", "auto", "plan"])
def test_exchanging_the_spaces_transposes_the_plan(init):
    x, y = pair(mass=1.5)
    one, other = (start(), start().T) if init == "plan" else (init, init)
    r = ugw.solve(x, y, rho=RHO, eps=EPS, init=one, solver=TIGHT)
    s = ugw.solve(y, x, rho=RHO[::-1], eps=EPS, init=other, solver=TIGHT)
    np.testing.assert_allclose(s.value, r.value, rtol=1e-8)
    np.testing.assert_allclose(s.plan.transpose(0, 2, 1), r.plan, atol=1e-7)
    np.testing.assert_allclose(s.terms.marginal_a, r.terms.marginal_b, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(s.marginals[0], r.marginals[1], atol=1e-7)


@pytest.mark.parametrize("init", ["random", "coarse", "auto"])
def test_exchanging_isometric_spaces_transposes_the_plan(init):
    """The mean square distances are equal: nothing in the data says which space is the first."""
    (p, a), turn = weighted_points(6, 2, 0), np.array([[0.0, 1.0], [-1.0, 0.0]])
    order = np.array([3, 1, 5, 0, 4, 2])
    x, y = Space.from_points(p, weights=a), Space.from_points((p @ turn)[order], weights=a[order])
    r = ugw.solve(x, y, eps=0.02, init=init, solver=TIGHT)
    s = ugw.solve(y, x, eps=0.02, init=init, solver=TIGHT)
    np.testing.assert_allclose(s.plan.T, r.plan, atol=1e-7)


def test_isometric_copies_give_the_permutation_and_value_0():
    copies, order = cases.copies(8, seed=5)
    permutation = np.zeros((8, 8))
    permutation[order, np.arange(8)] = copies.a[order]
    rho = np.array([1.0, 0.5, INF, INF]), np.array([1.0, 3.0, 1.0, INF])
    r = ugw.solve(copies.x, copies.y, rho=rho, eps=0.0)
    np.testing.assert_allclose(r.value, 0.0, atol=1e-8)
    np.testing.assert_allclose(r.plan, np.broadcast_to(permutation, (4, 8, 8)), atol=1e-5)
    values = [ugw.solve(copies.x, copies.y, rho=rho, eps=eps).value for eps in (0.05, 0.005, 0.0005)]
    assert (values[0] > values[1]).all()
    assert (values[1] > values[2]).all()
    assert (values[2] < 0.005).all()


def test_distances_in_other_units_with_rho_and_eps_scaled_give_the_same_plan():
    (p, a), (q, b), factor = weighted_points(6, 3, 8), weighted_points(7, 2, 108), 7e-3
    r = ugw.solve(*pair(), rho=1.0, eps=0.1)
    s = ugw.solve(
        Space.from_points(factor * p, weights=a),
        Space.from_points(factor * q, weights=b),
        rho=factor**2,
        eps=0.1 * factor**2,
    )
    assert s.value == pytest.approx(factor**2 * r.value, rel=1e-8)
    np.testing.assert_allclose(s.plan, r.plan, atol=1e-8)


@pytest.mark.parametrize("init", ["product", "auto", "random"])
def test_two_homogeneous_at_eps_0(init):
    r = ugw.solve(*pair(), rho=(0.5, 1.5), eps=0.0, init=init)
    s = ugw.solve(*pair(mass=40.0), rho=(0.5, 1.5), eps=0.0, init=init)
    assert s.value == pytest.approx(1600.0 * r.value, rel=1e-8)
    np.testing.assert_allclose(s.plan, 40.0 * r.plan, rtol=1e-6, atol=1e-12)


# --- determinism, and hands off the inputs ---


@pytest.mark.parametrize("init", ["auto", "random", "linear"])
def test_the_same_input_gives_the_same_output_bit_for_bit(init):
    spaces = space(6, 2, 8), space(7, 2, 108)
    r, s = (ugw.solve(*spaces, rho=RHO, eps=EPS, init=init) for _ in range(2))
    assert np.array_equal(r.plan, s.plan)
    assert np.array_equal(r.value, s.value)
    for one, other in zip(r.history, s.history, strict=True):
        assert np.array_equal(one.objective, other.objective)


def test_global_random_states_are_neither_read_nor_changed():
    np.random.seed(1)
    torch.manual_seed(1)
    r = ugw.solve(*pair(), eps=0.15, init="random", solver=ugw.Multistart(n=3))
    draws = np.random.random(), float(torch.rand(()))
    np.random.seed(1)
    torch.manual_seed(1)
    assert draws == (np.random.random(), float(torch.rand(())))
    np.random.seed(2)
    torch.manual_seed(2)
    s = ugw.solve(*pair(), eps=0.15, init="random", solver=ugw.Multistart(n=3))
    assert np.array_equal(r.plan, s.plan)


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
def test_inputs_are_not_modified():
    (p, a), (q, b) = weighted_points(6, 3, 8), weighted_points(7, 2, 108)
    d = np.linalg.norm(p[:, None] - p[None], axis=-1)
    cost, plan = start(5), start()
    held = (p, a, q, b, d, cost, plan)
    before = [array.copy() for array in held]
    x, y = Space.from_distances(d, weights=a), Space.from_points(q, weights=b)
    for init in (plan, "auto"):
        ugw.solve(x, y, rho=RHO, eps=EPS, init=init, fused=ugw.Fused(0.3, cost), solver=ugw.AlternateMin(max_iter=20))
    ugw.objective(plan, x, y)
    for old, new in zip(before, held, strict=True):
        assert np.array_equal(old, new)


def test_read_only_arrays_are_fine():
    (p, a), (q, b), plan = weighted_points(6, 3, 8), weighted_points(7, 2, 108), start()
    for array in (p, a, q, b, plan):
        array.flags.writeable = False
    x, y = Space.from_points(p, weights=a), Space.from_points(q, weights=b)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ugw.solve(x, y, eps=0.1, init=plan).converged


# --- kinds of arrays ---


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("eps", [0.1, 0.0])
def test_numpy_in_numpy_out(dtype, eps):
    x, y = (Space.from_points(weighted_points(n, d, n)[0].astype(dtype)) for n, d in ((6, 3), (7, 2)))
    r = ugw.solve(x, y, eps=eps, init="product")
    for array in (r.plan, *r.plan_pair, *r.marginals, *(r.potentials if eps else ())):
        assert isinstance(array, np.ndarray)
        assert array.dtype == dtype
    for number in (r.value, r.mass, r.gap, r.relaxed_value, r.marginal_error, *r.terms.as_dict().values()):
        assert type(number) is float
    assert type(r.converged) is bool
    assert type(r.n_iter) is int
    assert type(r.status) is ugw.Status


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("eps", [0.1, 0.0])
def test_torch_in_torch_out(dtype, eps):
    x, y = (Space.from_points(torch.tensor(weighted_points(n, d, n)[0], dtype=dtype)) for n, d in ((6, 3), (7, 2)))
    r = ugw.solve(x, y, eps=eps, init="product")
    for tensor in (r.plan, *r.plan_pair, *r.marginals, *(r.potentials if eps else ())):
        assert isinstance(tensor, torch.Tensor)
        assert tensor.dtype == dtype
        assert tensor.device == x.device
        assert not tensor.requires_grad
    for number in (r.value, r.mass, r.gap, r.relaxed_value, *r.terms.as_dict().values()):
        assert isinstance(number, torch.Tensor)
        assert number.shape == ()
    assert type(r.converged) is bool
    assert type(r.n_iter) is int


def test_torch_and_numpy_give_the_same_numbers():
    (p, a), (q, b) = weighted_points(6, 3, 8), weighted_points(7, 2, 108)
    r = ugw.solve(Space.from_points(p, weights=a), Space.from_points(q, weights=b), eps=0.05)
    s = ugw.solve(
        Space.from_points(torch.tensor(p), weights=torch.tensor(a)),
        Space.from_points(torch.tensor(q), weights=torch.tensor(b)),
        eps=0.05,
    )
    assert np.array_equal(r.plan, s.plan.numpy())
    assert r.value == float(s.value)


def test_spaces_that_require_gradients_are_solved_without():
    points = torch.tensor(weighted_points(6, 3)[0], requires_grad=True)
    r = ugw.solve(Space.from_points(points), Space.from_points(torch.tensor(weighted_points(7, 2)[0])), eps=0.1)
    assert not r.plan.requires_grad
    assert points.grad is None


def test_the_result_does_not_change_when_its_arrays_are_written_to():
    r = ugw.solve(*pair(), eps=0.1, init="product")
    value, mass = r.value, r.mass
    r.plan[:] = 0.0
    r.marginals[0][:] = 0.0
    assert r.mass == mass
    assert r.value == value


# --- fused ---


def test_alpha_0_equals_unfused():
    r = ugw.solve(*pair(), rho=RHO, eps=EPS, init="product")
    s = ugw.solve(*pair(), rho=RHO, eps=EPS, init="product", fused=ugw.Fused(0.0, start()))
    np.testing.assert_allclose(s.value, r.value, rtol=1e-9)
    np.testing.assert_allclose(s.plan, r.plan, atol=1e-9)
    assert not s.terms.linear.any()


def test_the_cost_of_features_equals_the_cost_given():
    u, v = np.random.default_rng(0).normal(size=(6, 2)), np.random.default_rng(1).normal(size=(7, 2))
    cost = ((u[:, None] - v[None]) ** 2).sum(-1)
    x, y = space(6, 3, 8, features=u), space(7, 2, 108, features=v)
    quick = ugw.AlternateMin(max_iter=100)  # and Frank-Wolfe where both sides are hard
    r = ugw.solve(x, y, rho=RHO, eps=EPS, fused=ugw.Fused(0.2), init="product", solver=quick)
    s = ugw.solve(*pair(), rho=RHO, eps=EPS, fused=ugw.Fused(0.2, cost), init="product", solver=quick)
    np.testing.assert_allclose(r.value, s.value, rtol=1e-9)
    np.testing.assert_allclose(r.plan, s.plan, atol=1e-9)
    np.testing.assert_allclose(r.terms.linear, 0.2 * (cost * r.plan).sum((1, 2)), rtol=1e-9)


def test_features_are_ignored_unless_the_problem_is_fused():
    x, y = space(6, 3, 8, features=np.eye(6)[:, :2]), space(7, 2, 108, features=np.eye(7)[:, :2])
    assert ugw.solve(x, y, eps=0.2, init="flb").value == ugw.solve(*pair(), eps=0.2, init="flb").value


def test_a_given_cost_overrides_the_features():
    x, y = space(6, 3, 8, features=np.eye(6)[:, :2]), space(7, 2, 108, features=np.eye(7)[:, :2])
    cost = start(8)
    r = ugw.solve(x, y, eps=0.2, fused=ugw.Fused(0.5, cost), init="product")
    assert r.value == ugw.solve(*pair(), eps=0.2, fused=ugw.Fused(0.5, cost), init="product").value


# --- warnings ---


def test_an_unconverged_solve_warns_once_at_the_callers_line():
    for init in ("product", "auto"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            r = ugw.solve(*pair(), eps=0.001, init=init, solver=ugw.AlternateMin(max_iter=1))
        assert [w.category for w in caught] == [ugw.ConvergenceWarning]
        assert caught[0].filename == __file__
        assert str(caught[0].message) == r.message


def test_a_batch_warns_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        r = ugw.solve(*pair(), eps=np.array([0.01, 0.02, 0.03]), init="product", solver=ugw.AlternateMin(max_iter=2))
    assert len(caught) == 1
    assert "3 of 3" in str(caught[0].message)
    assert len(r) == 3


def test_a_converged_solve_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ugw.solve(*pair(), eps=0.1)


# --- the table of bad input: before any work, one line, what, got, expected ---


@pytest.fixture
def refuse_to_solve(monkeypatch):
    """Fail if a solver takes a step."""

    def work(*args, **kwargs):
        raise AssertionError("work was done before the input was refused")

    monkeypatch.setattr("ugw.solvers.loop.iterate", work)
    monkeypatch.setattr("ugw.solvers.alternating.iterate_compiled", work)
    monkeypatch.setattr("ugw.solvers.alternating.run_compiled", work)


BAD_RHO = [
    0, 0.0, -1, -0.5, math.nan, -INF, "1", "inf", True, None, 1j, [], np.array([[1.0]]), np.array([1.0, 0.0]), np.array([]),
    (1.0, 2.0, 3.0), (1.0,), (), (1.0, 0.0), (math.nan, 1.0), (1.0, None), (1.0, True), (1.0, np.array([[1.0]])), [1.0, "2"],
    np.array(["1"]), np.array([True]), np.array(1 + 1j), object(), {"rho": 1.0}, ugw.KL, torch.tensor([True]),
]  # fmt: skip
BAD_EPS = [
    -1e-9, -1, math.nan, INF, -INF, "0.1", True, None, 1j, [], np.array([[0.1]]), np.array([0.1, -0.1]), np.array([math.nan]),
    np.array(["a"]), object(), ugw.relative, torch.tensor(True),
]  # fmt: skip


@pytest.mark.usefixtures("refuse_to_solve")
@pytest.mark.parametrize("rho", BAD_RHO, ids=label)
def test_bad_rho(rho):
    assert assert_refused(ugw.solve, *pair(), rho=rho).startswith("rho ")
    assert assert_refused(ugw.objective, start(), *pair(), rho=rho).startswith("rho ")


@pytest.mark.usefixtures("refuse_to_solve")
@pytest.mark.parametrize("eps", BAD_EPS, ids=label)
def test_bad_eps(eps):
    assert assert_refused(ugw.solve, *pair(), eps=eps).startswith("eps ")
    assert assert_refused(ugw.objective, start(), *pair(), eps=eps).startswith("eps ")
    if eps is not None:  # which stands for relative(1e-2) there
        assert assert_refused(ugw.rho_for_mass, *pair(), eps=eps).startswith("eps ")


@pytest.mark.usefixtures("refuse_to_solve")
def test_a_list_of_rhos_is_refused_as_ambiguous():
    """A pair is a tuple, one for each item is an array: a list of two could be either."""
    message = assert_refused(ugw.solve, *pair(), rho=[0.1, 1.0])
    assert "a tuple (first side, second side) or an array (B,), one for each item, got a list of 2" in message
    assert "tuple(rho) or np.array(rho)" in message
    two = Space.stack([space(6, 3), space(6, 3)])
    assert "got a list" in assert_refused(ugw.solve, two, space(7, 2, 108), rho=[0.1, 1.0])
    for options in (
        {"rho": ([0.1, 1.0], 1.0)},
        {"rho": (1.0, (0.1, 1.0))},
        {"eps": [0.1, 0.2]},
        {"eps": (0.1, 0.2)},
        {"fused": ugw.Fused([0.1, 0.2], start())},
    ):
        assert "must be a number or an array (B,), one for each item, got a " in assert_refused(
            ugw.solve, *pair(), **options
        )
    assert_refused(ugw.solve_conic, *pair(), rho=[0.1, 1.0])
    assert_refused(ugw.solve_conic, *pair(), eps=[0.1, 0.2])
    assert_refused(ugw.relative, [0.1, 0.2])
    assert_refused(ugw.KL, [0.1, 0.2])


@given(
    st.one_of(st.floats(max_value=0.0), st.just(math.nan)),
    st.one_of(st.floats(max_value=0.0, exclude_max=True), st.just(math.nan), st.just(INF)),
)
def test_any_number_out_of_range_is_refused(rho, eps):
    x, y = space(2, 1, 0), space(2, 1, 1)
    assert assert_refused(ugw.solve, x, y, rho=rho).startswith("rho must be positive")
    assert assert_refused(ugw.solve, x, y, rho=(1.0, rho)).startswith("rho must be positive")
    assert assert_refused(ugw.solve, x, y, rho=np.array([1.0, 2.0, rho])).endswith("at index 2")
    if eps < 0 or not math.isfinite(eps):
        assert assert_refused(ugw.solve, x, y, eps=eps).startswith("eps must be nonnegative")


@pytest.mark.usefixtures("refuse_to_solve")
@pytest.mark.parametrize(
    "other", [np.eye(3), torch.eye(3), [[0.0, 1.0], [1.0, 0.0]], None, "x.npy", 3, (), [space(6, 3)]]
)
@pytest.mark.parametrize("side", [0, 1])
def test_values_that_are_no_space_are_refused(other, side):
    both = [space(6, 3), space(6, 3)]
    both[side] = other
    for call in (ugw.solve, ugw.rho_for_mass, lambda *spaces: ugw.objective(np.eye(6), *spaces)):
        message = assert_refused(call, *both)
        assert ("first", "second")[side] in message
        assert type(other).__name__ in message
        for constructor in ("from_points", "from_distances", "from_graph", "from_knn", "from_mesh", "from_matrix"):
            assert constructor in message


@pytest.mark.usefixtures("refuse_to_solve")
def test_mixed_dtypes_and_devices():
    x, y = pair()
    message = assert_refused(ugw.solve, x, y.to(torch.float32))
    assert "float64" in message
    assert "float32" in message
    message = assert_refused(ugw.solve, x, y.to("meta"))
    assert "cpu" in message
    assert "meta" in message
    assert "meta" in assert_refused(ugw.solve, x, y, init=torch.tensor(start(), device="meta"))
    assert "float32" in assert_refused(ugw.solve, x, y, fused=ugw.Fused(0.5, start().astype(np.float32)))
    assert "meta" in assert_refused(ugw.solve, x, y, fused=ugw.Fused(0.5, torch.tensor(start(), device="meta")))


@pytest.mark.usefixtures("refuse_to_solve")
@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_both_sides_hard_with_unequal_masses(eps):
    x, y = space(6, 3, 8, mass=1.0), space(7, 2, 108, mass=1.25)
    for rho in (INF, (INF, INF), ugw.Balanced(), (ugw.Balanced(), INF)):
        message = assert_refused(ugw.solve, x, y, rho=rho, eps=eps)
        assert "1.25" in message
        assert "equal masses" in message
    assert "1.25" in assert_refused(ugw.solve, x, y, rho=np.array([1.0, INF, 2.0]), eps=eps)
    batch = Space.stack([x, space(4, 2, 2, mass=1.25)])
    assert "equal masses" in assert_refused(ugw.solve, batch, y, rho=INF, eps=eps)


@pytest.mark.usefixtures("refuse_to_solve")
def test_the_message_shows_enough_digits_of_nearly_equal_masses():
    message = assert_refused(ugw.solve, space(mass=1.0), space(mass=1.0 + 1e-10), rho=INF)
    numbers = [float(word) for word in message.replace(",", " ").split() if word[0].isdigit()]
    assert len(set(numbers)) > 1


def test_masses_equal_up_to_rounding_are_equal():
    points, weights = weighted_points(7, 2, 108)
    y = Space.from_points(points, weights=weights * (1.0 + 1e-15))
    assert ugw.solve(space(6, 3), y, rho=INF, eps=0.2).converged


@pytest.mark.usefixtures("refuse_to_solve")
def test_features_on_one_side_only():
    x, y = space(features=np.eye(6)), space(7, 2, 108)
    for spaces in ((x, y), (y, x)):
        for fused in (None, ugw.Fused(0.5)):
            assert "one side" in assert_refused(ugw.solve, *spaces, fused=fused)


@pytest.mark.usefixtures("refuse_to_solve")
@pytest.mark.parametrize("fused", [None, ugw.Fused(0.5)])
def test_features_of_unequal_width(fused):
    x, y = space(features=np.eye(6)), space(7, 2, 108, features=np.eye(7))
    message = assert_refused(ugw.solve, x, y, fused=fused)
    assert "6" in message
    assert "7" in message


BAD_FUSED = [
    0.5, "features", True, (0.5, None), ugw.Fused, ugw.Fused(0.5), ugw.Fused(-1.0, start()), ugw.Fused(math.nan, start()),
    ugw.Fused(INF, start()), ugw.Fused("a", start()), ugw.Fused(None, start()), ugw.Fused(True, start()), ugw.Fused(1j, start()),
    ugw.Fused(np.array([[0.5]]), start()), ugw.Fused([0.5], start()), ugw.Fused(np.array([]), start()), ugw.Fused(0.5, start().T), ugw.Fused(0.5, start()[0]),
    ugw.Fused(0.5, start()[None, None]), ugw.Fused(0.5, start()[:0]), ugw.Fused(0.5, start() * math.nan),
    ugw.Fused(0.5, start() * INF), ugw.Fused(0.5, start().astype(str)), ugw.Fused(0.5, start() > 0.5), ugw.Fused(0.5, start() + 0j),
    ugw.Fused(0.5, "cost"), ugw.Fused(np.array([0.1, 0.2]), np.stack([start()] * 3)),
]  # fmt: skip


@pytest.mark.usefixtures("refuse_to_solve")
@pytest.mark.parametrize("fused", BAD_FUSED, ids=label)
def test_bad_fused(fused):
    assert_refused(ugw.solve, *pair(), fused=fused)
    assert_refused(ugw.objective, start(), *pair(), fused=fused)


BAD_INIT = [
    "nearest", "Product", "", None, 3, 0.5, True, b"product", ("product",), ["flb"], [], [[1.0]], object(), {"plan": 1},
    start().T, start()[0], start()[:-1], np.stack([start()] * 2), start()[None, None], -start(), start() * math.nan,
    start() * INF, start() * 0.0, start().astype(str), start() > 0.5, start() + 0j, start().astype(object),
    [torch.ones(7)] * 6,
]  # fmt: skip


@pytest.mark.usefixtures("refuse_to_solve")
@pytest.mark.parametrize("init", BAD_INIT, ids=label)
def test_bad_init(init):
    assert assert_refused(ugw.solve, *pair(), init=init).startswith("init must ")


@pytest.mark.usefixtures("refuse_to_solve")
def test_the_error_for_an_unknown_init_lists_the_known_ones():
    message = assert_refused(ugw.solve, *pair(), init="nearest")
    for name in ("auto", "best", "product", "flb", "linear", "random", "coarse"):
        assert name in message


@pytest.mark.usefixtures("refuse_to_solve")
def test_one_negative_entry_is_named_by_its_place():
    plan = start()
    plan[2, 3] = -1e-12
    assert assert_refused(ugw.solve, *pair(), init=plan).endswith("at index (2, 3)")


@pytest.mark.usefixtures("refuse_to_solve")
def test_one_plan_for_items_of_different_sizes():
    x, y = Space.stack([space(6), space(4)]), Space.stack([space(7), space(7)])
    assert "one plan was given for all 2 items" in assert_refused(ugw.solve, x, y, init=start())


@pytest.mark.usefixtures("refuse_to_solve")
@pytest.mark.parametrize("rho", [ugw.relative(0.1), (1.0, ugw.relative(0.1))])
def test_a_relative_rho(rho):
    assert "ugw.relative is for eps only" in assert_refused(ugw.solve, *pair(), rho=rho)


@pytest.mark.parametrize(("rho", "is_small"), [(1e-4, True), (0.1, False)])
def test_a_rho_far_below_the_distortions_is_named(rho, is_small):
    with pytest.warns(ugw.ConvergenceWarning) as caught:
        ugw.solve(*pair(), rho=(rho, INF), eps=0.01, solver=ugw.AlternateMin(max_iter=1, tol=1e-12))
    message = str(caught[0].message)
    assert message.startswith("rho = 0.0001 is small against the mean distortion") == is_small
    assert "iteration limit" in message


@pytest.mark.usefixtures("refuse_to_solve")
@pytest.mark.parametrize("side", [0, 1])
def test_a_plan_with_mass_on_a_point_of_weight_0(side):
    (p, a), (q, b) = weighted_points(6, 3, 8), weighted_points(7, 2, 108)
    (a, b)[side][2] = 0.0
    x, y = Space.from_points(p, weights=a), Space.from_points(q, weights=b)
    message = assert_refused(ugw.solve, x, y, init=start())
    assert "weight 0" in message
    plan = start()
    plan[(2, slice(None)) if side == 0 else (slice(None), 2)] = 0.0
    with pytest.raises(AssertionError, match="work was done"):  # this one is fine
        ugw.solve(x, y, init=plan)


@pytest.mark.usefixtures("refuse_to_solve")
def test_linear_starts_need_points_in_one_space():
    message = assert_refused(ugw.solve, *pair(), init="linear")
    assert "R^3" in message
    assert "R^2" in message
    without = Space.from_distances(space(6, 3).distances)
    for spaces in ((without, space(6, 3)), (space(6, 3), without), (without, without)):
        assert "from_points" in assert_refused(ugw.solve, *spaces, init="linear")
    ragged = Space.stack([space(5, 2, 0), space(6, 3, 1)])  # which has no points
    assert "points" in assert_refused(ugw.solve, ragged, space(5, 2, 0), init="linear")


@pytest.mark.usefixtures("refuse_to_solve")
def test_batch_shapes_that_do_not_match():
    two, three = Space.stack([space(6, 3), space(5)]), Space.stack([space(7, 2, 108)] * 3)
    y = space(7, 2, 108)
    for call in (
        lambda: ugw.solve(two, three),
        lambda: ugw.solve(two, y, rho=np.array([1.0, 2.0, 3.0])),
        lambda: ugw.solve(two, y, rho=(np.ones(2), np.ones(3))),
        lambda: ugw.solve(two, y, eps=np.array([0.1, 0.2, 0.3])),
        lambda: ugw.solve(two, y, eps=ugw.relative(np.array([0.1, 0.2, 0.3]))),
        lambda: ugw.solve(two, y, fused=ugw.Fused(np.array([0.1, 0.2, 0.3]), start())),
        lambda: ugw.solve(two, y, fused=ugw.Fused(0.1, np.stack([start()] * 3))),
        lambda: ugw.solve(space(6, 3), y, rho=np.array([1.0, 2.0]), eps=np.array([0.1, 0.2, 0.3])),
        lambda: ugw.solve(Space.stack([space(6, 3)]), two),
        lambda: ugw.objective(start(), two, three),
        lambda: ugw.rho_for_mass(two, three),
    ):
        message = assert_refused(call)
        assert message.startswith("batch sizes must agree, got ")
        sizes = {word.strip(",;") for word in message.split()} & {"1", "2", "3"}
        assert len(sizes) == 2
    message = assert_refused(ugw.solve, two, y, init=np.stack([start()] * 3))
    assert "(2, 6, 7)" in message
    assert "(3, 6, 7)" in message


@pytest.mark.usefixtures("refuse_to_solve")
@pytest.mark.parametrize(
    "solver", ["sinkhorn", 3, False, ugw.AlternateMin, ugw.Multistart, ugw.Sinkhorn(), {"tol": 1e-3}]
)
def test_bad_solver(solver):
    message = assert_refused(ugw.solve, *pair(), solver=solver)
    assert message.startswith("solver must be an AlternateMin or a Multistart of one, got ")


def test_everything_after_the_spaces_is_keyword_only():
    for call in (lambda: ugw.solve(*pair(), 1.0), lambda: ugw.solve(*pair(), reg=1.0)):
        with pytest.raises(TypeError):
            call()


def test_the_first_of_several_faults_is_reported_and_it_is_an_input_error():
    for rho, eps, init in itertools.product([-1.0, "x"], [-1.0, None], ["nearest", start().T]):
        assert_refused(ugw.solve, *pair(), rho=rho, eps=eps, init=init)


@pytest.mark.parametrize(
    "options",
    [{}, {"rho": math.inf}, {"rho": (math.inf, 0.1)}, {"fused": ugw.Fused(0.3)}, {"rho": math.inf, "eps": 0.0}],
    ids=label,
)
def test_small_float32_problems_are_solved_in_float64(options):
    points = [np.random.default_rng(seed).random((8, 2), dtype=np.float32) for seed in (0, 1)]  # weights 1/8 are exact
    options = {"rho": 0.5, "eps": 1e-4} | options
    r, expected = (
        ugw.solve(*(Space.from_points(p, features=p).to(dtype) for p in points), **options)
        for dtype in ("float32", "float64")
    )
    assert (r.plan.dtype, r.status) == (np.float32, expected.status)
    np.testing.assert_allclose(r.plan, expected.plan, atol=1e-6)
    assert r.value == pytest.approx(expected.value, rel=1e-5)
    if options["eps"]:
        assert {f.dtype for f in r.potentials} == {np.dtype(np.float32)}
    assert r.converged
