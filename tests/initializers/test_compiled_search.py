"""The compiled search for initial plans against the torch search: the same plans in the same order."""

import math

import numpy as np
import pytest
import torch

import ugw
from ugw._utils.size_class import THRESHOLDS
from ugw.initializers import coarse
from ugw.initializers.search_steps import count_search_steps
from ugw.kernels.cpu import native
from ugw.problems.build import build_ugw

INF = math.inf
pytestmark = pytest.mark.skipif(not native.is_available(), reason="the compiled library is not built")


def cloud(n, dim, seed, mass=1.0, n_zero=0, **options):
    rng = np.random.default_rng(seed)
    weights = rng.random(n) + 0.2
    weights[:n_zero] = 0.0
    points = rng.random((n, dim))
    return ugw.Space.from_points(points, weights=mass * weights / weights.sum(), features=points[:, :1], **options)


def tree(n, seed):
    """Return a space whose distances have many ties."""
    rng = np.random.default_rng(seed)
    edges = [(i, int(rng.integers(i))) for i in range(1, n)]
    d = np.full((n, n), np.inf)
    np.fill_diagonal(d, 0.0)
    for i, j in edges:
        d[i, j] = d[j, i] = 1.0
    for k in range(n):
        d = np.minimum(d, d[:, k : k + 1] + d[k : k + 1])
    return ugw.Space.from_distances(d / d.mean())


FEW = THRESHOLDS.n_coarse_clusters
CASES = {
    "single points": ((cloud(1, 2, 0), cloud(1, 3, 1)), {"rho": 0.3, "eps": 0.02}),
    "one point": ((cloud(1, 2, 0), cloud(6, 3, 1)), {"rho": 0.3, "eps": 0.02}),
    "few points": ((cloud(7, 2, 0), cloud(12, 3, 1)), {"rho": 0.3, "eps": 0.02}),
    "as many points as clusters": ((cloud(FEW, 2, 0), cloud(FEW, 3, 1)), {"rho": 0.3, "eps": 0.005}),
    "clusters on one side": ((cloud(9, 2, 0), cloud(FEW + 1, 3, 1)), {"rho": 0.3, "eps": 0.02}),
    "clusters": ((cloud(70, 2, 0), cloud(90, 3, 1)), {"rho": 0.3, "eps": 0.01}),
    "second space larger": ((cloud(50, 2, 0), cloud(60, 3, 1, metric="sqeuclidean")), {"rho": 0.3, "eps": 0.01}),
    "small eps": ((cloud(30, 2, 0), cloud(45, 3, 1)), {"rho": 0.1, "eps": 1e-3}),
    "eps 0": ((cloud(30, 2, 0), cloud(45, 3, 1)), {"rho": 0.1, "eps": 0.0}),
    "large eps": ((cloud(30, 2, 0), cloud(45, 3, 1)), {"rho": 1.0, "eps": 0.5}),
    "unequal rhos": ((cloud(30, 2, 0), cloud(45, 3, 1)), {"rho": (0.05, 1.0), "eps": 0.01}),
    "hard side": ((cloud(30, 2, 0), cloud(45, 3, 1)), {"rho": (INF, 0.3), "eps": 0.01}),
    "balanced": ((cloud(30, 2, 0), cloud(45, 3, 1)), {"rho": INF, "eps": 0.01}),
    "fused": ((cloud(20, 2, 0), cloud(50, 3, 1)), {"rho": 0.3, "eps": 0.01, "fused": ugw.Fused(0.5)}),
    "zero weights": ((cloud(50, 2, 0, n_zero=4), cloud(20, 3, 1, n_zero=3)), {"rho": 0.3, "eps": 0.01}),
    "other masses": ((cloud(20, 2, 0, mass=1e-2), cloud(30, 3, 1, mass=50.0)), {"rho": 0.3, "eps": 0.01}),
    "ties": ((tree(30, 0), tree(55, 1)), {"rho": 0.3, "eps": 0.01}),
}


def search_both(problem, count, monkeypatch):
    """Return plans and objectives of the compiled search and of the torch search, both in float64."""
    with torch.no_grad():
        compiled = coarse.search(problem, count)
        monkeypatch.setenv(native.SWITCH, "0")
        monkeypatch.setattr(coarse, "low_precision_problem", lambda problem: problem)
        reference = coarse.search(problem, count)
        monkeypatch.delenv(native.SWITCH)
    return compiled, reference


@pytest.mark.parametrize("name", CASES)
def test_the_compiled_search_finds_the_plans_of_the_torch_search(name, monkeypatch):
    (x, y), options = CASES[name]
    problem = build_ugw(x, y, **{"fused": None, **options})
    (plans, values), (expected, expected_values) = search_both(problem, 3, monkeypatch)
    count = expected.shape[1]
    assert torch.isinf(values[:, count:]).all()
    torch.testing.assert_close(values[:, :count], expected_values, rtol=1e-9, atol=1e-12)
    assert (plans[:, :count] - expected).abs().sum(dim=(2, 3)).max() <= 1e-6


@pytest.mark.parametrize("name", CASES)
def test_both_searches_make_the_same_number_of_steps(name, monkeypatch):
    (x, y), options = CASES[name]
    problem = build_ugw(x, y, **{"fused": None, **options})
    monkeypatch.setattr(coarse, "low_precision_problem", lambda problem: problem)
    counts = []
    for switch in ("1", "0"):
        monkeypatch.setenv(native.SWITCH, switch)
        with torch.no_grad(), count_search_steps(problem, None) as steps:
            coarse.search(problem, 3)
        counts.append(steps.n_steps.tolist())
    assert counts[0] == counts[1] != [0]


@pytest.mark.parametrize("name", ["clusters", "fused"])
def test_a_batch_is_searched_in_several_calls_with_the_plans_of_one_call(name, monkeypatch):
    (_, y), options = CASES[name]
    x = ugw.Space.stack([cloud(n, 2, seed) for seed, n in enumerate((40, 30, 40, 25, 38))])
    problem = build_ugw(x, y, **{"fused": None, **options})
    sizes, search = [], native.Library.search

    def record_size(library, run):
        sizes.append(run.batch)
        search(library, run)

    monkeypatch.setattr(native.Library, "search", record_size)
    results = []
    for n_threads in (5, 1):  # the first call has one item per thread
        monkeypatch.setattr(torch, "get_num_threads", lambda n=n_threads: n)
        with torch.no_grad():
            results.append(coarse.search(problem, 2))
    assert sizes[0] == 5
    assert sizes[1] == 1
    assert sum(sizes[1:]) == 5
    for whole, in_parts in zip(*results, strict=True):
        assert torch.equal(whole, in_parts)
