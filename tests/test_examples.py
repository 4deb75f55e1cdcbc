"""The examples run: they write their pictures, print their numbers, and say where data are to be had."""

import importlib
import importlib.util
import math
import os
import sys
import warnings
from pathlib import Path

import pytest

import ugw

FOLDER = Path(__file__).resolve().parents[1] / "examples"
real = pytest.mark.skipif(not os.environ.get("UGW_DATA"), reason="UGW_DATA does not name the folder with the data")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("debiased_flow", {"steps": 2}),
        ("align", {"steps": 2}),
        ("generate", {"steps": 2, "size": 20}),
        ("barycentres", {"rounds": 2}),
    ],
)
def test_an_example_draws_its_picture(name, given, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(FOLDER))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ugw.ConvergenceWarning)  # two rounds are not enough, and are not meant to be
        importlib.import_module(name).main(str(tmp_path), **given)
    assert [file.name for file in tmp_path.iterdir()] == [f"{name}.png"]
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 80


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "args"), [("single_cell", [[]]), ("align_anndata", [])])
def test_without_data_they_say_what_to_do(name, args, monkeypatch, tmp_path, capsys):
    if name == "align_anndata":
        pytest.importorskip("anndata")
    monkeypatch.delenv("UGW_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert load(name).main(*args) == 1
    assert "github.com/rsinghlab/SCOT" in capsys.readouterr().out


@real
def test_unbalanced_wins_where_a_cell_type_is_missing():
    example = load("single_cell")
    for removed in ("BJ", "d24T+", "iPSc"):
        balanced = example.align("scgem", removed, math.inf)
        unbalanced = example.align("scgem", removed, (example.SOFT, example.FIRM))
        assert unbalanced.foscttm < balanced.foscttm - 0.02
        assert unbalanced.neighbours > balanced.neighbours + 0.05
        assert unbalanced.votes > balanced.votes + 0.1
        assert unbalanced.kept < 0.7 < balanced.kept


@real
def test_anndata_receive_what_was_found(capsys):
    assert load("align_anndata").main() == 0
    said = capsys.readouterr().out
    for name in ("ugw_stage", "ugw_mass", "X_ugw"):
        assert name in said
