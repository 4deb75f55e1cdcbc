"""Files: saved results are loaded unchanged, damaged files are refused, files of earlier versions are read."""

import os
import zipfile

import numpy as np
import pytest
import torch

import ugw
from oracles.plans import STREAMING
from oracles.results import items_of, solve
from oracles.spaces import pair
from ugw.errors import InputError
from ugw.results.io import read_npz
from ugw.results.result import Result

NEW_TO_OLD = {
    "lift_kernel_error": "lift_error",
    "lift_kernel_tolerance": "lift_wanted",
    "lift_value_slack": "lift_slack",
    "lift_kernel_rank": "lift_rank",
    "lift_is_metric": "lift_metric",
    "lift_distance_exponent": "lift_exponent",
    "lift_radius_power": "lift_power",
    "row_sums": "rows_sum",
    "col_sums": "cols_sum",
    "right_product": "moved",
    "terms_unmatched": "terms_apart",
}


def old_name(name):
    """The name of an array in a file of an earlier version."""
    for new, old in NEW_TO_OLD.items():
        name = name.replace(new, old)
    return name.replace("previous_plan", "other").replace("_log_plan_", "_log_")


@pytest.mark.parametrize("kind", ["stored", "streaming", "conic", "partial", "batch"])
def test_files_of_earlier_versions_load(kind, tmp_path):
    x, y = pair(7, 9, metric="sqeuclidean")
    result = {
        "stored": lambda: ugw.solve(x, y),
        "streaming": lambda: ugw.solve(x, y, solver=STREAMING),
        "conic": lambda: ugw.solve_conic(x, y),
        "partial": lambda: ugw.solve(x, y, rho=ugw.TV(0.3)),
        "batch": lambda: ugw.solve(ugw.Space.stack([x, y]), ugw.Space.stack([y, x])),
    }[kind]()
    result.save(tmp_path / "new.npz")
    arrays = {old_name(name): array for name, array in read_npz(tmp_path / "new.npz").items()}
    for name in ("parameters", "n_iter_search", "backend"):
        del arrays[name]
    np.savez(tmp_path / "old.npz", **arrays)
    loaded = type(result).load(tmp_path / "old.npz")
    assert repr(loaded) == repr(result)
    assert loaded.parameters == {}
    assert loaded.n_iter_search is None
    assert loaded.backend is None
    assert "backend" not in loaded.summary()
    plans = [r.plan if kind != "streaming" else r.plan.dense() for r in (loaded, result)]
    np.testing.assert_array_equal(*plans)
    if kind == "conic":
        assert (loaded.distance, loaded.is_metric) == (result.distance, result.is_metric)


def test_the_old_name_of_a_conic_term_is_read_and_warns(tmp_path):
    result = ugw.solve_conic(*pair(7, 9, metric="sqeuclidean"))
    result.save(tmp_path / "new.npz")
    arrays = {name.replace("unmatched", "apart"): array for name, array in read_npz(tmp_path / "new.npz").items()}
    np.savez(tmp_path / "old.npz", **arrays)
    loaded = ugw.ConicResult.load(tmp_path / "old.npz")
    assert loaded.terms.unmatched == result.terms.unmatched
    with pytest.warns(DeprecationWarning, match="ConicTerms.unmatched"):
        assert loaded.terms.apart == result.terms.unmatched


def assert_same(one, other):
    """Are two results equal, bit for bit?"""
    assert type(one.plan) is type(other.plan)
    assert one.plan.dtype == other.plan.dtype
    for name in (
        "plan",
        "value",
        "relaxed_value",
        "mass",
        "marginal_error",
        "n_iter",
        "n_iter_search",
        "backend",
        "converged",
    ):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert np.array_equal(one.plan_pair[1], other.plan_pair[1])
    assert one.status == other.status
    assert one.message == other.message
    assert one.sizes == other.sizes
    assert one.terms.as_dict().keys() == other.terms.as_dict().keys()
    for name, term in one.terms.as_dict().items():
        assert np.array_equal(term, getattr(other.terms, name))
    for a, b in zip(items_of(one), items_of(other), strict=True):
        for name in ("objective", "change", "residual", "mass"):
            assert np.array_equal(getattr(a.history, name), getattr(b.history, name))
        try:
            potentials = a.potentials
        except InputError:
            with pytest.raises(InputError):
                _ = b.potentials
        else:
            assert all(np.array_equal(u, v) for u, v in zip(potentials, b.potentials, strict=True))


