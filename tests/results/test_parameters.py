"""The parameters of a solve as plain values, and those of one item of a batch."""

import json

import numpy as np
import torch

import ugw
from ugw.results.parameters import item_parameters, to_plain


def test_records_become_dictionaries_without_callbacks():
    plain = to_plain(ugw.AlternateMin(tol=1e-5, callback=print, inner=ugw.Sinkhorn(max_iter=7)))
    assert plain["name"] == "AlternateMin"
    assert plain["tol"] == 1e-5
    assert plain["inner"]["max_iter"] == 7
    assert "callback" not in plain


def test_arrays_tensors_functions_and_divergences_are_json():
    values = [np.arange(2.0), torch.tensor(1.5), np.float32(2), (1, None), len, ugw.TV(0.5), ugw.relative(0.1)]
    plain = json.loads(json.dumps([to_plain(value) for value in values]))
    assert plain[:5] == [[0.0, 1.0], 1.5, 2.0, [1, None], "len"]
    assert plain[5] == "TV(rho=0.5)"
    assert plain[6] == {"name": "Relative", "share": 0.1}


def test_an_item_has_its_own_numbers():
    batch = {"eps": [0.1, 0.2], "rho": [[1.0, 2.0], [3.0, 4.0]], "solver": {"tol": 1e-6}, "per_item": ["eps", "rho"]}
    assert item_parameters(batch, 1) == {"eps": 0.2, "rho": [2.0, 4.0], "solver": {"tol": 1e-6}}
    assert item_parameters({"eps": 0.1}, 1) == {"eps": 0.1}
