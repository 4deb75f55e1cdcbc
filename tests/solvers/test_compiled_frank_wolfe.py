"""The compiled steps of Frank–Wolfe against those in torch: from the same state, and in whole solves."""

import numpy as np
import pytest
import torch

import ugw
from oracles import cases
from oracles.cases import INF
from ugw.kernels.cpu import native
from ugw.problems.build import build_partial, build_ugw
from ugw.problems.partial.gw import PartialGW
from ugw.results.records import Status
from ugw.solvers import loop
from ugw.solvers.frank_wolfe import FrankWolfe, Iterate, make_step

pytestmark = [
    pytest.mark.skipif(not native.is_available(), reason="the compiled library is not built"),
    pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning"),
]


def space(distances, weights, features=None):
    """Return a space from a symmetric matrix (n, n) and weights (n,)."""
    return ugw.Space.from_matrix(distances, weights=weights, features=features)


def pair_of_spaces(n, m, make=cases.clouds, n_zero=0, masses=(1.0, 1.0)):
    """Return two spaces with features; the first `n_zero` points of each have weight 0."""
    pair, rng = make(n, m, n + 2 * m), np.random.default_rng(n)
    spaces = []
    for distances, weights, mass in ((pair.dx, pair.a, masses[0]), (pair.dy, pair.b, masses[1])):
        own = weights.copy()
        own[:n_zero] = 0.0
        spaces.append(space(distances, mass * own / own.sum(), rng.random((len(own), 2))))
    return tuple(spaces)


def batch_of_spaces(sizes, make=cases.clouds, n_zero=0):
    """Return two batches of spaces with features, (n, m) points for each of the sizes."""
    pairs = [pair_of_spaces(n, m, make, n_zero) for n, m in sizes]
    return tuple(ugw.Space.stack(list(side)) for side in zip(*pairs, strict=True))


def partial_problem(x, y, rho=INF, alpha=0.0):
    """Return the problem that Frank–Wolfe solves for this rho: a number for balanced GW, a TV or a Mass."""
    fused = ugw.Fused(alpha) if alpha else None
    if isinstance(rho, float):
        return PartialGW.balanced(build_ugw(x, y, rho=rho, eps=0.0, fused=fused))
    return build_partial(x, y, sides=(rho, rho), eps=0.0, fused=fused, loss=None)[0]


RAGGED = [(7, 9), (12, 5), (1, 4), (10, 10)]
CASES = {
    **{f"{n}x{m}": (pair_of_spaces(n, m), {}) for n, m in [(1, 1), (1, 5), (6, 1), (7, 4), (20, 20), (33, 41)]},
    "integers": (pair_of_spaces(9, 8, cases.integer_distances), {}),
    "similarities": (pair_of_spaces(9, 8, cases.similarities), {}),
    "fused": (pair_of_spaces(11, 13), {"alpha": 0.7}),
    "zero weights": (pair_of_spaces(11, 13, n_zero=3), {"alpha": 0.7}),
    "mass": (pair_of_spaces(11, 13, masses=(20.0, 20.0)), {"alpha": 0.7}),
    "ragged": (batch_of_spaces(RAGGED), {}),
    "ragged, fused, zero weights": (batch_of_spaces([(7, 9), (12, 5), (4, 4)], n_zero=2), {"alpha": 0.7}),
    "ragged integers": (batch_of_spaces([(7, 9), (12, 5), (9, 9)], cases.integer_distances), {}),
    "Mass": (pair_of_spaces(11, 13), {"rho": ugw.Mass(0.6)}),
    "Mass, other masses": (pair_of_spaces(11, 13, masses=(2.0, 0.5)), {"rho": ugw.Mass(0.4), "alpha": 0.7}),
    "Mass, all of one side": (pair_of_spaces(11, 13, masses=(2.0, 0.5)), {"rho": ugw.Mass(0.5)}),
    "Mass, ragged": (batch_of_spaces(RAGGED[:2], n_zero=2), {"rho": ugw.Mass(0.6)}),
    "TV": (pair_of_spaces(11, 13, masses=(2.0, 0.5)), {"rho": ugw.TV(0.5), "alpha": 0.3}),
    "TV, ragged": (batch_of_spaces(RAGGED, n_zero=0), {"rho": ugw.TV(0.3)}),
    "TV, collapsing": (pair_of_spaces(11, 13), {"rho": ugw.TV(1e-6)}),
}