def test_save_and_load_give_back_the_result(any_result, tmp_path):
    path = tmp_path / "result.npz"
    any_result.save(path)
    assert_same(any_result, Result.load(path))
    assert [p.name for p in tmp_path.iterdir()] == ["result.npz"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_save_and_load_of_tensors(dtype, tmp_path):
    x, y = (ugw.Space.from_points(torch.rand(n, 2, dtype=dtype, generator=torch.manual_seed(n))) for n in (5, 6))
    r = solve(x, y, eps=0.1)
    r.save(str(tmp_path / "r.npz"))
    s = Result.load(str(tmp_path / "r.npz"))
    assert_same(r, s)
    assert s.plan.dtype == dtype


def test_files_hold_no_pickle(any_result, tmp_path):
    any_result.save(tmp_path / "r.npz")
    with np.load(tmp_path / "r.npz", allow_pickle=False) as file:
        assert {"plan", "status", "trace"} <= set(file)
        assert all(file[name].dtype != object for name in file)


def test_errors_of_save_name_the_problem(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileNotFoundError) as caught:
        solve().save(tmp_path / "nodir" / "r.npz")
    assert caught.value.filename == str(tmp_path / "nodir")
    with pytest.raises(IsADirectoryError) as caught:
        solve().save(tmp_path / "folder")
    assert caught.value.filename == str(tmp_path / "folder")


def test_a_saved_file_may_be_read_by_others(tmp_path):
    """As any other new file: the mode that the umask gives."""
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    solve().save(tmp_path / "r.npz")
    assert (tmp_path / "r.npz").stat().st_mode == plain.stat().st_mode


def test_saving_over_a_file_replaces_it_or_leaves_it(tmp_path, monkeypatch):
    path = tmp_path / "r.npz"
    first, second = solve(), solve(eps=0.2)
    first.save(path)

    def write_and_interrupt(file, **arrays):
        file.write(b"half of it")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez_compressed", write_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            second.save(path)
    assert os.listdir(tmp_path) == ["r.npz"]
    assert_same(first, Result.load(path))
    second.save(path)
    assert_same(second, Result.load(path))


def corrupt_files(folder):
    good = folder / "good.npz"
    solve().save(good)
    data = good.read_bytes()
    with np.load(good) as file:
        arrays = dict(file)
    yield "empty", b""
    yield "text", b"this is no archive"
    yield "half", data[: len(data) // 2]
    middle = len(data) // 3
    yield "flipped", data[:middle] + bytes(255 - byte for byte in data[middle : middle + 40]) + data[middle + 40 :]
    other = folder / "other.npz"
    np.savez(other, points=np.zeros(3))
    yield "other npz", other.read_bytes()
    np.save(folder / "plan.npy", np.zeros((2, 2)))
    yield "npy", (folder / "plan.npy").read_bytes()
    np.savez(other, **{name: array for name, array in arrays.items() if name != "numpy"})
    yield "a field missing", other.read_bytes()
    np.savez(other, **(arrays | {"plan": np.array([{}], dtype=object)}))
    yield "pickle", other.read_bytes()
    np.savez(other, **(arrays | {"plan": np.array(["a", "b"])}))
    yield "strings", other.read_bytes()
    np.savez(other, **(arrays | {"plan": np.zeros((1, 2))}))
    yield "a wrong shape", other.read_bytes()
    np.savez(other, **(arrays | {"status": np.array([99])}))
    yield "an unknown status", other.read_bytes()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("plan.npy", b"nonsense")
    yield "a zip of nonsense", other.read_bytes()


def test_a_corrupted_file_is_an_input_error(tmp_path):
    messages = []
    for name, data in corrupt_files(tmp_path):
        path = tmp_path / "bad.npz"
        path.write_bytes(data)
        try:
            Result.load(path)
        except InputError as error:
            assert "bad.npz" in str(error), name
            assert "\n" not in str(error), name
        except Exception as error:
            messages.append(f"{name}: {type(error).__name__}")
        else:
            messages.append(f"{name}: loaded")
    assert messages == []


def test_a_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.npz"):
        Result.load(tmp_path / "nowhere.npz")
    with pytest.raises(InputError):
        Result.load(tmp_path)


def test_a_result_of_an_earlier_version_is_compared_with_a_new_one(tmp_path):
    result = solve()
    arrays = result.to_arrays()
    old = Result.from_arrays(
        {name: array for name, array in arrays.items() if name not in ("n_iter_search", "backend")}
    )
    for better in (old.better(result), result.better(old)):
        assert better.value == result.value
        assert better.n_iter_search is None
        assert better.backend is None
