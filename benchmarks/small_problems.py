"""Small problems on one thread: `ugw.solve` with compiled steps, the same with torch steps, and POT, in one run.

    OMP_NUM_THREADS=1 python -m benchmarks.small_problems  # all sizes, writes benchmarks/results/small_problems.*
    OMP_NUM_THREADS=1 python -m benchmarks.small_problems --sizes 20 50 --without-torch

A time is processor time, so that other jobs on the machine count little, and the minimum of several repeats. POT
solves from the product plan to tol 1e-6 in at most 1000 steps; its value is evaluated by `ugw.objective`, so that all
values are of the same objective.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import numpy as np
import ot
import torch

import ugw
from ugw.kernels.cpu import native

RESULTS = Path(__file__).parent / "results"
SIZES = (20, 50, 100, 300)
EPS = (0.1, 0.01, 0.001)
RHO = (1.0, 0.1)
# POT's time over that of the default call, by size, for each eps.
TARGETS = {20: (3, 30, 100), 50: (3, 15, 50), 100: (2, 8, 20), 300: (2, 6, 8)}
MAX_SECONDS = 4.0  # of all repeats of one time


def make_spaces(n):
    """Return two clouds of n points, in the plane and in space."""
    rng = np.random.default_rng(n)
    return ugw.Space.from_points(rng.random((n, 2))), ugw.Space.from_points(rng.random((n, 3)))


def fastest(function, n_repeats=5):
    """Return the result of a function and the minimum of its times in seconds, after one call to warm up."""
    times, result, begin = [], None, time.perf_counter()
    for k in range(n_repeats + 1):
        start = time.process_time()
        result = function()
        times.append(time.process_time() - start)
        if k and time.perf_counter() - begin > MAX_SECONDS:
            break
        if times[0] > MAX_SECONDS:
            break
    return result, min(times)


def solve_by_pot(x, y, rho, eps):
    """Return the plan of POT."""
    dx, dy = (space.metric.dense().numpy() for space in (x, y))
    return ot.gromov.fused_unbalanced_gromov_wasserstein(
        dx,
        dy,
        np.asarray(x.weights),
        np.asarray(y.weights),
        reg_marginals=rho,
        epsilon=eps,
        alpha=0,
        unbalanced_solver="sinkhorn_log",
        max_iter=1000,
        tol=1e-6,
    )[0]


def measure(n, rho, eps, *, with_torch):
    """Return milliseconds, values and steps of a problem solved with compiled steps, by torch and by POT."""
    x, y = make_spaces(n)
    row = {"n": n, "rho": rho, "eps": eps}
    plan, seconds = fastest(lambda: solve_by_pot(x, y, rho, eps))
    row |= {"pot_ms": 1e3 * seconds, "pot_value": float(ugw.objective(plan, x, y, rho=rho, eps=eps).total)}
    for name, switch in (("compiled", "1"), ("torch", "0")):
        if name == "torch" and not with_torch:
            continue
        os.environ[native.SWITCH] = switch
        for init in ("auto", "product"):
            result, seconds = fastest(lambda init=init: ugw.solve(x, y, rho=rho, eps=eps, init=init))
            row |= {f"{name}_{init}_ms": 1e3 * seconds, f"{name}_{init}_value": float(result.value)}
            row |= {f"{name}_{init}_steps": int(result.n_iter), f"{name}_{init}_status": result.status.name}
    os.environ[native.SWITCH] = "1"
    row["ratio"] = row["pot_ms"] / row["compiled_auto_ms"]
    row["ratio_product"] = row["pot_ms"] / row["compiled_product_ms"]
    row["target"] = TARGETS[n][EPS.index(eps)]
    return row


HEADER = (
    "| n | rho | eps | POT ms | default ms | product ms | torch default ms | torch product ms | POT / default | "
    "target | POT / product | value POT | value default |"
)


def table_row(row):
    """Return a row of the printed table."""
    torch_times = [f"{row.get(f'torch_{init}_ms', float('nan')):.1f}" for init in ("auto", "product")]
    missed = "" if row["ratio"] >= row["target"] else " (missed)"
    return (
        f"| {row['n']} | {row['rho']:g} | {row['eps']:g} | {row['pot_ms']:.1f} | {row['compiled_auto_ms']:.1f} | "
        f"{row['compiled_product_ms']:.1f} | {torch_times[0]} | {torch_times[1]} | {row['ratio']:.1f} | "
        f"{row['target']}{missed} | {row['ratio_product']:.1f} | {row['pot_value']:.6f} | "
        f"{row['compiled_auto_value']:.6f} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, choices=SIZES)
    parser.add_argument("--without-torch", action="store_true", help="do not time torch steps")
    parser.add_argument("--out", type=Path, default=RESULTS / "small_problems.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"instruction set: {native.load().instruction_set}")
    lines = [HEADER, "|" + "---|" * (HEADER.count("|") - 1)]
    print("\n".join(lines), flush=True)
    rows = []
    for n in options.sizes:
        for rho in RHO:
            for eps in EPS:
                rows.append(measure(n, rho, eps, with_torch=not options.without_torch))
                lines.append(table_row(rows[-1]))
                print(lines[-1], flush=True)
    options.out.write_text(json.dumps(rows, indent=1) + "\n")
    options.out.with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
