"""The positive-unlabeled experiment: its tasks, runs that are interrupted, and its command."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from io import StringIO

import numpy as np
import pytest
import torch
import tqdm.auto
from click.testing import CliRunner

import ugw
from oracles.pu import CROSS, SAME, SMALL
from ugw import datasets
from ugw.cli import commands as cli
from ugw.experiments import pu, pu_tasks
from ugw.experiments.pu_tasks import Task

OTHER = Task("surf", "surf", "C", 0.1)


@pytest.mark.parametrize("task", [SAME, CROSS])
def test_a_task_runs_all_methods_with_the_right_number_of_positives(domains, task):
    ticks = []
    result = pu.run(task, domains, SMALL, lambda: ticks.append(1))
    assert len(ticks) == len(result["ugw"]) == 4
    assert result["positives"] == [2]
    assert np.array(result["ugw"]).shape == (4, 4)
    assert len(result["init"]) == len(result["pgw"]) == 2
    # As many called positive as are: the wrong ones come in pairs.
    for accuracy in (result["init"], result["pgw"], result["ugw"]):
        assert np.isin(np.round(accuracy, 9), (80.0, 90.0, 100.0)).all()


def test_an_interrupted_run_goes_on_and_other_options_are_refused(domains, tmp_path, monkeypatch):
    tasks, ran, real = [SAME, OTHER], [], pu.run
    run_all = partial(pu.run_all, domains=domains, jobs=1)
    whole = run_all(tasks, SMALL, tmp_path / "whole")

    def interrupt_second_task(task, *rest):
        if task == OTHER and not ran.count(OTHER):
            ran.append(task)
            raise KeyboardInterrupt
        ran.append(task)
        return real(task, *rest)

    monkeypatch.setattr(pu, "run", interrupt_second_task)
    with pytest.raises(KeyboardInterrupt):
        run_all(tasks, SMALL, tmp_path / "kept")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [SAME.file]
    resumed = run_all(tasks, SMALL, tmp_path / "kept")
    assert ran == [SAME, OTHER, OTHER]  # what was finished is not run again
    for name, result in whole.items():
        assert resumed[name]["ugw"] == result["ugw"]
        assert resumed[name]["pgw"] == result["pgw"]
    with pytest.raises(ugw.InputError, match="results of these options"):
        run_all(tasks, replace(SMALL, folds=3), tmp_path / "kept")
    (tmp_path / "kept" / SAME.file).write_text("{", encoding="utf-8")
    with pytest.raises(ugw.InputError, match="got something else"):
        run_all(tasks, SMALL, tmp_path / "kept")


def test_parallel_tasks_give_the_results_of_sequential_ones(domains, tmp_path, monkeypatch):
    bars = []

    class Seen(tqdm.auto.tqdm):
        def __init__(self, **options):
            super().__init__(**options | {"disable": False, "file": StringIO()})
            bars.append(self)

    monkeypatch.setattr(tqdm.auto, "tqdm", Seen)
    tasks, few = [SAME, OTHER], replace(SMALL, log_rhos=(-5,))
    turn, once = (pu.run_all(tasks, few, tmp_path / str(jobs), domains=domains, jobs=jobs) for jobs in (1, 2))
    for name, result in turn.items():
        assert once[name] | {"seconds": result["seconds"]} == result
    assert len(list((tmp_path / "2").iterdir())) == 2
    assert [bar.n for bar in bars] == [2, 2]  # a tick for each task and pair of rhos, from processes too
    with pytest.raises(ugw.InputError, match="jobs"):
        pu.run_all(tasks, few, tmp_path, domains=domains, jobs=0)


SLOW = """
import pathlib, sys, time
from dataclasses import replace
from ugw.experiments import pu
from ugw.experiments.pu_tasks import Task

def run_task(task, domains, protocol, advance):
    advance()
    pathlib.Path(sys.argv[1], task.letter).touch()
    time.sleep(600)

