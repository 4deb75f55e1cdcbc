"""Measure the time of each call, for the table in docs/performance.md.

    OMP_NUM_THREADS=1 python -m benchmarks.which_solver [--only PART OF A NAME] [n ...]

Uniform points in R³ against R², weights 1/n, rho = 0.1, float64 unless stated otherwise. Seconds are processor time of
one thread (time.process_time), the least of three runs, or of one run if it takes more than ten seconds; a size is
skipped if the previous one took more than 25 s. Each entry of the table is measured in a process of its own.
"""

import argparse
import multiprocessing
import time
import warnings

import numpy as np

SIZES = (100, 300, 1000)
MAX_REPEATED_SECONDS = 10.0  # a run that takes longer is not repeated
MAX_SECONDS = 25.0  # sizes after a run that takes longer are skipped


def spaces(n, metric="euclidean", dtype="float64"):
    import ugw

    rng = np.random.default_rng(0)
    return [ugw.Space.from_points(rng.random((n, d)).astype(dtype), metric=metric) for d in (3, 2)]


def calls(n):
    """Return name → (function that makes the input, function that is timed)."""
    import ugw

    rho = 0.1

    def differentiate_loss(x, y):
        points = x.point_tensor.clone().requires_grad_()
        ugw.UGWLoss(rho=rho, eps=1e-2)(points, ugw.Space.from_points(y.point_tensor)).backward()

    def solve_streaming(x, y):
        return ugw.solve(x, y, rho=rho, eps=1e-2, solver=ugw.AlternateMin(inner=ugw.Sinkhorn(method="streaming")))

    def solve_linear(x, y):
        return ugw.solve_linear(np.pad(y.points, ((0, 0), (0, 1))), x.points, rho=rho, eps=1e-2)

    plain, low_rank = lambda: spaces(n), lambda: spaces(n, "sqeuclidean")
    return {
        "solve, eps = 1e-2": (plain, lambda x, y: ugw.solve(x, y, rho=rho, eps=1e-2)),
        "solve, eps = 1e-3": (plain, lambda x, y: ugw.solve(x, y, rho=rho, eps=1e-3)),
        'solve, eps = 1e-2, init="product"': (plain, lambda x, y: ugw.solve(x, y, rho=rho, eps=1e-2, init="product")),
        "solve, eps = 1e-2, float32": (
            lambda: spaces(n, dtype="float32"),
            lambda x, y: ugw.solve(x, y, rho=rho, eps=1e-2),
        ),
        "solve, eps = 1e-2, Multistart(n=8)": (
            plain,
            lambda x, y: ugw.solve(x, y, rho=rho, eps=1e-2, solver=ugw.Multistart(n=8)),
        ),
        "solve, eps = 0": (plain, lambda x, y: ugw.solve(x, y, rho=rho, eps=0.0)),
        "solve, balanced, eps = 1e-2": (plain, lambda x, y: ugw.solve(x, y, rho=float("inf"), eps=1e-2)),
        "solve, balanced, eps = 0": (plain, lambda x, y: ugw.solve(x, y, rho=float("inf"), eps=0.0)),
        "solve, TV": (plain, lambda x, y: ugw.solve(x, y, rho=ugw.TV(rho))),
        "solve, Mass(0.7)": (plain, lambda x, y: ugw.solve(x, y, rho=ugw.Mass(0.7))),
        "solve, squared distances, streaming": (low_rank, solve_streaming),
        "solve_conic": (plain, lambda x, y: ugw.solve_conic(x, y, rho=rho)),
        'solve_conic, init="flb"': (plain, lambda x, y: ugw.solve_conic(x, y, rho=rho, init="flb")),
        "solve_linear, eps = 1e-2": (plain, solve_linear),
        "debiased, eps = 1e-2": (plain, lambda x, y: ugw.debiased(x, y, rho=rho, eps=1e-2)),
        "UGWLoss and backward, eps = 1e-2": (plain, differentiate_loss),
        "rho_for_mass": (plain, lambda x, y: ugw.rho_for_mass(x, y, kept=0.8, eps=1e-2)),
        "barycenter of both, n points": (
            plain,
            lambda x, y: ugw.barycenter([x, y], n=n, rho=rho, eps=1e-2, solver=ugw.BarycenterMin(tol=1e-3)),
        ),
    }


def measure(name, n, answer):
    """Send the seconds and the status of one call from a child process."""
    warnings.simplefilter("ignore")
    make, run = calls(n)[name]
    inputs = make()
    seconds = []
    for _ in range(3):
        start = time.process_time()
        result = run(*inputs)
        seconds.append(time.process_time() - start)
        if seconds[-1] > MAX_REPEATED_SECONDS:
            break
    status = getattr(result, "status", None)
    answer.put((min(seconds), "" if status is None else str(getattr(status, "name", status)).lower()))


def row(name, sizes):
    """Return one line of the table; sizes that would take too long are skipped."""
    cells, last = [], 0.0
    for n in sizes:
        if last > MAX_SECONDS:
            cells.append("–")
            continue
        answer = multiprocessing.get_context("spawn").Queue()
        process = multiprocessing.get_context("spawn").Process(target=measure, args=(name, n, answer))
        process.start()
        last, status = answer.get()
        process.join()
        note = "" if status in ("", "converged") else f" ({status})"
        cells.append((f"{last:.0f} s" if last >= 10 else f"{last:.2g} s") + note)
    return f"| {name} | {' | '.join(cells)} |"


def main(sizes, only):
    print(f"| call | {' | '.join(f'n = {n}' for n in sizes)} |\n|---|{'---:|' * len(sizes)}", flush=True)
    for name in calls(2):
        if only in name:
            print(row(name, sizes), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--only", default="", help="rows whose names contain this text")
    options = parser.parse_args()
    main(options.sizes, options.only)
