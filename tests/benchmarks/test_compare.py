"""The comparison's own parts, small and without a look at any clock's number."""

import json
import math

import numpy as np
import pytest
import torch

from benchmarks.compare import batches, command, cuda, dense, measure, peers, problems, report, streaming, targets
from benchmarks.compare.store import Store

SMALL = problems.clouds(14, rho=0.3, eps=0.05)
PLAIN = ("unbalancedgw (log)", "unbalancedgw (exp)", "POT", "POT (torch)", "fugw")


@pytest.fixture(scope="module")
def small_row():
    return dense.row(SMALL, (peers.REFERENCE, peers.POT), repeats=1, limit=60.0)


@pytest.mark.parametrize("peer", [p for p in peers.ALL if p.name in PLAIN], ids=lambda p: p.name)
def test_peers_solve_our_problem(peer):
    if peer.missing():
        pytest.skip(peer.missing())
    trace = measure.peer_trace(peer, SMALL)
    ours, _ = measure.our_trace(SMALL)
    assert trace.final == pytest.approx(ours.final, rel=1e-6)
    assert trace.objectives[0] == pytest.approx(SMALL.evaluate(SMALL.start), rel=1e-9)  # all start from the product
    assert len(trace.seconds) == len(trace.objectives)
    assert trace.seconds == sorted(trace.seconds)


def test_a_missing_peer_is_reported_in_its_row():
    absent = peers.Pot("absent", "no-such-package", "no_such_module")
    row = dense.row(SMALL, (absent, peers.POT), repeats=0, limit=60.0)
    assert "not installed" in row["peers"]["absent"]["reason"]
    assert row["fastest"] == "POT"


def test_a_failing_peer_is_reported_in_its_row():
    class Failing(peers.Peer):
        def run(self, *args, **kwargs):
            raise ZeroDivisionError("by zero")

    row = dense.row(SMALL, (Failing("failing", "POT", "math"),), repeats=0, limit=60.0)
    assert "by zero" in row["peers"]["failing"]["reason"]
    assert row["measured"] == {}


def test_a_slow_peer_is_stopped():
    trace = measure.peer_trace(peers.POT, SMALL, limit=0.0)
    assert trace.stopped
    assert len(trace.seconds) == 1


def test_own_time_is_that_of_the_first_objective_within_the_level():
    first = measure.Trace([1.0, 2.0, 3.0, 4.0], [5.0, 1.1, 1.0 + 5e-7, 1.0], total=4.0)
    second = measure.Trace([1.0, 2.0, 2.5, 9.0], [], total=9.0)
    assert dense.time_of_peer([first]) == 3.0
    assert dense.time_of_peer([first, second]) == 2.5
    assert dense.our_time([first], 1.0) == (3, 3.0)
    assert dense.our_time([first], 0.9) == (None, None)


def test_judging_is_not_timed():
    watch = measure.Monitor(lambda plan: sum(math.sqrt(k) for k in range(300_000)))
    watch(None)
    watch(None)
    spent = measure.cpu_seconds()
    watch.evaluate(None)
    assert watch.seconds[1] - watch.seconds[0] < 0.5 * (measure.cpu_seconds() - spent)


def test_a_row_has_every_field_of_the_report(small_row):
    assert small_row["confirmed"]
    assert small_row["measured"]["worse"] < 1e-6
    name = "cpu dense n=14 rho=0.3 eps=0.05"
    rows = {name: {"n": 14, "rho": 0.3, "eps": 0.05, **small_row, "machine": report.hardware()}}
    rows["cuda pu grid"] = {"reason": "skipped: no CUDA device", "measured": {}, "machine": report.hardware()}
    text = report.page(json.loads(json.dumps(rows)), [report.hardware()])
    assert "POT" in text
    assert "skipped: no CUDA device" in text


def test_old_rows_of_small_problems_are_named():
    old = {key: value for key, value in report.hardware().items() if key != "compiled"}
    rows = {
        "cpu pu batch": {"n": 100, "machine": old},
        "cpu dense n=14": {"n": 14, "machine": report.hardware()},
        "cpu dense n=500": {"n": 500, "machine": old},
        "cuda pu grid": {"n": 100, "machine": old},
    }
    assert "(cpu pu batch)" in report.caveat(rows)
    del rows["cpu pu batch"]
    assert not report.caveat(rows)


def test_a_batch_gives_the_values_of_a_loop():
    instances = problems.pu_batch(2, 10)
    call = batches.solve_batch(instances, batches.stack_instances(instances), problems.PU_RHO, problems.PU_EPS)
    assert call.time_to_objectives(call.values)[1] == 2
    assert call.time_to_objectives(0.9 * call.values) == (call.seconds, 0)
    for value, instance in zip(call.values, instances, strict=True):
        assert value == pytest.approx(measure.our_trace(instance)[0].final, rel=1e-6)


