"""Methods of all public results: converged, check, save, load and the HTML table."""

import numpy as np
import pytest

import ugw
from oracles.errors import assert_refused
from oracles.spaces import pair
from ugw.cli.match import plan_arrays

MAKE = {
    "Result": lambda x, y: ugw.solve(x, y),
    "ConicResult": lambda x, y: ugw.solve_conic(x, y),
    "Debiased": lambda x, y: ugw.debiased(x, y),
    "Barycenter": lambda x, y: ugw.barycenter([x, y], n=4, eps=0.1, solver=ugw.BarycenterMin(tol=0.1)),
    "PairwiseResult": lambda x, y: ugw.pairwise({"a": x, "b": y}),
    "Tightness": lambda x, y: ugw.tightness(x, y),
}


@pytest.fixture(scope="module", params=MAKE)
def result(request):
    return MAKE[request.param](*pair(6, 5, dims=(2, 2)))


def test_converged_and_check(result):
    assert np.all(result.converged)
    assert not hasattr(result.converged, "requires_grad")  # NumPy in, NumPy out
    assert result.check() is result


def test_a_table_for_notebooks(result):
    html = result._repr_html_()
    assert html.startswith("<table")
    assert "converged" in html


def test_save_and_load(result, tmp_path):
    result.save(tmp_path / "r.npz")
    loaded = type(result).load(tmp_path / "r.npz")
    assert repr(loaded) == repr(result)
    assert loaded._repr_html_() == result._repr_html_()
    assert loaded.parameters == result.parameters != {}
    for name in ("value", "values", "masses", "ratio", "ugw", "distances", "shares", "names"):
        if hasattr(type(result), name) or name in vars(result):
            try:
                expected = getattr(result, name)
            except ugw.InputError:
                continue
            assert type(getattr(loaded, name)) is type(expected)
            np.testing.assert_array_equal(getattr(loaded, name), expected)


def test_files_hold_no_pickle(result, tmp_path):
    result.save(tmp_path / "r.npz")
    with np.load(tmp_path / "r.npz", allow_pickle=False) as file:
        assert all(file[name].dtype != object for name in file)


def test_other_files_are_refused(result, tmp_path):
    np.savez(tmp_path / "other.npz", points=np.zeros(3))
    with pytest.raises(ugw.InputError, match=f"other.npz is not a saved {type(result).__name__}"):
        type(result).load(tmp_path / "other.npz")


def test_numpy_in_numpy_out():
    x, y = pair(6, 5, dims=(2, 2))
    debiased = ugw.debiased(x, y)
    assert type(debiased.value) is float
    assert type(debiased.converged) is bool
    batch = ugw.debiased(ugw.Space.stack([x, y]), y, eps=0.1)
    assert type(batch.value) is np.ndarray
    assert type(batch.converged) is np.ndarray
    assert type(ugw.barycenter([x, y], n=3, eps=0.1, solver=ugw.BarycenterMin(tol=0.1)).shares) is np.ndarray


@pytest.mark.parametrize(("saved", "loading"), [("PairwiseResult", ugw.Result), ("Result", ugw.PairwiseResult)])
def test_the_file_of_another_result_is_named(saved, loading, tmp_path):
    MAKE[saved](*pair(6, 5, dims=(2, 2))).save(tmp_path / "r.npz")
    with pytest.raises(ugw.InputError, match=f"not a saved {loading.__name__}: it holds a {saved}"):
        loading.load(tmp_path / "r.npz")


def test_a_file_of_the_command_line_is_named(tmp_path):
    x, y = pair(6, 5, dims=(2, 2))
    np.savez(tmp_path / "plan.npz", **plan_arrays(ugw.solve(x, y)))
    with pytest.raises(ugw.InputError, match=r'`ugw match` wrote it.* init=numpy.load\(path\)\["plan"\]'):
        ugw.Result.load(tmp_path / "plan.npz")
    ugw.solve(x, y, init=np.load(tmp_path / "plan.npz")["plan"])


def test_files_that_are_no_archives(tmp_path):
    (tmp_path / "r.csv").write_text("1,2\n")
    with pytest.raises(ugw.InputError, match=r"r.csv is not an .npz file written by save\(\)$"):
        ugw.Result.load(tmp_path / "r.csv")
    with pytest.raises(ugw.InputError, match=r"^there is no file \S+missing.npz$"):
        ugw.Result.load(tmp_path / "missing.npz")


@pytest.mark.parametrize("path", [None, 3, "", b"r.npz", ["r.npz"]])
def test_paths_are_strings_or_path_objects(result, path):
    assert_refused(result.save, path, match="path must be the path of a file, got")
    assert_refused(type(result).load, path, match="path must be the path of a file, got")


BATCHED = {"Result": ugw.solve, "ConicResult": ugw.solve_conic, "Debiased": ugw.debiased, "Tightness": ugw.tightness}


def parameters(result):
    """The parameters of each solve without `init`, which the better of two solves of a batch may not have."""
    solves = [result.conic, result.unbalanced] if isinstance(result, ugw.Tightness) else [result]
    return [{name: value for name, value in solve.parameters.items() if name != "init"} for solve in solves]


@pytest.mark.parametrize("kind", BATCHED)
def test_batches_have_items(kind):
    solve = BATCHED[kind]
    first, second = (pair(6, 5, dims=(2, 2), seed=seed) for seed in (0, 1))
    rho = np.array([0.5, 2.0])
    batch = solve(ugw.Space.stack([first[0], second[0]]), ugw.Space.stack([first[1], second[1]]), rho=rho)
    assert len(batch) == len(list(batch)) == 2
    for i, (x, y) in enumerate((first, second)):
        alone, item = solve(x, y, rho=rho[i]), batch[i]
        assert type(item) is type(batch[i - 2]) is type(alone)
        for own, expected in zip(parameters(item), parameters(alone), strict=True):
            assert own == expected
            assert own["rho"] == [rho[i], rho[i]]
        value = (lambda r: r.ratio) if kind == "Tightness" else lambda r: r.value
        assert type(value(item)) is type(value(alone)) is float
        assert value(item) == pytest.approx(value(alone), rel=1e-6)
        assert item.converged is True
        assert item.check() is item
        for act in (len, list, lambda r: r[0]):
            with pytest.raises(TypeError, match="not a batch"):
                act(item)
    for i in (2, -3):
        with pytest.raises(IndexError, match=f"a batch of 2 results has no item {i}"):
            batch[i]
    with pytest.raises(TypeError, match="integer index"):
        batch["a"]
    assert bool(batch[0])
