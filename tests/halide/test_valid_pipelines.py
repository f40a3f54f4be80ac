"""Every valid pipeline gets a legal schedule: strict arithmetic, extern stages, kept loops."""

import math
from typing import Any

import halide as hl
import pytest

from tilewright.halide.analysis import nest_structure
from tilewright.halide.analysis.bounds import Bounder, Linearizer
from tilewright.halide.execution.lowering import refusal
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    FuncSchedule,
    Level,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)
from tilewright.halide.legality.check import check
from tilewright.halide.result import Result
from tilewright.halide.schedulers import registry
from tilewright.halide.schedulers.analytic.cpu.tiling import IMPOSSIBLE, Planner
from tilewright.halide.schedulers.given import nest_groups
from tilewright.halide.schedulers.naive import naive_schedule
from tilewright.halide.schedulers.prediction import predicted
from tilewright.halide.schedulers.registry import MODEL_FAILED, plan
from tilewright.halide.schedulers.task import make_task

TARGETS = [("host", None), ("cuda", "v100")]
V100: dict[str, Any] = {"target": "cuda", "machine": "v100"}


def vector(size, name="data", dtype=None):
    param = hl.ImageParam(dtype or hl.Float(32), 1, name)
    param.set_estimates([(0, size)])
    return param


def window(extent, sigma=1.3):
    """A sum over a window whose extent is `extent` of a parameter."""
    x = hl.Var("x")
    data, param = vector(1000), hl.Param(hl.Float(32), "sigma", sigma)
    param.set_estimate(sigma)
    edge = hl.BoundaryConditions.repeat_edge(data)
    f = hl.Func("f")
    r = hl.RDom([(0, extent(param))], "r")
    f[x] = hl.sum(edge[x + r])
    f.set_estimates([(0, 1000)])
    return f


def names(algorithm, word):
    return [i for i, func in enumerate(algorithm.funcs) if func.name.startswith(word)]


STRICT = {
    "sub": (lambda s: hl.i32(hl.ceil(hl.strict_float(s - 0.25))), 2),
    "add": (lambda s: hl.i32(hl.ceil(hl.strict_float(s + 2.5))), 4),
    "mul": (lambda s: hl.i32(hl.ceil(hl.strict_float(s * 3.0))), 4),
    "div": (lambda s: hl.i32(hl.floor(hl.strict_float(hl.f32(4.0) / s))), 3),
    "min": (lambda s: hl.i32(hl.strict_float(hl.min(s * 5.0, 3.0))), 3),
}


@pytest.mark.parametrize("operation", STRICT)
def test_extents_in_strict_arithmetic_are_known(operation):
    extent, expected = STRICT[operation]
    algorithm = load(window(extent))
    (rvar,) = [r for func in algorithm.funcs for s in func.stages for r in s.rvars]
    bound = Bounder(Linearizer(algorithm.symbols)).bound(rvar.extent, {}, {})
    assert (bound.lo, bound.hi) == (expected, expected)


@pytest.mark.parametrize(("target", "machine"), TARGETS)
@pytest.mark.parametrize("extent", [STRICT["div"][0], lambda s: hl.i32(hl.sqrt(s * 9.0))])
def test_a_window_of_any_extent_is_tiled(extent, target, machine):
    # Nothing bounds a square root here: the model assumes something, rather than giving up.
    task = make_task(window(extent), target=target, machine=machine)
    (planned,) = plan(task)
    assert not planned.notes
    assert planned.groups[-1].tile
    assert refusal(planned.schedule, task.algorithm) == ""


def two_windows():
    """A sum over a window in each direction; the extent of a window is a parameter's root."""
    x, y = hl.vars("x y")
    data, sigma = hl.ImageParam(hl.Float(32), 2, "data"), hl.Param(hl.Float(32), "sigma", 1.5)
    data.set_estimates([(0, 300), (0, 200)])
    edge = hl.BoundaryConditions.repeat_edge(data)
    h, v = hl.Func("h"), hl.Func("v")
    r = hl.RDom([(0, hl.i32(hl.sqrt(sigma * 9.0)))], "r")
    h[x, y] = hl.sum(edge[x + r, y])
    v[x, y] = hl.sum(h[x, y + r])
    v.set_estimates([(0, 300), (0, 200)])
    return v


@pytest.mark.parametrize(("target", "machine"), TARGETS)
def test_windows_of_any_extent_are_explained(target, machine):
    task = make_task(two_windows(), target=target, machine=machine)
    for planned in (*plan(task), PlannedSchedule(registry.naive(task), (), 0.0)):
        report = Result(task, planned, "oneshot").report()
        assert report.predicted > 0
        assert all(row.predicted > 0 for row in report.groups)
        if target == "cuda":
            assert all(row.blocks and row.threads for row in report.groups)


