"""Clocks that record objectives against seconds, for peers and for ugw, and peak memory."""

import contextlib
import ctypes
import gc
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

import ugw

WITHIN = 1e-6  # of an objective, as a share of it
# One thread on the CPU: its own seconds, which are those of the wall on an idle machine and stay so on a busy one.
busy = time.process_time
wall = time.perf_counter
FAR = 2.0  # a peer so many times slower than the fastest is not run again


class OutOfTime(Exception):
    """Raised when the clock stops a run."""


@dataclass
class Trace:
    """Objectives and seconds of every plan of a run; the last is the returned plan."""

    seconds: list = field(default_factory=list)
    objectives: list = field(default_factory=list)
    total: float = float("nan")  # seconds until the call returned
    memory: float | None = None  # MiB above what the process held before
    stopped: bool = False

    @property
    def final(self):
        return self.objectives[-1] if self.objectives else float("nan")

    def first(self, level):
        """Return the index of the first objective at or below a level, or None."""
        below = np.asarray(self.objectives, dtype=float) <= level
        return int(below.argmax()) if below.any() else None


def level(final):
    """Return the level that counts as equal to a final objective."""
    return final + WITHIN * abs(final)


class Monitor:
    """Callback for every plan of a run: records seconds and objectives; the time of evaluation is not counted."""

    def __init__(self, judge=None, limit=float("inf"), device="cpu"):
        self.judge, self.limit, self.clock = judge, limit, clock(device)
        self.seconds, self.objectives = [], []
        self.start = self.clock()

    def __call__(self, plan):
        now = self.clock()
        self.seconds.append(now - self.start)
        if self.judge is not None:
            self.objectives.append(self.judge(plan))
        if self.seconds[-1] > self.limit:
            raise OutOfTime
        self.start += self.clock() - now

    def elapsed(self):
        return self.clock() - self.start


def peer_trace(peer, instance, *, limit=float("inf"), judged=True, **where):
    """Run a peer once. A peer without a hook runs at each of its iteration limits in turn."""
    if peer.limits:
        return _by_limits(peer, instance, limit, **where)
    watch = Monitor(instance.judge if judged else None, limit, where.get("device", "cpu"))
    trace = Trace(watch.seconds, watch.objectives)
    try:
        plan = peer.run(instance, watch, **where)
        trace.total = watch.elapsed()
        watch.limit = float("inf")
        watch(plan)
    except OutOfTime:
        trace.total, trace.stopped = watch.seconds[-1], True
    trace.seconds[-1] = trace.total
    return trace


def _by_limits(peer, instance, limit, **where):
    trace, now = Trace(), clock(where.get("device", "cpu"))
    for steps in peer.limits:
        call = peer.prepare(instance, steps) if hasattr(peer, "prepare") else None
        start = now()
        plan = call() if call else peer.run(instance, lambda _: None, steps, **where)
        trace.seconds.append(now() - start)
        trace.objectives.append(instance.judge(plan))
        if trace.seconds[-1] > limit:
            trace.stopped = True
            break
    trace.total = trace.seconds[-1]
    return trace


def our_trace(instance, *, stop_at=None, spaces=None, judged=True, **options):
    """Solve with default options and a recording callback. Returns the trace and the result.

    stop_at: the step after which to stop. The objectives on the way are the solver's own; the last is judged, which
    takes memory.
    """
    x, y = instance.spaces if spaces is None else spaces
    trace, now = Trace(), clock(torch.as_tensor(x.weights).device.type)

    def look(step):
        if len(step.objective):
            trace.seconds.append(now() - start)
            trace.objectives.append(float(step.objective.min()))
        return stop_at is not None and step.iteration >= stop_at

    start = now()
    result = ugw.solve(x, y, rho=instance.rho, eps=instance.eps, solver=ugw.AlternateMin(callback=look), **options)
    trace.total = now() - start
    trace.seconds.append(trace.total)
    trace.objectives.append(instance.judge(result.plan) if judged else float("nan"))
    return trace, result


def clock(device):
    """Return the clock for a device; on CUDA it synchronizes first."""
    if device == "cpu":
        return busy

    def synchronized():
        torch.cuda.synchronize()
        return wall()

    return synchronized


def minimum(traces):
    """Return the smallest seconds for each step over equal runs, as long as the shortest run."""
    steps = min(len(t.seconds) for t in traces)
    return np.min([t.seconds[:steps] for t in traces], axis=0)


@contextlib.contextmanager
def peak_memory(device="cpu"):
    """Yield a list that holds, after the block, the peak memory in MiB above that before it (None if unknown)."""
    gc.collect()
    found = []
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield found
        torch.cuda.synchronize()
        found.append((torch.cuda.max_memory_allocated() - before) / 2**20)
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    reset = _reset_peak()
    before = _resident("VmRSS")
    yield found
    after = _resident("VmHWM")
    found.append(max(0.0, after - before) if reset and before is not None and after is not None else None)


def _reset_peak():
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _resident(name):
    """Return a memory size of this process in MiB, from /proc."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="ignore").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name + ":")), None)
