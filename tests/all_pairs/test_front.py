"""`ugw.pairwise` against a loop over single pairs, method by method, and the properties of its result."""

import itertools
import math

import numpy as np
import pytest
import torch

import ugw
from oracles.pairwise import QUICK, clouds, pairwise_loop
from ugw.results.records import Status

INF = math.inf


def assert_equal_values(values, expected):
    """Check that two arrays agree to 1e-9."""
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-9)


def self_value(x, **options):
    """Return the smaller of the values from the default and from the identity initial plan."""
    return min(ugw.solve(x, x, **options).value, ugw.solve(x, x, init=np.diag(x.weights), **options).value)


def test_ugw_values_are_those_of_solve():
    spaces, options = clouds((5, 9, 7)), {"rho": 0.7, "eps": 0.02}
    d = ugw.pairwise(spaces, **options).check()
    for i, j in itertools.combinations(range(3), 2):
        x, y = sorted((spaces[i], spaces[j]), key=lambda space: -space.n)
        alone = ugw.solve(x, y, **options)
        assert_equal_values(d.values[i, j], alone.value)
        assert d.masses[i, j] == pytest.approx(alone.mass, abs=1e-6)
    assert_equal_values(d.values.diagonal(), [self_value(x, **options) for x in spaces])
    assert (d.values == d.values.T).all()
    assert (d.values.diagonal() > 1e-3).all()  # entropy: not 0


def test_gw_is_balanced():
    spaces = clouds(unit=True)
    d = ugw.pairwise(spaces, method="gw", eps=0.05)
    assert_equal_values(d.values[0, 1], ugw.solve(spaces[1], spaces[0], rho=INF, eps=0.05).value)
    np.testing.assert_allclose(d.masses, 1.0, atol=1e-6)


def test_without_entropy_the_diagonal_is_zero():
    spaces = clouds((4, 5, 6), unit=True)
    for method, options in (("ugw", {"rho": 0.5}), ("gw", {})):
        d = ugw.pairwise(spaces, method=method, eps=0.0, **options)
        assert d.values.diagonal().tolist() == [0.0] * 3
        assert d.n_iter.diagonal().tolist() == [0] * 3
        np.testing.assert_allclose(d.masses.diagonal(), 1.0)
        rho = options.get("rho", INF)
        assert ugw.solve(spaces[2], spaces[2], rho=rho, eps=0.0).value == pytest.approx(0.0, abs=1e-9)
    assert_equal_values(d.distances**2, d.values)


def test_cgw_values_are_those_of_solve_conic():
    spaces = clouds((5, 8, 6))
    d = ugw.pairwise(spaces, method="cgw", rho=0.5).check()
    for i, j in ((1, 0), (2, 0), (1, 2)):  # the larger space first
        assert_equal_values(d.values[i, j], ugw.solve_conic(spaces[i], spaces[j], rho=0.5).value)
    assert (d.values == d.values.T).all()
    assert ugw.solve_conic(spaces[0], spaces[0], rho=0.5).value == pytest.approx(0.0, abs=1e-9)
    assert d.values.diagonal().tolist() == [0.0] * 3
    assert_equal_values(d.distances, np.sqrt(d.values))
    np.testing.assert_allclose(d.masses.diagonal(), [float(x.mass) for x in spaces])
    assert (d.distances[0, 1] <= d.distances[0, 2] + d.distances[2, 1]).all()


def test_debiased_values_are_those_of_debiased():
    spaces, options = clouds((5, 8, 6)), {"rho": 0.6, "eps": 0.05}
    d = ugw.pairwise(spaces, method="debiased", **options).check()
    for i, j in ((1, 0), (2, 0), (1, 2)):  # the larger space first
        assert_equal_values(d.values[i, j], ugw.debiased(spaces[i], spaces[j], **options).value)
    assert_equal_values(d.values, d.values.T)
    assert d.values.diagonal().tolist() == [0.0] * 3
    others = clouds((4, 7), seed=1)
    crossed = ugw.pairwise(spaces[:2], others, method="debiased", **options)
    assert_equal_values(
        crossed.values, pairwise_loop(lambda x, y: ugw.debiased(x, y, **options).value, spaces[:2], others)
    )