def steps_of_both(monkeypatch, problem):
    """Return the compiled step and the one in torch as functions of an iterate."""
    tolerance = torch.full_like(problem.eps, 1e-9)
    compiled, context = make_step(problem, problem.gap_scale(), tolerance)
    monkeypatch.setenv(native.SWITCH, "0")
    reference, other_context = make_step(problem, problem.gap_scale(), tolerance)
    monkeypatch.delenv(native.SWITCH)
    assert compiled is not reference
    return lambda iterate: compiled(context, iterate), lambda iterate: reference(other_context, iterate)


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_a_step_from_the_same_state(monkeypatch, name):
    """State, change, gap, objective and status agree until the last step, swaps included."""
    (x, y), options = CASES[name]
    problem = partial_problem(x, y, **options)
    compiled, reference = steps_of_both(monkeypatch, problem)
    used = (problem.log_a > -INF)[:, :, None] & (problem.log_b > -INF)[:, None, :]
    one = torch.ones_like(problem.eps)
    iterate = Iterate(problem.state_of_plan(problem.project(problem.product)), one, one)
    n_swaps = 0
    for _ in range(60):
        (new, report), (expected, expected_report) = compiled(iterate), reference(iterate)
        for field in ("unit_plan", "local_cost"):
            ours, theirs = getattr(new.state, field), getattr(expected.state, field)
            torch.testing.assert_close(ours[used], theirs[used], rtol=1e-10, atol=1e-12, msg=field)
            assert ours.shape == theirs.shape
        assert not new.state.unit_plan[~used].any()
        for field in ("mass", "distortion", "linear"):
            torch.testing.assert_close(
                getattr(new.state, field), getattr(expected.state, field), rtol=1e-10, atol=1e-12, msg=field
            )
        for key, numbers in expected_report.diagnostics.items():
            torch.testing.assert_close(report.diagnostics[key], numbers, rtol=1e-9, atol=1e-12, msg=key)
        assert torch.equal(report.status, expected_report.status)
        is_running = expected_report.status == Status.RUNNING
        n_swaps += int((is_running & (expected.residual < 1e-9)).sum())
        iterate = expected
        if not bool(is_running.any()):
            break
    assert not bool(is_running.any()) or name == "similarities"  # steps inside a segment converge slowly
    assert n_swaps or "integers" not in name
    assert bool((report.status == Status.COLLAPSED).all()) == ("collapsing" in name)


@pytest.mark.parametrize("rho", [INF, ugw.TV(0.3), ugw.Mass(0.6)], ids=str)
@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_whole_solves(monkeypatch, rho, alpha):
    """The comparison rule of the library: values to 1e-9, plans to 1e-6, equal status; a batch, and its items alone."""
    x, y = batch_of_spaces([(7, 9), (12, 5), (20, 17), (1, 1)])
    if isinstance(rho, ugw.Mass):
        rho = ugw.Mass(np.full(4, 0.6))
    options = {"rho": rho, "eps": 0.0, "init": "product", "fused": ugw.Fused(alpha) if alpha else None}
    compiled = ugw.solve(x, y, **options)
    monkeypatch.setenv(native.SWITCH, "0")
    expected = ugw.solve(x, y, **options)
    monkeypatch.delenv(native.SWITCH)
    np.testing.assert_allclose(compiled.value, expected.value, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(compiled.plan, expected.plan, atol=1e-9)
    np.testing.assert_array_equal(compiled.tensors.status, expected.tensors.status)
    np.testing.assert_array_equal(compiled.n_iter, expected.n_iter)
    if isinstance(rho, ugw.Mass):
        options["rho"] = ugw.Mass(0.6)
    for k, (n, m) in enumerate([(7, 9), (12, 5), (20, 17), (1, 1)]):
        alone = ugw.solve(*pair_of_spaces(n, m), **options)
        assert alone.value == pytest.approx(compiled[k].value, rel=1e-9, abs=1e-12)
        np.testing.assert_allclose(alone.plan, compiled[k].plan, atol=1e-9)
        assert alone.n_iter == compiled[k].n_iter


def test_two_threads_give_the_result_of_one():
    x, y = batch_of_spaces([(7, 9), (12, 5), (20, 17)])
    problem = partial_problem(x, y)
    one = FrankWolfe().run(problem, problem.product, None)
    torch.set_num_threads(2)
    try:
        two = FrankWolfe().run(problem, problem.product, None)
    finally:
        torch.set_num_threads(1)
    assert torch.equal(one.tensors.plan, two.tensors.plan)


@torch.no_grad()
def test_a_step_that_is_not_finite_ends_its_item_alone():
    """Distances that overflow: the item ends with its last finite plan, the others go on."""
    pairs = [pair_of_spaces(7, 9), pair_of_spaces(6, 5)]
    huge = [space(side.metric.dense() * 1e155, side.weight_tensor, side.feature_tensor) for side in pairs[1]]
    x, y = (ugw.Space.stack([first, second]) for first, second in zip(pairs[0], huge, strict=True))
    problem = partial_problem(x, y)
    step, context = make_step(problem, torch.ones(2).double(), torch.full((2,), 1e-9).double())
    state, one = problem.state_of_plan(problem.product), torch.ones(2).double()
    outcome = loop.iterate(step, context, Iterate(state, one, one), loop.Rules(max_iter=50))
    assert outcome.status.tolist() == [int(Status.CONVERGED), int(Status.NON_FINITE)]
