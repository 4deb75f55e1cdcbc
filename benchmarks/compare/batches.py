"""Many small problems in the setting of positive-unlabeled learning: one call of ugw, peers one by one or batched.

The seconds of a peer are those until its own final objectives, summed over the problems. The seconds of a batched peer
and of ugw are those until every problem of the batch has reached its objective.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import torch

import ugw

from . import dense, measure, problems


def stack_instances(instances, device="cpu", dtype=torch.float64):
    sides = [instance.on(device, dtype, numpy=device == "cpu") for instance in instances]
    return [ugw.Space.stack(list(side)) for side in zip(*sides, strict=True)]


@dataclass(frozen=True, eq=False)
class Call:
    """One call of ugw: seconds, clock after each step, objectives of each problem, and evaluated objectives (B,)."""

    seconds: float
    clock: list
    paths: list
    values: np.ndarray
    converged: int
    steps: int

    def time_to_objectives(self, finals):
        """Return the seconds until all problems reached these objectives (B,) or the call ended, and how many did."""
        levels = measure.level(finals)
        steps = [measure.Trace(objectives=path).first(level) for path, level in zip(self.paths, levels, strict=True)]
        is_reached = [s is not None and v <= level for s, v, level in zip(steps, self.values, levels, strict=True)]
        return (self.clock[max(steps)] if all(is_reached) else self.seconds), sum(map(bool, is_reached))


def solve_batch(instances, spaces, rho, eps):
    """Solve all problems in one call with default options."""
    clock, start = [], measure.cpu_seconds()
    solver = ugw.AlternateMin(callback=lambda _: clock.append(measure.cpu_seconds() - start))
    result = ugw.solve(*spaces, rho=rho, eps=eps, solver=solver)
    seconds = measure.cpu_seconds() - start
    values = np.array([instance.evaluate(result[i].plan) for i, instance in enumerate(instances)])
    paths, steps = [list(h.objective) for h in result.history], int(np.max(np.asarray(result.n_iter)))
    return Call(seconds, clock, paths, values, int(np.sum(np.asarray(result.converged))), steps)


def time_peer_loop(peer, instances, repeats):
    """Return the sum of the peer's times to its final objectives, and these objectives (B,)."""
    finals, seconds = [], 0.0
    for instance in instances:
        runs = dense.first_run(peer, instance, float("inf"))
        if isinstance(runs, str):
            return runs, None
        runs += [measure.peer_trace(peer, instance, evaluate=False) for _ in range(repeats)]
        finals.append(runs[0].final)
        seconds += dense.time_of_peer(runs)
    return seconds, np.array(finals)


def time_peer_batch(peer, instances):
    """Return the seconds until the last problem of the batch reached its final objective, and these objectives (B,)."""
    reason = peer.missing()
    if reason:
        return reason, None
    objectives = []
    watch = measure.Monitor(
        lambda plans: objectives.append([i.evaluate(p) for i, p in zip(instances, plans, strict=True)])
    )
    watch(peer.run_batch(instances, watch))
    objectives = np.array(objectives)
    first_steps = (objectives <= measure.level(objectives[-1])).argmax(0)  # first step of each problem
    return watch.seconds[int(first_steps.max())], objectives[-1]


def cpu_row(reference, pot, *, count, repeats):
    """Measure the batch in the PU setting. Returns the row with ratios to the reference batch solver and to POT."""
    warnings.simplefilter("ignore", ugw.ConvergenceWarning)
    instances = problems.pu_batch(count)
    spaces = stack_instances(instances)
    runs = {
        "unbalancedgw (batch)": (reference, time_peer_batch(reference, instances)),
        "unbalancedgw (one by one)": (reference, time_peer_loop(reference, instances, 0)),
        "POT (one by one)": (pot, time_peer_loop(pot, instances, repeats)),
    }
    calls = []
    for _ in range(repeats + 1):
        with measure.peak_memory() as memory:
            calls.append(solve_batch(instances, spaces, problems.PU_RHO, problems.PU_EPS))
    call = min(calls, key=lambda t: t.seconds)
    peers, measured = {}, {}
    for name, (peer, (peer_seconds, finals)) in runs.items():
        if finals is None:
            peers[name] = {"reason": peer_seconds, "version": peer.version(), "same": True}
            continue
        worse = (call.values - finals) / abs(finals)
        our_seconds, n_reached = call.time_to_objectives(finals)
        peers[name] = {
            "version": peer.version(), "same": True, "objective": float(finals.mean()), "seconds": peer_seconds,
            "ratio": peer_seconds / our_seconds, "our_seconds": our_seconds, "reached": n_reached,
            "worst": float(worse.max()), "mean": float(worse.mean()), "memory": None,
        }  # fmt: skip
        measured[f"ratio to {name}"] = peer_seconds / our_seconds
        measured["worse"] = max(measured.get("worse", -np.inf), float(worse.max()))
    our_row = {
        "objective": float(call.values.mean()), "total": call.seconds, "steps": call.steps, "runs": len(calls),
        "start": call.clock[0], "per_step": float(np.median(np.diff(call.clock))) if len(call.clock) > 1 else None,
        "status": f"{call.converged} of {count} converged", "memory": memory[0],
    }  # fmt: skip
    return {"n": problems.PU_SIZE, "problems": count, "ours": our_row, "peers": peers, "measured": measured}


def cuda_row(*, count=problems.PU_FOLDS, n=problems.PU_SIZE, device="cuda", dtype=torch.float32):
    """Measure every fold with every pair of rhos in one call."""
    warnings.simplefilter("ignore", ugw.ConvergenceWarning)
    instances = problems.pu_batch(count, n)
    rhos = problems.pu_grid(count)
    pairs = len(rhos[0]) // count
    x, y = stack_instances([i for i in instances for _ in range(pairs)], device, dtype)
    rho_tensors, now, times = tuple(torch.as_tensor(r, device=device) for r in rhos), measure.clock(device), []
    for _ in range(2):  # the first one compiles and warms up
        with measure.peak_memory(device) as memory:
            start = now()
            result = ugw.solve(x, y, rho=rho_tensors, eps=problems.PU_EPS)
            times.append(now() - start)
    our_row = {
        "objective": float(torch.as_tensor(result.value).double().mean()), "total": min(times),
        "memory": memory[0], "status": f"{int(torch.as_tensor(result.converged).sum())} of {len(x)} converged",
        "steps": int(torch.as_tensor(result.n_iter).max()),
    }  # fmt: skip
    return {"n": n, "problems": len(rhos[0]), "ours": our_row, "measured": {"seconds": min(times)}}
