"""Time of the conic distance against the paper's linear program, and at larger sizes. Run with PYTHONPATH=src.

Two uniform clouds in R³ and R², rho = 0.1. "to 1e-3" is the time, with the initialization, until the value is within
1e-3 (relative) of the final value.
"""

import argparse
import resource
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch

import ugw
from ugw.initializers.coarse import coarse_plan
from ugw.problems.build import build_conic

RHO = 0.1
COLUMNS = (
    "n",
    "device",
    "dtype",
    "rank",
    "kernel error",
    "start, s",
    "to 1e-3, s",
    "steps to it",
    "in all, s",
    "steps",
)
HEADER = f"| {' | '.join(COLUMNS)} | CGW | peak, MiB |"


def clouds(n, m, dtype, device, seed=0):
    rng = np.random.default_rng(seed)
    x, y = (torch.tensor(rng.random(shape), dtype=dtype, device=device) for shape in ((n, 3), (m, 2)))
    return ugw.Space.from_points(x), ugw.Space.from_points(y)


def peak(device):
    """Return the peak memory in MiB: of the process, or of the device since the last reset."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def run(n, device, dtype, steps):
    """Print one line of the table. A callback records the trace, so that its clock includes the initialization."""
    x, y = clouds(n, n, dtype, device)
    trace = []

    def clock(step):
        value = float(step.objective.min())  # waits for the device
        trace.append((time.perf_counter() - start, value))

    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    result = ugw.solve_conic(x, y, rho=RHO, solver=ugw.AlternateMin(max_iter=steps, callback=clock))
    seconds, value = time.perf_counter() - start, float(result.value)
    index, (seconds_to_tolerance, _) = next((i, row) for i, row in enumerate(trace) if row[1] <= value * (1 + 1e-3))
    print(
        f"| {n} | {device} | {str(dtype)[6:]} | {result.kernel_rank} | {float(result.kernel_error):.0e} | "
        f"{trace[0][0]:.1f} | {seconds_to_tolerance:.1f} | {index + 1} | {seconds:.1f} | {result.n_iter} | "
        f"{value:.7f} | {peak(device):.0f} |",
        flush=True,
    )
    return seconds_to_tolerance


def plain_alternation(n, inner, steps, max_products=400):
    """Return the kernel products that updates of P and Q, and our steps, need to be within 1e-3 of our value."""
    x, y = clouds(n, n, torch.float64, "cpu")
    problem, surrogate = build_conic(x, y, rho=RHO, cone="gaussian-hellinger", eps=0.0)
    first = coarse_plan(surrogate)
    ours = []
    solver = ugw.AlternateMin(max_iter=steps, callback=lambda step: ours.append(float(step.objective[0])))
    final_value = float(ugw.solve_conic(x, y, rho=RHO, init=first, solver=solver).value)
    our_count = next(i for i, value in enumerate(ours, 1) if value <= final_value * (1 + 1e-3))
    state, count = problem.state_of_plan(first), 0
    while float(problem.objective(state).total) > final_value * (1 + 1e-3) and count < max_products:
        shape = state.unit_plan
        for _ in range(inner):
            shape = problem.improve_plan(shape, state.local_cost)
        state, count = problem.state_of_plan(shape), count + 1
    count_text = f"{count}" if count < max_products else f"more than {max_products}"
    print(f"n = {n}, products to 1e-3: ours {our_count}, P and Q updates alone, {inner} for each product, {count_text}")


def compare_with_linear_program(n, repeats=3):
    """Return seconds and value of the paper's alternating linear programs on a radial grid, and ours."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from oracles import cases
    from oracles import conic as conic_oracles

    x, y = clouds(n, n, torch.float64, "cpu", seed=1)
    pair = cases.Pair(*(t.numpy() for t in (x.metric.dense(), x.weight_tensor, y.metric.dense(), y.weight_tensor)))
    start = time.perf_counter()
    theirs = conic_oracles.linear_program(pair, RHO)
    program = time.perf_counter() - start
    ours = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = ugw.solve_conic(x, y, rho=RHO)
        ours.append(time.perf_counter() - start)
    print(
        f"n = {n}: linear program {program:.2f} s, {theirs:.7f}; ours {min(ours):.2f} s, {float(result.value):.7f}; "
        f"{program / min(ours):.0f} times faster (target: 50)"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 300, 1000, 2000])
    parser.add_argument(
        "--steps", type=int, default=60, help="steps of a run, whose last value counts as converged (default 60)"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-program", action="store_true", help="skip the linear program")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore", ugw.ConvergenceWarning)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {options.threads} threads"
    print(f"{name}, torch {torch.__version__}\n")
    if not options.no_program:
        compare_with_linear_program(5)
    for inner in (1, 20):
        plain_alternation(200, inner, options.steps)
    print(f"\n{HEADER}\n|{'---|' * HEADER.count(' | ')}---|")
    if device == "cuda":
        run(100, device, torch.float32, 3)  # the first call on a device is slow
    times = {n: run(n, device, torch.float32, options.steps) for n in options.sizes}
    for n, target, where in ((1000, 30.0, "cpu"), (10_000, 15.0, "cuda")):
        if n in times and where == device:
            print(f"\nn = {n} to within 1e-3: {times[n]:.1f} s (target: {target:.0f} s)")


if __name__ == "__main__":
    main()
