"""Conic distances of ten camel poses, of all vertices or of some points: seconds per pair. Run with PYTHONPATH=src.

    python3 -m benchmarks.camels --data camel_gallop.npz                     # all vertices: needs a GPU
    python3 -m benchmarks.camels --data camel_gallop.npz --points 30 --pairs 3   # a smoke test, on a CPU too

Distances are shortest paths along edges, divided by the longest path of all poses; weights are shares of the area;
rho = 0.01, as in `examples/camels.py`. The script prints one line for each pair, then the numbers of the example: the
number of poses whose nearest pose is adjacent in time, and the angular order of the poses in the first two axes of MDS.
It needs the data file, whose folder UGW_DATA may name.
"""

import argparse
import itertools
import json
import time
import warnings
from pathlib import Path

import numpy as np
import torch

import ugw

RHO = 0.01


def make_spaces(poses, points, device, dtype):
    """Return the spaces of the poses on the device, with a common scale, and the seconds for their geodesics."""
    start = time.perf_counter()
    spaces = [pose.space(points=points) for pose in poses]
    longest = max(float(space.metric.dense().max()) for space in spaces)
    as_tensors = [
        ((space.metric.dense() / longest).to(device, dtype), space.weight_tensor.to(device, dtype)) for space in spaces
    ]
    return [ugw.Space.from_distances(d, weights=w) for d, w in as_tensors], time.perf_counter() - start


def solve_pair(x, y, options):
    """Solve one pair. Returns seconds, the result and the peak device memory in GiB."""
    if x.device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    result = ugw.solve_conic(x, y, rho=RHO, **options)
    value = float(result.value)  # waits for the device
    seconds = time.perf_counter() - start
    peak = torch.cuda.max_memory_allocated() / 2**30 if x.device.type == "cuda" else 0.0
    return seconds, result, value, peak


def order_on_circle(distances):
    """Return the number of poses whose nearest pose is adjacent in time, and the angular order of the poses in MDS."""
    n = len(distances)
    steps_between = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    steps_between = np.minimum(steps_between, n - steps_between)
    nearest = np.where(steps_between > 0, distances, np.inf).argmin(axis=1)
    center = np.eye(n) - 1 / n
    sizes, axes = np.linalg.eigh(-center @ distances**2 @ center / 2)
    plane = axes[:, :-3:-1] * np.sqrt(np.maximum(sizes[:-3:-1], 0))
    order = np.argsort(np.arctan2(plane[:, 1], plane[:, 0]))
    return int((steps_between[np.arange(n), nearest] == 1).sum()), (np.roll(order, -int(order.argmin())) + 1).tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="camel_gallop.npz, or a folder that has it")
    parser.add_argument("--points", type=int, help="farthest points of each pose (default: all vertices)")
    parser.add_argument("--pairs", type=int, help="number of pairs, neighbors in time first (default: all)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float64")
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--start", default="coarse")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ugw.ConvergenceWarning)  # each line has its status
    poses = ugw.datasets.camels(options.data)
    spaces, seconds = make_spaces(poses, options.points, options.device, getattr(torch, options.dtype))
    print(f"{len(spaces)} poses, n = {spaces[0].n}, {options.device}, {options.dtype}; paths took {seconds:.1f} s\n")
    print(
        "| pair | s | conic distance | mass | steps | status | peak, GiB |\n|---|---:|---:|---:|---:|---|---:|",
        flush=True,
    )
    solve_options = {"init": options.start, "solver": ugw.AlternateMin(tol=options.tol)}
    pairs = sorted(itertools.combinations(range(len(spaces)), 2), key=lambda pair: pair[1] - pair[0])[: options.pairs]
    rows, distances = [], np.full((len(spaces), len(spaces)), np.nan)
    for i, j in pairs:
        seconds, result, value, peak = solve_pair(spaces[i], spaces[j], solve_options)
        distances[i, j] = distances[j, i] = float(result.distance)
        row = {"pair": (i + 1, j + 1), "seconds": seconds, "value": value, "distance": float(result.distance)}
        row |= {"mass": float(result.mass), "steps": int(result.n_iter), "status": result.status.name, "peak": peak}
        rows.append(row)
        numbers = f"{seconds:.2f} | {row['distance']:.5f} | {row['mass']:.3f} | {row['steps']}"
        print(f"| {i + 1}, {j + 1} | {numbers} | {row['status']} | {peak:.2f} |", flush=True)
    print(f"\n{np.mean([row['seconds'] for row in rows]):.2f} s a pair, {len(rows)} pairs")
    if not np.isnan(distances[np.triu_indices(len(spaces), 1)]).any():
        np.fill_diagonal(distances, 0.0)
        count, order = order_on_circle(distances)
        print(f"the nearest pose is the one before or after: {count} of {len(spaces)}; around: {order}")
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