def test_a_launch_of_unknown_extent_is_left_out():
    x, y = hl.vars("x y")
    data, angle = vector(1000), hl.Param(hl.Float(32), "angle", 1.5)
    f, r = hl.Func("f"), hl.RDom([(0, hl.i32(hl.tan(angle)))], "r")
    f[x, y] = 0.0
    f[x, r] += data[x]
    f.set_estimates([(0, 1000), (0, 100)])
    task = make_task(f, **V100)
    entry = FuncSchedule(
        names(task.algorithm, "f")[0],
        ROOT,
        ROOT,
        stages=(default_nest("v0", "v1"), default_nest("v0", "r0")),
    )
    schedule = Schedule(task.algorithm.digest, task.target, (entry,))
    report = Result(task, PlannedSchedule(schedule, (), math.inf), "given").report()
    assert [row.blocks for row in report.groups] == [(), ()]  # of the update, and what it needs


def default_nest(*loops):
    """A nest with all loops over blocks."""
    return StageSchedule((), tuple(ScheduledLoop(loop, "gpu_block") for loop in loops))


@pytest.mark.parametrize(("target", "machine"), TARGETS)
def test_a_nest_of_too_many_places_is_scheduled_but_not_explained(target, machine, monkeypatch):
    monkeypatch.setattr(nest_structure, "_MOST_PLACES", 0)
    task = make_task(window(STRICT["add"][0]), target=target, machine=machine)
    (planned,) = plan(task)
    assert not planned.notes
    assert predicted(task, planned.schedule) is None
    assert nest_groups(planned.schedule, task.algorithm) == ()
    assert Result(task, planned, "oneshot").report().nest == ()


def test_funcs_that_the_model_cannot_cost_stay_at_root(monkeypatch):
    x = hl.Var("x")
    data, f, g = vector(500), hl.Func("odd"), hl.Func("g")
    f[x] = hl.exp(data[x]) + hl.sin(data[x + 1])
    f[x] += data[x]
    g[x] = sum((f[x + i] for i in range(9)), hl.f32(0.0))
    g.set_estimates([(0, 400)])
    best = Planner._best
    monkeypatch.setattr(
        Planner,
        "_best",
        lambda self, group: IMPOSSIBLE if "odd" in group.members[0] else best(self, group),
    )
    task = make_task(g)
    (planned,) = plan(task)
    assert any("not analysed" in note for group in planned.groups for note in group.notes)
    (odd,) = names(task.algorithm, "odd")
    (entry,) = [entry for entry in planned.schedule.funcs if entry.func == odd]
    assert (entry.compute.kind, entry.stages) == ("root", ())
    assert refusal(planned.schedule, task.algorithm) == ""


@pytest.mark.failing_model
@pytest.mark.parametrize("target", ["host", "cuda"])
def test_a_model_that_fails_gives_the_naive_schedule(monkeypatch, target):
    def fail(*_):
        raise KeyError("f$3")

    monkeypatch.setattr(registry, "_planned", fail)
    task = make_task(window(STRICT["add"][0]), target=target, machine=dict(TARGETS)[target])
    (planned,) = plan(task)
    assert planned.notes[0].startswith(MODEL_FAILED)
    assert "KeyError: 'f$3'" in planned.notes[0]
    assert planned.schedule == naive_schedule(task.algorithm, task.target, task.machine)


@pytest.mark.parametrize(("target", "machine"), TARGETS)
def test_a_sum_in_an_output_without_dimensions(target, machine):
    data = vector(4000)
    r = hl.RDom([(0, 4000)], "r")
    f = hl.Func("f")
    f[()] = hl.sum(hl.abs(data[r])) / 4000.0
    task = make_task(f, target=target, machine=machine)
    (planned,) = plan(task)
    assert not planned.notes
    assert refusal(planned.schedule, task.algorithm) == ""


def test_a_sum_in_an_output_of_one_block():
    # The whole output is one vector: it has no loop left to compute the sum in.
    x = hl.Var("x")
    data = hl.ImageParam(hl.Float(32), 2, "data")
    f, r = hl.Func("f"), hl.RDom([(0, 50)], "r")
    f[x] = hl.sum(data[x, r])
    f.set_estimates([(0, 8)])
    task = make_task(f)
    (planned,) = plan(task)
    assert not planned.notes
    assert refusal(planned.schedule, task.algorithm) == ""


