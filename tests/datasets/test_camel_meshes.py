"""The loader of the camels: where it looks, what it refuses, and the data themselves where they are."""

import os

import numpy as np
import pytest

import ugw
from ugw import datasets
from ugw.datasets import camel_meshes as camels
from ugw.datasets import npz_files

NAMES = ["vertices_1", "vertices_2"], ["faces_1", "faces_2"]


@pytest.fixture
def small_source(monkeypatch, empty_data_folders):
    """A writer of two tetrahedra in a file of the shape of the real one, and its arrays."""
    rng = np.random.default_rng(0)
    arrays = {name: rng.random((4, 3), dtype=np.float32) for name in NAMES[0]}
    arrays |= {name: np.array([[0, 1, 2], [0, 2, 3], [0, 3, 1], [1, 3, 2]], dtype=np.int32) for name in NAMES[1]}
    monkeypatch.setattr(camels, "VERTICES", (4, 4))
    monkeypatch.setattr(camels, "FACES", 4)
    monkeypatch.setattr(camels, "SHA256", npz_files.digest(arrays))

    def write(folder, **changes):
        (folder / "shapes").mkdir(parents=True, exist_ok=True)
        np.savez(folder / "shapes" / "camel_gallop.npz", **(arrays | changes))

    return write, arrays


def test_data_are_searched_in_path_then_ugw_data_then_the_cache(small_source, monkeypatch, tmp_path):
    write, arrays = small_source
    write(tmp_path / "given")
    file = tmp_path / "given" / "shapes" / "camel_gallop.npz"
    for path in (file, file.parent, tmp_path / "given"):
        poses = datasets.camels(path)
        assert len(poses) == 2
        for i, pose in enumerate(poses, start=1):
            np.testing.assert_array_equal(pose.vertices, arrays[f"vertices_{i}"])
            np.testing.assert_array_equal(pose.faces, arrays[f"faces_{i}"])
            assert (pose.vertices.dtype, pose.faces.dtype) == (np.float64, np.int64)
    with pytest.raises(ugw.InputError, match="not found"):
        datasets.camels()
    write(tmp_path / "cache" / "ugw")
    assert len(datasets.camels()) == 2
    write(tmp_path / "set", faces_2=arrays["faces_2"][:3])
    monkeypatch.setenv("UGW_DATA", str(tmp_path / "set"))
    with pytest.raises(ugw.InputError, match="faces_2 must be integers of shape"):  # the named folder comes first
        datasets.camels()


def test_the_error_says_where_the_data_come_from_and_where_to_put_them(small_source, tmp_path):
    with pytest.raises(ugw.InputError) as error:
        datasets.camels(tmp_path / "elsewhere")
    place = str(tmp_path / "cache" / "ugw" / "shapes")
    for message in ("camel_gallop.npz", "github.com/RobinMagnet/pyFM", "UGW_DATA", place, "path="):
        assert message in str(error.value)


def test_other_files_are_refused(small_source, tmp_path):
    write, arrays = small_source
    changed_vertices, reversed_face = arrays["vertices_1"].copy(), arrays["faces_2"].copy()
    changed_vertices[2, 1] += 1e-3
    reversed_face[0] = reversed_face[0, ::-1]
    for changes, message in (
        (
            {"vertices_1": arrays["vertices_1"][:3]},
            r"vertices_1 must be floats of shape \(4, 3\), got float32 \(3, 3\)",
        ),
        ({"faces_1": arrays["faces_1"].astype(float)}, "faces_1 must be integers"),
        ({"vertices_1": changed_vertices}, "must have the checksum"),
        ({"faces_2": reversed_face}, "must have the checksum"),
        ({"faces_2": np.array([None, {}], dtype=object)}, r"must be an \.npz with arrays vertices_1, "),  # needs pickle
    ):
        write(tmp_path, **changes)
        with pytest.raises(ugw.InputError, match=message):
            datasets.camels(tmp_path)
    (tmp_path / "shapes" / "camel_gallop.npz").write_bytes(b"nothing")
    with pytest.raises(ugw.InputError, match=r"must be an \.npz"):
        datasets.camels(tmp_path)


def test_packing_does_not_change_the_checksum(small_source, tmp_path):
    write, arrays = small_source
    write(tmp_path, **{name: a.astype(np.float64 if a.dtype.kind == "f" else np.uint16) for name, a in arrays.items()})
    assert len(datasets.camels(tmp_path)) == 2


@pytest.mark.skipif(not os.environ.get("UGW_DATA"), reason="UGW_DATA does not name the folder with the data")
def test_the_data_themselves():
    poses = datasets.camels()
    assert [len(pose.vertices) for pose in poses] == list(camels.VERTICES)
    for pose in poses:
        assert np.array_equal(np.unique(pose.faces), np.arange(len(pose.vertices)))
        space = pose.space(points=3)
        # The head, the tail and the feet are far from each other: the three farthest are nearly as far as any two.
        assert space.metric.dense()[0, 1] > 0.9
