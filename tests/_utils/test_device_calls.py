"""Functions that prepare a solve and are called as captured graphs."""

import numpy as np
import pytest
import torch

import ugw
from oracles.fake_cuda_graphs import fake_cuda_graphs
from ugw._utils.cuda_graphs.config import CAPTURE_CONFIG
from ugw._utils.device_calls import call_on_device
from ugw.problems.build import build_ugw

N_CALLS = CAPTURE_CONFIG.calls_before_capture + 2


def cost_scale(problem, factor):
    return factor * problem.cost_scale()


def problem_of(sizes, loss=None, seed=0):
    rng = np.random.default_rng(seed)
    spaces = [ugw.Space.stack([ugw.Space.from_points(rng.random((n, 2))) for n in sizes]) for _ in range(2)]
    return build_ugw(*spaces, rho=1.0, eps=0.1, fused=None, loss=loss)


@pytest.mark.parametrize(
    ("sizes", "loss", "is_captured"),
    [((5, 5), None, True), ((5, 4), None, False), ((5, 5), torch.abs, False)],
    ids=["equal sizes", "ragged", "another loss than t²"],
)
def test_functions_of_values_alone_are_captured(sizes, loss, is_captured):
    with fake_cuda_graphs() as cuda:
        for seed in range(N_CALLS):
            problem = problem_of(sizes, loss, seed)
            torch.testing.assert_close(call_on_device(cost_scale, problem, 3.0), cost_scale(problem, 3.0))
        assert (cuda.n_replays > 0) is is_captured


def test_nothing_is_captured_on_a_cpu():
    with fake_cuda_graphs() as cuda, cuda.pause_capture():
        for seed in range(N_CALLS):
            problem = problem_of((5, 5), seed=seed)
            torch.testing.assert_close(call_on_device(cost_scale, problem, 3.0), cost_scale(problem, 3.0))
        assert cuda.n_captures == 0
