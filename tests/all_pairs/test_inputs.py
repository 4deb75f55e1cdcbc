"""Invalid input to `pairwise` raises a one-line error before any work."""

import math
import os
import sys
from unittest import mock

import numpy as np
import pytest
import torch

import ugw
from oracles.pairwise import QUICK, clouds
from ugw.all_pairs import executor

XS = clouds((4, 5, 6))


def in_float32(space):
    """Return the space in float32."""
    return space.to(torch.float32)


BAD = {
    "nothing": (([],), {}, "spaces must have at least one space, got none"),
    "nothing in the second": ((XS, []), {}, "spaces_y must have at least one space"),
    "one space": ((XS[0],), {}, "spaces must be a list of spaces, got one Space"),
    "an array without dimensions": ((np.array(1.0),), {}, "spaces must be a list of spaces, got ndarray"),
    "names without dimensions": ((XS,), {"names": np.array(1.0)}, "names must be a list"),
    "a word for progress": ((XS,), {"progress": "x"}, "progress must be True or False, got 'x'"),
    "an array for progress": ((XS,), {"progress": np.ones(3)}, "progress must be True or False, got an array"),
    "no list": ((5,), {}, "spaces must be a list of spaces, got int"),
    "arrays": (([np.eye(3)],), {}, r"spaces\[0\] must be a Space, got ndarray"),
    "a batch inside": (([XS[0], ugw.Space.stack(XS)],), {}, r"spaces\[1\] must be one space, got a batch of 3"),
    "dtypes": (([XS[0], in_float32(XS[1])],), {}, r"one dtype, got float64 for spaces\[0\] and float32 for spaces\[1\]"),
    "dtypes of two": ((XS, [in_float32(XS[1])]), {"names": (list("abc"), ["d"])}, "got float64 for 'a' and float32 for 'd'"),
    "devices": (([XS[0], XS[1].to("meta")],), {}, r"one device, got cpu for spaces\[0\] and meta for spaces\[1\]"),
    "features": (([XS[0], *clouds((3,), features=2)],), {}, "one width of features, got none"),
    "names repeat": ((XS,), {"names": ["a", "b", "a"]}, r"names must differ, got 'a' for spaces\[0\] and spaces\[2\]"),
    "too few names": ((XS,), {"names": ["a"]}, "names must be as many as spaces, 3, got 1"),
    "a word as names": ((XS,), {"names": "abc"}, "names must be a list"),
    "names of two": ((XS, XS), {"names": ["a", "b", "c"]}, "names of two lists must be a pair of lists"),
    "names of two words": ((XS, XS), {"names": ("a", "b")}, "names of two lists must be a pair of lists"),
    "names twice": (({"a": XS[0]},), {"names": ["a"]}, "names must be None where spaces is a dictionary"),
    "method": ((XS,), {"method": "wasserstein"}, "method must be one of 'ugw', 'gw', 'debiased', 'cgw'"),
    "rho of gw": ((XS,), {"method": "gw", "rho": 1.0}, "keeps both marginals, rho = inf, got rho=1.0"),
    "masses of gw": ((XS,), {"method": "gw"}, r"equal masses, got .* for spaces\[\d\] and .* for spaces\[\d\]"),
    "masses": ((XS,), {"rho": math.inf, "names": list("abc")}, "equal masses, got .* for '[abc]', which differ by"),
    "mass": ((XS,), {"rho": ugw.Mass(3.0)}, "Mass must be at most that of every space, got 3"),
    "rhos": ((XS,), {"rho": np.array([1.0, 2.0])}, "rho of pairwise must be one number"),
    "negative rho": ((XS,), {"rho": -1.0}, "rho must be positive"),
    "no rho": ((XS,), {"rho": "big"}, "rho of pairwise must"),
    "epses": ((XS,), {"eps": np.array([1.0, 2.0])}, "eps of pairwise must be one number"),
    "negative eps": ((XS,), {"eps": -1.0}, "eps must be nonnegative"),
    "hard cgw": ((XS,), {"method": "cgw", "rho": math.inf}, "rho must be finite for the conic distance"),
    "rhos of debiased": ((XS,), {"method": "debiased", "rho": (1.0, 2.0)}, "one rho for both sides"),
    "TV debiased": ((XS,), {"method": "debiased", "rho": ugw.TV(1.0)}, "needs a rho of KL"),
    "relative debiased": ((XS,), {"method": "debiased", "eps": ugw.relative(0.1)}, "got ugw.relative"),
    "solver": ((XS,), {"solver": "fast"}, "solver must be an AlternateMin"),
    "solver's bar": ((XS,), {"solver": ugw.AlternateMin(progress=True)}, "no progress and no callback"),
    "callback": ((XS,), {"solver": ugw.Multistart(solver=ugw.AlternateMin(callback=print))}, "no progress and no callb"),
    "no features": ((XS,), {"method": ugw.Method("ugw", fused=ugw.Fused(0.5))}, "needs features on both spaces"),
    "no points": (
        ([ugw.Space.from_distances(np.zeros((2, 2)))],), {"method": ugw.Method("ugw", init="linear")}, r"got spaces\[0\] without"
    ),
    "programs": (
        (clouds((61,)),), {"method": ugw.Method("cgw", cone="partial-transport")}, "up to n·m = 3600, got 61 × 61"
    ),
    "a method in the wrong place": ((XS, "cgw"), {}, "spaces_y must be a list of spaces, got str, 'cgw': write method='cgw'"),
    "no name for one": ((XS,), {"names": ["a", None, "b"]}, r"for all spaces or none, got None for spaces\[1\]"),
    "a list of eps": ((XS,), {"eps": [0.1, 0.2]}, "eps of pairwise must be one number for all pairs, got a list"),
    "a checkpoint without a name": ((XS,), {"checkpoint": ""}, "checkpoint must be the path of a folder, got ''"),
    "a checkpoint that is no path": ((XS,), {"checkpoint": 3}, "checkpoint must be the path of a folder, got 3"),
    "jobs": ((XS,), {"n_jobs": 0, "method": QUICK}, "n_jobs must be a whole number"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_before_any_work(name):
    args, options, message = BAD[name]
    with mock.patch.object(executor, "run_task") as run, pytest.raises(ugw.InputError, match=message) as caught:
        ugw.pairwise(*args, **options)
    assert "\n" not in str(caught.value)
    run.assert_not_called()


# -- folders -------------------------------------------------------------------------------------------------


def assert_refused(folder, message):
    """Check that the checkpoint folder raises this message before any task runs."""
    with mock.patch.object(executor, "run_task") as run, pytest.raises(ugw.InputError, match=message):
        ugw.pairwise(XS, method=QUICK, checkpoint=folder)
    run.assert_not_called()


def test_a_checkpoint_that_is_a_file(tmp_path):
    file = tmp_path / "run"
    file.write_text("mine")
    assert_refused(file, "checkpoint must be a folder, got the file")
    assert file.read_text() == "mine"


def test_a_checkpoint_among_other_files(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert_refused(tmp_path, "checkpoint must be a folder of its own, got .* which has notes.txt")
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.skipif(sys.platform == "win32" or not hasattr(os, "geteuid"), reason="folders without permission")
def test_a_checkpoint_that_cannot_be_written(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    if os.geteuid() == 0:  # may write anywhere but there
        assert_refused("/proc/ugw", "cannot be written to")
        return
    folder.chmod(0o500)
    assert_refused(folder, "cannot be written to")


def test_a_full_disk_is_found_before_any_work(tmp_path):
    error = OSError(28, "No space left on device")
    with mock.patch("ugw.all_pairs.checkpoint.tempfile.TemporaryFile", side_effect=error):
        assert_refused(tmp_path / "run", "the disk is full")


def test_jobs_need_joblib():
    hidden = dict.fromkeys(("joblib", "joblib.parallel"))
    with mock.patch.dict(sys.modules, hidden):
        with pytest.raises(ugw.InputError, match="n_jobs=2 needs joblib"):
            ugw.pairwise(XS, method=QUICK, n_jobs=2)
        assert ugw.pairwise(XS[:1], method=QUICK, eps=0.1).converged.all()
