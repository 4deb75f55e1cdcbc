"""Checkpoints: a killed run continues with the same result, and runs are never mixed."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import ugw
from oracles.interrupts import MAX_SECONDS, N_ATTEMPTS, fastest_of, interrupt_child, needs_sigint
from oracles.pairwise import QUICK, clouds, limit_block_entries
from ugw.all_pairs import executor
from ugw.all_pairs.checkpoint import to_json

ENTRIES = 250  # of the plans of a block
TESTS = Path(__file__).parents[1]

SCRIPT = f"""
import sys
sys.path[:0] = [{str(TESTS)!r}, {str(TESTS.parent / "src")!r}]
import torch, ugw
from oracles.pairwise import QUICK, limit_block_entries, clouds
if __name__ == "__main__":
    with limit_block_entries({ENTRIES}):
        ugw.pairwise(clouds((9, 12, 10, 11, 9, 8, 12)), method=QUICK, checkpoint=sys.argv[1], n_jobs=int(sys.argv[2]))
"""


def spaces():
    """Return the spaces of all runs of this file."""
    return clouds((9, 12, 10, 11, 9, 8, 12))


def block_files(folder):
    """Return the files of the finished blocks."""
    return sorted(folder.glob("block-*.npz"))


def count_solved(monkeypatch):
    """Return a list to which every task that is solved in this process is appended."""
    solved, inner = [], executor.run_task
    monkeypatch.setattr(executor, "run_task", lambda task: solved.append(task) or inner(task))
    return solved


@pytest.fixture(scope="module")
def run_in_blocks(tmp_path_factory):
    """The result and the checkpoint of a run in many blocks."""
    folder = tmp_path_factory.mktemp("blocks")
    with limit_block_entries(ENTRIES):
        return ugw.pairwise(spaces(), method=QUICK, checkpoint=folder), folder


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_run_that_is_killed_twice_ends_with_the_same_bytes(run_in_blocks, tmp_path, n_jobs):
    if n_jobs == 2:
        pytest.importorskip("joblib")
    expected = run_in_blocks[0]
    folder, chance = tmp_path / "run", random.Random(n_jobs)
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    counts = []
    for n_blocks in (1, 8):
        run = subprocess.Popen([sys.executable, str(file), str(folder), str(n_jobs)], start_new_session=True)
        end = time.monotonic() + 60
        while run.poll() is None and len(block_files(folder)) < n_blocks and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(0.1 * chance.random())
        os.killpg(run.pid, signal.SIGKILL)  # also the workers
        run.wait()
        counts.append(len(block_files(folder)))
    assert 0 < counts[0] <= counts[1]
    with limit_block_entries(ENTRIES):
        result = ugw.pairwise(spaces(), method=QUICK, checkpoint=folder)
    for name in ("values", "masses", "codes"):
        assert getattr(result, name).tobytes() == getattr(expected, name).tobytes()


@pytest.fixture
def checkpoint(run_in_blocks, tmp_path):
    """A copy of the checkpoint, which a test may change."""
    return shutil.copytree(run_in_blocks[1], tmp_path / "copy")


def test_stored_blocks_are_not_solved_again(run_in_blocks, checkpoint, monkeypatch):
    solved = count_solved(monkeypatch)
    with limit_block_entries(ENTRIES):
        again = ugw.pairwise(spaces(), method=QUICK, checkpoint=checkpoint, names=list("abcdefg"))
        assert not solved
        assert again.values.tobytes() == run_in_blocks[0].values.tobytes()
        block_files(checkpoint)[3].unlink()
        ugw.pairwise(spaces(), method=QUICK, checkpoint=checkpoint)
        assert len(solved) == 1


@pytest.mark.parametrize("damage", ["empty", "torn", "flipped", "other"])
def test_a_damaged_block_is_solved_again(run_in_blocks, checkpoint, monkeypatch, damage):
    file = block_files(checkpoint)[2]
    data = bytearray(file.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 0xFF
    file.write_bytes({"empty": b"", "torn": data[:-40], "flipped": data, "other": b"not a zip file"}[damage])
    solved = count_solved(monkeypatch)
    with limit_block_entries(ENTRIES):
        result = ugw.pairwise(spaces(), method=QUICK, checkpoint=checkpoint)
    assert len(solved) == 1
    assert result.values.tobytes() == run_in_blocks[0].values.tobytes()


def other_runs():
    """Return arguments of runs that differ from the finished one, with the expected message."""
    xs = spaces()
    changed = [*xs[:-1], ugw.Space.from_points(xs[-1].points + 1e-12, weights=xs[-1].weights)]
    return {
        "data": ((changed,), {}, "the spaces differ"),
        "fewer": ((xs[:-1],), {}, "the spaces differ"),
        "order": ((xs[::-1],), {}, "the spaces differ"),
        "two lists": ((xs, xs), {}, "the spaces differ"),
        "dtype": (([x.to(torch.float32) for x in xs],), {}, "the spaces differ"),
        "eps": ((xs,), {"eps": 0.02}, "the options eps differ"),
        "rho": ((xs,), {"rho": (1.0, 2.0)}, "the options rho differ"),
        "solver": ((xs,), {"solver": ugw.AlternateMin(tol=1e-5)}, "the options solver differ"),
        "start": ((xs,), {"method": ugw.Method("ugw", init="flb")}, "the options init differ"),
        "method": ((xs,), {"method": ugw.Method("debiased", init="product")}, "the options eps, method differ"),
    }


@pytest.fixture(scope="module")
def finished_folder(tmp_path_factory):
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("finished")
    ugw.pairwise(spaces(), method=QUICK, checkpoint=folder)
    return folder


@pytest.mark.parametrize("name", other_runs())
def test_another_run_is_refused(finished_folder, name):
    args, options, message = other_runs()[name]
    before = {file.name: file.read_bytes() for file in finished_folder.iterdir()}
    with pytest.raises(ugw.InputError, match=f"is of another run, {message}"):
        ugw.pairwise(*args, **({"method": QUICK} | options), checkpoint=finished_folder)
    assert {file.name: file.read_bytes() for file in finished_folder.iterdir()} == before


@pytest.mark.parametrize(
    ("part", "message"), [("format", r"\(0, now 3\)"), ("version", r"the version of ugw \(0, now")]
)
def test_another_format_or_version_is_refused(finished_folder, tmp_path, part, message):
    manifest = json.loads((finished_folder / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {part: 0}))
    with pytest.raises(ugw.InputError, match=message):
        ugw.pairwise(spaces(), method=QUICK, checkpoint=tmp_path)


def test_blocks_of_another_run_are_not_mixed_in(finished_folder, tmp_path):
    """A file that was copied over from another folder."""
    ugw.pairwise(spaces(), method=QUICK, eps=0.5, checkpoint=tmp_path)
    file = block_files(tmp_path)[0]
    file.write_bytes((finished_folder / file.name).read_bytes())
    with pytest.raises(ugw.InputError, match="is a block of another run"):
        ugw.pairwise(spaces(), method=QUICK, eps=0.5, checkpoint=tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(ugw.InputError, match=r"has blocks but no manifest\.json"):
        ugw.pairwise(spaces(), method=QUICK, eps=0.5, checkpoint=tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ugw.InputError, match="is damaged: take another folder"):
        ugw.pairwise(spaces(), method=QUICK, eps=0.5, checkpoint=tmp_path)


def test_half_written_files_of_a_killed_run_are_removed(tmp_path):
    old, new = tmp_path / ".ugw-old", tmp_path / ".ugw-new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "block-000000.npz").write_text("half")
    os.utime(old, (0, 0))
    ugw.pairwise(clouds((4,)), method=QUICK, checkpoint=tmp_path)
    assert not old.exists()
    assert new.exists()  # another run may be writing it


def test_files_are_plain_arrays(finished_folder):
    with np.load(block_files(finished_folder)[0], allow_pickle=False) as arrays:
        assert {"run", "pairs", "column_value", "column_mass", "column_status", "column_n_iter"} == set(arrays)
    manifest = json.loads((finished_folder / "manifest.json").read_text())
    assert manifest["options"]["rho"] == 1.0
    assert manifest["options"]["method"] == "ugw"


@pytest.mark.parametrize(
    "options",
    [
        {"rho": 1.0, "eps": ugw.relative(0.1), "solver": ugw.Multistart(solver=ugw.AlternateMin(tol=1e-5), n=3)},
        {"rho": (ugw.KL(1.0), ugw.Balanced()), "cone": ugw.HellingerKantorovich(0.5)},
        {"rho": np.float64(0.5), "fused": ugw.Fused(0.5)},
    ],
)
def test_descriptions_of_options_survive_json(options):
    assert json.loads(json.dumps(to_json(options))) == to_json(dict(options))


def test_equal_options_have_equal_descriptions():
    assert to_json(np.float64(0.5)) == to_json(0.5)
    assert to_json(ugw.KL(2.0)) != to_json(ugw.TV(2.0))
    assert to_json(1.0) != to_json(1.0 + 1e-16 * 4)


def test_a_loss_function_cannot_be_checkpointed(tmp_path):
    typed = ugw.Method("ugw", loss=lambda t: t.square(), init="product")
    with pytest.raises(ugw.InputError, match="a checkpoint must know its options again"):
        ugw.pairwise(clouds((4, 5)), method=typed, checkpoint=tmp_path)


SLOW_SCRIPT = """
import sys, ugw
from oracles.interrupts import MAX_SECONDS, N_ATTEMPTS, fastest_of, interrupt_child, needs_sigint
from oracles.pairwise import QUICK, clouds, limit_block_entries
if __name__ == "__main__":
    try:
        with limit_block_entries(400):
            ugw.pairwise(clouds((20,) * 80), checkpoint=sys.argv[1], n_jobs=int(sys.argv[2]))
        print("finished")
    except KeyboardInterrupt:
        print("interrupted")
"""


@needs_sigint
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ctrl_c_leaves_complete_files_only(tmp_path, n_jobs):
    if n_jobs == 2:
        pytest.importorskip("joblib")
    script = tmp_path / "script.py"
    script.write_text(SLOW_SCRIPT)
    folders = [tmp_path / f"run-{k}" for k in range(N_ATTEMPTS)]
    remaining = iter(folders)

    def attempt():
        """Interrupt a run once it has written two blocks."""
        folder = next(remaining)
        return interrupt_child(
            [str(script), str(folder), str(n_jobs)],
            lambda *_: len(block_files(folder)) >= 2,
            reaction="interrupted",
        )

    end = fastest_of(attempt)
    assert end.stdout.endswith("interrupted\n"), end
    assert "finished" not in end.stdout
    assert end.seconds <= MAX_SECONDS
    for folder in filter(Path.exists, folders):
        assert {file.name for file in folder.iterdir()} == {"manifest.json", *(f.name for f in block_files(folder))}
        assert 2 <= len(block_files(folder)) < 3000
        for file in block_files(folder):
            with np.load(file) as arrays:
                assert {"run", "pairs", "column_value"} <= set(arrays)
                assert np.isfinite(arrays["column_value"]).all()
