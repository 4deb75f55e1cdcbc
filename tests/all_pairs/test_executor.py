"""Worker processes: equal results, dead workers, and pairs that fail."""

import os
import signal

import numpy as np
import pytest

import ugw
from oracles.pairwise import QUICK, clouds, have_equal_bytes, limit_block_entries
from ugw.all_pairs import executor
from ugw.all_pairs.job import ResultMatrix
from ugw.all_pairs.worker import run_task

joblib = pytest.importorskip("joblib")

HERE = os.getpid()


def test_processes_return_the_same_bytes_and_restore_the_number_of_threads():
    import torch

    spaces, before = clouds(), torch.get_num_threads()
    with limit_block_entries(300):
        alone = ugw.pairwise(spaces, method=QUICK)
        assert have_equal_bytes(alone, ugw.pairwise(spaces, method=QUICK, n_jobs=2))
        with joblib.parallel_config(n_jobs=2):
            assert have_equal_bytes(alone, ugw.pairwise(spaces, method=QUICK))
        with joblib.parallel_config(backend="threading", n_jobs=2):
            assert have_equal_bytes(alone, ugw.pairwise(spaces, method=QUICK))
        with joblib.parallel_config(backend="multiprocessing", n_jobs=2):  # returns nothing before the end of a round
            assert have_equal_bytes(alone, ugw.pairwise(spaces, method=QUICK))
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("n_jobs", "config", "expected"),
    [(None, {}, 1), (3, {}, 3), (None, {"n_jobs": 2}, 2), (1, {"n_jobs": 2}, 1), (-1, {}, -1)],
)
def test_the_number_of_workers_comes_from_n_jobs_or_from_joblib(n_jobs, config, expected):
    with joblib.parallel_config(**config):
        assert executor.resolve_n_workers(n_jobs) == expected


def test_a_lambda_can_be_sent_to_workers():
    spaces = clouds((4, 5))
    rate = 0.5
    typed = ugw.Method("ugw", loss=lambda t: t.abs() * rate, init="product")
    alone = ugw.pairwise(spaces, method=typed, eps=0.1)
    assert have_equal_bytes(alone, ugw.pairwise(spaces, method=typed, eps=0.1, n_jobs=2))


# -- workers that die ----------------------------------------------------------------------------------------


def test_blocks_of_a_worker_that_died_are_run_again(tmp_path):
    spaces, flag = clouds(), tmp_path / "died"
    own_pid = HERE

    def kill_worker(t):
        """Kill the first worker that calls it."""
        if os.getpid() != own_pid and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return t.square()

    method = ugw.Method("ugw", loss=kill_worker, init="product")
    with limit_block_entries(300):
        result = ugw.pairwise(spaces, method=method, eps=0.1, n_jobs=2)
        assert flag.exists()
        assert have_equal_bytes(result, ugw.pairwise(spaces, method=method, eps=0.1))


def test_workers_that_always_die_raise_an_error():
    own_pid = HERE

    def kill_worker(t):
        if os.getpid() != own_pid:
            os.kill(os.getpid(), signal.SIGKILL)
        return t.square()

    with pytest.raises(ugw.Incomplete, match="workers died 3 times in a row") as caught:
        ugw.pairwise(clouds((4, 5)), method=ugw.Method("ugw", loss=kill_worker, init="product"), n_jobs=2)
    assert np.isnan(caught.value.result.values).all()


# -- pairs that fail -----------------------------------------------------------------------------------------


@pytest.fixture
def spaces_with_failing_pair(monkeypatch):
    """Spaces of which the second and the fourth, of 9 and 12 points, cannot be solved as a pair."""
    from ugw.api import solve as api

    inner = api.solve

    def fail_for_pair(x, y, **options):
        if any({n, m} == {9, 12} for n, m in zip(x.sizes, y.sizes, strict=True)):
            raise MemoryError("no room\nfor this pair")
        return inner(x, y, **options)

    monkeypatch.setattr(api, "solve", fail_for_pair)
    return clouds((5, 9, 7, 12))


