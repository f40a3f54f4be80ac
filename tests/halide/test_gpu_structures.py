"""On a GPU, mode ``tune`` measures the best schedules by sampled constants of the time model.

The stand-in for a GPU is the model itself, with other constants than those that the search has.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from stand_in_session import StandInSession

from tilewright.halide.autoschedule import _structures
from tilewright.halide.options import Planning
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.fitting import PRIORS, drawn, predicted_cycles
from tilewright.halide.schedulers.analytic.gpu.recorded import observation
from tilewright.halide.schedulers.learned.measured_search import MeasuredSearch
from tilewright.halide.schedulers.prediction import schedule_nest
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import make_task
from tilewright.halide.search import autotune
from tilewright.halide.search.gpu_structures import SampledStructures, can_sample
from tilewright.halide.search.top_k import Watch
from tilewright.machines import gpu
from tilewright.measure import Measurement

TRUTH = replace(GpuConstants(), hit_wait=100.0, miss_wait=900.0)


@pytest.fixture(scope="module")
def task():
    return make_task("examples/blur.py:blur", target="cuda", machine="a100")


@pytest.fixture(scope="module")
def varied():
    """A task whose schedules differ in more of what the constants are about."""
    return make_task("examples/unsharp.py:unsharp", target="cuda", machine="a100")


def seconds(task, schedule, constants=TRUTH):
    """What the stand-in takes."""
    nest = schedule_nest(task, schedule)
    found = observation("", nest, task.machine, constants, 1.0)
    return float(predicted_cycles([found], task.machine, constants)[0] / task.machine.clock_hz)


def first_plans(task):
    return plan(task, k=5, constants=GpuConstants())


def learnt(task, rounds, count, seed=0):
    """Return the search and the times of what it proposed, after some rounds."""
    search = SampledStructures(task, seed)
    for planned in first_plans(task):
        search.tell(planned.schedule, seconds(task, planned.schedule))
    times = []
    for _ in range(rounds):
        for planned in search.propose(count):
            times.append(seconds(task, planned.schedule))
            search.tell(planned.schedule, times[-1])
    return search, times


def test_proposals_are_new_legal_and_the_same_every_time(task):
    search, times = learnt(task, 2, 2)
    again, same = learnt(task, 2, 2)
    assert times == same
    assert search.known == again.known
    assert len(search.known) == 5 + len(times)
    _, others = learnt(task, 2, 2, seed=1)
    assert others != times


def test_searches_may_run_elsewhere(task):
    here = SampledStructures(task).propose(3)
    with ThreadPoolExecutor(2) as pool:
        there = SampledStructures(task, executor=pool).propose(3)
    assert [each.schedule for each in here] == [each.schedule for each in there]


@pytest.mark.thorough
def test_measurements_direct_the_proposals(varied):
    """They find what is faster than the first plans where the constants are wrong."""
    first = min(seconds(varied, each.schedule) for each in first_plans(varied))
    _, times = learnt(varied, 2, 4)
    assert min(times) < 0.95 * first


def test_draws_agree_with_what_was_measured_and_vary_without(varied):
    plans = plan(varied, k=12, constants=GpuConstants())
    found = [
        observation("", schedule_nest(varied, p.schedule), varied.machine, TRUTH, 1.0)
        for p in plans
    ]
    cycles = predicted_cycles(found, varied.machine, TRUTH)
    measured = [
        replace(one, seconds=float(took / varied.machine.clock_hz))
        for one, took in zip(found, cycles, strict=True)
    ]

    def errors(observed):
        result = []
        for i in range(12):
            made = drawn(observed, varied.machine, GpuConstants(), np.random.default_rng(i))
            ratio = np.log(predicted_cycles(measured, varied.machine, made) / cycles)
            result.append(float(np.std(ratio)))
        return np.mean(result)

    assert errors(measured) < 0.6 * errors([])
    likeliest = drawn(measured, varied.machine, GpuConstants())
    before = predicted_cycles(measured, varied.machine, GpuConstants()) / cycles
    after = predicted_cycles(measured, varied.machine, likeliest) / cycles
    assert np.std(np.log(after)) < 0.6 * np.std(np.log(before))


def test_without_measurements_and_draws_the_constants_stay():
    made = drawn([], gpu("a100"), GpuConstants())
    for name in PRIORS:
        assert getattr(made, name) == pytest.approx(getattr(GpuConstants(), name))


def test_failures_are_not_proposed_again(task):
    search = SampledStructures(task)
    (first,) = search.propose(1)
    other = SampledStructures(task)
    other.tell(first.schedule, None)
    assert not other.observed
    assert first.schedule not in [each.schedule for each in other.propose(2)]


def test_it_is_for_gpus_whose_rates_are_known(task):
    assert can_sample(task)
    unknown = replace(task.machine, clock_hz=None)
    assert not can_sample(SimpleNamespace(machine=unknown))
    assert not can_sample(make_task("examples/blur.py:blur"))


class Device(StandInSession):
    """A session whose times are the model's by other constants; every third schedule crashes."""

    def __init__(self, made):
        super().__init__(made)
        self.made = made

    def measurement(self, schedule):
        if self.measured.index(schedule) % 3 == 2:
            return Measurement("crashed")
        return Measurement("ok", (seconds(self.made, schedule),) * 3, (0.0,) * 3)


def test_tuning_measures_structures_before_factors(task):
    device = Device(task)
    planned = first_plans(task)[:2]
    search = SampledStructures(task)
    outcome, facts = autotune.measure_tuned(
        device, planned, task, watch=Watch(None), evaluations=8, structures=search
    )
    tried = [each.planned.schedule for each in outcome.tried]
    assert tried == device.measured
    assert len(tried) == 2 + 8
    assert search.known == {*tried[: 2 + 4]}
    assert len(search.observed) == sum(each.ok for each in outcome.tried[: 2 + 4])
    # A factor may lead to a schedule that is known, so that the number of failures varies.
    failed = sum(not each.ok for each in outcome.tried[2:])
    assert failed >= 1
    assert f"8 evaluations, {failed} failed" in facts["tuning"]
    times = [each.seconds or math.inf for each in outcome.tried]
    assert outcome.best.seconds == min(times)


def test_structures_are_for_searches_by_time(task):
    host = make_task("examples/blur.py:blur")
    for scheduler in ("analytic", "learned"):
        assert isinstance(_structures(task, Planning(scheduler=scheduler), 0), SampledStructures)
    assert _structures(task, Planning(fusion="none"), 0).fusion == "none"
    assert _structures(task, Planning(objective="sioutas"), 0) is None
    assert _structures(host, Planning(), 0) is None
    assert isinstance(_structures(host, Planning(scheduler="learned"), 0), MeasuredSearch)
