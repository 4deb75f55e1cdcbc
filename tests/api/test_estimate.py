"""Memory: predictions, chunks that do not change results, and advice in the error."""

import json
import math
import os
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

import ugw
from oracles.errors import assert_refused
from oracles.spaces import space
from oracles.thresholds import changed_thresholds
from ugw._utils.size_class import THRESHOLDS
from ugw.api import batching
from ugw.api import estimate as memory
from ugw.api.config import API_CONFIG
from ugw.geometry.space import Space
from ugw.initializers import coarse, partial, select, successive_halving
from ugw.kernels.cpu import native
from ugw.problems import build
from ugw.results.records import Status

INF = math.inf
GIB = 2**30
SIZES = [(6, 3), (2, 7), (4, 4), (5, 6), (3, 2)]  # B = 5
RHO = (np.array([1.0, 0.3, INF, 0.5, INF]), np.array([1.0, 2.0, 0.7, INF, INF]))
EPS = np.array([0.1, 0.2, 0.0, 0.05, 0.0])


def batches(metric="euclidean"):
    options = {"dtype": torch.float64, "n_features": 2, "metric": metric}
    x = Space.stack([space(n, 2, seed, **options) for seed, (n, _) in enumerate(SIZES)])
    y = Space.stack([space(m, 2, 10 + seed, **options) for seed, (_, m) in enumerate(SIZES)])
    return x, y


def limit_chunks(entries):
    """Chunks of at most `entries` plan entries on a CPU; one item has 6·7 of them, times the plans of its starts."""
    return changed_thresholds(API_CONFIG, max_chunk_entries_cpu=entries, max_unmodeled_entries=0)


def set_available_memory(monkeypatch, free):
    """Let the available memory be `free` bytes."""
    monkeypatch.setattr(memory, "available_bytes", lambda device: int(free))


def numbers(result):
    """All numbers of a result, and the valid rows of the trace of each item."""
    t = result.tensors
    plans = [p if isinstance(p, torch.Tensor) else p.log_plan.dense().exp() for p in (t.plan, t.previous_plan)]
    scalars = [*t.terms.as_dict().values(), t.relaxed_value, t.marginal_error, t.change, t.residual]
    return [*plans, *(t.potentials or ()), *scalars, t.status, t.n_iter]


def assert_same(one, other):
    assert len(numbers(one)) == len(numbers(other))
    for u, v in zip(numbers(one), numbers(other), strict=True):
        torch.testing.assert_close(u, v, rtol=1e-12, atol=1e-12, equal_nan=True)
    for h, k in zip(one.history, other.history, strict=True):
        np.testing.assert_allclose(h.objective, k.objective, rtol=1e-12, atol=1e-12)
    assert one.sizes == other.sizes


# -- chunks ------------------------------------------------------------------------------------------------


