"""The loader of Office-Caltech10: where it looks, what it refuses, and the data themselves where they are."""

import os

import numpy as np
import pytest

import ugw
from ugw import datasets
from ugw.datasets import npz_files, office

COUNTS, WIDTHS = (3, 2), {"surf": (6, 2)}


@pytest.fixture
def small_source(monkeypatch, empty_data_folders):
    """A writer of one file of five images of two classes, of the shape of the real ones, and its arrays."""
    rng = np.random.default_rng(0)
    arrays = {"X": rng.random((5, 6), dtype=np.float32), "pca_ref": rng.random((5, 2)), "y": np.array([1, 1, 1, 2, 2])}
    monkeypatch.setattr(office, "COUNTS", {"dslr": COUNTS})
    monkeypatch.setattr(office, "WIDTHS", WIDTHS)
    monkeypatch.setattr(office, "CLASSES", ("backpack", "bike"))
    monkeypatch.setattr(office, "SHA256", {("surf", "dslr"): npz_files.digest(arrays)})

    def write(folder, **changes):
        (folder / "office_caltech10").mkdir(parents=True, exist_ok=True)
        np.savez(folder / "office_caltech10" / "surf_dslr.npz", **(arrays | changes))

    return write, arrays


def test_data_are_searched_in_path_then_ugw_data_then_the_cache(small_source, monkeypatch, tmp_path):
    write, arrays = small_source
    for message in ("surf_dslr.npz", "jindongwang/transferlearning", "UGW_DATA", str(tmp_path / "cache"), "path="):
        with pytest.raises(ugw.InputError, match=message.replace(".", r"\.")):
            datasets.office_caltech10()
    write(tmp_path / "given")
    for path in (tmp_path / "given", tmp_path / "given" / "office_caltech10"):
        (domain,) = datasets.office_caltech10(path).values()
        np.testing.assert_array_equal(domain.points, arrays["X"])
        np.testing.assert_array_equal(domain.reduced, arrays["pca_ref"])
        assert domain.counts == {"backpack": 3, "bike": 2}
    write(tmp_path / "cache" / "ugw")
    assert list(datasets.office_caltech10()) == ["surf_dslr"]
    assert list(datasets.office_caltech10(keys=["surf_dslr"])) == ["surf_dslr"]
    with pytest.raises(ugw.InputError, match="got decaf_amazon"):
        datasets.office_caltech10(keys=["decaf_amazon"])
    monkeypatch.setenv("UGW_DATA", str(tmp_path / "set"))
    write(tmp_path / "set", y=np.array([1, 1, 2, 2, 2]))
    with pytest.raises(ugw.InputError, match=r"got \[2, 3\]"):  # the folder that is named comes first
        datasets.office_caltech10()


def test_other_files_are_refused_in_one_line(small_source, tmp_path):
    write, arrays = small_source
    for changes, message in (
        ({"X": arrays["X"][:, :2]}, "X must have shape"),
        ({"pca_ref": arrays["pca_ref"][:3]}, "pca_ref must have shape"),
        ({"pca_ref": -arrays["pca_ref"]}, "must have the checksum"),
        ({"X": arrays["X"] + np.float32(1e-3)}, "must have the checksum"),
        ({"y": arrays["y"][::-1].copy()}, "must have the checksum"),
        ({"y": arrays["y"] - 1}, "y must be 5 classes"),
        ({"y": arrays["y"] + 0.5}, "y must be 5 classes"),
        ({"X": np.array([None], dtype=object)}, "must be an .npz with arrays X, pca_ref and y"),  # would need pickle
    ):
        write(tmp_path, **changes)
        with pytest.raises(ugw.InputError, match=message) as error:
            datasets.office_caltech10(tmp_path)
        assert "\n" not in str(error.value)
    with pytest.raises(ugw.InputError, match="must be one of surf_dslr, got decaf_caltech"):
        datasets.office_caltech10(tmp_path, keys=["decaf_caltech"])


@pytest.mark.skipif(not os.environ.get("UGW_DATA"), reason="UGW_DATA does not name the folder with the data")
def test_the_data_themselves():
    domains = datasets.office_caltech10()
    images = {"caltech": 1123, "amazon": 958, "webcam": 295, "dslr": 157}
    for name, domain in domains.items():
        features, place = name.split("_")
        assert domain.points.shape == (images[place], {"surf": 800, "decaf": 4096, "mobilenet": 1024}[features])
        # Right singular vectors: orthonormal columns.
        np.testing.assert_allclose(domain.reduced.T @ domain.reduced, np.eye(domain.reduced.shape[1]), atol=1e-6)
    assert {d.counts["backpack"] for d in domains.values()} == {151, 92, 29, 12}
