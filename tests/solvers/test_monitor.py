"""Progress bar on stderr, callbacks at each step, and stopping by a callback or an exception."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import ugw
from oracles.plans import STREAMING
from oracles.spaces import pair
from ugw.solvers.monitor import Step, open_monitor


def solve(*spaces, init="product", eps=0.05, **options):
    """Solve UGW with options of AlternateMin."""
    return ugw.solve(*spaces, rho=1.0, eps=eps, init=init, solver=ugw.AlternateMin(**options))


@pytest.mark.parametrize("init", ["product", "auto"])
def test_quiet_by_default(capfd, init):
    solve(*pair(), init=init)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


@pytest.mark.parametrize("init", ["product", "auto", "coarse"])
def test_progress_is_one_bar_on_stderr_with_step_objective_and_change(capfd, init):
    r = solve(*pair(), init=init, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    last = err.rstrip().split("\r")[-1]
    assert err.count("\n") == 1  # a bar that ended, and no second one
    assert last.count("ugw") == 1
    assert "objective" in last
    assert "change" in last
    assert f"{r.n_iter}/" in last if init == "product" else True


def test_a_batch_has_one_bar_too(capfd):
    x, y = pair()
    solve(ugw.Space.stack([x, y, x]), y, progress=True)
    assert capfd.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("compiled", ["0", "1"])
@pytest.mark.parametrize("kind", ["ugw", "batch", "conic", "partial", "streaming"])
def test_the_bar_shows_the_search_before_the_solve(capfd, monkeypatch, kind, compiled):
    monkeypatch.setenv("UGW_COMPILED", compiled)
    solver, (x, y) = ugw.AlternateMin(progress=True), pair(metric="sqeuclidean")
    result = {
        "ugw": lambda: ugw.solve(x, y, eps=0.05, solver=solver),
        "batch": lambda: ugw.solve(ugw.Space.stack([x, y, x]), y, eps=0.05, solver=solver),
        "conic": lambda: ugw.solve_conic(x, y, solver=solver),
        "partial": lambda: ugw.solve(x, y, rho=ugw.TV(0.3), solver=ugw.FrankWolfe(progress=True)),
        "streaming": lambda: ugw.solve(x, y, eps=0.05, solver=replace(STREAMING, progress=True)),
    }[kind]()
    texts = capfd.readouterr().err.split("\r")
    is_search = ["search for a start" in text for text in texts]
    first_step = next(k for k, text in enumerate(texts) if "objective" in text)
    assert any(is_search[:first_step])
    assert not any(is_search[first_step:])
    shown = int(texts[max(np.flatnonzero(is_search))].split(" steps of candidates")[0].split()[-1])
    assert 0 < shown <= np.sum(result.n_iter_search)


def test_the_callback_receives_every_step():
    steps = []
    r = solve(*pair(), callback=steps.append)
    assert [s.iteration for s in steps] == list(range(1, r.n_iter + 1))
    assert all(isinstance(s, Step) and s.live == 1 for s in steps)
    for name in ("objective", "change", "residual", "mass"):
        numbers = np.array([float(getattr(s, name)[0]) for s in steps])
        np.testing.assert_array_equal(numbers, getattr(r.history, name))


@pytest.mark.parametrize("kind", ["ugw", "conic", "linear", "partial"])
def test_the_callback_receives_arrays_of_the_kind_of_the_spaces(kind):
    steps = []
    solver = ugw.AlternateMin(callback=steps.append)
    for make, expected in ((np.asarray, np.ndarray), (torch.as_tensor, torch.Tensor)):
        x, y = (ugw.Space.from_points(make(side.points)) for side in pair())
        {
            "ugw": lambda x=x, y=y: ugw.solve(x, y, eps=0.05, solver=solver),
            "conic": lambda x=x, y=y: ugw.solve_conic(x, y, solver=solver),
            "linear": lambda x=x: ugw.solve_linear(x, x, solver=solver),
            "partial": lambda x=x, y=y: ugw.solve(x, y, rho=ugw.TV(0.3), solver=ugw.FrankWolfe(callback=steps.append)),
        }[kind]()
        assert steps[0].iteration == 1  # the search is not reported
        for name in ("objective", "relaxed", "change", "residual", "mass"):
            values = getattr(steps[-1], name)
            assert type(values) is expected
            assert str(values.dtype).endswith("float64")
        steps.clear()


def test_an_array_of_a_step_does_not_change_later():
    steps = []
    r = solve(*pair(), callback=steps.append)
    assert len({float(step.objective[0]) for step in steps}) > r.n_iter // 2


def test_the_callback_receives_the_running_items_of_a_batch():
    (x, y), (u, v) = pair(), pair(seed=2)
    steps = []
    r = solve(
        ugw.Space.stack([x, u, x]), ugw.Space.stack([y, v, v]), eps=np.array([0.05, 0.5, 0.02]), callback=steps.append
    )
    for s in steps:
        assert s.live == (r.n_iter >= s.iteration).sum()
        assert s.objective.shape == s.change.shape == s.residual.shape == s.mass.shape == (s.live,)
    assert len(steps) == r.n_iter.max()
    assert len(set(r.n_iter.tolist())) > 1


@pytest.mark.parametrize("eps", [0.05, 0.0])
def test_true_stops_the_run(eps):
    with pytest.warns(ugw.ConvergenceWarning, match="stopped"):
        r = solve(*pair(), eps=eps, callback=lambda step: step.iteration == 3)
    assert r.status is ugw.Status.STOPPED
    assert not r.converged
    assert r.n_iter == 3
    assert len(r.history) == 3
    assert np.isfinite(r.plan).all()
    free = ugw.solve(*pair(), rho=1.0, eps=eps, init="product")
    np.testing.assert_array_equal(r.history.objective, free.history.objective[:3])


def test_true_stops_the_run_with_hard_marginals_and_eps_0():
    x, y = pair()
    steps = []
    with pytest.warns(ugw.ConvergenceWarning, match="stopped"):
        r = ugw.solve(
            x, y, rho=np.inf, eps=0, init="product",
            solver=ugw.AlternateMin(callback=lambda s: steps.append(s) or s.iteration == 2),
        )  # fmt: skip
    assert r.status is ugw.Status.STOPPED
    assert len(steps) == r.n_iter == 2


def test_frank_wolfe_steps_are_reported():
    steps = []
    solver = ugw.AlternateMin(callback=steps.append)
    r = ugw.solve(*pair(), rho=np.inf, eps=0, init="product", solver=solver)
    assert [s.iteration for s in steps] == list(range(1, r.n_iter + 1))
    for name in ("objective", "change", "residual", "mass"):
        np.testing.assert_array_equal([float(getattr(s, name)[0]) for s in steps], getattr(r.history, name))


def test_items_that_ended_before_the_stop_keep_their_status():
    x, y = pair()
    alone = solve(x, y, eps=0.5)
    with pytest.warns(ugw.ConvergenceWarning):
        r = solve(x, y, eps=np.array([0.5, 0.02]), callback=lambda s: s.iteration == alone.n_iter + 1)
    assert r.status == [ugw.Status.CONVERGED, ugw.Status.STOPPED]
    assert r.n_iter.tolist() == [alone.n_iter, alone.n_iter + 1]


@pytest.mark.parametrize("answer", [None, False, 0, ""])
def test_a_false_return_value_continues_the_run(answer):
    assert solve(*pair(), callback=lambda step: answer).converged


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_exception_in_the_callback_passes_through_and_leaves_no_file(tmp_path, monkeypatch, capfd, error):
    monkeypatch.chdir(tmp_path)

    def interrupt(step):
        """Raise the error at the second step."""
        if step.iteration == 2:
            raise error

    with pytest.raises(error):
        solve(*pair(), callback=interrupt, progress=True)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr().err.endswith("\n")  # the bar was closed
    assert solve(*pair()).converged  # no monitor is left open


def test_no_monitor_without_progress_or_callback():
    with ugw.AlternateMin().monitoring() as monitor:
        assert monitor is None


def test_the_bar_is_closed_after_ctrl_c(capfd):
    numbers = {k: torch.ones(2) for k in ("objective", "relaxed", "change", "residual", "mass")}
    with pytest.raises(KeyboardInterrupt), open_monitor(progress=True, callback=None, max_iter=5) as monitor:
        assert monitor(numbers, 2) is False
        raise KeyboardInterrupt
    err = capfd.readouterr().err
    assert err.endswith("\n")
    assert "2 running" in err
