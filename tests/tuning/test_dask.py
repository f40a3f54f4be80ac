import os
import time

import dask
import pytest
from distributed import Client, LocalCluster

from tilewright.tuning import Integer, Space, tune

SPACE = Space([Integer("x", 0, 15), Integer("y", 0, 15)], ["x + y <= 25"])


@pytest.fixture(scope="module")
def client():
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


def cost(c):
    time.sleep(0.05)  # so that both workers have something to do
    return {"value": 1.0 + abs(c["x"] - 11) + abs(c["y"] - 4), "details": {"pid": os.getpid()}}


def test_a_cluster_of_several_workers_evaluates(client):
    with client.get_executor() as executor:
        found = tune(cost, SPACE, budget=24, executor=executor, jobs=4)
    assert len(found.trials) == 24
    assert found.best.value <= 3
    pids = {t.details["pid"] for t in found.trials}
    assert len(pids) == 2
    assert os.getpid() not in pids


def dies(c):
    if c["x"] == 3:
        os._exit(1)
    return cost(c)


def test_a_worker_that_dies_is_a_crash_and_the_cluster_goes_on(client):
    queue = [{"x": 1, "y": 0}, {"x": 3, "y": 0}, {"x": 5, "y": 0}]
    with client.get_executor() as executor:
        found = tune(dies, SPACE, budget=6, queue=queue, executor=executor, jobs=1)
    assert found.trials[1].status == "crashed"
    assert found.stopped == "budget"
    assert sum(t.ok for t in found.trials) == 5