GIVEN = torch.rand((5, 6, 7), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
GIVEN = GIVEN * torch.stack([torch.ones(n, m).new_zeros(6, 7).index_put_(
    tuple(torch.cartesian_prod(torch.arange(n), torch.arange(m)).T), torch.tensor(1.0)) for n, m in SIZES])  # fmt: skip
QUICK = ugw.AlternateMin(max_iter=12)
KINDS = {
    "product": {"init": "product"},
    "auto": {},
    "given": {"init": GIVEN},
    "fused": {"fused": ugw.Fused(np.array([0.1, 0.2, 0.3, 0.4, 0.5])), "init": "flb"},
    "cost": {"fused": ugw.Fused(0.3, cost=torch.arange(5 * 6 * 7, dtype=torch.float64).view(5, 6, 7) / 200)},
    "multistart": {"solver": ugw.Multistart(n=3, solver=QUICK), "init": "random"},
}


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_solving_in_chunks_gives_the_same_results(kind):
    """Ragged items, a rho for each side and an eps of its own for each, hard sides and eps = 0 among them."""
    x, y = batches()
    options = {"rho": RHO, "eps": EPS, "solver": QUICK, **KINDS[kind]}
    whole = ugw.solve(x, y, **options)
    for entries in (1, 3 * 42, 7 * 42):
        with limit_chunks(entries):
            assert_same(ugw.solve(x, y, **options), whole)


OTHER_SOLVES = {
    "conic": lambda x, y: ugw.solve_conic(x, y, rho=0.5),
    "partial": lambda x, y: ugw.solve(x, y, rho=ugw.TV(0.1)),
    "mass": lambda x, y: ugw.solve(x, y, rho=ugw.Mass(0.3), init="product"),
}


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
@pytest.mark.parametrize("kind", OTHER_SOLVES)
def test_conic_and_partial_solves_in_chunks_give_the_same_results(monkeypatch, kind):
    x, y = batches()
    whole = OTHER_SOLVES[kind](x, y)
    chunk_sizes, solve_in_chunks = [], batching.solve_in_chunks

    def record_chunk_size(problem, solver, groups, chunk_size, solve_items):
        chunk_sizes.append(chunk_size)
        return solve_in_chunks(problem, solver, groups, chunk_size, solve_items)

    for module in ("ugw.api.solve", "ugw.api.conic"):
        monkeypatch.setattr(f"{module}.solve_in_chunks", record_chunk_size)
    for entries in (1, 4 * 3 * 42):
        with limit_chunks(entries):
            chunked = OTHER_SOLVES[kind](x, y)
        assert chunked.status == whole.status
        torch.testing.assert_close(chunked.value, whole.value, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(chunked.plan, whole.plan, rtol=1e-6, atol=1e-7)
    assert chunk_sizes[0] == 1
    assert chunk_sizes[1] > 1


def test_items_start_as_they_would_alone():
    """An easy item (large eps) beside a hard one: each has the plan that it would have alone, for any chunk size."""
    x, y = space(9), space(8, seed=1)
    eps = np.array([1e3, 0.01])
    alone = [ugw.solve(x, y, eps=float(e), solver=ugw.AlternateMin(tol=1e-3)).value for e in eps]
    for entries in (1, 2**19):
        with limit_chunks(entries):
            both = ugw.solve(x, y, eps=eps, solver=ugw.AlternateMin(tol=1e-3))
        # Shared spaces multiply all plans at once: another number of them is rounded otherwise.
        np.testing.assert_allclose(both.value, alone, rtol=1e-6)


def test_a_chunk_that_cuda_cannot_hold_is_halved(monkeypatch):
    """Here the allocator refuses more than two items at a time; the results are those of one batch."""
    x, y = batches()
    whole = ugw.solve(x, y, eps=0.1, init="product")
    sizes, run = [], ugw.AlternateMin.run

    def run_two_at_most(solver, problem, *args):
        if problem.batch > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        sizes.append(problem.batch)
        return run(solver, problem, *args)

    monkeypatch.setattr(ugw.AlternateMin, "run", run_two_at_most)
    assert_same(ugw.solve(x, y, eps=0.1, init="product"), whole)
    assert sum(sizes) == 5
    assert max(sizes) == 2


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
@pytest.mark.parametrize("start", ["product", "auto", "lazy"])
def test_chunks_of_plans_that_are_not_stored(start):
    x, y = batches("sqeuclidean")
    solver = ugw.AlternateMin(max_iter=12, inner=ugw.Sinkhorn(method="streaming"))
    options = {"rho": 1.0, "eps": np.array([0.1, 0.2, 0.05, 0.1, 0.3]), "solver": solver, "fused": ugw.Fused(0.2)}
    options["init"] = ugw.solve(x, y, **{**options, "init": "flb"}).plan if start == "lazy" else start
    whole = ugw.solve(x, y, **options)
    with changed_thresholds(API_CONFIG, max_chunk_bytes=15 * 2**20, max_unmodeled_entries=0):
        assert ugw.estimate(x, y, fused=options["fused"], solver=solver).chunk_size < 5
        chunked = ugw.solve(x, y, **options)
    assert chunked.path == "streaming"
    assert_same(chunked, whole)
    torch.testing.assert_close(chunked.plan.marginals[0], whole.plan.marginals[0], rtol=1e-12, atol=1e-12)


def test_the_starts_of_a_multistart_count_for_small_problems_too(monkeypatch):
    x, y = batches()
    many = ugw.Multistart(n=100_000)
    set_available_memory(monkeypatch, 2**20)
    assert bool(ugw.solve(x, y, eps=0.1, init="product").all_converged)
    with pytest.raises(ugw.OutOfMemory):
        ugw.solve(x, y, eps=0.1, init="product", solver=many)


@limit_chunks(2 * 42)
def test_a_callback_sees_every_chunk_and_stops_them_all():
    x, y = batches()
    steps = []
    r = ugw.solve(x, y, eps=0.1, init="product", solver=ugw.AlternateMin(callback=steps.append))
    assert [step.iteration for step in steps] == list(range(1, len(steps) + 1))  # they count on
    assert max(step.live for step in steps) == 2
    assert len(steps) == sum(int(r.n_iter[i : i + 2].max()) for i in (0, 2, 4))

    def stop(step):
        steps.append(step)
        return step.iteration == 2

    steps.clear()
    with pytest.warns(ugw.ConvergenceWarning):
        r = ugw.solve(x, y, eps=0.1, init="product", solver=ugw.AlternateMin(callback=stop))
    assert len(steps) == 2
    assert r.status == [Status.STOPPED] * 5
    assert r.n_iter.tolist() == [2, 2, 1, 1, 1]
    assert bool(torch.isfinite(r.value).all())


@limit_chunks(2 * 42)
def test_the_bar_expects_the_steps_of_all_chunks(capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ugw.solve(*batches(), eps=0.1, init="product", solver=ugw.AlternateMin(max_iter=7, progress=True))
    assert "/21 [" in capfd.readouterr().err


def test_chunks_keep_to_the_budget_and_are_of_one_size():
    x = Space.from_points(torch.rand(40, 100, 2))
    for budget in (GIB, 100 * 2**20, 50 * 2**20, 0):
        with changed_thresholds(API_CONFIG, max_chunk_entries_cpu=10**12, max_chunk_bytes=budget):
            size = ugw.estimate(x, x).chunk_size
            one, chunk = (ugw.estimate(x.take(torch.arange(k)), x.take(torch.arange(k))).bytes for k in (1, size))
        assert size == 1 or chunk <= budget
        assert size == 40 or size * one > 0.4 * budget
        assert size == math.ceil(40 / math.ceil(40 / size))
    with limit_chunks(20 * 100 * 100):  # one plan an item
        assert ugw.estimate(x, x).chunk_size == 20


def test_an_item_that_repeats_its_first_plan_keeps_its_others(monkeypatch):
    """An item with fewer different plans than others of the batch repeats its first one."""
    x = space(12, seed=3)
    problem = build.build_ugw(x, space(11, seed=4), rho=1.0, eps=1e-3, fused=None)
    different, repeats = successive_halving.different_candidates, 0

    def with_repeats(plans, values, count, tie):
        index = different(plans, values, 2, tie)
        return torch.cat([index, index[:, :1].expand(-1, repeats)], dim=1)

    monkeypatch.setenv(native.SWITCH, "0")
    monkeypatch.setattr(successive_halving, "different_candidates", with_repeats)
    alone = coarse.coarse_plans(problem, 2)
    repeats = 4
    torch.testing.assert_close(coarse.coarse_plans(problem, 2), alone, rtol=1e-12, atol=1e-12)


# -- predictions -------------------------------------------------------------------------------------------

MEASURE = r"""
import json, os, sys, warnings
import torch, ugw
from ugw.api import batching, config, conic
warnings.simplefilter("ignore")
torch.set_num_threads(1)

def with_model(model, check_memory=batching.check_memory):
    guesses.append(model.total_bytes(model.chunk_size))
    return check_memory(model)

batching.check_memory = conic.check_memory = with_model
object.__setattr__(config.API_CONFIG, "max_unmodeled_entries", 0)
# Solves whose memory depends on arguments that `ugw.estimate` does not have.
solves = {
    "balanced": lambda x, y: ugw.solve(x, y, rho=float("inf"), eps=0.0, solver=ugw.AlternateMin(max_iter=9)),
    "TV": lambda x, y: ugw.solve(x, y, rho=ugw.TV(0.1), solver=ugw.FrankWolfe(max_iter=9)),
    "Mass": lambda x, y: ugw.solve(x, y, rho=ugw.Mass(0.5), solver=ugw.FrankWolfe(max_iter=9)),
    "conic": lambda x, y: ugw.solve_conic(x, y, rho=0.5, solver=ugw.AlternateMin(max_iter=9)),
    "best": lambda x, y: ugw.solve(x, y, eps=0.01, init="best", solver=ugw.AlternateMin(max_iter=9)),
}

def peak(kind, n, batch, dtype):
    torch.manual_seed(0)
    n, m = n if isinstance(n, list) else (n, n)
    points = [torch.rand((batch, k, 3) if batch > 1 else (k, 3), dtype=getattr(torch, dtype)) for k in (n, m)]
    x, y = (ugw.Space.from_points(p, metric="sqeuclidean" if kind == "streaming" else "euclidean") for p in points)
    inner = ugw.Sinkhorn(method="streaming" if kind == "streaming" else "auto")
    given = {"solver": ugw.AlternateMin(max_iter=9, inner=inner)}  # the last steps extrapolate
    if kind == "loss":
        given["loss"] = torch.Tensor.abs
    before = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    open("/proc/self/clear_refs", "w").write("5")  # the high-water mark starts here
    guesses.clear()
    if kind in solves:
        solves[kind](x, y)
    else:
        guesses.append(ugw.estimate(x, y, **given).bytes)
        ugw.solve(x, y, eps=0.01, **given)
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return guesses[0], int(line.split()[1]) * 1024 - before

guesses, loading = [], [("dense", 20), ("streaming", 50), ("loss", 8), ("conic", 20), ("balanced", 20), ("balanced", 330)]
for case in loading:  # of libraries
    peak(*case, 1, "float64")
for case in json.loads(sys.argv[1]):
    read, write = os.pipe()
    child = os.fork()
    if not child:  # each case in a process of its own: what another one freed is not there to be used again
        os.write(write, json.dumps(peak(*case)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    print(os.read(read, 1000).decode())
"""


# glibc raises the size of blocks that it returns to the system with use, so that peaks vary; fixed, they do not.
FIXED_ALLOCATION = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux to measure a peak")
def test_the_peak_is_as_predicted():
    cases = [("dense", 100, 1, "float64"), ("dense", 300, 1, "float64"), ("dense", 500, 1, "float64"),
             ("dense", 1000, 1, "float32"), ("dense", 310, 1, "float32"), ("dense", 150, 6, "float64"),
             ("dense", 60, 40, "float32"), ("dense", 400, 6, "float64"), ("streaming", 400, 1, "float64"),
             ("streaming", 3000, 1, "float32"), ("loss", 20, 3, "float64"), ("loss", 40, 1, "float64"),
             ("loss", 90, 1, "float32"), ("dense", [50, 2000], 1, "float64"), ("conic", 30, 4, "float64"),
             ("conic", 100, 1, "float64"), ("balanced", 24, 20, "float64"), ("balanced", 330, 1, "float64"),
             ("TV", 30, 4, "float64"), ("TV", 100, 1, "float64"), ("Mass", 330, 1, "float64"),
             ("best", 330, 1, "float64")]  # fmt: skip
    command = [sys.executable, "-c", MEASURE, json.dumps(cases)]
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ | FIXED_ALLOCATION, timeout=300)
    assert run.returncode == 0, run.stderr
    ratios = [guess / peak for guess, peak in map(json.loads, run.stdout.splitlines())]
    outside = {str(case): ratio for case, ratio in zip(cases, ratios, strict=True) if not 1.0 <= ratio <= 2.0}
    assert not outside


@pytest.mark.parametrize("start", ["auto", "best", "product"])
@pytest.mark.parametrize(("n", "m"), [(12, 10), (40, 30), (60, 50)])
def test_the_candidates_that_are_counted_are_those_that_are_made(n, m, start):
    """A search may find fewer different plans than it is asked for, so that the count is an upper bound."""
    x, y = space(n), space(m, seed=1)
    problem = build.build_ugw(x, y, rho=INF, eps=0.0, fused=None)
    candidates = partial.balanced_candidates(problem, start).shape[1]
    assert 0 <= partial.n_balanced_candidates(start, n, m) - candidates <= (3 if start == "best" else 0)
    for side in (ugw.TV(0.1), ugw.Mass(0.5)):
        problem, surrogate = build.build_partial(x, y, sides=(side, side), eps=0.0, fused=None, loss=None)
        candidates = partial.partial_candidates(problem, surrogate, start).shape[1]
        assert 0 <= partial.n_partial_candidates(problem, start) - candidates <= (7 if start != "product" else 0)


@pytest.mark.parametrize("method", ["auto", "streaming", "stabilized"])
@pytest.mark.parametrize("limit", [10, 1000])
def test_the_path_is_the_one_that_runs(method, limit):
    x, y = space(8, metric="sqeuclidean"), space(9, seed=1, metric="sqeuclidean")
    solver = ugw.AlternateMin(inner=ugw.Sinkhorn(method=method))
    with changed_thresholds(THRESHOLDS, max_stored_entries={"cpu": limit}):
        assert ugw.estimate(x, y, solver=solver).path == ugw.solve(x, y, eps=0.1, solver=solver).path
    with pytest.raises(ugw.InputError, match="low-rank"):
        ugw.estimate(space(8), space(9, seed=1), solver=ugw.AlternateMin(inner=ugw.Sinkhorn(method="streaming")))


def test_the_fields_of_an_estimate():
    x, y = space(30), space(40, seed=1)
    e = ugw.estimate(x, y)
    assert e.fits
    assert e.path == "stored"
    assert e.chunk_size == 1
    assert "fits" in repr(e)
    inner = ugw.Sinkhorn().with_defaults().max_iter
    assert e.work == 30 * 40 * (30 + 40 + 2 * inner)  # from one plan
    large = ugw.estimate(space(110), space(100, seed=1))
    assert large.work == 110 * 100 * (110 + 100 + 2 * inner)
    assert ugw.estimate(x, y, solver=ugw.Multistart(n=5)).work == 5 * e.work
    tiny = ugw.estimate(space(5), space(4, seed=1))
    assert tiny.work == 5 * 4 * (5 + 4 + 2 * inner)
    double = Space.from_points(torch.rand(900, 2, dtype=torch.float64))
    assert ugw.estimate(double.to(torch.float32), double.to(torch.float32)).bytes < ugw.estimate(double, double).bytes
    low = Space.from_points(torch.rand(900, 2, dtype=torch.float64), metric="sqeuclidean")
    assert ugw.estimate(low, low).work < ugw.estimate(double, double).work
    streaming = ugw.AlternateMin(inner=ugw.Sinkhorn(method="streaming"))
    assert ugw.estimate(low, low, solver=streaming).path == "streaming"


# -- when it does not fit ----------------------------------------------------------------------------------


def test_a_problem_that_cannot_fit_is_refused_before_solving(monkeypatch):
    x, y = (Space.from_points(torch.rand(n, 2, dtype=torch.float64)) for n in (900, 1000))
    need = ugw.estimate(x, y).bytes
    set_available_memory(monkeypatch, 0.9 * need)
    assert not ugw.estimate(x, y).fits
    steps = []
    solver = ugw.AlternateMin(tol=0.1, callback=steps.append)
    ugw.solve(x, y, eps=1.0, solver=solver)  # it may fit: the estimate has a margin
    assert steps
    steps.clear()
    set_available_memory(monkeypatch, 0.3 * need)
    with pytest.raises(ugw.OutOfMemory, match=r"stored plans need about .* GiB, .* GiB available; what would fit: "):
        ugw.solve(x, y, solver=solver)
    assert not steps
    assert issubclass(ugw.OutOfMemory, MemoryError)
    set_available_memory(monkeypatch, 0.7 * need)
    text = repr(ugw.estimate(x, y))
    assert "does not fit" in text
    assert "float32" in text
    assert "\n" not in text


@pytest.mark.parametrize("kind", ["conic", "partial"])
def test_conic_and_partial_problems_that_cannot_fit_are_refused_before_solving(monkeypatch, kind):
    x = Space.from_points(torch.rand(600, 2, dtype=torch.float64))
    set_available_memory(monkeypatch, 2**25)
    for module in ("ugw.api.solve", "ugw.api.conic"):
        monkeypatch.setattr(f"{module}.solve_in_chunks", lambda *_: pytest.fail("solved"))
    with pytest.raises(ugw.OutOfMemory, match=r"stored plans need about .* GiB, .* GiB available; what would fit: "):
        OTHER_SOLVES[kind](x, x)


def test_the_message_says_whether_the_problem_fits(monkeypatch):
    x = space(30)
    fitting = ugw.estimate(x, x)
    assert fitting.message.startswith("fits: stored plans need about ")
    assert "out of memory" in fitting.error_message  # an allocation may fail all the same
    set_available_memory(monkeypatch, 1)
    assert ugw.estimate(x, x).message.startswith("out of memory: stored plans need about ")


def test_the_message_has_digits_in_which_the_two_amounts_differ(monkeypatch):
    x = space(600)
    need = ugw.estimate(x, x).bytes
    for free in (need - 1, need - need // 10_000, need + 1, need + need // 10_000, need // 2, 2 * need):
        set_available_memory(monkeypatch, free)
        e = ugw.estimate(x, x)
        for text in (e.message, repr(e)):
            needed, available = (float(number) for number in re.findall(r"([\d.e-]+) GiB", text)[:2])
            assert (needed <= available) == e.fits
            assert needed != available
            assert (needed, available) == (pytest.approx(need / GIB, rel=5e-3), pytest.approx(free / GIB, rel=5e-3))
    set_available_memory(monkeypatch, need)
    assert ugw.estimate(x, x).message.count(f"{need / GIB:.3g} GiB") == 2  # equal amounts are not spelled out
    set_available_memory(monkeypatch, need // 2)
    assert f"{need / GIB:.3g} GiB" in ugw.estimate(x, x).message  # three digits suffice


def test_the_advice_fits(monkeypatch):
    x = Space.from_points(torch.rand(8, 100, 2, dtype=torch.float64))
    need = ugw.estimate(x, x, solver=ugw.Multistart(n=20)).bytes
    set_available_memory(monkeypatch, need // 2)
    assert "one start" in ugw.estimate(x, x, solver=ugw.Multistart(n=20)).advice
    set_available_memory(monkeypatch, API_CONFIG.memory.base_bytes + 10_000)
    assert "× " in ugw.estimate(x, x).advice  # nothing but fewer points


def test_the_old_name_of_the_chunk_size_warns():
    x = space(5)
    with pytest.warns(DeprecationWarning, match="chunk_size"):
        assert ugw.estimate(x, x).together == 1


ALLOCATIONS = [
    RuntimeError("[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"),
    MemoryError("Unable to allocate 7.45 GiB for an array"),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
]


@pytest.mark.parametrize("error", ALLOCATIONS)
@pytest.mark.parametrize("solve", [ugw.solve, ugw.solve_conic])
def test_a_failed_allocation_is_reported_with_advice(monkeypatch, solve, error):
    def fail(*_):
        raise error

    monkeypatch.setitem(select.SINGLE_PLANS, "product", fail)
    with pytest.raises(ugw.OutOfMemory, match=r"out of memory: stored plans need about .* GiB") as caught:
        solve(space(6), space(7, seed=1), init="product")
    assert caught.value.__cause__ is error
    assert "\n" not in str(caught.value)


def test_other_errors_are_not_changed(monkeypatch):
    def fail(*_):
        raise RuntimeError("the expanded size of the tensor must match")

    monkeypatch.setitem(select.SINGLE_PLANS, "product", fail)
    with pytest.raises(RuntimeError, match="expanded size") as caught:
        ugw.solve(space(6), space(7, seed=1), init="product")
    assert not isinstance(caught.value, ugw.OutOfMemory)


def test_estimate_raises_the_errors_of_solve():
    x, y = space(5, 2), space(6, 2, 1)
    assert_refused(ugw.estimate, x, y, fused=0.5, match="fused must be a ugw.Fused")
    two, three = Space.stack([x] * 2), Space.stack([y] * 3)
    for loss in (None, lambda t: t.abs()):
        assert_refused(
            ugw.estimate,
            two,
            three,
            loss=loss,
            match="batch sizes must agree, got the first space 2, the second space 3",
        )
