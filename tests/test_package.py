"""Public names, and the README: its code blocks run and print what it shows."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import numpy as np
from click.testing import CliRunner

import ugw
from ugw.cli import commands as cli

README = Path(__file__).parents[1] / "README.md"


def test_dir_lists_the_public_names_and_they_exist():
    assert dir(ugw) == sorted([*ugw.__all__, "__version__"])
    for name in dir(ugw):
        assert hasattr(ugw, name)


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_readme_runs_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said, scope = io.StringIO(), {}
    with contextlib.redirect_stdout(said):
        for block in blocks("python"):
            exec(block, scope)
    assert said.getvalue() == "".join(blocks("text"))
    commands = re.findall(r"^    \.venv/bin/ugw (.*)$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert commands
    for command in commands:
        done = CliRunner().invoke(cli.main, shlex.split(command), catch_exceptions=False)
        assert done.exit_code == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["matching.png", "plan.npz", "summary.json"]
    assert np.load("out/plan.npz")["plan"].shape == (40, 50)
