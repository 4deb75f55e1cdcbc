"""Results: all numbers, the convergence status, and representations."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import ugw
from oracles import cases
from oracles.errors import assert_refused
from oracles.plans import STREAMING
from oracles.results import items_of, solve, solve_batch, solve_two_steps
from oracles.spaces import space
from ugw.errors import InputError, NotConverged
from ugw.geometry.space import Space
from ugw.kernels.cpu import native
from ugw.problems.build import build_ugw
from ugw.results.records import Status

INF = math.inf


# --- numbers ---


def test_terms_sum_to_the_value(any_result):
    for r in items_of(any_result):
        t = r.terms
        total = t.distortion + t.linear + t.marginal_a + t.marginal_b + t.entropy
        assert r.value == t.total == pytest.approx(total, rel=1e-14)
        assert min(t.distortion, t.marginal_a, t.marginal_b, t.entropy) >= 0


def test_mass_and_marginals_are_sums_of_the_plan(any_result):
    for r in items_of(any_result):
        assert r.mass == pytest.approx(r.plan.sum(), rel=1e-13)
        p1, p2 = r.marginals
        np.testing.assert_allclose(p1, r.plan.sum(1), rtol=1e-12)
        np.testing.assert_allclose(p2, r.plan.sum(0), rtol=1e-12)


def test_gap_is_value_less_relaxed_value(any_result):
    for r in items_of(any_result):
        assert r.gap == pytest.approx(r.value - r.relaxed_value, abs=1e-15)
        if r.converged:
            assert abs(r.gap) <= 1e-6 * (1 + abs(r.value))
            p, q = r.plan_pair
            assert np.abs(p - q).sum() <= 1e-5


def test_history_has_one_entry_per_step_and_ends_at_the_value(any_result):
    for r in items_of(any_result):
        h = r.history
        assert len(h) == r.n_iter >= 1
        for column in (h.objective, h.change, h.residual, h.mass):
            assert column.shape == (r.n_iter,)
            assert np.isfinite(column).all()
        assert h.objective[-1] == pytest.approx(r.value, rel=1e-12)
        assert h.mass[-1] == pytest.approx(r.mass, rel=1e-9)
        assert (h.change >= 0).all()
        assert (h.residual >= 0).all()


def test_relaxed_value_is_the_objective_of_the_pair():
    data, parameters = cases.clouds(4, 5, seed=0, mass=(1.3, 0.8)), cases.Parameters(0.5, 2.0, 0.05, 0.4)
    with pytest.warns(ugw.ConvergenceWarning):
        r = cases.solve(data, parameters, max_iter=3)
    p, q = r.plan_pair
    assert np.abs(p - q).sum() > 1e-3  # a pair that differs
    assert r.value == pytest.approx(cases.value(data, parameters, p), rel=1e-9)
    assert r.relaxed_value == pytest.approx(cases.value(data, parameters, p, q), rel=1e-9)


def test_value_is_the_four_index_sum_of_the_plan_term_by_term():
    data, parameters = cases.clouds(4, 5, seed=1, mass=(1.3, 0.8)), cases.Parameters(0.5, 2.0, 0.05, 0.4)
    r = cases.solve(data, parameters)
    for name, expected in cases.terms(data, parameters, r.plan).items():
        assert getattr(r.terms, name) == pytest.approx(float(expected), rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("eps", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("rho", [(0.5, 2.0), (INF, 0.7), (0.7, INF), (INF, INF)])
def test_potentials_give_the_plan(rho, eps):
    """plan = a⊗b·exp((f ⊕ g − cost)/(m·eps)) with cost and m of the other plan, eqs. (2.2) and (4.2)."""
    masses = (1.2, 1.2) if rho == (INF, INF) else (1.2, 0.7)
    data, parameters = cases.clouds(4, 5, seed=2, mass=masses), cases.Parameters(*rho, eps)
    r = cases.solve(data, parameters)
    assert r.converged
    (f, g), (p, q) = r.potentials, r.plan_pair
    data = cases.Pair(data.dx, data.a, data.dy, data.b)  # not fused
    cost, mass = cases.full_cost(data, parameters, q), q.sum()
    expected = np.outer(data.a, data.b) * np.exp((f[:, None] + g - cost) / (mass * eps))
    np.testing.assert_allclose(expected, p, atol=1e-7)
    for rho_, potential, weights, marginal in ((rho[0], f, data.a, p.sum(1)), (rho[1], g, data.b, p.sum(0))):
        if rho_ < INF:
            np.testing.assert_allclose(marginal, weights * np.exp(-potential / (mass * rho_)), rtol=1e-5)


def test_no_potentials_at_eps_0():
    for r in (
        solve(eps=0.0),
        solve(space(5, 3), space(6, 2, 1), rho=INF, eps=0.0),
        solve_batch(eps=0.0),
        solve_batch(eps=np.array([0.1, 0.0, 0.1]))[1],
    ):
        with pytest.raises(InputError, match=r"eps = 0.*eps > 0"):
            _ = r.potentials
    assert np.isfinite(solve_batch(eps=np.array([0.1, 0.0, 0.1]))[0].potentials[0]).all()


def test_marginal_error_is_the_relative_violation_of_the_hard_sides():
    x, y = space(5, 3, mass=1.4), space(6, 2, 1, mass=1.4)
    hasty = ugw.AlternateMin(max_iter=1, inner=ugw.Sinkhorn(max_iter=1))
    for rho in (INF, (INF, 0.5), (0.5, INF), 1.0):
        with pytest.warns(ugw.ConvergenceWarning):
            r = solve(x, y, rho=rho, eps=0.02, init="random", solver=hasty)
        hard = [side == INF for side in (rho if isinstance(rho, tuple) else (rho, rho))]
        off = [np.abs(p - s.weights).sum() / 1.4 for p, s in zip(r.marginals, (x, y), strict=True)]
        expected = max([o for o, h in zip(off, hard, strict=True) if h], default=0.0)
        assert r.marginal_error == pytest.approx(expected, rel=1e-6, abs=1e-14)
        if rho == INF:
            assert r.marginal_error > 1e-3


@pytest.mark.parametrize("rho", [INF, (INF, 1.0), (1.0, INF)])
@pytest.mark.parametrize("eps", [0.1, 0.0])
def test_hard_marginals_are_kept_where_it_converged(rho, eps):
    x, y = space(5, 3), space(6, 2, 1)
    r = solve(x, y, rho=rho, eps=eps)
    assert r.converged
    assert r.marginal_error <= 1e-5
    hard_a, hard_b = (rho == INF, rho == INF) if rho == INF else (rho[0] == INF, rho[1] == INF)
    if hard_a:
        np.testing.assert_allclose(r.marginals[0], x.weights, atol=1e-6)
        assert r.terms.marginal_a == 0
    if hard_b:
        np.testing.assert_allclose(r.marginals[1], y.weights, atol=1e-6)
        assert r.terms.marginal_b == 0
    assert r.mass == pytest.approx(1.0, rel=1e-9)


def test_the_mass_identity():
    """F(p, p) = C − R m(p)² at a stationary point, eq. (3.4)."""
    for rho, eps in (((0.6, 1.5), 0.05), ((0.2, 0.3), 0.3), ((2.0, 0.1), 0.0)):
        r = solve(rho=rho, eps=eps, solver=ugw.AlternateMin(tol=1e-9))
        total = sum(rho) + eps
        constant = rho[0] * 1.4**2 + rho[1] * 0.9**2 + eps * 1.4**2 * 0.9**2
        assert r.value == pytest.approx(constant - total * r.mass**2, abs=1e-8)


# --- transport ---


def test_transport_averages_values_by_the_plan():
    r = solve()
    values = np.random.default_rng(0).random((5, 3))
    expected = (r.plan.T @ values) / r.plan.sum(0)[:, None]
    np.testing.assert_allclose(r.transport(values), expected, rtol=1e-12)
    np.testing.assert_allclose(r.transport(values[:, 0]), expected[:, 0], rtol=1e-12)
    np.testing.assert_allclose(r.transport([1] * 5), np.ones(6), rtol=1e-12)
    assert isinstance(r.transport(values), np.ndarray)


def test_transport_of_tensors_gives_tensors():
    x, y = (ugw.Space.from_points(torch.rand(n, 2, generator=torch.manual_seed(0))) for n in (5, 6))
    averages = solve(x, y, eps=0.1).transport(torch.arange(5))
    assert isinstance(averages, torch.Tensor)
    assert averages.dtype == torch.float32


def test_transport_is_nan_for_points_without_mass():
    points, weights = np.random.default_rng(0).random((6, 2)), np.array([1.0, 2.0, 0.0, 1.0, 1.0, 1.0])
    averages = solve(space(5, 3), ugw.Space.from_points(points, weights=weights)).transport(np.arange(5.0))
    assert np.isnan(averages).tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize(
    "values", [np.ones(6), np.ones((6, 5)), np.ones((5, 1, 1)), 1.0, [], "red", ["a"] * 5, None, np.ones(5) * 1j]
)
def test_transport_refuses_values_that_do_not_fit(values):
    with pytest.raises(InputError, match="values must"):
        solve().transport(values)


def test_transport_wants_an_item_of_a_batch():
    with pytest.raises(InputError, match=r"result\[i\]"):
        solve_batch().transport(np.ones(5))


# --- the truth ---


def test_check_returns_a_converged_result():
    for r in (solve(), solve_batch()):
        assert r.check() is r


def test_check_raises_with_advice():
    r = solve_two_steps()
    assert r.status is Status.MAX_ITER
    assert not r.converged
    with pytest.raises(NotConverged) as caught:
        r.check()
    message = str(caught.value)
    assert "\n" not in message
    assert "max_iter" in message
    assert message == r.message
    assert isinstance(caught.value, RuntimeError)


def test_check_of_a_batch_names_the_item():
    with pytest.warns(ugw.ConvergenceWarning):
        r = solve_batch(eps=np.array([0.4, 0.01, 0.4]), solver=ugw.AlternateMin(max_iter=25))
    assert r.converged.tolist() == [True, False, True]
    with pytest.raises(NotConverged, match=r"item 1 \(1 of 3 not converged\).*max_iter"):
        r.check()
    assert r[0].check().converged
    with pytest.raises(NotConverged):
        r[1].check()


@pytest.mark.parametrize("status", set(Status) - {Status.CONVERGED, Status.RUNNING, Status.STOPPED})
def test_every_status_but_converged_has_advice(status):
    assert any(word in status.message for word in ("raise", "use", "rescale", "try"))
    assert "\n" not in status.message


def test_every_status_has_a_message():
    assert len({s.message for s in Status}) == len(Status)


def test_the_message_has_the_numbers():
    r = solve_two_steps()
    assert "2 steps" in r.message
    assert f"{r.history.change[-1]:.1e}" in r.message
    assert solve().message.startswith("converged")


# --- batches ---


def test_items_of_a_batch():
    r = solve_batch()
    assert len(r) == 3
    assert [item.plan.shape for item in r] == [(4, 3), (5, 6), (2, 4)]
    assert r.plan.shape == (3, 5, 6)
    for i, item in enumerate(r):
        n, m = item.plan.shape
        assert np.array_equal(item.plan, r.plan[i, :n, :m])
        assert not r.plan[i, n:].any()
        assert not r.plan[i, :, m:].any()
        assert not item.batched
        assert item.value == r.value[i]
        assert item.terms.distortion == r.terms.distortion[i]
        assert item.status is r.status[i]
        assert item.n_iter == r.n_iter[i]
        assert [p.shape for p in item.potentials] == [(n,), (m,)]
        assert [p.shape for p in item.marginals] == [(n,), (m,)]
        assert item.plan_pair[1].shape == (n, m)
        np.testing.assert_array_equal(item.history.objective, r.history[i].objective)
    assert np.array_equal(r[-1].plan, r[2].plan)


def test_shapes_of_a_batch():
    r = solve_batch()
    for numbers in (r.value, r.mass, r.gap, r.relaxed_value, r.marginal_error, r.converged, r.n_iter, r.terms.total):
        assert isinstance(numbers, np.ndarray)
        assert numbers.shape == (3,)
    assert r.converged.dtype == bool
    assert [p.shape for p in r.marginals] == [(3, 5), (3, 6)]
    assert isinstance(r.status, list)
    assert isinstance(r.history, list)


@pytest.mark.parametrize("i", [3, -4])
def test_items_out_of_range(i):
    with pytest.raises(IndexError, match=f"a batch of 3 results has no item {i}"):
        solve_batch()[i]


@pytest.mark.parametrize("i", [slice(0, 2), "a", 1.0])
def test_items_have_integer_indices(i):
    with pytest.raises(TypeError, match="a batch of 3 results takes an integer index, got"):
        solve_batch()[i]


def test_one_result_has_no_len_and_no_items():
    for act in (len, lambda r: r[0], list):
        with pytest.raises(TypeError, match="not a batch"):
            act(solve())


# --- looks ---


def test_repr_is_one_line_with_the_essentials():
    r = solve()
    text = repr(r)
    assert "\n" not in text
    assert "5 × 6" in text
    assert f"{r.value:.6g}" in text
    assert f"converged after {r.n_iter} steps" in text
    assert "max iter" in repr(solve_two_steps())
    assert repr(solve_batch()) == "Result(batch of 3, 3 converged)"


def test_summary_has_every_term_and_the_status():
    r = solve(rho=(INF, 1.0))
    text = r.summary()
    for name in ("value", "distortion", "linear", "marginal_a", "marginal_b", "entropy", "mass", "gap", "status"):
        assert name in text
    assert "converged" in text
    assert "raise max_iter" in solve_two_steps().summary()
    assert len(solve_batch().summary().splitlines()) == 3


def test_html_is_a_table_colored_by_the_status():
    good, bad = solve()._repr_html_(), solve_two_steps()._repr_html_()
    for html in (good, bad, solve_batch()._repr_html_()):
        assert html.startswith("<table")
        assert html.endswith("</table>")
        assert html.count("<tr>") == html.count("</tr>") >= 3
    assert good[: good.index(">")] != bad[: bad.index(">")]
    assert "distortion" in good
    assert "&" not in good.replace("&amp;", "").replace("&lt;", "")


# --- the better of two ---


def two_batches():
    """Results of a batch from two starts, of which the second is better for items 1 and 2 only."""
    first, second = solve_batch(init="random"), solve_batch()
    total = second.tensors.terms
    shifted = replace(total, distortion=first.tensors.terms.total + torch.tensor([1.0, -9.0, -9.0]))
    return first, replace(second, tensors=replace(second.tensors, terms=shifted))


def test_better_takes_each_item_from_the_lower_result():
    first, second = two_batches()
    merged = first.better(second)
    for i, source in enumerate((first, second, second)):
        np.testing.assert_array_equal(merged[i].plan, source[i].plan)
        assert merged[i].value == source[i].value
        assert merged[i].n_iter == source[i].n_iter == len(merged[i].history)


def test_parameters_of_the_better_result():
    first, second = two_batches()
    assert first[0].better(second[0]).parameters == first[0].parameters
    assert first[1].better(second[1]).parameters == second[1].parameters
    shared = {name: value for name, value in first.parameters.items() if name != "init"}
    assert first.better(second).parameters == shared
    assert first.better(second)[1].parameters["rho"] == [0.6, 1.5]


def test_better_takes_an_item_of_a_batch_and_the_same_problem_alone():
    """A relative eps is the same number in a padded batch."""
    pairs = [(space(5 + k, 3, k), space(9 - k, 2, k)) for k in range(4)]
    batch = ugw.solve(*(Space.stack(side) for side in zip(*pairs, strict=True)), eps=ugw.relative(0.01), init="random")
    alone = [ugw.solve(x, y, eps=ugw.relative(0.01)) for x, y in pairs]
    assert all(item.parameters["eps"] == r.parameters["eps"] for item, r in zip(batch, alone, strict=True))
    for item, r in zip(batch, alone, strict=True):
        assert item.better(r).value == min(item.value, r.value)
        assert r.better(item).value == min(item.value, r.value)


def test_better_keeps_parameters_that_differ_by_rounding():
    first, second = two_batches()
    eps = [value * (1 + 1e-15) for value in second.parameters["eps"]]
    assert eps != first.parameters["eps"]
    merged = first.better(replace(second, parameters=second.parameters | {"eps": eps}))
    assert merged.parameters["eps"] == first.parameters["eps"]
    assert merged[2].parameters["eps"] == first[2].parameters["eps"]


def test_better_refuses_results_of_other_problems():
    plain, points = solve(), [space(5, 3, mass=1.4), space(6, 2, 1, mass=0.9)]
    single = [s.to("float32") for s in points]
    low_rank = [Space.from_points(s.points, weights=s.weights, metric="sqeuclidean") for s in points]
    others = {
        "another Result, got None": None,
        r"another Result, got array|another Result, got an array": plain.plan,
        "another Result, got ConicResult": ugw.solve_conic(*points),
        "number of items 3": solve_batch(),
        r"shape torch.Size\(\[1, 4, 6": solve(space(4, 3)),
        "dtype torch.float32, expected torch.float64": solve(*single),
        "path 'streaming', expected 'stored'": solve(*low_rank, solver=STREAMING),
        r"rho \[0.6, 0.6\], expected \[0.6, 1.5\]": solve(rho=0.6),
        "eps 0.1, expected 0.05": solve(eps=0.1),
        "fused": solve(fused=ugw.Fused(0.3, np.ones((5, 6)))),
        "loss": solve(loss=lambda t: t**4),
        "divergence 'TV', expected 'KL'": solve(rho=ugw.TV(0.5), eps=0.0),
    }
    for message, other in others.items():
        assert_refused(plain.better, other, match=message)
    assert_refused(solve_batch().better, plain, match="number of items 'one, without a batch', expected 3")


def test_files_of_early_versions_without_parameters_can_be_compared():
    plain = solve()
    assert replace(plain, parameters={}).better(plain).value == plain.value


# -- the search and the backend ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("init", ["product", "flb", "linear", "random", "plan"])
def test_one_initial_plan_takes_no_steps_of_a_search(init):
    x, y = space(5, 2), space(6, 2, 1)
    result = ugw.solve(x, y, eps=0.05, init=np.ones((5, 6)) if init == "plan" else init)
    assert result.n_iter_search == 0
    assert type(result.n_iter_search) is int
    assert "search       none" in result.summary()


def test_the_search_is_counted_apart_from_the_solve():
    x, y = space(15, 2), space(16, 2, 1)
    result = ugw.solve(x, y, eps=0.01)
    best = ugw.solve(x, y, eps=0.01, init="best")
    assert result.n_iter == len(result.history)
    assert best.n_iter_search > result.n_iter_search > 0  # "best" also solves from other plans
    assert f"{result.n_iter_search} steps of candidates" in result.summary()


def test_all_steps_of_several_starts_are_counted():
    """The steps of all solves, made one by one, are those of the result and its search together."""
    x, y = space(5, 3), space(6, 2, 1)
    solver = ugw.Multistart(n=3)
    together = ugw.solve(x, y, eps=0.05, init="product", solver=solver)
    problem = build_ugw(x, y, rho=1.0, eps=0.05, fused=None)
    plans = solver.with_random_plans(problem, problem.product[:, None])
    alone = [ugw.solve(x, y, eps=0.05, init=plan.numpy()).n_iter for plan in plans[0]]
    assert together.n_iter + together.n_iter_search == sum(alone)
    assert together.n_iter in alone


def test_an_item_of_a_batch_has_the_search_steps_that_it_has_alone():
    xs, ys = [space(n, 3, n) for n in (5, 30, 70)], [space(n, 2, n) for n in (6, 35, 80)]
    batch = ugw.solve(ugw.Space.stack(xs), ugw.Space.stack(ys), eps=0.05)
    alone = [ugw.solve(x, y, eps=0.05) for x, y in zip(xs, ys, strict=True)]
    assert batch.n_iter_search.tolist() == [one.n_iter_search for one in alone]
    assert [item.n_iter_search for item in batch] == batch.n_iter_search.tolist()
    assert batch.backend == [one.backend for one in alone]
    assert [item.backend for item in batch] == batch.backend


def test_a_batch_of_tensors_has_search_steps_as_a_tensor():
    spaces = [ugw.Space.from_points(torch.as_tensor(space(5, 3, seed).points)) for seed in (0, 1)]
    assert ugw.solve(ugw.Space.stack(spaces), spaces[0]).n_iter_search.dtype == torch.int64


@pytest.mark.parametrize(
    ("solve_it", "compiled", "torch_only"),
    [
        (lambda x, y: ugw.solve(x, y), "compiled", "torch"),
        (lambda x, y: ugw.solve(x.to(torch.float32), y.to(torch.float32)), "compiled", "torch"),
        (lambda x, y: ugw.solve(x, y, rho=INF, eps=0.0, init="product"), "compiled + POT", "torch + POT"),
        (lambda x, y: ugw.solve(x, y, rho=ugw.TV(0.3), init="product"), "compiled + POT", "torch + POT"),
        (lambda x, y: ugw.solve(x, y, solver=STREAMING), "torch", "torch"),
        (lambda x, y: ugw.solve_conic(x, y, init="product"), "compiled", "torch"),
        (lambda x, y: ugw.solve_linear(x, y, cost=np.ones((5, 6))), "torch + compiled Sinkhorn", "torch"),
        (lambda x, y: ugw.solve_conic(x, y, cone="partial-transport", init="product"), "SciPy", "SciPy"),
    ],
)
def test_the_result_names_the_backend(solve_it, compiled, torch_only, monkeypatch):
    x, y = space(5, 3, metric="sqeuclidean"), space(6, 2, 1, metric="sqeuclidean")
    result = solve_it(x, y)
    assert result.backend == (compiled if native.is_available() else torch_only)
    assert f"backend      {result.backend}" in result.summary()
    monkeypatch.setenv(native.SWITCH, "0")
    assert solve_it(x, y).backend == torch_only


def test_steps_on_samples_of_a_streaming_problem_are_counted():
    """Its plan is found by the search of a stored problem, and by steps from there that a stored solve does not make."""
    x, y = space(15, 2, metric="sqeuclidean"), space(16, 2, 1, metric="sqeuclidean")
    stored, streaming = (ugw.solve(x, y, eps=0.05, init="coarse", solver=solver) for solver in (None, STREAMING))
    assert streaming.path == "streaming"
    assert streaming.n_iter_search > stored.n_iter_search > 0
