"""Many small problems in the setting of positive-unlabeled learning: one call of ours, peers one by one or batched.

A peer's seconds are to its own final objectives, summed over the problems; a batched peer's, and ours, to the moment
when every problem of the batch is there.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import torch

import ugw

from . import dense, measure, problems


def stacked(instances, device="cpu", dtype=torch.float64):
    sides = [instance.on(device, dtype, numpy=device == "cpu") for instance in instances]
    return [ugw.Space.stack(list(side)) for side in zip(*sides, strict=True)]


@dataclass(frozen=True, eq=False)
class Call:
    """One call of ours: seconds, clock after each step, objectives of each problem, and evaluated objectives (B,)."""

    seconds: float
    clock: list
    paths: list
    values: np.ndarray
    converged: int
    steps: int

    def reached(self, finals):
        """Return the seconds until all problems reached these objectives (B,) or the call ended, and how many did."""
        levels = measure.level(finals)
        steps = [measure.Trace(objectives=path).first(level) for path, level in zip(self.paths, levels, strict=True)]
        there = [s is not None and v <= level for s, v, level in zip(steps, self.values, levels, strict=True)]
        return (self.clock[max(steps)] if all(there) else self.seconds), sum(map(bool, there))


def ours(instances, spaces, rho, eps):
    """Solve all problems in one call with default options."""
    clock, start = [], measure.busy()
    solver = ugw.AlternateMin(callback=lambda _: clock.append(measure.busy() - start))
    result = ugw.solve(*spaces, rho=rho, eps=eps, solver=solver)
    seconds = measure.busy() - start
    values = np.array([instance.judge(result[i].plan) for i, instance in enumerate(instances)])
    paths, steps = [list(h.objective) for h in result.history], int(np.max(np.asarray(result.n_iter)))
    return Call(seconds, clock, paths, values, int(np.sum(np.asarray(result.converged))), steps)


def one_by_one(peer, instances, repeats):
    """Return the sum of the peer's times to its final objectives, and these objectives (B,)."""
    finals, seconds = [], 0.0
    for instance in instances:
        runs = dense.first_run(peer, instance, float("inf"))
        if isinstance(runs, str):
            return runs, None
        runs += [measure.peer_trace(peer, instance, judged=False) for _ in range(repeats)]
        finals.append(runs[0].final)
        seconds += dense.own_time(runs)
    return seconds, np.array(finals)


def batched(peer, instances):
    """Return the seconds until the last problem of the batch reached its final objective, and these objectives (B,)."""
    reason = peer.missing()
    if reason:
        return reason, None
    table = []
    watch = measure.Monitor(lambda plans: table.append([i.judge(p) for i, p in zip(instances, plans, strict=True)]))
    watch(peer.run_batch(instances, watch))
    table = np.array(table)
    reached = (table <= measure.level(table[-1])).argmax(0)  # first step of each problem
    return watch.seconds[int(reached.max())], table[-1]


def cpu_row(reference, pot, *, count, repeats):
    """Measure the batch in the PU setting. Returns the row with ratios to the reference batch solver and to POT."""
    warnings.simplefilter("ignore", ugw.ConvergenceWarning)
    instances = problems.pu_batch(count)
    spaces = stacked(instances)
    runs = {
        "unbalancedgw (batch)": (reference, batched(reference, instances)),
        "unbalancedgw (one by one)": (reference, one_by_one(reference, instances, 0)),
        "POT (one by one)": (pot, one_by_one(pot, instances, repeats)),
    }
    tries = []
    for _ in range(repeats + 1):
        with measure.peak_memory() as memory:
            tries.append(ours(instances, spaces, problems.PU_RHO, problems.PU_EPS))
    call = min(tries, key=lambda t: t.seconds)
    peers, measured = {}, {}
    for name, (peer, (took, finals)) in runs.items():
        if finals is None:
            peers[name] = {"reason": took, "version": peer.version(), "same": True}
            continue
        worse = (call.values - finals) / abs(finals)
        there, count_there = call.reached(finals)
        peers[name] = {
            "version": peer.version(), "same": True, "objective": float(finals.mean()), "seconds": took,
            "ratio": took / there, "our_seconds": there, "reached": count_there,
            "worst": float(worse.max()), "mean": float(worse.mean()), "memory": None,
        }  # fmt: skip
        measured[f"ratio to {name}"] = took / there
        measured["worse"] = max(measured.get("worse", -np.inf), float(worse.max()))
    told = {
        "objective": float(call.values.mean()), "total": call.seconds, "steps": call.steps, "runs": len(tries),
        "start": call.clock[0], "per_step": float(np.median(np.diff(call.clock))) if len(call.clock) > 1 else None,
        "status": f"{call.converged} of {count} converged", "memory": memory[0],
    }  # fmt: skip
    return {"n": problems.PU_SIZE, "problems": count, "ours": told, "peers": peers, "measured": measured}


def cuda_row(*, count=problems.PU_FOLDS, n=problems.PU_SIZE, device="cuda", dtype=torch.float32):
    """Measure every fold with every pair of rhos in one call."""
    warnings.simplefilter("ignore", ugw.ConvergenceWarning)
    instances = problems.pu_batch(count, n)
    rhos = problems.pu_grid(count)
    pairs = len(rhos[0]) // count
    x, y = stacked([i for i in instances for _ in range(pairs)], device, dtype)
    given, now, times = tuple(torch.as_tensor(r, device=device) for r in rhos), measure.clock(device), []
    for _ in range(2):  # the first one compiles and warms up
        with measure.peak_memory(device) as memory:
            start = now()
            result = ugw.solve(x, y, rho=given, eps=problems.PU_EPS)
            times.append(now() - start)
    told = {
        "objective": float(torch.as_tensor(result.value).double().mean()), "total": min(times),
        "memory": memory[0], "status": f"{int(torch.as_tensor(result.converged).sum())} of {len(x)} converged",
        "steps": int(torch.as_tensor(result.n_iter).max()),
    }  # fmt: skip
    return {"n": n, "problems": len(rhos[0]), "ours": told, "measured": {"seconds": min(times)}}
