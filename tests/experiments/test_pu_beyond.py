"""Beyond the paper's table: better minima, conic plans and a rho without a grid."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from oracles.pu import CROSS, SAME, SMALL
from ugw.cli import commands as cli
from ugw.experiments import pu, pu_beyond


@pytest.fixture(scope="module")
def methods(domains):
    ticks = []
    methods = pu_beyond.run(CROSS, domains, SMALL, lambda: ticks.append(1))
    assert len(ticks) == len(pu_beyond.TITLES)
    return methods


def test_the_first_method_is_that_of_the_papers_table(domains, methods):
    known = pu.run(CROSS, domains, SMALL, lambda: None)
    assert methods["ugw"]["accuracy"] == known["ugw"][0][: SMALL.folds]


def test_the_best_of_starts_is_no_worse_than_the_papers(methods):
    one, many = (np.array(methods[method]["value"]) for method in ("ugw", "minima"))
    assert (many <= one + 1e-6 * np.abs(one)).all()


def test_the_mass_rule_keeps_the_prior(domains):
    """The kept mass of one fold of `CROSS` jumps over the prior as rho grows; that of `SAME` does not."""
    result = pu_beyond.run(SAME, domains, SMALL, lambda: None)
    assert result["mass"]["mass"] == pytest.approx(SAME.prior, abs=5e-3)
    assert len(result["mass"]["log2_rho"]) == SMALL.folds


def test_the_number_of_predicted_positives_is_right(methods):
    for method in pu_beyond.TITLES:  # hence the wrong ones come in pairs
        assert np.isin(np.round(methods[method]["accuracy"], 9), (80.0, 90.0, 100.0)).all()


def test_the_table():
    def make_scores(accuracy, **fields):
        return {"accuracy": accuracy, "mass": 0.1, "converged": 1.0, **fields}

    scores = {"ugw": make_scores([80.0, 90.0], value=[2.0, 4.0]), "minima": make_scores([90.0, 90.0], value=[1.0, 4.0])}
    scores |= {"cgw": make_scores([80.0, 80.0]), "mass": make_scores([90.0, 100.0], log2_rho=[-4.0, -6.0])}
    (row,) = pu_beyond.table_rows([SAME], {SAME.name: scores})
    assert row["minima"] == {"accuracy": 90.0, "std": 0.0}
    assert row["lower"] == {"folds": 1, "mean": 0.25}
    text = pu_beyond.format_table([row], folds=2)
    assert "1 of 2, by 25 %" in text[2]
    assert text[-1].endswith("best of starts +5.0, CGW -5.0, mass rule +10.0")


def test_the_command(domains, tmp_path, monkeypatch):
    monkeypatch.setattr(pu_beyond, "QUICK", SMALL)
    monkeypatch.setattr(pu, "office_caltech10", lambda keys: {key: domains[key] for key in keys})
    asked = ["reproduce", "pu", "--beyond", "--quick", "--tasks", SAME.name, "--out", str(tmp_path)]
    done = CliRunner().invoke(cli.main, asked)
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pu-beyond-tasks", "pu-beyond.json"]
    assert json.loads((tmp_path / "pu-beyond.json").read_text(encoding="utf-8"))["rows"][0]["task"] == SAME.name
    assert CliRunner().invoke(cli.main, asked).stdout == done.stdout  # from stored results
    assert "are for pu" in CliRunner().invoke(cli.main, ["reproduce", "graphs", "--beyond"]).output