def test_self_terms_are_solved_once_for_each_space(monkeypatch):
    from ugw.api import solve as api
    from ugw.learning import value_and_grad

    cross_sizes, self_batches, solve, solve_problem = [], [], api.solve, value_and_grad.solve_problem
    monkeypatch.setattr(api, "solve", lambda x, y, **options: cross_sizes.append(len(x)) or solve(x, y, **options))
    monkeypatch.setattr(
        value_and_grad,
        "solve_problem",
        lambda problem, *args, **options: (
            self_batches.append(problem.batch) or solve_problem(problem, *args, **options)
        ),
    )
    ugw.pairwise(clouds((5, 6, 7, 8)), method=ugw.Method("debiased", init="product"), eps=0.1)
    assert sum(self_batches) == 2 * 4  # from the start and from the identity
    assert sum(cross_sizes) == 6


def test_two_lists():
    xs, ys = clouds((5, 9)), clouds((7, 4, 6), seed=1)
    d = ugw.pairwise(xs, ys, rho=0.5, eps=0.05, names=(["a", "b"], ["p", "q", "r"]))
    assert_equal_values(d.values, pairwise_loop(lambda x, y: ugw.solve(x, y, rho=0.5, eps=0.05).value, xs, ys))
    assert d.values.shape == (2, 3)
    assert d.names == (("a", "b"), ("p", "q", "r"))


def test_unequal_rhos_give_a_matrix_that_is_not_symmetric():
    spaces, options = clouds((5, 7)), {"rho": (0.2, 2.0), "eps": 0.05}
    d = ugw.pairwise(spaces, **options)
    expected = pairwise_loop(lambda x, y: ugw.solve(x, y, **options).value, spaces, spaces)
    np.fill_diagonal(expected, [self_value(x, **options) for x in spaces])
    assert_equal_values(d.values, expected)
    assert np.abs(d.values - d.values.T).max() > 1e-3
    same = ugw.pairwise(spaces, rho=(0.5, ugw.KL(0.5)), eps=0.05).values
    assert_equal_values(same, ugw.pairwise(spaces, rho=0.5, eps=0.05).values)


def test_partial_matching():
    spaces = clouds((4, 5, 6), unit=True)
    for rho in (ugw.TV(0.1), ugw.Mass(0.6)):
        d = ugw.pairwise(spaces, rho=rho)
        assert d.values[0, 1] == pytest.approx(ugw.solve(spaces[1], spaces[0], rho=rho).value, abs=1e-9)
        assert d.masses[2, 2] == pytest.approx(0.6 if isinstance(rho, ugw.Mass) else 1.0)


def test_one_space_is_a_matrix_of_one():
    x = clouds((6,))
    assert ugw.pairwise(x, method=QUICK).values.shape == (1, 1)
    assert ugw.pairwise(x, method="cgw").values.tolist() == [[0.0]]