def with_externs():
    """A Func that both an extern stage and another Func read, point by point."""
    i, size = hl.Var("i"), 2000
    data = vector(size)
    before, between, out = hl.Func("before"), hl.Func("between"), hl.Func("out")
    first, second = hl.Func("first"), hl.Func("second")
    before[i] = data[i] * 2.0

    def call(func, read):
        arguments = [hl.ExternFuncArgument(read), hl.ExternFuncArgument(hl.i32(size))]
        func.define_extern("some_function", arguments, hl.Float(32), [i])

    call(first, before)
    between[i] = first[i] + before[i]
    call(second, between)
    out[i] = second[i] - between[i]
    out.set_estimates([(0, size)])
    return out


@pytest.mark.parametrize(("target", "machine"), TARGETS)
def test_inputs_of_an_extern_stage_are_not_inlined(target, machine):
    task = make_task(with_externs(), target=target, machine=machine)
    assert refusal(naive_schedule(task.algorithm, task.target, task.machine), task.algorithm) == ""
    for planned in plan(task, k=10):
        assert not planned.notes
        assert refusal(planned.schedule, task.algorithm) == ""


def test_inputs_of_an_extern_stage_are_computed_on_the_host():
    # Halide copies nothing back from the device for an extern stage.
    task = make_task(with_externs(), **V100)
    read = {*names(task.algorithm, "before"), *names(task.algorithm, "between")}
    naive = naive_schedule(task.algorithm, task.target, task.machine)
    for schedule in (naive, *(planned.schedule for planned in plan(task, k=5))):
        mapped = {
            entry.func: {loop.mapping for nest in entry.stages for loop in nest.loops}
            for entry in schedule.funcs
        }
        assert not any(m.startswith("gpu") for func in read for m in mapped[func])
        assert "gpu_block" in set().union(*mapped.values())


def test_inlining_what_an_extern_stage_reads_is_illegal():
    algorithm = load(with_externs())
    (before,) = names(algorithm, "before")
    entry = FuncSchedule(before, INLINE, INLINE)
    problems = check(Schedule(algorithm.digest, "host", (entry,)), algorithm)
    assert [problem.kind for problem in problems if problem.func.startswith("before")] == ["inline"]


def test_loops_that_the_user_computes_others_at_are_kept():
    c, y = hl.vars("c y")
    data = hl.ImageParam(hl.Float(32), 2, "data")
    data.set_estimates([(0, 256), (0, 64)])
    scaled, total, out = hl.Func("scaled"), hl.Func("total"), hl.Func("out")
    r = hl.RDom([(0, 256)], "r")
    scaled[c, y] = data[c, y] * 2.0
    total[y] += scaled[r, y]
    out[c, y] = scaled[c, y] / total[y]
    out.set_estimates([(0, 256), (0, 64)])
    total.compute_at(out, y)  # out itself is as it is by default
    for target, machine in TARGETS:
        task = make_task(out, target=target, machine=machine, keep_schedule=True)
        kept = {func.name.split("$")[0] for func in task.algorithm.funcs if func.scheduled}
        assert kept == {"total", "out"}
        (planned,) = plan(task)
        assert refusal(planned.schedule, task.algorithm) == ""


def four_dimensions(extents):
    """A reduction that one thread computes for each point of four dimensions."""
    args = hl.vars("c x y n")
    data = hl.ImageParam(hl.Float(32), 4, "data")
    f, g = hl.Func("f"), hl.Func("g")
    r = hl.RDom([(0, 8)], "r")
    f[args] = 0.0
    f[args] += data[r, args[1], args[2], args[3]] * args[0]
    g[args] = hl.max(f[args], 0.0)
    g.set_estimates([(0, extent) for extent in extents])
    return g


def test_fused_blocks_around_registers_lower():
    task = make_task(four_dimensions((64, 15, 11, 2)), **V100)
    (planned,) = plan(task)
    kept = [e.compute.loop for e in planned.schedule.funcs if e.memory == "register"]
    assert "v0_t" in kept  # others are copies of operands, inside its reduction
    assert refusal(planned.schedule, task.algorithm) == ""


def test_sizes_of_run_time_are_not_kept_in_registers():
    x, y, k = hl.vars("x y k")
    data, taps = hl.ImageParam(hl.Float(32), 2, "data"), hl.Param(hl.Int(32), "taps", 3)
    taps.set_estimate(3)
    weight, total, out = hl.Func("weight"), hl.Func("total"), hl.Func("out")
    weight[x, k] = hl.exp(-0.5 * k * x) * hl.sin(1.0 * k + x)
    r = hl.RDom([(0, taps)], "r")
    total[x] += weight[x, r]
    s = hl.RDom([(0, taps)], "s")
    out[x, y] = 0.0
    out[x, y] += data[x + s, y] * weight[x, s] / total[x]
    out.set_estimates([(0, 21), (0, 14)])
    task = make_task(out, target="cuda", machine="rtx4090")
    (planned,) = plan(task)
    assert refusal(planned.schedule, task.algorithm) == ""