if __name__ == "__main__":
    tasks = [Task("surf", "surf", domain, 0.1) for domain in "AW"]
    nothing = dict.fromkeys(key for task in tasks for key in task.keys)
    pu.run_all(tasks, pu.QUICK, pathlib.Path(sys.argv[1], "kept"), domains=nothing, jobs=2, run_task=run_task)
"""


def test_a_run_that_is_killed_leaves_no_process_behind(tmp_path):
    psutil = pytest.importorskip("psutil")
    script = tmp_path / "slow.py"
    script.write_text(SLOW, encoding="utf-8")
    with subprocess.Popen([sys.executable, script, tmp_path]) as run:
        _wait(lambda: (tmp_path / "A").exists() and (tmp_path / "W").exists())
        children = psutil.Process(run.pid).children(recursive=True)
        assert len(children) >= 2
        run.kill()
    _wait(lambda: not any(child.is_running() and child.status() != "zombie" for child in children))


def _wait(until, seconds=120):
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_the_command(domains, tmp_path, monkeypatch):
    monkeypatch.setattr(pu, "QUICK", SMALL)
    monkeypatch.setattr(pu, "office_caltech10", lambda keys: {key: domains[key] for key in keys})
    out = str(tmp_path / "out")
    asked = ["reproduce", "pu", "--quick", "--tasks", SAME.name, "--out", out]
    done = CliRunner().invoke(cli.main, asked)
    assert done.exit_code == 0, done.output
    assert SAME.name in done.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["pu-tasks", "pu.json", "pu.png"]
    numbers = json.loads((tmp_path / "out" / "pu.json").read_text(encoding="utf-8"))
    assert [row["method"] for row in numbers["rows"]] == list(pu_tasks.METHODS)
    assert "a quick look: " in done.output
    assert "labels at random: 82 at prior 0.1" in done.output or "labels at random: 68 at prior 0.2" in done.output
    again = CliRunner().invoke(cli.main, asked)
    assert again.stdout == done.stdout  # from stored results
    assert done.stderr == f"pu: {SAME.name} done, 1 of 1\n"
    assert again.stderr == ""
    other = CliRunner().invoke(cli.main, [*asked[:2], *asked[3:]])
    assert other.exit_code == 2
    assert "results of these options" in other.output
    assert "are for pu" in CliRunner().invoke(cli.main, ["reproduce", "cgw-local", "--quick"]).output
    assert "are for pu" in CliRunner().invoke(cli.main, ["reproduce", "graphs", "--device", "cuda"]).output
    refused = CliRunner().invoke(cli.main, ["reproduce", "pu", "--beyond", "--device", "cuda"])
    assert refused.exit_code == 2
    assert "on the CPU alone" in refused.output
    if not torch.cuda.is_available():
        assert "got none" in CliRunner().invoke(cli.main, ["reproduce", "pu", "--device", "cuda"]).output

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(pu, "run", stop)
    stopped = CliRunner().invoke(cli.main, ["reproduce", "pu", "--tasks", SAME.name, "--out", str(tmp_path / "new")])
    assert stopped.exit_code == 130
    assert "goes on from there" in stopped.output


@pytest.mark.skipif(not os.environ.get("UGW_DATA"), reason="UGW_DATA does not name the folder with the data")
def test_the_papers_accuracies_at_fixed_parameters():
    domains, protocol = datasets.office_caltech10(), pu.Protocol(log_rhos=(-5,))
    for letter, expected in (("A", 83.1), ("W", 80.1)):
        result = pu.run(Task("surf", "surf", letter, 0.1), domains, protocol, lambda: None)
        assert np.mean(result["ugw"][0][:20]) == pytest.approx(expected, abs=0.1001)
        assert result["positives"] == [10]


def test_starts_of_next_to_no_mass_keep_their_shape():
    plans = np.random.default_rng(0).random((3, 4, 5)) * np.array([1e-60, 1.0, 1e30])[:, None, None]
    result = pu.rescale_masses(plans)
    masses = result.sum(axis=(1, 2))
    assert ((masses >= 1.0) & (masses < 2.0)).all()
    np.testing.assert_array_equal(result / result[:, :1, :1], plans / plans[:, :1, :1])
