"""What a calibration measures, from kernels whose times the test makes up."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.halide.calibration import measuring
from tilewright.halide.calibration.kernels import Microbenchmark, chasing, gathering, tasking
from tilewright.halide.calibration.measuring import (
    CALLS_PER_ROUND,
    LEAST_SAMPLES,
    MANY_TASKS,
    TASK_LOOPS,
    Calibrator,
    Series,
    kernels_for,
    quantities,
)

SMALL = {
    "cores": 2,
    "vector_bytes": 16,
    "l1_bytes": 1 << 12,
    "l2_bytes": 1 << 14,
    "l3_bytes": 1 << 16,
    "memory_bytes": 1 << 21,
    "seconds": 0.0,
}


def series(*samples, amount=1.0):
    return Series(Microbenchmark("x", None, None, amount), samples=list(samples))


def test_the_best_counts_per_unit():
    found = series(0.5, 0.4, 0.9, amount=4.0)
    assert found.best == 0.1
    assert found.spread == pytest.approx(0.9 / 0.4 - 1)


@pytest.mark.parametrize(
    ("samples", "settled"),
    [
        ([1.0, 1.05, 1.09, 9.0, 9.0], True),
        ([1.0, 1.05, 1.09, 9.0], False),  # too few
        ([1.0, 1.05, 1.11, 9.0, 9.0], False),  # the best was luck
        ([], False),
        ([0.0] * 9, False),
    ],
)
def test_it_has_settled_when_the_best_was_seen_more_than_once(samples, settled):
    assert series(*samples).settled is settled
    assert LEAST_SAMPLES == 5


class Clock:
    """Time that passes as a kernel says."""

    def __init__(self, monkeypatch, wall, used):
        self.now = [0.0, 0.0]
        self.step = wall, used
        for name, i in (("perf_counter", 0), ("process_time", 1), ("thread_time", 1)):
            monkeypatch.setattr(measuring.time, name, lambda i=i: self.now[i])

    def realize(self, output):
        self.now = [n + s for n, s in zip(self.now, self.step, strict=True)]


@pytest.mark.parametrize(
    ("used", "samples", "disturbed"), [(4.0, [1.0], 0), (3.4, [1.0], 0), (3.3, [], 1)]
)
def test_all_cores_must_have_worked(monkeypatch, used, samples, disturbed):
    clock = Clock(monkeypatch, 1.0, used)
    found = Series(Microbenchmark("x", clock, None, 1.0, parallel=True), least_cores=0.85 * 4)
    found.sample()
    assert (found.samples, found.disturbed, found.tries) == (samples, disturbed, 1)


def test_one_core_is_timed_by_its_own_time(monkeypatch):
    clock = Clock(monkeypatch, 9.0, 0.5)
    found = Series(Microbenchmark("x", clock, None, 1.0))
    found.sample()
    assert found.samples == [0.5]


def settled(kernel, seconds):
    """A series that took the given seconds per unit."""
    return Series(kernel, samples=[seconds * kernel.amount] * LEAST_SAMPLES)


def test_times_become_rates():
    kernels = {k.name: k for k in kernels_for(SMALL)}
    seconds = {
        "clock": 2.5e-10,
        "gather": 5e-10,
        "l2_core": 1e-11,
        "memory_all": 4e-11,
        "memory_latency": 8e-8,
        "fault_fresh": 5e-10,
        "fault_kept": 2e-10,
        # Loops of 16 and of 64 tasks on two cores: 48 more take 24 us, half a microsecond each,
        # so one on one core; its own work is 0.6 us.
        "tasks_few": 10e-6,
        "tasks_many": 34e-6,
        "tasks_serial": 0.6e-6 * MANY_TASKS,
        # Two tasks at once take 9 us, one after the other 2.
        "launch": 9e-6,
        "launch_serial": 2e-6,
    }
    found = quantities({n: settled(k, seconds.get(n, 1.0)) for n, k in kernels.items()})
    values = {name: entry["value"] for name, entry in found.items()}
    assert values["clock"] == pytest.approx(4e9)
    assert values["gather"] == pytest.approx(5e-10)
    assert values["l2_core"] == pytest.approx(1e11)
    assert values["memory_all"] == pytest.approx(2.5e10)
    assert values["memory_latency"] == pytest.approx(8e-8)
    assert values["fault"] == pytest.approx(3e-10)
    assert values["task"] == pytest.approx(0.4e-6)
    assert values["launch"] == pytest.approx(8e-6)
    assert all(entry["settled"] for entry in found.values())


def test_differences_below_zero_and_missing_samples_do_not_settle():
    kernels = {k.name: k for k in kernels_for({**SMALL, "cores": 1})}
    assert not any(name.endswith("_all") or "task" in name for name in kernels)
    made = {n: settled(k, 1.0) for n, k in kernels.items()}
    made["fault_fresh"] = settled(kernels["fault_fresh"], 0.5)
    made["l2_core"] = replace(made["l2_core"], samples=[])
    found = quantities(made)
    assert (found["fault"]["settled"], found["fault"]["value"]) == (False, 0.0)
    assert (found["l2_core"]["settled"], found["l2_core"]["value"]) == (False, 0.0)
    assert found["l2_core"]["spread"] == measuring.UNKNOWN_SPREAD


def test_the_kernels_run_and_every_quantity_is_reported():
    calibrator = Calibrator({**SMALL, "seconds": 0.01})
    calibrator.run()
    found = calibrator.details()
    assert set(found["quantities"]) == {
        "clock", "gather", "fault", "task", "launch", "l2_core", "l2_all", "l3_core", "l3_all",
        "memory_core", "memory_all", "l2_latency", "l3_latency", "memory_latency",
    }  # fmt: skip
    for series in calibrator._series.values():
        assert series.tries % CALLS_PER_ROUND == 0 or found["rounds"] > 1


def test_kernels_do_what_they_are_timed_for():
    # A chain of 64 lines: 64 steps come back to the first.
    chain = chasing("chain", 64 * 64, 64)
    chain.run()
    assert np.asarray(chain.output)[()] == 0
    chain = chasing("chain", 64 * 64, 63)
    chain.run()
    assert np.asarray(chain.output)[()] != 0
    gather = gathering("gather", 3, 8)
    gather.run()
    assert np.all(np.asarray(gather.output) == 1.0 + 2.0)
    for parallel in (False, True):
        tasks = tasking("tasks", 4, TASK_LOOPS, 8, parallel)
        tasks.run()
        values = np.asarray(tasks.output)
        assert values.shape == (4, 1024)
        assert np.ptp(values) == 0
        assert values[0, 0] != 1.0
