"""Tasks of `pairwise` in a worker of another version or device."""

import pickle

import pytest
import torch

import ugw
from oracles.pairwise import QUICK, clouds
from ugw.all_pairs.inputs import read_spaces
from ugw.all_pairs.job import PairwiseJob
from ugw.all_pairs.worker import SelfSolvingTask, Task, run_task


def test_unpickling_a_task_solves_it():
    spaces = clouds((5, 6, 7))
    job = PairwiseJob.create(QUICK, QUICK.solve_options("auto", 0.1, None), read_spaces(spaces, None, None))
    for k, block in enumerate(job.blocks):
        key, (columns, failed) = pickle.loads(pickle.dumps(SelfSolvingTask(k, job.make_task(k))))
        assert key == k
        assert not failed
        assert len(columns["value"]) == len(block.pairs)


def test_a_worker_of_another_version():
    x = clouds((5,))
    task = Task(
        tuple(x), tuple(x), ((0, 0),), is_self=False, method="ugw", options={}, device=x[0].device, version="0.0.1"
    )
    with pytest.raises(ugw.InputError, match=r"the call is from ugw 0\.0\.1: install the same"):
        run_task(task)


def test_a_worker_without_the_device():

    if torch.cuda.is_available():
        pytest.skip("there is one here")
    x = clouds((5,))
    options = QUICK.solve_options("auto", 0.1, None)
    task = Task(
        tuple(x), tuple(x), ((0, 0),), is_self=False, method="ugw", options=options, device=torch.device("cuda")
    )
    with pytest.raises(ugw.InputError, match="got device"):
        run_task(task)
