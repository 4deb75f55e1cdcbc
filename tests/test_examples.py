"""The examples run, for a few steps each, and write their pictures."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path

import pytest

import ugw

FOLDER = Path(__file__).resolve().parents[1] / "examples"


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
