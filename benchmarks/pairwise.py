"""Pairs per second of `ugw.pairwise`, of a loop over POT and of the reference batch solver. Run with PYTHONPATH=src.

    python3 -m benchmarks.pairwise                       # n = 30, 100 and 300, one thread
    python3 -m benchmarks.pairwise 100 --device cuda     # on a GPU, in float32

Uniform clouds, alternately in R³ and R², distances divided by their maximum, rho = 1, eps = 0.01. Peers start from a⊗b
with the settings of `benchmarks.compare`; their time ends when their objective is within 1e-6 of its final value. The
time of ugw is that of the complete call, from a⊗b ("product") to tol = 1e-5 and to the default tolerance, and from the
default initial plan ("auto"). "worst" and "mean" are the largest and the mean relative difference of the objectives of
ugw from those of the peer, on the pairs that the peer solved: negative means lower. All plans are evaluated by
`ugw.objective` in float64. Seconds are processor time of one thread on a CPU (`time.process_time`), the least of the
repeats.
"""

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
import torch

import ugw

from .compare import batches, measure, peers, problems

RHO, EPS = 1.0, 1e-2
# n → (spaces, pairs that a peer solves): the pairs take a peer about half a minute.
SIZES = {30: (40, 24), 100: (16, 12), 300: (6, 4)}
ON_CUDA = 10  # factor of the number of spaces on a GPU, which is idle with fewer
TARGETS = {("cpu", 30): 20.0, ("cpu", 100): 4.0, ("cpu", 300): 2.0, ("cuda", 100): 200.0}
RUNS = (("product", 1e-5), ("product", 1e-6), ("auto", 1e-6))  # starts and tolerances


def clouds(n, count, seed=0):
    """Return the distance matrices (n, n) of `count` clouds."""
    rng = np.random.default_rng(seed)
    return [problems.distances(rng.random((n, 3 - i % 2))) for i in range(count)]


def random_pairs(count, n_pairs, seed=0):
    """Return random pairs (i, j) with i < j."""
    all_pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    chosen = np.random.default_rng(seed).permutation(len(all_pairs))[:n_pairs]
    return [all_pairs[k] for k in chosen]


def instances(matrices, pairs):
    """Return the pairs as problems in the format of the peers."""
    weights = np.full(len(matrices[0]), 1.0 / len(matrices[0]))
    return [problems.Instance(matrices[i], matrices[j], weights, weights, RHO, EPS) for i, j in pairs]


def time_pairwise(matrices, run, device, dtype, repeats):
    """Return the seconds of one call for all pairs, the number of pairs and the result."""
    start, tol = run
    inputs = matrices if device == "cpu" else [torch.as_tensor(d, dtype=dtype, device=device) for d in matrices]
    spaces = [ugw.Space.from_distances(d) for d in inputs]
    now, times = measure.clock(device), []
    for _ in range(repeats):
        begin = now()
        solver = ugw.AlternateMin(tol=tol)
        result = ugw.pairwise(spaces, method=ugw.Method("ugw", init=start), rho=RHO, eps=EPS, solver=solver)
        times.append(now() - begin)
    return min(times), len(spaces) * (len(spaces) + 1) // 2, result


def time_peer_loop(peer, problem_list, repeats, **where):
    """Return the seconds per pair of a loop over a peer, and its final objectives."""
    seconds, finals = 0.0, []
    for instance in problem_list:
        traces = [measure.peer_trace(peer, instance, **where) for _ in range(repeats)]
        final = traces[0].final
        seconds_to_objective = [t.seconds[t.first(measure.level(final))] for t in traces]
        seconds, finals = seconds + min(seconds_to_objective), [*finals, final]
    return seconds / len(problem_list), np.array(finals)


def rows(n, device, dtype, repeats):
    """Print one row for each of our starts and each peer."""
    count, sample = SIZES.get(n, (6, 4))
    count *= ON_CUDA if device == "cuda" else 1
    matrices, pairs = clouds(n, count), random_pairs(count, sample)
    problem_list = instances(matrices, pairs)
    peer_results = {"POT loop": time_peer_loop(peers.POT, problem_list, repeats)}
    if device == "cpu":
        seconds, finals = batches.time_peer_batch(peers.REFERENCE, problem_list)
        if finals is not None:
            peer_results["unbalancedgw batch"] = seconds / sample, finals
    for run in RUNS:
        seconds, solved, result = time_pairwise(matrices, run, device, dtype, repeats)
        values = torch.as_tensor(result.values).double().cpu().numpy()
        our_values = np.array([values[i, j] for i, j in pairs])
        for peer, (each, finals) in peer_results.items():
            worse = (our_values - finals) / np.abs(finals)
            yield {
                "n": n, "device": device, "start": run[0], "tol": run[1], "peer": peer, "pairs": solved,
                "seconds": seconds,
                "pairs per second": solved / seconds, "its pairs per second": 1.0 / each,
                "ratio": each * solved / seconds, "target": TARGETS.get((device, n)) if peer == "POT loop" else None,
                "worst": float(worse.max()), "mean": float(worse.mean()), "converged": float(result.converged.mean()),
            }  # fmt: skip


def table_row(row):
    target = "" if row["target"] is None else f"{row['target']:g}×"
    cells = [row["n"], row["device"], row["start"], f"{row['tol']:g}", f"{row['pairs per second']:.3g}", row["peer"]]
    cells += [f"{row['its pairs per second']:.3g}", f"{row['ratio']:.3g}×", target]
    cells += [f"{row['worst']:+.1e}", f"{row['mean']:+.1e}", f"{row['converged']:.0%}"]
    return f"| {' | '.join(map(str, cells))} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sizes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ugw.ConvergenceWarning)
    torch.set_num_threads(1)
    dtype = torch.float32 if options.device == "cuda" else torch.float64
    print("| n | device | start | tol | pairs/s | peer | its pairs/s | ratio | target | worst | mean | converged |")
    print("|---|---|---|---|---:|---|---:|---:|---:|---:|---:|---:|")
    all_rows = []
    for n in options.sizes:
        for row in rows(n, options.device, dtype, options.repeats):
            all_rows.append(row)
            print(table_row(row), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(all_rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
