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
    found = {}
    sizes = (500, 1000, 2000) if full else (500,)
    for n, rho, eps in itertools.product(sizes, RHOS, EPSILONS):
        # The others are far slower, or solve another problem: they are shown once.
        who = peers.ALL if full and n == 500 else peers.FASTEST
        repeats, limit = (3, 600.0) if full else (1, 60.0)
        found[f"cpu dense n={n} rho={rho:g} eps={eps:g}"] = functools.partial(
            dense.cpu_row, n, rho, eps, who, repeats=repeats, limit=limit
        )
    found["cpu pu batch"] = functools.partial(
        batches.cpu_row, peers.REFERENCE, peers.POT, count=40, repeats=2 if full else 0
    )
    for n in (5000, 10_000, 20_000) if full else ():
        found[f"cpu streaming n={n}"] = functools.partial(streaming.cpu_row, n, limit=900.0)
    return found


def cuda_rows(*, full):
    found = {}
    for n in (1000, 4000, 10_000, 20_000) if full else (1000, 10_000):
        found[f"cuda dense n={n}"] = functools.partial(cuda.dense_row, n, repeats=3, limit=60.0)
    found["cuda kernel n=100000"] = functools.partial(cuda.kernel_row, 100_000)
    for n in (100_000, 1_000_000) if full else (100_000,):
        found[f"cuda streaming n={n}"] = functools.partial(streaming.cuda_row, n, repeats=2 if n < 10**6 else 1)
    if full:
        found["cuda streaming n=10000000"] = functools.partial(streaming.short_row, 10_000_000)
    found["cuda pu grid"] = batches.cuda_row
    return found


def run(name, work, *, available):
    """Measure a row; an exception becomes a row with its reason."""
    if name.startswith("cuda") and not available:
        return {"skipped": True, "reason": "skipped: no CUDA device", "measured": {}}
    try:
        return work()
    except Exception as error:  # one row must not end the others
        said = " ".join(str(error).split())[:160]
        return {"reason": f"failed ({type(error).__name__}: {said})", "skipped": True, "measured": {}}
    finally:
        if available:
            torch.cuda.empty_cache()


def say(name, row, seconds):
    said = row.get("reason") or ", ".join(f"{k} {report.number(v)}" for k, v in row["measured"].items())
    against = f" (against {row['fastest']})" if "fastest" in row else ""
    print(f"{name}: {said}{against}  [{seconds:.0f} s]", flush=True)


def arguments(given):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description="compare ugw with other packages")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small sizes, some minutes (the default)")
    size.add_argument("--full", action="store_true", help="all sizes and all peers, some hours")
    parser.add_argument("--only", metavar="NAME", help="only rows named with these words: cuda, 'n=500 rho=1'")
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured before")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results (default benchmarks/results)")
    return parser.parse_args(given)


def main(given=None):
    asked = arguments(given)
    torch.set_num_threads(1)
    rows = cpu_rows(full=asked.full) | cuda_rows(full=asked.full)
    rows = {name: work for name, work in rows.items() if asked.only is None or f" {asked.only} " in f" {name} "}
    if not rows:
        print(f"no row has the words {asked.only!r} in its name", file=sys.stderr)
        return 2
    store, machine = Store(asked.out / "compare.json"), report.hardware()
    for name, work in rows.items():
        if name in store and not asked.fresh:
            print(f"{name}: kept from before (--fresh measures it again)")
            continue
        start = time.perf_counter()
        row = run(name, work, available=torch.cuda.is_available())
        say(name, row, time.perf_counter() - start)
        if not (row.get("skipped") and name in store):  # a skipped row does not replace one measured elsewhere
            store.put(name, row, machine)
    text = report.page(store.rows, store.machines())
    (asked.out / "compare.md").write_text(text, encoding="utf-8")
    files = [asked.out / "compare.md", store.path, *report.plots(store.rows, asked.out)]
    print("\n" + "\n".join(report.target_table(store.rows)))
    print("\n" + "\n".join(report.growth_table(store.rows)))
    print("\nwritten:", *(str(f) for f in files))
    return 0
