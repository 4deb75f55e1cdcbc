"""`pairwise` on local clusters, Dask and Ray: a killed worker changes no byte, and failures are explained."""

import os
import signal
from contextlib import contextmanager

import numpy as np
import pytest

import ugw
from oracles.pairwise import QUICK, clouds, have_equal_bytes, limit_block_entries
from oracles.thresholds import changed_thresholds
from ugw.all_pairs.config import PAIRWISE_CONFIG
from ugw.all_pairs.job import ResultMatrix

joblib = pytest.importorskip("joblib")

SIZES = (9, 12, 10, 11, 9, 8)
ENTRIES = 150


def kill_after_first_block(monkeypatch, victim):
    """Kill the process with the id victim() after the first block has returned; returns the list of killed ids."""
    killed, add_block = [], ResultMatrix.add_block

    def add_and_kill(self, *args):
        add_block(self, *args)
        if not killed:
            killed.append(victim())
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(ResultMatrix, "add_block", add_and_kill)
    return killed


@pytest.fixture(scope="module")
def expected():
    """The result of one process."""
    with limit_block_entries(ENTRIES):
        return ugw.pairwise(clouds(SIZES), method=QUICK)


# -- Dask ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dask_cluster():
    """The client of two Dask workers; a task is given up after two of its workers have died. Dead workers are replaced."""
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    import dask

    place = {"host": "127.0.0.1", "dashboard_address": None}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **place) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def dask_client(dask_cluster):
    """The client of the cluster, with both workers alive; joblib uses them."""
    dask_cluster.wait_for_workers(2)
    with joblib.parallel_config(backend="dask"):
        yield dask_cluster


def test_dask_workers_without_the_package(dask_client):
    """The first of the Dask tests: a worker that was restarted after its death would have the package."""

    def hide():
        import sys

        hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "ugw"}
        sys.modules["ugw"] = None
        sys.hidden_modules = hidden

    def show():
        import sys

        del sys.modules["ugw"]
        sys.modules.update(sys.hidden_modules)

    assert len(dask_client.run(hide)) == 2
    with pytest.raises(ugw.Incomplete, match=r"a worker cannot import ugw[._a-z]*: install ugw") as caught:
        ugw.pairwise(clouds((4, 5)), method=QUICK)
    assert np.isnan(caught.value.result.values).all()
    dask_client.run(show)


def test_dask_with_a_worker_killed_during_the_run(dask_client, expected, monkeypatch):
    with limit_block_entries(ENTRIES):
        ids = list(dask_client.run(os.getpid).values())
        assert os.getpid() not in ids
        killed = kill_after_first_block(monkeypatch, lambda: ids[0])
        result = ugw.pairwise(clouds(SIZES), method=QUICK)
        assert killed
        assert have_equal_bytes(result, expected)


@changed_thresholds(PAIRWISE_CONFIG, dask_poll_seconds=0.2)
def test_dask_workers_that_always_die(dask_client):
    own_pid = os.getpid()

    def kill_worker(t):
        if os.getpid() != own_pid:
            os.kill(os.getpid(), signal.SIGKILL)
        return t.square()

    method = ugw.Method("ugw", loss=kill_worker, init="product")
    with pytest.raises(ugw.Incomplete, match="Dask gave up on a block of pairs: KilledWorker"):
        ugw.pairwise(clouds((4,)), method=method)


# -- Ray -----------------------------------------------------------------------------------------------------


@contextmanager
def ray_cluster():
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from ray.util.joblib import register_ray

    place = {"include_dashboard": False, "_node_ip_address": "127.0.0.1", "object_store_memory": 80 * 2**20}
    ray.init(num_cpus=2, log_to_driver=False, configure_logging=False, **place)
    register_ray()
    try:
        yield ray
    finally:
        ray.shutdown()


def ray_worker():
    """The process of one of Ray's workers that has tasks of ours."""
    psutil = pytest.importorskip("psutil")
    processes = psutil.Process().children(recursive=True)
    return next(p.pid for p in processes if any("PoolActor" in word for word in p.cmdline()))


def test_ray_with_a_worker_killed_during_the_run(expected, monkeypatch):
    with ray_cluster(), joblib.parallel_config(backend="ray"), limit_block_entries(ENTRIES):
        killed = kill_after_first_block(monkeypatch, ray_worker)
        result = ugw.pairwise(clouds(SIZES), method=QUICK)
        assert killed
        assert have_equal_bytes(result, expected)
