"""The regression benchmark: equal results pass; a wrong value, a wrong status and a rising mean fail."""

import sys

import numpy as np
import pytest

from benchmarks import regression

SOLVE, LINEAR = "solve-kl-8", "linear-unequal-60"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The file of two small cases, as the command stores it."""
    path = tmp_path_factory.mktemp("regression") / "stored.npz"
    assert regression.run_and_store(path, [SOLVE, LINEAR], repeat=1) == 0
    return path


@pytest.fixture
def run_against(stored, tmp_path, monkeypatch):
    """A function that changes one stored array, compares a case with it and returns the exit status of the command."""

    def run(case, array=None, change=None):
        with np.load(stored) as file:
            arrays = dict(file)
        if array:
            arrays[f"{case}|{array}"] = np.asarray(change(arrays[f"{case}|{array}"]))
        path = tmp_path / "changed.npz"
        np.savez(path, **arrays)
        monkeypatch.setattr(sys, "argv", ["regression", "--against", str(path), "--only", f"^{case}$", "--repeat", "1"])
        return regression.main()

    return run


@pytest.mark.parametrize("case", [SOLVE, LINEAR])
def test_the_same_code_passes(run_against, case, capsys):
    assert run_against(case) == 0
    printed = capsys.readouterr().out
    assert "1 cases, 1 ok" in printed
    assert "CONVERGED" in printed


def test_a_wrong_value_fails(run_against, capsys):
    """The value of linear transport depends on no start: any difference is an error."""
    assert run_against(LINEAR, "number value", lambda value: value * (1.0 + 1e-6)) == 1
    assert f"statuses, numbers or errors differ: {LINEAR}" in capsys.readouterr().out


def test_a_wrong_status_fails(run_against, capsys):
    assert run_against(SOLVE, "status", lambda status: ["MAX_ITER"]) == 1
    printed = capsys.readouterr().out
    assert f"statuses, numbers or errors differ: {SOLVE}" in printed
    assert "MAX_ITER → CONVERGED" in printed


@pytest.mark.parametrize(("factor", "exit_status"), [(0.99, 1), (1.01, 0)], ids=["rises", "falls"])
def test_the_mean_of_changed_values_may_fall_but_not_rise(run_against, factor, exit_status, capsys):
    assert run_against(SOLVE, "value", lambda value: value * factor) == exit_status
    printed = capsys.readouterr().out
    assert "START CHANGED" in printed
    assert ("which is worse" in printed) == (exit_status == 1)


def test_a_different_plan_of_equal_value_is_reported_and_passes(run_against, capsys):
    assert run_against(SOLVE, "plan", lambda plan: plan[::-1]) == 0
    assert f"differ: {SOLVE}" in capsys.readouterr().out


def test_an_error_where_there_was_none_fails(run_against, monkeypatch, capsys):
    def prepare():
        raise ValueError("broken")

    monkeypatch.setitem(regression.CASES, SOLVE, ("tight", prepare))
    assert run_against(SOLVE) == 1
    assert "error: ValueError: broken" in capsys.readouterr().out


def test_a_rise_and_a_larger_fall_balance_in_the_mean():
    before = regression.Outcome({"value": np.array(1.0)})
    now = {change: regression.Outcome({"value": np.array(1.0 + change)}) for change in (0.01, -0.02, -0.005)}
    rows = {change: regression.compare(SOLVE, before, outcome) for change, outcome in now.items()}
    assert regression.print_conclusion([rows[0.01], rows[-0.02]]) == 0
    assert regression.print_conclusion([rows[0.01], rows[-0.005]]) == 1


@pytest.mark.parametrize(
    ("old", "new", "scale", "expected"),
    [(2.0, 2.2, 0.0, 0.1), (1e-9, 2e-9, 1.0, 1e-9), (0.0, 0.0, 0.0, 0.0), (1.0, np.nan, 1.0, np.inf)],
    ids=["relative to the value", "relative to the scale", "both 0", "not a number"],
)
def test_relative_change(old, new, scale, expected):
    change = regression.relative_change(np.array(old), np.array(new), np.array(scale))
    assert change == pytest.approx(expected, rel=1e-6)
