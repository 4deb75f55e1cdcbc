"""Public names, and the README: its code blocks run and print what it shows."""

import ast
import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import ugw
from ugw.cli import commands as cli

README = Path(__file__).parents[1] / "README.md"


def test_dir_lists_the_public_names_and_they_exist():
    assert dir(ugw) == sorted([*ugw.__all__, "__version__"])
    for name in dir(ugw):
        assert hasattr(ugw, name)


def names_for_type_checkers():
    """The names that `__init__.py` imports under TYPE_CHECKING, with their modules, None for modules of the package."""
    tree = ast.parse(Path(ugw.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    assert all(isinstance(node, ast.ImportFrom) for node in block.body)
    return {alias.name: node.module for node in block.body for alias in node.names if node.level == 1}


def test_the_lists_of_public_names_agree():
    names = names_for_type_checkers()
    assert {name: module for name, module in names.items() if module is not None} == ugw._MODULES
    assert set(names) == set(ugw.__all__)
    assert {name for name, module in names.items() if module is None} <= set(ugw._SUBMODULES)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'ugw' has no attribute 'sovle'"):
        _ = ugw.sovle


def run_in_new_process(code):
    """What the code prints in a new interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_imports_neither_torch_nor_scipy():
    heavy = ("torch", "scipy", "numpy", "ugw.solvers", "ugw.api")
    code = f"import sys, ugw; dir(ugw); print([name for name in {heavy} if name in sys.modules])"
    assert run_in_new_process(code) == "[]\n"


def test_every_public_name_resolves_first_in_a_new_process():
    code = """
import sys, ugw
for name in reversed(dir(ugw)):
    assert name not in vars(ugw) or not callable(vars(ugw)[name]), name
    value = getattr(ugw, name)
    assert getattr(ugw, name) == value
from ugw import *
print(Space.__name__, solve is ugw.solve, ugw.errors.__name__)
"""
    assert run_in_new_process(code) == "Space True ugw.errors\n"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_readme_runs_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output, scope = io.StringIO(), {}
    with contextlib.redirect_stdout(output):
        for block in blocks("python"):
            exec(block, scope)
    assert output.getvalue() == "".join(blocks("text"))
    commands = re.findall(r"^    \.venv/bin/ugw (.*)$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert commands
    for command in commands:
        done = CliRunner().invoke(cli.main, shlex.split(command), catch_exceptions=False)
        assert done.exit_code == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["matching.png", "plan.npz", "summary.json"]
    assert np.load("out/plan.npz")["plan"].shape == (40, 50)
