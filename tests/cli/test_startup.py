"""Imports of the command line before a command runs: help, usage errors and completion need neither torch nor NumPy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ugw

CODE = """
import sys
from ugw.cli import main
try:
    main(sys.argv[1:], prog_name="ugw")
finally:
    print("heavy:", [name for name in ("torch", "numpy", "scipy", "matplotlib") if name in sys.modules])
"""


def run(*args, **environment):
    """Run the command in a new process and print afterwards which large packages were imported."""
    folder = {"PYTHONPATH": str(Path(ugw.__file__).parents[1])}  # also where it is not installed
    return subprocess.run(
        [sys.executable, "-c", CODE, *args],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | folder | environment,
    )


@pytest.mark.parametrize(
    "args", [("--help",), ("match", "--help"), ("reproduce", "--help"), ("demo", "-h"), ("--version",)]
)
def test_help_imports_no_large_package(args):
    done = run(*args)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("Usage: ugw", "ugw, version "))
    assert done.stdout.endswith("heavy: []\n")


@pytest.mark.parametrize(
    ("args", "message"), [(("macth",), "No such command"), (("match", "a.csv"), "Missing argument")]
)
def test_an_error_of_usage_imports_no_large_package(args, message):
    done = run(*args)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == "heavy: []\n"


@pytest.mark.parametrize(("words", "offers"), [("ugw re", "reproduce"), ("ugw match --in", "--init")])
def test_shell_completion_imports_no_large_package(words, offers):
    last = str(len(words.split()) - 1)
    done = run(_UGW_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=last)
    assert done.returncode == 0, done.stderr
    assert offers in done.stdout
    assert done.stdout.endswith("heavy: []\n")