@pytest.mark.parametrize("target", ["host", "cuda"])
def test_a_refusal_says_why(target):
    algorithm = load(with_externs())
    entry = FuncSchedule(names(algorithm, "before")[0], INLINE, INLINE)
    schedule = Schedule(algorithm.digest, target, (entry,))
    assert "used in the externally-computed function" in refusal(schedule, algorithm)


def test_what_opencl_alone_refuses_is_lowered_for_cuda():
    x, y = hl.vars("x y")
    out = hl.Func("out")
    out[x, y] = hl.cast(hl.UInt(8), x + y)
    out.set_estimates([(0, 256), (0, 64)])
    algorithm = load(out)
    lanes = 32  # OpenCL's vectors have at most 16
    stage = StageSchedule(
        (Split("v0", "v0_o", "v0_i", lanes, "round_up"),),
        (
            ScheduledLoop("v0_i", "vectorized"),
            ScheduledLoop("v0_o", "gpu_thread"),
            ScheduledLoop("v1", "gpu_block"),
        ),
    )
    entries = (FuncSchedule(0, ROOT, ROOT, stages=(stage,)),)
    assert refusal(Schedule(algorithm.digest, "cuda", entries), algorithm) == ""
    assert refusal(Schedule(algorithm.digest, "opencl", entries), algorithm)


def bins(sigma, through=False, bounded=True):
    """Sums per bin, of `1 / sigma` bins, read by a stage with threads; `bounded`: of ten bins."""
    x, y, z = hl.vars("x y z")
    data = hl.ImageParam(hl.Float(32), 2, "data")
    data.set_estimates([(0, 512), (0, 64)])
    r = hl.RDom([(0, 8)], "r")
    place, total, out = hl.Func("place"), hl.Func("total"), hl.Func("out")
    value = hl.i32(hl.clamp(data[x * 8 + r, y], 0.0, 1.0) / sigma)
    if through:
        place[x, y] = hl.i32(hl.clamp(data[x, y], 0.0, 1.0) / sigma)
        value = place[x * 8 + r, y]
    total[x, y, z] = 0.0
    total[x, y, value] += 1.0
    out[x, y, z] = total[x, y, z] + total[x, y, z + 1] * 2.0
    if bounded:
        out.bound(z, 0, 10)
    out.set_estimates([(0, 64), (0, 64), (0, 10)])
    return out


def bins_in_registers(algorithm, whole):
    """Sums in registers of the thread that reads them; `whole`: it reads all of them."""
    (total,), (out,) = names(algorithm, "total"), names(algorithm, "out")
    z = ScheduledLoop("v2") if whole else ScheduledLoop("v2", "gpu_block")
    x, y = ScheduledLoop("v0", "gpu_thread"), ScheduledLoop("v1", "gpu_block")
    reader = StageSchedule((), (z, x, y) if whole else (x, y, z))
    kept = tuple(
        StageSchedule((), tuple(map(ScheduledLoop, loops)))
        for loops in (("v0", "v1", "v2"), ("r0", "v0", "v1"))
    )
    level = Level("at", out, loop="v0")
    entries = [
        FuncSchedule(total, level, level, memory="register", stages=kept),
        FuncSchedule(out, ROOT, ROOT, stages=(reader,)),
    ]
    nest = StageSchedule((), (x, y))
    places = names(algorithm, "place")
    entries += [FuncSchedule(place, ROOT, ROOT, stages=(nest,)) for place in places]
    return Schedule(algorithm.digest, "host-cuda", tuple(entries))


@pytest.mark.parametrize("through", [False, pytest.param(True, marks=pytest.mark.thorough)])
@pytest.mark.thorough
def test_bins_that_a_parameter_counts_are_not_kept_in_registers(through):
    sigma = hl.Param(hl.Float(32), "sigma", 0.1)
    sigma.set_estimate(0.1)
    for width, counted in ((sigma, True), (hl.f32(0.1), False)):
        task = make_task(bins(width, through), target="cuda", machine="rtx4090")
        assert refusal(plan(task)[0].schedule, task.algorithm) == ""
        for whole in (True, False):
            schedule = bins_in_registers(task.algorithm, whole)
            reasons = [violation.message for violation in check(schedule, task.algorithm)]
            assert any("depends on a parameter" in why for why in reasons) == counted
            assert bool(reasons) == bool(refusal(schedule, task.algorithm))


def test_bins_that_are_read_at_moving_places_are_not_kept_in_registers():
    """The places that are read and those that are written then have no constant extent together."""
    task = make_task(bins(hl.f32(0.1), bounded=False), target="cuda", machine="rtx4090")
    assert [refusal(each.schedule, task.algorithm) for each in plan(task, k=3)] == [""] * 3
