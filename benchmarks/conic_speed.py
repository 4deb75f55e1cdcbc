"""Times and values of default CGW solves against another source tree, in one run. Run with PYTHONPATH=src.

    python benchmarks/conic_speed.py --other <folder with the package ugw of another revision>

Both trees run in processes of their own with one thread, in turn; a time is process time, the minimum of the repeats.
The rows are two uniform clouds in R³ and R² of n points, rho = 0.1, and all pairs of 12 outlines of 60 points.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

TARGETS = {"clouds 100": 20.0, "clouds 300": 15.0, "pairs": 30.0}
MAX_EXCESS = 1e-5  # relative; values may be higher than those of the other tree by this


def cloud_pair(n, seed):
    import numpy as np

    import ugw

    rng = np.random.default_rng(seed)
    return [ugw.Space.from_points(rng.random((n, dimension))) for dimension in (3, 2)]


def outlines(seed, count=12, n=60):
    import numpy as np

    import ugw

    rng, spaces = np.random.default_rng(seed), []
    for k in range(count):
        t = 2.0 * np.pi * np.sort(rng.random(n))
        points = np.stack(
            [np.cos(t) * (1.0 + 0.4 * np.cos((2 + k % 4) * t)), (0.5 + 0.1 * (k % 3)) * np.sin(t)], axis=1
        )
        spaces.append(ugw.Space.from_points(points + 0.01 * rng.standard_normal(points.shape)))
    return spaces


def measure(row, seed, repeats):
    """Print the process time, the values and the number of items that did not converge, of the tree on the path."""
    import numpy as np
    import torch

    import ugw

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    ugw.solve_conic(*cloud_pair(25, 0), rho=0.1)  # imports and caches
    times = []
    for _ in range(repeats):
        start = time.process_time()
        if row == "pairs":
            result = ugw.pairwise(outlines(seed), method="cgw", rho=0.1)
            upper = np.triu_indices(12, 1)
            values, status = np.asarray(result.values)[upper], np.asarray(result.status)[upper]
        else:
            result = ugw.solve_conic(*cloud_pair(int(row.split()[1]), seed), rho=0.1)
            values, status = np.atleast_1d(result.value), [result.status]
        times.append(time.process_time() - start)
    failed = sum(not str(s).endswith("CONVERGED") for s in status)
    print(json.dumps({"file": ugw.__file__, "seconds": min(times), "values": values.tolist(), "failed": failed}))


def run_tree(tree, row, seed, repeats):
    """Return what `measure` prints in a process that imports ugw from a folder."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--measure", row, "--seeds", str(seed), "--repeats", str(repeats)]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    result = json.loads(output.splitlines()[-1])
    if not Path(result["file"]).resolve().is_relative_to(Path(tree).resolve()):
        raise SystemExit(f"{tree} was asked for, but ugw came from {result['file']}")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, help="folder with the package ugw to compare with")
    parser.add_argument("--rows", nargs="+", default=list(TARGETS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--repeats", type=int, default=3, help="of this tree; the other one runs once")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.seeds[0], options.repeats)
        return
    if options.other is None:
        parser.error("--other is required")
    own = Path(__file__).resolve().parents[1] / "src"
    print("| row | seed | other, s | this, s | ratio | target | largest excess | higher | not converged |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in options.rows:
        for seed in options.seeds:
            other, this = run_tree(options.other, row, seed, 1), run_tree(own, row, seed, options.repeats)
            pairs = zip(this["values"], other["values"], strict=True)
            excess = [value / reference - 1.0 for value, reference in pairs]
            higher = sum(e > MAX_EXCESS for e in excess)
            target = TARGETS.get(row, float("nan"))
            print(
                f"| {row} | {seed} | {other['seconds']:.2f} | {this['seconds']:.3f} | "
                f"{other['seconds'] / this['seconds']:.1f} | {target:.0f} | {max(excess):.1e} | "
                f"{higher} of {len(excess)} | {other['failed']}, {this['failed']} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
