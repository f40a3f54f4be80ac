"""Plans and factors chosen by the released network of Anderson 2021."""

import math
from typing import get_args

import pytest

from tilewright.errors import TilewrightError
from tilewright.halide.ir.nest import exact_size
from tilewright.halide.ir.schedule import ScheduleError
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.halide_autoschedulers import plugin_path
from tilewright.halide.schedulers.learned.published import gpu_model
from tilewright.halide.schedulers.learned.published.gpu_model import PublishedGpuModel
from tilewright.halide.schedulers.learned.published.weights import embedded_weights
from tilewright.halide.schedulers.registry import Fusion, device_limits, plan
from tilewright.halide.schedulers.task import make_task
from tilewright.halide.search.factors import structure
from tilewright.halide.search.published_model import preferred

PIPELINE = "examples/blur.py:blur"
PLANS = 2


@pytest.fixture(scope="module")
def task():
    return make_task(PIPELINE, target="cuda", machine="a100", exact_sizes=True)


@pytest.fixture
def model(task):
    return PublishedGpuModel(task, embedded_weights(plugin_path("Anderson2021")))


@pytest.fixture(scope="module")
def planned(task):
    found = [p for fusion in get_args(Fusion) for p in plan(task, k=PLANS, fusion=fusion)]
    return [exact_size(each.schedule) for each in found]


def test_a_task_for_a_cpu_is_refused():
    weights = embedded_weights(plugin_path("Anderson2021"))
    with pytest.raises(TilewrightError, match=r"for GPUs, and the task is for .*target='cuda'"):
        PublishedGpuModel(make_task(PIPELINE, target="host"), weights)


def test_the_plan_is_the_one_with_the_least_cost(model, planned):
    found = preferred(model, plans=PLANS, starts=0)
    costs = [model.milliseconds(schedule) for schedule in planned]
    assert found.milliseconds == min(costs) < max(costs)
    assert found.schedule == planned[costs.index(min(costs))]


@pytest.mark.thorough
def test_factors_are_tuned_within_the_effort(model, planned):
    untuned = preferred(model, plans=PLANS, starts=0)
    before = model.predictions
    found = preferred(model, plans=PLANS, starts=1, predictions=25)
    assert model.predictions - before <= 25
    assert found.milliseconds < untuned.milliseconds
    assert found.milliseconds == model.milliseconds(found.schedule)
    assert structure(found.schedule) in [structure(schedule) for schedule in planned]
    assert check(found.schedule, model.task.algorithm, device_limits(model.task)) == []


def test_the_same_task_gives_the_same_schedule(task, model):
    again = PublishedGpuModel(task, model.weights)
    first, second = (preferred(m, plans=2, predictions=10) for m in (model, again))
    assert first.schedule == second.schedule


def test_a_schedule_without_features_is_never_preferred(model, planned, monkeypatch):
    features = gpu_model.gpu_features
    best = preferred(model, plans=PLANS, starts=0).schedule

    def refusing(pipeline, schedule, **options):
        if schedule == best:
            raise ScheduleError("a fused loop that is split")
        return features(pipeline, schedule, **options)

    monkeypatch.setattr(gpu_model, "gpu_features", refusing)
    fresh = PublishedGpuModel(model.task, model.weights)
    assert fresh.rated(best).milliseconds == math.inf
    assert preferred(fresh, plans=PLANS, starts=0).schedule != best
