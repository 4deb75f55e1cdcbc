"""Results of `pairwise`: pairs that did not converge, and tables."""

import numpy as np
import pytest
import torch

import ugw
from oracles.pairwise import QUICK, clouds
from ugw.results.records import Status


def test_pairs_that_did_not_converge_are_reported():
    spaces = clouds((5, 7))
    few = ugw.AlternateMin(max_iter=2)
    with pytest.warns(ugw.ConvergenceWarning, match=r"first \('a', 'a'\): the iteration limit"):
        d = ugw.pairwise(spaces, method=QUICK, eps=1e-3, solver=few, names=["a", "b"])
    assert d.status[0, 1] is Status.MAX_ITER
    assert not d.converged.any()
    assert (d.n_iter == 2).all()
    assert repr(d) == "PairwiseResult(ugw, 2 × 2, 0.0% converged)"
    with pytest.raises(ugw.NotConverged, match="4 of 4 values not converged"):
        d.check()
    good = ugw.pairwise(spaces, method=QUICK, eps=0.1)
    assert good.check() is good
    assert good.message == "converged"
    assert repr(good) == "PairwiseResult(ugw, 2 × 2, all converged)"
    assert len(good) == 2


def test_frames():
    pandas = pytest.importorskip("pandas")
    d = ugw.pairwise(clouds((5, 7)), method=QUICK, eps=0.1, names=["a", "b"])
    frame = d.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.loc["a", "b"] == d.values[0, 1]
    assert d.to_frame("status").loc["b", "b"] is Status.CONVERGED
    with pytest.raises(ugw.InputError, match="what must be one of 'values'"):
        d.to_frame("plans")


def test_codes_are_of_the_kind_of_the_values(tmp_path):
    arrays = clouds((5, 7))
    tensors = [ugw.Space.from_points(torch.from_numpy(space.points)) for space in arrays]
    for spaces, kind in ((arrays, np.ndarray), (tensors, torch.Tensor)):
        d = ugw.pairwise(spaces, method=QUICK, eps=0.1)
        d.save(tmp_path / "d.npz")
        for same in (d, ugw.PairwiseResult.load(tmp_path / "d.npz")):
            assert isinstance(same.codes, kind)
            assert isinstance(same.converged, kind)
            assert isinstance(same.status, np.ndarray)
            assert same.status[0, 1] is Status.CONVERGED
            assert same.codes.shape == same.status.shape == (2, 2)
            assert bool(same.converged.all())