def test_a_pair_that_fails_is_named_and_the_others_are_kept(spaces_with_failing_pair, tmp_path):
    message = r"pair \('d', 'b'\) could not be solved: MemoryError: no room for this pair"
    with pytest.raises(ugw.Incomplete, match=message) as caught:
        ugw.pairwise(spaces_with_failing_pair, method=QUICK, names=list("abcd"), checkpoint=tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
    result = caught.value.result
    assert np.argwhere(np.isnan(result.values)).tolist() == [[1, 3], [3, 1]]
    assert result.status[1, 3] is ugw.Status.RUNNING
    assert result.converged.sum() == 14


def test_a_second_run_solves_the_failed_pairs(spaces_with_failing_pair, tmp_path, monkeypatch):
    with limit_block_entries(150):
        with pytest.raises(ugw.Incomplete):
            ugw.pairwise(spaces_with_failing_pair, method=QUICK, checkpoint=tmp_path)
        done = len(list(tmp_path.glob("block-*.npz")))
        assert done > 3
        monkeypatch.undo()
        tasks, inner = [], run_task
        monkeypatch.setattr(executor, "run_task", lambda task: tasks.append(task) or inner(task))
        result = ugw.pairwise(spaces_with_failing_pair, method=QUICK, checkpoint=tmp_path)
        assert len(tasks) == len(list(tmp_path.glob("block-*.npz"))) - done == 1
        assert have_equal_bytes(result, ugw.pairwise(spaces_with_failing_pair, method=QUICK))


def test_a_batch_that_fails_alone_is_solved_one_by_one(monkeypatch):
    """Memory may not suffice for many pairs and be enough for each."""
    from ugw.api import solve as api

    spaces, inner = clouds(), api.solve
    expected = ugw.pairwise(spaces, method=QUICK)

    def solve_single_pairs(x, y, **options):
        if len(x) > 1:
            raise MemoryError
        return inner(x, y, **options)

    monkeypatch.setattr(api, "solve", solve_single_pairs)
    np.testing.assert_allclose(ugw.pairwise(spaces, method=QUICK).values, expected.values, rtol=0, atol=1e-9)


def test_a_full_disk_ends_the_run_with_a_partial_result(monkeypatch, tmp_path):
    from ugw.all_pairs import checkpoint

    def raise_disk_full(self, k, block, columns):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.Checkpoint, "write_block", raise_disk_full)
    with pytest.raises(ugw.Incomplete, match="cannot be written to: No space left") as caught:
        ugw.pairwise(clouds((5, 6)), method=QUICK, checkpoint=tmp_path)
    assert not np.isnan(caught.value.result.values).all()


# -- workers that are not like this process ------------------------------------------------------------------


def raise_missing_module(name):
    """Raise the error of a worker without the module."""
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize("name", ["ugw", "ugw.all_pairs"])
def test_a_worker_without_the_package(monkeypatch, name, tmp_path):
    spaces = clouds((5, 6, 7))
    inner, calls = executor.run_task, []

    def run(task):
        calls.append(task)
        return inner(task) if len(calls) < 2 else raise_missing_module(name)

    monkeypatch.setattr(executor, "run_task", run)
    with (
        limit_block_entries(60),
        pytest.raises(ugw.Incomplete, match=f"a worker cannot import {name}: install ugw") as caught,
    ):
        ugw.pairwise(spaces, method=QUICK, checkpoint=tmp_path)
    assert len(list(tmp_path.glob("block-*.npz"))) == 1  # kept
    assert (~np.isnan(caught.value.result.values)).any()


def test_other_missing_modules_raise_unchanged(monkeypatch):
    monkeypatch.setattr(executor, "run_task", lambda task: raise_missing_module("nothing_of_ours"))
    with pytest.raises(ModuleNotFoundError, match="nothing_of_ours"):
        ugw.pairwise(clouds((5,)), method=QUICK)


def test_keyboard_interrupts_are_not_caught(monkeypatch):
    monkeypatch.setattr(ResultMatrix, "add_block", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        ugw.pairwise(clouds((5, 6)), method=QUICK)
