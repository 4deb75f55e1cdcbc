"""What all public results have in common: converged, check, save, load and an HTML table."""

import numpy as np
import pytest

import ugw
from oracles.spaces import pair

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


def test_files_that_are_no_archives(tmp_path):
    (tmp_path / "r.csv").write_text("1,2\n")
    with pytest.raises(ugw.InputError, match=r"r.csv is not an .npz file written by save\(\)$"):
        ugw.Result.load(tmp_path / "r.csv")
    with pytest.raises(ugw.InputError, match=r"^there is no file \S+missing.npz$"):
        ugw.Result.load(tmp_path / "missing.npz")
