"""Ctrl-C on the command line in a child process: exit code 130 within a second, one line, no file, no traceback."""

import numpy as np
import pytest

from oracles.interrupts import MAX_SECONDS, fastest_of, interrupt_child, needs_sigint
from ugw.cli.interrupt import INTERRUPTED, MESSAGE


@pytest.fixture(scope="module")
def clouds(tmp_path_factory):
    """A folder with two clouds whose match takes many seconds."""
    folder = tmp_path_factory.mktemp("clouds")
    for seed, name in enumerate("ab"):
        np.save(folder / f"{name}.npy", np.random.default_rng(seed).normal(size=(1200, 3)))
    return folder


def interrupt_match(folder, out, marker, *options, **environment):
    """Interrupt `ugw match` once it has written the marker to stderr; options: of Python."""
    return interrupt_child(
        [*options, "-m", "ugw", "match", str(folder / "a.npy"), str(folder / "b.npy"), "--progress", "--out", str(out)],
        lambda _, err: marker in err,
        **environment,
    )


def check_end(end, out):
    """Check that the command ended as after Ctrl-C, and that it has left no file."""
    assert end.code == INTERRUPTED
    assert end.stdout == ""
    assert end.stderr.rstrip("\n").endswith(MESSAGE)
    assert "Traceback" not in end.stderr
    assert not out.exists() or list(out.iterdir()) == []
    assert end.seconds <= MAX_SECONDS


@needs_sigint
@pytest.mark.parametrize(("marker", "compiled"), [("steps of candidates", "0"), ("objective", "1")])
def test_ctrl_c_in_the_search_and_in_the_solve(clouds, tmp_path, marker, compiled):
    out = tmp_path / "out"
    check_end(fastest_of(lambda: interrupt_match(clouds, out, marker, UGW_COMPILED=compiled)), out)


@needs_sigint
@pytest.mark.parametrize("module", ["numpy", "torch._C", "torch.nn.functional", "scipy.sparse"])
def test_ctrl_c_during_imports(clouds, tmp_path, module):
    """Python writes a line for each module that it starts to import or has imported."""
    out = tmp_path / "out"
    check_end(fastest_of(lambda: interrupt_match(clouds, out, f"import '{module}'", "-v")), out)
