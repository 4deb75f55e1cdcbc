"""Available device memory."""

import subprocess
import sys

import torch

from ugw._utils import device_memory


def test_available_memory_is_detected():
    free = device_memory.available_bytes(torch.device("cpu"))
    assert free is None or free > 2**20
    assert device_memory.available_bytes(torch.device("meta")) is None
    assert device_memory.machine_memory() > 2**20


def test_a_solve_on_a_cpu_does_not_load_the_cache_of_cuda_graphs():
    code = """
import sys, numpy, ugw
x = ugw.Space.from_points(numpy.arange(8.0).reshape(4, 2))
ugw.solve(x, x)
print([name for name in sys.modules if name.startswith("ugw._utils.cuda_graphs.ca")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
