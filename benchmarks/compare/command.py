"""Command line: the list of rows, and the measurement of requested rows that are not stored yet."""

import argparse
import functools
import itertools
import sys
import time
from pathlib import Path

import torch

from . import batches, cuda, dense, peers, report, streaming
from .store import Store

RESULTS = Path(__file__).resolve().parents[1] / "results"
RHOS, EPSILONS = (0.1, 1.0), (0.1, 0.01, 0.001)


def cpu_rows(*, full):
    """Return name → measuring function of the CPU rows."""
    rows = {}
    sizes = (500, 1000, 2000) if full else (500,)
    for n, rho, eps in itertools.product(sizes, RHOS, EPSILONS):
        # The other peers are far slower, or solve another problem: they are measured at one size.
        peers_to_run = peers.ALL if full and n == 500 else peers.FASTEST
        repeats, limit = (3, 600.0) if full else (1, 60.0)
        rows[f"cpu dense n={n} rho={rho:g} eps={eps:g}"] = functools.partial(
            dense.cpu_row, n, rho, eps, peers_to_run, repeats=repeats, limit=limit
        )
    rows["cpu pu batch"] = functools.partial(
        batches.cpu_row, peers.REFERENCE, peers.POT, count=40, repeats=2 if full else 0
    )
    for n in (5000, 10_000, 20_000) if full else ():
        rows[f"cpu streaming n={n}"] = functools.partial(streaming.cpu_row, n, limit=900.0)
    return rows


def cuda_rows(*, full):
    rows = {}
    for n in (1000, 4000, 10_000, 20_000) if full else (1000, 10_000):
        rows[f"cuda dense n={n}"] = functools.partial(cuda.dense_row, n, repeats=3, limit=60.0)
    rows["cuda kernel n=100000"] = functools.partial(cuda.kernel_row, 100_000)
    for n in (100_000, 1_000_000) if full else (100_000,):
        rows[f"cuda streaming n={n}"] = functools.partial(streaming.cuda_row, n, repeats=2 if n < 10**6 else 1)
    if full:
        rows["cuda streaming n=10000000"] = functools.partial(streaming.short_row, 10_000_000)
    rows["cuda pu grid"] = batches.cuda_row
    return rows


def run(name, work, *, available):
    """Measure a row; an exception becomes a row with its reason."""
    if name.startswith("cuda") and not available:
        return {"skipped": True, "reason": "skipped: no CUDA device", "measured": {}}
    try:
        return work()
    except Exception as error:  # one row must not end the others
        message = " ".join(str(error).split())[:160]
        return {"reason": f"failed ({type(error).__name__}: {message})", "skipped": True, "measured": {}}
    finally:
        if available:
            torch.cuda.empty_cache()


def print_row(name, row, seconds):
    text = row.get("reason") or ", ".join(f"{k} {report.number(v)}" for k, v in row["measured"].items())
    against = f" (against {row['fastest']})" if "fastest" in row else ""
    print(f"{name}: {text}{against}  [{seconds:.0f} s]", flush=True)


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description="compare ugw with other packages")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small sizes, some minutes (the default)")
    size.add_argument("--full", action="store_true", help="all sizes and all peers, some hours")
    parser.add_argument("--only", metavar="NAME", help="only rows whose names contain these words: cuda, 'n=500 rho=1'")
    parser.add_argument("--fresh", action="store_true", help="measure stored rows again")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results (default benchmarks/results)")
    return parser.parse_args(arguments)


def main(arguments=None):
    options = parse_arguments(arguments)
    torch.set_num_threads(1)
    rows = cpu_rows(full=options.full) | cuda_rows(full=options.full)
    rows = {name: work for name, work in rows.items() if options.only is None or f" {options.only} " in f" {name} "}
    if not rows:
        print(f"no row has the words {options.only!r} in its name", file=sys.stderr)
        return 2
    store, machine = Store(options.out / "compare.json"), report.hardware()
    for name, work in rows.items():
        if name in store and not options.fresh:
            print(f"{name}: stored already (--fresh measures it again)")
            continue
        start = time.perf_counter()
        row = run(name, work, available=torch.cuda.is_available())
        print_row(name, row, time.perf_counter() - start)
        if not (row.get("skipped") and name in store):  # a skipped row does not replace one measured elsewhere
            store.put(name, row, machine)
    text = report.page(store.rows, store.machines())
    (options.out / "compare.md").write_text(text, encoding="utf-8")
    files = [options.out / "compare.md", store.path, *report.plots(store.rows, options.out)]
    print("\n" + "\n".join(report.target_table(store.rows)))
    print("\n" + "\n".join(report.growth_table(store.rows)))
    print("\nwritten:", *(str(f) for f in files))
    return 0
