"""As many schedules as are asked for: distinct where it matters, legal, the best one first."""

from __future__ import annotations

import math
from dataclasses import replace

import halide as hl
import pytest
from cpu_machines import FOUR_CORES as MACHINE
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.halide.autoschedule import _planned
from tilewright.halide.execution.lowering import refusal
from tilewright.halide.ir.plan import GroupReport, PlannedSchedule
from tilewright.halide.legality.check import check
from tilewright.halide.options import TOP_K, TUNED_K, Planning
from tilewright.halide.schedulers import registry
from tilewright.halide.schedulers.diversity import Chosen, differ
from tilewright.halide.schedulers.registry import device_limits, plan
from tilewright.halide.schedulers.task import Task, make_task

K = 5
x, y = hl.vars("x y")


def data(*extents: int) -> hl.ImageParam:
    param = hl.ImageParam(hl.Float(32), len(extents), "data")
    param.set_estimates([(0, extent) for extent in extents])
    return param


def finished(func: hl.Func, *extents: int) -> hl.Func:
    func.set_estimates([(0, extent) for extent in extents])
    return func


def pointwise() -> hl.Func:
    source, out = data(640, 480), hl.Func("out")
    out[x, y] = hl.sqrt(source[x, y]) * 2.0
    return finished(out, 640, 480)


def vector() -> hl.Func:
    source, out = data(100_000), hl.Func("out")
    out[x] = source[x] * 2.0 + 1.0
    return finished(out, 100_000)


def few_points() -> hl.Func:
    source, out = data(3), hl.Func("out")
    out[x] = source[x] + 1.0
    return finished(out, 3)


def row_sums() -> hl.Func:
    source, out = data(512, 256), hl.Func("out")
    r = hl.RDom([(0, 512)], "r")
    out[x] = hl.f32(0.0)
    out[x] += source[r, x]
    return finished(out, 256)


def sum_of_all() -> hl.Func:
    source, out = data(4096), hl.Func("out")
    r = hl.RDom([(0, 4096)], "r")
    out[()] = hl.f32(0.0)
    out[()] += source[r]
    return finished(out)


def scan() -> hl.Func:
    source, out = data(512, 64), hl.Func("out")
    r = hl.RDom([(1, 511)], "r")
    out[x, y] = source[x, y]
    out[r, y] += out[r - 1, y]
    return finished(out, 512, 64)


def matmul() -> hl.Func:
    a, b = data(256, 256), hl.ImageParam(hl.Float(32), 2, "b")
    b.set_estimates([(0, 256), (0, 256)])
    r = hl.RDom([(0, 256)], "r")
    total, out = hl.Func("total"), hl.Func("out")
    total[x, y] = hl.f32(0.0)
    total[x, y] += a[r, y] * b[x, r]
    out[x, y] = total[x, y]
    return finished(out, 256, 256)


def stencil() -> hl.Func:
    source = hl.BoundaryConditions.repeat_edge(data(640, 480))
    rows, out = hl.Func("rows"), hl.Func("out")
    rows[x, y] = source[x - 1, y] + source[x, y] * 2.0 + source[x + 1, y]
    out[x, y] = rows[x, y - 1] + rows[x, y] * 2.0 + rows[x, y + 1]
    return finished(out, 640, 480)


def histogram() -> hl.Func:
    source, out = hl.ImageParam(hl.UInt(8), 2, "data"), hl.Func("out")
    source.set_estimates([(0, 640), (0, 480)])
    r = hl.RDom([(0, 640), (0, 480)], "r")
    out[x] = hl.u32(0)
    out[hl.i32(source[r.x, r.y])] += hl.u32(1)
    return finished(out, 256)


def two_outputs() -> hl.Pipeline:
    source, shared = data(640, 480), hl.Func("shared")
    one, other = hl.Func("one"), hl.Func("other")
    shared[x, y] = hl.exp(source[x, y])
    one[x, y] = shared[x, y] + shared[x + 1, y]
    other[x, y] = shared[x, y] * shared[x, y + 1]
    return hl.Pipeline([finished(one, 639, 479), finished(other, 639, 479)])


def one_number() -> hl.Func:
    value, out = hl.Param(hl.Float(32), "value", 2.0), hl.Func("out")
    value.set_estimate(2.0)
    out[()] = value * value
    return finished(out)


KINDS = (
    pointwise, vector, few_points, row_sums, sum_of_all, scan, matmul, stencil, histogram,
    two_outputs,
)  # fmt: skip
ON_CUDA = (pointwise, few_points, sum_of_all, histogram)


def task_of(pipeline: hl.Func | hl.Pipeline, target: str) -> Task:
    return make_task(pipeline, target=target, machine="a100" if target == "cuda" else MACHINE)


def assert_distinct_and_legal(task: Task, plans: list[PlannedSchedule]) -> None:
    for i, planned in enumerate(plans):
        assert check(planned.schedule, task.algorithm, device_limits(task)) == []
        assert all(differ(planned, other, task.algorithm) for other in plans[:i])


