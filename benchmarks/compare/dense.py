"""Dense problems, one at a time: time of each peer to its final objective over our time to the same objective."""

import functools
import math
import warnings
from contextlib import nullcontext

import numpy as np

import ugw

from . import measure, problems

TINY = 1e-9  # objectives closer than this share are equal


def row(instance, peers, *, repeats, limit, **where):
    """Run peers and ugw alternately, several times. Returns the row as plain numbers."""
    warnings.simplefilter("ignore", ugw.ConvergenceWarning)  # the status is in the table
    spaces = instance.on(where["device"], where["dtype"]) if where else None
    theirs = {peer.name: first_run(peer, instance, limit, **where) for peer in peers}
    ours, result = measure.our_trace(instance, spaces=spaces)
    ours = [ours]
    ran = {name: runs for name, runs in theirs.items() if isinstance(runs, list)}
    own = {name: own_time(runs) for name, runs in ran.items()}
    same = [own[p.name] for p in peers if p.same and p.name in own and math.isfinite(own[p.name])]
    again = [p for p in peers if p.name in ran and not p.limits and own[p.name] <= measure.FAR * min(same, default=0.0)]
    device = where.get("device", "cpu")
    for left in reversed(range(repeats)):
        # Memory is measured once, from a heap that was emptied: to fill it again takes time.
        peak = functools.partial(measure.peak_memory, device) if left == 0 else functools.partial(nullcontext, [None])
        for peer in again:
            with peak() as memory:
                trace = measure.peer_trace(peer, instance, limit=limit, judged=False, **where)
            trace.memory = memory[0]
            ran[peer.name].append(trace)
        with peak() as memory:
            trace, result = measure.our_trace(instance, spaces=spaces, judged=False)
        trace.memory = memory[0]
        ours.append(trace)
    told = {p.name: tell_peer(p, theirs[p.name], ours) for p in peers}
    return {"ours": tell_ours(ours, result), "peers": told, **verdict(told, ours, instance, spaces)}


def first_run(peer, instance, limit, **where):
    """Return the evaluated run in a list, or the reason why there is none."""
    reason = peer.missing()
    if reason:
        return reason
    try:
        trace = measure.peer_trace(peer, instance, limit=limit, **where)
    except Exception as error:  # whatever a peer does, the others go on
        return f"failed ({type(error).__name__}: {' '.join(str(error).split())[:100]})"
    return [trace] if math.isfinite(trace.final) else f"no finite objective ({trace.final})"


def own_time(runs):
    """Return the seconds until a peer reached its final objective."""
    step = runs[0].first(measure.level(runs[0].final))
    return float(measure.minimum(runs)[step])


def our_time(ours, final):
    """Return the step and seconds at which we reached the objective `final`; (None, None) if never."""
    step = ours[0].first(measure.level(final))
    if step is None:
        return None, None
    return step + 1, float(measure.minimum(ours)[step])


def tell_peer(peer, runs, ours):
    if isinstance(runs, str):
        return {"reason": runs, "version": peer.version(), "same": peer.same}
    first = runs[0]
    seconds = own_time(runs)
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


def tell_ours(ours, result):
    seconds = measure.minimum(ours)
    steps = np.diff(seconds[:-1])
    per_step = float(np.median(steps)) if len(steps) else None  # of one step alone nothing is known
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


def verdict(told, ours, instance, spaces):
    """Add the ratio to the fastest peer that solves our problem, and confirm the plan at that step."""
    ran = {name: t for name, t in told.items() if "reason" not in t and t["same"] and not t["stopped"]}
    if not ran:
        return {"measured": {}}
    fastest = min(ran, key=lambda name: ran[name]["seconds"])
    best = min(t["objective"] for t in ran.values())
    measured = {"ratio": ran[fastest]["ratio"], "worse": (ours[0].final - best) / abs(best)}
    step, aim = ran[fastest]["our_step"], measure.level(ran[fastest]["objective"])
    if step is not None and step < len(ours[0].seconds):
        stopped, _ = measure.our_trace(instance, stop_at=step, spaces=spaces)
        confirmed = stopped.final <= aim + TINY * abs(aim)
    else:
        confirmed = step is not None
    return {"fastest": fastest, "confirmed": confirmed, "measured": measured}


def cpu_row(n, rho, eps, peers, *, repeats, limit):
    found = row(problems.clouds(n, rho=rho, eps=eps), peers, repeats=repeats, limit=limit)
    return {"n": n, "rho": rho, "eps": eps, **found}
