"""Dense problems, one at a time: time of each peer to its final objective over our time to the same objective."""

import functools
import math
import warnings
from contextlib import nullcontext

import numpy as np

import ugw

from . import measure, problems

TINY = 1e-9  # relative difference up to which objectives count as equal


def row(instance, peers, *, repeats, limit, **where):
    """Run peers and ugw alternately, `repeats` times. Returns the row as plain numbers."""
    warnings.simplefilter("ignore", ugw.ConvergenceWarning)  # the status is in the table
    spaces = instance.on(where["device"], where["dtype"]) if where else None
    first_runs = {peer.name: first_run(peer, instance, limit, **where) for peer in peers}
    ours, result = measure.our_trace(instance, spaces=spaces)
    ours = [ours]
    runs_by_peer = {name: runs for name, runs in first_runs.items() if isinstance(runs, list)}
    peer_seconds = {name: time_of_peer(runs) for name, runs in runs_by_peer.items()}
    comparable = [
        peer_seconds[p.name] for p in peers if p.same and p.name in peer_seconds and math.isfinite(peer_seconds[p.name])
    ]
    repeated = [
        p
        for p in peers
        if p.name in runs_by_peer
        and not p.limits
        and peer_seconds[p.name] <= measure.FAR * min(comparable, default=0.0)
    ]
    device = where.get("device", "cpu")
    for remaining in reversed(range(repeats)):
        # Memory is measured in one run only, because refilling the heap that was emptied takes time.
        peak = (
            functools.partial(measure.peak_memory, device) if remaining == 0 else functools.partial(nullcontext, [None])
        )
        for peer in repeated:
            with peak() as memory:
                trace = measure.peer_trace(peer, instance, limit=limit, evaluate=False, **where)
            trace.memory = memory[0]
            runs_by_peer[peer.name].append(trace)
        with peak() as memory:
            trace, result = measure.our_trace(instance, spaces=spaces, evaluate=False)
        trace.memory = memory[0]
        ours.append(trace)
    peer_rows = {p.name: peer_row(p, first_runs[p.name], ours) for p in peers}
    return {"ours": our_row(ours, result), "peers": peer_rows, **verdict(peer_rows, ours, instance, spaces)}


def first_run(peer, instance, limit, **where):
    """Return the evaluated run in a list, or the reason why there is none."""
    reason = peer.missing()
    if reason:
        return reason
    try:
        trace = measure.peer_trace(peer, instance, limit=limit, **where)
    except Exception as error:  # a failing peer must not end the others
        return f"failed ({type(error).__name__}: {' '.join(str(error).split())[:100]})"
    return [trace] if math.isfinite(trace.final) else f"no finite objective ({trace.final})"


def time_of_peer(runs):
    """Return the seconds until a peer reached its final objective."""
    step = runs[0].first(measure.level(runs[0].final))
    return float(measure.minimum_seconds(runs)[step])


def our_time(ours, final):
    """Return the step and seconds at which we reached the objective `final`; (None, None) if never."""
    step = ours[0].first(measure.level(final))
    if step is None:
        return None, None
    return step + 1, float(measure.minimum_seconds(ours)[step])


def peer_row(peer, runs, ours):
    if isinstance(runs, str):
        return {"reason": runs, "version": peer.version(), "same": peer.same}
    first = runs[0]
    seconds = time_of_peer(runs)
    step, our_seconds = our_time(ours, first.final)
    return {
        "version": peer.version(),
        "same": peer.same,
        "note": peer.note,
        "objective": first.final,
        "seconds": seconds,
        "steps": first.first(measure.level(first.final)) + 1,
        "total": min(run.total for run in runs),
        "runs": len(runs),
        "memory": min((run.memory for run in runs if run.memory is not None), default=None),
        "stopped": first.stopped,
        "our_step": step,
        "our_seconds": our_seconds,
        "ratio": None if our_seconds is None else seconds / our_seconds,
    }


def our_row(ours, result):
    seconds = measure.minimum_seconds(ours)
    steps = np.diff(seconds[:-1])
    per_step = float(np.median(steps)) if len(steps) else None  # unknown for a single step
    return {
        "objective": ours[0].final,
        "total": min(run.total for run in ours),
        "runs": len(ours),
        "steps": len(seconds) - 1,
        "per_step": per_step,
        "slowest_step": float(steps.max()) if len(steps) else None,
        "start": max(0.0, float(seconds[0]) - (per_step or 0.0)),
        "status": result.status.name,
        "memory": min((run.memory for run in ours if run.memory is not None), default=None),
        "trace": [[round(float(s), 4), o] for s, o in zip(seconds, ours[0].objectives, strict=False)],
    }


def verdict(peer_rows, ours, instance, spaces):
    """Add the ratio to the fastest peer that solves our problem, and confirm the plan at that step."""
    comparable = {name: t for name, t in peer_rows.items() if "reason" not in t and t["same"] and not t["stopped"]}
    if not comparable:
        return {"measured": {}}
    fastest = min(comparable, key=lambda name: comparable[name]["seconds"])
    best = min(t["objective"] for t in comparable.values())
    measured = {"ratio": comparable[fastest]["ratio"], "worse": (ours[0].final - best) / abs(best)}
    step, level = comparable[fastest]["our_step"], measure.level(comparable[fastest]["objective"])
    if step is not None and step < len(ours[0].seconds):
        stopped, _ = measure.our_trace(instance, stop_at=step, spaces=spaces)
        confirmed = stopped.final <= level + TINY * abs(level)
    else:
        confirmed = step is not None
    return {"fastest": fastest, "confirmed": confirmed, "measured": measured}


def cpu_row(n, rho, eps, peers, *, repeats, limit):
    result = row(problems.clouds(n, rho=rho, eps=eps), peers, repeats=repeats, limit=limit)
    return {"n": n, "rho": rho, "eps": eps, **result}
