"""Seconds of default calls on a CUDA device, from one or two source trees measured in alternation.

    python3 -m benchmarks.cuda_rows --src src [--src OTHER/src] [--only REGEX] [--out FILE.json]

Each row runs in its own process, once per source tree, with a Triton cache per tree that is empty at the beginning, so
that "first call ever" includes all compilation. Distances and the float32 dtype are those of `benchmarks.compare`.
A row prints the least seconds of its repeated calls, the value, and the status.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROW_SECONDS = 240  # limit of one row in one tree
MAX_REPEATS = 5
REPEAT_SECONDS = 4.0  # a row is repeated until its calls have taken this long


def dense_spaces(n, m=None, seed=0):
    """Return uniform points in R³ and R² as stored float32 distances with a maximum of 1."""
    import numpy as np
    import torch

    import ugw
    from benchmarks.compare.problems import distances

    rng = np.random.default_rng(seed)
    clouds = rng.random((n, 3)), rng.random((m or n, 2))
    return [ugw.Space.from_distances(torch.as_tensor(distances(p), dtype=torch.float32, device="cuda")) for p in clouds]


def solve_dense(n, m=None):
    """Return a call of a dense solve."""
    import ugw

    spaces = dense_spaces(n, m)
    return lambda: ugw.solve(*spaces, rho=1.0, eps=0.01)


def solve_streaming(n):
    """Return a call of a streaming solve of sheets with outliers."""
    import torch

    import ugw
    from benchmarks.compare import streaming

    spaces = streaming.spaces(n, "cuda", torch.float32)
    return lambda: ugw.solve(*spaces, rho=streaming.RHO, eps=streaming.EPS)


def solve_conic(n):
    """Return a call of a conic solve of uniform points."""
    import numpy as np
    import torch

    import ugw

    rng = np.random.default_rng(0)
    clouds = [torch.tensor(rng.random((n, dim)), dtype=torch.float32, device="cuda") for dim in (3, 2)]
    spaces = [ugw.Space.from_points(cloud) for cloud in clouds]
    return lambda: ugw.solve_conic(*spaces, rho=0.1)


def loss_and_gradient(n, m):
    """Return a call of a loss between points and its gradient."""
    import torch

    import ugw

    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, 3, generator=generator).cuda().requires_grad_()
    y = torch.rand(m, 2, generator=generator).cuda()
    loss = ugw.UGWLoss(rho=1.0, eps=0.05)

    def call():
        value = loss(x, y)
        value.backward()
        return value

    return call


# name -> call; a name that begins with "new process" is a first call in a process
ROWS = {
    "first call ever, n = 1000": lambda: solve_dense(1000),
    "new process, n = 1000": lambda: solve_dense(1000),
    "dense n = 1000": lambda: solve_dense(1000),
    "new size 870 x 1130": lambda: solve_dense(870, 1130),
    "new size 512 x 700": lambda: solve_dense(512, 700),
    "new size 200 x 300": lambda: solve_dense(200, 300),
    "dense n = 4000": lambda: solve_dense(4000),
    "dense n = 10000": lambda: solve_dense(10_000),
    "dense n = 20000": lambda: solve_dense(20_000),
    "streaming n = 100000": lambda: solve_streaming(100_000),
    "streaming n = 1000000": lambda: solve_streaming(1_000_000),
    "loss 300 x 280, forward and backward": lambda: loss_and_gradient(300, 280),
    "conic n = 1000": lambda: solve_conic(1000),
    "conic n = 4000": lambda: solve_conic(4000),
    "conic n = 10000": lambda: solve_conic(10_000),
}


def measure(name):
    """Print the seconds of each call of a row, the value and the status, as JSON."""
    import torch

    import ugw

    warnings.simplefilter("ignore", ugw.ConvergenceWarning)
    torch.zeros(2, device="cuda").sum().item()  # the CUDA context is not ours
    if name.startswith("new size"):
        solve_dense(1000)()
    call, seconds = ROWS[name](), []
    torch.cuda.synchronize()
    is_single = name.startswith(("first", "new"))
    while not seconds or (not is_single and len(seconds) < MAX_REPEATS and sum(seconds) < REPEAT_SECONDS):
        start = time.perf_counter()
        result = call()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    value = result if isinstance(result, torch.Tensor) else result.value
    steps = getattr(result, "n_iter", None)
    print(
        json.dumps(
            {
                "seconds": seconds,
                "value": float(value),
                "status": str(getattr(getattr(result, "status", None), "name", "")),
                "n_iter": None if steps is None else int(steps),
                "MiB": torch.cuda.max_memory_allocated() / 2**20,
            }
        )
    )


def run_row(name, source, cache):
    """Return what a child process measured, or its error."""
    environment = os.environ | {"PYTHONPATH": f"{source}:{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    environment["TRITON_CACHE_DIR"] = cache
    command = [sys.executable, "-m", "benchmarks.cuda_rows", "--row", name]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=ROW_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not finished after {ROW_SECONDS} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1][:200]}
    return json.loads(done.stdout.splitlines()[-1])


def main():
    """Measure all rows, or one row in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--row")
    parser.add_argument("--src", action="append", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", default="^$", help="NAME:INDEX of rows not measured in a tree, a regular expression")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.row:
        measure(arguments.row)
        return
    sources = [path.resolve() for path in arguments.src or [ROOT / "src"]]
    caches = [tempfile.mkdtemp(prefix="triton-") for _ in sources]
    results = {}
    for name in (name for name in ROWS if re.search(arguments.only, name)):
        for index, (source, cache) in enumerate(zip(sources, caches, strict=True)):
            if re.search(arguments.skip, f"{name}:{index}"):
                continue
            row = run_row(name, source, cache)
            results.setdefault(name, {})[str(index)] = row
            best = f"{min(row['seconds']):8.3f} s" if "seconds" in row else row["error"]
            others = [f"{row[key]:.9g}" if isinstance(row.get(key), float) else f"{row.get(key)}" for key in row]
            print(f"{name:<38} tree {index}  {best}  {' '.join(others[1:])}", flush=True)
            if arguments.out:
                arguments.out.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