def test_the_reference_batch_is_watched():
    instances = problems.pu_batch(2, 10)
    seconds, finals = batches.time_peer_batch(peers.REFERENCE, instances)
    assert seconds > 0
    assert finals == pytest.approx([measure.peer_trace(peers.REFERENCE, i).final for i in instances], rel=1e-5)


def test_problems_are_seeded_and_as_described():
    again = problems.clouds(14, rho=0.3, eps=0.05)
    assert np.array_equal(again.dx, SMALL.dx)
    assert SMALL.dx.max() == SMALL.dy.max() == 1.0
    rho1, rho2 = problems.pu_grid(2)
    assert len(set(zip(rho1[:36], rho2[:36], strict=True))) == 36
    (x, a), (y, b) = problems.sheets_with_outliers(200)
    assert (a.sum(), b.sum()) == pytest.approx((1.0, 1.1))
    assert max(np.ptp(p, axis=0).max() for p in (x, y)) < 1.5


def test_rows_for_cuda_run_anywhere_at_a_small_size(monkeypatch):
    monkeypatch.setattr(peers, "ON_CUDA", (peers.POT_TORCH,))
    row = cuda.dense_row(10, repeats=1, limit=60.0, device="cpu", dtype=torch.float64)
    assert row["measured"]["seconds"] > 0
    assert streaming.cuda_row(20, repeats=1, device="cpu", dtype=torch.float64)["measured"]["relative error"] < 1e-5
    assert "FlashSinkhorn" in cuda.kernel_row(64, device="cpu")["peers"]
    monkeypatch.setattr(problems, "PU_RHOS", [2.0**-7])
    assert batches.cuda_row(count=2, n=10, device="cpu", dtype=torch.float64)["problems"] == 2


def test_without_a_device_cuda_rows_say_so():
    row = command.run("cuda dense n=1000", lambda: pytest.fail("ran"), available=False)
    assert row["reason"] == "skipped: no CUDA device"


def test_targets_are_met_missed_or_not_measured():
    target = targets.Target("work", "a *", "ratio", 2.0)
    rows = {"a 1": {"measured": {"ratio": 3.0}}, "a 2": {"measured": {"ratio": None}}, "a 3": {"measured": {}}}
    assert [met for *_, met in target.check(rows)] == [True, False, None]
    assert target.check({})[0][2] is None
    mean = targets.Target("work", "a *", "worse", 0.0, at_most=True, mean=True)
    assert mean.check({"a 1": {"measured": {"worse": 1.0}}, "a 2": {"measured": {"worse": -3.0}}})[0][1:] == (
        -1.0,
        True,
    )


def test_every_target_has_a_row():
    names = {*command.cpu_rows(full=True), *command.cuda_rows(full=True)}
    rows = {name: {"measured": {}} for name in names}
    assert all(target.check(rows)[0][0] in {*rows, "mean of 0 rows"} for target in targets.TARGETS)


def test_exponents():
    assert report.exponent([(100, 1.0), (200, 8.0), (400, 64.0)]) == pytest.approx(3.0)
    assert report.exponent([(100, 1.0)]) is None


def test_an_interrupted_run_resumes(tmp_path, monkeypatch, capsys):
    calls = []

    def work(name):
        calls.append(name)
        return {"n": 2, "measured": {"ratio": 1.0}}

    monkeypatch.setattr(command, "cpu_rows", lambda full: {n: lambda n=n: work(n) for n in ("cpu x", "cpu y")})
    monkeypatch.setattr(command, "cuda_rows", lambda full: {})
    assert command.main(["--only", "cpu x", "--out", str(tmp_path)]) == 0
    assert command.main(["--out", str(tmp_path)]) == 0
    assert calls == ["cpu x", "cpu y"]
    assert set(Store(tmp_path / "compare.json").rows) == {"cpu x", "cpu y"}
    command.main(["--only", "cpu x", "--fresh", "--out", str(tmp_path)])
    assert calls == ["cpu x", "cpu y", "cpu x"]
    assert command.main(["--only", "nothing", "--out", str(tmp_path)]) == 2
    assert "stored already" in capsys.readouterr().out


def test_pictures(tmp_path):
    peer_row = {"seconds": 1.0, "same": True}
    rows = {
        f"cpu dense n={n} rho=1 eps=0.1": {
            "n": n,
            "rho": 1.0,
            "eps": 0.1,
            "ours": {"total": n / 100},
            "peers": {"POT": peer_row},
        }
        for n in (100, 200)
    }
    files = report.plots(rows, tmp_path)
    assert [f.name for f in files] == ["cpu-dense.png"]
    assert files[0].stat().st_size > 1000


def test_memory_peaks_are_seen():
    with measure.peak_memory() as peaks:
        block = np.ones(2**23)  # 64 MiB
        del block
    assert peaks[0] is None or peaks[0] > 50
