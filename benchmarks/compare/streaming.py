"""Squared Euclidean clouds with outliers, too large for dense plans and for all peers.

On a CPU a new process solves each problem, so that memory is measured relative to a process that has only imported the
package, and a solve that takes too long or too much memory can be ended:

    python -m benchmarks.compare.streaming 20000
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import torch

import ugw

from . import measure, problems

RHO, EPS = 0.1, 0.01
ALLOWED = 8 * 2**30  # bytes of address space of a child above that after its imports


def spaces(n, device, dtype):
    sides = problems.sheets_with_outliers(n)
    sides = [[torch.as_tensor(v, dtype=dtype, device=device) for v in side] for side in sides]
    return [ugw.Space.from_points(points, weights=weights, metric="sqeuclidean") for points, weights in sides]


def solve(n, *, device="cpu", dtype=torch.float64, **options):
    """Return wall-clock seconds, peak memory in MiB and the result, including the construction of the spaces."""
    warnings.simplefilter("ignore", ugw.ConvergenceWarning)
    with measure.peak_memory(device) as memory:
        start = measure.wall_seconds()
        result = ugw.solve(*spaces(n, device, dtype), rho=RHO, eps=EPS, **options)
        value = float(result.value)
        seconds = measure.wall_seconds() - start
    return seconds, memory[0], result, value


def make_row(n, seconds, memory, result, value):
    ours = {"objective": value, "total": seconds, "memory": memory, "steps": int(result.n_iter)}
    ours["status"] = result.status.name
    return {"n": n, "rho": RHO, "eps": EPS, "ours": ours, "measured": {"seconds": seconds, "MiB": memory}}


def cuda_row(n, *, repeats, device="cuda", dtype=torch.float32):
    """Measure the best of `repeats` runs and its difference from a run with a tolerance a hundred times smaller."""
    solve(min(n, 2000), device=device, dtype=dtype)  # compiles
    runs = [solve(n, device=device, dtype=dtype) for _ in range(repeats)]
    row = make_row(n, *min(runs, key=lambda run: run[0]))
    tight = solve(n, device=device, dtype=dtype, solver=ugw.AlternateMin(tol=1e-8, max_iter=4000))[3]
    row["measured"]["relative error"] = abs(row["ours"]["objective"] - tight) / abs(tight)
    return row


def short_row(n, *, device="cuda", dtype=torch.float32):
    """Measure one step after the start, for sizes at which a pass over all pairs takes half a minute.

    The error of that step is measured on a tenth of the points, for which the solve can run to convergence.
    """
    short = ugw.AlternateMin(max_iter=1, inner=ugw.Sinkhorn(max_iter=2))
    converged, after_one_step = (
        solve(n // 10, device=device, dtype=dtype, **options)[3] for options in ({}, {"solver": short})
    )
    seconds, memory, result, value = solve(n, device=device, dtype=dtype, solver=short)
    row = make_row(n, seconds, memory, result, value)
    row["ours"]["change"] = float(result.history.change[-1])
    row["measured"]["relative error at n / 10"] = abs(after_one_step - converged) / abs(converged)
    return row


def cpu_row(n, *, limit):
    """Solve in a child process with two threads. Returns a reason instead of numbers if it fails."""
    environment = os.environ | {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    command = [sys.executable, "-m", f"{__package__}.streaming", str(n)]
    start = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"n": n, "rho": RHO, "eps": EPS, "reason": f"not finished after {limit:.0f} s", "measured": {}}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        seconds = time.perf_counter() - start
        reason = f"failed after {seconds:.0f} s with {ALLOWED / 2**30:.0f} GiB allowed: {last[:120]}"
        return {"n": n, "rho": RHO, "eps": EPS, "reason": reason, "measured": {}}
    return json.loads(done.stdout.splitlines()[-1])


def main():
    n = int(sys.argv[1])
    torch.set_num_threads(2)
    torch.zeros(2) @ torch.zeros(2)  # the first operation loads libraries, which are not counted
    with contextlib.suppress(ValueError, OSError):
        size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + ALLOWED, -1))
    print(json.dumps(make_row(n, *solve(n))))


if __name__ == "__main__":
    main()