def test_a_batch_and_a_dictionary_are_lists():
    spaces = clouds((5, 7))
    expected = ugw.pairwise(spaces, method=QUICK).values
    assert_equal_values(ugw.pairwise(ugw.Space.stack(spaces), method=QUICK).values, expected)
    named = ugw.pairwise({"a": spaces[0], "b": spaces[1]}, method=QUICK)
    assert_equal_values(named.values, expected)
    assert named.names == (("a", "b"), ("a", "b"))
    assert_equal_values(ugw.pairwise((s for s in spaces), method=QUICK).values, expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_tensors_in_tensors_out(dtype, tmp_path):
    arrays = clouds((5, 7))
    spaces = [ugw.Space.from_points(s.point_tensor.to(dtype), weights=s.weight_tensor.to(dtype)) for s in arrays]
    d = ugw.pairwise(spaces, method=QUICK, eps=1e-2)
    assert isinstance(d.values, torch.Tensor)
    assert isinstance(d.masses, torch.Tensor)
    assert d.converged.dtype == torch.bool
    assert d.n_iter.dtype == torch.int64
    assert "all converged" in repr(d.check())
    d.save(tmp_path / "d.npz")
    loaded = ugw.PairwiseResult.load(tmp_path / "d.npz")
    assert torch.equal(loaded.n_iter, d.n_iter)
    assert torch.equal(loaded.converged, d.converged)
    atol = 1e-12 if dtype == torch.float64 else 1e-5
    np.testing.assert_allclose(d.values.numpy(), ugw.pairwise(arrays, method=QUICK, eps=1e-2).values, atol=atol)
    points = torch.rand(5, 2, requires_grad=True)
    assert not ugw.pairwise([ugw.Space.from_points(points)], method=QUICK).values.requires_grad


@pytest.mark.parametrize(
    ("method", "rho", "name"),
    [("ugw", 1.0, "AlternateMin"), ("ugw", ugw.TV(0.5), "FrankWolfe"), ("cgw", 1.0, "AlternateMin")],
)
def test_the_parameters_name_the_solver(method, rho, name):
    solver = ugw.pairwise(clouds((4, 5)), method=method, rho=rho).parameters["solver"]
    assert solver["name"] == name
    if name == "AlternateMin":
        assert solver["inner"]["max_iter"] == {"ugw": 50, "cgw": 200}[method]


def test_the_parameters_have_the_form_of_those_of_a_solve():
    spaces = clouds((4, 5), unit=True)
    for rho in (0.5, (0.5, 2.0), ugw.TV(0.3), ugw.Mass(0.4)):
        alone = ugw.solve(*spaces, rho=rho, eps=0.0).parameters
        assert ugw.pairwise(spaces, rho=rho, eps=0.0).parameters == {"method": "ugw", **alone}
    for cone in ("gaussian-hellinger", "partial-transport", ugw.PartialTransport(1.0)):
        alone = ugw.solve_conic(*spaces, cone=cone).parameters
        parameters = ugw.pairwise(spaces, method=ugw.Method("cgw", cone=cone)).parameters
        assert parameters == {"method": "cgw", **alone}
    assert ugw.pairwise(spaces).parameters["eps"] == {"name": "Relative", "share": 0.01}  # another number for each pair


def test_the_default_eps_of_debiased_does_not_depend_on_the_units_of_the_loss():
    method = ugw.Method("debiased", loss=torch.abs)
    values = []
    for unit in (1.0, 1e3):
        spaces = [ugw.Space.from_points(unit * space.points) for space in clouds((5, 7))]
        values.append(ugw.pairwise(spaces, method=method, rho=unit).values / unit)
    assert_equal_values(*values)


def test_a_negative_debiased_value_is_reported(monkeypatch):
    """The status is that of `ugw.debiased`; here the self terms are made too large."""
    from ugw.all_pairs import worker

    inner = worker.solve_self_pairs

    def return_large_values(x, options):
        """Return the columns of the self terms with values of 10."""
        return inner(x, options) | {"value": np.full(len(x), 10.0)}

    monkeypatch.setattr(worker, "solve_self_pairs", return_large_values)
    with pytest.warns(ugw.ConvergenceWarning, match="below 0"):
        d = ugw.pairwise(clouds((5, 7)), method=ugw.Method("debiased", init="product"), eps=0.1)
    assert d.status[0, 1] is Status.NEGATIVE
    assert d.status[0, 0] is Status.CONVERGED


def test_the_progress_bar_counts_pairs(capfd):
    ugw.pairwise(clouds((5, 6, 7)), method=QUICK, eps=0.1, progress=True)
    output = capfd.readouterr().err
    assert "6/6" in output
    assert "pair/s" in output or "s/pair" in output
    assert "left" in output
