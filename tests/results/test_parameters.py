"""The parameters of a solve as plain values, and those of one item of a batch."""

import itertools
import json

import numpy as np
import pytest
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
    assert item_parameters(batch, 1, (3, 4)) == {"eps": 0.2, "rho": [2.0, 4.0], "solver": {"tol": 1e-6}}
    assert item_parameters({"eps": 0.1}, 1, (3, 4)) == {"eps": 0.1}


def test_an_item_with_a_linear_term_has_the_parameters_of_its_own_solve():
    rng = np.random.default_rng(0)
    sizes, options = [(4, 5), (6, 3)], {"rho": 1.0, "eps": 0.1, "init": "product"}
    pairs = [[ugw.Space.from_points(rng.random((n, 2)), features=rng.random((n, 1))) for n in s] for s in sizes]
    stacks = [ugw.Space.stack(list(side)) for side in zip(*pairs, strict=True)]
    costs = {"features": None, "matrix": rng.random((6, 5)), "matrices": rng.random((2, 6, 5))}
    for cost, alpha in itertools.product(costs.values(), (0.5, np.array([0.2, 0.4]))):
        whole = ugw.solve(*stacks, fused=ugw.Fused(alpha, cost), **options)
        for i, (n, m) in enumerate(sizes):
            own_cost = None if cost is None else np.broadcast_to(cost, (2, 6, 5))[i, :n, :m]
            own = ugw.Fused(alpha if isinstance(alpha, float) else alpha[i], own_cost)
            alone = ugw.solve(*pairs[i], fused=own, **options)
            assert whole[i].parameters == alone.parameters
            assert whole[i].better(alone).value == pytest.approx(alone.value, rel=1e-9)
    listed = ugw.solve(*pairs[0], fused=ugw.Fused(0.2, rng.random((4, 5)).tolist()), **options)
    assert listed.parameters["fused"]["cost"] == "array of shape (4, 5)"
