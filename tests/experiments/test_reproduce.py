"""`ugw reproduce`: every name of the list has its module, writes its files and is explained."""

import functools
import json
from importlib import import_module

import pytest
from click.testing import CliRunner

from ugw.cli.commands import main
from ugw.experiments import REPRODUCED

# What makes `run()` of an experiment small enough for a test.
SMALL = {
    "imbalanced": {"n": 20, "eps": 0.02, "shares": (0.3,)},
    "outliers": {"n": 20, "outliers": 3},
    "graphs": {"n": 32, "rhos": (0.1,)},
    "graphs-partial": {"n": 32, "rhos": (0.1,)},
    "eps-rho": {"n": 12, "rhos": (1.0,), "eps": (3.0,)},
    "cgw-local": {"n": 3, "rhos": (1.0,), "shifts": (0.0, 0.2)},
    "tightness": {"kinds": ("tree", "bipartite graph"), "n": 6, "pairs": 2, "starts": 2},
}


def module_of(name):
    return import_module(f"ugw.experiments.{REPRODUCED[name][0]}")


@pytest.mark.parametrize("name", SMALL)
def test_the_command_prints_numbers_and_writes_the_picture_and_the_numbers(name, tmp_path, monkeypatch):
    module = module_of(name)
    monkeypatch.setattr(module, "run", functools.partial(module.run, **SMALL[name]))
    done = CliRunner().invoke(main, ["reproduce", name, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    picture, numbers = REPRODUCED[name][1]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((picture, numbers))
    assert json.loads((tmp_path / numbers).read_text(encoding="utf-8"))
    assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
    assert len(done.output.splitlines()) > 2


def test_help_explains_every_name_in_a_line():
    output = CliRunner().invoke(main, ["reproduce", "--help"]).output
    first_words = [line.split()[0] for line in output.splitlines() if line.strip()]
    assert set(REPRODUCED) <= set(first_words)


@pytest.mark.parametrize("name", REPRODUCED)
def test_every_name_has_a_module_that_reproduces_it(name):
    assert callable(module_of(name).reproduce)
    assert all(file.startswith(name) for file in REPRODUCED[name][1])
