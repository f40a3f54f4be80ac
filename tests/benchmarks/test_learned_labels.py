"""Labels and the figures made of them: computed here from numbers that are known."""

import math

import numpy as np
import pytest

import halide_calibration
import halide_labels
import halide_model
from support import cpu_plans
from tilewright.halide.frontend.source import load
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.analytic.cpu.families import calibrated
from tilewright.machines import machine_from_dict


def test_ordering_counts_pairs_that_are_far_apart():
    times = np.log([1.0, 1.1, 2.0])
    assert halide_model.ordering(times, times) == (2, 2)
    assert halide_model.ordering(-times, times) == (0, 2)
    assert halide_model.ordering(np.array([0.0, 5.0, 3.0]), times) == (1, 2)


@pytest.mark.parametrize(("again", "is_usable"), [(1.0, True), (1.4, False), (0.7, False)])
def test_pipelines_with_noisy_anchors_are_left_out(again, is_usable):
    data = {"status": "ok", "again": again, "rows": [{}] * halide_model.LEAST}
    assert halide_model.usable(data) is is_usable
    assert not halide_model.usable({**data, "rows": []})


class Sleeper:
    """A runner whose time is given, by a clock that it moves itself."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds = clock, seconds

    def run(self):
        self.clock.now += self.seconds


class Clock:
    now = 0.0

    def perf_counter(self):
        return self.now


def test_labels_are_ratios_to_the_anchor(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(halide_labels.time, "perf_counter", clock.perf_counter)
    built = [({"status": "ok"}, Sleeper(clock, s)) for s in (0.002, 0.001, 0.1)]
    built.insert(1, ({"status": "wrong"}, None))
    halide_labels.timed(built)
    ratios = [entry.get("ratio") for entry, _ in built]
    assert ratios == [1.0, None, pytest.approx(0.5), pytest.approx(50.0)]
    assert built[0][0]["seconds"] == pytest.approx(0.002)


def test_anchors_that_take_too_long_have_no_other_labels(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(halide_labels.time, "perf_counter", clock.perf_counter)
    seconds = (2 * halide_labels.LONGEST_RUN, 1.0)
    built = [({"status": "ok"}, Sleeper(clock, s)) for s in seconds]
    halide_labels.timed(built)
    assert [entry.get("ratio") for entry, _ in built] == [1.0, None]


def test_recorded_plans_are_schedules_again():
    data = halide_calibration.read(halide_calibration.DATA)
    program = next(p for p in data["programs"] if p["program"] == "blur")
    algorithm = load(halide_calibration.build("blur"))
    machine, constants = calibrated(machine_from_dict(data["machine"]), None)
    base = cpu_plans.analysed(algorithm)
    found = {
        cpu_plans.schedule_of(algorithm, base, machine, constants, plan)
        for plan in program["schedules"]
    }
    assert len(found) == len(program["schedules"])
    assert all(check(schedule, algorithm) == [] for schedule in found)


def test_file_round_trips(tmp_path):
    path = tmp_path / "labels.json.gz"
    data = {"schema": halide_labels.SCHEMA, "pipelines": [{"ratio": math.pi}]}
    halide_labels.write(path, data)
    first = path.read_bytes()
    halide_labels.write(path, data)
    assert path.read_bytes() == first
    assert halide_labels.read(path) == data
