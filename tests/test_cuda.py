"""Results on CUDA equal those on the CPU, to 1e-9 in float64 and 1e-4 in float32.

UGW_TEST_DEVICE=cpu runs the same cases on the CPU: float64 against itself, and float32 against float64. Without
pytest, `benchmarks/cuda_parity.py` runs them.
"""

import functools
import os

import pytest
import torch

from oracles import device_cases

DEVICE = os.environ.get("UGW_TEST_DEVICE", "cuda")
DTYPES = [torch.float64, torch.float32]

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning"),  # float32 may end at its precision
    pytest.mark.skipif(
        DEVICE == "cuda" and not torch.cuda.is_available(),
        reason="needs a CUDA device: torch.cuda.is_available() is False",
    ),
]


@functools.cache
def cpu_result(name):
    return device_cases.CASES[name]("cpu", torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", device_cases.CASES)
def test_the_same_as_on_the_cpu(name, dtype):
    device_cases.compare(cpu_result(name), device_cases.CASES[name](DEVICE, dtype), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", device_cases.CHECKS)
def test_checks_on_the_device(name, dtype):
    device_cases.CHECKS[name](DEVICE, dtype)
