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

WITHIN = 1e-6  # relative difference up to which a final objective counts as reached
# Processor time of one thread: on an idle machine it is the wall-clock time, and other jobs do not change it.
cpu_seconds = time.process_time
wall_seconds = time.perf_counter
FAR = 2.0  # a peer slower than the fastest by more than this factor is not run again


class TimeLimitReached(Exception):
    """Raised when the clock stops a run."""


@dataclass
class Trace:
    """Objectives and seconds of every plan of a run; the last is the returned plan."""

    seconds: list = field(default_factory=list)
    objectives: list = field(default_factory=list)
    total: float = float("nan")  # seconds until the call returned
    memory: float | None = None  # MiB above the memory of the process before
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

    def __init__(self, evaluate=None, limit=float("inf"), device="cpu"):
        self.evaluate, self.limit, self.clock = evaluate, limit, clock(device)
        self.seconds, self.objectives = [], []
        self.start = self.clock()

    def __call__(self, plan):
        now = self.clock()
        self.seconds.append(now - self.start)
        if self.evaluate is not None:
            self.objectives.append(self.evaluate(plan))
        if self.seconds[-1] > self.limit:
            raise TimeLimitReached
        self.start += self.clock() - now

    def elapsed(self):
        return self.clock() - self.start


def peer_trace(peer, instance, *, limit=float("inf"), evaluate=True, **where):
    """Run a peer once. A peer without a hook runs at each of its iteration limits in turn."""
    if peer.limits:
        return _trace_by_limits(peer, instance, limit, **where)
    watch = Monitor(instance.evaluate if evaluate else None, limit, where.get("device", "cpu"))
    trace = Trace(watch.seconds, watch.objectives)
    try:
        plan = peer.run(instance, watch, **where)
        trace.total = watch.elapsed()
        watch.limit = float("inf")
        watch(plan)
    except TimeLimitReached:
        trace.total, trace.stopped = watch.seconds[-1], True
    trace.seconds[-1] = trace.total
    return trace


def _trace_by_limits(peer, instance, limit, **where):
    trace, now = Trace(), clock(where.get("device", "cpu"))
    for steps in peer.limits:
        call = peer.prepare(instance, steps) if hasattr(peer, "prepare") else None
        start = now()
        plan = call() if call else peer.run(instance, lambda _: None, steps, **where)
        trace.seconds.append(now() - start)
        trace.objectives.append(instance.evaluate(plan))
        if trace.seconds[-1] > limit:
            trace.stopped = True
            break
    trace.total = trace.seconds[-1]
    return trace


def our_trace(instance, *, stop_at=None, spaces=None, evaluate=True, **options):
    """Solve with default options and a recording callback. Returns the trace and the result.

    stop_at: the step after which to stop. The objectives of the steps are those of the solver; evaluate: evaluate that
    of the result by `ugw.objective`, which takes memory.
    """
    x, y = instance.spaces if spaces is None else spaces
    trace, now = Trace(), clock(torch.as_tensor(x.weights).device.type)

    def record_step(step):
        if len(step.objective):
            trace.seconds.append(now() - start)
            trace.objectives.append(float(step.objective.min()))
        return stop_at is not None and step.iteration >= stop_at

    start = now()
    result = ugw.solve(
        x, y, rho=instance.rho, eps=instance.eps, solver=ugw.AlternateMin(callback=record_step), **options
    )
    trace.total = now() - start
    trace.seconds.append(trace.total)
    trace.objectives.append(instance.evaluate(result.plan) if evaluate else float("nan"))
    return trace, result


def clock(device):
    """Return the clock for a device; on CUDA it synchronizes first."""
    if device == "cpu":
        return cpu_seconds

    def synchronized_seconds():
        torch.cuda.synchronize()
        return wall_seconds()

    return synchronized_seconds


def minimum_seconds(traces):
    """Return the smallest seconds for each step over equal runs, as long as the shortest run."""
    steps = min(len(t.seconds) for t in traces)
    return np.min([t.seconds[:steps] for t in traces], axis=0)


@contextlib.contextmanager
def peak_memory(device="cpu"):
    """Yield a list that holds, after the block, the peak memory in MiB above that before it (None if unknown)."""
    gc.collect()
    peaks = []
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield peaks
        torch.cuda.synchronize()
        peaks.append((torch.cuda.max_memory_allocated() - before) / 2**20)
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    reset = _reset_peak()
    before = _resident("VmRSS")
    yield peaks
    after = _resident("VmHWM")
    peaks.append(max(0.0, after - before) if reset and before is not None and after is not None else None)


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
