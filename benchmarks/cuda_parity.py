"""Compare plans, values and times of solves on a CPU and on CUDA. Run with PYTHONPATH=src; needs no pytest.

The cases are those of `tests/test_cuda.py`. Without a CUDA device the CPU is compared with itself. The exit status is
the number of cases that differ.
"""

import sys
import time
import warnings
from pathlib import Path

import torch

import ugw

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from oracles import device_cases

warnings.simplefilter("ignore", ugw.ConvergenceWarning)


def time_call(call):
    start = time.perf_counter()
    result = call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return result, time.perf_counter() - start


def run_case(call):
    """Run one case. Returns its line of the table and whether it failed, so that other cases still run."""
    try:
        return call(), False
    except Exception as error:
        return f"{type(error).__name__}: {error}", True


def compare_devices(device):
    """Print the table and return the number of cases that differ."""
    n_failed = 0
    print(f"{'case':<30} {'dtype':<8} {'cpu s':>7} {device + ' s':>7}  plans, values")
    for name, case in device_cases.CASES.items():
        reference, cpu = time_call(lambda: case("cpu", torch.float64))  # noqa: B023
        for dtype in (torch.float64, torch.float32):
            start = time.perf_counter()
            text, failed = run_case(lambda: device_cases.compare(reference, case(device, dtype), dtype))  # noqa: B023
            text = text if failed else f"{text[0]:.1e}, {text[1]:.1e}"
            seconds = time.perf_counter() - start
            print(f"{name:<30} {str(dtype)[6:]:<8} {cpu:>7.2f} {seconds:>7.2f}  {'FAILED ' * failed}{text}", flush=True)
            n_failed += failed
    for name, check in device_cases.CHECKS.items():
        for dtype in (torch.float64, torch.float32):
            text, failed = run_case(lambda: check(device, dtype))  # noqa: B023
            print(f"{name:<30} {str(dtype)[6:]:<8} {f'FAILED {text}' if failed else 'passed'}", flush=True)
            n_failed += failed
    return n_failed


def time_sizes(device):
    for n in (200, 1000, 4000) if device == "cuda" else (200,):
        for dtype in (torch.float32, torch.float64):
            x, y = device_cases.clouds(n, n, device, dtype)
            r, seconds = time_call(lambda: ugw.solve(x, y, rho=1.0, eps=1e-2))  # noqa: B023
            print(f"n = {n}, {str(dtype)[6:]}: {r}, {seconds:.2f} s")


if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(torch.__version__, torch.cuda.get_device_name() if device == "cuda" else "no CUDA device: CPU against itself")
    n_failed = compare_devices(device)
    time_sizes(device)
    sys.exit(n_failed)