@pytest.mark.parametrize(
    ("build", "target"),
    [
        *((build, "host") for build in KINDS),
        *((build, "cuda") for build in ON_CUDA),
        *(
            pytest.param(build, "cuda", marks=pytest.mark.thorough)
            for build in KINDS
            if build not in ON_CUDA
        ),
    ],
)
@pytest.mark.few(5)
def test_there_are_as_many_as_asked_for(build, target):
    task = task_of(build(), target)
    plans = plan(task, k=K)
    assert len(plans) == K
    assert_distinct_and_legal(task, plans)
    assert [refusal(planned.schedule, task.algorithm) for planned in plans] == [""] * K


@pytest.mark.parametrize("target", ["host", "cuda"])
def test_one_number_has_one_schedule(target):
    task = task_of(one_number(), target)
    plans = plan(task, k=K)
    assert len(plans) == 1
    assert_distinct_and_legal(task, plans)


@pytest.mark.parametrize("target", ["host", "cuda"])
@pytest.mark.parametrize("build", [pointwise, stencil, scan])
@pytest.mark.few(3)
def test_the_first_is_what_one_shot_gives(build, target):
    task = task_of(build(), target)
    (alone,) = plan(task, k=1)
    first, *others = plan(task, k=K)
    assert first.schedule == alone.schedule
    costs = [planned.cost for planned in others]
    # On a GPU, the best by other constants come first.
    assert costs == sorted(costs) or target != "host"
    assert len(others) == K - 1


def test_one_schedule_takes_no_variations(monkeypatch):
    monkeypatch.setattr(registry, "variations", None)
    assert len(plan(task_of(vector(), "host"), k=1)) == 1


@st.composite
def pipelines(draw):
    """One to four Funcs, each reading the one before: pointwise, stencils, sums, enlarged."""
    width, height = draw(st.integers(4, 300)), draw(st.integers(2, 200))
    source = hl.BoundaryConditions.repeat_edge(data(width, height))
    last = source
    for i in range(draw(st.integers(1, 4))):
        func = hl.Func(f"step_{i}")
        kind = draw(st.sampled_from(("point", "across", "down", "sum", "half")))
        if kind == "point":
            func[x, y] = hl.sqrt(hl.abs(last[x, y])) + 1.0
        elif kind == "across":
            func[x, y] = last[x - 1, y] + last[x + 1, y]
        elif kind == "down":
            func[x, y] = last[x, y - 1] * 2.0 + last[x, y + 2]
        elif kind == "half":
            func[x, y] = last[x // 2, y // 2]
        else:
            r = hl.RDom([(0, draw(st.integers(2, 9)))], f"r_{i}")
            func[x, y] = hl.f32(0.0)
            func[x, y] += last[x + r, y]
        last = func
    return finished(last, width, height)


@settings(max_examples=3)
@given(pipelines(), st.sampled_from(("host", "cuda")))
@pytest.mark.thorough
def test_random_pipelines_have_enough_schedules(pipeline, target):
    task = task_of(pipeline, target)
    plans = plan(task, k=K)
    assert len(plans) == K
    assert_distinct_and_legal(task, plans)
    assert [refusal(planned.schedule, task.algorithm) for planned in plans] == [""] * K


def test_a_difference_in_a_group_of_no_weight_is_kept_in_reserve():
    task = task_of(two_outputs(), "host")
    planned = plan(task, k=1)[0]
    place = next(i for i, e in enumerate(planned.schedule.funcs) if e.stages)
    entry = planned.schedule.funcs[place]
    changed = replace(entry, stages=tuple(replace(s, splits=s.splits[:0]) for s in entry.stages))
    name = task.algorithm.funcs[entry.func].name

    def with_share(share: float, schedule) -> PlannedSchedule:
        light, heavy = GroupReport((name,), name, cost=share), GroupReport((), "", cost=1 - share)
        return PlannedSchedule(schedule, (light, heavy), 1.0)

    funcs = list(planned.schedule.funcs)
    funcs[place] = changed
    other = replace(planned.schedule, funcs=tuple(funcs))
    for share, accepted in ((0.001, 1), (0.5, 2)):
        chosen = Chosen(task.algorithm)
        chosen.offer(with_share(share, planned.schedule))
        chosen.offer(with_share(share, other))
        assert len(chosen.accepted) == accepted
        assert len(chosen.best(K)) == 2
        assert not chosen.offer(with_share(share, other))


def test_schedules_without_a_cost_say_so():
    plans = plan(task_of(few_points(), "host"), k=K)
    varied = [planned for planned in plans if math.isinf(planned.cost)]
    assert varied
    assert all(
        any("not costed" in note for group in planned.groups for note in group.notes)
        for planned in varied
    )


@pytest.mark.parametrize(
    ("mode", "planning", "count"),
    [
        ("top", Planning(scheduler="analytic"), TOP_K),
        ("tune", Planning(scheduler="analytic"), TUNED_K),
        ("tune", Planning(scheduler="learned"), TUNED_K),
        ("tune", Planning(scheduler="analytic", k=3), 3),
    ],
)
def test_as_many_are_planned_as_the_mode_measures(mode, planning, count):
    task = make_task(row_sums(), machine=MACHINE)
    found = _planned(task, mode, planning, [], seed=0)
    assert len({each.schedule for each in found}) == len(found) == count


def test_fewer_are_planned_to_tune_on_a_gpu():
    task = make_task(row_sums(), machine="rtx2080ti")
    planning = Planning(scheduler="analytic", check=False)
    assert len(_planned(task, "tune", planning, [], seed=0)) == TOP_K
