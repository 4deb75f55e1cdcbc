"""Other processes on this machine: the same bytes, dead workers, failures that are named, and nothing lost."""

import os
import signal

import numpy as np
import pytest

import ugw
from oracles.pairwise import QUICK, blocks_of, clouds
from ugw.all_pairs import executor as workers
from ugw.all_pairs import worker as blocks
from ugw.all_pairs.job import Matrix
from ugw.all_pairs.worker import Task

joblib = pytest.importorskip("joblib")

HERE = os.getpid()


def same(one, other):
    return one.values.tobytes() == other.values.tobytes() and one.masses.tobytes() == other.masses.tobytes()


def test_processes_give_the_same_bytes_and_threads_are_put_back():
    import torch

    spaces, before = clouds(), torch.get_num_threads()
    with blocks_of(300):
        alone = ugw.pairwise(spaces, method=QUICK)
        assert same(alone, ugw.pairwise(spaces, method=QUICK, n_jobs=2))
        with joblib.parallel_config(n_jobs=2):
            assert same(alone, ugw.pairwise(spaces, method=QUICK))
        with joblib.parallel_config(backend="threading", n_jobs=2):
            assert same(alone, ugw.pairwise(spaces, method=QUICK))
        with joblib.parallel_config(backend="multiprocessing", n_jobs=2):  # gives back nothing before the end: in waves
            assert same(alone, ugw.pairwise(spaces, method=QUICK))
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("n_jobs", "config", "expected"),
    [
        (None, {}, 1),
        (3, {}, 3),
        (None, {"n_jobs": 2}, 2),
        (1, {"n_jobs": 2}, 1),
        (-1, {}, -1),
    ],
)
def test_how_many_workers_are_asked_for(n_jobs, config, expected):
    with joblib.parallel_config(**config):
        assert workers._workers(n_jobs) == expected


def test_a_function_that_was_typed_in_travels():
    spaces = clouds((4, 5))
    rate = 0.5
    typed = ugw.Method("ugw", loss=lambda t: t.abs() * rate, init="product")
    alone = ugw.pairwise(spaces, method=typed, eps=0.1)
    assert same(alone, ugw.pairwise(spaces, method=typed, eps=0.1, n_jobs=2))


# -- workers that die ----------------------------------------------------------------------------------------


def test_blocks_of_a_worker_that_died_are_run_again(tmp_path):
    spaces, flag = clouds(), tmp_path / "died"
    here = HERE

    def deadly(t):
        """Kills the first worker that calls it."""
        if os.getpid() != here and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return t.square()

    method = ugw.Method("ugw", loss=deadly, init="product")
    with blocks_of(300):
        found = ugw.pairwise(spaces, method=method, eps=0.1, n_jobs=2)
        assert flag.exists()
        assert same(found, ugw.pairwise(spaces, method=method, eps=0.1))


def test_workers_that_always_die_are_an_error():
    here = HERE

    def deadly(t):
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return t.square()

    with pytest.raises(ugw.Incomplete, match="workers died 3 times in a row") as caught:
        ugw.pairwise(clouds((4, 5)), method=ugw.Method("ugw", loss=deadly, init="product"), n_jobs=2)
    assert np.isnan(caught.value.result.values).all()


# -- pairs that fail -----------------------------------------------------------------------------------------


@pytest.fixture
def poisoned(monkeypatch):
    """Spaces of which the pair of the second and the fourth, of 9 and 12 points, cannot be solved."""
    from ugw.api import solve as api

    inner = api.solve

    def fails(x, y, **given):
        if any({n, m} == {9, 12} for n, m in zip(x.sizes, y.sizes, strict=True)):
            raise MemoryError("no room\nfor this pair")
        return inner(x, y, **given)

    monkeypatch.setattr(api, "solve", fails)
    return clouds((5, 9, 7, 12))


