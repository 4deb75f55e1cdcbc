"""The loaders of scGEM and SNARE-seq: where they look, what they refuse, and the data themselves where they are."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ugw
from ugw import datasets
from ugw.datasets import coassays, npz_files

REAL = [(datasets.scgem, coassays.SCGEM, (34, 27)), (datasets.snareseq, coassays.SNARESEQ, (19, 10))]


def small_source(tmp_path, **changes):
    """A source of six cells, and its file."""
    rng = np.random.default_rng(0)
    arrays = {"one": rng.random((6, 3), dtype=np.float32), "two": rng.random((6, 2), dtype=np.float32)}
    arrays |= {"y": np.array([1, 1, 2, 2, 2, 1])}
    source = coassays.Source("six.npz", (("one", 3), ("two", 2)), {"a": 3, "b": 3}, npz_files.digest(arrays))
    (tmp_path / "scot").mkdir(parents=True, exist_ok=True)
    np.savez(tmp_path / "scot" / "six.npz", **(arrays | changes))
    return source, arrays


def test_data_are_searched_in_path_then_ugw_data_then_the_cache(empty_data_folders, monkeypatch):
    source, arrays = small_source(empty_data_folders / "given")
    file = empty_data_folders / "given" / "scot" / "six.npz"
    for path in (file, file.parent, empty_data_folders / "given"):
        one, two = coassays.read_coassay(source, path)
        np.testing.assert_array_equal(one.points, arrays["one"])
        np.testing.assert_array_equal(two.points, arrays["two"])
        np.testing.assert_array_equal(one.labels, [0, 0, 1, 1, 1, 0])
    with pytest.raises(ugw.InputError, match="not found"):
        coassays.read_coassay(source, None)
    small_source(empty_data_folders / "cache" / "ugw")
    assert coassays.read_coassay(source, None)[0].points.shape == (6, 3)
    small_source(empty_data_folders / "set", y=np.array([1, 1, 1, 1, 1, 1]))
    monkeypatch.setenv("UGW_DATA", str(empty_data_folders / "set"))
    with pytest.raises(ugw.InputError, match="got \\[6, 0\\]"):  # the folder that is named comes first
        coassays.read_coassay(source, None)


@pytest.mark.parametrize(("load", "source", "_"), REAL)
def test_the_error_says_where_the_data_come_from_and_where_to_put_them(empty_data_folders, load, source, _):
    for path in (None, empty_data_folders / "elsewhere"):
        with pytest.raises(ugw.InputError) as error:
            load(path)
        for message in (
            source.file,
            "github.com/rsinghlab/SCOT",
            "UGW_DATA",
            str(empty_data_folders / "cache" / "ugw" / "scot"),
            "path=",
        ):
            assert message in str(error.value)


def test_other_files_are_refused(empty_data_folders):
    source, arrays = small_source(empty_data_folders)
    file = empty_data_folders / "scot" / "six.npz"
    other = arrays["one"].copy()
    other[3, 1] += 1e-3
    for changes, message in (
        ({"one": arrays["one"][:, :2]}, "one must have shape"),
        ({"one": other}, "must have the checksum"),
        ({"y": arrays["y"][::-1].copy()}, "must have the checksum"),
    ):
        small_source(empty_data_folders, **changes)
        with pytest.raises(ugw.InputError, match=message):
            coassays.read_coassay(source, empty_data_folders)
    small_source(empty_data_folders, one=np.array([None, {}], dtype=object))  # would need pickle
    with pytest.raises(ugw.InputError, match=r"must be an \.npz with arrays one, two and y"):
        coassays.read_coassay(source, empty_data_folders)
    file.write_bytes(b"nothing")
    with pytest.raises(ugw.InputError, match=r"must be an \.npz"):
        coassays.read_coassay(source, empty_data_folders)


def test_packing_does_not_change_the_checksum(empty_data_folders):
    source, arrays = small_source(empty_data_folders)
    wide = {
        name: array.astype(np.float64) if array.dtype.kind == "f" else array.astype(np.int32)
        for name, array in arrays.items()
    }
    np.savez_compressed(empty_data_folders / "scot" / "six.npz", **wide)
    assert coassays.read_coassay(source, empty_data_folders)[0].points.dtype == np.float64
    with pytest.raises(ugw.InputError, match="checksum"):
        coassays.read_coassay(replace(source, sha256="0" * 64), empty_data_folders)


@pytest.mark.skipif(not os.environ.get("UGW_DATA"), reason="UGW_DATA does not name the folder with the data")
@pytest.mark.parametrize(("load", "source", "widths"), REAL)
def test_the_data_themselves(load, source, widths):
    first, second = load()
    assert (first.points.shape[1], second.points.shape[1]) == widths
    assert first.counts == second.counts == source.counts
    assert load(Path(os.environ["UGW_DATA"]) / "scot")[0].points.tolist() == first.points.tolist()
