"""Clusters of worker processes on this machine: Dask and Ray, a worker killed on the way, the same bytes in the end."""

import os
import signal
from contextlib import contextmanager

import numpy as np
import pytest

import ugw
from oracles.pairwise import QUICK, blocks_of, clouds
from ugw.all_pairs.job import Matrix

joblib = pytest.importorskip("joblib")

SIZES = (9, 12, 10, 11, 9, 8)
ENTRIES = 150


def killing(monkeypatch, victim):
    """After the first block is back, SIGKILL for the process of this id. Returns the list of the killed."""
    killed, add = [], Matrix.add

    def once(self, *args):
        add(self, *args)
        if not killed:
            killed.append(victim())
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(Matrix, "add", once)
    return killed


@pytest.fixture(scope="module")
def expected():
    with blocks_of(ENTRIES):
        return ugw.pairwise(clouds(SIZES), method=QUICK)


def same(found, expected):
    return found.values.tobytes() == expected.values.tobytes()


# -- Dask ----------------------------------------------------------------------------------------------------


@contextmanager
def dask_cluster():
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    place = {"host": "127.0.0.1", "dashboard_address": None}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **place) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        yield client


def test_dask_with_a_worker_killed_on_the_way(expected, monkeypatch):
    with dask_cluster() as client, joblib.parallel_config(backend="dask"), blocks_of(ENTRIES):
        ids = list(client.run(os.getpid).values())
        assert os.getpid() not in ids
        killed = killing(monkeypatch, lambda: ids[0])
        found = ugw.pairwise(clouds(SIZES), method=QUICK)
        assert killed
        assert same(found, expected)


def test_dask_workers_that_always_die():
    here = os.getpid()

    def deadly(t):
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return t.square()

    with dask_cluster(), joblib.parallel_config(backend="dask"):
        method = ugw.Method("ugw", loss=deadly, init="product")
        with pytest.raises(ugw.Incomplete, match="Dask gave up on a block of pairs: KilledWorker"):
            ugw.pairwise(clouds((4,)), method=method)


def test_dask_workers_without_the_package():
    def hide():
        import sys

        sys.modules["ugw"] = None

    # Both workers of a cluster where none has died: one started again by its nanny would have the package.
    with dask_cluster() as client, joblib.parallel_config(backend="dask"):
        assert len(client.run(hide)) == 2
        with pytest.raises(ugw.Incomplete, match=r"a worker cannot import ugw[._a-z]*: install ugw") as caught:
            ugw.pairwise(clouds((4, 5)), method=QUICK)
        assert np.isnan(caught.value.result.values).all()


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


def test_ray_with_a_worker_killed_on_the_way(expected, monkeypatch):
    with ray_cluster(), joblib.parallel_config(backend="ray"), blocks_of(ENTRIES):
        killed = killing(monkeypatch, ray_worker)
        found = ugw.pairwise(clouds(SIZES), method=QUICK)
        assert killed
        assert same(found, expected)
