"""Conic distances of ten camel poses, at full size or of some points: seconds a pair. Run with PYTHONPATH=src.

    python3 -m benchmarks.camels --data camel_gallop.npz                     # all vertices: wants a GPU
    python3 -m benchmarks.camels --data camel_gallop.npz --points 30 --pairs 3   # a smoke test, on a CPU too

Paths along the edges over the longest of all poses, shares of the area, rho = .01, as in `examples/camels.py`. One line
for each pair as soon as it is solved, then the numbers of the example: for how many poses the nearest is a neighbor in
time, and the order around the two first axes. Needs torch, NumPy, SciPy and the file, which UGW_DATA may point to.
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


def spaces_of(poses, points, device, dtype):
    """Return the spaces of the poses on the device, with a common scale, and the seconds for their geodesics."""
    start = time.perf_counter()
    made = [pose.space(points=points) for pose in poses]
    longest = max(float(space.metric.dense().max()) for space in made)
    as_tensors = [
        ((space.metric.dense() / longest).to(device, dtype), space.weight_tensor.to(device, dtype)) for space in made
    ]
    return [ugw.Space.from_distances(d, weights=w) for d, w in as_tensors], time.perf_counter() - start


def solved(x, y, options):
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


def around(distances):
    """Return the number of poses whose nearest pose is adjacent in time, and the angular order of the poses in MDS."""
    n = len(distances)
    apart = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    apart = np.minimum(apart, n - apart)
    nearest = np.where(apart > 0, distances, np.inf).argmin(axis=1)
    center = np.eye(n) - 1 / n
    sizes, axes = np.linalg.eigh(-center @ distances**2 @ center / 2)
    plane = axes[:, :-3:-1] * np.sqrt(np.maximum(sizes[:-3:-1], 0))
    turn = np.argsort(np.arctan2(plane[:, 1], plane[:, 0]))
    return int((apart[np.arange(n), nearest] == 1).sum()), (np.roll(turn, -int(turn.argmin())) + 1).tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="camel_gallop.npz, or a folder that has it")
    parser.add_argument("--points", type=int, help="farthest points of each pose (default: all vertices)")
    parser.add_argument("--pairs", type=int, help="so many pairs only, neighbors in time first")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float64")
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--start", default="coarse")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    given = parser.parse_args()
    warnings.simplefilter("ignore", ugw.ConvergenceWarning)  # each line has its status
    poses = ugw.datasets.camels(given.data)
    spaces, seconds = spaces_of(poses, given.points, given.device, getattr(torch, given.dtype))
    print(f"{len(spaces)} poses, n = {spaces[0].n}, {given.device}, {given.dtype}; paths took {seconds:.1f} s\n")
    print(
        "| pair | s | conic distance | mass | steps | status | peak, GiB |\n|---|---:|---:|---:|---:|---|---:|",
        flush=True,
    )
    options = {"init": given.start, "solver": ugw.AlternateMin(tol=given.tol)}
    pairs = sorted(itertools.combinations(range(len(spaces)), 2), key=lambda pair: pair[1] - pair[0])[: given.pairs]
    rows, distances = [], np.full((len(spaces), len(spaces)), np.nan)
    for i, j in pairs:
        seconds, result, value, peak = solved(spaces[i], spaces[j], options)
        distances[i, j] = distances[j, i] = float(result.distance)
        row = {"pair": (i + 1, j + 1), "seconds": seconds, "value": value, "distance": float(result.distance)}
        row |= {"mass": float(result.mass), "steps": int(result.n_iter), "status": result.status.name, "peak": peak}
        rows.append(row)
        numbers = f"{seconds:.2f} | {row['distance']:.5f} | {row['mass']:.3f} | {row['steps']}"
        print(f"| {i + 1}, {j + 1} | {numbers} | {row['status']} | {peak:.2f} |", flush=True)
    print(f"\n{np.mean([row['seconds'] for row in rows]):.2f} s a pair, {len(rows)} pairs")
    if not np.isnan(distances[np.triu_indices(len(spaces), 1)]).any():
        np.fill_diagonal(distances, 0.0)
        count, turn = around(distances)
        print(f"the nearest pose is the one before or after: {count} of {len(spaces)}; around: {turn}")
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