def test_a_pair_that_fails_is_named_and_the_others_are_kept(poisoned, tmp_path):
    said = r"pair \('d', 'b'\) could not be solved: MemoryError: no room for this pair"
    with pytest.raises(ugw.Incomplete, match=said) as caught:
        ugw.pairwise(poisoned, method=QUICK, names=list("abcd"), checkpoint=tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
    result = caught.value.result
    assert np.argwhere(np.isnan(result.values)).tolist() == [[1, 3], [3, 1]]
    assert result.status[1, 3] is ugw.Status.RUNNING
    assert result.converged.sum() == 14


def test_a_second_run_solves_what_failed(poisoned, tmp_path, monkeypatch):
    with blocks_of(150):
        with pytest.raises(ugw.Incomplete):
            ugw.pairwise(poisoned, method=QUICK, checkpoint=tmp_path)
        done = len(list(tmp_path.glob("block-*.npz")))
        assert done > 3
        monkeypatch.undo()
        tasks, inner = [], blocks.run
        monkeypatch.setattr(workers, "run", lambda task: tasks.append(task) or inner(task))
        found = ugw.pairwise(poisoned, method=QUICK, checkpoint=tmp_path)
        assert len(tasks) == len(list(tmp_path.glob("block-*.npz"))) - done == 1
        assert same(found, ugw.pairwise(poisoned, method=QUICK))


def test_a_batch_that_fails_alone_is_solved_one_by_one(monkeypatch):
    """Memory may not suffice for many pairs and be enough for each."""
    from ugw.api import solve as api

    spaces, inner = clouds(), api.solve
    expected = ugw.pairwise(spaces, method=QUICK)

    def narrow(x, y, **given):
        if len(x) > 1:
            raise MemoryError
        return inner(x, y, **given)

    monkeypatch.setattr(api, "solve", narrow)
    np.testing.assert_allclose(ugw.pairwise(spaces, method=QUICK).values, expected.values, rtol=0, atol=1e-9)


def test_a_disk_that_fills_up_ends_the_run_with_what_is_known(monkeypatch, tmp_path):
    from ugw.all_pairs import checkpoint

    def full(self, k, block, columns):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.Checkpoint, "keep", full)
    with pytest.raises(ugw.Incomplete, match="cannot be written to: No space left") as caught:
        ugw.pairwise(clouds((5, 6)), method=QUICK, checkpoint=tmp_path)
    assert not np.isnan(caught.value.result.values).all()


# -- workers that are not like this process ------------------------------------------------------------------


def lost(name):
    """A task that cannot be read where the package is missing."""
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize("name", ["ugw", "ugw.all_pairs"])
def test_a_worker_without_the_package(monkeypatch, name, tmp_path):
    spaces = clouds((5, 6, 7))
    inner, seen = workers.run, []

    def run(task):
        seen.append(task)
        return inner(task) if len(seen) < 2 else lost(name)

    monkeypatch.setattr(workers, "run", run)
    with blocks_of(60), pytest.raises(ugw.Incomplete, match=f"a worker cannot import {name}: install ugw") as caught:
        ugw.pairwise(spaces, method=QUICK, checkpoint=tmp_path)
    assert len(list(tmp_path.glob("block-*.npz"))) == 1  # kept
    assert (~np.isnan(caught.value.result.values)).any()


def test_other_missing_modules_are_not_ours(monkeypatch):
    monkeypatch.setattr(workers, "run", lambda task: lost("nothing_of_ours"))
    with pytest.raises(ModuleNotFoundError, match="nothing_of_ours"):
        ugw.pairwise(clouds((5,)), method=QUICK)


def test_a_worker_of_another_version():
    x = clouds((5,))
    task = Task(tuple(x), tuple(x), ((0, 0),), own=False, method="ugw", given={}, device=x[0].device, version="0.0.1")
    with pytest.raises(ugw.InputError, match=r"the call is from ugw 0\.0\.1: install the same"):
        blocks.run(task)


def test_a_worker_without_the_device():
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one here")
    x = clouds((5,))
    given = QUICK.given("auto", 0.1, None)
    task = Task(tuple(x), tuple(x), ((0, 0),), own=False, method="ugw", given=given, device=torch.device("cuda"))
    with pytest.raises(ugw.InputError, match="got device"):
        blocks.run(task)


def test_a_matrix_that_is_not_finished_is_presented(monkeypatch):
    """Ctrl-C is not an error of ours: it passes."""
    monkeypatch.setattr(Matrix, "add", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        ugw.pairwise(clouds((5, 6)), method=QUICK)
